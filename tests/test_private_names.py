"""The package uses documented APIs only: no internals of asyncio, no ctypes, no bytecode, no foreign frames."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import midspan

SOURCE = Path(midspan.__file__).parent

MODULES = ("ctypes", "dis", "_asyncio")
"""Modules that must not be imported."""
NAMES = (
    # tasks and futures of asyncio
    *("_enter_task", "_leave_task", "_swap_current_task", "_register_task", "_unregister_task", "_register_eager_task"),
    *("_must_cancel", "_fut_waiter", "_log_destroy_pending", "_log_traceback", "_coro", "_num_cancels_requested"),
    *("_make_cancelled_error", "_cancel_message", "_callbacks", "_asyncio_future_blocking", "_set_running_loop"),
    "_run_once",
    # frames and code of other functions
    *("_getframe", "_current_frames", "f_locals", "f_back", "gi_frame", "cr_frame", "ag_frame", "gi_code", "cr_code"),
    *(
        "ag_code",
        "gi_yieldfrom",
        "cr_await",
        "ag_await",
        "co_code",
        "co_consts",
        "co_names",
        "getrefcount",
        "pythonapi",
    ),
)
"""Names that must not appear, as an attribute, as a name or in a call of getattr."""
CODE = "__code__"
"""May be used for the names of a closure only: `__code__.co_freevars`."""


EXEMPT = {"tools/workers/supervisor.py": ["ctypes"]}
"""Calls prctl(2), which Python does not offer."""


def violations(source: str) -> Iterator[str]:
    tree = ast.parse(source)
    closures = {node.value for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "co_freevars"}
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names if alias.name.partition(".")[0] in MODULES)
            case ast.ImportFrom(module=module, names=names):
                yield from (module for _ in names[:1] if (module or "").partition(".")[0] in MODULES)
                yield from (alias.name for alias in names if alias.name in NAMES)
                if (module or "").partition(".")[0] == "asyncio":
                    yield from (alias.name for alias in names if alias.name.startswith("_"))
            case ast.Attribute(value=ast.Name(id="asyncio"), attr=name) if name.startswith("_"):
                yield name
            case ast.Attribute(attr=name) if name in NAMES or (name == CODE and node not in closures):
                yield name
            case ast.Name(id=name) if name in NAMES:
                yield name
            case ast.Constant(value=str(name)) if name in NAMES or name == CODE:
                yield name


def test_no_private_names_are_used() -> None:
    files = sorted(SOURCE.rglob("*.py"))
    used = {str(file.relative_to(SOURCE)): list(violations(file.read_text())) for file in files}
    assert len(files) > 100
    assert {file: names for file, names in used.items() if names} == EXEMPT


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import ctypes", "ctypes"),
        ("from ctypes import pythonapi", "ctypes"),
        ("def f():\n    import dis", "dis"),
        ("from asyncio.tasks import _enter_task", "_enter_task"),
        ("import asyncio\nasyncio.tasks._unregister_task(task)", "_unregister_task"),
        ("import asyncio\nasyncio._set_running_loop(None)", "_set_running_loop"),
        ("getattr(task, '_must_cancel', False)", "_must_cancel"),
        ("task._log_destroy_pending = False", "_log_destroy_pending"),
        ("waiting.gi_frame.f_locals['x']", "f_locals"),
        ("f.__code__ is g.__code__", "__code__"),
        ("getattr(f, '__code__', None)", "__code__"),
        ("sys._getframe()", "_getframe"),
    ],
)
def test_private_names_are_found(source: str, name: str) -> None:
    assert name in list(violations(source))


def test_names_of_a_closure_may_be_read() -> None:
    assert list(violations("f.__code__.co_freevars")) == []
