"""Gemini itself: run with `make live-test`, which needs a key in GOOGLE_API_KEY or GEMINI_API_KEY."""

import os

import pytest

from midspan import Agent, Gemini
from midspan.gemini import Client
from midspan.providers.gemini.family import FAMILY

pytestmark = pytest.mark.skipif(not FAMILY.has_credentials(os.environ), reason="set GOOGLE_API_KEY or GEMINI_API_KEY")


def get_temperature(city: str) -> dict[str, int]:
    """Return the current temperature in a city, in degrees Celsius."""
    assert city
    return {"temp_c": 17}


def test_an_agent_calls_a_tool_and_answers_with_its_result() -> None:
    result = Agent(Gemini(), [get_temperature]).run_sync("How warm is it in Oslo? Use the tool.")
    assert [call.name for call in result.tool_calls] == ["get_temperature"]
    assert "17" in result.text
    assert result.usage.total > 0


def test_a_streamed_answer_is_complete() -> None:
    with Client() as client:
        stream = client.stream_generate_content("Say the word hello and nothing else.")
        text = "".join(chunk.text for chunk in stream)
    assert text == stream.response.text
    assert "hello" in text.lower()
    assert stream.response.finish_reason == "STOP"


def test_calls_of_two_turns_are_accepted_with_their_signatures() -> None:
    with Client() as client:
        answer = client.generate_content_with_auto_tools(
            "How warm is it in Oslo, and how warm in Bonn? Ask for one city after the other.", tools=[get_temperature]
        )
    assert len(answer.result.tool_calls) >= 2
    assert "17" in answer.text
