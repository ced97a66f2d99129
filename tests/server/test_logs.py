"""JSON logs: one line per record, with the ids of run and call, and no secrets."""

import json
import logging
from pathlib import Path

import httpx2 as httpx

from midspan._server.listen import JsonFormatter
from midspan.emulator import LocalGemini, call
from tests.server.serving import ServerProcess

TOOLS = '''
def fail() -> str:
    """Fail."""
    raise ValueError("no such thing")
'''


def lines_of(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def test_record_becomes_one_line_with_its_ids() -> None:
    fields = {"msg": "two\nlines %s", "args": ("x",), "name": "midspan", "run_id": "r", "created": 0}
    record = logging.makeLogRecord({**fields, "levelname": "WARNING"})
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "1970-01-01T00:00:00.000+00:00",
        "level": "warning",
        "logger": "midspan",
        "message": "two\nlines x",
        "run_id": "r",
    }


def test_server_logs_a_failing_tool_with_the_ids_of_its_run_and_call(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(TOOLS)
    arguments = ["--port", "0", "--log-format", "json", "--telemetry", "--tools", str(tmp_path / "broken.py"), "--yes"]
    with LocalGemini([call("fail"), "It failed."]) as gemini:
        keys = {"GEMINI_API_KEY": "a-secret-key", "GOOGLE_GEMINI_BASE_URL": gemini.url}
        model = ["--model", "gemini:gemini-3.8-flash"]
        with ServerProcess(*arguments, *model, folder=tmp_path, environment=keys) as server:
            answer = httpx.post(f"{server.url}/api/v1/chat", json={"prompt": "Fail."}, timeout=30).json()
    log = (tmp_path / "stderr.txt").read_text()
    [line] = [line for line in lines_of(log) if "raised" in str(line["message"])]
    assert (line["level"], line["tool"]) == ("warning", "fail")
    assert line["call_id"] == answer["tool_calls"][0]["id"]
    assert line["run_id"] == answer["metadata"]["run_id"]
    assert line["error"] == {"type": "ValueError", "message": "no such thing"}
    assert "no such thing" in str(line["traceback"])
    assert "a-secret-key" not in log
