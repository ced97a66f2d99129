"""Type annotations of the public API."""

import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import midspan

PROGRAM = '''
from dataclasses import dataclass
from typing import assert_type

from midspan import Agent, BackgroundRuns, Chat, Gemini, Limits, ModelSettings, RunResult, gemini, tool
from midspan.testing import ScriptedProvider
from midspan.tools import tool_from_schema
from midspan._types.events import TextDelta


@dataclass
class Place:
    city: str
    country: str = "Norway"


@tool(timeout=5)
async def forecast(place: Place, days: int = 1) -> dict[str, float]:
    """The temperature of the next days."""
    return {f"{place.city} {day}": 20.0 for day in range(days)}


@tool
def add(a: int, b: int) -> int:
    """The sum."""
    return a + b


async def main(agent: Agent) -> None:
    assert_type(add(1, 2), int)
    assert_type(await forecast(Place("Oslo"), days=2), dict[str, float])

    plain = Agent("gemini:gemini-3.8-flash", [add, forecast], limits=Limits(max_turns=3))
    answer = await plain.run("hello", context={"user": 1}, settings=ModelSettings(temperature=0.0))
    assert_type(answer, RunResult[str])
    assert_type(answer.output, str)
    assert_type(plain.run_sync("hello").turns, int)

    typed = Agent(Gemini("gemini-3.8-flash", api_key="x"), output=Place)
    assert_type((await typed.run("where?")).output, Place)
    assert_type(Agent(ScriptedProvider([]), output=list[int]).run_sync("which?").output, list[int])
    stream = typed.stream("where?")
    async for event in stream:
        if isinstance(event, TextDelta):
            assert_type(event.text, str)
    assert_type(stream.result.output, Place)

    chat = await Chat(plain).ask("hello", output=Place)
    BackgroundRuns(typed)
    async with gemini.AsyncClient(api_key="x") as client:
        said = await client.generate_content("hi")
        assert_type(said.text, str)
        assert_type(said.parsed(Place), Place)

    plain.run_sync("hello", temperature=3)  # wrong
    Limits(max_turns="ten")  # wrong
    add("1", 2)  # wrong
    Agent("gemini:gemini-3.8-flash", tool_choices="any")  # wrong
    tool(timeout="5")  # wrong
    tool_from_schema("add", "Adds.", {}, print, timeouts=5)  # wrong
    answer.text.append("more")  # wrong
    stream.result.output.town  # wrong
'''


@pytest.mark.requirement("S4-22")
def test_package_is_marked_as_typed() -> None:
    assert Path(midspan.__file__).with_name("py.typed").exists()


@pytest.mark.requirement("S4-22")
def test_strict_type_checker_knows_every_type_and_finds_errors(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "program.py"]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = {int(line) for line in re.findall(r"^program\.py:(\d+): error", checked.stdout, re.MULTILINE)}
    wrong = {at for at, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# wrong")}
    assert found == wrong, checked.stdout + checked.stderr


PUBLIC_MODULES = ("midspan", "midspan.errors", "midspan.events", "midspan.gemini", "midspan.messages",
    "midspan.providers", "midspan.testing", "midspan.tools", "midspan.emulator", "midspan.toolsets")  # fmt: skip


def public_functions(module: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the public functions of a module, and the public methods of its classes, with their names."""
    for name in dir(import_module(module)):
        value = getattr(import_module(module), name)
        if name.startswith("_") or not getattr(value, "__module__", "").startswith("midspan"):
            continue
        members = vars(value).items() if isinstance(value, type) else [(name, value)]
        for member, attribute in members:
            function = getattr(attribute, "__func__", attribute)
            function = function.fget if isinstance(function, property) else function
            is_public = not member.startswith("_") or member in ("__init__", "__call__")
            if is_public and inspect.isfunction(function) and function.__module__.startswith("midspan"):
                yield f"{module}.{name}.{member}", function


@pytest.mark.requirement("S4-22")
@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_every_public_function_is_annotated(module: str) -> None:
    for name, function in public_functions(module):
        names = [*inspect.signature(function).parameters]
        expected = {*names[names[:1] in (["self"], ["cls"]) :], "return"}
        assert expected <= function.__annotations__.keys(), name
