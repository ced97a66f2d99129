"""What tools can do with their RunContext, and the events of retries and progress."""

import asyncio
from typing import Any

import pytest

from midspan import Agent, tool
from midspan._types.context import RunContext
from midspan._types.events import RequestRetry, ToolEnd, ToolProgress
from midspan._types.parts import ToolCall
from midspan.emulator import FaultPlan, LocalGemini
from midspan.providers.gemini.client import Gemini
from midspan.testing import ScriptedProvider
from tests.virtual_clock import VirtualClock

SCRIPT = [ToolCall("1", "book"), "done"]


@tool
async def book(context: RunContext[None]) -> str:
    """Book a table."""
    return f"booked for {await context.ask_user('How many people?', {'type': 'integer'})}"


async def result_with(on_question: Any) -> Any:
    result = await Agent(ScriptedProvider(SCRIPT), [book]).run("?", on_question=on_question)
    return result.tool_calls[0]


def test_tool_asks_the_user_of_its_run() -> None:
    questions: list[Any] = []

    async def on_question(question: str, schema: dict[str, Any] | None) -> Any:
        questions.append((question, schema))
        return 4

    assert asyncio.run(result_with(on_question)).value == "booked for 4"
    assert questions == [("How many people?", {"type": "integer"})]


@pytest.mark.parametrize(("given", "error"), [("many", "requested form"), (None, "requested form")])
def test_answer_of_the_wrong_form_is_an_error_for_the_model(given: Any, error: str) -> None:
    async def on_question(question: str, schema: dict[str, Any] | None) -> Any:
        return given

    call = asyncio.run(result_with(on_question))
    assert call.is_error
    assert error in call.value


def test_without_a_user_the_tool_fails() -> None:
    call = asyncio.run(result_with(None))
    assert call.is_error
    assert "pass on_question" in call.value


def test_stream_reports_each_retry_of_a_request_with_its_wait() -> None:
    async def main() -> list[Any]:
        with LocalGemini(["fine"], faults=FaultPlan.parse("0:status_503")) as server:
            model = Gemini("gemini-3.5-flash", api_key="any", base_url=server.url, clock=VirtualClock([0.5]))
            return [event async for event in Agent(model).stream("?")]

    retries = [event for event in asyncio.run(main()) if isinstance(event, RequestRetry)]
    assert [(retry.turn, retry.attempt, retry.wait_seconds, retry.status) for retry in retries] == [(1, 1, 0.5, 503)]
    assert retries[0].message


def test_progress_is_a_fraction() -> None:
    @tool
    async def work(context: RunContext[None], fraction: Any) -> str:
        """Work."""
        context.progress(fraction)
        return "done"

    async def fractions(fraction: Any) -> list[Any]:
        agent = Agent(ScriptedProvider([ToolCall("1", "work", {"fraction": fraction}), "done"]), [work])
        events = [event async for event in agent.stream("?")]
        return [getattr(event, "fraction", None) or event.result.value for event in events
                if isinstance(event, ToolProgress | ToolEnd)]  # fmt: skip

    assert asyncio.run(fractions(2.5)) == [1.0, "done"]


def test_unread_progress_of_a_call_is_replaced() -> None:
    @tool
    async def work(context: RunContext[None]) -> None:
        """Report often, while nobody reads."""
        for step in range(10_000):
            context.progress(step / 10_000)

    async def main() -> list[Any]:
        agent = Agent(ScriptedProvider([[ToolCall("1", "work"), ToolCall("2", "work")], "done"]), [work])
        return [event async for event in agent.stream("?") if isinstance(event, ToolProgress)]

    reports = asyncio.run(main())
    assert len(reports) < 100
    assert {report.index: report.fraction for report in reports} == {0: 0.9999, 1: 0.9999}
