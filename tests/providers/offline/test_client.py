"""The offline model as a provider: what it answers, and how."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import date
from typing import Any

import pytest

from midspan.providers.offline.client import Offline
from midspan.providers.offline.declared.catalogue import catalogue
from midspan.providers.provider import Provider
from midspan.types.exchange import FinishReason, ModelRequest, Output, RequestConfig
from midspan.types.messages import History, Message
from midspan.types.parts import Blob, Text, ToolCall, ToolResult
from midspan.types.specs import AnyTool, BuiltinTool, ModelSettings, ToolChoice, ToolSpec
from tests.providers.offline.sample_tools import DOMAINS, READY, answer, text, tool
from tests.streaming import listen

MODEL = Offline(today=lambda: date(2025, 3, 1))


def ask(*turns: Message | str, tools: Sequence[AnyTool] = READY, **more: Any) -> Message:
    """The model's next message."""
    history = History([Message.user(turn) if isinstance(turn, str) else turn for turn in turns])
    return MODEL.respond(ModelRequest(RequestConfig("offline", tools=tuple(tools), **more), history)).message


def calls(message: Message) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name, call.arguments) for call in message.calls]


def play(*turns: Message | str, tools: Sequence[AnyTool] = READY) -> list[Message]:
    """The whole conversation, the tools answering, up to the model's words."""
    messages = [Message.user(turn) if isinstance(turn, str) else turn for turn in turns]
    for _ in range(6):
        messages.append(ask(*messages, tools=tools))
        if not messages[-1].calls:
            return messages
        messages.append(Message.user(*map(answer, messages[-1].calls)))
    raise AssertionError("it never comes to an end")


def request(prompt: str, **more: Any) -> ModelRequest:
    return ModelRequest(RequestConfig("offline", tools=READY, **more), History([Message.user(prompt)]))


class TestProvider:
    def test_it_is_one(self) -> None:
        assert isinstance(Offline(), Provider)
        assert Offline().model == "offline"
        asyncio.run(Offline().aclose())

    def test_words_come_one_by_one_and_then_the_answer(self) -> None:
        parts, response = asyncio.run(listen(Offline(), request("Who wrote Hamlet?")))
        assert len(parts) > 10
        assert "".join(part.text for part in parts if isinstance(part, Text)) == response.message.text
        assert response.message.role == "model"
        assert (response.finish_reason, response.model) == (FinishReason.END, "offline")

    def test_whole_gives_the_answer_alone(self) -> None:
        parts, response = asyncio.run(listen(Offline(), request("Who wrote Hamlet?"), whole=True))
        assert parts == []
        assert response == asyncio.run(listen(Offline(), request("Who wrote Hamlet?")))[1]

    def test_calls_are_streamed_too(self) -> None:
        parts, response = asyncio.run(listen(Offline(), request("Weather in Oslo")))
        assert parts == [ToolCall("offline_0", "get_weather", {"location": "Oslo"})]
        assert response.message.parts == tuple(parts)

    def test_ids_are_counted_over_the_conversation(self) -> None:
        first = play("Weather in London and Lisbon")
        assert [call.id for call in first[1].calls] == ["offline_0", "offline_1"]
        assert ask(*first, "What time is it in Tokyo?").calls[0].id == "offline_2"

    def test_usage_is_estimated_from_the_characters(self) -> None:
        usage = MODEL.respond(request("x" * 400)).usage
        assert usage.input == 100
        assert usage.total == usage.input + usage.output

    def test_an_answer_that_is_too_long_is_cut(self) -> None:
        response = MODEL.respond(request("Who wrote Hamlet?", settings=ModelSettings(max_tokens=3)))
        assert response.finish_reason is FinishReason.LENGTH
        assert response.message.text == "I am Midspan's"[:12]

    def test_importing_it_loads_nothing_heavy(self) -> None:
        heavy = "'aiohttp' in sys.modules, 'jsonschema_rs' in sys.modules"
        code = f"import sys, midspan.providers.offline.client; print({heavy})"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        assert done.stdout == "False False\n", done.stderr


