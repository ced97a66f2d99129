"""Run the demo in a pseudo-terminal and draw what it shows: python scripts/terminal_picture.py [FILE.svg]

Writes docs/images/terminal.svg by default. The picture loads nothing from elsewhere, not even fonts.
"""

import project_python  # noqa: F401 - imported first: it restarts the script with the Python of .venv if necessary

# isort: split
import io
import os
import pty
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parent.parent
COLUMNS = 84
CELL = 12.2, 24.4
"""Width and height of a character in the SVG of Rich."""
QUESTION = "What is 17.5% of 2480, and what time is it in Tokyo?"
COMMAND = ["ask", "--model", "offline", QUESTION]
PROMPT = f'$ midspan ask --model offline "{QUESTION}"'

# The default frame of Rich loads a font from a server; this one uses a font of the reader's system.
FRAME = """\
<svg viewBox="0 0 WIDTH HEIGHT" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="WIDTH" height="HEIGHT"/></clipPath>
{lines}
</defs>
<rect fill="#1b1e24" width="WIDTH" height="HEIGHT" rx="8"/>
<g transform="translate(12, 10)" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def main() -> int:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images" / "terminal.svg"
    code, seen = run_in_terminal()
    if code != 0:
        print(f"the demo exited with {code}:\n{seen}", file=sys.stderr)
        return 1
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    lines = [Text(PROMPT, style="bold"), *map(Text.from_ansi, last_state(seen))]
    for line in lines:
        console.print(line, no_wrap=True, overflow="fold")
    target.parent.mkdir(parents=True, exist_ok=True)
    width, height = COLUMNS * CELL[0] + 24, len(lines) * CELL[1] + 22
    frame = FRAME.replace("WIDTH", f"{width:.1f}").replace("HEIGHT", f"{height:.1f}")
    target.write_text(console.export_svg(title="", code_format=frame, unique_id="terminal"), "utf-8")
    print(f"{target}: {target.stat().st_size:,} bytes")
    return 0


def run_in_terminal() -> tuple[int, str]:
    """Return the exit code and the output of the demo."""
    controller, device = pty.openpty()
    with tempfile.TemporaryDirectory() as empty:
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("MIDSPAN_", "NO_COLOR"))},
            "TERM": "xterm-256color",
            "COLUMNS": str(COLUMNS),
            "LINES": "30",
            "XDG_CONFIG_HOME": empty,
            "XDG_STATE_HOME": empty,
        }
        command = [sys.executable, "-P", "-m", "midspan", *COMMAND]
        process = subprocess.Popen(command, stdin=device, stdout=device, stderr=device, env=environment)  # noqa: S603 - our own command
        os.close(device)
        seen = b"".join(iter(lambda: _read(controller), b""))
        os.close(controller)
        return process.wait(60), seen.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:
        return b""  # Linux reports the end of a pseudo-terminal as an error


def last_state(seen: str) -> list[str]:
    """Return the lines as they are at the end, after the spinner has erased its own."""
    lines, row = [""], 0
    for piece in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", seen):
        if piece == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif piece == "\x1b[2K":
            lines[row] = ""
        elif piece.endswith("A") and piece.startswith("\x1b["):
            row = max(0, row - int(piece[2:-1] or 1))
        elif piece.endswith("m") or not piece.startswith(("\x1b", "\r")):
            lines[row] += piece
    while lines and not lines[-1].strip():
        lines.pop()
    return [part for line in lines for part in _folded(line)]


def _folded(line: str) -> list[str]:
    """Break a line that is longer than the terminal is wide, as the terminal does."""
    if "\x1b" in line or len(line) <= COLUMNS:
        return [line]
    return [line[at : at + COLUMNS] for at in range(0, len(line), COLUMNS)]


if __name__ == "__main__":
    sys.exit(main())
