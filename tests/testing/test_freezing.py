"""Recordings become a test that passes as it stands, until something is different."""

import ast
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midspan import Agent, Limits, tool
from midspan._cli import freeze as command
from midspan._types.parts import Blob, Text, ToolCall
from midspan.errors import ConfigError, RateLimited
from midspan.testing import ScriptedProvider, freeze, record
from midspan.testing.literals import literal

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
    failing(record(agent_of(RateLimited("slow down", status=429)), place), "Quick?")
    failing(record(agent_of(cities), place), "Endless?", limits=Limits(max_turns=1))
    odd = (place / "run-00003.jsonl").read_text("utf-8").replace("RateLimited", "ZeroDivisionError")
    (place / "run-00005.jsonl").write_text(odd, "utf-8")
    record(agent_of("5"), place).run_sync("As a number?", output=int)
    return place


def ran_by_pytest(source: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "test_frozen.py").write_text(source, "utf-8")
    run = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=.", "."]
    return subprocess.run(run, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_the_test_passes_as_it_stands(folder: Path) -> None:
    ran = ran_by_pytest(freeze(folder, agent="my_module:bot"), folder.parent)
    assert ran.returncode == 0, ran.stdout
    assert "4 passed" in ran.stdout


def test_without_the_place_of_an_agent_the_test_takes_a_fixture(folder: Path) -> None:
    fixture = "import pytest\nimport my_module\n\n@pytest.fixture\ndef agent():\n    return my_module.bot\n"
    (folder.parent / "conftest.py").write_text(fixture, "utf-8")
    ran = ran_by_pytest(freeze(folder), folder.parent)
    assert ran.returncode == 0, ran.stdout


def test_the_test_fails_when_a_tool_is_declared_otherwise(folder: Path) -> None:
    (folder.parent / "my_module.py").write_text(MODULE.replace("The weather in a city", "Weather"), "utf-8")
    ran = ran_by_pytest(freeze(folder, agent="my_module:bot"), folder.parent)
    assert ran.returncode == 1
    assert 'description: recorded "The weather in a city.", now "Weather."' in ran.stdout


def test_what_cannot_be_a_test_is_left_out_and_said(folder: Path) -> None:
    lines = (folder / "run-00001.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "run-00007.jsonl").write_bytes(b"".join(lines[:-1]))
    source = freeze(folder, agent="my_module:bot")
    assert "# run-00005.jsonl ended with a ZeroDivisionError and is left out.\n" in source
    assert "# run-00006.jsonl is left out, because its run alone had another output.\n" in source
    assert "# run-00007.jsonl was broken off and is left out.\n" in source
    assert ran_by_pytest(source, folder.parent).returncode == 0


@pytest.mark.parametrize("length", [88, 100, 120])
@pytest.mark.parametrize("agent", ["my_module:bot", None, f"{'a.rather.long.package.' * 4}module:agent"])
def test_the_test_is_laid_out_as_ruff_would(folder: Path, agent: str | None, length: int) -> None:
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


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)


@settings(max_examples=150)
@given(values)
def test_every_value_of_json_is_read_back_from_its_source(value: Any) -> None:
    assert ast.literal_eval(literal(value)) == value


@settings(max_examples=15)
@given(st.lists(values, min_size=5, max_size=30))
def test_every_value_is_laid_out_as_ruff_would(values: list[Any]) -> None:
    columns = "".join(f"    {literal(value, 4)},\n" for value in values)
    source = f"VALUES = [\n{columns}]\n"
    assert laid_out(source, 88) == source
    assert laid_out(source, 120) == source


@pytest.mark.parametrize("agent", ["", "agent", "a:", ":b", "a b:c", "a:b.c", "a..b:c", 5])
def test_a_place_that_is_none_is_told(folder: Path, agent: Any) -> None:
    with pytest.raises(ConfigError, match=r"^agent is the place of an agent, as 'my_module:agent', not "):
        freeze(folder, agent=agent)


@pytest.mark.parametrize("where", [".", "elsewhere"])
def test_a_test_for_a_file_finds_its_recordings_from_anywhere(folder: Path, where: str) -> None:
    tests = folder.parent / "tests"
    (folder.parent / "elsewhere").mkdir()
    tests.mkdir()
    (tests / "my_module.py").write_text(MODULE, "utf-8")
    path = tests / "test_frozen.py"
    path.write_text(freeze(folder, agent="my_module:bot", output=path), "utf-8")
    assert 'RECORDED = Path(__file__).parent.joinpath("../recordings")\n' in path.read_text("utf-8")
    assert laid_out(path.read_text("utf-8"), 88) == path.read_text("utf-8")
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(path)]
    ran = subprocess.run(run, cwd=folder.parent / where, capture_output=True, text=True, timeout=60, check=False)
    assert "4 passed" in ran.stdout, ran.stdout


def test_the_command_writes_the_test(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    parser = ArgumentParser()
    command.add_arguments(parser)
    monkeypatch.syspath_prepend(folder.parent)
    monkeypatch.delitem(sys.modules, "my_module", raising=False)
    assert command.run(parser.parse_args([str(folder), "--agent", "my_module:bot"])) == 0
    assert capsys.readouterr().out == freeze(folder, agent="my_module:bot")


@pytest.mark.parametrize("place", ["class:agent", "shop.import:agent", "shop:if"])
def test_a_place_that_no_import_can_name_is_refused(tmp_path: Path, place: str) -> None:
    record(Agent(ScriptedProvider(["hi"])), tmp_path).run_sync("?")
    with pytest.raises(ConfigError):
        freeze(tmp_path, agent=place)