class TestConversation:
    def test_results_are_told_and_nothing_else(self) -> None:
        assert play("What's the weather in Oslo?")[-1].text == (
            "get_weather: location: Oslo, current temp c: 18, condition: Partly cloudy."
        )

    def test_an_error_is_told_as_one(self) -> None:
        assert play("What's the weather in Atlantis?")[-1].text == "get_weather failed: no place is called Atlantis."

    def test_a_short_question_leans_on_the_call_before(self) -> None:
        before = play("What's the weather in Paris tomorrow?")
        assert calls(ask(*before, "and in London?")) == [("get_weather", {"location": "London", "date": "tomorrow"})]

    @pytest.mark.parametrize("prompt", ["London", "In London?", "how about London?"])
    def test_so_does_a_name_alone(self, prompt: str) -> None:
        before = play("What's the weather in Paris?")
        assert calls(ask(*before, prompt)) == [("get_weather", {"location": "London"})]

    @pytest.mark.parametrize("prompt", ["thanks a lot!", "Who wrote Hamlet?", "My name is Tom."])
    def test_what_says_something_else_does_not(self, prompt: str) -> None:
        assert calls(ask(*play("What's the weather in Paris?"), prompt)) == []

    def test_the_answer_to_its_question_completes_the_call(self) -> None:
        asked = play("what's the weather?")
        assert asked[-1].text == "What is the location for get_weather?"
        assert calls(ask(*asked, "Paris")) == [("get_weather", {"location": "Paris"})]
        assert calls(ask(*asked, "bad homburg")) == [("get_weather", {"location": "bad homburg"})]

    def test_a_question_can_be_answered_with_something_else(self) -> None:
        asked = play("what's the weather?")
        assert calls(ask(*asked, "What time is it in Tokyo?")) == [("get_time", {"zone": "Tokyo"})]

    def test_a_question_names_all_that_is_missing_and_the_choices(self) -> None:
        assert ask("Convert 12 inches", tools=DOMAINS).text == "What is the to unit for convert_units?"
        room = "What is the room (kitchen, bedroom, living room, bathroom) for set_light?"
        assert ask("Turn off the light", tools=DOMAINS).text == room

    def test_several_things_that_an_id_may_mean_are_asked_about(self) -> None:
        end = play("Cancel my order", tools=DOMAINS)
        assert calls(end[1]) == [("list_orders", {})]
        assert end[-1].text == "Which order do you mean: garden chair; espresso machine; desk lamp?"

    def test_a_lookup_that_fails_is_reported_and_not_repeated(self) -> None:
        looked = ask("Close the ticket about the printer", tools=DOMAINS)
        failed = Message.user(ToolResult(looked.calls[0].id, "list_tickets", {"error": "no access"}, is_error=True))
        end = ask("Close the ticket about the printer", looked, failed, tools=DOMAINS)
        assert end.calls == ()
        assert end.text == "list_tickets failed: no access."

    def test_it_says_what_it_is(self) -> None:
        for prompt in ("Who are you?", "Write me a poem"):
            assert ask(prompt).text.startswith("I am Midspan's offline model")
        assert "no tools" in ask("Who are you?", tools=()).text

    @pytest.mark.parametrize("turns", [(), ("",), (Message.user(Blob("image/png", base64="")),)])
    def test_nothing_said_is_no_reason_to_call(self, turns: tuple[Any, ...]) -> None:
        assert ask(*turns).text.startswith("I am Midspan's")

    def test_it_is_the_same_every_time(self) -> None:
        prompt = "What's the weather in Paris and what time is it in Tokyo?"
        assert ask(prompt) == ask(prompt)


class TestChoice:
    def test_none_means_no_call(self) -> None:
        assert calls(ask("Weather in Oslo", tool_choice=ToolChoice("none"))) == []

    def test_any_forces_a_call_even_where_nothing_fits_well(self) -> None:
        assert [name for name, _ in calls(ask("Hello!", tool_choice=ToolChoice("any")))] == ["get_weather"]

    def test_names_leave_only_those(self) -> None:
        choice = ToolChoice("any", ("get_time",))
        assert calls(ask("Weather in Oslo", tool_choice=choice)) == [("get_time", {"zone": "Oslo"})]

    def test_what_was_forced_is_not_forced_for_ever(self) -> None:
        forced = ask("Weather in Oslo", tool_choice=ToolChoice("any"))
        answers = Message.user(*map(answer, forced.calls))
        assert ask("Weather in Oslo", forced, answers, tool_choice=ToolChoice("any")).calls == ()

    def test_what_it_does_not_know_it_leaves_out_of_a_forced_call(self) -> None:
        assert calls(ask("what's the weather?", tool_choice=ToolChoice("any"))) == [("get_weather", {})]

    def test_tools_of_a_provider_are_not_its_own(self) -> None:
        assert calls(ask("Weather in Oslo", tools=[BuiltinTool("googleSearch"), *READY])) == [
            ("get_weather", {"location": "Oslo"})
        ]
        assert "no tools" in ask("Weather in Oslo", tools=[BuiltinTool("googleSearch")]).text


