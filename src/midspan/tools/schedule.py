"""Run the calls of one turn, concurrently or in order, with exactly one result for each call."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from midspan._types.context import NO_CONTEXT, RunContext
from midspan._types.parts import ToolCall, ToolResult
from midspan._types.specs import ToolSpec
from midspan.tools.execution import SourceCall, run_call
from midspan.tools.function import PLACEHOLDER
from midspan.tools.tasks import Outcome, start_task, task_result

Order = Mapping[int, Iterable[int]]
"""By the position of a call, the positions of the earlier calls that it waits for."""


async def run_calls(
    calls: Sequence[ToolCall], run: Callable[[ToolCall], Awaitable[ToolResult]], *, max_concurrency: int | None = None
) -> list[ToolResult]:
    """Return the results in the order of the calls; see `each_call`."""
    with_context = [(call, NO_CONTEXT) for call in calls]
    finished = each_call(with_context, lambda call, _: run(call), max_concurrency=max_concurrency)
    results = {position: result async for position, result, _ in finished}
    return [results[position] for position in range(len(calls))]


async def each_call(
    calls: Sequence[tuple[ToolCall, RunContext[Any]]],
    source_call: SourceCall,
    *,
    max_concurrency: int | None = None,
    in_task: bool = True,
    order: Order | None = None,
) -> AsyncGenerator[tuple[int, ToolResult, float], None]:
    """Run the calls, at most `max_concurrency` at a time, and yield (position, result, seconds) of each as it ends.

    Closing this generator, or cancelling the task that awaits it, cancels all running calls and waits for them.
    """
    if len(calls) == 1 or max_concurrency == 1:
        for position, (call, context) in enumerate(calls):
            yield position, *await run_call(source_call, call, context, in_task=in_task)
        return
    predecessors = order or {}
    ended = {position: asyncio.Event() for earlier in predecessors.values() for position in earlier}
    slots = asyncio.Semaphore(max_concurrency or len(calls))
    finished: asyncio.Queue[int] = asyncio.Queue()

    async def run_when_allowed(position: int) -> tuple[ToolResult, float]:
        for earlier in predecessors.get(position, ()):
            await ended[earlier].wait()
        await slots.acquire()
        call, context = calls[position]
        return await run_call(source_call, call, context, in_task=in_task)

    def on_done(position: int, task: asyncio.Task[Outcome]) -> None:
        finished.put_nowait(position)
        if not task.cancelled() and not task.result()[0]:
            return  # KeyboardInterrupt or SystemExit: start no further call
        slots.release()
        if position in ended:
            ended[position].set()

    tasks: list[asyncio.Task[Outcome]] = []
    try:
        for position in range(len(calls)):
            tasks.append(start_task(run_when_allowed, position))
            tasks[position].add_done_callback(partial(on_done, position))
        for _ in calls:
            position = await finished.get()
            if tasks[position].cancelled():  # by user code that cancels tasks which are not its own
                call, _ = calls[position]
                yield position, call.error_result(f"{call.name} was cancelled"), 0.0
            else:
                yield position, *task_result(tasks[position])
    finally:
        running = [task for task in tasks if not task.done()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


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
    writers: dict[str, set[int]] = {}
    readers: dict[str, set[int]] = {}
    order: dict[int, set[int]] = {}
    for position, (reads, writes) in enumerate(effects):
        earlier: set[int] = set()
        for name in {_covering(name, wildcards) for name in writes}:
            earlier |= readers.pop(name, set()) | writers.get(name, set())
            writers[name] = {position}
        for name in {_covering(name, wildcards) for name in reads}:
            earlier |= writers.get(name, set())
            readers.setdefault(name, set()).add(position)
        earlier.discard(position)
        if earlier:
            order[position] = earlier
    return order


def _effects(call: ToolCall, spec: ToolSpec | None) -> tuple[list[str], list[str]]:
    """Return what a call reads and writes."""
    effects = spec and spec.effects
    if not effects:
        return [], []

    def fill(template: str) -> str:
        return PLACEHOLDER.sub(lambda match: _text(call.arguments.get(match[1], "*")), template)

    return [*map(fill, effects.reads)], [*map(fill, effects.writes)]


def _text(value: Any) -> str:
    """Return an argument as text: the same for 3, 3.0 and " 3", which coercion makes equal, as it does "A" and "a"."""
    text = str(value).strip().casefold()
    with suppress(ValueError):  # it is not a number
        if not text.isdecimal() and (number := float(text)).is_integer():
            return str(int(number))
    return text


def _covering(name: str, wildcards: Iterable[str]) -> str:
    """Return the shortest wildcard that covers a name; the name itself if there is none."""
    return min((prefix for prefix in wildcards if name.startswith(prefix)), key=len, default=name)
