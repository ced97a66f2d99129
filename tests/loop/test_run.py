"""Runs with a scripted model, through the public API: calls, limits, malformed responses, histories."""

import asyncio
import datetime
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec import Raw

from midspan import Agent, Limits, Toolbox, tool
from midspan._types.exchange import FinishReason, ModelRequest, ModelResponse, Usage
from midspan._types.messages import History, Message
from midspan._types.parts import Blob, ProviderData, Text, Thought, ToolCall, ToolResult
from midspan._types.specs import BuiltinTool, ToolChoice
from midspan.errors import (
    AnswerBlockedError,
    ConfigError,
    IncompleteResponseError,
    LimitReachedError,
    MidspanError,
    NoAnswerError,
    ServerError,
)
from midspan.providers.gemini.capabilities import capabilities_of, profile_of
from midspan.providers.provider import ModelProfile
from midspan.testing import ScriptedProvider
from midspan.tools.source import ToolListing, ToolSource
from tests.bounds import BOUND
from tests.streaming import PartsProvider


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def call(tool: str = "add", id: str = "1", /, **arguments: Any) -> ToolCall:
    return ToolCall(id, tool, arguments)


def answer(*parts: Any, finish: FinishReason = FinishReason.END, **more: Any) -> ModelResponse:
    return ModelResponse(Message("model", tuple(parts)), finish, **more)


def test_tool_is_called_and_the_answer_is_returned() -> None:
    agent = Agent(ScriptedProvider([[call(a=1, b=2)], [Text("3")]]), tools=[add], limits=Limits(max_turns=None))
    result = agent.run_sync("1 + 2?")
    assert (result.text, result.output, result.turns, result.run_id[:4]) == ("3", "3", 2, "run_")
    assert [(one.name, one.arguments, one.value) for one in result.tool_calls] == [("add", {"a": 1, "b": 2}, 3)]
    assert result.messages == (
        Message.user("1 + 2?"),
        Message("model", (call(a=1, b=2),)),
        Message.user(ToolResult("1", "add", 3)),
        Message("model", (Text("3"),)),
    )
    assert result.new_messages == result.messages[0:]


def test_unknown_tool_name_does_not_end_the_run() -> None:
    provider = ScriptedProvider([[call("ad", a=1, b=2)], [call(a=1, b=2)], "3"])
    result = Agent(provider, tools=[add]).run_sync("1 + 2?")
    assert result.text == "3"
    assert result.tool_calls[0].is_error
    assert "did you mean add?" in result.tool_calls[0].value


@pytest.mark.requirement("S3-09", "S4-07")
@pytest.mark.parametrize("pair", [("wait", "block"), ("wait", "wait"), ("block", "block")])
def test_tools_of_one_turn_run_at_the_same_time(pair: tuple[str, str]) -> None:
    both_run = threading.Barrier(2)  # neither ends before the other has begun

    @tool
    async def wait(name: str) -> str:
        await asyncio.to_thread(both_run.wait, BOUND)
        return name

    @tool
    def block(name: str) -> str:
        both_run.wait(BOUND)
        return name

    one, other = (call(kind, id, name=id) for kind, id in zip(pair, "ab", strict=True))
    result = Agent(ScriptedProvider([[one, other], "ok"]), [wait, block]).run_sync("go")
    assert [one.value for one in result.messages[2].results] == ["a", "b"]


def test_call_that_is_repeated_forever_is_refused_and_the_run_ends_in_an_answer() -> None:
    runs = []

    @tool
    async def weather(city: str) -> str:
        """The weather."""
        runs.append(city)
        return "rain"

    def model(request: ModelRequest) -> Any:
        if request.config.tool_choice == ToolChoice("none"):
            return "It rains."
        return call("weather", f"id{len(request.history)}", city="Oslo")

    provider = ScriptedProvider(model)
    result = Agent(provider, tools=[weather]).run_sync("How is it?")
    assert result.text == "It rains."
    assert runs == ["Oslo"] * 5
    refused = result.tool_calls[5].result
    assert refused.is_error
    assert "not run again" in refused.value
    assert [len(request.config.tools) for request in provider.requests] == [1] * len(provider.requests)


def test_model_that_ignores_withdrawn_tools_is_given_up() -> None:
    provider = ScriptedProvider(lambda request: call("add", f"id{len(request.history)}", a=1, b=1))
    with pytest.raises(NoAnswerError, match="only made calls that were refused") as caught:
        Agent(provider, tools=[add], limits=Limits(max_turns=None)).run_sync("?")
    assert_legal(caught.value)


