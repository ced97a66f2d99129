"""Run the calls of one turn, concurrently or in order, with exactly one result for each call."""

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from midspan._types.context import NO_CONTEXT, RunContext
from midspan._types.parts import ToolCall, ToolResult
from midspan._types.specs import ToolSpec
from midspan.tools.execute import SourceCall, run_call
from midspan.tools.tasks import Outcome, result_of, start

Planned = tuple[ToolCall, RunContext[Any]]
Finished = tuple[int, ToolResult, float]
"""The position of a call, its result, and how many seconds it took."""
Order = Mapping[int, Iterable[int]]
"""By the position of a call, the positions of the earlier calls that it waits for."""


async def run_calls(
    calls: Sequence[ToolCall],
    run: Callable[[ToolCall], Awaitable[ToolResult]],
    *,
    max_concurrency: int | None = None,
) -> list[ToolResult]:
    """Return the results in the order of the calls; see `each_call`."""
    planned = [(call, NO_CONTEXT) for call in calls]
    finished = each_call(planned, lambda call, _: run(call), max_concurrency=max_concurrency)
    results = {position: result async for position, result, _ in finished}
    return [results[position] for position in range(len(calls))]


async def each_call(
    calls: Sequence[Planned],
    run: SourceCall,
    *,
    max_concurrency: int | None = None,
    in_task: bool = True,
    order: Order | None = None,
) -> AsyncGenerator[Finished, None]:
    """Run the calls, at most `max_concurrency` at a time, and yield each result when it is there.

    Closing this generator, or cancelling the task that awaits it, cancels all running calls and waits for them.
    """
    if len(calls) == 1 or max_concurrency == 1:
        for position, (call, context) in enumerate(calls):
            yield position, *await run_call(run, call, context, in_task=in_task)
        return

    def run_one(call: ToolCall, context: RunContext[Any]) -> Awaitable[tuple[ToolResult, float]]:
        return run_call(run, call, context, in_task=in_task)

    concurrent = _ConcurrentCalls(calls, run_one, max_concurrency or len(calls), order or {})
    try:
        for _ in calls:
            yield await concurrent.next()
    finally:
        await concurrent.cancel()


class _ConcurrentCalls:
    """Calls that run at the same time, each in a task."""

    def __init__(
        self, calls: Sequence[Planned], run: Callable[..., Awaitable[Any]], max_concurrency: int, order: Order
    ) -> None:
        self._calls = calls
        self._run = run
        self._max_concurrency = max_concurrency
        self._blocked = {position: len(set(earlier)) for position, earlier in order.items()}
        """How many calls a call waits for."""
        self._successors: dict[int, list[int]] = {}
        for position, earlier in order.items():
            for predecessor in set(earlier):
                self._successors.setdefault(predecessor, []).append(position)
        self._ready = deque(position for position in range(len(calls)) if not self._blocked.get(position))
        self._running: dict[asyncio.Task[Outcome], int] = {}
        self._finished: deque[tuple[asyncio.Task[Outcome], int]] = deque()
        self._wake = asyncio.Event()

    async def next(self) -> Finished:
        """Return the next call that finishes."""
        self._start_calls()
        while not self._finished:
            self._wake.clear()
            await self._wake.wait()
        task, position = self._finished.popleft()
        if task.cancelled():  # by user code that cancels tasks which are not its own
            call, _ = self._calls[position]
            return position, call.error_result(f"{call.name} was cancelled"), 0.0
        return position, *result_of(task)

    async def cancel(self) -> None:
        """Cancel the running calls and wait for them."""
        self._ready.clear()
        self._successors.clear()
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _start_calls(self) -> None:
        while self._ready and len(self._running) < self._max_concurrency:
            position = self._ready.popleft()
            task = start(self._run, *self._calls[position])
            if task.done():
                self._finish(task, position)
            else:
                self._running[task] = position
                task.add_done_callback(self._on_done)

    def _on_done(self, task: "asyncio.Task[Outcome]") -> None:
        self._finish(task, self._running.pop(task))
        self._wake.set()
        if not task.cancelled() and task.result()[0]:  # otherwise all calls may be about to be cancelled
            self._start_calls()

    def _finish(self, task: "asyncio.Task[Outcome]", position: int) -> None:
        self._finished.append((task, position))
        for successor in self._successors.get(position, ()):
            self._blocked[successor] -= 1
            if not self._blocked[successor]:
                self._ready.append(successor)


def call_order(calls: Sequence[ToolCall], specs: Mapping[str, ToolSpec]) -> Order:
    """Return which calls wait for earlier ones, as their tools declare effects.

    A call waits for the earlier calls that write what it reads or writes, and for those that read what it writes. A
    placeholder whose argument is missing stands for every value.
    """
    effects = [_effects(call, specs.get(call.name)) for call in calls]
    if not any(writes for _, writes in effects):
        return {}
    # Names that a wildcard of this turn covers count as one thing, which keeps the comparison linear.
    wildcards = {name.partition("*")[0] for pair in effects for names in pair for name in names if "*" in name}
    writers: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    order: dict[int, set[int]] = {}
    for position, (reads, writes) in enumerate(effects):
        earlier: set[int] = set()
        for name in {_covering(name, wildcards) for name in writes}:
            earlier.update(readers.pop(name, ()))
            if name in writers:
                earlier.add(writers[name])
            writers[name] = position
        for name in {_covering(name, wildcards) for name in reads}:
            if writers.get(name, position) != position:
                earlier.add(writers[name])
            readers.setdefault(name, []).append(position)
        earlier.discard(position)
        if earlier:
            order[position] = earlier
    return order


def _effects(call: ToolCall, spec: ToolSpec | None) -> tuple[list[str], list[str]]:
    """Return what a call reads and writes."""
    if spec is None or spec.effects is None:
        return [], []

    def fill(template: str) -> str:
        return _PLACEHOLDER.sub(lambda match: _text(call.arguments.get(match[1], "*")), template)

    return [fill(template) for template in spec.effects.reads], [fill(template) for template in spec.effects.writes]


def _text(value: Any) -> str:
    """Return an argument as text; models write integers as 3 and as 3.0."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _covering(name: str, wildcards: Iterable[str]) -> str:
    return min((prefix for prefix in wildcards if name.startswith(prefix)), key=len, default=name)


_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
