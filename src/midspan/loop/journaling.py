"""Writes the events of a run to a journal behind the run's back, many at once where the journal is slow."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from midspan.errors import JournalConflict, JournalError
from midspan.storage.journal import Journal
from midspan.tools.tasks import cancel_count

_MOST_UNWRITTEN = 256


class JournalWriter:
    """The one writer of a run. After a failure it takes nothing more; `told` is called with each change."""

    def __init__(self, journal: Journal, id: str, told: Callable[[], None]) -> None:
        self.written = 0
        """How many events are in the journal for certain."""
        self.failure: Exception | None = None
        self._journal = journal
        self._id = id
        self._told = told
        self._unwritten: list[bytes] = []
        self._under_way = 0
        """How many of them the journal was asked to take; after a cancelled append nobody knows whether it did."""
        self._ended = False
        self._task: asyncio.Task[None] | None = None

    def take(self, document: bytes, *, end: bool = False) -> None:
        """Have an event written; the journal ends with the last one."""
        if self.failure is None:
            self._unwritten.append(document)
            self._ended = end
            self._begin()

    @property
    def is_behind(self) -> bool:
        """Whether so much is unwritten that the run should wait."""
        return len(self._unwritten) >= _MOST_UNWRITTEN

    async def caught_up(self) -> None:
        """Wait until all is written, or cannot be."""
        while self._unwritten:
            await asyncio.wait([self._begin()])

    async def close(self) -> None:
        """The same, whoever cancels: what a run did is written down to its end."""
        while self._unwritten:
            with suppress(asyncio.CancelledError):
                await self.caught_up()

    def _begin(self) -> asyncio.Task[None]:
        """The task that writes; one that was cancelled, or whose event loop is closed, is taken over."""
        if self._task is None or self._task.done() or self._task.get_loop().is_closed():
            self._task = asyncio.get_running_loop().create_task(self._flush())
        return self._task

    async def _flush(self) -> None:
        try:
            while self._unwritten:
                await self._append()
                self._told()
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and cancel_count():
                raise  # somebody cancelled us, and will take over
            self.failure = error if isinstance(error, Exception) else JournalError(f"the journal raised {error!r:.200}")
            self._unwritten.clear()
            self._told()
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise

    async def _append(self) -> None:
        in_doubt, self._under_way = self._under_way > 0, self._under_way or len(self._unwritten)
        batch = self._unwritten[: self._under_way]
        end = self._ended and len(batch) == len(self._unwritten)
        try:
            await self._journal.append(self._id, self.written, batch, end=end)
        except JournalConflict:
            if not in_doubt or not await self._has(batch):
                raise
        del self._unwritten[: len(batch)]
        self.written += len(batch)
        self._under_way = 0

    async def _has(self, batch: list[bytes]) -> bool:
        """Whether the journal has taken what it was asked to take when we were cancelled."""
        found = await self._journal.read(self._id, self.written)
        return [document for _, document in found] == batch