@pytest.mark.parametrize("off", ["repeatable", "limit"])
def test_loop_detection_can_be_turned_off(off: str) -> None:
    runs = []

    @tool(repeatable=off == "repeatable")
    async def poll() -> str:
        runs.append(1)
        return "pending"

    script = [[call("poll", str(number))] for number in range(6)]
    limits = Limits(max_repeats=2 if off == "repeatable" else None)
    Agent(ScriptedProvider([*script, "done"]), tools=[poll], limits=limits).run_sync("?")
    assert len(runs) == 6


def test_different_arguments_or_results_are_not_repetitions() -> None:
    numbers = iter(range(100))

    @tool
    async def next_number(step: int = 1) -> int:
        return next(numbers)

    @tool
    async def echo(text: str) -> str:
        return "ok"

    script = [[call("next_number", f"a{n}"), call("echo", f"b{n}", text=str(n))] for n in range(6)]
    result = Agent(ScriptedProvider([*script, "done"]), tools=[next_number, echo]).run_sync("?")
    assert next(numbers) == 6
    assert not any(one.result.notes for one in result.tool_calls)


def test_malformed_call_is_requested_again() -> None:
    malformed = answer(finish=FinishReason.MALFORMED_CALL, finish_message="Malformed function call: add(a=")
    provider = ScriptedProvider([malformed, [call(a=1, b=2)], "3"])
    result = Agent(provider, tools=[add]).run_sync("1 + 2?")
    assert result.text == "3"
    assert "could not be read: Malformed function call" in provider.requests[1].history[-1].text


def test_malformed_call_is_recovered_if_it_is_complete() -> None:
    words = "Malformed function call: print(default_api.add(a=1, b=2))"
    provider = ScriptedProvider([answer(finish=FinishReason.MALFORMED_CALL, finish_message=words), "3"])
    result = Agent(provider, tools=[add]).run_sync("1 + 2?")
    assert (result.text, result.turns) == ("3", 2)
    assert [(one.name, one.arguments, one.value) for one in result.tool_calls] == [("add", {"a": 1, "b": 2}, 3)]


def test_coerced_arguments_need_no_second_turn() -> None:
    seen = []

    @tool
    async def mark(n: int, tags: list[str]) -> str:
        seen.append((n, tags))
        return "ok"

    provider = ScriptedProvider([[call("mark", n="5", tags='["a"]')], "done"])
    result = Agent(provider, tools=[mark]).run_sync("?")
    assert seen == [(5, ["a"])]
    assert result.turns == 2


def test_result_of_the_wrong_type_reaches_the_model_with_a_note() -> None:
    @tool
    async def count() -> int:
        return "many"  # type: ignore[return-value]  # that is the point

    provider = ScriptedProvider([*[[call("count")]] * 3, "hm"])
    result = Agent(provider, tools=[count]).run_sync("?")
    assert [(run.value, run.is_error) for run in result.tool_calls] == [("many", False)] * 3
    note = "The result does not match the declared output: expected integer, got string"
    hints = [str(run.result.hint) for run in result.tool_calls]
    assert all(hint.startswith(note) for hint in hints)
    assert "the same result 3 times in a row" in hints[2]


def test_usage_is_the_sum_of_all_requests() -> None:
    script = [answer(call(a=1, b=1), usage=Usage(10, 5)), answer(Text("2"), usage=Usage(20, 1, 3))]
    assert Agent(ScriptedProvider(script), tools=[add]).run_sync("?").usage == Usage(30, 6, 3)


def test_text_before_a_call_is_kept_once() -> None:
    async def main() -> tuple[list[str], Any]:
        provider = ScriptedProvider([[Text("Let me"), Text(" see."), call(a=1, b=2)], [Text("3")]])
        stream = Agent(provider, tools=[add]).stream("?")
        texts = [event.text async for event in stream if type(event).__name__ == "TextDelta"]
        return texts, stream.result

    texts, result = asyncio.run(main())
    assert texts == ["Let me", " see.", "3"]
    assert result.text == "3"
    assert result.messages[1].parts == (Text("Let me see."), call(a=1, b=2))


def test_forced_choice_is_released_after_the_call_ran() -> None:
    provider = ScriptedProvider([[call(a=1, b=2)], "3"])
    Agent(provider, tools=[add], tool_choice={"type": "required", "tool": "add"}).run_sync("?")
    assert [request.config.tool_choice for request in provider.requests] == [ToolChoice("required", ("add",)), None]


def test_forced_choice_stays_while_calls_are_invalid() -> None:
    wrong, unknown = call(a="x", b=2), call("ad", "2")
    provider = ScriptedProvider([[wrong], [unknown], [call(a=1, b=2)], "3"])
    Agent(provider, tools=[add], tool_choice="required").run_sync("?")
    assert [request.config.tool_choice for request in provider.requests] == [ToolChoice("required")] * 3 + [None]

    def never(request: ModelRequest) -> Any:
        return "no" if request.config.tool_choice is None else call(a="x", b=len(request.history))

    assert Agent(ScriptedProvider(never), tools=[add], tool_choice="required").run_sync("?").turns == 5


