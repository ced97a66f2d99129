"""The figures that docs/offline.md tells, measured by the script that tells them."""

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
    """The exit code, the counts of the last line, and all that was said."""
    command = [sys.executable, str(SCRIPT), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    last = done.stdout.strip().splitlines()[-1]
    return (
        done.returncode,
        {name: int(count) for name, count in (pair.split("=") for pair in last.split())},
        done.stdout,
    )


def rows(path: Path, *given: Any) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in given))
    return path


@pytest.mark.skipif(not DATA.is_file(), reason="the recorded prompts of ../shared/data are not here")
def test_tools_and_calls_are_right_as_often_as_is_told() -> None:
    code, counts, output = score(DATA)
    assert code == 0, output
    assert counts["right_tool_several"] >= 0.82 * counts["single_several"]
    assert counts["exact"] >= 0.47 * counts["single"]
    assert counts["false_call"] <= 0.15 * counts["irrelevant"]


def test_an_argument_counts_if_it_is_acceptable_or_may_be_left_out(tmp_path: Path) -> None:
    other = ROW | {"calls": [{"name": "area", "acceptable_args": {"base": [3], "height": [5], "unit": [""]}}]}
    needed = ROW | {"calls": [{"name": "area", "acceptable_args": {"base": [3], "height": [4], "unit": ["cm"]}}]}
    _, counts, _ = score(rows(tmp_path / "rows.jsonl", ROW, other, needed))
    assert (counts["single"], counts["right_tool"], counts["exact"]) == (3, 3, 1)


def test_a_call_where_none_fits_is_a_false_one(tmp_path: Path) -> None:
    none = ROW | {"expect": "no_call", "calls": []}
    poem = none | {"question": [[{"role": "user", "content": "Write a poem."}]]}
    _, counts, output = score(rows(tmp_path / "rows.jsonl", none, poem))
    assert (counts["irrelevant"], counts["false_call"]) == (2, 1)
    assert "false calls where nothing fits: 50.0% of 2" in output


def test_what_is_no_row_is_told_and_fails_the_script(tmp_path: Path) -> None:
    code, counts, output = score(rows(tmp_path / "rows.jsonl", [1], {"expect": "calls"}, ROW))
    assert (code, counts["failures"], counts["exact"]) == (1, 2, 1)
    assert output.count("FAIL ") == 2
    assert score(tmp_path / "nowhere.jsonl")[0] == 1
