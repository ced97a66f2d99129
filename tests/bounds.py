"""Time in tests, so that none depends on the speed of the machine."""

import asyncio
import os

_IS_DEBUG_MODE = bool(os.environ.get("PYTHONASYNCIODEBUG"))
"""In its debug mode, asyncio needs several times as long for each task."""
BOUND = 100.0 if _IS_DEBUG_MODE else 30.0
"""Seconds that a test waits for an event that always comes. Only a test that hangs waits that long."""
MANY = 200 if _IS_DEBUG_MODE else 1_000
"""How many runs or calls at once."""


def time_passes(seconds: float) -> None:
    """Move the clock of the running event loop forward. Timers that are due by then fire at once."""
    loop = asyncio.get_running_loop()
    before = loop.time
    loop.time = lambda: before() + seconds  # type: ignore[method-assign]


PATIENT_PROGRAM = """
import logging

# In debug mode asyncio logs slow steps of the event loop, which are normal on a busy machine.
logging.getLogger("asyncio").addFilter(lambda record: not record.getMessage().endswith("seconds"))
"""
"""The start of a program whose stderr is checked: it may run with `python -X dev`, or with PYTHONASYNCIODEBUG."""
