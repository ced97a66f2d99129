"""Runs over HTTP: start, list, get, cancel, and their events as server-sent events."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from midspan import Agent, MemoryJournal, SqliteJournal, tool
from midspan.errors import JournalError
from midspan.messages import Text, ToolCall
from midspan.testing import ScriptedProvider
from tests.bounds import BOUND
from tests.server.serving import Event, Served, events_of, serving, sum_agent, wait_until


class Gate:
    """A tool that waits until the test lets it go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()
        self.cancelled = threading.Event()

    def agent(self) -> Agent:
        @tool
        async def wait() -> str:
            """Wait."""
            self.entered.set()
            try:
                while not self.open.is_set():  # noqa: ASYNC110 - the test is in another thread
                    await asyncio.sleep(0.005)
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
            return "done"

        def respond(request: Any) -> Any:
            return Text("It is over.") if request.history[-1].results else ToolCall("c", "wait", {})

        return Agent(ScriptedProvider(respond), [wait])


@contextmanager
def subscribed(server: Served, run_id: str, last: int | None = None, **options: Any) -> Iterator[Iterator[Event]]:
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    path = f"/api/v1/runs/{run_id}/events"
    with (
        httpx.Client(base_url=server.url, timeout=BOUND) as client,
        client.stream("GET", path, headers=headers, **options) as response,
    ):
        assert response.status_code == 200
        yield events_of(response.iter_lines())


@pytest.mark.requirement("S4-09", "S4-10")
def test_run_is_started_read_listed_and_its_result_kept(tmp_path: Path) -> None:
    gate = Gate()
    with serving(gate.agent(), journal=SqliteJournal(tmp_path / "j.db")) as server:
        response = server.post("/api/v1/runs", {"prompt": "Wait.", "session_id": "s"})
        run = response.json()
        assert (response.status_code, run["state"], run["session_id"]) == (202, "running", "s")
        assert response.headers["location"] == f"/api/v1/runs/{run['run_id']}"
        assert gate.entered.wait(BOUND)
        path = f"/api/v1/runs/{run['run_id']}"
        assert wait_until(lambda: server.get(path).json()["phase"] == "executing_tools")
        assert [item["run_id"] for item in server.get("/api/v1/runs?state=running").json()["runs"]] == [run["run_id"]]
        conflict = server.post("/api/v1/chat", {"prompt": "Wait.", "session_id": "s"})
        assert (conflict.status_code, conflict.json()["error"]) == (409, "conflict")
        gate.open.set()
        with subscribed(server, run["run_id"]) as events:
            assert [kind for _, kind, _ in events][-1] == "run_end"
        done = server.get(path).json()
        assert (done["state"], done["result"]["response"]) == ("completed", "It is over.")
        assert done["result"]["tool_results"][0]["content"] == "done"
        assert server.get("/api/v1/runs?state=running").json() == {"runs": []}


@pytest.mark.requirement("H-07")
def test_client_may_come_back_at_every_event(tmp_path: Path) -> None:
    with serving(sum_agent(), journal=SqliteJournal(tmp_path / "j.db")) as server:
        run_id = server.post("/api/v1/runs", {"prompt": "1 + 2?"}).json()["run_id"]
        with subscribed(server, run_id) as events:
            whole = list(events)
        assert [id for id, _, _ in whole] == list(range(len(whole)))
        assert [kind for _, kind, _ in whole] == [
            *("run_start", "turn_start", "text_delta", "turn_end", "tool_start", "tool_end"),
            *("turn_start", "text_delta", "text_delta", "turn_end", "run_end"),
        ]
        for seen in range(1, len(whole)):
            with subscribed(server, run_id) as events:
                first = [next(events) for _ in range(seen)]
            with subscribed(server, run_id, last=first[-1][0]) as events:
                assert first + list(events) == whole
        headers = {"Last-Event-ID": str(len(whole) - 1)}
        assert server.client.get(f"/api/v1/runs/{run_id}/events", headers=headers).status_code == 204
        headers = {"Last-Event-ID": str(len(whole))}
        assert server.client.get(f"/api/v1/runs/{run_id}/events", headers=headers).status_code == 400


