"""Addresses, exit codes, sandboxes, ends of workers and deadlocks, without a process."""

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from midspan._types.context import RunContext
from midspan._types.parts import ToolCall
from midspan._types.specs import Effects, ToolSpec
from midspan.errors import ConfigError, ToolError
from midspan.tools.workers import process
from midspan.tools.workers.address import HostAddress, keep_alive
from midspan.tools.workers.context import WorkerContext
from midspan.tools.workers.job import Ended, Job, WaitingCall, _callers, call_in, find_deadlocks, waiting
from midspan.tools.workers.process import describe_exit
from midspan.tools.workers.protocol import Call
from midspan.tools.workers.setup import WorkerSetup, load_tools
from midspan.tools.workers.supervisor import NOT_KILLED

CALL = ToolCall("c", "f")
PLAIN, READ = ToolSpec("f"), ToolSpec("f", effects=Effects(reads=("x",)))
IDEMPOTENT = ToolSpec("f", effects=Effects(writes=("x",), idempotent=True))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("unix:/run/tools.sock", HostAddress(path="/run/tools.sock")),
        ("tcp:127.0.0.1:7000", HostAddress(host="127.0.0.1", port=7000)),
        ("tcp:[::1]:0", HostAddress(host="::1", port=0)),
        ("tcp:host:65535", HostAddress(host="host", port=65_535)),
    ],
)
def test_address_is_read_and_written(text: str, address: HostAddress) -> None:
    assert HostAddress.of(text) == address
    assert str(address) == text


@pytest.mark.parametrize("text", ["", "unix:", "tcp:7000", "tcp::7000", "tcp:a:b", "tcp:a:65536", "udp:a:7000", "x:/a"])
def test_address_that_is_not_valid_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="invalid address"):
        HostAddress.of(text)


def test_address_that_listens_has_its_port_and_accepts_connections() -> None:
    address = HostAddress.of("tcp:127.0.0.1:0")
    with address.listen() as server:
        bound = address.bound_to(server)
        assert bound.port == server.getsockname()[1] != 0
        server.listen()
        with bound.connect() as connection:
            assert connection.gettimeout() is None
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    bound.remove()


def test_dead_connections_are_noticed() -> None:
    with socket.socket() as connection:
        keep_alive(connection)
        if sys.platform == "linux":
            options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            assert [connection.getsockopt(socket.IPPROTO_TCP, option) for option in options] == [5, 5, 3]


def test_unix_socket_that_is_in_use_or_is_a_file_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    address = HostAddress(path=str(path))
    with address.listen() as server:
        server.listen()
        assert address.bound_to(server) is address
        with pytest.raises(OSError, match="in use"):
            address.listen()
        with address.connect() as connection:
            assert connection.gettimeout() is None
    address.remove()
    address.remove()
    path.write_text("a file")
    with pytest.raises(OSError, match="in use"):
        address.listen()
    assert path.read_text() == "a file"


@pytest.mark.parametrize(
    ("code", "description"),
    [
        (0, "exited with code 0"),
        (128, "exited with code 128"),
        (128 + signal.SIGHUP, "was killed by SIGHUP"),
        (128 + signal.SIGKILL, "was killed by SIGKILL"),
        (255, "exited with code 255"),
        (NOT_KILLED, "ended, but processes that it started may still be running"),
    ],
)
def test_exit_of_a_worker_is_described(code: int, description: str) -> None:
    assert describe_exit(code) == description


@pytest.mark.parametrize(
    ("ended", "spec", "reruns", "message"),
    [
        (
            Ended("timeout", "", 1.5),
            PLAIN,
            0,
            "f timed out after 1.5 seconds; its process and all processes that it started were killed",
        ),
        (
            Ended("cancelled", "", all_killed=False),
            PLAIN,
            0,
            "f was cancelled; whether all its processes were killed is unknown",
        ),
        (Ended("died", "exited"), READ, 0, "f failed: its process exited"),
        (Ended("died", "exited"), READ, 2, "f failed in 3 runs: its process exited"),
        (
            Ended("died", "exited"),
            IDEMPOTENT,
            3,
            "f: outcome unknown: its process exited in 4 runs; it may have had an effect",
        ),
        (Ended("died", "exited"), PLAIN, 0, "f: outcome unknown: its process exited; it may have had an effect"),
    ],
)
def test_result_of_a_call_whose_worker_ended(ended: Ended, spec: ToolSpec, reruns: int, message: str) -> None:
    result = ended.result(CALL, spec, reruns=reruns)
    assert (result.is_error, result.value) == (True, message)


def test_only_a_call_that_changes_nothing_is_run_again_and_only_if_its_worker_died() -> None:
    assert Ended("died", "").may_rerun(READ)
    assert not Ended("died", "").may_rerun(PLAIN)
    assert not Ended("cpu", "").may_rerun(READ)


