"""`midspan ask`, as a user runs it."""

import gzip
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from midspan._cli.interrupts import InterruptibleRunner
from midspan._cli.text import error_sentence
from midspan.errors import CredentialsError
from tests.bounds import BOUND
from tests.cli.terminal import MIDSPAN, SHELL_MIDSPAN, Terminal, conversation, environment, midspan, started
from tests.gemini.recorder import recorder

QUESTION = "What is 17.5% of 2480, and what time is it in Tokyo?"
TOOLS = '''
import asyncio, subprocess, sys, time
from midspan import tool

print("loading")

@tool(read_only=True)
def stock_level(item: str) -> int:
    """How many pieces of an item are in stock.

    Args:
        item: The item.
    """
    print("noise")
    subprocess.run(["echo", "noise of a child"])
    return {"lamp": 12}[item]

@tool(timeout=None, reads="*")
async def slow_backup(name: str) -> str:
    """Run the slow backup of a database.

    Args:
        name: The database.
    """
    try:
        print("it runs", file=sys.stderr, flush=True)
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        print("it was cancelled", file=sys.stderr, flush=True)
        raise

@tool(timeout=None, reads="*")
async def frozen_import(name: str) -> str:
    """Run the frozen import of a file.

    Args:
        name: The file.
    """
    print("it runs", file=sys.stderr, flush=True)
    time.sleep(60)

@tool(timeout=None, reads="*")
def blocking_export(name: str) -> str:
    """Run the blocking export of a table.

    Args:
        name: The table.
    """
    print("it runs", file=sys.stderr, flush=True)
    time.sleep(60)
'''


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(TOOLS)
    return tmp_path


def response(*parts: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, "finishReason": "STOP"}]}


def test_answer_is_on_stdout_and_calls_are_on_stderr(home: Path) -> None:
    ended = midspan("ask", "--model", "offline", QUESTION, home=home)
    assert ended.code == 0
    assert "434" in ended.out
    assert "→" not in ended.out
    assert "calculate(" in ended.err
    assert "get_time(" in ended.err
    assert "offline model answers" not in ended.err, "the model was named"


def test_without_model_and_key_the_first_line_announces_the_offline_model(home: Path) -> None:
    ended = midspan("ask", "What is 2 + 2?", home=home)
    assert ended.code == 0
    assert "the offline model answers, with read-only tools only" in ended.err.splitlines()[0]
    assert "For a language model set GEMINI_API_KEY, ANTHROPIC_API_KEY, OPENAI_API_KEY or another provider" in ended.err
    assert ended.err.count("offline model") == 1
    assert ended.out == "calculate: result: 4, is exact: yes.\n"


WRITING = '''
from midspan import tool

@tool
def delete_user(user_id: int) -> str:
    """Delete a user."""
    return f"deleted {user_id}"

@tool(reads="users")
def count_users(city: str) -> int:
    """How many users live in a city."""
    return 7
'''


def test_fallback_runs_only_read_only_tools_unless_yes_is_given(home: Path) -> None:
    (home / "users.py").write_text(WRITING)
    command = ["ask", "-t", "users.py", "--json"]
    read = json.loads(midspan(*command, "How many users live in Oslo?", home=home).out)
    assert [call["result"] for call in read["tool_calls"]] == [7]
    refused = json.loads(midspan(*command, "Delete user 2", home=home).out)
    assert (refused["tool_calls"], "delete_user" in refused["answer"]) == ([], False)
    allowed = midspan(*command, "--yes", "Delete user 2", home=home)
    assert [call["result"] for call in json.loads(allowed.out)["tool_calls"]] == ["deleted 2"]
    assert "read-only" not in allowed.err
    named = json.loads(midspan(*command, "-m", "offline", "Delete user 2", home=home).out)
    assert [call["result"] for call in named["tool_calls"]] == ["deleted 2"]


def test_json_is_one_object_with_calls_and_usage(home: Path) -> None:
    ended = midspan("ask", "--model", "offline", "--json", QUESTION, home=home)
    report = json.loads(ended.out)
    assert report["error"] is None
    assert report["turns"] == 2
    assert report["run_id"].startswith("run_")
    assert report["usage"]["total"] > 0
    assert [call["name"] for call in report["tool_calls"]] == ["calculate", "get_time"]
    assert report["tool_calls"][0]["result"] == {"result": "434", "is_exact": True}
    assert report["tool_calls"][0]["duration_seconds"] >= 0


