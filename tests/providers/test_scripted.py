"""The scripted model: which scripts it accepts, and what it makes of them."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from midspan import Agent
from midspan._types.exchange import FinishReason, ModelRequest, ModelResponse
from midspan._types.messages import Message
from midspan._types.parts import Text, Thought
from midspan.errors import ConfigError, ProviderError
from midspan.providers.scripted import ScriptedProvider


def text_of(script: Any) -> str:
    return str(Agent(ScriptedProvider(script)).run_sync("?").text)


async def later(request: ModelRequest) -> Any:
    await asyncio.sleep(0)
    return lambda _: request.history.messages[-1].text


async def soon() -> str:
    return "soon"


TURNS: dict[str, tuple[Callable[[], Any], str]] = {
    "a text": (lambda: "a", "a"),
    "a part": (lambda: Text("b"), "b"),
    "parts": (lambda: [Thought("Hm."), Text("c"), "d"], "cd"),
    "a tuple": (lambda: ("e", Text("f")), "ef"),
    "a response": (lambda: ModelResponse(Message("model", (Text("g"),)), FinishReason.END), "g"),
    "a function": (lambda: lambda request: request.history.messages[-1].text, "?"),
    "an async function that returns a function": (lambda: later, "?"),
    "an awaitable": (soon, "soon"),
}


@pytest.mark.parametrize("name", TURNS)
def test_turn_can_have_many_forms(name: str) -> None:
    make, expected = TURNS[name]
    assert text_of([make()]) == text_of(iter([make()])) == text_of(lambda _: make()) == expected


def test_exception_in_a_script_is_raised() -> None:
    for script in ([ProviderError("no")], lambda _: ProviderError("no")):
        with pytest.raises(ProviderError, match=r"^no$"):
            text_of(script)


INVALID_TURNS: list[tuple[Any, str]] = [
    (5, "5"),
    (None, "None"),
    (b"x", "b'x'"),
    ({"text": "x"}, "{'text': 'x'}"),
    (["x", 5], "5"),
    (["x", ["y"]], "['y']"),
    (Message("user", ()), "Message(role='user'"),
    (["x", ValueError], "<class 'ValueError'>"),
]


@pytest.mark.parametrize(("turn", "shown"), INVALID_TURNS)
def test_invalid_turn_is_an_error_when_it_is_used(turn: Any, shown: str) -> None:
    async def awaited(_: ModelRequest) -> Any:
        return turn

    for script in ([turn], [lambda _: turn], lambda _: turn, awaited):
        with pytest.raises(ConfigError) as raised:
            text_of(script)
        assert str(raised.value).startswith(f"turn 1 of the script contains {shown}")


def test_a_text_as_a_script_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="a script is a list of turns, but 'hello' is one turn"):
        ScriptedProvider("hello")


def test_script_can_grow_and_has_an_end() -> None:
    script: list[Any] = ["a"]
    agent = Agent(ScriptedProvider(script))
    script.append("b")
    assert [agent.run_sync("?").text for _ in range(2)] == ["a", "b"]
    with pytest.raises(ConfigError, match="the script has ended, but the model is asked for turn 3"):
        agent.run_sync("?")


def test_repr_shows_the_name_of_the_model() -> None:
    assert repr(Agent(ScriptedProvider(["a"], model="parrot"), [len])) == "Agent(ScriptedProvider('parrot'), 1 tool)"
