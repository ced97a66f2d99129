"""Conversations that are saved between commands."""

import json
import os
import signal
import stat
from pathlib import Path
from typing import Any

import pytest

from midspan._types.codec import from_json
from tests.bounds import BOUND
from tests.cli.terminal import midspan, started
from tests.gemini.recorder import Recorder, recorder


class Echo(Recorder):
    """Answers with the number of contents in the request."""

    def next(self) -> tuple[int, bytes, dict[str, str]]:
        text = f"{len(self.last.body['contents'])} contents"
        part: dict[str, Any] = {"content": {"role": "model", "parts": [{"text": text}]}, "finishReason": "STOP"}
        body = b"data: %b\r\n\r\n" % json.dumps({"candidates": [part]}).encode()
        return 200, body, {"content-type": "text/event-stream"}


def session_file(home: Path, name: str = "s") -> Path:
    return home / "state" / "midspan" / "sessions" / f"{name}.json"


def test_conversation_is_continued_by_name_or_as_the_last_one(tmp_path: Path) -> None:
    with recorder(Echo()) as record:
        where = {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": record.url}
        answers = [
            midspan("ask", *arguments, home=tmp_path, **where).out
            for arguments in (
                ["--session", "other", "hi"],
                ["--session", "s", "hi"],
                ["--session", "s", "again"],
                ["-c", "and again"],
                ["without any"],
            )
        ]
    assert answers == [f"{count} contents\n" for count in (1, 1, 3, 5, 1)]
    assert len(from_json(session_file(tmp_path).read_bytes(), "messages")) == 6


def test_question_that_led_to_nothing_is_not_saved(tmp_path: Path) -> None:
    with recorder() as record:
        record.answer({"error": {"code": 404, "status": "NOT_FOUND", "message": "no such model"}}, status=404)
        where = {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": record.url}
        assert midspan("ask", "--session", "s", "hi", home=tmp_path, **where).code == 1
    assert not session_file(tmp_path).exists()


def test_only_the_owner_can_read_a_conversation(tmp_path: Path) -> None:
    midspan("ask", "-m", "offline", "--session", "s", "What is 2 + 2?", home=tmp_path)
    assert stat.S_IMODE(session_file(tmp_path).stat().st_mode) == 0o600
    assert stat.S_IMODE(session_file(tmp_path).parent.stat().st_mode) == 0o700


def test_concurrent_commands_all_save_their_messages(tmp_path: Path) -> None:
    arguments = ["ask", "-m", "offline", "--session", "s", "What is 2 + 2?"]
    processes = [started(*arguments, home=tmp_path) for _ in range(4)]
    for process in processes:
        process.communicate(timeout=BOUND)
    messages = from_json(session_file(tmp_path).read_bytes(), "messages")
    assert [process.returncode for process in processes] == [0] * 4
    assert len(messages) == 4 * 4
    for at in range(0, len(messages), 4):
        assert [message.role for message in messages[at : at + 4]] == ["user", "model", "user", "model"]


def test_damaged_conversation_is_reported_and_not_changed(tmp_path: Path) -> None:
    session_file(tmp_path).parent.mkdir(parents=True)
    session_file(tmp_path).write_text("{not json")
    ended = midspan("ask", "-m", "offline", "--session", "s", "hi", home=tmp_path)
    assert ended.code == 2
    assert "is damaged" in ended.err
    assert "Traceback" not in ended.err
    assert session_file(tmp_path).read_text() == "{not json"


def test_partly_written_file_of_a_crash_is_ignored(tmp_path: Path) -> None:
    midspan("ask", "-m", "offline", "--session", "s", "What is 2 + 2?", home=tmp_path)
    (session_file(tmp_path).parent / ".s.json.new").write_text("half of a")
    ended = midspan("ask", "-m", "offline", "-c", "What is 3 + 3?", home=tmp_path)
    assert ended.code == 0, ended.err
    assert len(from_json(session_file(tmp_path).read_bytes(), "messages")) == 8


def test_state_directory_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file, not a directory")
    ended = midspan("ask", "-m", "offline", "--session", "s", "What is 2 + 2?", home=tmp_path)
    assert ended.code == 2
    assert "Traceback" not in ended.err


SLOW = '''
import asyncio, sys
from midspan import tool

@tool(timeout=None)
async def slow_backup(name: str) -> str:
    """Run the slow backup of a database."""
    print("it runs", file=sys.stderr, flush=True)
    await asyncio.sleep(60)
'''


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_calls_of_a_cancelled_run_are_saved_with_a_result_for_each(tmp_path: Path, number: int) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    arguments = ["ask", "-m", "offline", "-t", "slow.py", "--session", "s", "Run the slow backup of 'orders'"]
    process = started(*arguments, home=tmp_path)
    assert process.stderr is not None
    assert any(line == "it runs\n" for line in process.stderr)
    process.send_signal(number)
    process.communicate(timeout=BOUND)
    assert process.returncode == 128 + number
    asked, called, answered = from_json(session_file(tmp_path).read_bytes(), "messages")
    assert asked.text
    assert [call.id for call in called.calls] == [result.id for result in answered.results]
    assert answered.results[0].is_error


def test_killed_process_leaves_the_conversation_unchanged(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    midspan("ask", "-m", "offline", "--session", "s", "What is 2 + 2?", home=tmp_path)
    before = session_file(tmp_path).read_bytes()
    arguments = ["ask", "-m", "offline", "-t", "slow.py", "--session", "s", "Run the slow backup of 'orders'"]
    process = started(*arguments, home=tmp_path)
    assert process.stderr is not None
    assert any(line == "it runs\n" for line in process.stderr)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=BOUND)
    assert session_file(tmp_path).read_bytes() == before


@pytest.mark.parametrize("command", ["ask", "chat"])
def test_model_is_not_asked_if_the_conversation_cannot_be_saved(tmp_path: Path, command: str) -> None:
    (session_file(tmp_path).parent / ".s.json.new").mkdir(parents=True)
    ended = midspan(command, "-m", "offline", "--session", "s", home=tmp_path, stdin="What is 2 + 2?")
    assert (ended.code, ended.out) == (2, "")
    assert "cannot save the conversation" in ended.err
    assert "calculate" not in ended.err
