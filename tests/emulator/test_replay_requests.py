"""Recorded requests, replayed by scripts/replay_requests.py."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.emulator.plain_client import calling, model, result, user

ROOT = Path(__file__).parent.parent.parent
SCRIPT = ROOT / "scripts" / "replay_requests.py"
DATA = ROOT.parent / "shared" / "data" / "gemini_traffic.jsonl"
URL = "https://generativelanguage.googleapis.com/v1beta/models/{}:generateContent"


def replay(*files: Path) -> tuple[int, dict[str, int], str]:
    """Return the exit code, the counts of the last line, and the whole output."""
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
def test_the_emulator_agrees_with_the_recorded_server() -> None:
    code, counts, output = replay(DATA)
    assert code == 0, output
    assert counts["accepted"] > 900
    assert counts["refused"] > 5


def test_a_mismatch_is_reported_and_fails_the_script(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(row({"contents": [user("Hi.")]}) + "\n")
    assert replay(rows)[0] == 0
    rows.write_text(row({"contents": [user("Hi.")], "foo": 1}) + "\n")
    code, counts, output = replay(rows)
    assert (code, counts["failures"], "was accepted, but the emulator answers 400" in output) == (1, 1, True)
    rows.write_text(row({"contents": [user("Hi.")]}, status=400) + "\n")
    assert "was rejected, but the emulator accepts it" in replay(rows)[2]
    rows.write_text(row({"contents": [user("Hi.")]}, status=400, model="gemini-nonexistent") + "\n")
    assert "was rejected with 400, the emulator answers 404" in replay(rows)[2]
    rows.write_text("[]\nnonsense\n")
    assert replay(rows)[1]["failures"] == 2


def test_a_lost_model_name_is_taken_from_the_response(tmp_path: Path) -> None:
    unsigned = {"contents": [user("Hi."), model(calling(signature=None)), user(result())]}
    rows = tmp_path / "rows.jsonl"
    rows.write_text(row(unsigned, model="unknown", response={"modelVersion": "gemini-2.5-flash"}) + "\n")
    assert replay(rows)[0] == 0
    rows.write_text(row(unsigned, model="unknown", response={"modelVersion": "gemini-3.8-flash"}) + "\n")
    assert replay(rows)[0] == 1


def test_a_retired_model_may_be_found_or_not_found(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    for status in (200, 404):
        rows.write_text(row({"contents": [user("Hi.")]}, status, "gemini-1.5-flash") + "\n")
        assert replay(rows)[0] == 0, status
    for model_name in ("gemini-3.6-flahs", "gemini-3.6-flash"):
        rows.write_text(row({"contents": [user("Hi.")]}, 404, model_name) + "\n")
        assert replay(rows)[0] == (0 if model_name == "gemini-3.6-flahs" else 1), model_name


def test_without_files_it_prints_its_usage() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "Replay recorded requests" in done.stdout
