"""Real schemas and calls, replayed by scripts/replay_schemas.py."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SCRIPT = ROOT / "scripts" / "replay_schemas.py"
DATA = ROOT.parent / "shared" / "data"

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the recorded schemas of ../shared/data are not here")


def replay(*files: Path) -> tuple[int, dict[str, int], str]:
    """Return the exit code, the counts of the last line, and the whole output."""
    command = [sys.executable, str(SCRIPT), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True)
    last = done.stdout.strip().splitlines()[-1]
    counts = {name: int(count) for name, _, count in (pair.partition("=") for pair in last.split())}
    return done.returncode, counts, done.stdout


def test_every_declared_tool_is_accepted_and_its_adapted_schema_too() -> None:
    code, counts, output = replay(DATA / "tool_schemas.jsonl")
    assert code == 0, output
    assert counts["adapted"] == 2 * counts["declarations"] > 1000


def test_nearly_all_recorded_calls_match_their_declaration() -> None:
    code, counts, output = replay(DATA / "bfcl.jsonl")
    assert code == 0, output
    assert counts["calls_valid"] >= 0.98 * counts["calls"]
    assert output.count("INVALID CALL") == counts["calls"] - counts["calls_valid"]


def test_the_json_schema_suite_passes() -> None:
    code, counts, output = replay(DATA / "json_schema_suite.jsonl")
    assert code == 0, output
    assert counts["suite_tests"] > 2000


def test_a_failing_row_is_reported_and_fails_the_script(tmp_path: Path) -> None:
    rows = tmp_path / "whatever.jsonl"
    good = {"id": "good", "name": "t", "schema": {"type": "dict"}}
    rows.write_text(json.dumps(good) + "\n")
    assert replay(rows)[0] == 0
    rows.write_text(json.dumps(good | {"id": "bad", "schema": {"type": "frob"}}) + "\n")
    code, counts, output = replay(rows)
    assert (code, counts["failures"]) == (1, 1)
    assert "FAIL bad t: unknown type 'frob'" in output


def test_an_invalid_row_is_reported_with_its_line_and_the_others_are_replayed(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    good = json.dumps({"id": "good", "name": "t", "schema": {"type": "object"}})
    wrong = ["not json", "[1]", '"x"', '{"id": "a", "schema": {}}', '{"functions": 5}', '{"tests": [{}], "schema": {}}']
    rows.write_text("\n".join([*wrong, good]) + "\n")
    code, counts, output = replay(rows)
    assert (code, counts["failures"], counts["declarations"]) == (1, len(wrong), 1)
    assert [f"FAIL {rows}:{number}: " in output for number in range(1, len(wrong) + 1)] == [True] * len(wrong)


def test_an_empty_file_fails_the_script(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("\n")
    code, counts, output = replay(rows)
    assert (code, counts["failures"]) == (1, 1)
    assert "it is empty" in output
