"""Providers and tools that break their promises, and limits at the wrong moment."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from midspan import Agent, Limits, tool
from midspan._loop.typed_output import ANSWER_TOOL
from midspan._types.events import TurnRetry
from midspan._types.exchange import FinishReason, ModelRequest, ModelResponse, Usage
from midspan._types.messages import Message
from midspan._types.parts import Opaque, Part, Text, ToolCall
from midspan._types.specs import ToolChoice
from midspan.errors import LimitReachedError, NoAnswerError, ProviderError, ServerError
from midspan.providers.provider import ModelProfile
from midspan.testing import ScriptedProvider
from tests.streaming import PartsProvider


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool(final=True)
async def finish(x: str) -> str:
    """The end."""
    return x


def call(name: str, id: str = "1", /, **arguments: Any) -> ToolCall:
    return ToolCall(id, name, arguments)


def nested(depth: int) -> list[Any]:
    inner: list[Any] = []
    for _ in range(depth):
        inner = [inner]
    return inner


def answer(*parts: Part, finish: FinishReason = FinishReason.END, **more: Any) -> ModelResponse:
    return ModelResponse(Message("model", parts), finish, **more)


class Turns(PartsProvider, ScriptedProvider):
    """Each turn is what its stream does, down to the last detail."""

    def __init__(self, *turns: Any) -> None:
        super().__init__([])
        self._turns = list(turns)

    async def parts(self, request: ModelRequest) -> AsyncIterator[Any]:
        self.requests.append(request)
        for item in self._turns.pop(0):
            if isinstance(item, BaseException):
                raise item
            yield item


def test_provider_that_yields_nothing_is_asked_again() -> None:
    provider = Turns([answer(Text("Let me see."), call("add", a=1, b=2))], [], [answer(Text("3"))])
    result = Agent(provider, tools=[add]).run_sync("?")
    assert (result.text, result.turns) == ("3", 3)


def test_provider_that_yields_nothing_after_an_earlier_turn_is_reported_as_cut() -> None:
    provider = Turns([answer(Text("Let me see."), call("add", a=1, b=2))], [], [answer(Text("3"))])
    events = list(Agent(provider, tools=[add]).stream("?"))
    assert [event.reason for event in events if isinstance(event, TurnRetry)] == ["the response was cut off"]


def test_error_of_one_turn_is_not_reported_for_another() -> None:
    cut = [answer(finish=FinishReason.CUT)]
    first = [Text("a"), ServerError("first", status=503)]
    provider = Turns(first, [answer(call("add", a=1, b=2))], cut, cut, cut, cut, cut)
    with pytest.raises(NoAnswerError, match="cut off"):
        Agent(provider, tools=[add]).run_sync("?")


@pytest.mark.parametrize("error", [RuntimeError("bang"), KeyError("x")])
def test_exception_of_a_provider_becomes_a_typed_error_with_the_transcript(error: Exception) -> None:
    provider = Turns([answer(call("add", a=1, b=2))], [Text("so"), error])
    with pytest.raises(ProviderError, match="the model failed") as caught:
        Agent(provider, tools=[add]).run_sync("?")
    assert caught.value.transcript is not None
    assert len(caught.value.transcript) == 3


def test_provider_may_return_any_async_iterator() -> None:
    class Plain(PartsProvider, ScriptedProvider):
        def stream(self, request: ModelRequest) -> Any:
            class Items:
                def __init__(self) -> None:
                    self.left = [answer(Text("fine"))]

                def __aiter__(self) -> Any:
                    return self

                async def __anext__(self) -> Any:
                    if not self.left:
                        raise StopAsyncIteration
                    return self.left.pop()

            return Items()

    assert Agent(Plain([])).run_sync("?").text == "fine"


@pytest.mark.parametrize("arguments", [{"a": object()}, {1: 2}, {"a": "\ud800"}, {"a": nested(1_500)}])
def test_arguments_that_are_not_json_are_returned_as_an_error(arguments: Any) -> None:
    result = Agent(ScriptedProvider([[ToolCall("1", "add", arguments)], "ok"]), tools=[add]).run_sync("?")
    assert result.tool_calls[0].is_error


def test_calls_of_one_id_get_their_own_results_at_the_time_limit() -> None:
    @tool
    async def look(x: str) -> str:
        await asyncio.sleep(0.02 if x == "A" else 0)
        return f"result of {x}"

    result = Agent(ScriptedProvider([[call("look", x="A"), call("look", x="B")], "ok"]), tools=[look]).run_sync("?")
    assert [one.value for one in result.messages[2].results] == ["result of A", "result of B"]
    same = call("add", a=1, b=1)
    many = [call("add", "c", a=n, b=0) for n in range(500)]
    result = Agent(ScriptedProvider([[same, same], many, "ok"]), tools=[add]).run_sync("?")
    assert [one.value for one in result.messages[4].results] == list(range(500))


def test_cancelled_tool_is_not_reported_as_never_run() -> None:
    @tool
    async def pay(amount: int) -> str:
        await asyncio.sleep(60)
        return "paid"

    for on_limit in ("error", "message"):
        agent = Agent(
            ScriptedProvider([[call("pay", amount=5)]]), [pay], limits=Limits(max_seconds=1, on_limit=on_limit)
        )
        try:
            history: Any = agent.run_sync("?").messages
        except LimitReachedError as error:
            history = error.transcript
        assert "was cancelled" in history[2].results[0].value
        assert "unknown" in history[2].results[0].value


class Endless(PartsProvider):
    """Never waits, and never ends its answer."""

    model = "endless"

    async def parts(self, request: ModelRequest) -> AsyncIterator[Any]:
        while True:
            yield Text("word ")

    async def aclose(self) -> None:
        return


def test_time_limit_ends_a_stream_that_always_has_another_event() -> None:
    async def main() -> None:
        async with Agent(Endless(), limits=Limits(max_seconds=0.1)).stream("?") as stream:
            async for _ in stream:
                pass

    with pytest.raises(LimitReachedError, match="Maximum run time exceeded"):
        asyncio.run(main())


def test_time_limit_ends_the_run_although_a_tool_ignores_its_cancellation() -> None:
    @tool
    async def stubborn() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)
        return "done all the same"

    provider = ScriptedProvider([[call("stubborn")], "never asked"])
    with pytest.raises(LimitReachedError) as caught:
        Agent(provider, tools=[stubborn], limits=Limits(max_seconds=1)).run_sync("?")
    assert len(provider.requests) == 1
    transcript: Any = caught.value.transcript
    assert transcript[2].results[0].value.endswith("whether it had an effect is unknown")


@pytest.mark.parametrize("limits", [Limits(max_turns=1), Limits(max_tokens=1), Limits(max_turns=1, on_limit="message")])
def test_final_call_at_the_limit_needs_no_further_request(limits: Limits) -> None:
    script = [answer(call("add", "0", a=1, b=1), call("finish", x="a"), usage=Usage(input=5))]
    result = Agent(ScriptedProvider(script), tools=[add, finish], limits=limits).run_sync("?")
    assert (result.text, result.limit) == ("a", None)
    assert [one.is_error for one in result.messages[2].results] == [True, False]


def test_limit_that_unusable_responses_reached_names_them_as_its_cause() -> None:
    with pytest.raises(LimitReachedError) as caught:
        Agent(ScriptedProvider(["", ""]), limits=Limits(max_turns=2)).run_sync("?")
    assert isinstance(caught.value.__cause__, NoAnswerError)
    assert str(caught.value.__cause__) == "the model returned an empty response"


def test_call_at_the_limit_that_is_not_final_ends_with_the_limit() -> None:
    @tool(final=lambda value: value == "done")
    async def act(what: str) -> str:
        return what

    for on_limit in ("error", "message"):
        agent = Agent(
            ScriptedProvider([[call("act", what="more")]]), tools=[act], limits=Limits(max_turns=1, on_limit=on_limit)
        )
        if on_limit == "error":
            with pytest.raises(LimitReachedError):
                agent.run_sync("?")
        else:
            assert agent.run_sync("?").limit == "max_turns"


class Old(ScriptedProvider):
    profile = ModelProfile("Old", supports_json_with_tools=False)


@dataclass
class City:
    name: str
    people: int

    def __post_init__(self) -> None:
        if self.people < 0:
            raise ValueError("people cannot be negative")


def test_answer_tool_does_not_count_as_a_tool_call() -> None:
    script = [[call("add", a=1, b=1)], [call(ANSWER_TOOL, "2", answer={"name": "Oslo", "people": 1})]]
    limits = Limits(max_tool_calls=1, max_turns=2)
    assert Agent(Old(script), tools=[add], output=City, limits=limits).run_sync("?").output == City("Oslo", 1)
    rejected = [call(ANSWER_TOOL, "0", answer={"name": "Oslo", "people": -1})]
    limits = Limits(max_tool_calls=1, max_turns=3)
    assert Agent(Old([rejected, *script]), tools=[add], output=City, limits=limits).run_sync("?").turns == 3


def test_answer_that_its_type_rejects_is_returned_to_the_model() -> None:
    script = [[call(ANSWER_TOOL, str(people), answer={"name": "Oslo", "people": people})] for people in (-1, 1)]
    result = Agent(Old(script), tools=[add], output=City).run_sync("?")
    assert result.output == City("Oslo", 1)
    assert "negative" in result.tool_calls[0].value


def test_result_of_a_final_tool_is_the_typed_answer_if_it_matches() -> None:
    @tool(final=True)
    async def found(name: str, people: int) -> dict[str, Any]:
        return {"name": name, "people": people}

    for provider in (ScriptedProvider, Old):
        script = [[call("found", name="Oslo", people=1)]]
        assert Agent(provider(script), tools=[found], output=City).run_sync("?").output == City("Oslo", 1)
    result = Agent(ScriptedProvider([[call("finish", x="a")]]), tools=[finish], output=City).run_sync("?")
    assert result.output == "a"


@pytest.mark.parametrize("nothing", [Opaque("executableCode", b"{}"), Text(" \n")])
def test_turn_without_text_is_requested_again_and_accepted_in_the_end(nothing: Any) -> None:
    assert Agent(ScriptedProvider([[nothing], "words"])).run_sync("?").text == "words"
    result = Agent(ScriptedProvider([[nothing]] * 9)).run_sync("?")
    assert (result.text.strip(), result.turns) == ("", 4)


def test_continued_answer_without_a_token_is_complete() -> None:
    script = [answer(Text("One two "), finish=FinishReason.CONTINUES), "three"]
    assert Agent(ScriptedProvider(script)).run_sync("?").text == "One two three"


def test_request_for_another_answer_discards_the_text_of_a_paused_one() -> None:
    pause = answer(Text("Let me think. "), finish=FinishReason.CONTINUES)
    assert Agent(ScriptedProvider([pause, "  ", "Hello."])).run_sync("?").text == "Hello."
    script = [pause, "It is Oslo.", '{"name": "Oslo", "people": 1}']
    assert Agent(ScriptedProvider(script), output=City).run_sync("?").output == City("Oslo", 1)
    cut = answer(Text("and then"), finish=FinishReason.CUT)
    assert Agent(ScriptedProvider([pause, cut, "Hello."])).run_sync("?").text == "Let me think. Hello."


def test_forbidden_call_is_not_run() -> None:
    runs = []

    @tool
    async def pay(amount: int) -> str:
        runs.append(amount)
        return "paid"

    script = [[call("pay", amount=1)], "fine"]
    result = Agent(ScriptedProvider(script), tools=[pay], tool_choice="none").run_sync("?")
    assert (result.text, runs) == ("fine", [])
    assert "is not available now" in result.tool_calls[0].value
    with pytest.raises(NoAnswerError, match="only made calls that were refused"):
        Agent(
            ScriptedProvider([[call("pay", str(n), amount=n)] for n in range(9)]), [pay], tool_choice="none"
        ).run_sync("?")
    only = Agent(ScriptedProvider(script), tools=[pay, add], tool_choice={"type": "required", "tool": "add"})
    assert "call add" in only.run_sync("?").tool_calls[0].value
    assert runs == []


def test_text_is_not_an_answer_with_calls_only() -> None:
    provider = ScriptedProvider(["I would rather talk.", [call("finish", x="a")]])
    result = Agent(provider, tools=[finish], calls_only=True).run_sync("?")
    assert result.text == "a"
    assert {request.config.tool_choice for request in provider.requests} == {ToolChoice("required")}
    with pytest.raises(NoAnswerError, match="answered with text"):
        Agent(ScriptedProvider(["no"] * 9), tools=[finish], calls_only=True).run_sync("?")


def test_every_tool_end_has_a_tool_start() -> None:
    async def main() -> list[str]:
        script = ScriptedProvider([[call("add", "1", a=1, b=1), call("add", "2", a=2, b=2)]])
        stream = Agent(script, tools=[add], limits=Limits(max_turns=1, on_limit="message")).stream("?")
        return [type(event).__name__ for event in [event async for event in stream]]

    names = asyncio.run(main())
    assert names.count("ToolStart") == names.count("ToolEnd") == 2


def test_stream_is_read_once_and_its_messages_are_always_valid() -> None:
    async def main() -> None:
        stream = Agent(ScriptedProvider([[call("add", a=1, b=1)], "2"]), tools=[add]).stream("?")
        async for event in stream:
            last = stream.messages[-1]
            assert not last.calls, event
        with pytest.raises(Exception, match="read only once"):
            aiter(stream)

    asyncio.run(main())
