"""The figures of docs/offline.md, as scripts/score_offline.py measures them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent.parent
SCRIPT = ROOT / "scripts" / "score_offline.py"
DATA = ROOT.parent / "shared" / "data" / "bfcl.jsonl"

ROW: dict[str, Any] = {
    "functions": [
        {
            "name": "area",
            "description": "The area of a triangle.",
            "parameters": {
                "type": "dict",
                "properties": {"base": {"type": "float"}, "height": {"type": "float"}, "unit": {"type": "string"}},
                "required": ["base", "height"],
            },
        }
    ],
    "question": [[{"role": "user", "content": "What is the area of a triangle with a base of 3 and a height of 4?"}]],
    "expect": "calls",
    "calls": [{"name": "area", "acceptable_args": {"base": [3], "height": [4.0], "unit": ["cm", ""]}}],
}


def score(*files: Path) -> tuple[int, dict[str, int], str]:
    """The exit code, the counts of the last line, and the whole output."""
    command = [sys.executable, str(SCRIPT), *map(str, files)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    pairs = (pair.split("=") for pair in ran.stdout.strip().splitlines()[-1].split())
    return ran.returncode, {name: int(count) for name, count in pairs}, ran.stdout


def rows(path: Path, *given: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in given))
    return path


@pytest.mark.skipif(not DATA.is_file(), reason="the recorded questions in ../shared/data are not available")
def test_wrong_calls_are_rare_and_a_fifth_of_the_single_calls_is_exact() -> None:
    code, counts, output = score(DATA)
    assert code == 0, output
    assert counts["wrong"] <= 0.01 * counts["rows"]
    assert counts["false_call"] <= 0.01 * counts["irrelevant"]
    assert counts["exact"] >= 0.2 * counts["single"]


def test_call_is_exact_if_every_argument_is_acceptable_or_may_be_left_out(tmp_path: Path) -> None:
    other = ROW | {"calls": [{"name": "area", "acceptable_args": {"base": [3], "height": [5], "unit": [""]}}]}
    needed = ROW | {"calls": [{"name": "area", "acceptable_args": {"base": [3], "height": [4], "unit": ["cm"]}}]}
    _, counts, output = score(rows(tmp_path / "rows.jsonl", ROW, other, needed))
    assert (counts["single"], counts["exact"], counts["wrong"]) == (3, 1, 2)
    assert "wrong calls, of all questions: 2 of 3 (66.67 %)" in output


def test_call_where_none_belongs_is_counted(tmp_path: Path) -> None:
    none = ROW | {"expect": "no_call", "calls": []}
    poem = none | {"question": [[{"role": "user", "content": "Write a poem."}]]}
    _, counts, output = score(rows(tmp_path / "rows.jsonl", none, poem))
    assert (counts["irrelevant"], counts["false_call"], counts["wrong"]) == (2, 1, 1)
    assert "calls where none belongs: 1 of 2 (50.00 %)" in output


def test_unreadable_row_is_reported_and_fails_the_script(tmp_path: Path) -> None:
    code, counts, output = score(rows(tmp_path / "rows.jsonl", [1], {"expect": "calls"}, ROW))
    assert (code, counts["failures"], counts["exact"]) == (1, 2, 1)
    assert output.count("FAIL ") == 2
    assert score(tmp_path / "nowhere.jsonl")[0] == 1