def test_unknown_name_does_not_end_a_run_with_a_forced_call() -> None:
    @tool
    async def sub(a: int, b: int) -> int:
        """Subtract."""
        return a - b

    provider = ScriptedProvider([[call("addd", "1")], [call("sub", "2", a=1, b=2)], [call(a=1, b=2)], "3"])
    result = Agent(provider, tools=[add, sub], tool_choice={"type": "required", "tool": "add"}).run_sync("?")
    assert (result.text, result.turns) == ("3", 4)
    never = ScriptedProvider(lambda request: call("sub", str(len(request.history)), a=1, b=len(request.history)))
    with pytest.raises(NoAnswerError, match="only made calls that were refused"):
        Agent(never, tools=[add, sub], tool_choice={"mode": "any", "names": ["add"]}, calls_only=True).run_sync("?")


def test_tool_choice_of_an_unknown_tool_is_an_error_that_names_it() -> None:
    with pytest.raises(ConfigError, match="names sub, but the tools are: add"):
        Agent(ScriptedProvider([]), tools=[add], tool_choice={"type": "required", "tool": "sub"}).run_sync("?")


@pytest.mark.requirement("S3-15")
def test_calls_only_ends_with_a_final_tool() -> None:
    @tool(final=lambda value: value == "done")
    async def act(what: str) -> str:
        return what

    provider = ScriptedProvider([[call("act", "1", what="more")], [call("act", "2", what="done")]])
    result = Agent(provider, tools=[act], calls_only=True).run_sync("?")
    assert (result.text, result.turns) == ("done", 2)
    assert {request.config.tool_choice for request in provider.requests} == {ToolChoice("required")}
    assert result.messages[-1].results[0].value == "done"


@pytest.mark.parametrize("nothing", [[], [Text("")], [Thought("hm")], [Text("", ProviderData("x"))]])
def test_empty_turn_is_requested_again(nothing: list[Any]) -> None:
    provider = ScriptedProvider([[call(a=1, b=2)], nothing, "3"])
    result = Agent(provider, tools=[add]).run_sync("?")
    assert result.text == "3"
    assert "with the results of your calls" in provider.requests[2].history[-1].text
    with pytest.raises(NoAnswerError, match="4 times in a row") as caught:
        Agent(ScriptedProvider([nothing] * 9)).run_sync("?")
    assert_legal(caught.value)


def test_media_without_text_are_an_answer() -> None:
    result = Agent(ScriptedProvider([[Blob("image/png", "aGk=")]])).run_sync("draw")
    assert result.text == ""
    assert result.messages[-1].parts == (Blob("image/png", "aGk="),)


def test_unexpected_call_is_reported_to_the_model() -> None:
    provider = ScriptedProvider([answer(finish=FinishReason.UNEXPECTED_CALL), "fine"])
    assert Agent(provider).run_sync("?").text == "fine"
    assert "is not available now" in provider.requests[1].history[-1].text


def test_blocked_answer_is_an_error_with_the_transcript_and_runs_no_call() -> None:
    blocked = answer(Text("so"), call(a=1, b=1), finish=FinishReason.BLOCKED, raw_finish_reason="SAFETY")
    with pytest.raises(AnswerBlockedError, match="SAFETY") as caught:
        Agent(ScriptedProvider([blocked]), tools=[add]).run_sync("?")
    transcript = assert_legal(caught.value)
    assert "was not run" in transcript[-1].results[0].value


@pytest.mark.parametrize(
    ("details", "words"),
    [
        ({}, "a filter stopped the model"),
        ({"raw_finish_reason": "SAFETY"}, r"a filter stopped the model \(SAFETY\)"),
        ({"finish_message": "violence"}, "a filter stopped the model: violence"),
    ],
)
def test_error_of_a_blocked_answer_has_the_reasons_that_are_known(details: dict[str, str], words: str) -> None:
    blocked = answer(finish=FinishReason.BLOCKED, **details)
    with pytest.raises(AnswerBlockedError, match=f"^{words}$"):
        Agent(ScriptedProvider([blocked])).run_sync("?")


def test_tokens_used_up_before_any_text_are_an_error() -> None:
    with pytest.raises(NoAnswerError, match="raise max_tokens"):
        Agent(ScriptedProvider([answer(finish=FinishReason.LENGTH)])).run_sync("?")


