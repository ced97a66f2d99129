"""The calls of one turn: what runs together, and that each has exactly one result, in the order of the calls."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext

from wasat.tools.failure import described, failed
from wasat.types.parts import ToolCall, ToolResult

_log = logging.getLogger("wasat.tools")

Run = Callable[[ToolCall], Awaitable[ToolResult]]


async def run_calls(calls: Sequence[ToolCall], run: Run, *, at_once: int | None = None) -> list[ToolResult]:
    """Run the calls together, at most `at_once` at a time; cancelling this cancels them and waits until they end."""
    if len(calls) == 1:
        return [await _settled(calls[0], run)]  # no task for the most common case
    limited = at_once is not None and at_once < len(calls)
    gate: AbstractAsyncContextManager[None] = asyncio.Semaphore(max(1, at_once or 1)) if limited else nullcontext()

    async def one(call: ToolCall) -> ToolResult:
        async with gate:
            return await _settled(call, run)

    return list(await asyncio.gather(*map(one, calls)))


async def _settled(call: ToolCall, run: Run) -> ToolResult:
    """One result under the call's own id, even where the source breaks its promise and raises or answers another."""
    try:
        result = await run(call)
    except Exception as error:  # noqa: BLE001 - a source is foreign code
        _log.exception("the source of %s failed", call.name)
        return failed(call, f"{call.name} failed: {described(error)}")
    if not isinstance(result, ToolResult) or result.id != call.id:
        _log.error("the source of %s answered another call: %r", call.name, result)
        return failed(call, f"{call.name} failed: its source answered another call")
    return result
