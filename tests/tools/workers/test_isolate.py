"""`@tool(isolate=True)`: functions of importable modules, in processes that are killed at the timeout."""

import asyncio
import os
import sys
from importlib import import_module
from pathlib import Path

import pytest

from midspan import Agent, tool
from midspan.errors import ConfigError
from midspan.messages import ToolCall
from midspan.testing import ScriptedProvider
from midspan.tools import execute
from midspan.tools.workers import source
from tests.tools.workers.conftest import Counter, run

MODULE = '''
import os, time
from midspan import RunContext, tool
from tests.tools.workers.toolfile import keep_moving, move

@tool(timeout=2, isolate=True)
def hang(port: int) -> None:
    """Never returns."""
    keep_moving(port)

@tool(isolate=True)
def pid() -> int:
    """The number of the process."""
    return os.getpid()

@tool(timeout=60, isolate=True)
def hang_long(port: int) -> None:
    """Never returns."""
    move(port, "started")
    keep_moving(port)

@tool(isolate=True)
async def ask_here(context: RunContext[None]) -> list[int]:
    """Calls a tool of the host."""
    return [os.getpid(), (await context.call_tool("here", {})).value]

@tool(read_only=True)
def here() -> int:
    """The number of the process."""
    return os.getpid()

tools = [hang, hang_long, ask_here, pid, here]
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    name = f"isolated_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield import_module(name)
    if workers := source._isolated.pop(name, None):
        asyncio.run(workers.aclose())
    del sys.modules[name]


@pytest.mark.requirement("W-09")
def test_isolated_tool_is_killed_at_its_timeout(module: object, counter: Counter) -> None:
    script = [
        [ToolCall("1", "hang", {"port": counter.port}), ToolCall("2", "pid"), ToolCall("3", "here")],
        ToolCall("4", "pid"),
        "done",
    ]
    result = Agent(ScriptedProvider(script), tools=module.tools).run_sync("?")  # type: ignore[attr-defined]
    hung, first, here, second = result.tool_calls
    assert "hang timed out after 2 seconds; its process and all processes" in hung.value
    assert counter.drain()
    counter.assert_it_stands_still()
    assert here.value == os.getpid()
    assert os.getpid() not in (first.value, second.value)
    assert not first.is_error


@pytest.mark.requirement("W-09", "W-02")
def test_isolated_call_is_killed_when_its_run_is_cancelled(module: object, counter: Counter) -> None:
    async def main() -> None:
        script = [ToolCall("1", "hang_long", {"port": counter.port}), "done"]
        task = asyncio.create_task(Agent(ScriptedProvider(script), tools=module.tools).run("?"))  # type: ignore[attr-defined]
        assert await asyncio.to_thread(counter.next) == "started"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())
    counter.assert_it_stands_still()


@pytest.mark.requirement("W-09", "W-07")
def test_isolated_tool_calls_a_tool_of_its_host(module: object) -> None:
    agent = Agent(ScriptedProvider([ToolCall("1", "ask_here"), "done"]), tools=module.tools)  # type: ignore[attr-defined]
    [tool_run] = agent.run_sync("?").tool_calls
    isolated, host = tool_run.value
    assert host == os.getpid()
    assert isolated != host


def test_isolated_tool_that_the_module_does_not_have_is_an_error(module: object) -> None:
    lost = tool(isolate=True, name="renamed")(module.here.function)  # type: ignore[attr-defined]
    result = run(execute(lost, ToolCall("1", "renamed")))
    assert result.value.startswith("renamed was not run: the module ")
    assert "has no such tool with isolate=True at its top level" in result.value


@pytest.mark.requirement("W-09")
def test_function_that_another_process_cannot_import_is_refused() -> None:
    def closure() -> None:
        """Is defined here."""

    class Methods:
        def method(self) -> None:
            """Needs its object."""

    with pytest.raises(ConfigError, match=r"closure .*inside another function; move it to the top level of a module"):
        tool(isolate=True)(closure)
    with pytest.raises(ConfigError, match="is not a plain function; wrap it in one"):
        tool(isolate=True)(Methods().method)

    def main_function() -> None:
        """Looks as if it were in the main program."""

    main_function.__module__, main_function.__qualname__ = "__main__", "main_function"
    with pytest.raises(ConfigError, match=r"in the main program; move it to a module, such as mytools.py, and import"):
        tool(isolate=True)(main_function)
