"""One run in the background: driven to its end, whatever that is, with every event written down."""

import asyncio
import logging
from contextlib import aclosing, suppress

from msgspec.structs import replace

from midspan.errors import CodecError, ConfigError, JournalConflict, JournalError, LimitReached
from midspan.loop.journaling import JournalWriter
from midspan.loop.result import RunStream
from midspan.loop.state import CALL_CANCELLED, CALL_NOT_RUN
from midspan.loop.status import Phase, StreamStatus
from midspan.storage.journal import Journal
from midspan.storage.waiters import Waiters
from midspan.tools.deadline import cancel_count
from midspan.tools.failure import described, failed, fitting
from midspan.types.codec import to_json
from midspan.types.events import CANCELLED, ErrorInfo, RunEnd, RunEvent, RunStart, ToolEnd, ToolStart
from midspan.types.parts import ToolCall

_log = logging.getLogger("midspan.loop")

_STOPPED = ErrorInfo(CANCELLED, "the run was stopped")
_LOOP_CLOSED = ErrorInfo(CANCELLED, "the event loop of the run was closed")


class Drive:
    """A run and the task that drives it, in the event loop in which it was made.

    Nothing is asked of a model before the journal has taken the first event: so an id that is taken, or a journal that
    cannot be written, costs nothing and does nothing.
    """

    def __init__(self, start: RunStart, stream: RunStream, journal: Journal) -> None:
        """`start` is what is written where the run ends before it could say so itself."""
        self.id = start.run_id
        self.is_over = False
        self._start = start
        self._stream = stream
        self._status = StreamStatus(self.id)
        self._waiters = Waiters()
        self._writer = JournalWriter(journal, self.id, self._told)
        self._open: list[ToolCall] = []
        """The calls that have begun."""
        self._is_stopping = self._is_listening = False
        # Never eager: it may have to be cancelled in its first step, and by its name.
        self.task = asyncio.Task(self._run(), loop=asyncio.get_running_loop(), name=self.id)
        self.task.add_done_callback(self._done)

    @property
    def status(self) -> StreamStatus:
        if self._writer.failure is None:
            return self._status
        return replace(self._status, phase=Phase.ERROR, error=str(self.failure()))

    @property
    def has_failed(self) -> bool:
        """Whether the journal did not take it."""
        return self._writer.failure is not None

    @property
    def written(self) -> int:
        """How many events are in the journal."""
        return self._writer.written

    async def reaches(self, number: int) -> bool:
        """Whether the event of this number is written, as soon as that can be said; raises what the journal did."""
        while self.written <= number:
            with self._waiters.waiting(self.id) as woken:
                if self.written > number:
                    break
                if self.has_failed:
                    raise self.failure()
                if self.is_over:
                    return False
                await woken
        return True

    def failure(self) -> JournalError:
        """Why the journal did not take the run, as an error for each who asks."""
        cause = self._writer.failure
        if isinstance(cause, JournalConflict) and not self.written:
            words = "is in the journal already, so this one was not begun; give another run_id, or none"
            error = JournalError(f"a run called {self.id!r} {words}")
        else:
            assert cause is not None, "asked for after it came"
            error = JournalError(f"run {self.id!r} was stopped, because its journal failed: {described(cause)}")
        error.__cause__ = cause
        error.transcript = self._stream.messages if self.is_over else None
        return error

    async def stop(self) -> None:
        """Cancel the run, and wait until nothing of it is left and all is written."""
        loop = self.task.get_loop()
        if self.task.done() or self.is_over:
            return
        if loop is asyncio.get_running_loop():
            await self._ended()
        elif loop.is_closed():
            await self._end_after_its_loop()
        elif loop.is_running():
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._ended(), loop))
        else:
            raise ConfigError(f"the event loop of run {self.id!r} does not run; stop it there, or close that loop")

    async def _ended(self) -> None:
        # Once is enough, and twice would break off what the run does to end in good order.
        if not self._is_stopping:
            self._cancel()
        await asyncio.wait([self.task])

    def _cancel(self) -> None:
        # A task that is cancelled before its first step never takes it, and could write nothing down.
        self._is_stopping = True
        if self._is_listening:
            self.task.cancel()

    async def _end_after_its_loop(self) -> None:
        """What is left of a run whose task will never go on: its end, and what was not written yet."""
        self._is_stopping = True
        if not self.is_over:
            self._end(_LOOP_CLOSED)
            await self._writer.close()
            self._over()

    async def _run(self) -> None:
        error, limit = await self._listen()
        self._is_listening = False
        self._end(error, limit)
        await self._writer.close()
        self._over()

    async def _listen(self) -> tuple[ErrorInfo | None, str | None]:
        """Take the events of the run; why there is no answer, and the limit that was to blame."""
        try:
            async with aclosing(self._stream):
                if self._is_stopping:
                    return _STOPPED, None
                self._is_listening = True
                async for event in self._stream:
                    await self._take(event)
                    if self._is_stopping:  # a tool may have kept the cancellation to itself
                        return _STOPPED, None
        except asyncio.CancelledError as error:
            return _STOPPED if self._is_stopping or cancel_count() else _error_info(error), None
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - whatever ended the run is told to those who watch it
            _log.info("run %s ended with %s", self.id, type(error).__name__)
            return _error_info(error), error.limit if isinstance(error, LimitReached) else None
        return None, None

    async def _take(self, event: RunEvent) -> None:
        self._note(event)
        if self._writer.is_behind or type(event) is RunStart:
            await self._writer.caught_up()

    def _note(self, event: RunEvent) -> None:
        document = to_json(event)
        if type(event) is ToolStart:
            self._open.append(event.call)
        elif type(event) is ToolEnd:
            self._open.remove(next(call for call in self._open if call.id == event.result.id))
        self._status = self._status.after(event)
        self._writer.take(document, end=type(event) is RunEnd)

    def _end(self, error: ErrorInfo | None, limit: str | None = None) -> None:
        """Tell the end of a run that did not tell it itself."""
        if error is None or self._status.ended:
            return
        if not self._status.events:
            with suppress(CodecError):  # then that is the error, and there is no start that could be written
                self._note(self._start)
        words = CALL_CANCELLED if error.kind == CANCELLED else CALL_NOT_RUN
        for call in list(self._open):
            self._note(ToolEnd(self._status.turn, failed(call, f"{call.name} {words}"), 0.0))
        self._note(RunEnd(self.id, "", self._stream.usage, self._status.turn, limit, error))

    def _told(self) -> None:
        if self.has_failed:
            _log.error("%s", self.failure())
            if not self._is_stopping:
                self._cancel()
        self._wake()

    def _done(self, _: asyncio.Task[None]) -> None:
        if not self.is_over:  # the event loop was shut down before the first step
            self._status = replace(self._status, phase=Phase.STOPPED, error=f"{CANCELLED}: {_LOOP_CLOSED.message}")
            self._over()

    def _over(self) -> None:
        self.is_over = True
        self._wake()

    def _wake(self) -> None:
        if self._waiters:
            self._waiters.wake(self.id)


def _error_info(error: BaseException) -> ErrorInfo:
    kind = type(error).__name__
    return ErrorInfo(kind, fitting(described(error).removeprefix(kind).removeprefix(": ")))
