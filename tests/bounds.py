"""Time in tests: none depends on how fast the machine is, or on its not standing still for a moment."""

import asyncio

BOUND = 30.0
"""Seconds that a test waits for what is sure to come: only one that hangs ever sees the end of them."""


def time_passes(seconds: float) -> None:
    """The clock of the running event loop is so much later from now on; what is due by then happens at once."""
    loop = asyncio.get_running_loop()
    before = loop.time
    loop.time = lambda: before() + seconds  # type: ignore[method-assign]


PATIENT_PROGRAM = """
import logging

# On a busy machine any step of an event loop may take long, and in development mode asyncio says so.
logging.getLogger("asyncio").addFilter(lambda record: not record.getMessage().endswith("seconds"))
"""
"""What a program begins with that runs by `python -X dev` and has nothing to print to its errors."""
