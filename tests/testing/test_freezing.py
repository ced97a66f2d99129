"""`freeze` turns recordings into a test that passes until something changes."""

import ast
import json
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


def test_frozen_test_passes_unchanged(folder: Path) -> None:
    ran = ran_by_pytest(freeze(folder, agent="my_module:bot"), folder.parent)
    assert ran.returncode == 0, ran.stdout
    assert "4 passed" in ran.stdout


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


def test_runs_that_cannot_be_replayed_are_left_out_with_the_reason(folder: Path) -> None:
    lines = (folder / "run-00001.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "run-00007.jsonl").write_bytes(b"".join(lines[:-1]))
    source = freeze(folder, agent="my_module:bot")
    assert "# 'run-00005.jsonl' is left out because the run ended with 'ZeroDivisionError', which is not" in source
    assert "# 'run-00006.jsonl' is left out because these options of the run were not recorded: ('output',)\n" in source
    assert "# 'run-00007.jsonl' is left out because it was cut off\n" in source
    assert ran_by_pytest(source, folder.parent).returncode == 0


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


def tables(source: str) -> dict[str, Any]:
    """The tables of a frozen test, and its other statements."""
    module = ast.parse(source)
    values = {}
    for statement in module.body:
        if isinstance(statement, ast.AnnAssign):
            assert isinstance(statement.target, ast.Name)
            assert statement.value is not None
            values[statement.target.id] = ast.literal_eval(statement.value)
            statement.value = ast.Constant(None)
    return {**values, "statements": ast.dump(module)}


def run_line(prompt: str = "Is it cold?", **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "parts": [{"type": "text", "text": prompt}]}]
    return {"line": "run", "form": 2, "run_id": "r", "model": "m", "recorded_at": "", "messages": messages, **more}


def write_recordings(folder: Path, recordings: dict[str, list[dict[str, Any]]]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, lines in recordings.items():
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return folder


CODE = "x\nraise SystemExit('this code came from a recording')\n# \"\"\" ''' \\"
texts = st.text() | st.sampled_from([CODE, '"""', "'", "\\", "]\n", "\r", "\u2028"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60)
@given(prompt=texts, answer=texts, name=texts, arguments=st.dictionaries(texts, json_values, max_size=3))
def test_recorded_values_are_literals_in_the_frozen_test(
    tmp_path_factory: pytest.TempPathFactory, prompt: str, answer: str, name: str, arguments: dict[str, Any]
) -> None:
    call = {"type": "call", "id": "1", "name": name, "arguments": arguments}
    lines = [run_line(prompt), {"line": "end", "text": answer, "turns": 1, "calls": [call]}]
    folder = write_recordings(tmp_path_factory.mktemp("recordings"), {"run-00001.jsonl": lines})
    assert tables(freeze(folder))["ANSWERED"] == [("run-00001.jsonl", [(name, arguments)], answer)]


@pytest.mark.parametrize("agent", [None, "my_module:agent"])
def test_code_in_a_recording_does_not_become_code_of_the_frozen_test(tmp_path: Path, agent: str | None) -> None:
    answer = {"line": "end", "text": "Yes.", "turns": 1}
    error = {"type": "RateLimited", "message": "later"}
    call = {"type": "call", "id": CODE, "name": CODE, "arguments": {CODE: CODE}}
    harmless = {
        "run-00001.jsonl": [run_line(), answer],
        "run-00002.jsonl": [run_line(), {"line": "end", "error": error}],
    }
    hostile = {
        "run-00001.jsonl": [run_line(CODE, run_id=CODE, model=CODE), {**answer, "text": CODE, "calls": [call]}],
        "run-00002.jsonl": [run_line(), {"line": "end", "error": {**error, "message": CODE}}],
        "run-00003.jsonl": [run_line(), {"line": "end", "error": {"type": CODE, "message": CODE}}],
        "run-00004.jsonl": [run_line(unsaid=[CODE]), answer],
        "run-\nraise SystemExit('a file name')\n#.jsonl": [run_line()],
        "run-\nraise SystemExit('a longer file name')\n#.jsonl": [run_line(), answer],
    }
    folder = tmp_path / "recordings"
    expected = tables(freeze(write_recordings(folder, harmless), agent=agent))
    source = freeze(write_recordings(folder, hostile), agent=agent)
    assert tables(source)["statements"] == expected["statements"]
    assert tables(source)["ANSWERED"][0] == ("run-00001.jsonl", [(CODE, {CODE: CODE})], CODE)
    assert tables(source)["FAILED"] == [("run-00002.jsonl", "RateLimited", CODE)]


@pytest.mark.parametrize("output", [None, "test_frozen.py"])
def test_directory_name_does_not_become_code_of_the_frozen_test(tmp_path: Path, output: str | None) -> None:
    folder = tmp_path / "a'\"\nraise SystemExit\n#"
    record(agent_of("yes"), folder).run_sync("go")
    source = freeze(folder, output=output and tmp_path / output)
    assert not [statement for statement in ast.parse(source).body if isinstance(statement, ast.Raise)]


@pytest.mark.parametrize("agent", ["", "agent", "a:", ":b", "a b:c", "a:b.c", "a..b:c", "a:b\nraise SystemExit"])
def test_wrong_agent_name_is_rejected(folder: Path, agent: Any) -> None:
    with pytest.raises(ConfigError, match=r"^agent must name a module and a variable, as 'my_module:agent', got "):
        freeze(folder, agent=agent)


@pytest.mark.parametrize("where", [".", "elsewhere"])
def test_frozen_test_with_an_output_file_runs_from_any_directory(folder: Path, where: str) -> None:
    tests = folder.parent / "tests"
    (folder.parent / "elsewhere").mkdir()
    tests.mkdir()
    (tests / "my_module.py").write_text(MODULE, "utf-8")
    path = tests / "test_frozen.py"
    path.write_text(freeze(folder, agent="my_module:bot", output=path), "utf-8")
    assert "RECORDINGS = Path(__file__).parent.joinpath('../recordings')\n" in path.read_text("utf-8")
    assert laid_out(path.read_text("utf-8"), 88) == path.read_text("utf-8")
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(path)]
    ran = subprocess.run(run, cwd=folder.parent / where, capture_output=True, text=True, timeout=60, check=False)
    assert "4 passed" in ran.stdout, ran.stdout


def test_freeze_command_prints_the_test(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    parser = ArgumentParser()
    command.add_arguments(parser)
    monkeypatch.syspath_prepend(folder.parent)
    monkeypatch.delitem(sys.modules, "my_module", raising=False)
    assert command.run(parser.parse_args([str(folder), "--agent", "my_module:bot"])) == 0
    assert capsys.readouterr().out == freeze(folder, agent="my_module:bot")


@pytest.mark.parametrize("place", ["class:agent", "shop.import:agent", "shop:if"])
def test_agent_name_with_a_keyword_is_rejected(tmp_path: Path, place: str) -> None:
    record(Agent(ScriptedProvider(["hi"])), tmp_path).run_sync("?")
    with pytest.raises(ConfigError):
        freeze(tmp_path, agent=place)
