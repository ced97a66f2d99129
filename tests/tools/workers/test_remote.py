"""The host's side of remote workers, with workers that are sockets in the test: no process is started."""

import asyncio
import logging
import signal
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec
import pytest

from midspan._types.context import RunContext
from midspan._types.parts import NOT_RUN, ToolCall, ToolResult
from midspan._types.specs import Effects, ToolSpec
from midspan.errors import ConfigError, ToolError
from midspan.tools import WorkerLimits, Workers
from midspan.tools.workers import protocol
from midspan.tools.workers.address import HostAddress
from midspan.tools.workers.connection import WorkerConnection
from midspan.tools.workers.listener import Listener
from midspan.tools.workers.setup import PoolOptions
from tests.bounds import BOUND
from tests.tools.workers.conftest import TOKEN, run

ADD, READ = ToolSpec("add", "Add."), ToolSpec("read", effects=Effects(reads=("x",)))
LIMITS = WorkerLimits(start_seconds=BOUND, max_memory_bytes=2**40, max_cpu_seconds=5)


@pytest.fixture
def host(tmp_path: Path, make_workers: Callable[..., Workers]) -> Workers:
    workers = make_workers(None, listen=f"unix:{tmp_path / 'host.sock'}", token=TOKEN, limits=LIMITS)
    run(workers.start())
    return workers


class Worker:
    """A remote worker whose messages the test reads and writes."""

    def __init__(self, host: Workers, *specs: ToolSpec, token: str = TOKEN, timeout: float | None = None) -> None:
        assert host.address is not None
        self._socket = HostAddress.of(host.address).connect()
        self._socket.settimeout(BOUND)
        self._decoder = protocol.FrameDecoder[protocol.ToWorker](protocol.ToWorker)
        self._messages: list[protocol.ToWorker] = []
        tools = tuple(protocol.RegisteredTool(spec, timeout) for spec in specs)
        self.send(protocol.Register(protocol.VERSION, token, 7, tools))

    def send(self, message: protocol.FromWorker) -> None:
        self._socket.sendall(protocol.encode(message))

    async def next(self) -> protocol.ToWorker | None:
        """Return the next message that is not a ping; None if the host has ended its stream."""
        while True:
            while self._messages:
                if not isinstance(message := self._messages.pop(0), protocol.Ping):
                    return message
            data = await asyncio.to_thread(self._socket.recv, 65_536)
            if not data:
                return None
            self._messages += self._decoder.feed(data)

    async def next_call(self) -> protocol.Call:
        while not isinstance(message := await self.next(), protocol.Call):
            assert message is not None
        return message

    def answer(self, call: protocol.Call, value: Any) -> None:
        result = msgspec.json.encode(ToolResult(call.id, call.name, value))
        self.send(protocol.Result(call.call, result))

    def close(self) -> None:
        self._socket.close()


