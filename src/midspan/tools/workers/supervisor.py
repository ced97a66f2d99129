"""The parent of a worker process: kills the worker and all its descendants, and exits when none of them is left.

A supervisor runs one worker and holds a copy of the worker's socket. It kills when the host closes the other end, so a
host that was itself killed leaves no process behind. Its own end of the socket closes after that: for a host on
another machine the end of the stream means that all processes have ended.

On Linux the supervisor is a child subreaper (prctl(2)): a descendant whose parent has died becomes its child, also
after setsid() or a double fork. Elsewhere only the process group of the worker is killed.

The host runs this file as a script. It imports nothing of Midspan before it forks, so that it stays small. It is the
only file of the package that uses ctypes.
"""

import fcntl
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from threading import get_native_id
from typing import NoReturn, TextIO

NOT_KILLED = 250
"""The exit code if a process could not be killed: it runs as another user, or hangs in the kernel.

It is not the code of a signal, and not 255, which is the code of programs that exit with -1.
"""
KILL_SECONDS = 10.0
_IS_LINUX = sys.platform == "linux"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLL_SECONDS = 0.001
_SEND_SECONDS = 0.5
_MAX_OUTPUT_BYTES = 2**20
"""What a worker can print while it does not read its own output, as when it imports a file."""

RunWorker = Callable[[socket.socket, int], None]
"""Runs in the forked process, with its socket and the read end of the pipe that is its stdout and stderr."""


def supervise(connection: socket.socket, run: RunWorker) -> int:
    """Run a worker in a forked process until it or the host ends.

    Returns the exit code of the worker, 128 + the number of a signal that killed it, or NOT_KILLED. A SIGTERM or
    SIGINT that was received meanwhile is raised again after that. In the forked process it raises SystemExit.
    """
    if _IS_LINUX:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    output, output_end = os.pipe()
    if _IS_LINUX:
        with suppress(OSError):
            fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, _MAX_OUTPUT_BYTES)
    wakeup, wakeup_end = socket.socketpair()
    wakeup.setblocking(False)
    wakeup_end.setblocking(False)
    previous_wakeup = signal.set_wakeup_fd(wakeup_end.fileno(), warn_on_full_buffer=False)
    handlers = {number: signal.signal(number, _ignore) for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)}
    supervisor = os.getpid()
    worker = os.fork()
    if not worker:
        _run_worker(connection, run, output, output_end, supervisor if _IS_LINUX else None)
    os.close(output_end)
    os.set_blocking(output, False)
    received = 0
    try:
        status, received = _wait(worker, connection, wakeup)
        code = 128 + signal.SIGKILL if status is None else _exit_code(status)
        if not _kill_all(worker, status is None):
            code = NOT_KILLED
        with suppress(OSError):
            connection.settimeout(_SEND_SECONDS)
            connection.sendall(exit_frame(code))
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)  # the host reads our output after the end of the stream
        _pass_on(output)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(previous_wakeup)
        received = received or _read_signal(wakeup)
        for end in (wakeup, wakeup_end):
            end.close()
        os.close(output)
    if received:
        signal.raise_signal(received)
    return code


def exit_frame(code: int) -> bytes:
    """Return the frame of the message `Exit`, without msgspec, which a supervisor does not import."""
    body = b"\x92\xa4exit\xcc" + bytes([code])  # an array of two: a str of four bytes, an 8-bit integer
    return len(body).to_bytes(4, "big") + body


def _ignore(_number: int, _frame: object) -> None:
    """Signals are read from the wakeup socket."""


def _run_worker(
    connection: socket.socket, run: RunWorker, output: int, output_end: int, supervisor: int | None
) -> NoReturn:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    if supervisor is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(1)  # it died before the line above
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (output_end, 1), (output_end, 2)):
        os.dup2(source, target)
    for end in (null, output_end):
        os.close(end)
    # The old objects may remember that they wrote to a file, and would seek in the pipe when they are reconfigured.
    with redirect_stdout(_open_output(1)), redirect_stderr(_open_output(2)):
        run(connection, output)
    sys.exit(0)


def _open_output(descriptor: int) -> TextIO:
    """Open stdout or stderr. It writes whole lines, even with PYTHONUNBUFFERED, so that a crash does not cut one."""
    encoding = (sys.stdout if descriptor == 1 else sys.stderr).encoding
    return open(descriptor, "w", 1, encoding, "backslashreplace", closefd=False)


def _wait(worker: int, connection: socket.socket, wakeup: socket.socket) -> tuple[int | None, int]:
    """Wait until the worker has ended, and return its status; None if the host closes the socket or a signal comes.

    The second value is that signal, or 0.
    """
    poll = select.poll()
    poll.register(connection, getattr(select, "POLLRDHUP", 0))  # errors and hang-ups are always reported
    poll.register(wakeup, select.POLLIN)
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == connection.fileno():
                return None, 0
            if received := _read_signal(wakeup):
                return None, received
            status = _reap(worker)
            if status is not None:
                return status, 0


def _read_signal(wakeup: socket.socket) -> int:
    """Return a SIGTERM or SIGINT that was received, or 0."""
    numbers = b""
    with suppress(BlockingIOError):
        numbers = wakeup.recv(4096)
    return next((number for number in (signal.SIGTERM, signal.SIGINT) if number in numbers), 0)


def _reap(worker: int) -> int | None:
    """Reap all children that have ended, orphans of the worker among them; return the status of the worker."""
    worker_status = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == worker:
                worker_status = ended[1]
    return worker_status


def _kill_all(worker: int, is_running: bool) -> bool:
    """Kill all descendants; return whether none is left.

    Only children are killed one by one: the pid of a child cannot be reused before it is reaped here. Their own
    children become children of this process when they die.
    """
    if is_running or not _IS_LINUX:  # the worker leads the group
        for kill in (os.killpg, os.kill):
            with suppress(OSError):
                kill(worker, signal.SIGKILL)
    end = time.monotonic() + KILL_SECONDS
    while time.monotonic() < end:
        for pid in _children():
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return True
        time.sleep(_POLL_SECONDS)
    return False


def _children() -> list[int]:
    with suppress(OSError):
        return [int(pid) for pid in Path(f"/proc/self/task/{get_native_id()}/children").read_text().split()]
    own = str(os.getpid())
    children = []
    for stat in Path("/proc").glob("[0-9]*/stat"):  # a kernel without lists of children
        with suppress(OSError, IndexError):
            if stat.read_text(errors="replace").rpartition(")")[2].split()[1] == own:
                children.append(int(stat.parent.name))
    return children


def _pass_on(output: int) -> None:
    """Write what the worker printed last to our own stdout."""
    with suppress(OSError):
        while data := os.read(output, _MAX_OUTPUT_BYTES):
            os.write(1, data)


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _prctl(option: int, value: int) -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, *map(ctypes.c_ulong, (value, 0, 0, 0))) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def main() -> int:
    """Supervise a worker of the host that started this process: supervisor.py SOCKET HOST SETUP."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    connection.set_inheritable(False)
    host, setup = int(sys.argv[2]), json.loads(sys.argv[3])
    if host and _IS_LINUX:  # a copy of the host's socket may be in a process it has forked
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != host:
            return 1
    return supervise(connection, lambda *ends: _run_local_worker(setup, *ends))


def _run_local_worker(setup: dict[str, object], connection: socket.socket, output: int) -> None:
    path = setup["path"]
    assert isinstance(path, list)
    sys.path[:] = path
    sys.argv[1:] = []
    from midspan.tools.workers.worker import run_worker

    run_worker(connection, output, setup)


if __name__ == "__main__":
    sys.exit(main())
