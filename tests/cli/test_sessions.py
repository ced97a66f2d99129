"""Conversations that are saved between commands."""

import json
import os
import signal
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.bounds import BOUND
from tests.cli.terminal import MIDSPAN, conversation, environment, midspan, started
from tests.gemini.recorder import Recorder, recorder


class Echo(Recorder):
    """Answers with the number of contents in the request."""

    def next(self) -> tuple[int, bytes, dict[str, str]]:
        text = f"{len(self.last.body['contents'])} contents"
        part: dict[str, Any] = {"content": {"role": "model", "parts": [{"text": text}]}, "finishReason": "STOP"}
        body = b"data: %b\r\n\r\n" % json.dumps({"candidates": [part]}).encode()
        return 200, body, {"content-type": "text/event-stream"}


def log_file(home: Path) -> Path:
    return home / "state" / "midspan" / "runs.db"


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
    assert len(conversation(tmp_path, "s")) == 6


def test_question_that_led_to_nothing_is_not_saved(tmp_path: Path) -> None:
    with recorder() as record:
        record.answer({"error": {"code": 404, "status": "NOT_FOUND", "message": "no such model"}}, status=404)
        where = {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": record.url}
        assert midspan("ask", "--session", "s", "hi", home=tmp_path, **where).code == 1
    assert conversation(tmp_path, "s") == ()


def test_only_the_owner_can_read_a_conversation(tmp_path: Path) -> None:
    midspan("ask", "-m", "offline", "--session", "s", "What is 2 + 2?", home=tmp_path)
    assert stat.S_IMODE(log_file(tmp_path).stat().st_mode) == 0o600
    assert stat.S_IMODE(log_file(tmp_path).parent.stat().st_mode) == 0o700


def test_concurrent_commands_all_save_their_messages(tmp_path: Path) -> None:
    arguments = ["ask", "-m", "offline", "--session", "s", "What is 2 + 2?"]
    processes = [started(*arguments, home=tmp_path) for _ in range(4)]
    for process in processes:
        process.communicate(timeout=BOUND)
    messages = conversation(tmp_path, "s")
    assert [process.returncode for process in processes] == [0] * 4
    assert len(messages) == 4 * 4
    for at in range(0, len(messages), 4):
        assert [message.role for message in messages[at : at + 4]] == ["user", "model", "user", "model"]


@pytest.mark.parametrize("swept", [True, False])
@pytest.mark.parametrize(("named", "code"), [(True, 2), (False, 0)])
def test_damaged_log_is_an_error_only_for_conversations(tmp_path: Path, named: bool, code: int, swept: bool) -> None:
    log_file(tmp_path).parent.mkdir(parents=True)
    if swept:
        log_file(tmp_path).with_name("runs.swept").touch()
    log_file(tmp_path).write_text("this is not a database, " * 100)
    session = ["--session", "s"] if named else []
    ended = midspan("ask", "-m", "offline", *session, "What is 2 + 2?", home=tmp_path)
    assert (ended.code, bool(ended.out)) == (code, not named)
    assert "Traceback" not in ended.err
    assert ("this conversation is not logged" in ended.err) is not named
    assert f"cannot use {log_file(tmp_path)} as a journal: file is not a database" in ended.err
    chat = midspan("chat", "-m", "offline", *session, home=tmp_path, stdin="What is 2 + 2?")
    assert (chat.code, bool(chat.out)) == (code, not named)
    assert log_file(tmp_path).read_text().startswith("this is not a database")


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
    assert process.returncode == 130
    asked, called, answered = conversation(tmp_path, "s")
    assert asked.text
    assert [call.id for call in called.calls] == [result.id for result in answered.results]
    assert answered.results[0].is_error


def test_killed_process_leaves_what_it_did_in_the_log(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    midspan("ask", "-m", "offline", "--session", "s", "What is 2 + 2?", home=tmp_path)
    arguments = ["ask", "-m", "offline", "-t", "slow.py", "--session", "s", "Run the slow backup of 'orders'"]
    process = started(*arguments, home=tmp_path)
    assert process.stderr is not None
    assert any(line == "it runs\n" for line in process.stderr)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=BOUND)
    messages = conversation(tmp_path, "s")
    assert [message.role for message in messages[4:]] == ["user", "model", "user"]
    assert messages[-1].results[0].is_error
    shown = json.loads(midspan("runs", "show", "--json", home=tmp_path).out)
    assert (shown["state"], shown["tool_calls"][0]["name"]) == ("unfinished", "slow_backup")


@pytest.mark.parametrize("arguments", [["--session", "s"], ["-c"]])
def test_conversation_needs_the_log(tmp_path: Path, arguments: list[str]) -> None:
    ended = midspan("ask", "-m", "offline", "--no-log", *arguments, "hi", home=tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert "cannot be continued without the log" in ended.err


def test_sigterm_ends_a_command_that_a_shell_started_in_the_background(tmp_path: Path) -> None:
    command = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", *MIDSPAN, "emulate", "--port", "0"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(tmp_path)
    )
    assert process.stdout is not None
    assert "http://127.0.0.1" in process.stdout.readline() + process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=BOUND)
