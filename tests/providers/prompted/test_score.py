"""The rate of calls read from text is measured on real calls, and none is read wrong."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent.parent
SCRIPT = ROOT / "scripts" / "score_prompted.py"
DATA = ROOT.parent / "shared" / "data"


def score(file: Path) -> tuple[int, dict[str, int], str]:
    """Return the exit code, the counts of the last line, and the whole output."""
    done = subprocess.run([sys.executable, str(SCRIPT), str(file)], capture_output=True, text=True, timeout=120)
    last = done.stdout.strip().splitlines()[-1]
    return (
        done.returncode,
        {name: int(count) for name, count in (pair.split("=") for pair in last.split())},
        done.stdout,
    )


@pytest.mark.skipif(not DATA.is_dir(), reason="the recorded calls of ../shared/data are not here")
@pytest.mark.requirement("S2-17")
def test_true_calls_are_read_exactly_and_damaged_ones_never_wrong(tmp_path: Path) -> None:
    rows = (DATA / "bfcl.jsonl").read_text("utf-8").splitlines()
    sample = tmp_path / "sample.jsonl"
    sample.write_text("\n".join(rows[::160]) + "\n", "utf-8")
    code, counts, output = score(sample)
    assert code == 0, output[-5000:]
    assert counts["calls"] > 15
    assert counts["answers"] >= 3
    assert counts["damaged"] > 1_000
    assert counts["wrong"] == counts["false_calls"] == counts["plain_not_exact"] == 0


def test_an_invalid_row_fails_the_script(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    good = {"id": "good", "functions": [{"name": "f"}], "expect": "calls", "calls": [{"name": "f", "args": {"a": 1}}]}
    rows.write_text(json.dumps(good) + "\n")
    assert score(rows)[0] == 0
    rows.write_text(json.dumps(good) + "\n" + json.dumps({"id": "bad"}) + "\n")
    code, counts, output = score(rows)
    assert (code, counts["failures"]) == (1, 1)
    assert f"FAIL {rows}:2" in output


def test_an_empty_file_fails_the_script(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("\n")
    assert score(rows)[0] == 1