def test_tokens_used_up_in_the_answer_return_the_partial_text() -> None:
    result = Agent(ScriptedProvider([answer(Text("It is"), finish=FinishReason.LENGTH)])).run_sync("?")
    assert (result.text, result.finish_reason) == ("It is", FinishReason.LENGTH)


@pytest.mark.parametrize("finish", [FinishReason.LENGTH, FinishReason.CONTEXT_FULL, FinishReason.INTERRUPTED])
def test_last_call_of_a_cut_turn_is_never_run(finish: FinishReason) -> None:
    turn = answer(call("add", "1", a=1, b=2), call("add", "2", a=3, b=4), finish=finish)
    result = Agent(ScriptedProvider([turn, "3"]), tools=[add]).run_sync("?")
    first, last = result.tool_calls
    assert (first.value, first.is_error) == (3, False)
    assert last.is_error
    assert "was not run: the response was cut off" in last.value
    assert [one.id for one in result.messages[2].results] == ["1", "2"]


@pytest.mark.requirement("P-03")
def test_call_with_unreadable_arguments_gets_an_error_and_is_never_run() -> None:
    broken = ToolCall("1", "add", {}, '{"a": 1, "b"', "the arguments are not valid JSON")
    turn = answer(broken, call("add", "2", a=3, b=4))
    result = Agent(ScriptedProvider([turn, "done"]), tools=[add]).run_sync("?")
    first, last = result.tool_calls
    assert (first.id, first.is_error) == ("1", True)
    assert first.value == "add was not run: the arguments are not valid JSON. Call it again with valid arguments."
    assert last.value == 7


def test_model_that_only_makes_unreadable_calls_is_given_up() -> None:
    broken = ToolCall("1", "add", {}, "{", "the arguments are not valid JSON")
    with pytest.raises(NoAnswerError, match="calls that were refused, 4 times in a row"):
        Agent(ScriptedProvider([answer(broken)] * 9), tools=[add], limits=Limits(max_turns=None)).run_sync("?")


def test_max_tokens_counts_what_a_provider_reports_without_a_total() -> None:
    turn = answer(call("add", "1", a=1, b=2), usage=Usage(input=60, output=50))
    with pytest.raises(LimitReachedError, match=r"Maximum tokens exceeded \(110 of 100\)"):
        Agent(ScriptedProvider([turn] * 9), tools=[add], limits=Limits(max_tokens=100)).run_sync("?")


def test_refusal_of_the_model_is_its_answer_or_an_error_without_text() -> None:
    declined = answer(Text("I cannot help with that."), finish=FinishReason.REFUSED)
    result = Agent(ScriptedProvider([declined])).run_sync("?")
    assert (result.text, result.finish_reason) == ("I cannot help with that.", FinishReason.REFUSED)
    with pytest.raises(AnswerBlockedError):
        Agent(ScriptedProvider([answer(finish=FinishReason.REFUSED)])).run_sync("?")


def cut(*parts: Any, error: Exception) -> Any:
    class Cut(PartsProvider, ScriptedProvider):
        def __init__(self) -> None:
            super().__init__(["whole"])
            self.times = 0

        async def parts(self, request: ModelRequest) -> AsyncIterator[Any]:
            self.times += 1
            if self.times > cuts:
                async for part in ScriptedProvider.stream(self, request):
                    yield part
                return
            for part in parts:
                yield part
            raise error

    cuts = 2
    return Cut()


@pytest.mark.parametrize("error", [IncompleteResponseError("gone"), ServerError("busy", status=503)])
def test_cut_stream_is_requested_again_and_discarded(error: Exception) -> None:
    async def main() -> Any:
        stream = Agent(cut(Text("who"), error=error)).stream("?")
        events = [event async for event in stream]
        return events, stream.result

    events, result = asyncio.run(main())
    assert result.text == "whole"
    assert result.messages == (Message.user("?"), Message("model", (Text("whole"),)))
    assert [event.reason for event in events if type(event).__name__ == "TurnRetry"] == ["the response was cut off"] * 2


def test_stream_that_is_always_cut_raises_its_error() -> None:
    class Broken(PartsProvider, ScriptedProvider):
        async def parts(self, request: ModelRequest) -> AsyncIterator[Any]:
            yield Text("a")
            raise IncompleteResponseError("gone", status=200)

    with pytest.raises(IncompleteResponseError, match="gone") as caught:
        Agent(Broken([])).run_sync("?")
    assert_legal(caught.value)


def test_provider_error_has_the_transcript() -> None:
    script = [[call(a=1, b=2)], ServerError("down", status=503)]
    with pytest.raises(ServerError) as caught:
        Agent(ScriptedProvider(script), tools=[add]).run_sync("?")
    transcript = assert_legal(caught.value)
    assert transcript[-1].results[0].value == 3


