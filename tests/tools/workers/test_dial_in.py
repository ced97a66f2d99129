"""Workers that connect to a host, over a Unix socket or TCP, with a token."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from midspan._types.context import RunContext
from midspan.errors import ConfigError
from midspan.messages import ToolCall, ToolResult
from midspan.tools import ToolSpec, WorkerLimits, Workers
from midspan.tools.workers.address import HostAddress
from midspan.tools.workers.job import Job
from midspan.tools.workers.protocol import (
    VERSION,
    Call,
    FrameDecoder,
    Log,
    Register,
    RegisteredTool,
    Result,
    ToWorker,
    encode,
)
from tests.bounds import BOUND
from tests.tools.workers.conftest import TOKEN, Counter, Dial, run


@pytest.fixture(params=["unix", "tcp"])
def host(request: pytest.FixtureRequest, tmp_path: Path, make_workers: Callable[..., Workers]) -> Workers:
    address = "tcp:127.0.0.1:0" if request.param == "tcp" else f"unix:{tmp_path / 'host.sock'}"
    workers = make_workers(None, listen=address, token=TOKEN, limits=WorkerLimits(start_seconds=BOUND))
    run(workers.start())
    return workers


@pytest.mark.requirement("W-08", "S0-14")
def test_worker_that_connects_runs_calls_and_is_replaced_at_a_deadline(
    host: Workers, dial: Dial, counter: Counter
) -> None:
    dial(host)

    async def main() -> None:
        assert "count" in [spec.name for spec in await host.list_tools()]
        first = (await host.execute_in_session(None, "pid", {})).value
        assert (await host.execute_in_session(None, "pid", {})).value == first
        result = await host.execute_in_session(None, "daemons", {"port": counter.port})
        assert result.value == (
            "daemons timed out after 2 seconds; its process and all processes that it started were killed"
        )
        assert counter.drain()
        counter.assert_it_stands_still()
        assert (await host.execute_in_session(None, "pid", {})).value != first

    run(main())


@pytest.mark.requirement("W-04")
def test_limits_of_memory_and_cpu_time_hold_for_workers_that_connect(
    make_workers: Callable[..., Workers], dial: Dial
) -> None:
    limits = WorkerLimits(start_seconds=BOUND, max_memory_bytes=2**29, max_cpu_seconds=1)
    host = make_workers(None, listen="tcp:127.0.0.1:0", token=TOKEN, limits=limits)

    async def main() -> None:
        await host.start()
        dial(host)
        assert not (await host.execute_in_session(None, "allocate", {"megabytes": 1})).is_error
        memory = await host.execute_in_session(None, "allocate", {"megabytes": 1000})
        assert memory.value == "allocate failed: MemoryError"
        cpu = await host.execute_in_session(None, "burn", {})
        assert "it used too much CPU time" in cpu.value

    run(main())


def test_death_of_a_worker_that_connected_is_described(host: Workers, dial: Dial, tmp_path: Path) -> None:
    dial(host)
    result = run(host.execute_in_session(None, "die", {"path": str(tmp_path / "lines")}))
    assert result.value == "die: outcome unknown: its process was killed by SIGSEGV; it may have had an effect"


@pytest.mark.requirement("W-08")
def test_session_owns_a_worker_that_has_connected(host: Workers, dial: Dial) -> None:
    dial(host)
    dial(host)
    host.open_session("s")

    async def main() -> None:
        counts = [(await host.execute_in_session("s", "count", {})).value for _ in range(3)]
        assert counts == [1, 2, 3]
        assert (await host.execute_in_session(None, "count", {})).value == 1
        await host.close_session("s")
        host.open_session("s")
        assert (await host.execute_in_session("s", "count", {})).value == 1

    run(main())


@pytest.mark.requirement("W-08")
def test_worker_with_a_wrong_token_is_refused(host: Workers, dial: Dial) -> None:
    refused = dial(host, token="guess", stderr=subprocess.PIPE)
    output, errors = refused.communicate(timeout=BOUND)
    assert (refused.returncode, output) == (1, "")
    assert errors == "midspan: the host does not accept this worker: its token is wrong\n"
    dial(host)
    assert run(host.execute_in_session(None, "count", {})).value == 1


def test_worker_whose_file_is_broken_is_refused(host: Workers, dial: Dial, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import nothing_of_this_name")
    output, _ = dial(host, tools=tmp_path / "broken.py").communicate(timeout=BOUND)
    assert "nothing_of_this_name" in output


def test_worker_ends_with_its_host(host: Workers, dial: Dial) -> None:
    process = dial(host)
    pid = run(host.execute_in_session(None, "pid", {})).value
    address = host.address
    run(host.aclose())
    output, _ = process.communicate(timeout=BOUND)
    assert (process.returncode, output) == (0, f"midspan: the host at {address} has ended\n")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_worker_does_not_read_the_input_of_its_command(
    tmp_path: Path, make_workers: Callable[..., Workers], dial: Dial
) -> None:
    file = tmp_path / "tools.py"
    file.write_text(
        "import os\n\ndef is_null() -> bool:\n    return os.path.samestat(os.fstat(0), os.stat(os.devnull))\n"
    )
    host = make_workers(None, listen=f"unix:{tmp_path / 'host.sock'}", token=TOKEN)
    run(host.start())
    dial(host, tools=file, stdin=subprocess.PIPE)
    assert run(host.execute_in_session(None, "is_null", {})).value is True


@pytest.mark.parametrize("redirected", [["stdout"], ["stderr"], ["stdout", "stderr"]], ids="-".join)
def test_worker_whose_output_is_a_file_runs_calls(
    host: Workers, dial: Dial, tmp_path: Path, redirected: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    tools = tmp_path / "tools.py"
    tools.write_text(
        "import sys\n"
        "for stream in (sys.stdout, sys.stderr):\n"
        "    stream.reconfigure(encoding='utf-8')\n"
        "def greet() -> str:\n"
        "    print('grüße')\n"
        "    print('warnung', file=sys.stderr)\n"
        "    return 'hello'\n"
    )
    with (tmp_path / "worker.log").open("wb") as file, caplog.at_level("INFO", "midspan.tools.workers"):
        streams = {name: file if name in redirected else subprocess.PIPE for name in ("stdout", "stderr")}
        process = dial(host, tools=tools, **streams)
        assert run(host.execute_in_session(None, "greet", {})).value == "hello"
    assert {"grüße", "warnung"} <= set(" ".join(record.getMessage() for record in caplog.records).split())
    run(host.aclose())
    assert process.wait(BOUND) == 0
    assert (tmp_path / "worker.log").read_text().count("\n") == ("stderr" in redirected)  # that the host has ended


def test_worker_command_that_is_killed_answers_its_call(host: Workers, dial: Dial, counter: Counter) -> None:
    process = dial(host)

    async def main() -> None:
        task = asyncio.create_task(host.call(ToolCall("1", "wait_politely", {"port": counter.port})))
        assert await asyncio.to_thread(counter.next) == "started"
        process.send_signal(signal.SIGKILL)
        assert "outcome unknown: its process closed its connection" in (await task).value

    run(main())


def connected(host: Workers) -> socket.socket:
    assert host.address is not None
    connection = HostAddress.of(host.address).connect()
    connection.settimeout(BOUND)
    return connection


REGISTER = Register(VERSION, TOKEN, 1)


@pytest.mark.requirement("W-08")
@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff\xff\xff\xff",
        (2**21 + 1).to_bytes(4, "big"),
        b"\x00\x00\x00\x05hello",
        encode(Log(0, 20, "before it has registered")),
        encode(Register(VERSION + 1, TOKEN, 1)),
        encode(REGISTER),  # without tools
    ],
    ids=["http", "oversized", "large", "garbage", "early", "version", "no tools"],
)
def test_connection_that_does_not_follow_the_protocol_is_closed_and_no_other(
    host: Workers, dial: Dial, data: bytes
) -> None:
    dial(host)

    async def main() -> None:
        assert (await host.execute_in_session(None, "count", {})).value == 1
        with connected(host) as stranger:
            stranger.sendall(data)
            while await asyncio.to_thread(stranger.recv, 4096):
                pass
        assert (await host.execute_in_session(None, "count", {})).value == 2

    run(main())


@pytest.mark.requirement("W-08")
def test_connections_without_a_token_are_limited_and_others_wait(
    host: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("midspan.tools.workers.listener._MAX_UNREGISTERED", 2)
    register = encode(Register(VERSION, TOKEN, 1, (RegisteredTool(ToolSpec("guess"), None),)))
    with connected(host) as first, connected(host) as second, connected(host) as worker:
        for stranger in (first, second):
            assert stranger.recv(4096), "the first frame of the host"
        worker.sendall(register)
        worker.settimeout(0.2)
        with pytest.raises(TimeoutError):
            worker.recv(4096)
        second.sendall(register)  # a worker that is registered leaves its place
        worker.settimeout(BOUND)
        assert worker.recv(4096)
        with connected(host) as last:
            first.close()
            assert last.recv(4096)


@pytest.mark.requirement("W-08")
def test_what_a_refused_worker_sends_is_not_stored(host: Workers) -> None:
    with connected(host) as stranger:
        stranger.sendall(encode(Register(VERSION, "wrong" * 4, 1)))
        stranger.recv(4096)
        stranger.recv(4096)
        tracemalloc.start()
        try:
            with contextlib.suppress(OSError):  # the host closes the connection after a while
                stranger.sendall((2**25).to_bytes(4, "big") + bytes(2**24))
            assert tracemalloc.get_traced_memory()[0] < 2**23
        finally:
            tracemalloc.stop()


@pytest.mark.requirement("W-08", "W-05")
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xff\xff\xff\xff", "a frame of 4,294,967,295 bytes was announced"),
        (b"\x00\x00\x00\x05hello", "a frame is not a message"),
        (encode(Result(1, b"{}")), "a result is not valid"),
        (encode(Result(1, b'{"id": "other", "name": "guess", "value": 1}')), "a result belongs to another call"),
        (encode(Register(VERSION, TOKEN, 1)), "a worker registered twice"),
    ],
    ids=["oversized", "garbage", "result", "other call", "second registration"],
)
def test_call_of_a_worker_that_breaks_the_protocol_has_an_unknown_outcome(
    host: Workers, dial: Dial, data: bytes, reason: str
) -> None:
    dial(host)

    async def main() -> None:
        assert (await host.execute_in_session(None, "count", {})).value == 1
        with connected(host) as worker:
            worker.sendall(encode(Register(VERSION, TOKEN, 1, (RegisteredTool(ToolSpec("guess"), None),))))
            while "guess" not in [spec.name for spec in await host.list_tools()]:
                pass
            call = asyncio.create_task(host.execute_in_session(None, "guess", {}))
            messages: list[ToWorker] = []
            decoder = FrameDecoder[ToWorker](ToWorker)
            while not any(isinstance(message, Call) for message in messages):
                messages += decoder.feed(await asyncio.to_thread(worker.recv, 4096))
            worker.sendall(data)
            await asyncio.to_thread(worker.recv, 4096)  # the host ends its stream
        result = await call
        assert "guess: outcome unknown: its process was killed, because " in result.value
        assert reason in result.value
        assert (await host.execute_in_session(None, "count", {})).value == 2

    run(main())


async def next_call(worker: socket.socket, decoder: FrameDecoder[ToWorker]) -> Call:
    while True:
        for message in decoder.feed(await asyncio.to_thread(worker.recv, 4096)):
            if isinstance(message, Call):
                return message


@pytest.mark.requirement("W-05")
def test_call_whose_worker_ended_before_it_was_sent_runs_in_the_next_one(host: Workers) -> None:
    register = encode(Register(VERSION, REGISTER.token, 1, (RegisteredTool(ToolSpec("add"), None),)))

    async def main() -> None:
        decoder = FrameDecoder[ToWorker](ToWorker)
        with connected(host) as worker:

            def answer(message: Call) -> None:
                result = b'{"id": "%s", "name": "add", "value": 3}' % message.id.encode()
                worker.sendall(encode(Result(message.call, result)))

            worker.sendall(register)
            calls = [asyncio.create_task(host.call(ToolCall(str(value), "add"))) for value in range(2)]
            first = await next_call(worker, decoder)
            while not host._open_pool()._waiters:
                await host.list_tools()
            with connected(host) as broken:
                broken.sendall(register + b"\x00\x00\x00\x05hello")  # it is killed before the call can be sent
                while await asyncio.to_thread(broken.recv, 4096):
                    pass
            answer(first)
            answer(await next_call(worker, decoder))
            assert [result.value for result in await asyncio.gather(*calls)] == [3, 3]

    run(main())


class CallSoonHandler(logging.Handler):
    """Calls a function after what the event loop that logs is doing, before anything else that this starts."""

    def __init__(self, function: Callable[[], object]) -> None:
        super().__init__()
        self._function = function

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().endswith("the result follows"):
            asyncio.get_running_loop().call_soon(self._function)


@pytest.mark.parametrize("session", [None, "s"])
def test_cancellation_together_with_the_result_keeps_the_result_and_the_worker(
    host: Workers, session: str | None
) -> None:
    async def main() -> None:
        host.open_session("s")
        pool = host._open_pool()
        job = Job(ToolCall("1", "add"), RunContext(call_id="1"), session)
        pool.loop.call_soon_threadsafe(pool.submit, job)  # it waits for a worker
        log, handler = logging.getLogger("midspan.tools.workers"), CallSoonHandler(lambda: pool.cancel(job))
        decoder = FrameDecoder[ToWorker](ToWorker)
        with connected(host) as worker:
            worker.sendall(encode(Register(VERSION, TOKEN, 1, (RegisteredTool(ToolSpec("add"), None),))))
            number = (await next_call(worker, decoder)).call
            log.addHandler(handler)
            try:
                result = Result(number, b'{"id": "1", "name": "add", "value": 3}')
                worker.sendall(encode(Log(number, logging.CRITICAL, "the result follows")) + encode(result))
                assert (await job.result(pool.cancel)).value == 3
            finally:
                log.removeHandler(handler)
            assert job.is_cancelled
            next_result = asyncio.create_task(host.call(ToolCall("2", "add"), session=session))
            number = (await next_call(worker, decoder)).call
            worker.sendall(encode(Result(number, b'{"id": "2", "name": "add", "value": 4}')))
            assert (await next_result).value == 4

    run(main())


def test_unix_socket_is_for_its_owner_and_is_removed(tmp_path: Path, make_workers: Callable[..., Workers]) -> None:
    path = tmp_path / "host.sock"
    for _ in range(2):
        workers = make_workers(None, listen=f"unix:{path}", token=TOKEN)
        run(workers.start())
        assert path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(ConfigError, match="cannot listen at"):
            run(make_workers(None, listen=f"unix:{path}", token=TOKEN).start())
        run(workers.aclose())
        assert not path.exists()


def test_stale_unix_socket_is_replaced(tmp_path: Path, make_workers: Callable[..., Workers]) -> None:
    path = tmp_path / "host.sock"
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(path))
    run(make_workers(None, listen=f"unix:{path}", token=TOKEN).start())


def test_call_without_any_worker_is_an_error_after_a_while(make_workers: Callable[..., Workers]) -> None:
    workers = make_workers(None, listen="tcp:127.0.0.1:0", token=TOKEN, limits=WorkerLimits(start_seconds=0.2))
    begin = time.monotonic()
    result = run(workers.call(ToolCall("1", "count")))
    assert "no worker has connected to tcp:127.0.0.1:" in result.value
    assert time.monotonic() - begin < BOUND


def test_first_calls_at_the_same_time_listen_once(tmp_path: Path, make_workers: Callable[..., Workers]) -> None:
    limits = WorkerLimits(start_seconds=0.2)
    workers = make_workers(None, listen=f"unix:{tmp_path / 'host.sock'}", token=TOKEN, limits=limits)

    async def main() -> list[ToolResult]:
        return await asyncio.gather(*(workers.call(ToolCall(str(number), "count")) for number in range(3)))

    assert ["no worker has connected to unix:" in result.value for result in run(main())] == [True] * 3