def test_json_is_printed_if_the_run_fails(home: Path) -> None:
    ended = midspan("ask", "--model", "offline", "--json", "--max-turns", "1", "What is 2 + 2?", home=home)
    assert ended.code == 124
    report = json.loads(ended.out)
    assert report["error"]["type"] == "LimitReachedError"
    assert report["answer"] is None
    assert report["run_id"]
    assert (
        json.loads(midspan("ask", "--json", "-m", "gemini", "hi", home=home).out)["error"]["type"] == "CredentialsError"
    )


@pytest.mark.parametrize("command", [("ask", "--model", "offline"), ("--model", "offline"), ()])
def test_words_after_two_dashes_are_the_question(home: Path, command: tuple[str, ...]) -> None:
    ended = midspan(*command, "--", "--what", "is", "2 + 2?", home=home)
    assert (ended.code, "4" in ended.out) == (0, True)


def test_piped_text_is_put_before_the_question(home: Path) -> None:
    with recorder() as record:
        record.answer_stream(response({"text": "short"}))
        where = {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": record.url}
        ended = midspan("ask", "summarise", "this", "--no-tools", home=home, stdin="a long text\n", **where)
        assert (ended.code, ended.out) == (0, "short\n")
        assert record.last.body["contents"][0]["parts"] == [{"text": "a long text\n\nsummarise this"}]
        assert "tools" not in record.last.body


@pytest.mark.parametrize("question", ["東京の天気は?", "2+2", "Hello!", "summarise"])
def test_word_that_cannot_be_a_command_is_a_question(home: Path, question: str) -> None:
    assert midspan(question, home=home).code == 0


def test_word_that_is_almost_a_command_is_not_sent_to_the_model(home: Path) -> None:
    ended = midspan("doctro", home=home)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == "midspan: unknown command doctro; use midspan doctor, or midspan ask doctro\n"
    assert midspan("ask", "doctro", home=home).code == 0


def test_input_that_is_too_large_for_any_model_is_refused(home: Path) -> None:
    file = home / "large.txt"
    file.touch()
    os.truncate(file, 50_000_001)
    named = midspan("ask", "-m", "offline", "What is it?", "-f", "large.txt", home=home)
    assert (named.code, named.err) == (2, "midspan: large.txt has more than 50,000,000 bytes, too much for any model\n")
    piped = midspan("ask", "-m", "offline", home=home, stdin=file.read_bytes())
    assert (piped.code, piped.err) == (2, "midspan: stdin has more than 50,000,000 bytes, too much for any model\n")


def test_files_and_the_system_prompt_are_sent(home: Path) -> None:
    (home / "notes.txt").write_text("remember the milk")
    with recorder() as record:
        record.answer_stream(response({"text": "milk"}))
        where = {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": record.url}
        ended = midspan("ask", "what?", "--file", "notes.txt", "--system", "Be brief.", home=home, **where)
        assert ended.code == 0, ended.err
        assert record.last.body["contents"][0]["parts"] == [{"text": "what?"}, {"text": "remember the milk"}]
        assert record.last.body["systemInstruction"]["parts"] == [{"text": "Be brief."}]


LEAVING = '''
import sys
from midspan import tool

@tool(read_only=True)
def stock_count(item: str) -> int:
    """How many of an item are in stock."""
    sys.exit({code})
'''


@pytest.mark.parametrize("code", ["7", "", "'broken'"])
def test_a_tool_that_exits_ends_the_command_with_one_sentence(home: Path, code: str) -> None:
    (home / "leaving.py").write_text(LEAVING.replace("{code}", code))
    arguments = ["ask", "-m", "offline", "-t", "leaving.py", "How many 'lamps' are in stock?"]
    ended = midspan(*arguments, home=home)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.endswith(f"a tool ended the program with SystemExit({code or None})\n")
    assert "Traceback" not in ended.err
    (run,) = json.loads(midspan("runs", "--json", home=home).out)
    assert run["error"]["type"] == "SystemExit", "the end of the run is logged"
    chat = midspan("chat", *arguments[1:-1], home=home, stdin=arguments[-1])
    assert (chat.code, chat.err.count("\n")) == (1, 2), chat.err
    document = midspan(*arguments, "--json", home=home)
    sentence = f"a tool ended the program with SystemExit({code or None})"
    assert (document.code, json.loads(document.out)["error"]) == (1, {"type": "SystemExit", "message": sentence})


def test_output_of_tools_goes_to_stderr(home: Path) -> None:
    ended = midspan(
        "ask", "-m", "offline", "-t", "mine.py", "--json", "How many of the item 'lamp' are in stock?", home=home
    )
    assert ended.code == 0
    assert json.loads(ended.out)["tool_calls"][0]["result"] == 12
    assert "noise of a child" in ended.err


PLAIN = '''
from midspan import tool

@tool(read_only=True)
def stock_level(item: str) -> int:
    """How many pieces of an item are in stock."""
    return 3
'''
CHOSEN = '''
@tool(read_only=True)
def stock_count(item: str) -> int:
    """How many pieces of an item are in stock."""
    return 4

tools = [stock_count]
'''


@pytest.mark.parametrize(("text", "result"), [(PLAIN, 3), (PLAIN + CHOSEN, 4)])
def test_tools_of_a_file_are_its_functions_or_its_tools_list(home: Path, text: str, result: int) -> None:
    (home / "plain.py").write_text(text)
    question = "How many pieces of the item 'lamp' are in stock?"
    for where in ("plain.py", "plain"):
        ended = midspan("ask", "-m", "offline", "--tools", where, "--json", question, home=home)
        assert [call["result"] for call in json.loads(ended.out)["tool_calls"]] == [result], ended.err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["ask"], 2, "there is no question"),
        ([""], 2, "there is no question"),
        (["ask", "-m", "nonsense", "hi"], 2, "'nonsense'"),
        (["ask", "-m", "offline:x", "hi"], 2, "'offline' has only one model; use 'offline' instead of 'offline:x'"),
        (["ask", "-m", "", "hi"], 2, "the model is empty"),
        (["ask", "-m", "offline", "--prompt-mode", "hi"], 2, "the model 'offline' does not support prompt mode"),
        (["ask", "-m", "nobody:x", "hi"], 2, "unknown provider 'nobody'"),
        (["ask", "-m", "gemini:gemini-3.8-flash", "hi"], 3, "GEMINI_API_KEY"),
        (["ask", "-t", "nope.py", "hi"], 2, "'nope.py'"),
        (["ask", "-t", "nope", "hi"], 2, "no module 'nope'"),
        (["ask", "-t", "..", "hi"], 2, "'..'"),
        (["ask", "-t", "raises.py", "hi"], 2, "ZeroDivisionError: division by zero (raises.py, line 1)"),
        (["ask", "-t", "leaves.py", "hi"], 2, "SystemExit"),
        (["ask", "-t", "syntax.py", "hi"], 2, "line 1"),
        (["ask", "-t", "empty.py", "hi"], 2, "no tools in 'empty.py'"),
        (["ask", "-t", "number.py", "hi"], 2, "`tools` in 'number.py' is 5; make it a list of functions"),
        (["ask", "-t", "named.py", "hi"], 2, "`tools` in 'named.py' is {'f': 1}; make it a list"),
        (["ask", "-t", "box.py", "hi"], 2, "; make it a list of functions or a source of tools"),
        (["ask", "-t", "wrong.py", "hi"], 2, "cannot use the tools in 'wrong.py': 5 is not a tool"),
        (["ask", "-m", "offline", "--system", "half \udcff", "hi"], 2, "system is not valid Unicode"),
        (["ask", "-m", "offline", "-f", "nope.txt"], 2, "there is no question; pass one, in addition to the files"),
        (["ask", "-m", "offline", "-f", "nope.txt", "hi"], 2, "'nope.txt' cannot be read: No such file or directory"),
        (["ask", "-m", "offline", "-f", ".", "hi"], 2, "'.'"),
        (["ask", "-m", "offline", "-f", "~nobody-here/x", "hi"], 2, "unknown user in the path '~nobody-here/x'"),
        (
            ["ask", "--schema", "~nobody-here/x.json", "hi"],
            2,
            "midspan: unknown user in the path '~nobody-here/x.json'",
        ),
        (["ask", "-t", "~nobody-here/x.py", "hi"], 2, "midspan: unknown user in the path '~nobody-here/x.py'"),
        (["ask", "--mcp", "~nobody-here/x", "hi"], 2, "unknown user in the path '~nobody-here/x'"),
        (["serve", "--config", "~nobody-here/x"], 2, "unknown user in the path '~nobody-here/x'"),
        (["ask", "-c", "hi"], 2, "no conversation to continue"),
        (
            ["ask", "-m", "offline", "--max-turns", "0", "hi"],
            2,
            "argument --max-turns: '0' is not a number from 1 to 1000000000",
        ),
        (["runs", "-n", "-3"], 2, "argument -n/--number: '-3' is not a number from 1 to 1000000000"),
        (["runs", "list", "2a4c53"], 2, "midspan runs list takes no ids; midspan runs show 2a4c53 shows a run"),
        (["mcp", "list", "a"], 2, "midspan mcp list takes no arguments, got 'a'"),
        (
            ["mcp", "list", "--http", "80", "-t", "x"],
            2,
            "--tools, --http and --allowed-host are options of midspan mcp",
        ),
        (["mcp", "serve", "tools.py"], 2, "midspan mcp serve takes no arguments, got 'tools.py'"),
        (["ask", "--max-turns", "1", "-m", "offline", "What is 2 + 2?"], 124, "Maximum"),
        (["ask", "-m", "offline", "-f", "binary", "hi"], 2, "media type of 'binary', which is not UTF-8 text"),
        (["ask", "-m", "offline", "-f", "photo.png.gz", "hi"], 2, "cannot guess the media type of 'photo.png.gz'"),
    ],
)
def test_wrong_arguments_are_reported_in_one_sentence_with_an_exit_code(
    home: Path, arguments: list[str], code: int, words: str
) -> None:
    (home / "raises.py").write_text("1 / 0")
    (home / "leaves.py").write_text("import sys\nsys.exit(7)")
    (home / "syntax.py").write_text("def f(:")
    (home / "empty.py").write_text("")
    (home / "binary").write_bytes(b"\xff\x00")
    (home / "photo.png.gz").write_bytes(gzip.compress(b"a photo"))
    (home / "number.py").write_text("tools = 5")
    (home / "named.py").write_text("tools = {'f': 1}")
    (home / "wrong.py").write_text("tools = [5]")
    (home / "box.py").write_text("from midspan.tools.toolbox import Toolbox\ntools = Toolbox()")
    ended = midspan(*arguments, home=home)
    assert ended.code == code, ended.err
    assert ended.out == ""
    assert words in ended.err
    assert "Traceback" not in ended.err
    assert len([line for line in ended.err.splitlines() if line.startswith("midspan")]) == 1


