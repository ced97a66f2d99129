"""The log of a run: everything at debug level, warnings by default."""

import logging
import subprocess
import sys

import pytest

from midspan import Agent, tool
from midspan._types.parts import Text, ToolCall
from midspan.providers.provider import ModelProfile
from midspan.testing import ScriptedProvider
from tests.bounds import BOUND, PATIENT_PROGRAM


class Gemini(ScriptedProvider):
    profile = ModelProfile("Gemini")


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@pytest.mark.requirement("S2-15")
def test_prompt_response_calls_and_results_are_logged_at_debug_level(caplog: pytest.LogCaptureFixture) -> None:
    script = [[ToolCall("1", "add", {"a": 1, "b": 2})], [Text("It is 3.")]]
    with caplog.at_level(logging.DEBUG, "midspan._loop"):
        Agent(Gemini(script), tools=[add], system="Be brief.").run_sync("1 + 2?")
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "[Gemini] System Prompt: Be brief."
    assert lines[1].startswith("[Gemini] Prompt: ")
    assert "1 + 2?" in lines[1]
    assert any(line.startswith("[Gemini] Response: ") and "It is 3." in line for line in lines)
    assert any(line.startswith("[Gemini] Tool Calls: ") and "'add'" in line for line in lines)
    assert any(line.startswith("[Gemini] Tool Result: ") and "value=3" in line for line in lines)
    assert {record.levelno for record in caplog.records} == {logging.DEBUG}


def test_only_warnings_are_shown_unless_logging_is_configured() -> None:
    code = """
from midspan import Agent
from midspan.testing import ScriptedProvider
from midspan._types.parts import ToolCall
def broken():
    raise RuntimeError("x")
script = [[ToolCall("1", "nothing", {}), ToolCall("2", "broken", {})], "done"]
print(Agent(ScriptedProvider(script), tools=[broken]).run_sync("?").text)
"""
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", PATIENT_PROGRAM + code], capture_output=True, text=True, timeout=BOUND
    )
    lines = ran.stderr.splitlines()
    assert (ran.stdout, lines[0]) == ("done\n", "Model called invalid tool: nothing")
    assert (lines[1], lines[-1]) == ("tool broken raised RuntimeError", "RuntimeError: x")


@pytest.mark.requirement("S2-09")
def test_call_of_an_unknown_tool_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "midspan"):
        result = Agent(Gemini([ToolCall("1", "ad", {}), "sorry"]), tools=[add]).run_sync("1 + 2?")
    assert [record.getMessage() for record in caplog.records] == ["Gemini called invalid tool: ad"]
    assert result.tool_calls[0].value == "unknown tool: ad; did you mean add? The tools are: add"