def test_provider_data_stays_on_its_parts_over_ten_turns() -> None:
    data = [ProviderData("x", Raw(b"%d" % n)) for n in range(9)]
    turns = [[ToolCall(str(n), "add", {"a": n, "b": n}, provider_data=data[n])] for n in range(9)]
    result = Agent(ScriptedProvider([*turns, "done"]), tools=[add]).run_sync("?")
    sent = [part.provider_data for one in result.messages for part in one.parts if isinstance(part, ToolCall)]
    assert sent == data


def test_calls_of_one_id_get_one_result_each() -> None:
    provider = ScriptedProvider([[call(a=1, b=1), call(a=2, b=2)], "ok"])
    result = Agent(provider, tools=[add]).run_sync("?")
    assert [one.value for one in result.messages[2].results] == [2, 4]


def test_repeated_call_is_run_once_and_has_two_results() -> None:
    runs = []

    @tool
    async def pay(amount: int) -> str:
        runs.append(amount)
        return "paid"

    twice = [call("pay", "x", amount=5), call("pay", "y", amount=5), call("pay", "x", amount=5)]
    result = Agent(ScriptedProvider([twice, "ok"]), tools=[pay]).run_sync("?")
    assert runs == [5, 5]
    assert [one.id for one in result.messages[2].results] == ["x", "y", "x"]


def test_failing_source_still_gives_one_result_for_each_call() -> None:
    class Dying(ToolSource):
        async def list_tools(self) -> ToolListing:
            return ToolListing((add.spec,))

        async def call(self, call: ToolCall, context: Any = None) -> ToolResult:
            raise asyncio.CancelledError if call.id == "1" else GeneratorExit

    provider = ScriptedProvider(
        [[call("add", "1", a=1, b=1), call("add", "2", a=1, b=1)], [call("add", "1", a=9, b=9)], "ok"]
    )
    result = Agent(provider, tools=[Dying()]).run_sync("?")
    assert [one.is_error for one in result.tool_calls] == [True, True, True]


def test_unanswered_calls_of_the_history_are_run_first() -> None:
    history = [Message.user("1 + 2?"), Message("model", (call(a=1, b=2),))]
    result = Agent(ScriptedProvider(["3"]), tools=[add]).run_sync(messages=history)
    assert (result.text, result.tool_calls[0].value) == ("3", 3)


def test_unanswered_calls_before_a_new_prompt_get_error_results() -> None:
    history = [Message.user("1 + 2?"), Message("model", (call(a=1, b=2),))]
    provider = ScriptedProvider(["hi"])
    result = Agent(provider, tools=[add]).run_sync("never mind", messages=history)
    assert [one.role for one in result.messages] == ["user", "model", "user", "user", "model"]
    assert "was not run" in result.messages[2].results[0].value


def test_broken_history_is_repaired() -> None:
    calls = (call("add", "1", a=1, b=1), call("add", "2", a=2, b=2))
    history = [Message("model", calls), Message.user(ToolResult("2", "add", 4)), Message.user("so?")]
    provider = ScriptedProvider(["ok"])
    Agent(provider).run_sync("?", messages=history)
    sent = provider.requests[0].history
    assert sent[0].text == "(Earlier messages are omitted.)"
    assert [(one.id, one.is_error) for one in sent[2].results] == [("1", True), ("2", False)]
    assert [message.text for message in sent[3:]] == ["so?", "?"]
    twice = Message("model", (call("add", "1", a=1, b=1), call("add", "1", a=2, b=2)))
    results = Message.user(ToolResult("1", "add", 2), ToolResult("2", "add", 4))
    provider = ScriptedProvider(["ok"])
    Agent(provider).run_sync("?", messages=[Message.user("?"), twice, results])
    sent = provider.requests[0].history
    assert [(asked.id, asked.name) for asked in sent[1].calls] == [("1", "add"), ("1-2", "add")]
    assert [(result.id, result.is_error) for result in sent[2].results] == [("1", False), ("1-2", True)]
    assert sent[3].text == "add returned: 4", "a result without a call"


def test_calls_in_adjacent_messages_of_the_model_keep_their_results() -> None:
    turn = [Message("model", (part,)) for part in (Text("hm"), call("add", "1", a=1, b=1), call("add", "2", a=2, b=2))]
    results = [Message.user(ToolResult("2", "add", 4)), Message.user(ToolResult("1", "add", 2))]
    provider = ScriptedProvider(["ok"])
    Agent(provider).run_sync("?", messages=[Message.user("?"), *turn, *results])
    sent = provider.requests[0].history
    assert list(sent)[1:4] == turn
    assert [(result.id, result.value) for result in sent[4].results] == [("1", 2), ("2", 4)]