@pytest.mark.parametrize(
    "arguments", [["ask", "-m", "gemini", "hi"], ["ask", "-m", "gemini", "--json", "hi"], ["emulate", "-m", "gemini"]]
)
def test_missing_key_is_reported_with_advice_for_a_shell(home: Path, arguments: list[str]) -> None:
    ended = midspan(*arguments, home=home)
    assert ended.code == 3
    assert "no Gemini API key: set GOOGLE_API_KEY or GEMINI_API_KEY" in ended.err
    assert "--model" in ended.err
    assert "api_key=" not in ended.err + ended.out


def test_error_with_a_shell_message_is_described_by_it() -> None:
    error = CredentialsError("no key: give api_key=…")
    assert error_sentence(error) == "no key: give api_key=…"
    error.shell_message = "no key: set\n SOME_KEY"
    assert error_sentence(error) == "no key: set SOME_KEY"


def test_missing_vertex_credentials_are_reported_with_advice_for_a_shell(home: Path) -> None:
    ended = midspan("ask", "-m", "gemini", "hi", home=home, GOOGLE_GENAI_USE_VERTEXAI="true")
    assert (ended.code, "gcloud auth" in ended.err) == (3, True), ended.err


def test_verbose_shows_the_traceback(home: Path) -> None:
    (home / "raises.py").write_text("1 / 0")
    assert "Traceback" in midspan("ask", "-v", "-t", "raises.py", "hi", home=home).err


