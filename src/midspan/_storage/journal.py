"""The protocol of journals: where the events of runs are stored.

Above it are background runs, which append events as JSON documents and read them again. Below it are memory, SQLite or
a database server. A journal does not decode events: the writer passes a summary of the run with each append.
"""

import sys
from collections.abc import Sequence
from typing import Literal, Protocol, get_args, runtime_checkable

from msgspec import Struct
from msgspec.structs import replace

from midspan._types.events import CANCELLED, ErrorInfo, Interrupted, RunEnd, RunEvent, RunStart, TurnEnd, TurnStart
from midspan._types.exchange import Usage
from midspan.errors import ConfigError, JournalError, RunElsewhereError, RunExistsError, UnknownRunError

StoredEvents = list[tuple[int, bytes]]
"""Events as JSON documents, each with its number."""
StateName = Literal["running", "completed", "failed", "cancelled", "interrupted"]
ENDED_STATES = ("completed", "failed", "cancelled")


class RunSummary(Struct, frozen=True, omit_defaults=True):
    """What a list of runs shows, without reading their events."""

    model: str | None = None
    state: StateName = "running"
    turns: int = 0
    usage: Usage = Usage()
    error: ErrorInfo | None = None
    """The last error."""

    @property
    def ended(self) -> bool:
        """Whether the run has a RunEnd, after which nothing can be appended. An interrupted run has none."""
        return self.state in ENDED_STATES

    def after(self, event: RunEvent) -> "RunSummary":
        match event:
            case RunStart(model=model):
                return RunSummary(model)
            case TurnStart(turn=turn):
                return replace(self, state="running", turns=turn)
            case TurnEnd(usage=usage):
                return replace(self, usage=self.usage + usage)
            case Interrupted():
                return replace(self, state="interrupted")
            case RunEnd(error=None):
                return replace(self, state="completed", turns=event.turns, usage=event.usage)
            case RunEnd(error=ErrorInfo() as error):
                state: StateName = "cancelled" if error.kind == CANCELLED else "failed"
                return replace(self, state=state, turns=event.turns, usage=event.usage, error=error)
        return self


class RunInfo(Struct, frozen=True):
    """A run as `list` and `get` show it."""

    run: str
    length: int
    """The number of events, which is the number that the next one gets."""
    summary: RunSummary
    owner: str | None
    session: str | None
    started_at: float
    """Seconds since the epoch, by the clock of the store."""
    updated_at: float
    cursor: str
    """Pass it to `list(after=…)` to get the runs that follow this one."""


class SessionInfo(Struct, frozen=True):
    """A session: the runs of one conversation."""

    session: str
    owner: str | None
    runs: int
    last_run: str
    started_at: float
    updated_at: float
    cursor: str
    """Pass it to `sessions(after=…)` to get the sessions that follow this one."""


Runs = list[RunInfo]
Sessions = list[SessionInfo]


@runtime_checkable
class Journal(Protocol):
    """Runs as sequences of events, numbered from 0 without gaps. Threads and event loops can share a journal.

    The first append creates the run.
    """

    async def append(
        self,
        run: str,
        expected_seq: int,
        events: Sequence[bytes],
        *,
        owner: str | None = None,
        session: str | None = None,
        summary: RunSummary,
    ) -> int:
        """Store all of the events or none, and return the number of the next one.

        `expected_seq` is the number of events that the writer knows of. Raises RunExistsError if it is 0 and the run
        exists, UnknownRunError if it is not 0 and the run does not exist, and RunElsewhereError if another writer has
        appended or the run has ended: of two concurrent writers, one gets this error.

        `owner` and `session` are stored when the run is created, `summary` with each append. A summary whose
        `ended` is true ends the run, and nothing can be appended afterwards.

        If append is cancelled or raises anything else, the outcome is unknown: read the run before continuing.
        """

    async def read(self, run: str, from_seq: int = 0, limit: int | None = None) -> StoredEvents:
        """The stored events from this number on, at most `limit`. Raises UnknownRunError."""

    async def get(self, run: str) -> RunInfo:
        """Raises UnknownRunError."""

    async def list(
        self,
        *,
        after: str | None = None,
        owner: str | None = None,
        session: str | None = None,
        state: StateName | None = None,
        limit: int | None = None,
    ) -> Runs:
        """The runs in the order of their start, newest first. `after` is the cursor of the last run already listed."""

    async def sessions(
        self, *, after: str | None = None, owner: str | None = None, limit: int | None = None
    ) -> Sessions:
        """The sessions of all runs, or of those of one owner, the one with the newest run first.

        Two owners may use the same name; these are two sessions.
        """

    async def delete(self, run: str) -> bool:
        """Delete a run with its events. Returns whether it existed."""

    async def aclose(self) -> None:
        """Finish the calls made so far and release all resources."""


def conflict(run: str, expected_seq: int, length: int | None, *, ended: bool) -> JournalError | None:
    """The error of an append to a run of this length (None: no such run), or None if the append may proceed."""
    if length is None:
        return UnknownRunError(run) if expected_seq else None
    if expected_seq == 0:
        return RunExistsError(run)
    if expected_seq != length or ended:
        return RunElsewhereError(run, expected=expected_seq, stored=length, ended=ended)
    return None


def check_query(limit: int | None, after: str | None = None, state: str | None = None) -> tuple[int, int]:
    """Return `limit` and the cursor `after` as numbers; sys.maxsize stands for None.

    The values may come from outside. Raises ConfigError if one is not valid.
    """
    if state is not None and state not in get_args(StateName):
        raise ConfigError(f"unknown state {state!r}; known states: {', '.join(get_args(StateName))}")
    if limit is not None and limit < 0:
        raise ConfigError(f"limit must be 0 or more, or None for no limit, got {limit}")
    if after is not None and not (after.isascii() and after.isdigit() and len(after) < 19):
        raise ConfigError(f"{after!r} is not a cursor of this journal; pass RunInfo.cursor")
    return sys.maxsize if limit is None else min(limit, sys.maxsize), sys.maxsize if after is None else int(after)
