"""Conversations that other frameworks kept, continued with Gemini: every one is accepted, and no result is lost."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midspan import Agent, Gemini
from midspan.emulator import LocalGemini
from midspan.messages import Message, Part, Text, Thought, ToolCall, ToolResult

MODELS = ("gemini-3.8-flash", "gemini-3-flash-preview", "gemini-2.5-flash", "gemma-4-31b-it")
ID_STYLES = ("call_{turn}{index}", "toolu_{turn}{index}", "{index}", "midspan-{turn}.{index}", "{name}")


@pytest.fixture(scope="module")
def agents() -> Iterator[list[tuple[Agent, LocalGemini]]]:
    with LocalGemini(["Done."]) as server:
        yield [(Agent(Gemini(model, api_key="any", base_url=server.url)), server) for model in MODELS]


def groups(draw: Any, parts: list[Part], role: Any) -> list[Message]:
    """Return parts in one message or in several, as frameworks differ in it."""
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(parts) - 1))))) if len(parts) > 1 else []
    return [Message(role, tuple(parts[start:end])) for start, end in zip([0, *cuts], [*cuts, len(parts)], strict=True)]


@st.composite
def histories(draw: Any) -> list[Message]:
    style = draw(st.sampled_from(ID_STYLES))
    messages: list[Message] = [Message("model", (Text("Welcome."),))] if draw(st.booleans()) else []
    for turn in range(draw(st.integers(1, 3))):
        messages += groups(draw, [Text(f"Question {turn}."), Text("Please.")][: draw(st.integers(1, 2))], "user")
        if draw(st.booleans()):
            messages += _tool_step(draw, turn, style)
        if draw(st.booleans()):
            messages += groups(draw, [Text("So."), Text(f"Answer {turn}.")][: draw(st.integers(1, 2))], "model")
    first = draw(st.integers(0, max(0, len(messages) - 1)))
    return messages[first:] if draw(st.booleans()) else messages


def _tool_step(draw: Any, turn: int, style: str) -> list[Message]:
    names = draw(st.lists(st.sampled_from(["get", "find"]), min_size=1, max_size=3))
    calls = [
        ToolCall(style.format(turn=turn, index=index, name=name), name, {"x": index})
        for index, name in enumerate(names)
    ]
    before: list[Part] = [Thought("Hm."), Text("Let me look.")][: draw(st.integers(0, 2))]
    after: list[Part] = [Text("One moment.")][: draw(st.integers(0, 1))]
    results: list[Part] = [
        ToolResult(call.id, draw(st.sampled_from([call.name, ""])), f"value {turn}.{index}")
        for index, call in enumerate(calls)
    ]
    results = draw(st.permutations(results))
    comment: list[Part] = [Text("Go on.")][: draw(st.integers(0, 1))]
    return [*groups(draw, [*before, *calls, *after], "model"), *groups(draw, [*results, *comment], "user")]


@given(histories())
def test_a_history_of_another_framework_is_accepted_with_all_its_results(
    agents: list[tuple[Agent, LocalGemini]], history: list[Message]
) -> None:
    for agent, server in agents:
        assert agent.run_sync("And now?", messages=history).text == "Done."
        body = server.requests[-1].body.decode()
        for message in history:
            assert all(str(result.value) in body for result in message.results)
            assert all(f'"name":"{call.name}"' in body for call in message.calls)
        assert "was not run" not in body