def test_rejected_key_has_exit_code_three_and_is_never_shown(home: Path) -> None:
    with recorder() as record:
        refusal = {
            "code": 400,
            "status": "INVALID_ARGUMENT",
            "message": "API key not valid. Please pass a valid API key.",
        }
        record.answer({"error": {**refusal, "details": [{"reason": "API_KEY_INVALID"}]}}, status=400)
        where = {"GEMINI_API_KEY": "very-secret", "GOOGLE_GEMINI_BASE_URL": record.url}
        ended = midspan("ask", "-vv", "hi", home=home, **where)
    assert ended.code == 3, ended.err
    assert "very-secret" not in ended.err


def test_invalid_key_has_exit_code_three(home: Path) -> None:
    for command in (["ask", "hi"], ["ask", "-m", "gemini", "hi"], ["models"]):
        ended = midspan(*command, home=home, GEMINI_API_KEY="schlüssel")
        assert (ended.code, ended.out) == (3, ""), ended.err
        assert "the API key contains invalid characters" in ended.err
    assert midspan("ask", "-m", "offline", "hi", home=home, GEMINI_API_KEY="schlüssel").code == 0


def test_exception_in_a_tool_is_one_sentence_and_with_verbose_a_traceback(home: Path) -> None:
    question = ["ask", "-m", "offline", "-t", "mine.py", "How many of the item 'sofa' are in stock?"]
    brief, verbose = midspan(*question, home=home), midspan("ask", "-v", *question[1:], home=home)
    assert "midspan: tool stock_level raised KeyError; use -v to see the traceback\n" in brief.err
    assert "Traceback" not in brief.err
    assert "✗ stock_level: failed: KeyError: 'sofa' (" in brief.err, "without the name of the tool twice"
    assert "Traceback (most recent call last):\n" in verbose.err
    assert '    return {"lamp": 12}[item]\n' in verbose.err