def test_client_may_come_back_at_every_event_of_a_running_run() -> None:
    """Each event is sent only when the client before has gone away after the event before it."""
    steps = [threading.Event() for _ in range(8)]

    class Stepwise(ScriptedProvider):
        async def stream(self, request: Any) -> Any:
            async for event in super().stream(request):
                for step in steps:
                    if not step.is_set():
                        while not step.is_set():  # noqa: ASYNC110 - the test is in another thread
                            await asyncio.sleep(0.002)
                        break
                yield event

    model = Stepwise([[Text(str(number)) for number in range(4)]])
    with serving(Agent(model)) as server:
        run_id = server.post("/api/v1/runs", {"prompt": "Count."}).json()["run_id"]
        joined: list[Event] = []
        waiting = iter(steps)
        while not joined or joined[-1][1] != "run_end":
            with subscribed(server, run_id, last=joined[-1][0] if joined else None) as events:
                joined.append(next(events))
            if (step := next(waiting, None)) is not None:
                step.set()
        with subscribed(server, run_id) as events:
            assert list(events) == joined
        assert joined[-1][2]["text"] == "0123"


def test_all_subscribers_see_the_same() -> None:
    gate = Gate()
    with serving(gate.agent()) as server:
        run_id = server.post("/api/v1/runs", {"prompt": "Wait."}).json()["run_id"]
        seen: list[list[Event]] = [[], [], []]

        def read(into: list[Event]) -> None:
            with subscribed(server, run_id) as events:
                into += events

        threads = [threading.Thread(target=read, args=(into,)) for into in seen]
        for thread in threads:
            thread.start()
        assert gate.entered.wait(BOUND)
        gate.open.set()
        for thread in threads:
            thread.join(BOUND)
        assert seen[0] == seen[1] == seen[2]
        assert seen[0][-1][1] == "run_end"


@pytest.mark.requirement("S4-11")
def test_final_view_has_the_text_alone() -> None:
    with serving(sum_agent()) as server:
        run_id = server.post("/api/v1/runs", {"prompt": "1 + 2?"}).json()["run_id"]
        with subscribed(server, run_id, params={"view": "final"}) as events:
            assert [(kind, data.get("text")) for _, kind, data in events] == [
                ("text_delta", "It is 3."),
                ("done", None),
            ]
        assert server.get(f"/api/v1/runs/{run_id}/events?view=other").status_code == 400


def test_run_outlives_its_client_unless_asked_otherwise() -> None:
    for stream in (False, True):
        for cancels in (False, True):
            gate = Gate()
            with serving(gate.agent()) as server:
                body = {"prompt": "Wait.", "stream": stream, "cancel_on_disconnect": cancels}
                with connected(server) as client:
                    content = json.dumps(body).encode()
                    head = "POST /api/v1/chat HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                    client.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
                    assert gate.entered.wait(BOUND)
                if cancels:
                    assert gate.cancelled.wait(BOUND)
                    run = wait_until(lambda s=server: s.get("/api/v1/runs?state=cancelled").json()["runs"])[0]
                    assert run["error"]["message"] == "the client closed the connection"
                else:
                    assert server.get("/api/v1/runs").json()["runs"][0]["state"] == "running"
                    gate.open.set()
                    assert wait_until(lambda s=server: s.get("/api/v1/runs?state=completed").json()["runs"])


@pytest.mark.requirement("S4-09")
def test_cancelled_run_says_so_to_everybody() -> None:
    gate = Gate()
    with serving(gate.agent()) as server:
        run_id = server.post("/api/v1/runs", {"prompt": "Wait."}).json()["run_id"]
        assert gate.entered.wait(BOUND)
        with subscribed(server, run_id) as events:
            next(events)
            cancelled = server.post(f"/api/v1/runs/{run_id}/cancel", {}).json()
            assert (cancelled["state"], cancelled["error"]["code"]) == ("cancelled", 409)
            *_, (_, kind, end) = events
            assert (kind, end["error"]["kind"]) == ("run_end", "cancelled")
        assert gate.cancelled.wait(BOUND)
        again = server.post(f"/api/v1/runs/{run_id}/cancel", {})
        assert (again.status_code, again.json()["state"]) == (200, "cancelled")


