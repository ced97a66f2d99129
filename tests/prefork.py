"""Programs that start in a tenth of the time: copies of a process that has imported their packages already.

A program is started by a small command, `Prefork.command`. It hands its arguments, environment, folder and open files
to the prepared process, which makes a copy of itself that runs the program. The command ends with the program, with its
exit code, and the program ends with the command.
"""

import gc
import importlib
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Self

from tests.prefork_command import receive

_COMMAND = str(Path(__file__).with_name("prefork_command.py"))
_ROOT = str(Path(__file__).parent.parent)


class Prefork:
    """A process that imports `modules` when it is entered."""

    def __init__(self, *modules: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="prefork")
        self._address = f"{self._folder.name}/socket"
        self._program = [sys.executable, "-m", "tests.prefork", self._address, *modules]

    def command(self, program: str) -> list[str]:
        """Return the command that starts a program, which is the path of a file."""
        return [sys.executable, "-I", "-S", _COMMAND, self._address, program]

    def __enter__(self) -> Self:
        environment = {**os.environ, "LANG": "C.UTF-8", "PYTHONPATH": _ROOT}
        pipe = subprocess.PIPE  # as programs have them, which inherit how they are buffered
        self._process = subprocess.Popen(self._program, stdin=pipe, stdout=pipe, stderr=pipe, env=environment)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n", self._process.communicate()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()
        self._folder.cleanup()


def wait_for_request(listener: socket.socket) -> socket.socket:
    """Return the connection of the next command, in a new process."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that processes that ended need not be waited for
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return connection
        connection.close()
    sys.exit()


def supervise(connection: socket.socket, process: int) -> None:
    """End the program with its command, and the command with its program."""

    def watch() -> None:
        connection.recv(1)
        os.kill(process, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    connection.sendall(str(code if code >= 0 else 128 - code).encode())
    os._exit(0)


def prepare(connection: socket.socket) -> str:
    """Make this process like the command, and return the path of the program."""
    [*files, folder], environment, arguments = receive(connection)
    os.fchdir(folder)
    os.close(folder)
    for target, file in enumerate(files):
        os.dup2(file, target)
        os.close(file)
    if process := os.fork():
        for target in range(3):  # or nobody would see that the program has closed them
            os.close(target)
        supervise(connection, process)
    connection.close()
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.argv = arguments
    return arguments[0]


if __name__ == "__main__":
    for name in sys.argv[2:]:
        importlib.import_module(name)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(sys.argv[1])
        listener.listen()
        gc.freeze()
        print("ready", flush=True)  # noqa: T201 - read by the test
        program = prepare(wait_for_request(listener))
    runpy.run_path(program, run_name="__main__")