def test_json_output_is_valid_in_any_encoding(home: Path) -> None:
    (home / "plain.py").write_text(PLAIN.replace("return 3", "return '🌍'").replace("-> int", "-> str"), "utf-8")
    question = "How many pieces of the item '🌍' are in stock?"
    ended = midspan("ask", "-m", "offline", "-t", "plain.py", "--json", question, home=home, PYTHONIOENCODING="latin-1")
    call = json.loads(ended.out)["tool_calls"][0]
    assert (call["arguments"], call["result"]) == ({"item": "🌍"}, "🌍")


def test_characters_that_cannot_be_encoded_are_escaped(home: Path) -> None:
    ended = midspan("ask", "-m", "offline", "What is 2 + 2?", home=home, PYTHONIOENCODING="ascii")
    assert [line.split(" ")[0] for line in ended.err.splitlines()] == ["\\u2192", "\\u2190"]


def test_json_names_the_limit_and_the_calls_that_were_not_run(home: Path) -> None:
    ended = midspan("ask", "-m", "offline", "--json", "--max-turns", "1", "What is 2 + 2?", home=home)
    report = json.loads(ended.out)
    assert (ended.code, report["limit"]) == (124, "max_turns")
    assert [(call["name"], call["result"]) for call in report["tool_calls"]] == [("calculate", None)]


def test_wrong_arguments_are_reported_by_the_parser_and_later_errors_as_json(home: Path) -> None:
    ended = midspan("ask", "--json", "--max-turns", "x", "hi", home=home)
    assert (ended.code, "usage: midspan ask" in ended.err, "--max-turns" in ended.err) == (2, True, True)
    assert "nope.py" in json.loads(midspan("tools", "--json", "-t", "nope.py", home=home).out)["error"]["message"]
    report = json.loads(midspan("ask", "--json", "-t", "nope.py", "hi", home=home).out)
    assert (report["answer"], report["error"]["type"]) == (None, "ConfigError")


