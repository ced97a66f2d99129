"""The result of a run, the stream of its events, and the final answer computed from those events."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, suppress
from functools import cached_property
from threading import get_ident
from typing import TYPE_CHECKING, Generic, Self

from msgspec import Struct

from midspan import errors
from midspan._loop.blocking import ClosableFromSyncCode, iterate
from midspan._loop.options import OutputT
from midspan._types.events import (
    ErrorInfo,
    Interrupted,
    RunEnd,
    RunEvent,
    TextDelta,
    ThoughtDelta,
    ToolCallDelta,
    ToolProgress,
    TurnEnd,
    TurnRetry,
    TurnStart,
)
from midspan._types.exchange import Citation, FinishReason, ModelResponse, Usage
from midspan._types.messages import History, Message
from midspan._types.run_state import CALL_CANCELLED, RunState, ToolRun
from midspan._types.texts import count_noun
from midspan.errors import ConfigError, LimitReachedError, MidspanError, ProviderError, RunError

if TYPE_CHECKING:
    from midspan._loop.prepare import PendingRun
    from midspan._loop.run import Run

NumberedEvents = AsyncGenerator[tuple[int, RunEvent], None]


class RunResult(Struct, Generic[OutputT], frozen=True, eq=False):
    """The answer of a run, with its messages, calls and usage."""

    text: str
    output: OutputT
    """The answer as the requested type; the text if none was requested."""
    messages: History
    """The whole conversation; pass it to the next run to continue."""
    new_messages: tuple[Message, ...]
    """The messages that this run added, from the prompt on."""
    tool_calls: tuple[ToolRun, ...]
    usage: Usage
    """Of all requests."""
    turns: int
    """The number of turns of the model."""
    run_id: str
    finish_reason: FinishReason
    citations: tuple[Citation, ...]
    """The sources of the answer, if the provider's own tools searched for it."""
    response: ModelResponse
    """The last response of the model, with everything that the provider sent."""
    limit: str | None = None
    """The limit that the run reached, if it ended without an error."""

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= 60 else f"{self.text[:60]}…"
        calls = count_noun(len(self.tool_calls), "tool call")
        return f"RunResult({text!r}, {count_noun(self.turns, 'turn')}, {calls})"


class RunStream(ClosableFromSyncCode, Generic[OutputT]):
    """The events of a run, read once. `aclose`, or leaving a `with` or `async with` block, cancels the run.

    The run has a task of its own. Parts of a response are read ahead; otherwise the run continues only while the reader
    waits for the next event.
    """

    _task: "asyncio.Task[None] | None" = None
    _was_iterated = False

    def __init__(self, pending: "PendingRun", *, deltas: bool = True) -> None:
        self.model = pending.config.provider.model
        """The name of the model."""
        self._pending = pending
        self._queue = EventQueue(pending, deltas=deltas)
        self.on_end: Callable[[RunResult[OutputT] | Exception], None] | None = None
        """Called with the outcome before the iteration ends, unless the stream was closed."""

    def __iter__(self) -> Iterator[RunEvent]:
        """Iterate in sync code. In a coroutine, use `async for`."""
        return iterate(aiter(self))

    @cached_property
    def result(self) -> RunResult[OutputT]:
        """The result of the run, after its last event."""
        run = self._queue.run
        if run is None or run.end is None:
            raise ConfigError("there is no result: the run was closed before its end, or has unread events")
        return self._pending.result_of(run)

    @property
    def messages(self) -> History:
        """The conversation so far. It can be continued at any time: calls that still run count as cancelled."""
        return self.state.settled(CALL_CANCELLED).history

    @property
    def state(self) -> RunState:
        """The state of the run so far."""
        run = self._queue.run
        return RunState.of(self._pending.history) if run is None else run.state

    def __aiter__(self) -> Self:
        if self._was_iterated:
            raise ConfigError("the events of a run can be read only once; start another run")
        self._was_iterated = True
        return self

    async def __anext__(self) -> RunEvent:
        queue = self._queue
        if queue.is_closed:
            raise StopAsyncIteration
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(queue.execute())
        while not queue.events:
            try:
                await queue.next_event()
            except asyncio.CancelledError:
                await self.aclose()
                raise
        event = queue.events.popleft()
        if event is not None:
            return event
        if queue.is_closed:
            raise StopAsyncIteration
        error = queue.error
        queue.is_closed = True
        if self.on_end is not None and (error is None or isinstance(error, Exception)):
            self.on_end(error or self.result)
        raise error or StopAsyncIteration

    async def aclose(self) -> None:
        """Cancel the run and wait until nothing of it is left."""
        task = self._task
        if task is None or task.done() or task.get_loop().is_closed():
            self._queue.is_closed = True
            return
        if task.get_loop() is not asyncio.get_running_loop():
            raise ConfigError("the events of this run are read in another event loop; close it there")
        if not self._queue.is_closed:  # a second cancellation would abandon a tool that is still cleaning up
            self._queue.is_closed = True
            task.cancel()
        await asyncio.wait([task])
        self._queue.put(None)  # a run that was cancelled before its first step has put nothing
        if isinstance(self._queue.error, KeyboardInterrupt | SystemExit):
            raise self._queue.error

    def __del__(self) -> None:
        task = self._task
        if task is not None and not task.done() and not task.get_loop().is_closed():
            with suppress(RuntimeError):  # the event loop was closed by another thread
                task.get_loop().call_soon_threadsafe(task.cancel)


_READ_AHEAD = frozenset((TextDelta, ThoughtDelta, ToolCallDelta))
"""Events after which a run may continue before they are read: it only receives more of the response."""
_MAX_READ_AHEAD = 64


