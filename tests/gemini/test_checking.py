"""Invalid arguments are an error that names them, before anything is sent."""

import math
from typing import Any

import pytest

from midspan import gemini
from midspan.errors import ConfigError
from midspan.gemini.request import request_fields
from midspan.providers.gemini.capabilities import capabilities_of
from tests.gemini.recorder import Recorder


def deep(levels: int) -> dict[str, Any]:
    inside: dict[str, Any] = {}
    for _ in range(levels):
        inside = {"a": inside}
    return inside


F = {"name": "f", "description": "F."}


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (
            {"generation_config": {"thinking_config": {"thinking_budget": "x"}}},
            "thinking_config: thinking_budget: Expected `int",
        ),
        ({"temperature": math.nan}, "temperature cannot be sent: JSON has no number for nan"),
        ({"generation_config": 5}, "generation_config cannot be 5; pass a GenerationConfig, or a dict"),
        ({"tools": [{"name": "größe", "description": "F."}]}, "'größe' is not a valid function name"),
        ({"stop_sequences": "x"}, "stop_sequences: Expected `array"),
        ({"safety_settings": [5]}, "safety_settings: Expected `object"),
        ({"labels": {"a": 1}}, "labels: Expected `str"),
        ({"system_instructions": "x"}, "unknown setting 'system_instructions'"),
        ({"logprobs": 3}, "unknown setting 'logprobs'; if the API has it, pass generation_config={'logprobs': …}"),
        ({"tools": [{"name": "f", "parameters": {"type": "objekt"}}]}, r"tools\[0\].parameters: unknown type 'objekt'"),
        ({"tools": [F, F]}, "two functions are named 'f'"),
        ({"response_schema": 5}, "output cannot be 5: "),
        ({"response_schema": int, "response_json_schema": {}}, "both given"),
        ({"cached_content": ""}, "not a valid name in cachedContents"),
    ],
)
def test_the_error_names_the_problem_and_its_path(client: gemini.Client, request_: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        client.generate_content("x", **request_)


def test_contents_and_tools_that_are_nested_too_deeply_are_an_error(client: gemini.Client) -> None:
    with pytest.raises(ConfigError, match=r"contents\[0\] is nested too deeply"):
        client.generate_content(deep(5000))
    with pytest.raises(ConfigError, match=r"tools\[0\] is nested too deeply"):
        client.generate_content("x", tools=deep(5000))


@pytest.mark.parametrize("odd", [math.nan, "a\ud800", object()], ids=["nan", "unpaired surrogate", "object"])
def test_arguments_and_results_that_are_not_json_serializable_are_an_error(client: gemini.Client, odd: Any) -> None:
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