STUBBORN = '''
import asyncio, sys
from midspan import tool

@tool(timeout=None)
async def slow_backup(name: str) -> str:
    """Run the slow backup of a database."""
    print("it runs", file=sys.stderr, flush=True)
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            print("not me", file=sys.stderr, flush=True)
'''


def test_tool_that_ignores_its_cancellation_is_abandoned_and_the_call_is_saved(home: Path) -> None:
    (home / "stubborn.py").write_text(STUBBORN)
    question = ["-m", "offline", "-t", "stubborn.py", "--session", "s", "Run the slow backup of 'orders'"]
    process = started("ask", *question, home=home)
    assert process.stderr is not None
    assert any(line == "it runs\n" for line in process.stderr)
    process.send_signal(signal.SIGINT)
    out, rest = process.communicate(timeout=BOUND)
    assert (process.returncode, out) == (130, ""), rest
    assert "tool slow_backup was cancelled but did not end; it was abandoned" in rest
    assert "Traceback" not in rest
    assert conversation(home, "s")[1].calls[0].name == "slow_backup"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_second_interrupt_saves_the_call_too(home: Path, number: int) -> None:
    (home / "stubborn.py").write_text(STUBBORN)
    question = ["-m", "offline", "-t", "stubborn.py", "--session", "s", "Run the slow backup of 'orders'"]
    process = started("ask", *question, home=home)
    assert process.stderr is not None
    assert any(line == "it runs\n" for line in process.stderr)
    process.send_signal(number)
    assert any(line == "not me\n" for line in process.stderr)
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
    assert process.returncode == 130
    process.communicate(timeout=BOUND)
    assert conversation(home, "s")[1].calls[0].name == "slow_backup"


def test_failed_run_has_exit_code_one(home: Path) -> None:
    with recorder() as record:
        record.answer({"error": {"code": 404, "status": "NOT_FOUND", "message": "no such model"}}, status=404)
        where = {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": record.url}
        ended = midspan("ask", "-m", "gemini:nope", "hi", home=home, **where)
    assert (ended.code, ended.out) == (1, "")
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("question", ["Run the slow backup of 'orders'", "Run the blocking export of 'orders'"])
def test_interrupt_during_a_tool_has_exit_code_130(home: Path, question: str) -> None:
    process = started("ask", "-m", "offline", "-t", "mine.py", question, home=home)
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if line == "it runs\n":
            break
    process.send_signal(signal.SIGINT)
    out, rest = process.communicate(timeout=BOUND)
    assert process.returncode == 130, "".join([*lines, rest])
    assert out == ""
    assert "Traceback" not in rest
    assert ("it was cancelled" in rest) == ("slow" in question)
    assert "effect" not in rest  # both only read
    assert midspan("runs", "show", home=home).out.endswith("\ncancelled\n")
    [logged] = json.loads(midspan("runs", "--json", home=home).out)
    assert logged["error"] == {"type": "cancelled", "message": "cancelled"}


def test_second_interrupt_ends_a_tool_that_blocks_the_event_loop(home: Path) -> None:
    process = started("ask", "-m", "offline", "-t", "mine.py", "Run the frozen import of 'orders'", home=home)
    assert process.stderr is not None
    assert any(line == "it runs\n" for line in process.stderr)
    ended = None
    for _ in range(int(BOUND / 0.5)):
        process.send_signal(signal.SIGINT)
        try:
            ended = process.wait(0.5)
            break
        except subprocess.TimeoutExpired:
            continue  # it is pressed again, as a user would
    out, rest = process.communicate(timeout=BOUND)
    assert (ended, out) == (130, "")
    assert "Traceback" not in rest


@pytest.mark.skipif(sys.platform == "win32", reason="there, the event loop always wakes up")
def test_signals_wake_the_event_loop_of_a_run() -> None:
    async def wakeup_descriptor() -> int:
        descriptor = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(descriptor)
        return descriptor

    with InterruptibleRunner() as runner:
        assert runner.run(wakeup_descriptor()) != -1
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


WITHOUT_SIGNAL_HANDLERS = """
import asyncio, sys

class Loop(asyncio.SelectorEventLoop):
    def add_signal_handler(self, *arguments):
        raise NotImplementedError  # as on Windows

class Policy(asyncio.DefaultEventLoopPolicy):
    def new_event_loop(self):
        return Loop()

asyncio.set_event_loop_policy(Policy())
from midspan._cli.main import main
sys.exit(main())
"""


def test_interrupts_work_where_event_loops_have_no_signal_handlers(home: Path) -> None:
    command = [
        sys.executable,
        "-W",
        "ignore::DeprecationWarning",
        "-c",
        WITHOUT_SIGNAL_HANDLERS,
        "ask",
        "-m",
        "offline",
    ]
    settings: dict[str, Any] = {"cwd": home, "env": environment(home), "stdin": subprocess.DEVNULL, "text": True}
    answered = subprocess.run([*command, "What is 2 + 2?"], capture_output=True, timeout=BOUND, **settings)
    assert (answered.returncode, "result: 4" in answered.stdout) == (0, True), answered.stderr
    question = ["-t", "mine.py", "Run the slow backup of 'orders'"]
    process = subprocess.Popen([*command, *question], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **settings)
    assert process.stderr is not None
    assert any(line == "it runs\n" for line in process.stderr)
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=BOUND)
    assert (process.returncode, "it was cancelled" in rest) == (130, True), rest