class EventQueue:
    """Passes the events of a run from its task to the reader."""

    def __init__(self, pending: "PendingRun", *, deltas: bool) -> None:
        self.deltas = deltas
        """Whether responses are passed on while they arrive; otherwise each is requested as a whole."""
        self._pending = pending
        self.run: Run | None = None
        self.error: BaseException | None = None
        """What the run raised, for the reader."""
        self.is_closed = False
        """Whether the reader has stopped reading."""
        self._loop: asyncio.AbstractEventLoop
        self._thread: int
        self.events: deque[RunEvent | None] = deque()
        """The events that were not read yet; None after the last one."""
        self._reader_waiter: asyncio.Future[None] | None = None
        self._run_waiter: asyncio.Future[None] | None = None

    async def execute(self) -> None:
        """Execute the run and pass its events to the reader."""
        self._loop, self._thread = asyncio.get_running_loop(), get_ident()
        try:
            self.run = await self._pending.start(self)
            await self.run.execute()
        except BaseException as error:  # noqa: BLE001 - it is raised in the task of the reader
            self.error = error
        finally:
            if not self._loop.is_closed():  # else this coroutine is being garbage-collected, and there is no reader
                self.put(None)

    async def emit(self, event: RunEvent) -> None:
        """Pass on an event. Return when the run may continue: at once, or when the reader asks for the next event."""
        if self.is_closed:  # a provider or tool turned the cancellation into an error of its own
            raise asyncio.CancelledError
        self.put(event)
        if type(event) not in _READ_AHEAD or len(self.events) >= _MAX_READ_AHEAD:
            await self.wait_for_reader()

    async def wait_for_reader(self) -> None:
        """Wait until the reader has taken all events and asks for another: then the run is not ahead of it."""
        if self.is_closed or (self._reader_waits and not self.events):
            return
        self._run_waiter = self._loop.create_future()
        await self._run_waiter

    def next_event(self) -> "asyncio.Future[None]":
        """Let the run continue, and return a future for its next event."""
        if self._reader_waits:
            raise ConfigError("this stream is already being iterated by another task")
        if self._run_waiter is not None and not self._run_waiter.done():
            self._run_waiter.set_result(None)
        self._reader_waiter = asyncio.get_running_loop().create_future()
        return self._reader_waiter

    @property
    def _reader_waits(self) -> bool:
        return self._reader_waiter is not None and not self._reader_waiter.done()

    def put(self, event: RunEvent | None) -> None:
        self.events.append(event)
        if self._reader_waiter is not None and not self._reader_waiter.done():
            self._reader_waiter.set_result(None)

    def report(self, event: RunEvent) -> None:
        """Pass on an event from any thread, such as the progress of a tool, while the run continues."""
        if get_ident() == self._thread:
            self._put_report(event)
            return
        with suppress(RuntimeError):  # the event loop is closed, and nobody reads any more
            self._loop.call_soon_threadsafe(self._put_report, event)

    def _put_report(self, event: RunEvent) -> None:
        """Add an event of a tool, which cannot wait for the reader.

        If too many events are unread, progress replaces the unread progress of the same call.
        """
        if isinstance(event, ToolProgress) and len(self.events) >= _MAX_READ_AHEAD:
            for position, unread in reversed([*enumerate(self.events)]):
                if isinstance(unread, ToolProgress) and unread.index == event.index:
                    self.events[position] = event
                    return
        self.put(event)


async def final_text(events: NumberedEvents) -> AsyncGenerator[tuple[int, TextDelta | TurnRetry], None]:
    """Yield the text of the final answer from numbered events. Raises the error of a run that has no answer.

    Text of a turn in which the model cannot make calls is passed on as it comes. Other text is passed on when the run
    has ended, because a call may follow. If text that was passed on turns out not to be the answer (its stream was cut
    and the model is asked again), a TurnRetry tells the reader to discard it.
    """
    passed = ""
    is_answer = is_paused = False
    problem = "the events of the run have no RunEnd"
    state = RunState.of(History())
    async with aclosing(events):
        async for number, event in events:
            state = state.after(event)
            match event:
                case TextDelta() if is_answer:
                    passed += event.text
                    yield number, event
                case TurnStart():
                    is_answer = event.answer_only
                case TurnEnd():
                    is_paused = event.finish_reason is FinishReason.CONTINUES
                case TurnRetry() if passed and not is_paused:
                    passed = ""
                    yield number, event
                case Interrupted(message):
                    problem = f"the run was interrupted: {message}"
                case RunEnd(error=ErrorInfo() as info):
                    raise error_of(info, event.limit, state)
                case RunEnd(text=text, turns=turns):
                    if not text.startswith(passed):  # it is the text of a tool, of a limit or of another turn
                        passed = ""
                        yield number, TurnRetry(turns, "the run ended with another text")
                    if text != passed:
                        yield number, TextDelta(turns, text.removeprefix(passed))
                    return
    error = RunError(problem)
    error.transcript = state.settled(CALL_CANCELLED).history  # a call without a stored result may have had its effect
    raise error


def error_of(info: ErrorInfo, limit: str | None, state: RunState) -> MidspanError:
    """Return the exception for a stored error.

    It has the same class if that is a RunError, ConfigError or ProviderError; else it is a RunError that names it.
    """
    error_class = getattr(errors, info.kind, None)
    error: MidspanError
    if error_class is LimitReachedError:
        error = LimitReachedError(info.message, limit or "max_turns")
    elif isinstance(error_class, type) and issubclass(error_class, RunError | ConfigError | ProviderError):
        error = error_class(info.message)
    else:
        error = RunError(f"the run ended without an answer: {info.kind}: {info.message}")
    error.kind = info.kind
    error.transcript = state.history
    return error
