"""The worker's side of the protocol: real worker processes, with a host that is a socket in the test."""

import asyncio
import contextlib
import logging
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from midspan._types.parts import ToolResult
from midspan.tools.workers import protocol
from midspan.tools.workers.process import WorkerProcess
from midspan.tools.workers.protocol import Call, Callback, CallbackResult, Cancel, Configure, Log, Ping, Result, Stop
from midspan.tools.workers.setup import WorkerSetup
from tests.bounds import BOUND
from tests.tools.workers.conftest import is_running

TOOLS = """
import logging, os, resource, signal, sys, threading
from contextlib import suppress
from midspan import RunContext

def one() -> int:
    return 1

async def limits() -> list[list[int]]:
    return [list(resource.getrlimit(kind)) for kind in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_CORE)]

async def ask(context: RunContext) -> object:
    return (await context.call_tool("other", {})).value

def ask_in_thread(context: RunContext) -> object:
    return context.run_blocking(context.call_tool("other", {})).value

async def leave() -> None:
    sys.exit("enough")

async def log(context: RunContext) -> float | None:
    context.log("careful", 30)
    return context.seconds_left

def write(text: str, times: int) -> None:
    sys.stdout.write(text * times)

def write_later() -> None:
    def write() -> None:
        print("tail", end="", flush=True)
        logging.warning("written")
    threading.Timer(0.1, write).start()

def process() -> dict[str, object]:
    inherited = []
    for descriptor in range(3, 50):
        with suppress(OSError):
            if os.get_inheritable(descriptor):
                inherited.append(descriptor)
    return {
        "inherited": inherited,
        "leads_session": os.getsid(0) == os.getpid(),
        "stdin": os.fstat(0).st_rdev == os.stat(os.devnull).st_rdev,
        "arguments": sys.argv[1:],
        "SIGINT": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
        "SIGTERM": signal.getsignal(signal.SIGTERM) is signal.SIG_DFL,
        "wakeup": signal.set_wakeup_fd(-1),
    }
"""


class Worker:
    """A worker process whose messages the test reads and writes."""

    def __init__(self, file: Path) -> None:
        self._process = WorkerProcess(WorkerSetup(str(file), tuple(sys.path)))
        self._socket = self._process.socket
        self._socket.settimeout(BOUND)
        self._decoder = protocol.FrameDecoder[protocol.FromWorker](protocol.FromWorker)
        self._messages: list[protocol.FromWorker] = []
        self.lines: list[str] = []
        """What was printed or logged, without the records of `RunContext.log`."""

    def send(self, *messages: protocol.ToWorker) -> None:
        """Send messages, which the worker reads at once."""
        self._socket.sendall(b"".join(map(protocol.encode, messages)))

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def next(self) -> protocol.FromWorker:
        """Return the next message that is not a line of output."""
        while True:
            while self._messages:
                message = self._messages.pop(0)
                if not isinstance(message, Log) or message.is_from_context:
                    return message
                self.lines.append(message.text)
            data = self._socket.recv(65_536)
            assert data, "the worker has ended"
            self._messages += self._decoder.feed(data)

    def start(self, limits: Configure | None = None) -> None:
        self.send(limits or Configure())
        assert isinstance(self.next(), protocol.Register)

    def call(self, number: int, name: str, **arguments: Any) -> Any:
        """Call a tool and return its value."""
        self.send(call(number, name, **arguments))
        return value_of(self.next(), number)

    def end(self) -> tuple[int, str]:
        """Wait for the end of the process; return its exit code and what it printed last."""
        with contextlib.suppress(AssertionError):
            while True:
                self.next()
        return asyncio.run(self._process.ended())

    def kill_supervisor(self) -> None:
        os.kill(self._process._process.pid, signal.SIGKILL)

    def close(self) -> None:
        self._socket.close()
        asyncio.run(self._process.ended())


def call(number: int, name: str, **arguments: Any) -> Call:
    return Call(number, f"id-{number}", name, msgspec.json.encode(arguments))