def test_calls_at_the_end_in_adjacent_messages_of_the_model_are_all_run() -> None:
    turn = [Message("model", (call("add", "1", a=1, b=1),)), Message("model", (call("add", "2", a=2, b=2), Text("hm")))]
    result = Agent(ScriptedProvider(["ok"]), [add]).run_sync(messages=[Message.user("?"), *turn])
    assert [run.result.value for run in result.tool_calls] == [2, 4]


@pytest.mark.parametrize("form", [list, History])
def test_results_in_several_turns_are_put_together(form: Any) -> None:
    calls = (call("add", "1", a=1, b=1), call("add", "2", a=2, b=2))
    one, two = Message.user(ToolResult("1", "add", 2)), Message.user(ToolResult("2", "add", 4))
    provider = ScriptedProvider(["ok", "ok"])
    history = form([Message.user("?"), Message("model", calls), one, two, Message("model", (Text("so"),))])
    result = Agent(provider).run_sync("and?", messages=history)
    assert [one.value for one in provider.requests[0].history[2].results] == [2, 4]
    assert [message.text for message in result.new_messages] == ["and?", "ok"]
    waiting = form([Message.user("?"), Message("model", calls)])
    Agent(provider).run_sync([ToolResult("2", "add", 4)], messages=waiting)
    assert [(one.id, one.is_error) for one in provider.requests[1].history[2].results] == [("1", True), ("2", False)]


def test_text_beside_the_results_in_the_history_stays_in_their_message() -> None:
    results = Message.user(ToolResult("1", "add", 3), Text("Be brief."))
    history = [Message.user("?"), Message("model", (call(a=1, b=2),)), results]
    provider = ScriptedProvider(["3"])
    Agent(provider, tools=[add]).run_sync(messages=history)
    assert provider.requests[0].history.messages == tuple(history)


def test_result_in_the_history_has_the_name_of_its_call() -> None:
    history = [Message.user("?"), Message("model", (call(a=1, b=2),)), Message.user(ToolResult("1", "", 3))]
    provider = ScriptedProvider(["3"])
    Agent(provider, tools=[add]).run_sync(messages=history)
    assert provider.requests[0].history[-1] == Message.user(ToolResult("1", "add", 3))


def test_run_without_prompt_and_messages_is_an_error() -> None:
    with pytest.raises(ConfigError, match="nothing to ask"):
        Agent(ScriptedProvider([])).run_sync()


def assert_legal(error: MidspanError) -> History:
    """Every call in the transcript has its one result in the next message."""
    transcript = error.transcript
    assert isinstance(transcript, History)
    for one, following in zip(transcript, [*transcript.messages[1:], None], strict=True):
        if one.calls:
            assert following is not None
            assert [result.id for result in following.results] == [asked.id for asked in one.calls]
    return transcript


def forever(request: ModelRequest) -> ToolCall:
    number = len(request.history)
    return call("add", str(number), a=number, b=0)


def test_turns_are_limited_to_ten_requests_by_default() -> None:
    provider = ScriptedProvider(forever)
    with pytest.raises(LimitReachedError, match=r"^Maximum tool-calling turns exceeded$") as caught:
        Agent(provider, tools=[add]).run_sync("?")
    assert len(provider.requests) == 10
    assert (caught.value.type, caught.value.limit) == ("turn_limit_exceeded", "max_turns")
    assert len(assert_legal(caught.value)) == 21
    assert "was not run" in assert_legal(caught.value)[-1].results[0].value


def test_limit_can_end_with_a_message() -> None:
    provider = ScriptedProvider(forever)
    result = Agent(provider, tools=[add], limits=Limits(max_turns=2, on_limit="message")).run_sync("?")
    assert result.text == "Maximum tool execution iterations reached. Please try breaking down your request."
    assert (result.turns, result.limit) == (2, "max_turns")
    assert result.messages[-1].text == result.text
    assert result.messages[-2].results


def test_limit_can_end_with_an_answer_without_tools() -> None:
    provider = ScriptedProvider([[call(a=1, b=1)], [call("add", "2", a=2, b=2)], "as far as I came: 4"])
    result = Agent(provider, tools=[add], limits=Limits(max_turns=2, on_limit="answer")).run_sync("?")
    assert (result.text, result.limit) == ("as far as I came: 4", "max_turns")
    assert [one.value for one in result.tool_calls] == [2, 4]
    assert [request.config.tool_choice for request in provider.requests] == [None, None, ToolChoice("none")]


