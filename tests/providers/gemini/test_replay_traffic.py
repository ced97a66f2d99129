"""Recorded exchanges, replayed by scripts/replay_traffic.py."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from midspan.providers.gemini import decode

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "scripts" / "replay_traffic.py"
RECORDINGS = ROOT.parent / "shared" / "data" / "gemini_traffic.jsonl"


def replay(*files: Path) -> tuple[int, list[str]]:
    ran = subprocess.run([sys.executable, str(SCRIPT), *map(str, files)], capture_output=True, text=True, timeout=300)
    assert not ran.stderr, ran.stderr
    return ran.returncode, ran.stdout.splitlines()


@pytest.mark.requirement("S0-10", "S1-07", "S1-18")
@pytest.mark.skipif(not RECORDINGS.exists(), reason="no recordings beside the project (../shared/data)")
def test_every_recorded_exchange_passes() -> None:
    code, lines = replay(RECORDINGS)
    assert code == 0, "\n".join(lines)
    assert lines[-1].endswith(" 0 failed")
    assert int(lines[-1].split()[0]) > 1000


def row(index: int, request: Any, response: Any, **more: Any) -> dict[str, Any]:
    return {
        "id": f"row-{index}",
        "repo": "r",
        "path": "p",
        "index": index,
        "provider": "gemini",
        "model": "gemini-3.8-flash",
        "url": "https://x/v1beta/models/gemini-3.8-flash:generateContent",
        "request_json": request,
        "status": 200,
        "response_kind": "json",
        "response": response,
        "streaming": False,
        **more,
    }


USER = {"role": "user", "parts": [{"text": "x"}]}
CALL = {"functionCall": {"id": "1", "name": "f", "args": {"a_b": 1}}, "thoughtSignature": "A+/="}
ASKED = {"candidates": [{"content": {"role": "model", "parts": [CALL]}, "finishReason": "STOP"}]}
TOLD = {"candidates": [{"content": {"role": "model", "parts": [{"text": "y"}]}, "finishReason": "STOP"}]}
RESULT = {"functionResponse": {"id": "1", "name": "f", "response": {"result": 5}}}


def replay_rows(tmp_path: Path, *rows: dict[str, Any]) -> tuple[int, list[str]]:
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(json.dumps(one) for one in rows))
    return replay(file)


def test_a_tool_loop_is_replayed(tmp_path: Path) -> None:
    contents = [USER, {"role": "model", "parts": [CALL]}, {"role": "function", "parts": [RESULT]}]
    code, lines = replay_rows(tmp_path, row(0, {"contents": [USER]}, ASKED), row(1, {"contents": contents}, TOLD))
    assert code == 0
    assert lines[-1] == "2 rows, 1 tool loops, 2 passed, 0 failed"
    assert any("role" in line for line in lines[:-1])


def test_a_row_that_fails_is_named_with_its_reason(tmp_path: Path) -> None:
    code, lines = replay_rows(tmp_path, row(0, None, TOLD | {"odd": float("inf")}), row(1, None, TOLD))
    assert code == 1
    assert lines[-2].startswith("FAILED row-0: not read")
    assert lines[-1] == "2 rows, 0 tool loops, 1 passed, 1 failed"


def test_a_wrong_request_is_reported_for_every_recorded_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    script, rules = importlib.import_module("replay_traffic"), importlib.import_module("traffic_rules")
    turn = {"role": "model", "parts": [CALL]}
    results = {"role": "user", "parts": [RESULT]}
    right = decode.message(json.dumps(turn).encode())
    script.check_turns(row(0, None, None), script.Turns([USER], right, [CALL], turn, results), set())
    without_id = json.dumps(turn).replace('"id": "1", ', "").encode()
    for wrong in (
        without_id,
        json.dumps(turn).replace("a_b", "aB").encode(),
        json.dumps(turn).replace("A+/=", "").encode(),
    ):
        turns = script.Turns([USER], decode.message(wrong), [CALL], turn, results)
        with pytest.raises(rules.Difference, match="not as expected"):
            script.check_turns(row(0, None, None), turns, set())


def test_an_invalid_row_is_an_error_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "odd.jsonl"
    good = json.dumps(row(0, None, TOLD) | {"note": "a\u2028b"}, ensure_ascii=False)
    file.write_bytes(b"\xef\xbb\xbf" + good.encode() + b'\n{"broken\n[]\nnull\n\xff\n{}\n')
    code, lines = replay(file)
    assert code == 1
    assert [line.split(": ")[0] for line in lines if line.startswith("FAILED")] == [
        f"FAILED odd.jsonl:{n}" for n in (2, 3, 4, 5)
    ]
    assert lines[-1] == "6 rows, 0 tool loops, 2 passed, 4 failed"
