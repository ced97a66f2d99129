import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from midspan import Agent
from midspan._types.exchange import FinishReason, ModelRequest, ModelResponse
from midspan._types.messages import Message
from midspan._types.parts import Text, Thought, ToolCall
from midspan.errors import ConfigError, ProviderError
from midspan.providers.scripted import ScriptedProvider


def said(script: Any) -> str:
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
    "an answer": (lambda: ModelResponse(Message("model", (Text("g"),)), FinishReason.END), "g"),
    "a function": (lambda: lambda request: request.history.messages[-1].text, "?"),
    "an async function that gives a function": (lambda: later, "?"),
    "something to wait for": (soon, "soon"),
}


@pytest.mark.parametrize("name", TURNS)
def test_a_turn_may_be_given_in_many_ways(name: str) -> None:
    make, expected = TURNS[name]
    assert said([make()]) == said(iter([make()])) == said(lambda _: make()) == expected


def test_an_exception_is_raised() -> None:
    for script in ([ProviderError("no")], lambda _: ProviderError("no")):
        with pytest.raises(ProviderError, match=r"^no$"):
            said(script)


MAY_BE = "a turn is a text, a part, a list of them, a ModelResponse, an exception, or a function"
NO_TURNS: list[tuple[Any, str]] = [
    (5, f"is 5; {MAY_BE}"),
    (None, f"is None; {MAY_BE}"),
    (b"x", f"is b'x'; {MAY_BE}"),
    ({"text": "x"}, f"is {{'text': 'x'}}; {MAY_BE}"),
    (["x", 5], f"holds 5; {MAY_BE}"),
    (["x", ["y"]], f"holds ['y']; {MAY_BE}"),
    (Text(5), f"is Text(text=5, provider_data=None); {MAY_BE}"),  # type: ignore[arg-type]
    (ToolCall(1, "f"), "is ToolCall(id=1, name='f', arguments={}"),  # type: ignore[arg-type]
    (Message("user", ()), "is Message(role='user'"),
    (ModelResponse("x", FinishReason.END), "whose message is 'x'; give it a Message"),  # type: ignore[arg-type]
    (ValueError, "is the class ValueError; give one that is made, as ValueError(…)"),
    (Text, "is the class Text; give one that is made, as Text(…)"),
    (["x", ValueError], "holds the class ValueError; give one that is made"),
]


@pytest.mark.parametrize(("turn", "words"), NO_TURNS)
def test_what_is_no_turn_is_refused_where_it_is_given(turn: Any, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        ScriptedProvider(["fine", turn])
    assert str(raised.value).startswith("turn 2 of the script ")
    assert words in str(raised.value)


@pytest.mark.parametrize(("turn", "words"), NO_TURNS)
def test_what_comes_later_is_refused_when_it_is_said(turn: Any, words: str) -> None:
    async def waited_for(_: ModelRequest) -> Any:
        return turn

    for script in (iter([turn]), [lambda _: turn], lambda _: turn, waited_for):
        with pytest.raises(ConfigError) as raised:
            said(script)
        assert str(raised.value).startswith("turn 1 of the script ")
        assert words in str(raised.value)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("hello", "a script is a list of turns, and 'hello' is one turn; give ['hello']"),
        (Text("x"), "is one turn; give [Text("),
        (ValueError("x"), "is one turn; give [ValueError('x')]"),
        (5, "a script is a list of turns or a function of the request, not 5"),
        (None, "or a function of the request, not None"),
        (b"x", "or a function of the request, not b'x'"),
        ({"a": 1}, "or a function of the request, not {'a': 1}"),
        ({"a"}, "or a function of the request, not {'a'}"),
        (ValueError, "or a function of the request, not <class 'ValueError'>"),
    ],
)
def test_what_is_no_script_is_refused(script: Any, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        ScriptedProvider(script)
    assert words in str(raised.value)


def test_the_name_of_the_model_is_a_text() -> None:
    with pytest.raises(ConfigError, match="is called, a text, not 5"):
        ScriptedProvider([], model=5)  # type: ignore[arg-type]


def test_a_script_may_grow_and_has_an_end() -> None:
    script: list[Any] = ["a"]
    agent = Agent(ScriptedProvider(script))
    script.append("b")
    assert [agent.run_sync("?").text for _ in range(2)] == ["a", "b"]
    with pytest.raises(ConfigError, match="the script has ended, but the model is asked for turn 3"):
        agent.run_sync("?")