def test_call_instead_of_the_last_answer_raises_the_limit() -> None:
    with pytest.raises(LimitReachedError) as caught:
        Agent(ScriptedProvider(forever), tools=[add], limits=Limits(max_turns=2, on_limit="answer")).run_sync("?")
    assert_legal(caught.value)


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (Limits(max_tool_calls=3), "Maximum tool calls exceeded \\(3\\)"),
        (Limits(max_calls_per_tool=3), "Maximum calls of add exceeded \\(3\\)"),
        (Limits(max_calls_per_tool={"add": 3}), "Maximum calls of add exceeded \\(3\\)"),
    ],
)
def test_tool_calls_are_limited_in_total_and_per_tool(limits: Limits, words: str) -> None:
    provider = ScriptedProvider(forever)
    with pytest.raises(LimitReachedError, match=words) as caught:
        Agent(provider, tools=[add], limits=limits).run_sync("?")
    assert len(provider.requests) == 4
    assert_legal(caught.value)


def test_calls_within_the_limit_are_still_run_before_the_last_answer() -> None:
    provider = ScriptedProvider([[call("add", str(n), a=n, b=n) for n in range(4)], "done"])
    result = Agent(provider, tools=[add], limits=Limits(max_tool_calls=2, on_limit="answer")).run_sync("?")
    assert [one.is_error for one in result.messages[2].results] == [False, False, True, True]
    assert result.text == "done"


def test_tokens_are_limited() -> None:
    script = [answer(call("add", str(n), a=n, b=n), usage=Usage(input=40)) for n in range(9)]
    with pytest.raises(LimitReachedError, match=r"Maximum tokens exceeded \(120 of 100\)"):
        Agent(ScriptedProvider(script), tools=[add], limits=Limits(max_tokens=100)).run_sync("?")


def test_answer_that_exceeds_the_token_limit_is_still_returned() -> None:
    script = [answer(Text("long"), usage=Usage(input=400))]
    assert Agent(ScriptedProvider(script), limits=Limits(max_tokens=100)).run_sync("?").text == "long"


@pytest.mark.parametrize("slow", ["tool", "model"])
def test_time_limit_cancels_running_calls(slow: str) -> None:
    stopped = []

    async def hang(*_: Any) -> Any:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            stopped.append(slow)
            raise

    @tool
    async def wait() -> None:
        await hang()

    def run(on_limit: Any) -> Any:
        provider = ScriptedProvider([[call("wait")], "done"] if slow == "tool" else hang)
        return Agent(provider, tools=[wait], limits=Limits(max_seconds=2, on_limit=on_limit)).run("?")

    async def main() -> list[Any]:
        return await asyncio.gather(run("error"), run("message"), run("answer"), return_exceptions=True)

    error, *results = asyncio.run(main())
    assert isinstance(error, LimitReachedError)
    assert "run time exceeded (2 seconds)" in str(error)
    assert_legal(error)
    assert all(result.text.startswith("Maximum tool execution") for result in results)
    assert stopped == [slow] * 3


@pytest.mark.parametrize(
    "wrong",
    [{"max_turns": 0}, {"max_seconds": -1}, {"max_calls_per_tool": {"a": 0}}, {"on_limit": "cry"}],
)
def test_invalid_limit_is_an_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Limits(**wrong)


def test_final_calls_count_against_the_limits() -> None:
    ran = []

    @tool(final=lambda value: value > 100)
    def guess(n: int) -> int:
        ran.append(n)
        return n

    for limits in (Limits(max_calls_per_tool={"guess": 2}), Limits(max_tool_calls=2)):
        ran.clear()
        script = [[call("guess", "1", n=1)], [call("guess", str(n), n=n) for n in range(2, 7)], "never"]
        with pytest.raises(LimitReachedError):
            Agent(ScriptedProvider(script), tools=[guess], limits=limits).run_sync("?")
        assert ran == [1, 2]
    enough = [[call("guess", "1", n=1)], [call("guess", "2", n=200), call("guess", "3", n=3)]]
    result = Agent(ScriptedProvider(enough), tools=[guess], limits=Limits(max_tool_calls=2)).run_sync("?")
    assert (result.text, result.messages[-1].results[1].is_error) == ("200", True)


def test_calls_that_write_the_same_thing_run_one_after_the_other() -> None:
    balance = {"a": 100, "b": 100}

    @tool(reads="account:{id}", writes="account:{id}")
    async def withdraw(id: str, amount: int) -> int:
        before = balance[id]
        await asyncio.sleep(0)
        balance[id] = before - amount
        return balance[id]

    turn = [
        call("withdraw", "1", id="a", amount=30),
        call("withdraw", "2", id="b", amount=1),
        call("withdraw", "3", id="a", amount=50),
    ]
    result = Agent(ScriptedProvider([turn, "done"]), [withdraw]).run_sync("?")
    assert [run.value for run in result.tool_calls] == [70, 99, 20]
    assert balance == {"a": 20, "b": 99}


