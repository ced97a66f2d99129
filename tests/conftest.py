"""Settings of all tests.

In CI, where everything that a test may need is installed, a skipped test fails. Property tests use the same examples
each time, and have no deadline; `make explore` uses new examples.
"""

import gc
import os
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

if os.environ.get("MIDSPAN_TEST_UVLOOP"):
    import asyncio

    import uvloop

    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())

_NO_DEADLINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", _NO_DEADLINE, derandomize=True)
settings.register_profile("quick", _NO_DEADLINE, derandomize=True, max_examples=20)
settings.register_profile("explore", _NO_DEADLINE, max_examples=1_000)
settings.load_profile("same")

SLOW_TESTS = (
    # scores and replays of recorded data
    *("*/test_score*", "*/test_replay_*", "*recorded_tool_loop*"),
    # random and hostile input, very many runs
    *("*/test_chaos.py::*", "*/test_fuzz.py::*", "*hostile*", "*thousand*", "*/test_many_calls.py::*"),
    *("*/test_adapt.py::*", "*/test_recording_many.py::*", "*/gemini/test_checking.py::*"),
    # other processes: the command, built wheels, type checkers, examples of the docs, journals that are killed
    *("tests/cli/*", "tests/test_wheel.py::*", "tests/test_typing.py::*", "tests/test_docs.py::*"),
    *("tests/test_examples.py::*", "tests/test_reference.py::*"),
    *("tests/test_trace_turn.py::*", "*/test_freezing.py::*", "*/test_sqlite.py::*", "*/test_node_client.py::*"),
    *("*/mcp_serve/test_stdio.py::*", "*/mcp_serve/test_inspector.py::*", "*/test_cloudgenie.py::*command*"),
    *("*/test_outside_provider.py::*", "*/test_official_client.py::*", "*/http/test_loops.py::*", "*signal_handler*"),
    # worker processes
    *("tests/tools/workers/*", "*test_tool_source.py::*workers*", "tests/compat/test_bridge.py::*"),
    # servers in other processes
    "tests/tools/mcp/*",
    # servers: other processes, thousands of requests, official clients
    *("tests/server/test_process.py::*", "tests/server/test_openapi.py::*", "tests/server/test_ui_stream.py::*"),
    "tests/server/test_examples.py::*",
    *("tests/server/test_safety.py::*", "tests/server/test_runs.py::*", "tests/server/test_openai.py::*"),
    # tools that ignore their cancellation for five seconds
    "*/test_abandoned_tools.py::*",
)
"""Patterns of the tests that `make quick` leaves out."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import the files of slow tests for `make quick`."""
    path = f"{collection_path.relative_to(config.rootpath).as_posix()}::"
    is_slow = config.option.markexpr == "not slow" and any(fnmatch(path, pattern) for pattern in SLOW_TESTS)
    return True if is_slow else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(fnmatch(item.nodeid, pattern) for pattern in SLOW_TESTS):
            item.add_marker("slow")


def pytest_collection_finish() -> None:
    # Thousands of collected tests would make each gc.collect() of a test take a quarter of a second.
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    report = yield
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
    # pytest-xdist sends reports as UTF-8, and some tests log unpaired surrogates on purpose.
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    report = yield
    if report.skipped and os.environ.get("CI"):
        report.outcome = "failed"
    return report
