"""One background run: its status, and the tasks that consume its events and store them in a journal."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing, suppress
from time import perf_counter
from typing import Any, Literal, Self

from msgspec import Struct
from msgspec.structs import replace

from midspan import errors
from midspan._loop.result import RunResult
from midspan._loop.run_stream import RunStream
from midspan._storage.journal import ENDED_STATES, Journal, RunSummary
from midspan._types.codec import to_json
from midspan._types.events import CANCELLED, ErrorInfo, RunEnd, RunEvent, RunStart, ToolEnd, ToolStart
from midspan._types.run_state import CALL_CANCELLED, CALL_NOT_RUN, RunState
from midspan._types.texts import truncate
from midspan.tools.source import describe_error, error_message

_log = logging.getLogger("midspan._loop")

_WRITE_DELAY_SECONDS = 0.25
"""How long events without subscribers are buffered, so that one append stores several of them."""
_MAX_UNSTORED = 256
"""The run waits for the journal while this many events are not stored."""

_Activity = Literal["awaiting_model_call", "executing_tools", "awaiting_final_response"]
Phase = _Activity | Literal["interrupted", "completed", "cancelled", "failed"]
"""What a run is doing, or how it has ended, as in its RunSummary."""


class RunStatus(Struct, frozen=True):
    """The status of a run."""

    run_id: str
    phase: Phase
    turn: int
    events: int
    """The number of events so far."""
    error: str | None

    @property
    def is_over(self) -> bool:
        """Whether the run has ended or was interrupted, so that no events follow."""
        return self.phase in ("interrupted", *ENDED_STATES)

    @classmethod
    def of(cls, run_id: str, events: int, summary: RunSummary, state: RunState) -> Self:
        """Return the status of a run with this summary and, while it is running, this state."""
        if summary.state != "running":
            phase: Phase = summary.state
        elif state.calls:
            phase = "executing_tools"
        else:
            phase = "awaiting_final_response" if state.tool_runs else "awaiting_model_call"
        error = None if summary.error is None else f"{summary.error.kind}: {summary.error.message}"
        return cls(run_id, phase, summary.turns, events, error)


class BackgroundRun:
    """A run and the task that consumes its events, in the event loop in which it was created.

    The run has ended when it has a RunEnd. It is done when that event is stored, or cannot be stored.

    Another task appends the events to the journal while the run continues. The run waits for it in three cases.
    RunStart is stored before the model is asked, so a run_id that is already used causes no request. The ToolStart of a
    call that may write is stored before the call runs, so after a crash the journal has every call that may have
    changed something. The third case is a slow journal, with _MAX_UNSTORED events that are not stored.
    """

    def __init__(
        self,
        id: str,
        stream: RunStream,
        journal: Journal,
        on_done: Callable[["BackgroundRun"], None],
        *,
        owner: str | None,
        session: str | None,
    ) -> None:
        """`on_done` is called when the run is done. `owner` and `session` are stored with it."""
        self.id = id
        self.stored = 0
        """The number of events that are certainly stored."""
        self.size = 0
        """The bytes of all events so far."""
        self.subscribers = 0
        self.journal_error: errors.JournalError | None = None
        """The error of the journal that has ended the run."""
        self.outcome: RunResult[Any] | BaseException | None = None
        """The result or the error of the run, when it is done."""
        self._stream = stream  # until the run is done: it has the context of the caller
        self._journal, self._on_done = journal, on_done
        self._owner, self._session = owner, session
        self._state = stream.state
        self._summary = RunSummary()
        self._changed = asyncio.Event()
        """Set, and replaced by another one, when events were stored or the run is done."""
        self._open_calls: dict[int, tuple[ToolStart, float]] = {}
        """The calls of the turn that have started, and when, by index."""
        self._unstored: list[bytes] = []
        self._in_doubt = False
        """Whether the last append may have been stored although it did not return."""
        self._writer: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._cancel_reason = "the run was cancelled"
        loop = asyncio.get_running_loop()
        self._task = asyncio.Task(self._run(), loop=loop, name=id)  # not eager: the caller registers the run first
        self._task.add_done_callback(lambda task: self._set_done(None if task.cancelled() else task.exception()))

    @property
    def status(self) -> RunStatus:
        summary = self._summary
        if self.journal_error is not None and self._unstored:
            summary = replace(summary, state="failed", error=_error_info(self.journal_error))
        return RunStatus.of(self.id, self.stored + len(self._unstored), summary, self._state)

    async def wait_stored(self, number: int) -> bool:
        """Wait until the event of this number is stored; false if the run ended before it. Raises journal errors."""
        while self.stored <= number and self.outcome is None and self.journal_error is None:
            await self._wait()
        if self.stored <= number and self.journal_error is not None and self._unstored:
            raise self.journal_error.with_traceback(None)
        return self.stored > number

    async def result(self) -> RunResult[Any]:
        """Wait until the run is done. Return its result, or raise its error."""
        while self.outcome is None:
            await self._wait()
        if isinstance(self.outcome, BaseException):
            raise self.outcome.with_traceback(None)
        return self.outcome

    async def cancel(self, message: str | None = None) -> None:
        """Cancel the run, and wait until it is done. `message` is stored as the reason."""
        if message is not None:
            self._cancel_reason = message
        if self.outcome is None and self._task.get_loop().is_closed():
            self._set_done(None)
        if self.outcome is None:
            self._check_event_loop()
            await self._stream.aclose()
        while self.outcome is None:
            await self._wait()

    async def _wait(self) -> None:
        """Wait until events were stored or the run is done."""
        self._check_event_loop()
        if self._unstored and self.journal_error is None:
            self._start_writer()
        await self._changed.wait()

    def _check_event_loop(self) -> None:
        if self._task.get_loop() is not asyncio.get_running_loop():
            raise errors.ConfigError(f"run {self.id!r} runs in another event loop; wait for it or cancel it there")

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _run(self) -> None:
        error: BaseException | None = None
        try:
            await self._consume()
        except BaseException as raised:
            if self._task.get_loop().is_closed():  # nothing can be stored any more
                raise
            error = raised
        if not self._summary.ended:
            self._end(error)
        while self._unstored and self.journal_error is None:
            with suppress(asyncio.CancelledError):  # the event loop is shutting down
                await self._flush()
        if self._unstored and not isinstance(self.journal_error, errors.RunExistsError | errors.RunElsewhereError):
            with suppress(Exception):  # the journal still fails, and `journal_error` says why
                while self._unstored:
                    await self._append()
        if error is not None:
            raise error

    async def _consume(self) -> None:
        must_store = True  # RunStart; later a call that may write
        async with aclosing(self._stream):
            async for event in self._stream:
                self._enqueue(event)
                has_more = False
                if type(event) is ToolStart:
                    must_store, has_more = must_store or event.may_write, event.has_more
                if (must_store and not has_more) or len(self._unstored) >= _MAX_UNSTORED:
                    await self._flush()
                    must_store = False
                if self.journal_error is not None:
                    raise self.journal_error

    def _end(self, error: BaseException | None) -> None:
        """Store the end of a run that has no RunEnd of its own. `error` ended it; None if it was cancelled."""
        limit = error.limit if isinstance(error, errors.LimitReachedError) else None
        error, info = self.journal_error or error, ErrorInfo(CANCELLED, self._cancel_reason)
        is_cancelled = isinstance(error, asyncio.CancelledError) and self._task.cancelling()
        if error is not None and not is_cancelled:
            _log.info("run %s ended with %s", self.id, type(error).__name__, extra={"run_id": self.id})
            info = _error_info(error)
        if not self.size:
            with suppress(errors.CodecError):  # then it is also the error with which the run ended
                self._enqueue(RunStart(self.id, self._stream.model, self._stream.messages.messages))
        reason = CALL_CANCELLED if info.kind == CANCELLED else CALL_NOT_RUN
        for start, started in list(self._open_calls.values()):
            result = start.call.error_result(f"{start.call.name} {reason}")
            self._enqueue(ToolEnd(start.turn, result, perf_counter() - started, start.index))
        self._enqueue(RunEnd(self.id, "", self._stream.state.usage, self._summary.turns, limit, info))

    def _enqueue(self, event: RunEvent) -> None:
        document = to_json(event)
        self.size += len(document)
        if type(event) is ToolStart:
            self._open_calls[event.index] = event, perf_counter()
        elif type(event) is ToolEnd:
            self._open_calls.pop(event.index, None)
        self._state = self._stream.state
        self._summary = self._summary.after(event)
        self._unstored.append(document)
        if self.journal_error is not None:
            return
        if self.subscribers:
            self._start_writer()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_WRITE_DELAY_SECONDS, self._start_writer)

    def _set_done(self, error: BaseException | None) -> None:
        if not self._summary.ended:  # the event loop was shut down before the run could end
            info = ErrorInfo(CANCELLED, "the event loop of the run was closed")
            self._summary = replace(self._summary, state="cancelled", error=info)
        if self._summary.state == "completed" and (self.journal_error is None or not self._unstored):
            self.outcome = self._stream.result
        elif self.journal_error is not None:
            self.outcome = self.journal_error
            self.journal_error.transcript = self._stream.messages
        elif error is not None:
            self.outcome = error
        else:
            self.outcome = cancelled = errors.RunError(self._cancel_reason)
            cancelled.kind, cancelled.transcript = CANCELLED, self._stream.messages
        del self._stream
        if not self._task.get_loop().is_closed():
            self._notify()
        self._on_done(self)

    async def _flush(self) -> None:
        """Wait until everything is stored, or the journal has failed."""
        while self._unstored and self.journal_error is None:
            await asyncio.wait([self._start_writer()])

    def _start_writer(self) -> asyncio.Task[None]:
        """Return the task that appends; a new one if the last has ended or was cancelled."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._writer is None or self._writer.done():
            self._writer = asyncio.get_running_loop().create_task(self._append_all())
        return self._writer

    async def _append_all(self) -> None:
        """Append all events, several at once if the journal is slow."""
        try:
            while self._unstored:
                await self._append()
                self._notify()
        except BaseException as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise  # the event loop is shutting down; `_flush` starts a new task
            if isinstance(error, errors.RunExistsError | errors.RunElsewhereError):
                self.journal_error = error
            else:
                message = f"run {self.id!r} was cancelled because its journal failed: {describe_error(error)}"
                self.journal_error = errors.JournalError(message)
                self.journal_error.__cause__ = error
            _log.error("%s", self.journal_error)
            self._notify()
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            await self._stream.aclose()

    async def _append(self) -> None:
        documents = self._unstored.copy()
        count, was_in_doubt = len(documents), self._in_doubt
        self._in_doubt = True
        try:
            await self._journal.append(
                self.id, self.stored, documents, owner=self._owner, session=self._session, summary=self._summary
            )
        except Exception as error:
            # A conflict without an earlier append in doubt comes from another writer. In all other cases the journal
            # may have stored these events, for example if only the acknowledgement was lost.
            is_conflict = isinstance(error, errors.RunExistsError | errors.RunElsewhereError)
            count = 0 if is_conflict and not was_in_doubt else await self._count_stored(documents)
            if not count:
                raise
        del self._unstored[:count]
        self.stored += count
        self._in_doubt = False

    async def _count_stored(self, documents: list[bytes]) -> int:
        """Return how many of these events the journal has; 0 if it has different ones."""
        try:
            stored = [document for _, document in await self._journal.read(self.id, self.stored)]
        except Exception:  # noqa: BLE001 - a journal that cannot be read either has not stored them as far as we know
            return 0
        return len(stored) if stored == documents[: len(stored)] else 0


def _error_info(error: BaseException) -> ErrorInfo:
    return ErrorInfo(type(error).__name__, truncate(error_message(error)))