def test_running_session_is_busy_and_deleting_it_cancels_its_run() -> None:
    gate = Gate()
    with serving(gate.agent()) as server:
        run_id = server.post("/api/v1/runs", {"prompt": "Wait.", "session_id": "s"}).json()["run_id"]
        assert gate.entered.wait(BOUND)
        busy = server.post("/api/v1/chat", {"prompt": "Again.", "session_id": "s"})
        assert (busy.status_code, busy.json()["error"]) == (409, "conflict")
        assert server.client.delete("/api/v1/sessions/s").status_code == 204
        assert gate.cancelled.wait(BOUND)
        assert server.get(f"/api/v1/runs/{run_id}").status_code == 404


def test_quiet_stream_has_heartbeats() -> None:
    gate = Gate()
    with serving(gate.agent(), heartbeat_seconds=0.05) as server:
        run_id = server.post("/api/v1/runs", {"prompt": "Wait."}).json()["run_id"]
        with server.client.stream("GET", f"/api/v1/runs/{run_id}/events") as response:
            lines = response.iter_lines()
            heartbeats = 0
            for line in lines:
                heartbeats += line == ": heartbeat"
                if heartbeats == 3:
                    gate.open.set()
                    break
            assert [line for line in lines if line.startswith("event:")][-1] == "event: run_end"


def test_client_that_does_not_read_is_cut_and_blocks_nobody() -> None:
    piece = "x" * 10_000
    model = ScriptedProvider(lambda _: [Text(piece) for _ in range(2_000)])
    with serving(Agent(model), send_timeout=0.2, heartbeat_seconds=0.1) as server:
        run_id = server.post("/api/v1/runs", {"prompt": "Much."}).json()["run_id"]
        with connected(server) as lazy:
            lazy.sendall(f"GET /api/v1/runs/{run_id}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            wait_until(lambda: server.get(f"/api/v1/runs/{run_id}").json()["state"] == "completed")
            wait_until(lambda: not _is_open(lazy))


def connected(server: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=BOUND)


def _is_open(connection: socket.socket) -> bool:
    """Whether the server still keeps the connection. Nothing is read from it."""
    try:
        connection.send(b" ")
    except OSError:
        return False
    return True


@pytest.mark.parametrize("id", ["-1", "x", "1.5", "100", "9" * 30])
def test_wrong_event_id_is_refused(id: str) -> None:
    with serving(sum_agent()) as server:
        run_id = server.post("/api/v1/runs", {"prompt": "1 + 2?"}).json()["run_id"]
        response = server.client.get(f"/api/v1/runs/{run_id}/events", headers={"Last-Event-ID": id})
        assert response.status_code == 400
        assert response.json()["message"] == "Last-Event-ID must be the id of an event of this run"


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("runs?state=odd", "state must be one of running, completed, failed, cancelled, interrupted"),
        ("runs?after=odd", "after must be the value of next in the page before"),
        ("sessions?after=-1", "after must be the value of next in the page before"),
        ("runs?limit=201", "limit must be a number from 1 to 200"),
    ],
)
def test_wrong_parameters_of_lists_are_refused(query: str, problem: str) -> None:
    with serving(sum_agent()) as server:
        response = server.get(f"/api/v1/{query}")
        assert (response.status_code, response.json()["message"]) == (400, problem)


