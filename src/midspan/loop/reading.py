"""The events of a run as its journal has them: those that are there, then those that come."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from midspan.errors import JournalError, RunError
from midspan.loop.driving import Drive
from midspan.loop.status import StreamStatus
from midspan.storage.journal import Journal
from midspan.tools.tasks import Expired, with_timeout
from midspan.types.codec import from_json
from midspan.types.events import RunEvent

NumberedEvents = AsyncGenerator[tuple[int, RunEvent], None]


async def driven(journal: Journal, drive: Drive, from_event: int) -> NumberedEvents:
    """Of a run that is driven here, what its drive has written: an older run of its name may be in the journal."""
    if not await drive.reaches(0):
        return
    # From an event that is there: who watches a run has all of it, even if the journal drops it with its end.
    number = min(from_event, drive.written - 1)
    if drive.is_over and not await journal.read(drive.id, number, 1):
        raise _deleted(drive.id)
    async with aclosing(journal.watch(drive.id, number)) as documents:
        async for number, document in documents:
            if number >= from_event:
                yield number, from_json(document, "event")
            if drive.written <= number + 1 and not await drive.reaches(number + 1):
                return
    raise _deleted(drive.id)


async def kept(
    journal: Journal, status: StreamStatus, from_event: int, *, patience_seconds: float | None
) -> NumberedEvents:
    """Of a run that is not driven here, all there is; what may come is waited for only so long."""
    number = from_event
    async with aclosing(journal.watch(status.run_id, from_event)) as documents:
        while True:
            try:
                seconds = patience_seconds if number >= status.events else None
                number, document = await with_timeout(anext(documents), seconds)
            except StopAsyncIteration:
                return
            except Expired:
                raise _silent(status.run_id, patience_seconds) from None
            yield number, from_json(document, "event")
            number += 1


def _deleted(id: str) -> JournalError:
    return JournalError(f"run {id!r} was deleted from the journal, so the rest of it cannot be read")


def _silent(id: str, seconds: float | None) -> RunError:
    return RunError(
        f"run {id!r} has not ended, is not driven here, and nothing came for {seconds} seconds: whoever drives it may "
        "have been killed; come back with from_event, or wait longer with patience_seconds"
    )
