"""The seam between a run and whatever keeps its events.

Above is the loop, which appends the events of a run as JSON documents and folds them again to go on; below are memory,
SQLite, a database server. A journal knows nothing of what an event means: to it they are bytes with a number.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct

from midspan.errors import ConfigError

NumberedEvents = list[tuple[int, bytes]]


class RunInfo(Struct, frozen=True):
    """What a journal knows of a run without reading it."""

    run: str
    length: int
    """How many events there are: the number that the next one gets."""
    ended: bool
    created_at: float
    """Seconds since the epoch, by the clock of whoever appended."""
    updated_at: float


Runs = list[RunInfo]


@runtime_checkable
class Journal(Protocol):
    """Runs as sequences of events, numbered from 0 without holes; safe to be shared by threads and event loops.

    A run begins with its first append. One that has not begun looks like one without events, because whoever looks may
    well be there before the driver; `list` tells them apart.
    """

    async def append(self, run: str, expected_seq: int, events: Sequence[bytes], *, end: bool = False) -> int:
        """Add all the events or none; returns the number of the next one.

        `expected_seq` is how many events the writer believes are there. If that is not so, or the run has ended,
        JournalConflict is raised: of two drivers of one run, one gets through. Appending nothing only asks that
        question. With `end`, the run takes nothing more.

        A caller who is cancelled while waiting cannot know which of the two happened, and reads before it goes on.
        """

    async def read(self, run: str, from_seq: int = 0, limit: int | None = None) -> NumberedEvents:
        """The events from this number on, at most so many; none if the run has not begun."""

    def watch(self, run: str, from_seq: int = 0) -> AsyncGenerator[tuple[int, bytes], None]:
        """What is there from this number on, then what comes, until the run is ended or deleted.

        A watcher may come before the run begins, and may be as slow as it likes: it reads from the journal by number.
        Whether it saw the end or was cut short by a delete, it knows from the last event.
        """

    async def list(self, *, limit: int | None = None, ended: bool | None = None) -> Runs:
        """The runs, those begun last first."""

    async def delete(self, run: str) -> bool:
        """Forget a run with all its events, and end its watchers; returns whether there was one."""

    async def close(self) -> None:
        """Let go of everything; what is used afterwards raises ConfigError, and so do watchers that still wait."""


def check_run(run: str) -> None:
    """A run's name has to be text that can be written down."""
    if not isinstance(run, str) or not run:
        raise ConfigError(f"the name of a run has to be a text that is not empty, not {run!r}")
    try:
        run.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"the name of a run has to be valid Unicode, not {run!r}") from None


def check_range(from_seq: int, limit: int | None = None) -> None:
    """Numbers of events begin at 0, and at most so many cannot be fewer than none."""
    if from_seq < 0:
        raise ConfigError(f"events are numbered from 0; there is none numbered {from_seq}")
    if limit is not None and limit < 0:
        raise ConfigError(f"a limit of {limit} is less than nothing; leave it out for all there is")


def closed() -> ConfigError:
    """What every use of a closed journal raises."""
    return ConfigError("this journal is closed; make a new one")
