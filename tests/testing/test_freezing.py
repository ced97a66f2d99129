"""`freeze` turns recordings into a test that passes until something changes."""

import ast
import json
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import pytest

from midspan import Agent, Limits, tool
from midspan._cli.commands import freeze as command
from midspan._types.parts import Blob, Text, ToolCall
from midspan.errors import ConfigError, RateLimitError
from midspan.testing import ScriptedProvider, assert_replays, freeze, record
from midspan.testing.format import LINE_END

MODULE = '''
from midspan import Agent, tool
from midspan.testing import ScriptedProvider


@tool
async def weather(city: str) -> dict[str, int]:
    """The weather in a city."""
    raise AssertionError("a replay runs no tool")


bot = Agent(ScriptedProvider([]), [weather])
'''


@tool
async def weather(city: str) -> dict[str, int]:
    """The weather in a city."""
    return {"temp_c": 4}


def agent_of(*said: Any) -> Agent:
    return Agent(ScriptedProvider(said), [weather])


def failing(agent: Agent, prompt: str, **options: Any) -> None:
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever it is, it is recorded
        agent.run_sync(prompt, **options)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my_module.py").write_text(MODULE, "utf-8")
    place = tmp_path / "recordings"
    cities = tuple(ToolCall(str(n), "weather", {"city": f"A rather long name of a city, {n}"}) for n in range(3))
    record(agent_of(cities, 'It\'s 4 "degrees".\n' + "And so on. " * 20), place).run_sync("Is it cold?\nReally?")
    record(agent_of("yes"), place).run_sync([Text("Look"), Blob.of(b"x", "image/png")], system="Be brief.")
    failing(record(agent_of(RateLimitError("slow down", status=429)), place), "Quick?")
    failing(record(agent_of(cities), place), "Endless?", limits=Limits(max_turns=1))
    return place


def ran_by_pytest(source: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "test_frozen.py").write_text(source, "utf-8")
    run = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=.", "."]
    return subprocess.run(run, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_frozen_test_passes_unchanged(folder: Path) -> None:
    ran = ran_by_pytest(freeze(folder, agent="my_module:bot"), folder.parent)
    assert ran.returncode == 0, ran.stdout
    assert "1 passed" in ran.stdout


def test_frozen_test_uses_a_fixture_if_no_agent_is_named(folder: Path) -> None:
    fixture = "import pytest\nimport my_module\n\n@pytest.fixture\ndef agent():\n    return my_module.bot\n"
    (folder.parent / "conftest.py").write_text(fixture, "utf-8")
    ran = ran_by_pytest(freeze(folder), folder.parent)
    assert ran.returncode == 0, ran.stdout


def test_frozen_test_fails_if_the_description_of_a_tool_changes(folder: Path) -> None:
    (folder.parent / "my_module.py").write_text(MODULE.replace("The weather in a city", "Weather"), "utf-8")
    ran = ran_by_pytest(freeze(folder, agent="my_module:bot"), folder.parent)
    assert ran.returncode == 1
    assert 'description: recorded "The weather in a city.", now "Weather."' in ran.stdout


@pytest.mark.parametrize(
    ("name", "end", "told"),
    [
        ("run-00002.jsonl", {"text": "no"}, 'text: recorded "no", now "yes"'),
        ("run-00003.jsonl", {"error": {"name": "RateLimitError", "message": "stop"}}, 'error.message: recorded "stop"'),
        ("run-00003.jsonl", {"text": "yes"}, 'text: recorded "yes", now nothing'),
    ],
)
def test_assert_replays_reports_a_different_outcome(folder: Path, name: str, end: dict[str, Any], told: str) -> None:
    agent = Agent(ScriptedProvider([]), [weather])
    assert_replays(agent, folder)
    lines = (folder / name).read_bytes().split(LINE_END)[:-2]
    (folder / name).write_bytes(LINE_END.join([*lines, json.dumps({"line": "end", **end}).encode(), b""]))
    with pytest.raises(ConfigError) as raised:
        assert_replays(agent, folder)
    assert str(raised.value).startswith(f"the outcome differs from the recording {str(folder / name)!r} at {told}")


def test_recording_that_was_cut_off_cannot_be_frozen(folder: Path) -> None:
    lines = (folder / "run-00001.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "run-00007.jsonl").write_bytes(b"".join(lines[:-1]))
    with pytest.raises(ConfigError, match=r"^the recording '.*run-00007\.jsonl' was cut off; delete it, or record"):
        freeze(folder, agent="my_module:bot")


@pytest.mark.parametrize("length", [88, 100, 120])
@pytest.mark.parametrize("agent", ["my_module:bot", None, f"{'a.rather.long.package.' * 4}module:agent"])
def test_ruff_leaves_the_frozen_test_as_it_is(folder: Path, agent: str | None, length: int) -> None:
    source = freeze(folder, agent=agent)
    assert laid_out(source, length) == source
    check = ["ruff", "check", "--isolated", "--select", "E,F,W,UP,PT,B,SIM,RUF", "--ignore", "E501", "-"]
    linted = subprocess.run([sys.executable, "-m", *check], input=source, text=True, capture_output=True, check=False)
    assert linted.returncode == 0, linted.stdout


def laid_out(source: str, length: int) -> str:
    command = ["ruff", "format", "--isolated", f"--line-length={length}", "-"]
    return subprocess.run(
        [sys.executable, "-m", *command], input=source, text=True, capture_output=True, check=True, timeout=30
    ).stdout


def test_directory_name_does_not_become_code_of_the_frozen_test(tmp_path: Path) -> None:
    folder = tmp_path / "a'\"\nraise SystemExit\n#"
    record(agent_of("yes"), folder).run_sync("go")
    source = freeze(folder)
    assert not [statement for statement in ast.parse(source).body if isinstance(statement, ast.Raise)]


@pytest.mark.parametrize(
    "agent", ["", "agent", "a:", ":b", "a b:c", "a:b.c", "a..b:c", "class:agent", "a:if", "a:b\nraise SystemExit", 5]
)
def test_wrong_agent_name_is_rejected(folder: Path, agent: Any) -> None:
    with pytest.raises(ConfigError, match=r"^agent must name a module and a variable, as 'my_module:agent', got "):
        freeze(folder, agent=agent)


@pytest.mark.parametrize(
    ("agent", "imported", "parameter"),
    [
        ("a.b:bot", "from a.b import bot as agent\n", "same()"),
        ("a:agent", "from a import agent\n", "same()"),
        (None, "from midspan import Agent\n", "same(agent: Agent)"),
    ],
)
def test_frozen_test_imports_the_agent_or_uses_a_fixture(
    folder: Path, agent: str | None, imported: str, parameter: str
) -> None:
    source = freeze(folder, agent=agent)
    assert imported in source
    assert parameter in source


def test_freeze_command_prints_the_test(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    parser = ArgumentParser()
    command.add_arguments(parser)
    monkeypatch.syspath_prepend(folder.parent)
    monkeypatch.delitem(sys.modules, "my_module", raising=False)
    assert command.run(parser.parse_args([str(folder), "--agent", "my_module:bot"])) == 0
    assert capsys.readouterr().out == freeze(folder, agent="my_module:bot")
