"""Real requests, replayed by the script that measures them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.emulator.asking import calling, model, result, user

ROOT = Path(__file__).parent.parent.parent
SCRIPT = ROOT / "scripts" / "replay_requests.py"
DATA = ROOT.parent / "shared" / "data" / "gemini_traffic.jsonl"
URL = "https://generativelanguage.googleapis.com/v1beta/models/{}:generateContent"


def replay(*files: Path) -> tuple[int, dict[str, int], str]:
    """The exit code, the counts of the last line, and all that was said."""
    done = subprocess.run([sys.executable, str(SCRIPT), *map(str, files)], capture_output=True, text=True, timeout=60)
    last = done.stdout.strip().splitlines()[-1]
    counts = {name: int(count) for name, _, count in (pair.partition("=") for pair in last.split())}
    return done.returncode, counts, done.stdout


def row(request: Any, status: int = 200, model: str = "gemini-3.8-flash", response: Any = None) -> str:
    return json.dumps(
        {
            "id": "x",
            "method": "POST",
            "url": URL.format(model),
            "request_json": request,
            "status": status,
            "response": response or ({} if status == 200 else {"error": {"code": status, "message": "No."}}),
        }
    )


@pytest.mark.skipif(not DATA.is_file(), reason="the recorded traffic of ../shared/data is not here")
def test_what_the_real_server_accepted_is_accepted_and_what_it_refused_is_refused() -> None:
    code, counts, output = replay(DATA)
    assert code == 0, output
    assert counts["accepted"] > 900
    assert counts["refused"] > 5


def test_a_row_on_which_we_disagree_is_told_and_fails_the_script(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(row({"contents": [user("Hi.")]}) + "\n")
    assert replay(rows)[0] == 0
    rows.write_text(row({"contents": [user("Hi.")], "foo": 1}) + "\n")
    code, counts, output = replay(rows)
    assert (code, counts["failures"], "was accepted, but we say 400" in output) == (1, 1, True)
    rows.write_text(row({"contents": [user("Hi.")]}, status=400) + "\n")
    assert "was refused, but we accept it" in replay(rows)[2]
    rows.write_text(row({"contents": [user("Hi.")]}, status=400, model="gemini-nonexistent") + "\n")
    assert "was refused with 400, we say 404" in replay(rows)[2]
    rows.write_text("[]\nnonsense\n")
    assert replay(rows)[1]["failures"] == 2


def test_a_model_whose_name_was_lost_is_that_of_the_answer(tmp_path: Path) -> None:
    unsigned = {"contents": [user("Hi."), model(calling(signature=None)), user(result())]}
    rows = tmp_path / "rows.jsonl"
    rows.write_text(row(unsigned, model="unknown", response={"modelVersion": "gemini-2.5-flash"}) + "\n")
    assert replay(rows)[0] == 0
    rows.write_text(row(unsigned, model="unknown", response={"modelVersion": "gemini-3.8-flash"}) + "\n")
    assert replay(rows)[0] == 1


def test_without_files_it_says_how_it_is_used() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "Replay recorded requests" in done.stdout
