"""The log of everything that is asked in the terminal: runs in a SQLite journal, grouped into conversations.

A conversation is a session of the journal. It has the name that the user gave it, or one of its own that starts with a
dash. A named conversation that is started over becomes `NAME#2`; the old one stays in the log.
"""

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from midspan._cli.settings import private_directory, state_directory
from midspan._cli.text import print_line
from midspan._storage.journal import RunInfo, RunSummary
from midspan._storage.sqlite import SqliteJournal
from midspan._types import events
from midspan._types.codec import from_json, to_json
from midspan._types.events import CANCELLED
from midspan._types.messages import History
from midspan._types.run_state import CALL_CANCELLED, RunState
from midspan.errors import ConfigError, JournalError

_SKIPPED = (events.TextDelta, events.ThoughtDelta, events.ToolCallDelta, events.ToolProgress)
"""Events whose content is in later ones."""
_DAY = 86_400
_REMEDY = "; for the log of runs, set XDG_STATE_HOME to a directory that you can write to; --no-log does without it"


class RunLog:
    """The log of this user. `run` runs a coroutine."""

    def __init__(self, run: Callable[[Coroutine[Any, Any, Any]], Any], *, max_days: int | None = None) -> None:
        self._run = run
        self.path = private_directory(state_directory(), _REMEDY) / "runs.db"
        self.journal = SqliteJournal(self.path)
        self.runs(limit=1)  # a file that cannot be used is reported before anything is asked
        if max_days is not None:
            self._sweep(max_days)

    def close(self) -> None:
        self._run(self.journal.aclose())

    def session(self, name: str | None, *, is_new: bool = False) -> str:
        """Return the session of a name, or a new one."""
        if name is None:
            return f"-{os.urandom(6).hex()}"
        if not name.isprintable() or not name.strip() or name.startswith("-") or "#" in name:
            raise ConfigError(f"{name!r} is not a valid name; it must not be empty, begin with - or contain #")
        sessions = [info.session for info in self._run(self.journal.sessions())]
        numbers = [int(number or 1) for base, _, number in (key.partition("#") for key in sessions) if base == name]
        number = max(numbers, default=0 if is_new else 1) + is_new
        return name if number <= 1 else f"{name}#{number}"

    def last_session(self) -> str:
        """Return the session of the last run."""
        sessions = self._run(self.journal.sessions(limit=1))
        if not sessions:
            raise ConfigError("there is no conversation to continue: the log is empty")
        return str(sessions[0].session)

    def history(self, session: str) -> History:
        """Return the messages of a conversation. A question that led to nothing is left out."""
        messages: list[Any] = []
        for info in reversed(self._run(self.journal.list(session=session))):
            added = RunState.of_events(self.read(info.run)).settled(CALL_CANCELLED).history
            messages += added if len(added) > 1 else ()
        return History(messages)

    def runs(self, limit: int | None = None) -> list[RunInfo]:
        """Return the runs, newest first."""
        return list(self._run(self.journal.list(limit=limit)))

    def find(self, id: str) -> RunInfo:
        """Return the run whose id starts with `id`; `run_` can be left out."""
        runs = [info for info in self.runs() if info.run.removeprefix("run_").startswith(id.removeprefix("run_"))]
        if len(runs) != 1:
            raise ConfigError(f"{len(runs) or 'no'} runs have an id that starts with {id!r}; see midspan runs list")
        return runs[0]

    def read(self, run: str, limit: int | None = None) -> list[events.RunEvent]:
        return [from_json(data, "event") for _, data in self._run(self.journal.read(run, limit=limit))]

    def delete(self, run: str) -> None:
        self._run(self.journal.delete(run))

    def _sweep(self, max_days: int) -> None:
        """Delete conversations that have not been continued for `max_days`. Does so once a day at most."""
        marker = self.path.with_name("runs.swept")
        if marker.exists() and time.time() - marker.stat().st_mtime < _DAY:
            return
        marker.touch(mode=0o600)
        for info in self._run(self.journal.sessions()):
            if info.updated_at < time.time() - max_days * _DAY:
                for run in self._run(self.journal.list(session=info.session)):
                    self.delete(run.run)


class LogEntry(Struct):
    """Writes the events of one run to the log, if there is one. If that fails, the run continues without the log."""

    journal: SqliteJournal | None
    session: str
    earlier_messages: int
    run_id: str = ""
    length: int = 0
    summary: RunSummary = RunSummary()

    async def add(self, event: events.RunEvent) -> None:
        if isinstance(event, _SKIPPED) or self.journal is None:
            return
        if isinstance(event, events.RunStart):  # the earlier messages are those of the earlier runs
            self.run_id = event.run_id
            event = replace(event, messages=event.messages[self.earlier_messages :])
        self.summary = self.summary.after(event)
        length, self.length = self.length, self.length + 1
        data = [to_json(event)]
        append = self.journal.append(self.run_id, length, data, session=self.session, summary=self.summary)
        try:
            await asyncio.shield(append)  # whether a cancelled append was stored is unknown
        except JournalError as error:
            self.journal = None
            print_line(f"this is not logged: {error}")

    async def end(self, error: BaseException | None) -> None:
        """Store how the run ended, if it has no RunEnd of its own."""
        if self.length and not self.summary.ended:
            is_cancelled = isinstance(error, KeyboardInterrupt)
            name, message = (CANCELLED, CANCELLED) if is_cancelled else (type(error).__name__, str(error))
            info = events.ErrorInfo(name, message)
            usage, turns = self.summary.usage, self.summary.turns
            await self.add(events.RunEnd(self.run_id, "", usage, turns, getattr(error, "limit", None), info))
