"""What holds for all tests.

Where everything a test needs is installed, as in CI, a test that skips has failed. Properties are tried on the same
examples each time, and however long one takes; `make explore` tries others.
"""

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

if os.environ.get("MIDSPAN_TEST_UVLOOP"):
    import asyncio

    import uvloop

    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())

_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", _PATIENT, derandomize=True)
settings.register_profile("others", _PATIENT, max_examples=1_000)
settings.load_profile("same")


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
