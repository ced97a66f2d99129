"""The calls of one turn: what runs together, and that each has exactly one result under its own id."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from time import perf_counter

from midspan.tools.deadline import Raised, begun, cancels_heard, rest_of, was_cancelled_since
from midspan.tools.failure import described, failed
from midspan.types.parts import ToolCall, ToolResult

_log = logging.getLogger("midspan.tools")

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
    together = _Together(calls, run, at_once or len(calls))
    try:
        for _ in calls:
            yield await together.next()
    finally:
        await together.end()


async def settled(call: ToolCall, run: Run) -> Ended:
    """One result, even where the source breaks its promise and raises or answers another call."""
    begin, before = perf_counter(), None
    work = _answer(call, run)
    try:
        ended, result = begun(work)
        if not ended:
            before = cancels_heard()
            result = await rest_of(work, result, None)
    except (KeyboardInterrupt, GeneratorExit):  # GeneratorExit: we are closed; a source's own comes as Raised
        raise
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and was_cancelled_since(before):
            raise
        result = _broken(call, error)
    if not isinstance(result, ToolResult) or (result.id, result.name) != (call.id, call.name):
        _log.error("the source of %s answered another call: %r", call.name, result)
        result = failed(call, f"{call.name} failed: its source answered another call")
    return result, perf_counter() - begin


async def _answer(call: ToolCall, run: Run) -> ToolResult:
    return await run(call)


def _broken(call: ToolCall, error: BaseException) -> ToolResult:
    if isinstance(error, Raised):
        error = error.error
    _log.error("the source of %s failed", call.name, exc_info=error)
    return failed(call, f"{call.name} failed: {described(error)}")


class _Together:
    """Calls that run at once, each in a task of its own: whatever that task dies of, the call has a result."""

    def __init__(self, calls: Sequence[ToolCall], run: Run, most: int) -> None:
        self._waiting = deque(calls)
        self._run = run
        self._most = most
        self._running: dict[asyncio.Task[Ended], tuple[ToolCall, float]] = {}
        self._ended: deque[tuple[asyncio.Task[Ended], ToolCall, float]] = deque()
        self._wake = asyncio.Event()

    async def next(self) -> Ended:
        """What came of the call that ended next."""
        self._begin()
        while not self._ended:
            self._wake.clear()
            await self._wake.wait()
        task, call, begin = self._ended.popleft()
        # Who cancels a run cancels the task that waits here, so that a task of ours was cancelled by its own tool.
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None:
            return task.result()
        if isinstance(error, KeyboardInterrupt):
            raise error
        return _broken(call, error), perf_counter() - begin

    async def end(self) -> None:
        """Cancel what runs, and wait until it has ended."""
        self._waiting.clear()
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _begin(self) -> None:
        while self._waiting and len(self._running) < self._most:
            call = self._waiting.popleft()
            task = asyncio.ensure_future(settled(call, self._run))
            self._running[task] = call, perf_counter()
            task.add_done_callback(self._end_of)

    def _end_of(self, task: "asyncio.Task[Ended]") -> None:
        self._ended.append((task, *self._running.pop(task)))
        self._wake.set()
        if not task.cancelled() and task.exception() is None:  # else perhaps all is being cancelled: see in `next`
            self._begin()
