"""Runs the command as a user does: with pipes, or in a pseudo-terminal."""

import asyncio
import fcntl
import os
import pty
import select
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

import midspan as package
from midspan._cli.conversation import RunLog
from midspan.messages import Message
from tests.bounds import BOUND

MIDSPAN = (sys.executable, "-P", "-m", "midspan")
SHELL_MIDSPAN = shlex.join(MIDSPAN)


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def environment(home: Path, **more: str) -> dict[str, str]:
    """The environment of a user without a key, settings or conversations."""
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(Path(package.__file__).parent.parent),
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_STATE_HOME": str(home / "state"),
        "LANG": "C.UTF-8",
        "MIDSPAN_WEATHER_URL": "http://127.0.0.1:9",
        **more,
    }


def midspan(*arguments: str, home: Path, stdin: str | bytes | None = None, **more: str) -> Ended:
    """Run the command until it exits."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    ran = subprocess.run(
        [*MIDSPAN, *arguments],
        input=data,
        stdin=subprocess.DEVNULL if data is None else None,
        capture_output=True,
        cwd=home,
        env=environment(home, **more),
        timeout=BOUND,
    )
    return Ended(ran.returncode, ran.stdout.decode(), ran.stderr.decode())


def started(*arguments: str, home: Path, **more: str) -> subprocess.Popen[str]:
    """Run the command without waiting for it."""
    return subprocess.Popen(
        [*MIDSPAN, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=home,
        env=environment(home, **more),
    )


def conversation(home: Path, name: str | None = None) -> tuple[Message, ...]:
    """The messages of a conversation in the log; without a name, of the last one."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_STATE_HOME", str(home / "state"))
        log = RunLog(asyncio.run)
        try:
            return tuple(log.history(log.last_session() if name is None else log.session(name)))
        finally:
            log.close()


def open_pty(columns: int = 80) -> tuple[int, int]:
    """Open a pseudo-terminal, and return the descriptors of its controller and of its device."""
    controller, device = pty.openpty()
    fcntl.ioctl(device, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    return controller, device


def read_to_end(controller: int) -> str:
    """Close the controller of a pseudo-terminal whose device is closed, and return what was written to it."""
    data = b""
    with os.fdopen(controller, "rb", buffering=0) as file, suppress(OSError):  # which is how Linux reports the end
        while read := file.read(65_536):
            data += read
    return data.decode()


class Terminal:
    """The command in a pseudo-terminal. A `redirected` stream goes to /dev/null."""

    def __init__(self, *arguments: str, home: Path, columns: int = 80, redirected: str = "", **more: str) -> None:
        self._controller, device = open_pty(columns)
        self.process = subprocess.Popen(
            [*MIDSPAN, *arguments],
            stdin=device,
            stdout=subprocess.DEVNULL if redirected == "stdout" else device,
            stderr=subprocess.DEVNULL if redirected == "stderr" else device,
            cwd=home,
            env=environment(home, **{"TERM": "xterm-256color", **more}),
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(device)
        self.seen = ""

    def wait_for(self, text: str, seconds: float = BOUND) -> str:
        """Wait for a text, and return the output up to its end. The next wait continues there."""
        deadline = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < deadline, f"{text!r} was not shown: {self.seen!r}"
            if not self._read():
                break
        assert text in self.seen, f"the program exited before it showed {text!r}: {self.seen!r}"
        before, _, self.seen = self.seen.partition(text)
        return before + text

    def type(self, text: str) -> None:
        os.write(self._controller, text.encode(errors="surrogateescape"))

    def end(self) -> tuple[int, str]:
        """Wait until the program exits, and return its exit code and the rest of the output."""
        deadline = time.monotonic() + BOUND
        while self._read():
            assert time.monotonic() < deadline, f"the program did not exit: {self.seen!r}"
        return self.process.wait(BOUND), self.seen

    def _read(self) -> bool:
        if not select.select([self._controller], [], [], 1.0)[0]:
            return self.process.poll() is None
        try:
            data = os.read(self._controller, 65_536)
        except OSError:
            return False
        self.seen += data.decode(errors="replace")
        if "\x1b[6n" in self.seen:  # prompt_toolkit asks for the position of the cursor
            self.seen = self.seen.replace("\x1b[6n", "")
            self.type("\x1b[1;1R")
        return bool(data)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(BOUND)
        os.close(self._controller)
