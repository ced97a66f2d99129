"""Recordings of many concurrent runs and of killed processes, and files that are damaged."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from midspan import Agent, tool
from midspan._types.exchange import ModelRequest
from midspan._types.parts import ToolCall
from midspan.errors import ConfigError
from midspan.testing import ScriptedProvider, freeze, record, replay
from midspan.testing.format import LINE_END

RUNS = 1_000


@tool
async def double(number: int) -> int:
    """Twice as much."""
    await asyncio.sleep(0)
    return 2 * number


async def say(request: ModelRequest) -> Any:
    await asyncio.sleep(0)  # so that the runs take turns
    number = int(request.history[0].text)
    if len(request.history) == 1:
        return ToolCall(f"call {number}", "double", {"number": number})
    return f"It is {request.history[-1].results[0].value}."


def test_thousand_concurrent_runs_have_separate_recordings(tmp_path: Path) -> None:
    async def texts(agent: Agent) -> list[str]:
        return [result.text for result in await asyncio.gather(*(agent.run(str(number)) for number in range(RUNS)))]

    expected = [f"It is {2 * number}." for number in range(RUNS)]
    assert asyncio.run(texts(record(Agent(ScriptedProvider(say), [double]), tmp_path))) == expected
    files = list(tmp_path.iterdir())
    assert len(files) == RUNS
    for path in files:
        lines = [json.loads(line) for line in path.read_bytes().split(LINE_END)[:-1]]
        assert [line["line"] for line in lines] == [
            "run",
            "tools",
            "exchange",
            "call",
            "exchange",
            "end",
        ]
        prompt = lines[0]["messages"][0]["parts"][0]["text"]
        assert lines[3]["call"]["arguments"] == {"number": int(prompt)}
    assert asyncio.run(texts(replay(Agent(ScriptedProvider([]), [double]), tmp_path))) == expected


def test_threads_and_recorders_can_share_a_directory(tmp_path: Path) -> None:
    def work(first: int) -> None:
        agent = record(Agent(ScriptedProvider(say), [double]), tmp_path)
        for number in range(first, first + 20):
            agent.run_sync(str(number))

    threads = [threading.Thread(target=work, args=(first,)) for first in range(0, 80, 20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(list(tmp_path.iterdir())) == 80
    replaying = replay(Agent(ScriptedProvider([]), [double]), tmp_path)
    assert [replaying.run_sync(str(number)).text for number in range(80)] == [f"It is {2 * n}." for n in range(80)]


KILLED = """
import os, signal, sys
from midspan import Agent, tool
from midspan.testing import ScriptedProvider, record
from midspan._types.parts import Text, ToolCall

@tool
async def step(number: int) -> int:
    "A step."
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return number