def test_json_is_printed_after_an_interrupt(home: Path) -> None:
    process = started("ask", "-m", "offline", "-t", "mine.py", "--json", "Run the slow backup of 'orders'", home=home)
    assert process.stderr is not None
    assert any(line == "it runs\n" for line in process.stderr)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=BOUND)
    report = json.loads(out)
    assert (process.returncode, report["error"]["type"]) == (130, "Interrupted")
    assert report["tool_calls"][0]["result"] is None


def test_closed_pipe_is_not_an_error(home: Path) -> None:
    for redirect in ("", "2>&1"):
        command = (
            f"{SHELL_MIDSPAN} ask -m offline --json '{QUESTION}' {redirect} | head -c 0; echo ${{PIPESTATUS[0]}} >&2"
        )
        ran = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, cwd=home, env=environment(home), timeout=30
        )
        complaints = [line for line in ran.stderr.splitlines() if line[:1] not in "→←"]
        assert complaints == ["0"]


@pytest.mark.parametrize("arguments", [["ask", "-m", "offline", "What is 2 + 2?"], ["tools", "--json"]])
def test_full_disk_is_reported(home: Path, arguments: list[str]) -> None:
    if not os.path.exists("/dev/full"):  # noqa: PTH110 - a device of Linux
        pytest.skip("this system has no /dev/full")
    with open("/dev/full", "w") as full:  # noqa: PTH123 - as above
        command = [*MIDSPAN, *arguments]
        ran = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment(home), timeout=BOUND
        )
    assert ran.returncode == 1
    assert "midspan: No space left on device" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(("closed", "stdout"), [("<&- 2>&-", "4"), (">&-", "")])
def test_closed_standard_streams_are_accepted(home: Path, closed: str, stdout: str) -> None:
    command = f"{SHELL_MIDSPAN} ask -m offline 'What is 2 + 2?' {closed}"
    ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment(home), timeout=BOUND)
    assert ran.returncode == 0
    assert stdout in ran.stdout
    assert "Traceback" not in ran.stderr


def test_piped_bytes_that_are_not_utf8_are_an_error(home: Path) -> None:
    ended = midspan("ask", "-m", "offline", "what?", home=home, stdin=b"\xff\xfe\x00\x80")
    assert ended.code == 2
    assert "UTF-8" in ended.err


def test_narrow_terminal_shows_each_call_on_lines_of_its_own(home: Path) -> None:
    terminal = Terminal("ask", "-m", "offline", QUESTION, home=home, columns=60)
    try:
        code, seen = terminal.end()
    finally:
        terminal.close()
    assert code == 0
    assert "← calculate" in seen
    assert "434" in seen
    assert "…" in seen, "the result of get_time is wider than the terminal"
    assert "\x1b[3" in seen, "in colour"


