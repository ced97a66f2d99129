"""One background run: its status, and the tasks that consume its events and store them in a journal."""

import asyncio
import logging
from concurrent.futures import Future
from contextlib import aclosing, suppress
from enum import StrEnum
from time import perf_counter
from typing import Any, Self

from msgspec import Struct
from msgspec.structs import replace

from midspan._loop.result import RunResult, RunStream
from midspan._storage.journal import Journal, RunSummary
from midspan._types.codec import to_json
from midspan._types.events import CANCELLED, ErrorInfo, RunEnd, RunEvent, RunStart, ToolEnd, ToolStart
from midspan._types.parts import ToolCall
from midspan._types.run_state import CALL_CANCELLED, CALL_NOT_RUN, RunState
from midspan._types.texts import truncate
from midspan.errors import (
    CodecError,
    ConfigError,
    JournalError,
    LimitReachedError,
    RunElsewhereError,
    RunError,
    RunExistsError,
)
from midspan.tools.source import describe_error

_log = logging.getLogger("midspan._loop")

_WRITE_DELAY_SECONDS = 0.25
"""How long events that nobody waits for are collected, so that one append stores several of them."""
_MAX_UNWRITTEN = 256
"""The run waits for the journal if so many events are not stored yet."""


class Phase(StrEnum):
    """What a run is doing. Those of an ended run are the states of a RunSummary."""

    AWAITING_MODEL_CALL = "awaiting_model_call"
    EXECUTING_TOOLS = "executing_tools"
    AWAITING_FINAL_RESPONSE = "awaiting_final_response"
    INTERRUPTED = "interrupted"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"


class RunStatus(Struct, frozen=True):
    """The status of a run."""

    run_id: str
    phase: Phase
    turn: int
    events: int
    """The number of events so far."""
    error: str | None

    @property
    def ended(self) -> bool:
        return self.phase in (Phase.INTERRUPTED, Phase.COMPLETED, Phase.CANCELLED, Phase.FAILED)

    @classmethod
    def of(cls, run_id: str, events: int, summary: RunSummary, state: RunState) -> Self:
        """Return the status of a run with this summary and, while it is running, this state."""
        if summary.state != "running":
            phase = Phase(summary.state)
        elif state.calls:
            phase = Phase.EXECUTING_TOOLS
        else:
            phase = Phase.AWAITING_FINAL_RESPONSE if state.tool_runs else Phase.AWAITING_MODEL_CALL
        error = None if summary.error is None else f"{summary.error.kind}: {summary.error.message}"
        return cls(run_id, phase, summary.turns, events, error)


