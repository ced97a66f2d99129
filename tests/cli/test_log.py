"""What the terminal keeps: the log of runs, and keys."""

import asyncio
import json
import os
import sqlite3
import stat
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from midspan._cli.conversation import LogEntry
from midspan._types.events import RunStart, TurnStart
from midspan.errors import JournalError
from tests.bounds import BOUND
from tests.cli.terminal import conversation, midspan, started
from tests.gemini.recorder import recorder

QUESTION = ["-m", "offline", "What is 2 + 2?"]


def logged(home: Path) -> list[dict[str, object]]:
    runs: list[dict[str, object]] = json.loads(midspan("runs", "list", "--json", home=home).out)
    return runs


@pytest.mark.requirement("U-08")
def test_everything_that_is_asked_is_logged_and_the_last_run_is_continued(tmp_path: Path) -> None:
    assert "51" in midspan("-m", "offline", "What is 17 * 3?", home=tmp_path).out
    assert midspan("ask", "-c", *QUESTION, home=tmp_path).code == 0
    assert len(conversation(tmp_path)) == 8
    assert [run["question"] for run in logged(tmp_path)] == ["What is 2 + 2?", "What is 17 * 3?"]
    assert {run["state"] for run in logged(tmp_path)} == {"completed"}
    listed = midspan("runs", home=tmp_path).out.splitlines()
    assert "What is 17 * 3?" in listed[1]
    shown = midspan("runs", "show", listed[1].split()[0], home=tmp_path).out
    assert "> What is 17 * 3?" in shown
    assert 'calculate(expression="17 * 3")' in shown
    assert shown.endswith("calculate: result: 51, is exact: yes.\n")
    document = json.loads(midspan("runs", "show", "--json", home=tmp_path).out)
    assert document["tool_calls"][0]["arguments"] == {"expression": "2 + 2"}


def test_log_that_cannot_be_created_says_what_helps(tmp_path: Path) -> None:
    nowhere = {"HOME": "/dev/null", "XDG_STATE_HOME": ""}
    problem = "cannot create the directory '/dev/null/.local/state/midspan': Not a directory; for the log of runs"
    remedy = "set XDG_STATE_HOME to a directory that you can write to; --no-log does without it\n"
    listed = midspan("runs", home=tmp_path, **nowhere)
    assert (listed.code, listed.err) == (2, f"midspan: {problem}, {remedy}")
    asked = midspan(*QUESTION, home=tmp_path, **nowhere)
    assert asked.code == 0
    assert asked.err.startswith(f"midspan: this conversation is not logged: {problem}, {remedy}")
    assert "midspan:" not in midspan(*QUESTION, "--no-log", home=tmp_path, **nowhere).err


@pytest.mark.requirement("U-08")
def test_runs_are_deleted(tmp_path: Path) -> None:
    midspan(*QUESTION, home=tmp_path)
    midspan(*QUESTION, home=tmp_path)
    [first, second] = [str(run["run_id"]) for run in logged(tmp_path)]
    assert midspan("runs", "delete", first, home=tmp_path).code == 0
    assert [run["run_id"] for run in logged(tmp_path)] == [second]
    assert midspan("runs", "delete", home=tmp_path).code == 2
    assert midspan("runs", "show", "nope", home=tmp_path).code == 2
    assert midspan("runs", "delete", "--all", home=tmp_path).code == 0
    assert logged(tmp_path) == []
    assert midspan("ask", "-c", *QUESTION, home=tmp_path).code == 2