class Host:
    """The run behind a context."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        self.seen: list[Any] = []
        self.is_left = asyncio.Event()

    def report_progress(self, _context: RunContext[Any], fraction: float | None, message: str) -> None:
        self.seen.append((fraction, message))

    def report_log(self, _context: RunContext[Any], level: int, message: str) -> None:
        self.seen.append((level, message))

    async def ask_user(self, question: str, schema: dict[str, Any] | None) -> Any:
        if question == "refuse":
            raise ToolError("nobody is there")
        if question == "think":
            try:
                await asyncio.sleep(BOUND)
            finally:
                self.is_left.set()
        return [question, schema]

    async def call_tool(self, _parent: RunContext[Any], name: str, arguments: dict[str, Any]) -> ToolResult:
        return ToolResult("n", name, arguments)


def test_worker_gets_the_limits_and_the_whole_call(host: Workers) -> None:
    async def main() -> None:
        with closing(Worker(host, ADD)) as worker:
            assert await worker.next() == protocol.Configure(2**40, 5)
            context = RunContext({"user": 1}, run_id="r", call_id="c", turn=2, index=3, depth=4)
            call = asyncio.create_task(host.call(ToolCall("c", "add", {"a": 1}), context))
            sent = await worker.next_call()
            assert sent == protocol.Call(1, "c", "add", b'{"a":1}', "r", 2, 3, 4, None, b'{"user":1}')
            worker.answer(sent, 5)
            assert await call == ToolResult("c", "add", 5)
            assert await host.list_tools() == await host.list_tools()
            assert list(await host.list_tools()) == [ADD]

    run(main())


def test_call_that_cannot_be_sent_is_not_run(host: Workers) -> None:
    async def main() -> None:
        with closing(Worker(host, ADD)):
            for call, words in (
                (ToolCall("c", "add", {"a": object()}), "is not JSON serializable"),
                (ToolCall("\ud800", "add"), "is not JSON serializable"),
                (ToolCall("c", "ad"), "did you mean add"),
            ):
                result = await host.call(call)
                assert result.is_error
                assert words in result.value
            late = await host.call(ToolCall("c", "add"), RunContext(deadline=monotonic() - 1))
            assert (late.value, late.notes) == ("add was not run: the time of the run is over", (NOT_RUN,))

    run(main())


def test_reports_and_questions_of_a_call_reach_its_run(host: Workers, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        run_host = Host()
        context: RunContext[Any] = RunContext(run_id="r", host=run_host)
        with closing(Worker(host, ADD)) as worker, caplog.at_level(logging.INFO):
            task = asyncio.create_task(host.call(ToolCall("c", "add"), context))
            call = await worker.next_call()
            worker.send(protocol.Progress(call.call + 1, 0.1, "of another call"))
            worker.send(protocol.Progress(call.call, 0.5, "half"))
            worker.send(protocol.Log(call.call, logging.WARNING, "by the context", is_from_context=True))
            worker.send(protocol.Log(call.call, logging.WARNING, "printed"))
            worker.send(protocol.Log(0, logging.WARNING, "between calls", is_from_context=True))
            worker.send(protocol.Callback(call.call, 1, "call_tool", "other", b'{"x":1}'))
            assert await worker.next() == protocol.CallbackResult(
                1, msgspec.json.encode(ToolResult("n", "other", {"x": 1}))
            )
            worker.send(protocol.Callback(call.call, 2, "ask_user", "How many?", b"null"))
            assert await worker.next() == protocol.CallbackResult(2, b'["How many?",null]')
            worker.send(protocol.Callback(call.call, 3, "ask_user", "refuse", b"null"))
            assert await worker.next() == protocol.CallbackResult(3, b"", "nobody is there")
            worker.answer(call, 5)
            assert (await task).value == 5
        assert run_host.seen == [(0.5, "half"), (logging.WARNING, "by the context")]
        assert "[r c] printed" in caplog.text
        assert "[worker 7] between calls" in caplog.text

    run(main())


def test_question_of_a_call_that_has_ended_is_cancelled(host: Workers) -> None:
    async def main() -> None:
        run_host = Host()
        with closing(Worker(host, ADD)) as worker:
            task = asyncio.create_task(host.call(ToolCall("c", "add"), RunContext(host=run_host)))
            call = await worker.next_call()
            worker.send(protocol.Callback(call.call, 1, "ask_user", "think", b"null"))
            worker.send(protocol.Callback(call.call, 2, "ask_user", "How many?", b"null"))
            assert await worker.next() == protocol.CallbackResult(2, b'["How many?",null]')
            worker.answer(call, 5)
            assert (await task).value == 5
            async with asyncio.timeout(BOUND / 2):
                await run_host.is_left.wait()

    run(main())


@pytest.mark.parametrize(
    ("exit_code", "killed"),
    [
        (128 + signal.SIGKILL, "its process and all processes that it started were killed"),
        (None, "whether all its processes were killed is unknown"),
    ],
)
def test_host_ends_the_stream_of_a_worker_at_a_timeout(host: Workers, exit_code: int | None, killed: str) -> None:
    async def main() -> None:
        with closing(Worker(host, ADD, timeout=0.05)) as worker:
            task = asyncio.create_task(host.call(ToolCall("c", "add")))
            call = await worker.next_call()
            assert call.seconds == 0.05
            assert await worker.next() is None
            if exit_code is not None:
                worker.send(protocol.Exit(exit_code))
        assert (await task).value == f"add timed out after 0.05 seconds; {killed}"

    run(main())


def test_shorter_time_of_run_and_tool_holds(host: Workers) -> None:
    async def main() -> None:
        with closing(Worker(host, ADD, timeout=20.0)) as worker:
            for deadline, is_of_run in ((monotonic() + 10, True), (monotonic() + 1_000, False)):
                task = asyncio.create_task(host.call(ToolCall("c", "add"), RunContext(deadline=deadline)))
                call = await worker.next_call()
                assert call.seconds is not None
                assert (call.seconds < 20) == is_of_run
                worker.answer(call, 5)
                assert (await task).value == 5

    run(main())


def test_worker_that_leaves_a_call_has_an_unknown_outcome(host: Workers) -> None:
    async def main() -> None:
        with closing(Worker(host, ADD)) as worker:
            task = asyncio.create_task(host.call(ToolCall("c", "add")))
            await worker.next_call()
            worker.send(protocol.Exit(3))
        assert (await task).value == "add: outcome unknown: its process exited with code 3; it may have had an effect"

    run(main())


def test_call_that_changes_nothing_is_run_four_times_at_most(host: Workers) -> None:
    async def main() -> None:
        with closing(Worker(host, READ)) as first:
            task = asyncio.create_task(host.call(ToolCall("c", "read")))
            await first.next_call()
        for _ in range(3):
            assert not task.done()
            with closing(Worker(host, READ)) as worker:
                await worker.next_call()
        assert (await task).value == "read failed in 4 runs: its process closed its connection"

    run(main())


def test_cancelled_call_is_asked_to_end_and_its_worker_stays(host: Workers) -> None:
    async def main() -> None:
        with closing(Worker(host, ADD)) as worker:
            context: RunContext[Any] = RunContext()
            task = asyncio.create_task(host.call(ToolCall("c", "add"), context))
            call = await worker.next_call()
            task.cancel()
            assert await worker.next() == protocol.Cancel(call.call)
            assert context.cancelled
            assert not task.done()
            worker.answer(call, 5)
            with pytest.raises(asyncio.CancelledError):
                await task
            task = asyncio.create_task(host.call(ToolCall("d", "add")))
            call = await worker.next_call()
            assert (call.call, call.id) == (2, "d")
            worker.answer(call, 6)
            assert (await task).value == 6

    run(main())


def test_worker_that_ignores_a_cancellation_is_killed(host: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("midspan.tools.workers.connection.CANCEL_SECONDS", 0.05)

    async def main() -> None:
        with closing(Worker(host, ADD)) as worker:
            task = asyncio.create_task(host.call(ToolCall("c", "add")))
            call = await worker.next_call()
            task.cancel()
            assert await worker.next() == protocol.Cancel(call.call)
            assert await worker.next() is None
            worker.send(protocol.Exit(128 + signal.SIGKILL))
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())


def test_cancelled_call_that_has_ended_does_not_kill_the_next_one(
    host: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("midspan.tools.workers.connection.CANCEL_SECONDS", 0.05)

    async def main() -> None:
        with closing(Worker(host, ADD)) as worker:
            first = asyncio.create_task(host.call(ToolCall("c", "add")))
            call = await worker.next_call()
            first.cancel()
            await worker.next()
            worker.answer(call, 5)
            second = asyncio.create_task(host.call(ToolCall("d", "add")))
            call = await worker.next_call()
            await asyncio.sleep(0.1)
            worker.answer(call, 6)
            assert (await second).value == 6

    run(main())


def test_call_waits_for_a_worker_that_has_its_tool(host: Workers) -> None:
    async def main() -> None:
        with closing(Worker(host, ADD)) as first, closing(Worker(host, READ)) as second:
            while len(await host.list_tools()) < 2:
                pass
            tasks = [asyncio.create_task(host.call(ToolCall(id, "add"))) for id in "ab"]
            other = asyncio.create_task(host.call(ToolCall("c", "read")))
            second.answer(await second.next_call(), 1)
            assert (await other).value == 1
            for value in (2, 3):
                first.answer(await first.next_call(), value)
            assert sorted([(await task).value for task in tasks]) == [2, 3]

    run(main())


@pytest.mark.parametrize(
    ("specs", "token", "reason"),
    [
        ((ADD,), "wrong", "its token is wrong"),
        ((), TOKEN, "it has no tools"),
        ((ToolSpec("add", "Another one."),), TOKEN, "another worker has registered 'add' with another declaration"),
    ],
)
def test_worker_is_refused_with_the_reason(host: Workers, specs: Any, token: str, reason: str) -> None:
    async def main() -> None:
        with closing(Worker(host, ADD)):
            await host.list_tools()
            with closing(Worker(host, *specs, token=token)) as refused:
                assert isinstance(await refused.next(), protocol.Configure)
                assert await refused.next() == protocol.Refuse(reason)
            assert list(await host.list_tools()) == [ADD]

    run(main())


def test_session_takes_a_worker_that_has_run_no_call(host: Workers) -> None:
    async def main() -> None:
        host.open_session("s")
        with closing(Worker(host, ADD)) as used, closing(Worker(host, ADD)) as fresh:
            await host.list_tools()
            workers = {used: asyncio.create_task(used.next_call()), fresh: asyncio.create_task(fresh.next_call())}
            task = asyncio.create_task(host.call(ToolCall("a", "add")))
            [done], _ = await asyncio.wait(workers.values(), return_when=asyncio.FIRST_COMPLETED)
            first = next(worker for worker, reading in workers.items() if reading is done)
            other = fresh if first is used else used
            first.answer(done.result(), 1)
            assert (await task).value == 1
            for number in (1, 2):
                task = asyncio.create_task(host.execute_in_session("s", "add", {}))
                call = await (workers[other] if number == 1 else other.next_call())
                assert call.call == number
                other.answer(call, 2)
                assert (await task).value == 2
            closed = asyncio.create_task(host.close_session("s"))
            assert await other.next() == protocol.Stop()
            other.close()
            await closed

    run(main())


def test_session_that_has_run_no_call_can_be_closed(host: Workers) -> None:
    async def main() -> None:
        host.open_session("s")
        await host.close_session("s")
        with pytest.raises(ConfigError, match="'s'"):
            host.source("s")

    run(main())


def test_used_worker_is_stopped_if_a_session_needs_a_new_one(host: Workers) -> None:
    async def main() -> None:
        host.open_session("s")
        with closing(Worker(host, ADD)) as used:
            task = asyncio.create_task(host.call(ToolCall("a", "add")))
            used.answer(await used.next_call(), 1)
            assert (await task).value == 1
            task = asyncio.create_task(host.execute_in_session("s", "add", {}))
            assert await used.next() == protocol.Stop()
            used.close()
            with closing(Worker(host, ADD)) as fresh:
                call = await fresh.next_call()
                fresh.send(protocol.Exit(0))
            result = await task
            assert call.name == "add"
            assert result.value.endswith("Session lost: the state of session 's' is gone")

    run(main())


def test_worker_that_does_not_answer_pings_is_given_up(tmp_path: Path, make_workers: Callable[..., Workers]) -> None:
    limits = WorkerLimits(ping_seconds=0.01, stuck_seconds=0.03)
    host = make_workers(None, listen=f"unix:{tmp_path / 'host.sock'}", token=TOKEN, limits=limits)

    async def main() -> None:
        await host.start()
        with closing(Worker(host, ADD)) as worker:
            task = asyncio.create_task(host.call(ToolCall("c", "add")))
            await worker.next_call()
            assert await worker.next() is None
        assert "its process did not react any more and was killed" in (await task).value

    run(main())


def test_closing_stops_idle_workers_and_accepts_no_more(host: Workers, tmp_path: Path) -> None:
    async def main() -> None:
        with closing(Worker(host, ADD)) as worker:
            await host.list_tools()
            task = asyncio.create_task(host.aclose())
            assert isinstance(await worker.next(), protocol.Configure)
            assert await worker.next() == protocol.Stop()
            worker.close()
            await task
            assert host.address is None
            assert not (tmp_path / "host.sock").exists()

    run(main())


def test_host_accepts_workers_again_after_an_accept_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("midspan.tools.workers.listener._RETRY_SECONDS", 0.01)

    async def main() -> None:
        accepted: asyncio.Future[WorkerConnection] = asyncio.get_running_loop().create_future()
        options = PoolOptions(None, LIMITS, 1, 1, address=HostAddress(path=str(tmp_path / "host.sock")), token=TOKEN)
        listener = Listener(options, [], on_connected=accepted.set_result, on_registered=lambda _: None)
        listener.start()
        assert listener._server is not None
        listener._accept(listener._server)  # nobody has connected
        assert listener.address is not None
        with listener.address.connect():
            worker = await accepted
            worker.kill("closed")
            await worker.ended
        listener.close()

    run(main())
    assert "a worker could not connect" in caplog.text


def test_connection_without_a_registration_is_closed(tmp_path: Path, make_workers: Callable[..., Workers]) -> None:
    host = make_workers(
        None, listen=f"unix:{tmp_path / 'host.sock'}", token=TOKEN, limits=WorkerLimits(start_seconds=0.05)
    )

    async def main() -> None:
        await host.start()
        assert host.address is not None
        with HostAddress.of(host.address).connect() as stranger:
            stranger.settimeout(BOUND)
            while await asyncio.to_thread(stranger.recv, 4096):
                pass

    run(main())
