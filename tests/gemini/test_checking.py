"""Any argument is sent, or raises an error of Midspan; errors of Python never get through."""

import dataclasses
import datetime
import enum
import gc
import math
from collections.abc import Callable, Iterator
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from midspan import gemini
from midspan._types.messages import History, Message
from midspan.errors import ConfigError, MidspanError
from midspan.gemini.request import request_fields
from midspan.gemini.types import describe
from midspan.providers.gemini.capabilities import capabilities_of
from midspan.providers.gemini.wire import GenerateContentRequest, GenerationConfig
from tests.gemini.recorder import Recorder


@pytest.fixture(autouse=True)
def _garbage_is_left_alone() -> Iterator[None]:
    """What other tests left is collected now and not at the bottom of a recursion, where its finalizers would fail."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Model(pydantic.BaseModel):
    a: int


@dataclasses.dataclass
class Data:
    a: int


class Typed(TypedDict):
    a: int


class Word(enum.Enum):
    X = "x"


class Shape(msgspec.Struct):
    a: int


class Unspeakable:
    def __repr__(self) -> str:
        raise ZeroDivisionError


def deep(inside: Any, levels: int) -> Any:
    for _ in range(levels):
        inside = {"a": inside} if isinstance(inside, dict) else [inside]
    return inside


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)
CIRCLE: dict[str, Any] = {}
CIRCLE["a"] = CIRCLE

ODD: list[Any] = [
    None, 5, -1, 1.5, math.nan, math.inf, True, 10**400, "", " ", "x", "a\ud800", "\0", b"x",
    [], [5], [None], [["a"]], ["a\ud800"], (), ("a",), {}, {"x": 1}, {5: 5}, {"a\ud800": 1}, {"a": math.nan},
    {"a": object()}, {None: 1}, {"type": 5}, {"name": 5}, {"text": 5}, {"parts": 5}, {"role": 5},
    deep({}, 50), deep({}, 900), ENDLESS, CIRCLE,
    set(), {1}, {"a"}, range(3), object(), object, int, len, lambda x: x, Ellipsis, NotImplemented, Exception("e"),
    Model, Data, Typed, Word, Shape, list[int], int | None, Model(a=1), Data(1), Word.X, Shape(1),
    datetime.datetime(2026, 1, 1),
    gemini.Part, gemini.Part(), gemini.Part(text="x"), gemini.Content(), gemini.Content.text("x"), gemini.Tool(),
    gemini.Schema(type="STRING"), gemini.GoogleSearch(), gemini.FunctionCall(name="f"),
    gemini.GenerationConfig(), Message.user("x"), History(), History([Message.user("x")]),
]  # fmt: skip

Try = Callable[[gemini.Client, Any], Any]
SETTINGS = [
    *(name for name in GenerationConfig.__struct_fields__ if name != "extra"),
    *(name for name in GenerateContentRequest.__struct_fields__ if name not in ("extra", "contents", "model")),
    "no_such_setting",
]


def setting(name: str) -> Try:
    return lambda client, odd: client.generate_content("x", **{name: odd})


def asking(contents: Callable[[Any], Any]) -> Try:
    return lambda client, odd: client.generate_content(contents(odd))


def with_tools(tools: Callable[[Any], Any]) -> Try:
    return lambda client, odd: client.generate_content("x", tools=tools(odd))


def making(make: Callable[[Any], Any]) -> Try:
    return lambda client, odd: make(odd)


def caching(name: str) -> Try:
    return lambda client, odd: client.caches.create("x", **{name: odd})


F = {"name": "f", "description": "F."}
ENTRIES: dict[str, Try] = {
    **{name: setting(name) for name in SETTINGS},
    "contents": asking(lambda odd: odd),
    "a list of contents": asking(lambda odd: [odd]),
    "a second content": asking(lambda odd: [gemini.Content.text("a"), odd]),
    "parts of a dict": asking(lambda odd: {"role": "user", "parts": odd}),
    "a part of a dict": asking(lambda odd: {"role": "user", "parts": [odd]}),
    "a part of a model's dict": asking(lambda odd: {"role": "model", "parts": [odd]}),
    "a role of a dict": asking(lambda odd: {"role": odd, "parts": ["a"]}),
    "a role": asking(lambda odd: gemini.Content(role=odd, parts=[gemini.Part(text="a")])),
    "parts": asking(lambda odd: gemini.Content(role="user", parts=odd)),
    "a part": asking(lambda odd: gemini.Content(role="user", parts=[odd])),
    "a part's text": asking(lambda odd: gemini.Part(text=odd)),
    "a part's data": asking(lambda odd: gemini.Part(inline_data=odd)),
    "a part's call": asking(lambda odd: gemini.Part(function_call=odd)),
    "a text in a dict": asking(lambda odd: {"text": odd}),
    "a response in a dict": asking(lambda odd: {"function_response": odd}),
    "a response's response": asking(lambda odd: {"function_response": {"name": "f", "response": odd}}),
    "a stream's contents": lambda client, odd: list(client.stream_generate_content(odd)),
    "counted contents": lambda client, odd: client.count_tokens(odd),
    "config.schema": lambda client, odd: client.generate_content("x", generation_config={"response_schema": odd}),
    "config.responseSchema": lambda client, odd: client.generate_content(
        "x", generation_config=gemini.GenerationConfig(response_schema=odd)
    ),
    "config.thinking_config": lambda client, odd: client.generate_content(
        "x", generation_config={"thinkingConfig": {"thinking_budget": odd}}
    ),
    "a schema's type": lambda client, odd: client.generate_content("x", response_schema=gemini.Schema(type=odd)),
    "a schema's properties": lambda client, odd: client.generate_content("x", response_schema={"properties": odd}),
    "one tool of a list": with_tools(lambda odd: [odd]),
    "a kind of tool": with_tools(lambda odd: [{"google_search": odd}]),
    "a kind of tool, typed": with_tools(lambda odd: [gemini.Tool(google_search=odd)]),
    "declarations in a dict": with_tools(lambda odd: [{"function_declarations": odd}]),
    "a declaration in a dict": with_tools(lambda odd: [{"function_declarations": [odd]}]),
    "declarations": with_tools(lambda odd: [gemini.Tool(function_declarations=odd)]),
    "a declaration": with_tools(lambda odd: [gemini.Tool(function_declarations=[odd])]),
    "a name": with_tools(lambda odd: [{**F, "name": odd}]),
    "a description": with_tools(lambda odd: [{**F, "description": odd}]),
    "parameters": with_tools(lambda odd: [{**F, "parameters": odd}]),
    "parameters, typed": with_tools(lambda odd: [gemini.FunctionDeclaration(**F, parameters=odd)]),
    "a json schema": with_tools(lambda odd: [gemini.FunctionDeclaration(**F, parameters_json_schema=odd)]),
    "a typed tool config": lambda client, odd: client.generate_content(
        "x", tool_config=gemini.ToolConfig(function_calling_config=odd)
    ),
    "Part.from_text": making(gemini.Part.from_text),
    "Part.from_bytes": making(lambda odd: gemini.Part.from_bytes(odd, "image/png")),
    "Part.from_uri": making(lambda odd: gemini.Part.from_uri(odd, "image/png")),
    "Part.from_function_call": making(gemini.Part.from_function_call),
    "Part.from_function_call args": lambda client, odd: client.generate_content(
        gemini.Part.from_function_call("f", odd)
    ),
    "Part.from_function_call id": making(lambda odd: gemini.Part.from_function_call("f", id=odd)),
    "Part.from_function_response": making(lambda odd: gemini.Part.from_function_response(odd, {})),
    "Part.from_function_response response": lambda client, odd: client.generate_content(
        gemini.Part.from_function_response("f", odd)
    ),
    "Part.from_function_response inside": lambda client, odd: client.generate_content(
        gemini.Part.from_function_response("f", {"x": odd})
    ),
    "Part.from_function_response id": making(lambda odd: gemini.Part.from_function_response("f", {}, id=odd)),
    "Content.text": making(gemini.Content.text),
    "Content.text role": making(lambda odd: gemini.Content.text("a", odd)),
    "FunctionCall": making(lambda odd: gemini.FunctionCall(name="f", args=odd)),
    "FunctionResponse": making(lambda odd: gemini.FunctionResponse(name="f", response=odd)),
    "FunctionDeclaration": making(lambda odd: gemini.FunctionDeclaration(name=odd, description="d")),
    "declaration_of": making(gemini.declaration_of),
    "parsed": lambda client, odd: client.generate_content("x").parsed(odd),
    "cached contents": lambda client, odd: client.caches.create(odd),
    **{
        f"a cache's {name}": caching(name)
        for name in ("model", "ttl_seconds", "display_name", "system_instruction", "tools", "tool_config")
    },
    "caches.get": lambda client, odd: client.caches.get(odd),
    "caches.update": lambda client, odd: client.caches.update(odd, ttl_seconds=5),
    "caches.delete": lambda client, odd: client.caches.delete(odd),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_only_midspan_errors_are_raised(client: gemini.Client, server: Recorder, entry: str) -> None:
    server.answer({"candidates": [{"content": {"parts": [{"text": "5"}]}, "finishReason": "STOP"}], "name": "x"})
    escaped = []
    for odd in ODD:
        try:
            ENTRIES[entry](client, odd)
        except MidspanError as error:
            words = str(error)
            if len(words) > 600 or "\n" in words or "\ud800" in words:
                escaped.append(f"{describe(odd)}: {words[:200]!r}")
        except BaseException as error:  # noqa: BLE001 - any of them would be the bug that is looked for
            escaped.append(f"{describe(odd)}: {type(error).__name__}")
    assert escaped == []


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"generation_config": {"temprature": 1}}, "unknown field 'temprature'; did you mean temperature"),
        ({"generation_config": {"thinking_config": {"thinkng_level": "LOW"}}}, "'thinkng_level' in thinking_config"),
        (
            {"thinking_config": {"thinkng_level": "LOW"}},
            "'thinkng_level' in thinking_config; did you mean thinking_lev",
        ),
        (
            {"thinking_config": {"thinking_budget": "x"}},
            "thinking_budget cannot be 'x': Expected `int",
        ),
        ({"temperature": math.nan}, "temperature cannot be sent: JSON has no number for nan"),
        ({"generation_config": {"topK": 1, "top_k": 2}}, "generation_config has a field in both casings"),
        ({"generation_config": 5}, "generation_config cannot be 5; pass a GenerationConfig, or a dict"),
        ({"stop_sequences": "x"}, "stop_sequences cannot be 'x': Expected `array"),
        ({"safety_settings": [5]}, r"safety_settings cannot be \[5\]: Expected `object"),
        ({"labels": {"a": 1}}, "labels cannot be {'a': 1}: Expected `str"),
        ({"system_instructions": "x"}, "unknown setting 'system_instructions'; did you mean system_instruction"),
        ({"tool": []}, "unknown setting 'tool'; did you mean tools"),
        ({"tool_config": {"function_calling_confg": {}}}, "did you mean function_calling_config"),
        ({"tools": [{"function_declaration": []}]}, r"in tools\[0\]; did you mean function_declarations"),
        ({"tools": [{"name": "f", "descripton": "F."}]}, "did you mean description"),
        ({"tools": [{"name": "größe"}]}, "'größe' is not a valid function name"),
        ({"response_schema": 5}, "response_schema cannot be 5; pass a Schema, a dict, or a Python type"),
        ({"response_schema": {"typ": "OBJECT"}}, "'typ' in response_schema; did you mean type"),
        ({"response_schema": {"propertes": {}}}, "did you mean properties"),
        ({"response_schema": int, "response_json_schema": {}}, "both given"),
        ({"cached_content": ""}, "cached_content cannot be ''"),
    ],
)
def test_the_error_names_the_problem_and_its_path(client: gemini.Client, request_: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        client.generate_content("x", **request_)


@pytest.mark.parametrize("kind", ["not a number", "half a character", "an object", "very deep"])
def test_arguments_and_results_that_are_not_json_serializable_are_an_error(client: gemini.Client, kind: str) -> None:
    # Made here: pytest looks into the values of its parameters, and one may be deeper than it can look.
    values = {"not a number": math.nan, "half a character": "a\ud800", "an object": object()}
    odd = values.get(kind) or deep({}, 100_000)
    for part in (
        gemini.Part.from_function_call("f", {"x": odd}),
        gemini.Part.from_function_response("f", {"x": odd}),
        gemini.Part(function_call=gemini.FunctionCall(name="f", args={"x": odd})),
    ):
        with pytest.raises(ConfigError, match=r"contents.* cannot be sent: "):
            client.generate_content(part)


def test_an_unknown_field_is_sent(client: gemini.Client, server: Recorder) -> None:
    server.answer({"candidates": [{"content": {"parts": [{"text": "x"}]}, "finishReason": "STOP"}]})
    client.generate_content(
        {"role": "user", "parts": [{"text": "x", "brandNew": {"a_b": 1}}]},
        generation_config={"brandNew": 1, "temperature": 0},
        tools=[{"brandNewTool": {"a_b": 1}}, gemini.GoogleSearch(extra={"other": 2})],
    )
    body = server.last.body
    assert body["contents"] == [{"role": "user", "parts": [{"text": "x", "brandNew": {"a_b": 1}}]}]
    assert body["generationConfig"] == {"brandNew": 1, "temperature": 0}
    assert body["tools"] == [{"brandNewTool": {"a_b": 1}}, {"googleSearch": {"other": 2}}]


def test_dicts_within_messages_are_read_like_messages() -> None:
    config = gemini.GenerationConfig(thinking_config={"thinking_level": "LOW"})  # type: ignore[arg-type]
    written = request_fields(capabilities_of("gemini-3.8-flash"), generation_config=config)
    assert written.tail == b',"generationConfig":{"thinkingConfig":{"thinkingLevel":"LOW"}}'


def test_a_setting_by_name_overrides_the_config() -> None:
    config = gemini.GenerationConfig(top_k=3, temperature=1)
    written = request_fields(capabilities_of("gemini-3.8-flash"), generation_config=config, top_k=5)
    assert written.tail == b',"generationConfig":{"temperature":1,"topK":5}'


@pytest.mark.parametrize("default", [math.nan, None])
def test_nan_is_never_sent_as_null(default: float | None) -> None:
    declared = gemini.FunctionDeclaration(**F, parameters_json_schema={"type": "object", "default": default})
    capabilities = capabilities_of("gemini-3.8-flash")
    if default is None:
        assert b'"default":null' in request_fields(capabilities, tools=[declared]).tail
    else:
        with pytest.raises(ConfigError, match="JSON has no number for nan"):
            request_fields(capabilities, tools=[declared])


def test_described_values_are_short() -> None:
    assert describe(5) == "5"
    assert len(describe("x" * 10_000)) < 100
    assert "Unspeakable" in describe(Unspeakable())
    assert len(describe(deep([], 3000))) < 100
