"""Runs by id: started once, watched by any number of subscribers, from any event on, stopped by anyone.

Every event goes to a journal, and subscribers read it there by number. So a slow one blocks nobody and costs no memory,
one that comes late or comes back misses nothing, and a run that has ended can still be read.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from enum import StrEnum
from os import urandom
from typing import Any, Literal, Self

from msgspec import Struct
from msgspec.structs import replace

from wasat.errors import ConfigError, RunError
from wasat.loop.agent import Agent
from wasat.loop.prompt import Prompt
from wasat.loop.result import RunStream
from wasat.storage.journal import Journal
from wasat.storage.memory import MemoryJournal
from wasat.types.codec import from_json, to_json
from wasat.types.events import (
    Fault,
    RunEnd,
    RunEvent,
    TextDelta,
    ToolStart,
    TurnRetry,
    TurnStart,
)

_log = logging.getLogger("wasat.loop")

View = Literal["all", "final"]
_MOST_UNWRITTEN = 256
_RUNS_KEPT = 1_000


class Phase(StrEnum):
    """What a run is doing."""

    AWAITING_MODEL_CALL = "awaiting_model_call"
    EXECUTING_TOOLS = "executing_tools"
    AWAITING_FINAL_RESPONSE = "awaiting_final_response"
    COMPLETED = "completed"
    STOPPED = "stopped"
    ERROR = "error"


class StreamStatus(Struct, frozen=True):
    """Where a run stands."""

    run_id: str
    phase: Phase = Phase.AWAITING_MODEL_CALL
    turn: int = 0
    events: int = 0
    """How many there are so far."""
    error: str | None = None

    @property
    def ended(self) -> bool:
        return self.phase in (Phase.COMPLETED, Phase.STOPPED, Phase.ERROR)

    def after(self, event: RunEvent) -> "StreamStatus":
        events = self.events + 1
        match event:
            case TurnStart(turn):
                first = self.phase is Phase.AWAITING_MODEL_CALL
                phase = Phase.AWAITING_MODEL_CALL if first else Phase.AWAITING_FINAL_RESPONSE
                return replace(self, phase=phase, turn=turn, events=events)
            case ToolStart():
                return replace(self, phase=Phase.EXECUTING_TOOLS, events=events)
            case RunEnd(fault=None):
                return replace(self, phase=Phase.COMPLETED, events=events)
            case RunEnd(fault=Fault(kind, message)):
                phase = Phase.STOPPED if kind == CANCELLED else Phase.ERROR
                return replace(self, phase=phase, events=events, error=f"{kind}: {message}")
        return replace(self, events=events)


CANCELLED = "cancelled"


class Streams:
    """Runs that go on in the background."""

    def __init__(self, agent: Agent | None = None, journal: Journal | None = None) -> None:
        """Without a journal the last thousand runs are kept in memory."""
        self._agent = agent
        self._journal = MemoryJournal(max_runs=_RUNS_KEPT) if journal is None else journal
        self._own_journal = journal is None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._status: dict[str, StreamStatus] = {}
        """Of the runs that go on; those that have ended are in the journal."""
        self._closed = False

    def start(
        self, prompt: Prompt | None = None, *, agent: Agent | None = None, run_id: str | None = None, **options: Any
    ) -> str:
        """Begin a run, of another agent if one is given, and return its id; `options` are those of `Agent.run`."""
        if self._closed:
            raise ConfigError("these streams are closed; make new ones")
        id = run_id or f"run_{urandom(8).hex()}"
        if id in self._tasks:
            raise ConfigError(f"a run called {id!r} is going on already; give another run_id, or none")
        asked = agent or self._agent
        if asked is None:
            raise ConfigError("there is no agent to ask; give one to the streams, or here with agent=…")
        stream = asked.stream(prompt, run_id=id, **options)
        self._status[id] = StreamStatus(id)
        task = self._tasks[id] = asyncio.get_running_loop().create_task(self._drive(id, stream), name=id)
        task.add_done_callback(lambda _: self._forget(id))
        return id

    async def subscribe(
        self, run_id: str, *, from_event: int = 0, view: View = "all"
    ) -> AsyncGenerator[tuple[int, RunEvent], None]:
        """The events of a run with their numbers: those from a number on that are there, then those that come.

        `view="final"` gives the text of the final answer and nothing else; if there is none, RunError says why.
        """
        if view not in ("all", "final"):
            raise ConfigError(f"unknown view {view!r}; known: all, final")
        await self.status(run_id)  # which tells an unknown run
        if view == "final":
            async with aclosing(final_text(self._events(run_id, 0))) as texts:
                async for number, text in texts:
                    if number >= from_event:
                        yield number, text
            return
        async with aclosing(self._events(run_id, from_event)) as events:
            async for item in events:
                yield item

    async def _events(self, run_id: str, from_event: int) -> AsyncGenerator[tuple[int, RunEvent], None]:
        async with aclosing(self._journal.watch(run_id, from_event)) as documents:
            async for number, document in documents:
                yield number, from_json(document, "event")

    async def status(self, run_id: str) -> StreamStatus:
        """Where a run stands; one that has ended is read from the journal."""
        status = self._status.get(run_id)
        if status is not None:
            return status
        documents = await self._journal.read(run_id)
        if not documents:
            raise ConfigError(f"unknown run {run_id!r}; it was never started, or is forgotten")
        status = StreamStatus(run_id)
        for _, document in documents:
            status = status.after(from_json(document, "event"))
        return status

    async def stop(self, run_id: str) -> bool:
        """Cancel a run and wait until nothing of it is left; whether it was still going on."""
        task = self._tasks.get(run_id)
        if task is None:
            await self.status(run_id)
            return False
        await _ended(task)
        return True

    async def close(self) -> None:
        """Stop all that was started."""
        self._closed = True
        await asyncio.gather(*map(_ended, list(self._tasks.values())))
        if self._own_journal:
            await self._journal.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _drive(self, id: str, stream: RunStream) -> None:
        """Run to the end, whatever the end is, and have every event written down."""
        writer = _Writer(self._journal, id)
        fault: Fault | None = None
        try:
            async with aclosing(stream):
                async for event in stream:
                    self._note(id, event)
                    await writer.write(event)
        except asyncio.CancelledError:
            fault = Fault(CANCELLED, "the run was stopped")
        except Exception as error:  # noqa: BLE001 - whatever ended the run is told to those who watch it
            _log.info("run %s ended with %s", id, type(error).__name__)
            fault = Fault(type(error).__name__, str(error))
        try:
            if fault is not None:
                end = RunEnd(id, "", stream.usage, self._status[id].turn, fault=fault)
                self._note(id, end)
                await writer.write(end)
            await writer.close()
        except Exception:  # noqa: BLE001 - a journal is foreign code, and there is nobody left to tell
            _log.exception("the end of run %s could not be written down", id)

    def _note(self, id: str, event: RunEvent) -> None:
        self._status[id] = self._status[id].after(event)

    def _forget(self, id: str) -> None:
        self._tasks.pop(id, None)
        self._status.pop(id, None)


async def _ended(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait for its end, also where it runs in another event loop."""

    async def end() -> None:
        task.cancel()
        await asyncio.wait([task])

    if task.get_loop() is asyncio.get_running_loop():
        await end()
    else:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(end(), task.get_loop()))


