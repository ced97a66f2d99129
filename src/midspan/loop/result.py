"""What a run gives: the answer, and all that led to it."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from msgspec import Struct

from midspan.errors import ArgumentError, ConfigError
from midspan.loop.blocking import iterate
from midspan.loop.run import Run
from midspan.loop.state import CANCELLED, RunState, ToolRun
from midspan.types.events import RunEvent
from midspan.types.exchange import Citation, FinishReason, ModelResponse, Usage
from midspan.types.messages import History, Message

if TYPE_CHECKING:
    import typing_extensions  # checkers know it; Python has such defaults from 3.13 on

    from midspan.loop.output import TypedOutput

    Output = typing_extensions.TypeVar("Output", default=Any)
else:
    Output = TypeVar("Output")


class RunResult(Struct, Generic[Output], frozen=True, eq=False):
    """The answer and how it came about."""

    text: str
    output: Output
    """The answer in the form that was asked for; the text where none was."""
    messages: History
    """The whole conversation; give it to the next run to go on."""
    new_messages: tuple[Message, ...]
    """What this run added to it, from the prompt on."""
    tool_calls: tuple[ToolRun, ...]
    usage: Usage
    """Over all requests."""
    turns: int
    """How often the model was asked."""
    run_id: str
    finish_reason: FinishReason
    citations: tuple[Citation, ...]
    """The sources of the answer, where the provider's own tools searched for it."""
    response: ModelResponse
    """What the model said last, with all that the provider sent."""
    limit: str | None = None
    """The limit that the run came to, where it ended all the same without an error."""

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= 60 else f"{self.text[:60]}…"
        return f"<result {text!r}, {self.turns} turns, {len(self.tool_calls)} tool calls>"


def result_of(run: Run, given: int) -> RunResult[Any]:
    """The result of a run that ended; `given` is how many messages there were before it."""
    state, output, end = run.state, run.plan.output, run.end
    assert end is not None, "a run ends with its end or an error"
    value: Any = end.text
    if run.final is not None:
        value = run.final.value if output is None else _fitting(output, run.final.value)
    elif output is not None and not run.ends_politely:
        value = output.read(end.text)
    return RunResult(
        text=end.text,
        output=value,
        messages=state.history,
        new_messages=state.history[given:],
        tool_calls=state.tool_runs,
        usage=state.usage,
        turns=state.turn,
        run_id=run.id,
        finish_reason=run.answer.finish_reason,
        citations=tuple(dict.fromkeys(state.citations)),
        response=run.answer,
        limit=end.limit,
    )


def _fitting(output: "TypedOutput", value: Any) -> Any:
    """What a tool ended the run with, in the form that was asked for if it has it."""
    try:
        return output.shape.made(value)
    except ArgumentError:
        return value


class RunStream(Generic[Output]):
    """The events of a run, to be taken once. `aclose`, or the end of an `async with`, stops the run."""

    def __init__(self, make_run: Callable[[], Awaitable[Run]], history: History, given: int) -> None:
        self._make_run = make_run
        self._history = history
        self._given = given
        self._taken = self._closed = False
        self._run: Run | None = None
        self._events: AsyncGenerator[RunEvent, None] | None = None
        self._taker: asyncio.Task[Any] | None = None
        """The task that waits for an event."""
        self._cancelled_before = 0
        """How often that task had been cancelled when it began to wait."""
        self._cancelling = False
        """We have cancelled it, because somebody else closed the stream."""
        self._ending = asyncio.Lock()
        self._left = asyncio.Event()
        """It does not wait any more; looked at by whoever closes the stream meanwhile."""
        self._result: RunResult[Output] | None = None

    def __iter__(self) -> Iterator[RunEvent]:
        """The events for plain code; in a coroutine it is `async for`."""
        return iterate(aiter(self))

    @property
    def has_ended(self) -> bool:
        """Whether there is a result."""
        return self._run is not None and self._run.end is not None

    @property
    def result(self) -> RunResult[Output]:
        """What the run gave, when it is over."""
        if self._run is None or self._run.end is None:
            raise ConfigError("the run has not ended; take its events to the end first")
        if self._result is None:
            self._result = result_of(self._run, self._given)
        return self._result

    @property
    def messages(self) -> History:
        """The conversation so far, fit to go on with at any time: a call that still runs is told to be cancelled."""
        state = RunState.of(self._history) if self._run is None else self._run.state
        return state.settled(CANCELLED).history

    @property
    def usage(self) -> Usage:
        """What was used so far."""
        return Usage() if self._run is None else self._run.state.usage

    def __aiter__(self) -> Self:
        if self._taken:
            raise ConfigError("the events of a run can be taken only once; ask again for another run")
        self._taken = True
        return self

    async def __anext__(self) -> RunEvent:
        if self._closed:
            raise StopAsyncIteration
        if self._taker is not None:
            raise ConfigError("somebody else is waiting for the next event of this run")
        task = self._taker = asyncio.current_task()
        self._cancelled_before = 0 if task is None else task.cancelling()
        try:
            if self._events is None:
                self._events = _nothing()  # unless there will be a run
                self._run = await self._make_run()
                self._events = self._run.events()
            event = await anext(self._events)
        except BaseException as error:
            if self._closed and isinstance(error, Exception | asyncio.CancelledError) and self._is_left_to_us(task):
                raise StopAsyncIteration from None
            raise
        else:
            if self._closed and self._is_left_to_us(task):
                raise StopAsyncIteration
            return event
        finally:
            self._taker = None
            self._left.set()

    def _is_left_to_us(self, task: "asyncio.Task[Any] | None") -> bool:
        """Take back our own cancellation, of which nobody shall be told; whether nobody else has cancelled the task."""
        if task is not None and self._cancelling:
            self._cancelling = False
            task.uncancel()
        return task is None or task.cancelling() <= self._cancelled_before

    async def aclose(self) -> None:
        """Stop the run, wherever it is, and wait until nothing of it is left."""
        self._closed = True
        if self._taker is not None:
            if self._taker.get_loop() is not asyncio.get_running_loop():
                raise ConfigError("the events of this run are taken in another event loop; close it there")
            if self._taker.cancelling() <= self._cancelled_before:  # else it is on its way out already
                self._cancelling = self._taker.cancel()
            self._left.clear()
            await self._left.wait()
        async with self._ending:
            if self._events is not None:
                await self._events.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


async def _nothing() -> AsyncGenerator[RunEvent, None]:
    """The events of a run that could not be made."""
    return
    yield
