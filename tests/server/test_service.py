"""The service behind the endpoints: deleting a session while a run of it starts."""

import asyncio
from typing import Any

import pytest

from midspan import Agent
from midspan._server.config import ServerConfig
from midspan._server.http import HttpError
from midspan._server.service import Service, StartedRun
from midspan._storage.memory import MemoryJournal
from midspan.testing import ScriptedProvider
from tests.bounds import BOUND


class SlowJournal(MemoryJournal):
    """A journal in which reads and deletions wait, while it is `slow`, until the test lets them end."""

    def __init__(self) -> None:
        super().__init__()
        self.slow = ""
        self.entered = asyncio.Event()
        self.open = asyncio.Event()

    async def read(self, *args: Any, **options: Any) -> Any:
        events = await super().read(*args, **options)
        await self._wait("read")
        return events

    async def delete(self, run: str) -> bool:
        await self._wait("delete")
        return await super().delete(run)

    async def _wait(self, method: str) -> None:
        if self.slow == method:
            self.entered.set()
            await self.open.wait()


async def service_with_a_session() -> tuple[Service, SlowJournal]:
    journal = SlowJournal()
    service = Service(Agent(ScriptedProvider(lambda _: "ok")), ServerConfig(), journal)
    await asyncio.shield((await start(service)).result)
    return service, journal


async def start(service: Service) -> StartedRun:
    return await service.start("anyone", "One.", choice=service.models[0], session="s")


def test_run_that_reads_a_session_while_it_is_deleted_does_not_start() -> None:
    async def main() -> None:
        service, journal = await service_with_a_session()
        journal.slow = "read"
        async with asyncio.timeout(BOUND):
            starting = asyncio.create_task(start(service))
            await journal.entered.wait()
            assert await service.delete_session("anyone", "s")
            journal.open.set()
            with pytest.raises(HttpError, match="'s' was deleted before the run started") as caught:
                await starting
            assert caught.value.status == 409
            assert await journal.list() == []
            await (await start(service)).result
            await service.aclose()

    asyncio.run(main())


def test_run_that_has_just_started_is_deleted_with_its_session() -> None:
    async def main() -> None:
        service, journal = await service_with_a_session()
        async with asyncio.timeout(BOUND):
            run = await start(service)
            assert await service.delete_session("anyone", "s")
            await asyncio.wait((run.result,))
            assert await journal.list() == []
            await service.aclose()

    asyncio.run(main())


def test_run_cannot_start_in_a_session_that_is_being_deleted() -> None:
    async def main() -> None:
        service, journal = await service_with_a_session()
        journal.slow = "delete"
        async with asyncio.timeout(BOUND):
            deleting = asyncio.create_task(service.delete_session("anyone", "s"))
            await journal.entered.wait()
            with pytest.raises(HttpError, match="'s' is being deleted") as caught:
                await start(service)
            assert caught.value.status == 409
            journal.open.set()
            assert await deleting
            await (await start(service)).result
            await service.aclose()

    asyncio.run(main())
