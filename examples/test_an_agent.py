"""Tests of an agent, without a key and without a network.

Run them with `pytest examples/test_an_agent.py`; in a clone that needs the packages of `.[dev]`.
"""

import pytest

from midspan import Agent, Gemini, Limits, tool
from midspan.emulator import LocalGemini, call
from midspan.errors import LimitReachedError
from midspan.messages import ToolCall
from midspan.testing import ScriptedProvider

ORDERS = {"A1": "shipped"}


@tool(reads="orders")
def order_status(order: str) -> str:
    """The status of an order."""
    return ORDERS[order]


agent = Agent("gemini:gemini-3.8-flash", tools=[order_status], limits=Limits(max_turns=3))


def test_the_status_is_looked_up() -> None:
    model = ScriptedProvider([ToolCall("1", "order_status", {"order": "A1"}), "It is on its way."])
    result = agent.replace(model=model).run_sync("Where is order A1?")
    assert [(run.name, run.value) for run in result.tool_calls] == [("order_status", "shipped")]
    assert result.text == "It is on its way."


def test_an_unknown_order_is_reported_to_the_model() -> None:
    model = ScriptedProvider([ToolCall("1", "order_status", {"order": "B2"}), "There is no such order."])
    result = agent.replace(model=model).run_sync("Where is order B2?")
    assert result.tool_calls[0].is_error


def test_endless_calls_end_with_an_error() -> None:
    model = ScriptedProvider(lambda request: ToolCall(str(len(request.history)), "order_status", {"order": "A1"}))
    with pytest.raises(LimitReachedError):
        agent.replace(model=model).run_sync("Where is order A1?")


def test_the_requests_are_valid_for_gemini() -> None:
    with LocalGemini([call("order_status", order="A1"), "It is on its way."]) as server:
        local = agent.replace(model=Gemini(api_key="any", base_url=server.url))
        assert local.run_sync("Where is order A1?").text == "It is on its way."