def value_of(message: protocol.FromWorker, number: int) -> Any:
    assert isinstance(message, Result)
    assert message.call == number
    return msgspec.json.decode(message.result, type=ToolResult).value


def answer(message: protocol.FromWorker, value: Any) -> CallbackResult:
    assert isinstance(message, Callback)
    return CallbackResult(message.number, msgspec.json.encode(ToolResult("n", "other", value)))


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    file = tmp_path / "tools.py"
    file.write_text(TOOLS)
    worker = Worker(file)
    yield worker
    worker.close()


@pytest.fixture
def core_files() -> Iterator[None]:
    """Let processes write core files, as some systems do."""
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))


@pytest.mark.usefixtures("core_files")
def test_limits_of_a_worker_hold_for_async_functions(worker: Worker) -> None:
    worker.start(Configure(max_memory_bytes=2**40, max_cpu_seconds=100))
    memory, cpu, core = worker.call(1, "limits")
    assert memory == [2**40, 2**40]  # the tool cannot raise it again
    assert 100 <= cpu[0] < 200
    assert cpu[1] == resource.getrlimit(resource.RLIMIT_CPU)[1]  # each call raises the limit
    assert core[0] == 0  # SIGXCPU would write a core file


def test_limit_above_that_of_the_system_is_lowered() -> None:
    program = (
        "import resource\nfrom midspan.tools.workers.worker import _limit\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (90, 100))\n_limit('RLIMIT_NOFILE', 200, is_hard=True)\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=BOUND, check=True)
    assert ended.stdout == "(100, 100)\n"


def test_worker_has_its_own_session_signals_and_descriptors(worker: Worker) -> None:
    worker.start()
    assert worker.call(1, "process") == {
        "inherited": [],
        "leads_session": True,
        "stdin": True,
        "arguments": [],
        "SIGINT": True,
        "SIGTERM": True,
        "wakeup": -1,
    }


def test_messages_that_arrive_together_are_all_read(worker: Worker) -> None:
    worker.start()
    worker.send(call(1, "one"), Ping())  # read in the event loop
    assert {type(message) for message in (worker.next(), worker.next())} == {Result, protocol.Pong}
    for number in (2, 4):  # read in the main thread
        assert worker.call(number, "one") == 1
        worker.send(call(number + 1, "one"), Ping())
        assert {type(message) for message in (worker.next(), worker.next())} == {Result, protocol.Pong}


def test_cancellation_of_an_earlier_call_does_not_cancel_the_next_one(worker: Worker) -> None:
    worker.start()
    assert worker.call(1, "one") == 1
    worker.send(call(2, "ask"))
    worker.send(Cancel(1), answer(worker.next(), 5))
    assert value_of(worker.next(), 2) == 5


@pytest.mark.parametrize("name", ["ask", "ask_in_thread"])
def test_cancelled_call_that_waits_for_its_host_ends(worker: Worker, name: str) -> None:
    worker.start()
    worker.send(call(1, name))
    question = worker.next()
    worker.send(Cancel(1))
    assert "cancelled" in value_of(worker.next(), 1).lower()
    worker.send(answer(question, 5))  # it comes too late and is ignored
    assert worker.call(2, "one") == 1


def test_error_of_the_host_is_the_error_of_the_call(worker: Worker) -> None:
    worker.start()
    worker.send(call(1, "ask"))
    question = worker.next()
    assert isinstance(question, Callback)
    assert (question.call, question.kind, question.subject, question.value) == (1, "call_tool", "other", b"{}")
    worker.send(CallbackResult(99, b"1"), CallbackResult(question.number, b"", "there is no such tool"))
    assert "there is no such tool" in value_of(worker.next(), 1)


def test_async_function_that_exits_keeps_its_worker(worker: Worker) -> None:
    worker.start()
    assert worker.call(1, "leave") == "leave failed: SystemExit: enough"
    assert worker.call(2, "one") == 1


def test_context_has_the_time_of_the_call_and_logs_with_a_level(worker: Worker) -> None:
    worker.start()
    worker.send(Call(1, "c", "log", b"{}", seconds=50.0))
    assert worker.next() == Log(1, logging.WARNING, "careful", is_from_context=True)
    assert 0 < value_of(worker.next(), 1) <= 50


def test_long_line_is_sent_in_pieces_before_the_result(worker: Worker) -> None:
    worker.start()
    assert worker.call(1, "write", text="x", times=300_000) is None
    assert "".join(worker.lines) == "x" * 300_000
    assert max(map(len, worker.lines)) <= 2 * 65_536


@pytest.mark.parametrize(
    ("send", "problem"),
    [
        (lambda worker: worker.send(Ping()), "the first message of the host must be Configure"),
        (lambda worker: worker.send_bytes(b"\xff" * 8), "a frame of 4,294,967,295 bytes was announced"),
        (
            lambda worker: worker.send(Configure(), call(1, "ask"), call(2, "one")),
            "a call was sent while another one was running",
        ),
        (
            lambda worker: (worker.start(), worker.send_bytes(b"\0\0\0\1x")),
            "a frame is not a message of version 1",
        ),
    ],
    ids=["order", "size", "overlap", "content"],
)
def test_worker_whose_host_does_not_follow_the_protocol_ends(
    worker: Worker, send: Callable[[Worker], Any], problem: str
) -> None:
    send(worker)
    code, output = worker.end()
    assert code == 1
    assert problem in output


def test_output_between_calls_is_sent_before_the_end(worker: Worker) -> None:
    worker.start()
    assert worker.call(1, "write_later") is None
    while "root: written" not in worker.lines:
        worker.send(Ping())
        assert worker.next() == protocol.Pong()
    worker.send(Stop())
    assert worker.end() == (0, "")
    assert "tail" in worker.lines


def test_file_that_prints_much_when_it_is_imported_is_loaded(tmp_path: Path) -> None:
    file = tmp_path / "tools.py"
    file.write_text(f"print('x' * 500_000)\n{TOOLS}")
    with contextlib.closing(Worker(file)) as worker:
        worker.start()
        assert worker.call(1, "one") == 1
        assert "".join(worker.lines) == "x" * 500_000


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no signal for the death of a parent")
def test_worker_ends_if_its_supervisor_is_killed(worker: Worker) -> None:
    worker.start()
    worker.kill_supervisor()
    with pytest.raises(AssertionError, match="the worker has ended"):
        worker.next()


HOST_THAT_FORKS = """
import os, sys, time
from midspan.tools.workers.process import WorkerProcess
from midspan.tools.workers.protocol import Configure, FrameDecoder, FromWorker, encode
from midspan.tools.workers.setup import WorkerSetup

connection = WorkerProcess(WorkerSetup(sys.argv[1], tuple(sys.path))).socket
connection.sendall(encode(Configure()))
decoder, registered = FrameDecoder(FromWorker), []
while not registered:
    registered += decoder.feed(connection.recv(65_536))
copy = os.fork()
if not copy:
    os.close(1)
    time.sleep(600)
print(registered[0].pid, copy, flush=True)
os._exit(0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no signal for the death of a parent")
def test_worker_ends_with_its_host_if_a_forked_process_has_a_copy_of_the_socket(tmp_path: Path) -> None:
    file = tmp_path / "tools.py"
    file.write_text(TOOLS)
    command = [sys.executable, "-c", HOST_THAT_FORKS, str(file)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=BOUND, check=True)
    pid, copy = map(int, ended.stdout.split())
    try:
        end = time.monotonic() + BOUND
        while is_running(pid) and time.monotonic() < end:
            time.sleep(0.01)
        assert not is_running(pid)
    finally:
        os.kill(copy, signal.SIGKILL)


def test_worker_that_has_to_stop_ends_at_once(worker: Worker) -> None:
    worker.start()
    worker.send(Stop())
    assert worker.end() == (0, "")
