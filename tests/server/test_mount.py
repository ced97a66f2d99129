"""The server as a part of another ASGI program."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2 as httpx
from starlette.applications import Starlette
from starlette.routing import Mount

from midspan import Agent, MemoryJournal, SqliteJournal
from midspan.messages import Text
from midspan.server import create_app
from midspan.testing import ScriptedProvider
from tests.bounds import BOUND
from tests.server.serving import sum_agent


def run(main: Any) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(BOUND):
            await main

    asyncio.run(bounded())


def test_mounted_application_serves_below_its_path() -> None:
    async def main() -> None:
        app = create_app(sum_agent(), allowed_hosts=["site.example"])
        site = Starlette(routes=[Mount("/agent", app)], lifespan=app.lifespan)
        async with (
            app.lifespan(),
            httpx.AsyncClient(transport=httpx.ASGITransport(site), base_url="http://site.example") as client,
        ):
            answer = await client.post("/agent/api/v1/chat", json={"prompt": "1 + 2?"})
            assert answer.json()["response"] == "It is 3."
            wrong = await client.get("/agent/v1/models/none")
            assert wrong.json()["error"]["code"] == "model_not_found"
            assert (await client.get("/agent/health")).status_code == 200
            assert (await client.get("/agent/", follow_redirects=True)).url.path == "/agent/docs"

    run(main())


def test_end_of_the_lifespan_settles_the_runs() -> None:
    async def main() -> None:
        journal = MemoryJournal()
        never = asyncio.Event()

        async def wait(_: Any) -> Any:
            await never.wait()
            return Text("never")

        app = create_app(Agent(ScriptedProvider(wait)), journal=journal, shutdown_seconds=0)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            async with app.lifespan():
                run_id = (await client.post("/api/v1/runs", json={"prompt": "Wait."})).json()["run_id"]
            info = await journal.get(run_id)
            assert (info.summary.state, info.summary.error and info.summary.error.message) == (
                "cancelled",
                "the server is shutting down",
            )
            refused = await client.post("/api/v1/chat", json={"prompt": "More."})
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
            assert (await client.get("/health")).status_code == 503
            assert (await client.post("/mcp", json={})).status_code == 503

    run(main())


def test_cancelled_runs_are_counted_before_the_journal_is_closed(tmp_path: Path) -> None:
    failures: list[Any] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))

        async def wait(_: Any) -> Any:
            await asyncio.Event().wait()

        agent, journal = Agent(ScriptedProvider(wait)), SqliteJournal(tmp_path / "runs.db")
        app = create_app(agent, journal=journal, shutdown_seconds=0, close_agent=True)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            async with app.lifespan():
                await client.post("/api/v1/runs", json={"prompt": "Wait."})
            metrics = (await client.get("/metrics")).text
        assert 'midspan_runs_total{model="model:scripted",state="cancelled"} 1.0' in metrics

    run(main())
    assert not failures
