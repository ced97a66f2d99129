"""Run the calls of one turn, concurrently or in order, with exactly one result for each call."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from time import perf_counter
from typing import Any

import msgspec

from midspan._types.parts import ToolCall, ToolResult
from midspan.tools.error_results import describe_error, failed
from midspan.tools.tasks import Outcome, ToolRaised, result_of, run_in_task, start

_log = logging.getLogger("midspan.tools")

RunCall = Callable[[ToolCall], Awaitable[ToolResult]]
Finished = tuple[int, ToolResult, float]
"""The position of a call, its result, and how many seconds it took."""


async def run_calls(calls: Sequence[ToolCall], run: RunCall, *, max_concurrency: int | None = None) -> list[ToolResult]:
    """Return the results in the order of the calls; see `each_call`."""
    results = {position: result async for position, result, _ in each_call(calls, run, max_concurrency=max_concurrency)}
    return [results[position] for position in range(len(calls))]


async def each_call(
    calls: Sequence[ToolCall], run: RunCall, *, max_concurrency: int | None = None, in_task: bool = True
) -> AsyncGenerator[Finished, None]:
    """Run the calls, at most `max_concurrency` at a time, and yield each result when it is there.

    Closing this generator, or cancelling the task that awaits it, cancels all running calls and waits for them.
    """
    if len(calls) == 1 or max_concurrency == 1:
        for position, call in enumerate(calls):
            yield position, *await run_call(call, run, in_task=in_task)
        return
    concurrent = _ConcurrentCalls(calls, run, max_concurrency or len(calls), in_task=in_task)
    try:
        for _ in calls:
            yield await concurrent.next()
    finally:
        await concurrent.cancel()


async def run_call(call: ToolCall, run: RunCall, *, in_task: bool = True) -> tuple[ToolResult, float]:
    """Return one result and its duration, also if the source raises or answers another call.

    `in_task=False` is for sources that run user code in tasks anyway; a second task would only cost time.
    """
    begin = perf_counter()
    result: Any
    try:
        result = await (run_in_task(run, call, name=call.name) if in_task else run(call))
    except Exception as error:  # noqa: BLE001 - sources are user code
        cause = error.error if isinstance(error, ToolRaised) else error
        _log.error("the source of tool %s raised %s", call.name, type(cause).__name__, exc_info=cause)
        result = failed(call, f"{call.name} failed: {describe_error(cause)}")
    if not isinstance(result, ToolResult) or result.id != call.id or result.name != call.name:
        _log.error("the source of tool %s returned %r, which is not a result of this call", call.name, result)
        result = failed(call, f"{call.name} failed: its source did not return a result of this call")
    elif in_task and not _is_json(result.value):
        _log.error("the source of tool %s returned a value that is not JSON serializable", call.name)
        result = failed(call, f"{call.name} failed: its source returned a value that is not JSON serializable")
    return result, perf_counter() - begin


def _is_json(value: Any) -> bool:
    try:
        msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return False
    return True


class _ConcurrentCalls:
    """Calls that run at the same time, each in a task."""

    def __init__(self, calls: Sequence[ToolCall], run: RunCall, max_concurrency: int, *, in_task: bool) -> None:
        self._waiting = deque(enumerate(calls))
        self._run = run
        self._max_concurrency = max_concurrency
        self._in_task = in_task
        self._running: dict[asyncio.Task[Outcome], tuple[int, ToolCall]] = {}
        self._finished: deque[tuple[asyncio.Task[Outcome], int, ToolCall]] = deque()
        self._wake = asyncio.Event()

    async def next(self) -> Finished:
        """Return the next call that finishes."""
        self._start_calls()
        while not self._finished:
            self._wake.clear()
            await self._wake.wait()
        task, position, call = self._finished.popleft()
        if task.cancelled():  # by user code that cancels tasks which are not its own
            return position, failed(call, f"{call.name} was cancelled"), 0.0
        return position, *result_of(task)

    async def cancel(self) -> None:
        """Cancel the running calls and wait for them."""
        self._waiting.clear()
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _start_calls(self) -> None:
        while self._waiting and len(self._running) < self._max_concurrency:
            position, call = self._waiting.popleft()
            task = start(self._run_call, call)
            if task.done():
                self._finished.append((task, position, call))
            else:
                self._running[task] = position, call
                task.add_done_callback(self._done)

    def _run_call(self, call: ToolCall) -> Awaitable[tuple[ToolResult, float]]:
        return run_call(call, self._run, in_task=self._in_task)

    def _done(self, task: "asyncio.Task[Outcome]") -> None:
        self._finished.append((task, *self._running.pop(task)))
        self._wake.set()
        if not task.cancelled() and task.result()[0]:  # otherwise all calls may be about to be cancelled
            self._start_calls()
