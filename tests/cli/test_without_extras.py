"""The terminal without the packages of the extra `cli`."""

import os
import pty
import subprocess
import sys
from pathlib import Path

from tests.bounds import BOUND
from tests.cli.terminal import environment

HIDDEN = """
import sys
sys.modules["rich"] = sys.modules["prompt_toolkit"] = sys.modules["shtab"] = None
from midspan._cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def run_in_terminal(home: Path, *arguments: str, typed: str = "") -> tuple[int, str]:
    controller, device = pty.openpty()
    os.write(controller, typed.encode())
    command = [sys.executable, "-c", HIDDEN, *arguments]
    environ = environment(home, TERM="xterm")
    process = subprocess.Popen(command, stdin=device, stdout=device, stderr=device, cwd=home, env=environ)
    os.close(device)
    seen = b""
    try:
        while data := os.read(controller, 65_536):
            seen += data
    except OSError:
        pass  # Linux reports the end of a pseudo-terminal as an error
    os.close(controller)
    return process.wait(BOUND), seen.decode()


def test_ask_prints_plain_lines(tmp_path: Path) -> None:
    code, seen = run_in_terminal(tmp_path, "ask", "-m", "offline", "What is 2 + 2?")
    assert code == 0
    assert "→ calculate(" in seen
    assert "\x1b" not in seen


def test_chat_reads_plain_lines(tmp_path: Path) -> None:
    code, seen = run_in_terminal(tmp_path, "chat", "-m", "offline", typed="What is 2 + 2?\n/quit\n")
    assert code == 0, seen
    assert "result: 4" in seen
    assert "Enter sends, Ctrl-C cancels a run" in " ".join(seen.split())
    assert "Traceback" not in seen


def test_completion_names_the_extra_to_install(tmp_path: Path) -> None:
    code, seen = run_in_terminal(tmp_path, "completion", "bash")
    assert code == 2
    assert "'midspan[cli]'" in seen


def test_serve_names_the_extra_to_install(tmp_path: Path) -> None:
    program = HIDDEN.replace('sys.modules["rich"] =', 'sys.modules["starlette"] = sys.modules["uvicorn"] =')
    command = [sys.executable, "-c", program, "serve", "-m", "offline"]
    done = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, timeout=BOUND)
    assert done.returncode == 2
    assert "'midspan[server]'" in done.stderr
    assert "Traceback" not in done.stderr