class TestOutput:
    def test_without_a_schema_it_is_what_the_tool_said(self) -> None:
        turns = play("Weather in Oslo")[:-1]
        assert json.loads(ask(*turns, output=Output()).text) == answer(turns[1].calls[0]).value

    def test_a_schema_is_filled_by_name_and_else_with_the_least_that_is_legal(self) -> None:
        schema = {
            "type": "object",
            "properties": {
                "condition": {"type": "string"},
                "current_temp_c": {"type": "number"},
                "alerts": {"type": "array", "items": {"type": "string"}},
                "sure": {"type": "boolean"},
                "note": {"type": "string"},
            },
            "required": ["condition", "current_temp_c", "alerts", "sure"],
        }
        written = json.loads(ask(*play("Weather in Oslo")[:-1], output=Output(schema)).text)
        assert written == {"condition": "Partly cloudy", "current_temp_c": 18, "alerts": [], "sure": False}

    def test_words_without_results_are_json_too(self) -> None:
        assert "offline model" in json.loads(ask("Who wrote Hamlet?", output=Output()).text)["answer"]


class TestHostility:
    def test_schemas_of_any_kind_are_survived(self) -> None:
        loop: dict[str, Any] = {"type": "object", "properties": {}}
        loop["properties"]["self"] = loop
        schemas: list[Any] = [
            loop,
            None,
            {},
            {"type": None, "properties": None, "required": 5},
            {"properties": {"a": None, "b": 5, "c": "string", "d": {"type": ["null"]}, "e": {"enum": 5}}},
            {"properties": {"a": {"$ref": "#"}}, "required": ["a"]},
            {"properties": {"a": {"$ref": "#/properties/a"}}, "required": ["a", 5]},
            {"properties": {"a": {"anyOf": [None, {"type": "null"}]}, "": {"type": "frob"}}, "required": ["", "a"]},
            {"properties": {"a": {"type": "array", "items": 7}, "b": {"type": "array", "items": [{}]}}},
            {"properties": {f"p{number}": {"type": "string"} for number in range(5000)}},
        ]
        for schema in schemas:
            odd = ToolSpec("weather", "The weather in a place", schema)
            for prompt in ("weather in Oslo for 5 days", "a", ""):
                ask(prompt, tools=[odd])
                ask(prompt, tools=[odd], tool_choice=ToolChoice("any"), output=Output(schema))

    @pytest.mark.parametrize(
        "prompt",
        [
            "weather in Oslo " * 50_000,
            "a-" * 100_000,
            "1+" * 100_000,
            "'" * 100_000,
            "[" * 100_000,
            "{" * 100_000,
            "1,000" * 50_000,
            "A b " * 50_000,
            "." * 100_000,
            "weather in Oslo and " * 20_000,
            "\x00\ud800" * 10,
            "1e999999 and 9" + "9" * 100_000,
        ],
        ids=lambda prompt: prompt[:10].encode("unicode_escape").decode(),
    )
    def test_huge_and_odd_prompts_come_to_an_end(self, prompt: str) -> None:
        assert ask(prompt).role == "model"

    def test_thousands_of_tools_do_not_hide_the_right_one(self) -> None:
        many = [
            tool(f"task_{number}", f"Does the task number {number}.", "", value=text("A value."))
            for number in range(3000)
        ]
        assert calls(ask("What's the weather in Oslo?", tools=[*many, *READY])) == [
            ("get_weather", {"location": "Oslo"})
        ]

    def test_tools_are_read_once_for_a_setup(self) -> None:
        setup = RequestConfig("offline", tools=READY)
        first = ModelRequest(setup, History([Message.user("Weather in Oslo")]))
        MODEL.respond(first)
        assert catalogue(setup) is catalogue(setup)

    def test_a_result_that_is_huge_or_deep_is_told_in_part(self) -> None:
        deep: Any = "x"
        for _ in range(500):
            deep = {"a": [deep]}
        for value in (["word"] * 100_000, "y" * 100_000, deep):
            turns = play("Weather in Oslo")
            result = Message.user(ToolResult(turns[1].calls[0].id, "get_weather", value))
            assert len(ask("Weather in Oslo", turns[1], result).text) < 10_000
