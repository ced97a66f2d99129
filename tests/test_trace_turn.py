"""One turn of an agent, file by file: the architecture page shows what the trace finds."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "architecture.md"
MAX_FILES = 15
"""What a turn passes now. Lower it when files are merged; never raise it."""


def traced(*options: str) -> str:
    script = [sys.executable, str(ROOT / "scripts" / "trace_turn.py"), *options]
    return subprocess.run(script, capture_output=True, text=True, check=True, timeout=60).stdout


def files_in(trace: str) -> list[str]:
    return [line.split()[0] for line in trace.splitlines() if line.partition(" ")[0].endswith(".py")]


@pytest.fixture(scope="module")
def trace() -> str:
    return traced()


def test_one_turn_passes_no_more_files_than_its_budget(trace: str) -> None:
    assert len(files_in(trace)) <= MAX_FILES, trace


def test_every_file_of_the_trace_exists_and_is_listed_once(trace: str) -> None:
    files = files_in(trace)
    assert files[0] == "_loop/run.py"
    assert len(files) == len(set(files))
    assert all((ROOT / "src" / "midspan" / file).exists() for file in files)


def test_every_file_is_entered_once(trace: str) -> None:
    entries = {line.split()[0]: int(line.split()[1]) for line in trace.splitlines() if ".py" in line.partition(" ")[0]}
    assert {file: count for file, count in entries.items() if count != 1} == {}


def test_architecture_page_shows_the_files_of_the_trace(trace: str) -> None:
    shown = PAGE.read_text("utf-8").partition("<!-- trace_turn.py -->")[2].partition("<!-- end -->")[0]
    # How often a file is entered depends on the Python version, which may start tasks eagerly.
    assert files_in(shown) == files_in(trace), "run scripts/trace_turn.py --write"


def test_streamed_turn_can_be_traced_too() -> None:
    assert {"_loop/run_stream.py", "_loop/turn.py"} <= set(files_in(traced("--stream")))