def test_waits_that_depend_on_one_another_only_are_a_deadlock() -> None:
    async def main() -> None:
        first, second, free = (Job(CALL, RunContext()) for _ in range(3))
        nested = []
        for caller in (first, second):
            token = _callers.set((caller,))
            nested.append(Job(CALL, RunContext()))
            _callers.reset(token)
        crossed = [WaitingCall(nested[0], lambda: [second]), WaitingCall(nested[1], lambda: [first])]
        with waiting(crossed[0]):
            assert find_deadlocks() == [], "the second call may end"
            with waiting(crossed[1]):
                assert find_deadlocks() == crossed
            with waiting(WaitingCall(nested[1], lambda: [free])):
                assert find_deadlocks() == []
            with waiting(WaitingCall(nested[1], lambda: [None])):
                assert find_deadlocks() == []
        with waiting(WaitingCall(first, list)), waiting(WaitingCall(None, list)):
            assert find_deadlocks() == [], "calls from outside cannot deadlock"
        assert find_deadlocks() == []

    asyncio.run(main())


def test_function_is_called_in_its_event_loop_unless_that_is_closed() -> None:
    other = asyncio.new_event_loop()
    called: list[int] = []

    async def main() -> None:
        assert call_in(asyncio.get_running_loop(), called.append, 1)
        assert call_in(other, called.append, 2)
        assert called == [1]
        await asyncio.to_thread(other.run_until_complete, asyncio.sleep(0))
        other.close()
        assert not call_in(other, called.append, 3)

    asyncio.run(main())
    assert called == [1, 2]


def _context(**fields: Any) -> WorkerContext:
    return WorkerContext(Call(1, "c", "f", b"{}", **fields), None)  # type: ignore[arg-type]  # it talks to nobody


def test_context_of_a_worker_decodes_the_value_of_the_user_once() -> None:
    context = _context(user=b'{"a": 1}', run_id="r", turn=2, index=3, depth=4)
    assert context.user == {"a": 1}
    assert context.user is context.user
    assert (context.run_id, context.call_id, context.turn, context.index, context.depth) == ("r", "c", 2, 3, 4)
    assert context.seconds_left is None
    timed = _context(seconds=50.0)
    assert timed.seconds_left is not None
    assert 0 < timed.seconds_left <= 50
    with pytest.raises(ToolError, match="is not JSON serializable"):
        _ = _context(user=None).user


def test_file_with_two_tools_of_one_name_or_a_source_is_refused(tmp_path: Path) -> None:
    double = tmp_path / "double.py"
    double.write_text(
        "from midspan import tool\n\n@tool(name='same')\ndef a():\n    'A.'\n\n@tool(name='same')\ndef b():\n    'B.'\n"
    )
    with pytest.raises(ConfigError, match=r"two tools in .* are named 'same'"):
        load_tools(WorkerSetup(str(double)))
    source = tmp_path / "source.py"
    source.write_text("from midspan.tools import MCPServer\n\ntools = [MCPServer('a')]\n")
    with pytest.raises(ConfigError, match="a worker runs functions and tools only"):
        load_tools(WorkerSetup(str(source)))


# Sandboxes. The tests that start one need bubblewrap.


def test_sandbox_hides_folders_and_shows_what_python_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = tmp_path / "tools" / "mytools.py"
    tools.parent.mkdir()
    tools.write_text("")
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    setup = WorkerSetup(str(tools), (str(tmp_path / "missing"), str(tmp_path / "tools")))
    monkeypatch.setattr(process, "_HIDDEN_FOLDERS", ("/tmp", "/", str(tmp_path / "nowhere")))
    command = process._sandbox(setup, "/scratch")
    assert command[:3] == ["bwrap", "--unshare-all", "--die-with-parent"]
    assert command[-6:] == ["--bind", "/scratch", "/scratch", "--chdir", "/scratch", "--"]
    mounts = " ".join(command)
    assert f"--tmpfs {home.resolve()}" in mounts
    assert "--tmpfs /tmp" in mounts
    assert "--tmpfs / " not in mounts
    if str(tmp_path).startswith("/tmp/"):
        assert f"--ro-bind {tools} {tools}" in mounts
        assert f"--ro-bind {tools.parent} {tools.parent}" in mounts
        assert mounts.index("--tmpfs /tmp") < mounts.index(f"--ro-bind {tools.parent}")
    assert "missing" not in mounts
    assert "nowhere" not in mounts
    module = " ".join(process._sandbox(WorkerSetup("json"), "/scratch"))
    assert "--ro-bind json" not in module


def test_sandbox_passes_on_harmless_variables_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        monkeypatch.delenv(name)
    for name in ("PATH", "LC_ALL", "PYTHONPATH", "GEMINI_API_KEY", "HOME"):
        monkeypatch.setenv(name, "x")
    assert process._sandbox_environment("/scratch") == {
        "PATH": "x",
        "LC_ALL": "x",
        "PYTHONPATH": "x",
        "TMPDIR": "/scratch",
        "HOME": "/scratch",
    }
