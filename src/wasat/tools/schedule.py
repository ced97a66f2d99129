"""The calls of one turn: what runs together, and that each has exactly one result under its own id."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from time import perf_counter

from wasat.tools.deadline import cancelled_from_outside
from wasat.tools.failure import described, failed
from wasat.types.parts import ToolCall, ToolResult

_log = logging.getLogger("wasat.tools")

Run = Callable[[ToolCall], Awaitable[ToolResult]]
Ended = tuple[ToolResult, float]
"""What came of a call, and how many seconds it took."""


async def run_calls(calls: Sequence[ToolCall], run: Run, *, at_once: int | None = None) -> list[ToolResult]:
    """The results of the calls, in their order; see `each_call`."""
    return in_order(calls, [result async for result, _ in each_call(calls, run, at_once=at_once)])


def in_order(calls: Sequence[ToolCall], results: Iterable[ToolResult]) -> list[ToolResult]:
    """The results in the order of their calls; two calls of one id, which no model should make, get one each."""
    if len(calls) == 1:
        return list(results)
    found: dict[str, deque[ToolResult]] = {}
    for result in results:
        found.setdefault(result.id, deque()).append(result)
    return [found[call.id].popleft() for call in calls]


async def each_call(calls: Sequence[ToolCall], run: Run, *, at_once: int | None = None) -> AsyncGenerator[Ended, None]:
    """Run the calls together, at most `at_once` at a time, and give each result when it is there.

    Closing this, or cancelling who waits for it, cancels what runs and waits until that has ended.
    """
    if len(calls) == 1 or at_once == 1:  # no task for the most common case
        for call in calls:
            yield await settled(call, run)
        return
    waiting = deque(calls)
    ended: deque[Ended] = deque()
    wake = asyncio.Event()

    async def work() -> None:
        while waiting:
            ended.append(await settled(waiting.popleft(), run))
            wake.set()

    workers = [asyncio.ensure_future(work()) for _ in range(min(at_once or len(calls), len(calls)))]
    try:
        for _ in calls:
            while not ended:
                wake.clear()
                await wake.wait()
            yield ended.popleft()
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


async def settled(call: ToolCall, run: Run) -> Ended:
    """One result, even where the source breaks its promise and raises or answers another call."""
    begin = perf_counter()
    try:
        result = await run(call)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and cancelled_from_outside():
            raise
        _log.exception("the source of %s failed", call.name)
        result = failed(call, f"{call.name} failed: {described(error)}")
    if not isinstance(result, ToolResult) or result.id != call.id:
        _log.error("the source of %s answered another call: %r", call.name, result)
        result = failed(call, f"{call.name} failed: its source answered another call")
    return result, perf_counter() - begin