def test_head_of_an_event_stream_does_not_wait_for_its_events() -> None:
    gate = Gate()
    with serving(gate.agent()) as server:
        run_id = server.post("/api/v1/runs", {"prompt": "Wait."}).json()["run_id"]
        response = server.client.head(f"/api/v1/runs/{run_id}/events")
        assert (response.status_code, response.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        gate.open.set()


def test_unknown_run_is_not_found() -> None:
    with serving(sum_agent()) as server:
        assert server.get("/api/v1/runs/run_nobody").status_code == 404
        assert server.get("/api/v1/runs/run_nobody/events").status_code == 404
        assert server.post("/api/v1/runs/run_nobody/cancel", {}).status_code == 404


def test_too_many_runs_get_429_with_retry_after() -> None:
    gate = Gate()
    with serving(gate.agent(), max_runs=3, max_runs_per_token=2, tokens={"ann": "a" * 20, "bob": "b" * 20}) as server:

        def start(token: str) -> httpx.Response:
            return server.post("/api/v1/runs", {"prompt": "Wait."}, token)

        assert [start("a" * 20).status_code for _ in range(2)] == [202, 202]
        refused = start("a" * 20)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert start("b" * 20).status_code == 202
        assert start("b" * 20).status_code == 429
        gate.open.set()
        assert wait_until(lambda: start("a" * 20).status_code == 202)


def test_run_that_takes_too_long_is_cancelled_with_its_reason() -> None:
    gate = Gate()
    with serving(gate.agent(), max_run_seconds=0.2) as server:
        response = server.post("/api/v1/chat", {"prompt": "Wait."})
        assert (response.status_code, response.json()["message"]) == (409, "the run took longer than 0.2 seconds")
        assert gate.cancelled.wait(BOUND)


class LateJournal(MemoryJournal):
    """A journal that stores the end of a run only after somebody has read the run without it."""

    def __init__(self) -> None:
        super().__init__()
        self._ending, self._was_read = asyncio.Event(), asyncio.Event()

    async def append(self, run: str, *arguments: Any, summary: Any = None, **options: Any) -> int:
        if summary is not None and summary.ended:
            self._ending.set()
            await self._was_read.wait()
        return await super().append(run, *arguments, summary=summary, **options)

    async def get(self, run: str) -> Any:
        await self._ending.wait()
        info = await super().get(run)
        self._was_read.set()
        return info


def test_state_and_phase_of_a_run_agree_while_its_end_is_stored() -> None:
    with serving(sum_agent(), journal=LateJournal()) as server:
        run = server.post("/api/v1/runs", {"prompt": "1 + 2?"}).json()
        assert (run["state"], run.get("phase"), run["result"]["response"]) == ("completed", None, "It is 3.")


class FullJournal(MemoryJournal):
    """A journal that can be read, and written unless it is full."""

    is_full = False

    async def append(self, *arguments: Any, **options: Any) -> int:
        if self.is_full:
            raise JournalError("no space left")
        return await super().append(*arguments, **options)


def test_health_is_degraded_from_a_failed_write_until_one_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    journal = FullJournal()
    with serving(sum_agent(), journal=journal) as server:

        def health() -> tuple[str, str]:
            document = server.get("/api/v1/health").json()
            return document["status"], document["services"]["journal"]

        assert health() == ("healthy", "available")
        journal.is_full = True
        assert server.post("/api/v1/chat", {"prompt": "1 + 2?"}).status_code == 500
        assert health() == ("degraded", "unavailable")
        assert 'state="failed"} 1.0' in server.get("/metrics").text
        caplog.clear()
        streamed = server.post("/api/v1/chat", {"prompt": "1 + 2?", "stream": True})
        (record,) = [record for record in caplog.records if record.name == "midspan._server"]
        assert record.getMessage().startswith(f"run {streamed.headers['x-run-id']} failed: JournalError")
        assert health() == ("degraded", "unavailable")
        journal.is_full = False
        assert server.post("/api/v1/chat", {"prompt": "1 + 2?"}).status_code == 200
        assert health() == ("healthy", "available")


def test_health_is_degraded_while_the_journal_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(**_: Any) -> Any:
        raise JournalError("the disk is on fire")

    journal = MemoryJournal()
    with serving(sum_agent(), journal=journal) as server:
        assert server.get("/api/v1/health").json()["status"] == "healthy"
        monkeypatch.setattr(journal, "list", fail)
        health = server.get("/api/v1/health").json()
        assert (health["status"], health["services"]["journal"]) == ("degraded", "unavailable")
        monkeypatch.undo()


def test_method_that_is_not_allowed_is_answered_with_those_that_are() -> None:
    with serving(sum_agent()) as server:
        response = server.client.put("/api/v1/runs")
        allowed = response.headers["allow"]
        assert (response.status_code, {*allowed.split(", ")}) == (405, {"GET", "HEAD", "POST"})
        assert response.json()["message"] == f"PUT is not allowed here; allowed: {allowed}"