def test_notices_are_wrapped_between_words_and_answers_are_as_the_model_wrote_them(home: Path) -> None:
    text = "abcdefgh " * 20
    with recorder() as record:
        record.answer_stream(response({"text": text}))
        where = {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": record.url}
        answering = Terminal("ask", "--no-tools", "hi", home=home, columns=60, **where)
        offline = Terminal("ask", "hi", home=home, columns=60)
        try:
            _, answer = answering.end()
            _, notice = offline.end()
        finally:
            answering.close()
            offline.close()
    assert text in answer
    assert "no model is named and no key is set, so the offline\r\n  model" in notice


def test_lines_have_the_width_of_their_own_terminal_if_the_other_stream_is_redirected(home: Path) -> None:
    failing = Terminal("ask", home=home, columns=120, redirected="stdout")
    try:
        _, error = failing.end()
    finally:
        failing.close()
    assert error == 'midspan: there is no question; pass one, for example midspan "What is 2 + 2?", or pipe one in\r\n'


def test_no_color_turns_colors_off(home: Path) -> None:
    terminal = Terminal("ask", "-m", "offline", "What is 2 + 2?", home=home, NO_COLOR="1")
    try:
        _, seen = terminal.end()
    finally:
        terminal.close()
    assert "\x1b[32m" not in seen
    assert "\x1b[31m" not in seen


def test_control_characters_of_a_model_are_escaped(home: Path) -> None:
    with recorder() as record:
        record.answer_stream(response({"text": "\x1b[2Jgone\x9b2J"}))
        where = {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": record.url}
        terminal = Terminal("ask", "hi", home=home, **where)
        try:
            code, seen = terminal.end()
        finally:
            terminal.close()
    assert code == 0
    assert "\x1b[2J" not in seen
    assert "\\x1b[2Jgone" in seen


def test_recorded_run_becomes_a_test_that_passes(home: Path) -> None:
    asked = midspan(
        "ask", "-m", "offline", "-t", "mine.py", "--record", "tape", "How many of 'lamp' are in stock?", home=home
    )
    assert (asked.code, "12" in asked.out) == (0, True)
    (home / "shop.py").write_text(
        "from mine import blocking_export, frozen_import, slow_backup, stock_level\nfrom midspan import Agent\n"
        'agent = Agent("offline", [stock_level, slow_backup, frozen_import, blocking_export])\n'
    )
    frozen = midspan("freeze", "tape", "--agent", "shop:agent", home=home)
    assert (frozen.code, frozen.err) == (0, ""), "the module is not imported"
    (home / "test_shop.py").write_text(frozen.out)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shop.py"]
    ran = subprocess.run(
        command, cwd=home, env=environment(home, PYTHONPATH=str(home)), capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_prompt_mode_describes_the_tools_in_the_prompt(home: Path) -> None:
    with recorder() as record:
        record.answer_stream(response({"text": 'TOOL_CALL: stock_level({"item": "lamp"})'}))
        record.answer_stream(response({"text": "Twelve."}))
        ended = midspan(
            "ask", "-m", "gemini:gemini-3.8-flash", "-t", "mine.py", "--prompt-mode", "How many lamps?",
            home=home, GEMINI_API_KEY="k", GOOGLE_GEMINI_BASE_URL=record.url,
        )  # fmt: skip
        assert (ended.code, ended.out) == (0, "Twelve.\n")
        assert "tools" not in record.seen[0].body
        assert "TOOL_CALL[" in json.dumps(record.seen[0].body["systemInstruction"])


CLOSABLE = """
from midspan.tools import ToolListing, ToolSource

class Source(ToolSource):
    async def list_tools(self):
        return ToolListing()

    async def call(self, call, context):
        raise AssertionError

    async def aclose(self):
        print("the source is closed")

tools = Source()
"""


@pytest.mark.parametrize("more", [(), ("--prompt-mode",), ("--record", "tape")])
def test_tool_sources_are_closed_at_the_end(home: Path, more: tuple[str, ...]) -> None:
    (home / "source.py").write_text(CLOSABLE)
    with recorder() as record:
        record.answer_stream(response({"text": "Yes."}))
        where = {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": record.url}
        ended = midspan("ask", "-t", "source.py", *more, "hi", home=home, **where)
    assert (ended.code, ended.out, ended.err) == (0, "Yes.\n", "the source is closed\n")