async def final_text(
    events: AsyncGenerator[tuple[int, RunEvent], None],
) -> AsyncGenerator[tuple[int, TextDelta], None]:
    """Of numbered events, the text of the final answer; RunError if there is none.

    What a model says before a call, or before it is cut off, is not the answer, and only the end of a turn tells.
    """
    held: list[tuple[int, TextDelta]] = []
    async with aclosing(events):
        async for number, event in events:
            match event:
                case TextDelta():
                    held.append((number, event))
                case TurnStart() | ToolStart() | TurnRetry():
                    held.clear()
                case RunEnd(fault=Fault(kind, message)):
                    raise RunError(f"the run ended without an answer: {kind}: {message}")
                case RunEnd(text=text, turns=turns):
                    said = "".join(delta.text for _, delta in held)
                    # A tool or a limit may have had the last word, and not the model.
                    for item in held if said == text else [(number, TextDelta(turns, text))] if text else []:
                        yield item


class _Writer:
    """Writes events to a journal behind the run's back, many at once where the journal is slow."""

    def __init__(self, journal: Journal, id: str) -> None:
        self._journal = journal
        self._id = id
        self._next = 0
        self._unwritten: list[bytes] = []
        self._ended = False
        self._task: asyncio.Task[None] | None = None

    async def write(self, event: RunEvent) -> None:
        """Take an event; wait only where the journal is far behind."""
        self._unwritten.append(to_json(event))
        self._ended = self._ended or isinstance(event, RunEnd)
        if self._task is None or self._task.done():
            self._raise_failure()
            self._task = asyncio.ensure_future(self._flush())
        elif len(self._unwritten) >= _MOST_UNWRITTEN:
            await asyncio.wait([self._task])

    async def _flush(self) -> None:
        while self._unwritten:
            batch, self._unwritten = self._unwritten, []
            self._next = await self._journal.append(self._id, self._next, batch, end=self._ended)

    def _raise_failure(self) -> None:
        if self._task is not None and self._task.done():
            self._task.result()

    async def close(self) -> None:
        """Wait until all is written; the journal ends with the run."""
        if self._task is not None:
            with suppress(asyncio.CancelledError):
                await asyncio.wait([self._task])
            self._raise_failure()
