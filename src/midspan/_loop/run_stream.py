"""The stream of a run: its events, read while the run continues in a task of its own."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from threading import get_ident
from typing import TYPE_CHECKING, Generic, Self

from midspan._loop.blocking import ClosableFromSyncCode, iterate
from midspan._loop.options import OutputT
from midspan._loop.result import RunResult
from midspan._types.events import RunEvent, TextDelta, ThoughtDelta, ToolCallDelta, ToolProgress
from midspan._types.messages import History
from midspan._types.run_state import CALL_CANCELLED, RunState
from midspan.errors import ConfigError

if TYPE_CHECKING:
    from midspan._loop.prepare import PendingRun
    from midspan._loop.run import Run


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
        if self.error is not None or (self.run is not None and self.run.end is not None):
            return  # RunEnd is the last event, even if an abandoned tool still reports its progress
        if isinstance(event, ToolProgress) and len(self.events) >= _MAX_READ_AHEAD:
            for position, unread in reversed([*enumerate(self.events)]):
                if isinstance(unread, ToolProgress) and unread.index == event.index:
                    self.events[position] = event
                    return
        self.put(event)