class BackgroundRun:
    """A run and the task that consumes its events, in the event loop in which it was created.

    Another task appends the events to the journal while the run continues. The run waits for it in three cases.
    RunStart is stored before the model is asked, so a run_id that is already used causes no request. The ToolStart of a
    call that may write is stored before the call runs, so after a crash the journal has every call that may have
    changed something. The third case is a slow journal: _MAX_UNWRITTEN events are not stored yet.
    """

    def __init__(self, id: str, stream: RunStream, journal: Journal, owner: str | None, session: str | None) -> None:
        self.id = id
        self.written = 0
        """The number of events that are certainly stored."""
        self.size = 0
        """The bytes of all events so far."""
        self.subscribers: set[object] = set()
        self._stream = stream  # until the run is over: it has the context of the caller
        self._journal = journal
        self._owner, self._session = owner, session
        self._events = 0
        self._state = stream.state
        self._summary = RunSummary()
        self._waiters: set[asyncio.Future[None]] = set()
        """Futures of those who wait for events to be stored, in any event loop."""
        self._open: dict[tuple[int, int], tuple[ToolCall, float]] = {}
        """Calls that have started, and when, by turn and index."""
        self._unwritten: list[bytes] = []
        self._batch = 0
        """The size of the last batch. If its append was cancelled, nobody knows whether it is stored."""
        self.failure: JournalError | None = None
        """The error of the journal. Nothing is written after that."""
        self._writer: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.outcome: Future[RunResult[Any] | BaseException] = Future()
        """The result or the error of the run, when it is over."""
        self.outcome.set_running_or_notify_cancel()  # a waiter that is cancelled does not cancel it for others
        self._is_cancelled = self._is_consuming = False
        self._cancel_reason = "the run was cancelled"
        loop = asyncio.get_running_loop()
        self.task = asyncio.Task(self._run(), loop=loop, name=id)  # not eager: its first step may have to be cancelled
        self.task.add_done_callback(lambda task: self._set_over(None if task.cancelled() else task.exception()))

    @property
    def is_over(self) -> bool:
        """Whether the run has ended and everything is stored."""
        return self.outcome.done()

    @property
    def status(self) -> RunStatus:
        return RunStatus.of(self.id, self._events, self._summary, self._state)

    async def wait_stored(self, number: int) -> bool:
        """Wait until the event of this number is stored; false if the run ended before it. Raises journal errors."""
        if self._unwritten and self.task.get_loop() is asyncio.get_running_loop():
            self._start_writer()
        while not self._is_settled(number):
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                if not self._is_settled(number):  # the thread of the run may just have stored it
                    await waiter
            finally:
                self._waiters.discard(waiter)
        if self.written <= number and self.failure is not None:
            raise self.failure.with_traceback(None)
        return self.written > number

    def _is_settled(self, number: int) -> bool:
        """Whether the event of this number is stored, or never will be."""
        return self.written > number or self.failure is not None or self.is_over

    async def result(self) -> RunResult[Any]:
        """Wait, in any event loop, until the run is over. Return its result, or raise its error."""
        outcome = await asyncio.wrap_future(self.outcome)
        if isinstance(outcome, BaseException):
            raise outcome.with_traceback(None)
        return outcome

    async def cancel(self, message: str | None = None) -> None:
        """Cancel the run, and wait until it has ended and everything is stored. `message` is stored as the reason."""
        if message is not None:
            self._cancel_reason = message
        loop = self.task.get_loop()
        if self.is_over or loop.is_closed():
            self._set_over()
            return
        if loop is asyncio.get_running_loop():
            self._request_cancel()
        elif loop.is_running():
            loop.call_soon_threadsafe(self._request_cancel)
        else:
            raise ConfigError(f"the event loop of run {self.id!r} is not running; cancel it there, or close that loop")
        await asyncio.wrap_future(self.outcome)

    def _wake(self) -> None:
        for waiter in self._waiters.copy():
            loop = waiter.get_loop()
            if loop is asyncio.get_running_loop():
                _resolve(waiter)
                continue
            with suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(_resolve, waiter)

    def _request_cancel(self) -> None:
        if not self._is_cancelled and self._is_consuming:
            # A second cancellation would break off the orderly end, and one before the first step would store nothing.
            self.task.cancel()
        self._is_cancelled = True

    async def _run(self) -> None:
        error: BaseException | None = None
        try:
            await self._consume()
        except BaseException as raised:
            if self.task.get_loop().is_closed():  # nothing can be stored any more
                raise
            error = raised
        self._is_consuming = False
        if not self._summary.ended:
            self._end(self._error_info(error), error.limit if isinstance(error, LimitReachedError) else None)
        while self._unwritten:
            with suppress(asyncio.CancelledError):  # of the event loop at its end
                await self._flush()
        if error is not None:
            raise error

    async def _consume(self) -> None:
        async with aclosing(self._stream):
            if self._is_cancelled:
                return
            self._is_consuming = True
            has_intent = False  # a call that may write has started, and its ToolStart is not known to be stored
            async for event in self._stream:
                self._store(event)
                has_more = False
                if type(event) is ToolStart:
                    has_intent, has_more = has_intent or event.may_write, event.has_more
                is_behind = len(self._unwritten) >= _MAX_UNWRITTEN
                if (has_intent and not has_more) or type(event) is RunStart or is_behind:
                    await self._flush()
                    if self.failure is not None:
                        raise self.failure
                    has_intent = False
                if self._is_cancelled:  # a tool may have swallowed the cancellation
                    return

    def _error_info(self, error: BaseException | None) -> ErrorInfo:
        task = asyncio.current_task()
        is_cancelling = self._is_cancelled or (task is not None and task.cancelling() > 0)
        if error is None or (isinstance(error, asyncio.CancelledError) and is_cancelling):
            return ErrorInfo(CANCELLED, self._cancel_reason)
        kind = type(error).__name__
        _log.info("run %s ended with %s", self.id, kind, extra={"run_id": self.id})
        return ErrorInfo(kind, truncate(describe_error(error).removeprefix(kind).removeprefix(": ")))

    def _end(self, error: ErrorInfo, limit: str | None = None) -> None:
        """Store the end of a run that has no RunEnd of its own."""
        if not self._events:
            with suppress(CodecError):  # in this case it is the error of the run
                self._store(RunStart(self.id, self._stream.model, self._stream.messages.messages))
        reason = CALL_CANCELLED if error.kind == CANCELLED else CALL_NOT_RUN
        for (turn, index), (call, started) in list(self._open.items()):
            result = call.error_result(f"{call.name} {reason}")
            self._store(ToolEnd(turn, result, perf_counter() - started, index))
        self._store(RunEnd(self.id, "", self._stream.state.usage, self._summary.turns, limit, error))

    def _store(self, event: RunEvent) -> None:
        if self.failure is not None:
            return
        document = to_json(event)
        self.size += len(document)
        if type(event) is ToolStart:
            self._open[event.turn, event.index] = event.call, perf_counter()
        elif type(event) is ToolEnd:
            self._open.pop((event.turn, event.index), None)
        self._events += 1
        self._state = self._stream.state
        self._summary = self._summary.after(event)
        self._unwritten.append(document)
        if self._waiters:
            self._start_writer()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_WRITE_DELAY_SECONDS, self._start_writer)

    def _set_over(self, error: BaseException | None = None) -> None:
        if self.is_over:
            return
        if not self._summary.ended:  # the event loop was shut down before the run could end
            info = ErrorInfo(CANCELLED, "the event loop of the run was closed")
            self._summary = replace(self._summary, state="cancelled", error=info)
        outcome: RunResult[Any] | BaseException
        if self.failure is not None:
            outcome = self.failure
            self.failure.transcript = self._stream.messages
        elif self._summary.state == "completed":
            outcome = self._stream.result
        elif error is not None:
            outcome = error
        else:
            outcome = RunError(self._cancel_reason)
            outcome.kind, outcome.transcript = CANCELLED, self._stream.messages
        del self._stream
        self.outcome.set_result(outcome)
        self._wake()

    async def _flush(self) -> None:
        """Wait until everything is stored, or the journal has failed."""
        while self._unwritten:
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
            while self._unwritten:
                await self._append()
                self._wake()
        except BaseException as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise  # at the end of the event loop; the run continues in a new task
            if isinstance(error, RunExistsError):
                self.failure = error
            else:
                message = f"run {self.id!r} was cancelled because its journal failed: {describe_error(error)}"
                self.failure = JournalError(message)
                self.failure.__cause__ = error
            self._unwritten.clear()
            info = ErrorInfo(type(self.failure).__name__, str(self.failure))
            self._summary = replace(self._summary, state="failed", error=info)
            _log.error("%s", self.failure)
            self._request_cancel()
            self._wake()
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise

    async def _append(self) -> None:
        is_repeated, self._batch = self._batch > 0, self._batch or len(self._unwritten)
        documents = self._unwritten[: self._batch]
        summary = self._summary if len(documents) == len(self._unwritten) else None  # it includes the last event
        try:
            await self._journal.append(
                self.id, self.written, documents, owner=self._owner, session=self._session, summary=summary
            )
        except Exception as error:
            # A conflict is our own earlier append if that was cancelled; otherwise it is another writer's. After any
            # other error the append may have been stored, for example if only the acknowledgement was lost.
            is_conflict = isinstance(error, RunExistsError | RunElsewhereError)
            if (is_conflict and not is_repeated) or not await self._has_stored(documents):
                raise
        del self._unwritten[: self._batch]
        self.written += self._batch
        self._batch = 0

    async def _has_stored(self, documents: list[bytes]) -> bool:
        try:
            stored = await self._journal.read(self.id, self.written)
        except Exception:  # noqa: BLE001 - a journal that cannot be read either has not stored them as far as we know
            return False
        return [document for _, document in stored] == documents


def _resolve(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
