"""The installed command, run as a user runs it: by pipes, or in a terminal of its own."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import NamedTuple

from tests.bounds import BOUND

MIDSPAN = Path(sys.executable).parent / "midspan"


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def environment(home: Path, **more: str) -> dict[str, str]:
    """That of a user who has nothing: no key, no settings, no conversations."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_STATE_HOME": str(home / "state"),
        "LANG": "C.UTF-8",
        "MIDSPAN_WEATHER_URL": "http://127.0.0.1:9",
        **more,
    }


def midspan(*arguments: str, home: Path, stdin: str | bytes | None = None, **more: str) -> Ended:
    """Run the command to its end."""
    given = stdin.encode() if isinstance(stdin, str) else stdin
    ran = subprocess.run(
        [str(MIDSPAN), *arguments],
        input=given,
        stdin=subprocess.DEVNULL if given is None else None,
        capture_output=True,
        cwd=home,
        env=environment(home, **more),
        timeout=BOUND,
    )
    return Ended(ran.returncode, ran.stdout.decode(), ran.stderr.decode())


def started(*arguments: str, home: Path, **more: str) -> subprocess.Popen[str]:
    """Run the command without waiting for it."""
    return subprocess.Popen(
        [str(MIDSPAN), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=home,
        env=environment(home, **more),
    )


class Terminal:
    """The command in a terminal."""

    def __init__(self, *arguments: str, home: Path, columns: int = 80, **more: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.process = subprocess.Popen(
            [str(MIDSPAN), *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=home,
            env=environment(home, **{"TERM": "xterm-256color", **more}),
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self.seen = ""

    def wait_for(self, text: str, seconds: float = BOUND) -> str:
        """What was shown until this came, from where the last wait ended."""
        until = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < until, f"{text!r} did not come: {self.seen!r}"
            if not self._read():
                break
        assert text in self.seen, f"it ended before {text!r} came: {self.seen!r}"
        before, _, self.seen = self.seen.partition(text)
        return before + text

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode(errors="surrogateescape"))

    def end(self) -> tuple[int, str]:
        """The exit code, and the rest of what was shown."""
        until = time.monotonic() + BOUND
        while self._read():
            assert time.monotonic() < until, f"it did not end: {self.seen!r}"
        return self.process.wait(BOUND), self.seen

    def _read(self) -> bool:
        if not select.select([self._ours], [], [], 1.0)[0]:
            return self.process.poll() is None
        try:
            data = os.read(self._ours, 65_536)
        except OSError:
            return False
        self.seen += data.decode(errors="replace")
        if "\x1b[6n" in self.seen:  # where is the cursor?
            self.seen = self.seen.replace("\x1b[6n", "")
            self.type("\x1b[1;1R")
        return bool(data)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(BOUND)
        os.close(self._ours)
