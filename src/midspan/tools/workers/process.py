"""Worker processes that a host starts, with their supervisors, on request in a sandbox."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from midspan.errors import ConfigError
from midspan.tools.workers.setup import WorkerSetup
from midspan.tools.workers.supervisor import KILL_SECONDS, NOT_KILLED

_SUPERVISOR = str(Path(__file__).with_name("supervisor.py"))
_HIDDEN_FOLDERS = ("/run", "/var/run", "/tmp", "/var/tmp", "/home", "/root")  # noqa: S108 - they are hidden
"""A sandbox has empty folders in their place: the sockets of other services and the files of users are in them."""
_VARIABLES = ("PATH", "LANG", "LANGUAGE", "TZ", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
_VARIABLE_PREFIXES = ("LC_", "PYTHON")
"""The environment variables that a sandbox passes on. Others may be secrets."""


class WorkerProcess:
    """A supervisor with its worker, and our end of the worker's socket."""

    def __init__(self, setup: WorkerSetup, *, sandbox: bool = False) -> None:
        """Start it. Raises OSError if no process can be started, ValueError if the setup cannot be encoded."""
        encoded_setup = msgspec.json.encode(setup).decode()
        self._scratch = None
        if sandbox:
            self._scratch = tempfile.TemporaryDirectory(prefix="midspan-worker-", ignore_cleanup_errors=True)
        self.socket, end = socket.socketpair()
        host = 0 if sandbox else os.getpid()  # bwrap is the parent then, and dies with this process
        arguments = [str(end.fileno()), str(host), encoded_setup]
        command, environment = [sys.executable, "-P", _SUPERVISOR, *arguments], None
        if self._scratch is not None:
            command = [*_sandbox(setup, self._scratch.name), *command]
            environment = _sandbox_environment(self._scratch.name)
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                command,
                pass_fds=[end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=environment,
            )
        except OSError:
            self.socket.close()
            self._clean_up()
            raise
        finally:
            end.close()

    async def ended(self) -> tuple[int, str]:
        """Wait until the worker and its descendants have ended; return the exit code and what was printed last."""
        try:
            waiting = asyncio.get_running_loop().run_in_executor(None, self._wait)
        except RuntimeError:  # the program is exiting, and no more threads can be started
            return self._wait()
        return await waiting

    def _wait(self) -> tuple[int, str]:
        try:
            output, _ = self._process.communicate(timeout=KILL_SECONDS + 5)
        except subprocess.TimeoutExpired:  # the supervisor is stopped or hangs; the kernel kills the worker with it
            self._process.kill()
            output, _ = self._process.communicate()
        self._clean_up()
        code = self._process.returncode
        if code < 0:  # after a SIGTERM it kills first
            code = 128 - code if code == -signal.SIGTERM else NOT_KILLED
        return code, output.decode(errors="backslashreplace")

    def _clean_up(self) -> None:
        if self._scratch is not None:
            self._scratch.cleanup()


def describe_exit(code: int) -> str:
    """Say how a worker process ended, to follow its name."""
    if code == NOT_KILLED:
        return "ended, but processes that it started may still be running"
    if code <= 128:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(code - 128).name}"
    except ValueError:
        return f"exited with code {code}"


def check_sandbox() -> None:
    """Raise ConfigError if there is no sandbox on this system."""
    if shutil.which("bwrap") is None:
        raise ConfigError(
            "sandbox=True needs bubblewrap, and there is no command bwrap; install the package bubblewrap (Linux only)"
        )


def _sandbox(setup: WorkerSetup, scratch: str) -> list[str]:
    """Return the command before the worker's: no network, a read-only file system, and one folder to write to.

    In the hidden folders, only what Python needs to run the tools is visible.
    """
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home() fails for a user without a home
    folders = (*_HIDDEN_FOLDERS, tempfile.gettempdir(), home)
    hidden = {path for path in (Path(folder).resolve() for folder in folders) if path.is_dir() and path != Path("/")}
    mounts = {path: ["--tmpfs", str(path)] for path in hidden}
    needed = [*map(Path, (sys.prefix, sys.base_prefix, _SUPERVISOR, *setup.path, setup.tools))]
    if needed[-1].is_file():
        needed.append(needed[-1].parent)  # the modules beside it
    for path in (form for name in needed for form in (name.absolute(), name.resolve())):
        if path.exists() and path not in hidden and not hidden.isdisjoint(path.parents):
            mounts[path] = ["--ro-bind", str(path), str(path)]
    return [
        *("bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
        *(argument for path in sorted(mounts) for argument in mounts[path]),  # folders before what is in them
        *("--bind", scratch, scratch, "--chdir", scratch, "--"),
    ]


def _sandbox_environment(scratch: str) -> dict[str, str]:
    allowed = {
        name: value for name, value in os.environ.items() if name in _VARIABLES or name.startswith(_VARIABLE_PREFIXES)
    }
    return {**allowed, "TMPDIR": scratch, "HOME": scratch}
