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
    assert lines[-2].startswith("FAILED rows.jsonl:1 row-0: not read")
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


def chat(index: int, request: Any, response: Any, **more: Any) -> dict[str, Any]:
    url = "https://api.openai.com/v1/chat/completions"
    fields = {"provider": "openai-chat", "model": "gpt-5.5", "url": url}
    return row(index, {"model": "gpt-5.5", **request}, response, **{**fields, **more})


def chat_answer(**message: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", **message}, "finish_reason": "stop"}]}


CHAT_CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
QUESTION = {"role": "user", "content": "Hi"}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


def test_fields_that_clients_add_to_results_are_not_expected(tmp_path: Path) -> None:
    result = {"role": "tool", "tool_call_id": "c1", "content": "5", "name": "f", "is_error": False}
    messages = [QUESTION, {"role": "assistant", "content": None, "tool_calls": [CHAT_CALL]}, result]
    code, lines = replay_rows(
        tmp_path,
        chat(0, {"messages": [QUESTION], "tools": TOOLS}, chat_answer(content=None, tool_calls=[CHAT_CALL])),
        chat(
            1, {"messages": messages, "tools": TOOLS, "stop": "END", "presence_penalty": 0.0}, chat_answer(content="5")
        ),
    )
    assert code == 0, "\n".join(lines)
    assert "    1 rows  client's form" in lines[0]
    assert lines[-1] == "2 rows, 1 tool loops, 2 passed, 0 failed"


def test_a_request_that_the_server_rejected_may_be_of_any_form(tmp_path: Path) -> None:
    request = {"messages": [{"content": "no role"}]}
    error = {"error": {"message": "a role is missing", "type": "invalid_request_error"}}
    assert replay_rows(tmp_path, chat(0, request, error, status=400))[0] == 0
    assert replay_rows(tmp_path, chat(0, request, chat_answer(content="a")))[0] == 1


@pytest.mark.parametrize(
    "more",
    [
        {"response": {"choices": []}},
        {"response": None},
        {"response": "<html>", "response_kind": "text"},
        {"response": "<html>", "response_kind": "text", "status": 502},
        {"response": ["a"], "status": 429},
        {"response": "", "response_kind": "sse"},
        {"response": 'data: {"choices": [{"delta": {"content": "a"}}]}\n\ndata: {"choi', "response_kind": "sse"},
        {"response": ': ping\n\ndata: {"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}\n\n',
         "response_kind": "sse"},
        {"url": "https://api.openai.com/v1/embeddings"},
        {"provider": "someone", "response": chat_answer(content="a", odd=1)},
    ],
)  # fmt: skip
def test_responses_that_have_no_message_become_errors(tmp_path: Path, more: dict[str, Any]) -> None:
    code, lines = replay_rows(tmp_path, {**chat(0, {"messages": [QUESTION]}, None), **more})
    assert code == 0, "\n".join(lines)


@pytest.mark.parametrize("streaming", [False, True])
def test_a_page_of_html_is_not_a_response_of_gemini(tmp_path: Path, streaming: bool) -> None:
    page = row(0, {"contents": [USER]}, "<html>", response_kind="text", streaming=streaming)
    assert replay_rows(tmp_path, page)[0] == 0


def test_a_field_of_another_type_is_an_error_with_its_line(tmp_path: Path) -> None:
    rows = [row(0, None, TOLD) | {name: ["x"]} for name in ("url", "status", "index", "model", "path")]
    code, lines = replay_rows(tmp_path, *rows, row(0, None, TOLD))
    assert code == 1
    assert "FAILED rows.jsonl:1: 'url' is of type list" in lines
    assert lines[-1] == "6 rows, 0 tool loops, 1 passed, 5 failed"


def test_a_missing_file_is_a_failure(tmp_path: Path) -> None:
    code, lines = replay(tmp_path / "none.jsonl")
    assert code == 1
    assert "No such file" in lines[0]
