"""Settings of all tests.

In CI, where everything that a test may need is installed, a skipped test fails. Property tests use the same examples
each time, and have no deadline; `make acceptance` uses more examples, and `make explore` new ones.
"""

import gc
import os
import re
from collections.abc import Iterator
from fnmatch import translate
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
settings.register_profile("acceptance", _NO_DEADLINE, derandomize=True, max_examples=400)
settings.register_profile("explore", _NO_DEADLINE, max_examples=1_000)
settings.load_profile("same")

SLOW_TESTS = (
    # scores and replays of recorded data
    *("*/test_score*", "*/test_replay_*", "*recorded_tool_loop*"),
    # random and hostile input, very many runs
    *("*/test_chaos.py::*", "*/test_fuzz.py::*", "*hostile*", "*thousand*", "*/test_many_calls.py::*"),
    "*/test_opposites.py::test_sentence_that_is_not_*",
    *("*/test_adapt.py::*", "*/test_recording_many.py::*", "*/gemini/test_checking.py::*"),
    # other processes: the command, built wheels, type checkers, examples of the docs, journals that are killed
    *("tests/cli/*", "tests/test_wheel.py::*", "tests/test_typing.py::*", "tests/test_docs.py::*"),
    *("tests/test_examples.py::*", "tests/test_reference.py::*"),
    *("tests/test_trace_turn.py::*", "*/test_freezing.py::*", "*/test_sqlite.py::*", "*/test_node_client.py::*"),
    *(
        "*/test_cloudgenie.py::*command*",
        "*/test_cloudgenie.py::*over_mcp*",
        "*/test_blocking.py::test_program_exits_*",
    ),
    "*/test_comfort.py::*leaves_no_warning*",
    *("*/test_outside_provider.py::*", "*/test_official_*.py::*", "*/http/test_loops.py::*", "*signal_handler*"),
    # worker processes
    *("tests/tools/workers/*", "*test_tool_source.py::*workers*", "tests/compat/test_bridge.py::*"),
    # servers in other processes; packages that take seconds to import: the SDKs of MCP, Anthropic and OpenAI
    *("tests/tools/mcp/*", "tests/tools/mcp_serve/*", "tests/server/test_mcp.py::*"),
    *("tests/compat/test_clients.py::*", "tests/providers/test_fallback.py::test_next_model_gets_*"),
    *("tests/providers/test_wires.py::*", "tests/conformance/test_providers.py::*"),
    # the sources as a whole; `make check` runs one of them, too
    *("tests/test_imports.py::*", "tests/test_names.py::*", "tests/test_private_names.py::*"),
    "tests/test_requirements.py::*",
    # servers: other processes, thousands of requests, official clients
    *("tests/server/test_process.py::*", "tests/server/test_openapi.py::*", "tests/server/test_ui_stream.py::*"),
    "tests/server/test_examples.py::*",
    *("tests/server/test_safety.py::*", "tests/server/test_runs.py::*", "tests/server/test_openai.py::*"),
    # requests of many megabytes; limits of a second or two
    *("*::*request_that_is_too_large_*", "*/test_run.py::test_time_limit_cancels_*"),
    *("*/test_errors.py::test_number_of_interim_*", "*/test_faulty_models.py::test_cancelled_tool_is_not_*"),
    # tools that ignore their cancellation for five seconds
    "*/test_abandoned_tools.py::*",
)
"""Patterns of the tests that `make quick` leaves out."""

ACCEPTANCE_TESTS = (
    # all recorded data
    "tests/schema/test_replay_schemas.py::test_nearly_all_recorded_calls_match_their_declaration",
    "tests/providers/offline/test_score_offline.py::test_wrong_calls_are_rare_*",
    "tests/providers/test_official_sdks.py::test_sdk_reads_recorded_streams_as_we_do*",
    "tests/providers/gemini/test_replay_traffic.py::test_every_recorded_exchange_passes*",
    # thousands of runs, requests and random inputs, hundreds of worker processes
    "tests/testing/test_recording_many.py::test_thousand_concurrent_runs_*",
    "tests/schema/test_arguments.py::test_thousands_of_unknown_names_*",
    "tests/schema/test_adapt.py::test_every_valid_value_stays_valid_*",
    "tests/emulator/test_chaos.py::*",
    "tests/http/test_fuzz.py::*",
    "tests/server/test_openapi.py::test_schemathesis_*",
    "tests/tools/workers/test_event_loops.py::test_no_result_is_lost_*",
    "tests/server/test_safety.py::test_thousands_of_malformed_requests_*",
    "tests/tools/workers/test_calls.py::test_a_thousand_calls_with_workers_killed_at_random",
    "tests/tools/mcp_serve/test_hostile.py::test_parallel_calls_are_answered*thousand*",
    # timeouts of seconds, many processes of the terminal
    "tests/providers/test_registry.py::test_local_server_that_is_not_configured_may_be_down",
    *("tests/cli/test_mcp.py::*", "tests/cli/test_mcp_serve.py::*"),
    *("tests/tools/workers/test_lost_client.py::*", "tests/tools/workers/test_dial_in.py::*"),
    "tests/loop/test_abandoned_tools.py::test_program_with_an_abandoned_tool_exits_*",
    *("tests/cli/test_chat.py::*abandon*", "tests/cli/test_ask.py::*abandon*"),
    # programs of others, and an environment for the wheel
    *("tests/tools/mcp_serve/test_inspector.py::*", "tests/test_wheel.py::*"),
    # what `make check` and `make docs` run, too
    "tests/test_typing.py::test_type_checkers_accept_*",
    "tests/test_reference.py::test_site_builds_without_a_warning",
)
"""Patterns of the tests that `make test` leaves out, too: `make acceptance` runs them."""

_IS_ACCEPTANCE = re.compile("|".join(map(translate, ACCEPTANCE_TESTS))).match
_IS_SLOW = re.compile("|".join(map(translate, [*SLOW_TESTS, *ACCEPTANCE_TESTS]))).match


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import the files of slow tests for `make quick`."""
    path = f"{collection_path.relative_to(config.rootpath).as_posix()}::"
    return True if config.option.markexpr == "not slow" and _IS_SLOW(path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _IS_SLOW(item.nodeid):
            item.add_marker("slow")
        if _IS_ACCEPTANCE(item.nodeid):
            item.add_marker("acceptance")


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
