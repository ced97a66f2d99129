"""Type annotations of the public API."""

import inspect
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import midspan
from midspan.gemini import GenerationConfig
from midspan.gemini.request import _NAMED, _TOP_FIELDS, RequestOptions
from scripts.public_api import MODULES

ROOT = Path(__file__).parent.parent


@pytest.mark.requirement("S4-22")
def test_package_is_marked_as_typed() -> None:
    assert Path(midspan.__file__).with_name("py.typed").exists()


def _check(*command: str) -> None:
    if command[0] == "pyright" and shutil.which("npm") is None and "CI" not in os.environ:
        pytest.skip("pyright needs Node.js and npm")
    checked = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.requirement("S4-22")
@pytest.mark.parametrize(
    "checker", ["mypy --strict tests/typing", f"pyright --pythonpath {sys.executable}"], ids=["mypy", "pyright"]
)
def test_type_checkers_accept_programs_of_users_and_find_their_mistakes(checker: str) -> None:
    """Lines with a mistake end in `# type: ignore`; a comment that nothing needs is an error for both checkers."""
    _check(*checker.split())


def test_options_of_requests_are_those_that_the_client_accepts() -> None:
    named = {"model", *_NAMED, *_TOP_FIELDS}
    options = get_type_hints(RequestOptions).keys()
    assert named < options <= {*named, *GenerationConfig.__struct_fields__}


def public_functions(module: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the public functions of a module, and the public methods of its classes, with their names."""
    for name in dir(import_module(module)):
        value = getattr(import_module(module), name)
        if name.startswith("_") or not getattr(value, "__module__", "").startswith("midspan"):
            continue
        members = vars(value).items() if isinstance(value, type) else [(name, value)]
        for member, attribute in members:
            function = getattr(attribute, "__func__", attribute)
            function = function.fget if isinstance(function, property) else function
            is_public = not member.startswith("_") or member in ("__init__", "__call__")
            if is_public and inspect.isfunction(function) and function.__module__.startswith("midspan"):
                yield f"{module}.{name}.{member}", function


@pytest.mark.requirement("S4-22")
@pytest.mark.parametrize("module", MODULES)
def test_every_public_function_is_annotated(module: str) -> None:
    for name, function in public_functions(module):
        names = [*inspect.signature(function).parameters]
        expected = {*names[names[:1] in (["self"], ["cls"]) :], "return"}
        assert expected <= function.__annotations__.keys(), name
