"""The offline model as a provider: what it answers, and how."""

import asyncio
import subprocess
import sys
from typing import Any, Literal

import pytest
from msgspec import Struct

from midspan import Agent, tool
from midspan._types.exchange import FinishReason, ModelRequest, Output, PartEnd, PartStart, RequestConfig
from midspan._types.messages import History, Message
from midspan._types.parts import Blob, Text, ToolCall, ToolResult
from midspan._types.specs import BuiltinTool, ToolChoice, ToolSpec
from midspan.errors import NoAnswerError
from midspan.providers.offline.client import Offline, respond
from midspan.providers.provider import Provider
from tests.providers.offline.sample_tools import get_weather, reading, stock_level

TOOLS = tuple(reading(get_weather, stock_level))


def request(*messages: Message | str, **config: Any) -> ModelRequest:
    history = History([Message.user(message) if isinstance(message, str) else message for message in messages])
    return ModelRequest(RequestConfig("offline", **{"tools": TOOLS, **config}), history)


def answered(question: str, result: Any, *, is_error: bool = False) -> str:
    """What the model says after its call returned a result."""
    call = respond(request(question)).message
    made = ToolResult(call.calls[0].id, call.calls[0].name, result, is_error)
    return respond(request(question, call, Message.user(made))).message.text


def test_it_is_a_provider() -> None:
    assert isinstance(Offline(), Provider)
    assert (Offline().model, repr(Offline())) == ("offline", "Offline()")
    asyncio.run(Offline().aclose())


def test_stream_yields_the_parts_and_then_the_response() -> None:
    async def stream() -> list[Any]:
        return [event async for event in Offline().stream(request("Weather in Oslo"))]

    call = ToolCall("offline_0", "get_weather", {"city": "Oslo"})
    *parts, response = asyncio.run(stream())
    assert parts == [PartStart(0, call), PartEnd(0, call)]
    assert response.message == Message("model", (call,))
    assert (response.finish_reason, response.model) == (FinishReason.END, "offline")
    assert asyncio.run(Offline().generate(request("Weather in Oslo"))) == response


def test_call_ids_are_counted_over_the_conversation() -> None:
    first = respond(request("Weather in Oslo")).message
    result = Message.user(ToolResult("offline_0", "get_weather", {}))
    after = respond(request("Weather in Oslo", first, result, Message("model", (Text("ok"),)), "Weather in Bergen"))
    assert after.message.calls == (ToolCall("offline_1", "get_weather", {"city": "Bergen"}),)


def test_usage_is_estimated_from_the_number_of_characters() -> None:
    usage = respond(request("x" * 400)).usage
    assert usage.input == 101
    assert usage.total == usage.input + usage.output


def test_results_are_reported_as_they_are() -> None:
    assert answered("Weather in Oslo", {"sky": "clear", "is_warm": False, "low": None, "hours": [1, 2]}) == (
        "get_weather: sky: clear, is warm: no, low: none, hours: 1, 2."
    )
    assert answered("Weather in Oslo", 1) == "get_weather: 1."
    assert answered("Weather in Oslo", "no such city", is_error=True) == "get_weather failed: no such city."
    assert answered("Weather in Oslo", "get_weather failed: KeyError", is_error=True) == "get_weather failed: KeyError."


def test_long_results_are_cut_after_4000_characters() -> None:
    assert answered("Weather in Oslo", "x" * 5000) == f"get_weather: {'x' * 4000}."
    assert answered("Weather in Oslo", ["long"] * 10_000) == f"get_weather: {('long, ' * 1000)[:4000]}."


def test_at_most_20_tools_are_listed() -> None:
    tools = tuple(ToolSpec(f"tool{number}") for number in range(25))
    text = respond(request("Who wrote Hamlet?", tools=tools)).message.text
    assert f"My tools: {', '.join(f'tool{number}' for number in range(20))}. " in text


def test_results_without_a_value_are_reported_by_their_content() -> None:
    call = respond(request("Weather in Oslo")).message
    result = ToolResult(call.calls[0].id, "get_weather", content=(Text("clear"), Blob.of(b"\x00", "image/png")))
    assert respond(request("Weather in Oslo", call, Message.user(result))).message.text == "get_weather: clear."