def test_forced_choice_stays_while_arguments_cannot_be_bound() -> None:
    @tool
    def book(day: datetime.date) -> str:
        return "booked"

    provider = ScriptedProvider([call("book", day="31 February"), call("book", day="2026-02-28"), "done"])
    result = Agent(provider, [book], tool_choice="required").run_sync("?")
    assert [run.was_run for run in result.tool_calls] == [False, True]
    modes = [request.config.tool_choice and request.config.tool_choice.mode for request in provider.requests]
    assert modes == ["required", "required", None]


def test_prepared_run_is_reused_until_the_tools_change() -> None:
    box = Toolbox()
    box.register(add)

    class BoxSource(ToolSource):
        async def list_tools(self) -> ToolListing:
            return await box.source().list_tools()

    provider = ScriptedProvider(["a", "b", "c"])
    agent = Agent(provider, BoxSource())
    agent.run_sync("?")
    agent.run_sync("?")

    @box.register
    def other() -> None: ...

    agent.run_sync("?")
    first, second, third = (request.config for request in provider.requests)
    assert first is second
    assert [spec.name for spec in third.tools] == ["add", "other"]


def test_option_of_a_single_run_does_not_adapt_the_tools_again() -> None:
    provider = ScriptedProvider(["a", "b"], profile=profile_of(capabilities_of("gemini-3.8-flash")))
    agent = Agent(provider, [add])
    agent.run_sync("?")
    agent.run_sync("?", settings={"temperature": 0.5}, system="Be brief.")
    first, second = (request.config for request in provider.requests)
    assert second.settings.temperature == 0.5
    assert first.tools[0] is second.tools[0]
    assert first.tools[0] is not add.spec


def test_limit_on_an_unknown_tool_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    limits = Limits(max_calls_per_tool={"ad": 1, "add": 1})
    Agent(ScriptedProvider(["x"]), [add], limits=limits).run_sync("?")
    assert [record.getMessage() for record in caplog.records] == [
        "max_calls_per_tool has 'ad', but the tools of the run are: add"
    ]


def test_limit_of_tokens_is_reached_when_all_are_used() -> None:
    script = [answer(call(a=1, b=2), usage=Usage(input=60, output=40)), "3"]
    with pytest.raises(LimitReachedError, match=r"Maximum tokens exceeded \(100 of 100\)"):
        Agent(ScriptedProvider(script), tools=[add], limits=Limits(max_tokens=100)).run_sync("?")
    agent = Agent(ScriptedProvider(script), tools=[add], limits=Limits(max_tokens=101))
    assert agent.run_sync("?").text == "3"


def test_calls_run_in_order_if_the_model_asks_for_it() -> None:
    running: list[str] = []
    most = 0

    @tool
    async def wait(name: str) -> str:
        """Wait."""
        nonlocal most
        running.append(name)
        most = max(most, len(running))
        await asyncio.sleep(0)
        running.remove(name)
        return name

    script = [[call("wait", str(number), name=str(number)) for number in range(3)], "done"]
    for profile, expected in ((ModelProfile(), 3), (ModelProfile(calls_in_order=True), 1)):
        most = 0
        result = Agent(ScriptedProvider(script, profile=profile), tools=[wait]).run_sync("?")
        assert [run.value for run in result.tool_calls] == ["0", "1", "2"]
        assert most == expected


def test_call_of_a_builtin_tool_can_be_required() -> None:
    provider = ScriptedProvider(["found it"])
    agent = Agent(provider, tools=[BuiltinTool("googleSearch")], tool_choice="required")
    assert agent.run_sync("?").text == "found it"
    assert provider.requests[0].config.tool_choice == ToolChoice("required")


def test_last_message_of_the_history_is_sent_as_it_is() -> None:
    message = Message("model", (Text("Let me add."), call(a=1, b=2)), ProviderData("scripted", Raw(b"{}")))
    result = Agent(ScriptedProvider(["3"]), tools=[add]).run_sync(messages=[Message.user("1 + 2?"), message])
    assert result.messages[1] is message


def test_repr_of_a_result_shows_the_start_of_a_long_text() -> None:
    def shown(text: str) -> str:
        return repr(Agent(ScriptedProvider([text])).run_sync("?"))

    assert shown("x" * 60) == f"RunResult({'x' * 60!r}, 1 turn, 0 tool calls)"
    assert shown("x" * 61) == f"RunResult({'x' * 60 + '…'!r}, 1 turn, 0 tool calls)"