@pytest.mark.requirement("U-08")
def test_failed_run_is_logged_with_its_error(tmp_path: Path) -> None:
    with recorder() as record:
        record.answer({"error": {"code": 404, "status": "NOT_FOUND", "message": "no such model"}}, status=404)
        where = {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": record.url}
        assert midspan("hello there", home=tmp_path, **where).code == 1
    [run] = logged(tmp_path)
    assert (run["state"], run["error"]["type"]) == ("failed", "InvalidRequestError")  # type: ignore[index]
    assert "InvalidRequestError" in midspan("runs", "show", home=tmp_path).out


@pytest.mark.requirement("U-08")
def test_log_can_be_turned_off(tmp_path: Path) -> None:
    assert midspan(*QUESTION, "--no-log", home=tmp_path).code == 0
    (tmp_path / "config" / "midspan").mkdir(parents=True)
    (tmp_path / "config" / "midspan" / "config.toml").write_text("log = false")
    assert midspan(*QUESTION, home=tmp_path).code == 0
    assert midspan("chat", "-m", "offline", home=tmp_path, stdin="hello").code == 0
    assert not (tmp_path / "state" / "midspan" / "runs.db").exists()


@pytest.mark.requirement("U-08")
def test_conversations_are_deleted_after_the_retention_time(tmp_path: Path) -> None:
    (tmp_path / "config" / "midspan").mkdir(parents=True)
    (tmp_path / "config" / "midspan" / "config.toml").write_text("log_days = 2")
    midspan("--session", "old", *QUESTION, home=tmp_path)
    midspan("--session", "new", *QUESTION, home=tmp_path)
    state = tmp_path / "state" / "midspan"
    with closing(sqlite3.connect(state / "runs.db", isolation_level=None)) as database:
        [table] = [
            name
            for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if "session" in [row[1] for row in database.execute(f"PRAGMA table_info({name})")]
        ]
        database.execute(f"UPDATE {table} SET updated_at = ? WHERE session = 'old'", (time.time() - 3 * 86_400,))
    yesterday = time.time() - 90_000
    os.utime(state / "runs.swept", (yesterday, yesterday))  # it is done once a day
    midspan(*QUESTION, home=tmp_path)
    assert [run["session"] for run in logged(tmp_path)] == [None, "new"]


@pytest.mark.requirement("U-09")
def test_keys_are_stored_for_the_owner_only(tmp_path: Path) -> None:
    assert midspan("keys", "set", "gemini", home=tmp_path, stdin="a-secret-key-1234\n").code == 0
    file = tmp_path / "config" / "midspan" / "keys.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    listed = midspan("keys", "list", home=tmp_path)
    assert listed.out == "GEMINI_API_KEY\n"
    with recorder() as record:
        part = {"content": {"role": "model", "parts": [{"text": "Hi."}]}, "finishReason": "STOP"}
        record.answer_stream({"candidates": [part]})
        ended = midspan("hello there", "-vv", home=tmp_path, GOOGLE_GEMINI_BASE_URL=record.url)
        assert record.last.headers["x-goog-api-key"] == "a-secret-key-1234"
    assert ended.out == "Hi.\n"
    assert "POST http://127.0.0.1" in ended.err, "-vv shows the request"
    assert "x-goog-api-key: ***" in ended.err
    assert '"hello there"' in ended.err
    assert "a-secret-key" not in ended.err + ended.out + listed.out
    assert midspan("keys", "delete", "gemini", home=tmp_path).code == 0
    assert midspan("keys", "delete", "gemini", home=tmp_path).code == 2
    assert midspan("keys", home=tmp_path).out == ""


@pytest.mark.parametrize("variable", ["GEMINI_API_KEY", "GOOGLE_API_KEY"])
@pytest.mark.parametrize("stored", ["gemini", "GOOGLE_API_KEY"])
def test_any_variable_of_the_provider_wins_over_a_stored_key(tmp_path: Path, stored: str, variable: str) -> None:
    assert midspan("keys", "set", stored, home=tmp_path, stdin="a-stored-key-1234\n").code == 0
    with recorder() as record:
        part = {"content": {"role": "model", "parts": [{"text": "Hi."}]}, "finishReason": "STOP"}
        record.answer_stream({"candidates": [part]})
        ended = midspan("hello there", home=tmp_path, GOOGLE_GEMINI_BASE_URL=record.url, **{variable: "of-the-shell"})
        assert record.last.headers["x-goog-api-key"] == "of-the-shell"
    assert (ended.out, ended.err) == ("Hi.\n", "")


def test_key_of_a_provider_replaces_the_one_in_its_other_variable(tmp_path: Path) -> None:
    midspan("keys", "set", "GOOGLE_API_KEY", home=tmp_path, stdin="an-old-key-1234\n")
    midspan("keys", "set", "gemini", home=tmp_path, stdin="short-key\n")
    assert midspan("keys", home=tmp_path).out == "GEMINI_API_KEY\n"
    midspan("keys", "set", "GOOGLE_API_KEY", home=tmp_path, stdin="an-old-key-1234\n")
    assert midspan("keys", "delete", "gemini", home=tmp_path).code == 0
    assert midspan("keys", home=tmp_path).out == ""


@pytest.mark.parametrize(
    ("arguments", "stdin", "words"),
    [
        (["set"], "k", "name a provider or a variable"),
        (["list", "gemini"], "", "midspan keys list takes no name, got 'gemini'"),
        (["set", "nobody"], "k", "unknown provider 'nobody'; known providers: gemini, "),
        (["set", "MY_API_KEY"], " \n", "the key is empty"),
        (["set", "MY_API_KEY"], "a b\n", "contains invalid characters"),
    ],
)
def test_wrong_keys_are_reported(tmp_path: Path, arguments: list[str], stdin: str, words: str) -> None:
    ended = midspan("keys", *arguments, home=tmp_path, stdin=stdin)
    assert ended.code == 2
    assert words in ended.err
    assert not (tmp_path / "config").exists()


@pytest.mark.requirement("U-09")
def test_options_schema_and_attachments_reach_the_model(tmp_path: Path) -> None:
    part = {"content": {"role": "model", "parts": [{"text": '{"name": "Ada", "age": 36}'}]}, "finishReason": "STOP"}
    with recorder() as record, recorder() as web:
        record.answer_stream({"candidates": [part]})
        for status in (301, 302, 303, 307, 308):
            web.answer(status=status, location=f"/{status}")
        web.answer({"page": "from the web"})
        where = {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": record.url}
        options = ["-o", "temperature=0.5", "-o", 'stop=["END"]', "--schema", "name, age int: in years", "--no-tools"]
        files = ["-f", "-", "-f", f"{web.url}/x"]
        ended = midspan("Who is it?", *options, *files, home=tmp_path, stdin="piped", **where)
        body = record.last.body
    assert ended.out == '{"name": "Ada", "age": 36}\n', ended.err
    assert body["generationConfig"]["temperature"] == 0.5
    assert body["generationConfig"]["stopSequences"] == ["END"]
    schema = body["generationConfig"]["responseJsonSchema"]
    assert schema["properties"]["age"] == {"type": "integer", "description": "in years"}
    assert schema["additionalProperties"] is False
    texts = [part["text"] for part in body["contents"][0]["parts"]]
    assert texts[:2] == ["Who is it?", "piped"]
    assert json.loads(texts[2]) == {"page": "from the web"}
    assert [seen.path for seen in web.seen] == ["/x", "/301", "/302", "/303", "/307", "/308"]


@pytest.mark.parametrize(("status", "words"), [(404, "/x answered 404"), (302, "/x redirects more than 5 times")])
def test_page_that_cannot_be_fetched_is_reported(tmp_path: Path, status: int, words: str) -> None:
    with recorder() as web:
        web.answer(status=status, location="/x")
        ended = midspan("hi", "-m", "offline", "-f", f"{web.url}/x", home=tmp_path)
    assert (ended.code, words in ended.err) == (2, True), ended.err


def test_binary_page_is_reported_by_its_address_if_it_has_no_name(tmp_path: Path) -> None:
    with recorder() as web:
        web.answer(b"\xff\x00", content_type="application/octet-stream")
        ended = midspan("hi", "-m", "offline", "-f", f"{web.url}/", home=tmp_path)
    assert ended.code == 2
    assert ended.err.startswith(f"midspan: cannot guess the media type of '{web.url}/', which is not UTF-8 text")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-o", "temperature"], "-o takes KEY=VALUE"),
        (["-o", "warmth=1"], "model settings: unknown setting 'warmth'"),
        (["-o", "temperature=hot"], 'model settings: temperature: expected number or null, got "hot"'),
        (["--schema", "name, age years"], "'age years' is not a field"),
        (["--schema", "name, age int, name"], "a field is named twice in the schema 'name, age int, name'"),
        (["--schema", "nowhere.json"], "nowhere.json: No such file"),
        (["--schema", "{"], "is not valid JSON"),
        (["-f", "http://127.0.0.1:9/x"], "127.0.0.1:9"),
    ],
)
def test_wrong_options_are_reported(tmp_path: Path, arguments: list[str], words: str) -> None:
    ended = midspan("hello there", "-m", "offline", *arguments, home=tmp_path)
    assert ended.code in (1, 2)
    assert words in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.requirement("U-09")
def test_emulator_shows_the_requests_it_gets(tmp_path: Path) -> None:
    process = started("emulate", "-v", home=tmp_path)
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        url = process.stdout.readline().strip()
        midspan("hello there", home=tmp_path, GEMINI_API_KEY="k", GOOGLE_GEMINI_BASE_URL=url)
        assert any("POST /v1beta/models/" in line for line in process.stderr)
    finally:
        process.terminate()
        process.communicate(timeout=BOUND)


def test_run_goes_on_if_an_append_fails(capsys: pytest.CaptureFixture[str]) -> None:
    class FullJournal:
        async def append(self, _run: str, length: int, *_: object, **_more: object) -> int:
            if length == 0:
                return 1
            raise JournalError("the disk is full")

    async def main() -> None:
        journal: Any = FullJournal()
        entry = LogEntry(journal, "", 0)
        await entry.add(RunStart("r", "m", ()))
        for turn in (1, 2):
            await entry.add(TurnStart(turn))

    asyncio.run(main())
    assert capsys.readouterr().err == "midspan: this run is not logged: the disk is full\n"