def test_answer_without_a_call_says_what_it_is_which_tools_there_are_and_how_to_name_a_model() -> None:
    text = respond(request("Who wrote Hamlet?")).message.text
    assert "offline model" in text
    assert "get_weather, stock_level" in text
    assert "GEMINI_API_KEY" in text
    assert "gemini:gemini-3.8-flash" in text
    assert "My tools: none." in respond(request("Who wrote Hamlet?", tools=())).message.text
    assert respond(request()).message.text


def test_tool_choice_limits_the_calls() -> None:
    question = "Weather in Oslo"
    assert respond(request(question, tool_choice=ToolChoice("none"))).message.calls == ()
    assert respond(request(question, tool_choice=ToolChoice("required", ("stock_level",)))).message.calls == ()
    assert respond(request(question, tool_choice=ToolChoice("required", ("get_weather",)))).message.calls
    assert respond(request("Write a poem", tool_choice=ToolChoice("required"))).message.calls == ()


def test_builtin_tools_are_ignored() -> None:
    assert respond(request("Weather in Oslo", tools=(BuiltinTool("googleSearch"), *TOOLS))).message.calls


class Weather(Struct):
    city: str
    sky: str


class Verdict(Struct):
    city: str
    verdict: Literal["safe", "dangerous"]


@pytest.mark.parametrize(
    ("output", "question", "expected"),
    [
        (Weather, "What is the weather in Oslo?", Weather("Oslo", "clear")),
        (dict, "What is the weather in Oslo?", {"city": "Oslo", "sky": "clear"}),
        (int, "How many lamps are in stock?", 12),
    ],
)
def test_typed_answer_is_a_tool_result_of_exactly_that_form(output: Any, question: str, expected: Any) -> None:
    tools = [tool(reads="*")(get_weather), tool(reads="*")(stock_level)]
    assert Agent("offline", tools).run_sync(question, output=output).output == expected


@pytest.mark.parametrize(
    ("output", "question", "reason"),
    [
        (Literal["approve", "reject"], "Should we approve the loan?", "no tool was called"),
        (Verdict, "What is the weather in Oslo?", "do not have exactly this form"),
        (int, "What is the weather in Oslo?", "do not have exactly this form"),
        (dict, "What is the weather in Oslo, and how many lamps are in stock?", "do not have exactly this form"),
        (int, "How many sofas are in stock?", "do not have exactly this form"),
    ],
)
def test_any_other_typed_answer_ends_the_run_with_no_answer(output: Any, question: str, reason: str) -> None:
    tools = [tool(reads="*")(get_weather), tool(reads="*")(stock_level)]
    with pytest.raises(NoAnswerError, match=f"the offline model cannot write a typed answer.*{reason}"):
        Agent("offline", tools).run_sync(question, output=output)


def test_result_with_more_fields_than_the_type_is_not_a_typed_answer() -> None:
    class City(Struct):
        city: str

    with pytest.raises(NoAnswerError):
        Agent("offline", [tool(reads="*")(get_weather)]).run_sync("Weather in Oslo", output=City)


@pytest.mark.parametrize(
    ("schema", "is_answer"),
    [
        ({"properties": {"city": {}, "wind": {"properties": {"speed": {}}}}}, True),
        ({"properties": {"city": {}}}, False),
        ({"properties": {"city": {}, "wind": {"properties": {}}}}, False),
        ({"type": "object"}, True),
        ({}, True),
    ],
)
def test_objects_of_a_typed_answer_have_only_declared_properties(schema: dict[str, Any], is_answer: bool) -> None:
    call = respond(request("Weather in Oslo")).message
    result = ToolResult(call.calls[0].id, "get_weather", {"city": "Oslo", "wind": {"speed": 1}})
    asked = request("Weather in Oslo", call, Message.user(result), output=Output(schema))
    if is_answer:
        assert respond(asked).message.text == '{"city":"Oslo","wind":{"speed":1}}'
    else:
        with pytest.raises(NoAnswerError):
            respond(asked)


def test_import_loads_no_word_lists_and_no_http() -> None:
    names = "'midspan.providers.offline.language', 'httptools', 'jsonschema_rs'"
    code = f"import sys, midspan.providers.offline.client; print([name for name in ({names}) if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ran.stdout == "[]\n", ran.stderr


def test_offline_model_stays_small() -> None:
    from importlib.resources import files

    modules = [file for file in files("midspan.providers.offline").iterdir() if file.name.endswith(".py")]
    data = files("midspan.providers.offline").joinpath("words.json").read_bytes()
    assert len(modules) <= 6
    assert sum(len(file.read_text("utf-8").splitlines()) for file in modules) <= 800
    assert len(data) <= 40_000