script = [ToolCall(str(number), "step", {"number": number}) for number in range(5)]
record(Agent(ScriptedProvider(script), [step]), sys.argv[1]).run_sync("go")
"""


@tool
async def step(number: int) -> int:
    """A step."""
    return number


def test_recording_of_a_killed_process_replays_up_to_its_end(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    path = tmp_path / "run-00001.jsonl"
    for data in (path.read_bytes(), path.read_bytes() + b'{"line":"call","call":{"type":"ca'):
        path.write_bytes(data)
        with pytest.raises(ConfigError, match=r'^the call step\(\{"number": 2\}\) was not recorded in ') as raised:
            replay(Agent(ScriptedProvider([]), [step]), tmp_path).run_sync("go")
        assert raised.value.transcript is not None
        assert [result.value for message in raised.value.transcript for result in message.results][:2] == [0, 1]
    with pytest.raises(ConfigError, match=r"run-00001\.jsonl' was cut off"):
        freeze(tmp_path)


def test_every_prefix_of_a_recording_replays_up_to_its_end(tmp_path: Path) -> None:
    async def texts(agent: Agent) -> str:
        stream = agent.stream("4")
        assert [event async for event in stream]
        return stream.result.text

    asyncio.run(texts(record(Agent(ScriptedProvider(say), [double]), tmp_path)))
    path = tmp_path / "run-00001.jsonl"
    data = path.read_bytes()
    head = data.index(LINE_END) + len(LINE_END)
    for length in range(head, len(data), 7):
        path.write_bytes(data[:length])
        whole = length >= data.index(b'{"line":"end"')
        agent = replay(Agent(ScriptedProvider([]), [double]), tmp_path)
        if whole:
            assert asyncio.run(texts(agent)) == "It is 8."
        else:
            with pytest.raises(ConfigError, match="not recorded"):
                asyncio.run(texts(agent))


NO_LINE = r"^cannot read the recording '.*run-00001.jsonl': it has no 'run' line; record the run again$"
BAD = {
    b"": NO_LINE,
    b'{"line"': NO_LINE,
    bytes(range(128, 256)): NO_LINE,
    b"nonsense\x1e\n": "^cannot read the recording '.*run-00001.jsonl': JSON is malformed.*; record the run again$",
    b"{}\x1e\n": "cannot read the recording",
    b'{"line":"end"}\x1e\n': NO_LINE,
    b'{"line":"run","version":99}\x1e\n': r"Invalid enum value 99 - at `\$.version`; record the run again$",
    b"\xff\xfe\x1e\n": "cannot read the recording",
    b"[" * 100_000 + b"\x1e\n": "cannot read the recording",
}


@pytest.mark.parametrize("data", BAD)
def test_file_that_is_not_a_recording_is_reported_in_one_sentence(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "run-00001.jsonl").write_bytes(data)
    for use in (lambda: replay(Agent(ScriptedProvider([])), tmp_path), lambda: freeze(tmp_path)):
        with pytest.raises(ConfigError, match=BAD[data]) as raised:
            use()
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize("line", [b"{", b'{"line":"end","text":5}', b'{"line":"exchange"}', b"\x00", b""])
def test_damaged_line_is_reported(tmp_path: Path, line: bytes) -> None:
    record(Agent(ScriptedProvider(["yes"])), tmp_path).run_sync("go")
    path = tmp_path / "run-00001.jsonl"
    lines = path.read_bytes().split(LINE_END)
    path.write_bytes(LINE_END.join([*lines[:2], line, *lines[2:]]))
    with pytest.raises(ConfigError, match=r"^cannot read the recording '.*': .*; record the run again$"):
        replay(Agent(ScriptedProvider([])), tmp_path)


def test_missing_or_empty_directory_is_reported(tmp_path: Path) -> None:
    agent = Agent(ScriptedProvider([]))
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(ConfigError, match=r"^no runs are recorded in '.*'; use record\(agent, directory\), or "):
            replay(agent, path)
    with pytest.raises(ConfigError, match="no runs are recorded"):
        freeze(tmp_path / "missing")


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_invalid_file_name_is_reported(name: str) -> None:
    agent = Agent(ScriptedProvider([]))
    for use in (lambda: replay(agent, name), lambda: freeze(name), lambda: record(agent, name).run_sync("go")):
        with pytest.raises(ConfigError, match=r"no runs are recorded|cannot (read|write) the recording"):
            use()


def test_directory_that_cannot_be_written_is_reported_before_the_model_is_asked(tmp_path: Path) -> None:
    provider = ScriptedProvider(["Yes."])
    file = tmp_path / "file"
    file.write_text("")
    for place in (file, file / "inside", Path("/proc/nowhere")):
        with pytest.raises(ConfigError, match=r"^cannot write the recording '.*': "):
            record(Agent(provider), place).run_sync("go")
    assert not provider.requests


def test_other_files_do_not_change_the_numbers_of_recordings(tmp_path: Path) -> None:
    (tmp_path / "run-old.jsonl").write_bytes(b"")
    for number in (1, 2, 9_999_999, 10_000_000):
        if number == 9_999_999:
            (tmp_path / "run-9999998.jsonl").write_bytes(b"")
        record(Agent(ScriptedProvider(["Yes."])), tmp_path).run_sync("Is it cold?")
        assert (tmp_path / f"run-{number:05}.jsonl").exists()


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
def test_only_the_owner_can_read_recordings(tmp_path: Path) -> None:
    record(Agent(ScriptedProvider(["yes"])), tmp_path / "deep" / "down").run_sync("go")
    [path] = (tmp_path / "deep" / "down").iterdir()
    assert path.stat().st_mode & 0o077 == 0
