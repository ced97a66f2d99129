"""Runs by id: started once, watched by any number of subscribers, from any event on, stopped by anyone.

Every event goes to a journal, and subscribers read it there by number. So a slow one blocks nobody and costs no memory,
one that comes late or comes back misses nothing, and a run that has ended can still be read.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Literal, Self

from msgspec.structs import replace

from midspan.errors import ConfigError, JournalConflict
from midspan.loop.agent import Agent, new_run_id
from midspan.loop.driving import Drive
from midspan.loop.final import final_text
from midspan.loop.prompt import Prompt
from midspan.loop.reading import NumberedEvents, driven, kept
from midspan.loop.status import Phase as Phase
from midspan.loop.status import StreamStatus as StreamStatus
from midspan.storage.journal import Journal, check_run
from midspan.storage.memory import MemoryJournal
from midspan.types.codec import from_json
from midspan.types.events import RunStart

View = Literal["all", "final"]

_RUNS_KEPT = 1_000
_PATIENCE_SECONDS = 60.0


class Streams:
    """Runs that go on in the background, in the event loop in which they are started."""

    def __init__(self, agent: Agent | None = None, journal: Journal | None = None) -> None:
        """Without a journal the last thousand runs are kept in memory."""
        self._agent = None if agent is None else _checked_agent(agent)
        self._journal = MemoryJournal(max_runs=_RUNS_KEPT) if journal is None else _checked_journal(journal)
        self._own_journal = journal is None
        self._drives: dict[str, Drive] = {}
        """The runs that go on."""
        self._past: dict[str, Drive | None] = {}
        """The last of those that ended; those that the journal did not take are still to be asked for."""
        self._closed = False

    def start(
        self, prompt: Prompt | None = None, *, agent: Agent | None = None, run_id: str | None = None, **options: Any
    ) -> str:
        """Begin a run, of another agent if one is given, and return its id; `options` are those of `Agent.run`.

        A `run_id` that was used before is refused. Where only the journal knows of it, which has to be waited for, the
        run is not begun, and whoever subscribes or asks for its status is told.
        """
        if self._closed:
            raise ConfigError("these streams are closed; make new ones")
        _check_loop()
        id = new_run_id() if run_id is None else run_id
        self._check_new(id)
        asked = self._agent if agent is None else _checked_agent(agent)
        if asked is None:
            raise ConfigError("there is no agent to ask; give one to the streams, or here with agent=…")
        stream = asked.stream(prompt, run_id=id, **options)
        other = options.get("model")
        model = asked.model if other is None else asked.but(model=other).model
        drive = self._drives[id] = Drive(RunStart(id, model.model, stream.messages.messages), stream, self._journal)
        drive.task.add_done_callback(lambda _: self._retire(drive))
        return id

    async def subscribe(
        self,
        run_id: str,
        *,
        from_event: int = 0,
        view: View = "all",
        patience_seconds: float | None = _PATIENCE_SECONDS,
    ) -> NumberedEvents:
        """The events of a run with their numbers: those from a number on that are there, then those that come.

        `view="final"` gives the text of the final answer and nothing else; if there is none, RunError says why. If the
        journal did not take the run, JournalError does, after the events that it took.

        A run that is not driven here may go on in another process, or that process may have been killed: the journal
        cannot tell. So RunError is raised when nothing came for `patience_seconds`; 0 takes what is there, and None
        waits for ever.
        """
        if view not in ("all", "final"):
            raise ConfigError(f"unknown view {view!r}; known: all, final")
        _check_number(from_event)
        _check_patience(patience_seconds)
        events = await self._events(run_id, from_event if view == "all" else 0, patience_seconds)
        chosen: AsyncGenerator[tuple[int, Any], None] = events if view == "all" else final_text(events)
        async with aclosing(chosen):
            async for number, event in chosen:
                if number >= from_event:
                    yield number, event

    async def status(self, run_id: str) -> StreamStatus:
        """Where a run stands; one that is not driven here is read from the journal."""
        check_run(run_id)
        drive = self._drive(run_id)
        if drive is not None:
            return drive.status
        documents = await self._journal.read(run_id)
        if not documents:
            raise ConfigError(f"unknown run {run_id!r}; it was never started, or is forgotten")
        status = StreamStatus(run_id)
        for _, document in documents:
            status = status.after(from_json(document, "event"))
        return replace(status, elsewhere=not status.ended)

    async def stop(self, run_id: str) -> bool:
        """Cancel a run, and wait until nothing of it is left and all is written; whether it was still going on."""
        check_run(run_id)
        drive = self._drives.get(run_id)
        if drive is None:
            if (await self.status(run_id)).elsewhere:
                raise ConfigError(f"run {run_id!r} is not driven here; stop it where it was started")
            return False
        await self._stop(drive)
        return True

    async def close(self) -> None:
        """Stop all that was started, and wait until all is written."""
        self._closed = True
        stopped = await asyncio.gather(*map(self._stop, list(self._drives.values())), return_exceptions=True)
        for error in stopped:
            if error is not None:
                raise error
        if self._own_journal:
            await self._journal.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _events(self, run_id: str, from_event: int, patience: float | None) -> NumberedEvents:
        check_run(run_id)
        drive = self._drive(run_id)
        if drive is not None:
            return driven(self._journal, drive, from_event)
        status = await self.status(run_id)  # which tells an unknown run
        return kept(self._journal, status, from_event, patience_seconds=patience)

    def _drive(self, run_id: str) -> Drive | None:
        """The drive of a run that goes on here, or that the journal did not take."""
        drive = self._drives.get(run_id) or self._past.get(run_id)
        return None if drive is None or _is_kept(drive) else drive

    def _check_new(self, id: str) -> None:
        check_run(id)
        if id in self._drives:
            raise ConfigError(f"a run called {id!r} is going on already; give another run_id, or none")
        used = id in self._past
        if isinstance(self._journal, MemoryJournal):
            try:
                self._journal.append_now(id, 0, ())  # which only asks
            except JournalConflict:
                used = True
        if used:
            raise ConfigError(f"a run called {id!r} was there before; give another run_id, or none")

    async def _stop(self, drive: Drive) -> None:
        await drive.stop()
        self._retire(drive)

    def _retire(self, drive: Drive) -> None:
        if self._drives.pop(drive.id, None) is None:
            return
        self._past[drive.id] = None if _is_kept(drive) else drive
        if len(self._past) > _RUNS_KEPT:
            del self._past[next(iter(self._past))]


def _is_kept(drive: Drive) -> bool:
    """Whether all of a run is in the journal."""
    return drive.is_over and drive.written > 0 and not drive.has_failed


def _checked_agent(agent: Any) -> Agent:
    if not isinstance(agent, Agent):
        raise ConfigError(f"streams ask an Agent, not {agent!r}")
    return agent


def _checked_journal(journal: Any) -> Journal:
    if isinstance(journal, type) or not isinstance(journal, Journal):
        hint = f"; for a file, give SqliteJournal({journal!r})" if isinstance(journal, str) else ""
        raise ConfigError(f"a journal is one like MemoryJournal(), not {journal!r}{hint}")
    return journal


def _check_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise ConfigError(
            "there is no event loop in which the run could go on; start it from async code, inside asyncio.run"
        ) from None


def _check_number(from_event: Any) -> None:
    if not isinstance(from_event, int) or isinstance(from_event, bool) or from_event < 0:
        raise ConfigError(f"events are numbered from 0; from_event cannot be {from_event!r}")


def _check_patience(seconds: Any) -> None:
    if seconds is not None and (not isinstance(seconds, int | float) or isinstance(seconds, bool) or not seconds >= 0):
        raise ConfigError(f"patience_seconds is a number from 0 on, or None for ever, not {seconds!r}")
