import json
from typing import Any

import pytest

from midspan._types.exchange import CachePolicy, ModelRequest, Output, RequestConfig
from midspan._types.messages import History, Message
from midspan._types.specs import AnyTool, BuiltinTool, ModelSettings, ToolChoice, ToolSpec
from midspan.errors import ConfigError
from midspan.providers.gemini.capabilities import Api, Capabilities, capabilities_of
from midspan.providers.gemini.encode import request_body

NEWEST = capabilities_of("gemini-3.8-flash")
LEGACY = capabilities_of("gemini-2.5-flash")
FOURTH = capabilities_of("gemini-4-argon")
SCHEMA = {"type": "object", "properties": {"a_b": {"type": "integer"}}, "required": ["a_b"]}
ADD = ToolSpec("add", "Adds.", SCHEMA)
NOW = ToolSpec("now", "The time.")
SEARCH = BuiltinTool("googleSearch")


def fields(setup: RequestConfig, capabilities: Capabilities = NEWEST) -> dict[str, Any]:
    request = ModelRequest(setup, History([Message.user("hi")]))
    body: dict[str, Any] = json.loads(request_body(request, capabilities))
    body.pop("contents")
    return body


def config(capabilities: Capabilities = NEWEST, **settings: Any) -> Any:
    return fields(RequestConfig("m", settings=ModelSettings(**settings)), capabilities).get("generationConfig", {})


def modes(choice: Any, *tools: AnyTool, capabilities: Capabilities = NEWEST) -> Any:
    chosen = None if choice is None else ToolChoice.of(choice)
    return fields(RequestConfig("m", tools=tools or (ADD,), tool_choice=chosen), capabilities).get("toolConfig")


@pytest.mark.requirement("S0-08")
def test_unset_fields_are_not_sent() -> None:
    assert fields(RequestConfig("m")) == {}


@pytest.mark.requirement("S1-12")
def test_the_system_prompt_is_a_system_instruction() -> None:
    assert fields(RequestConfig("m", "Be brief.")) == {"systemInstruction": {"parts": [{"text": "Be brief."}]}}


@pytest.mark.requirement("S1-12")
def test_a_model_without_system_instructions_gets_it_as_the_first_content() -> None:
    request = ModelRequest(RequestConfig("gemma-3-27b-it", "Be brief."), History([Message.user("hi")]))
    for _ in range(2):
        body = json.loads(request_body(request, capabilities_of("gemma-3-27b-it")))
        assert [content["parts"][0]["text"] for content in body["contents"]] == ["Be brief.", "hi"]
        assert "systemInstruction" not in body


@pytest.mark.requirement("S3-08", "S1-04")
def test_functions_are_one_tool_and_built_in_tools_are_their_own() -> None:
    assert fields(RequestConfig("m", tools=(ADD, SEARCH, NOW)))["tools"] == [
        {"googleSearch": {}},
        {
            "functionDeclarations": [
                {"name": "add", "description": "Adds.", "parametersJsonSchema": SCHEMA},
                {"name": "now", "description": "The time."},
            ]
        },
    ]


@pytest.mark.requirement("S1-10")
@pytest.mark.parametrize(
    ("choice", "mode"),
    [
        ("optional", {"mode": "AUTO"}),
        ("required_any", {"mode": "ANY"}),
        ({"type": "required", "tool": "add"}, {"mode": "ANY", "allowedFunctionNames": ["add"]}),
        ({"type": "FUNCTION", "tool": "add"}, {"mode": "ANY", "allowedFunctionNames": ["add"]}),
        ({"type": "validated", "names": ["add"]}, {"mode": "VALIDATED", "allowedFunctionNames": ["add"]}),
        ("none", {"mode": "NONE"}),
    ],
)
def test_a_choice_becomes_a_mode(choice: Any, mode: dict[str, Any]) -> None:
    assert modes(choice) == {"functionCallingConfig": mode}


def test_without_a_choice_there_is_no_mode() -> None:
    assert modes(None) is None


def test_a_required_tool_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="names 'sub', but the declared functions are: add, now"):
        modes({"type": "required", "tool": "sub"}, ADD, NOW)


def test_functions_beside_built_in_tools_are_validated_and_shown() -> None:
    assert modes(None, ADD, SEARCH) == {
        "includeServerSideToolInvocations": True,
        "functionCallingConfig": {"mode": "VALIDATED"},
    }
    assert modes("none", ADD, SEARCH)["functionCallingConfig"] == {"mode": "NONE"}
    assert modes(None, SEARCH) is None
    vertex = capabilities_of("gemini-3.8-flash", Api.VERTEX, "v1beta1")
    assert modes(None, ADD, SEARCH, capabilities=vertex) is None


def test_functions_beside_built_in_tools_are_an_error_for_older_models() -> None:
    with pytest.raises(ConfigError, match="not both; use a Gemini 3 model"):
        modes(None, ADD, SEARCH, capabilities=LEGACY)


@pytest.mark.requirement("S3-13")
def test_system_prompt_and_tools_of_a_cache_are_not_sent() -> None:
    cache = CachePolicy("cachedContents/1")
    setup = RequestConfig("m", "Be brief.", (ADD,), ToolChoice("required"), ModelSettings(max_tokens=5), cache=cache)
    assert fields(setup) == {"cachedContent": "cachedContents/1", "generationConfig": {"maxOutputTokens": 5}}


def test_every_setting_has_its_field() -> None:
    assert config(
        max_tokens=1,
        temperature=0.0,
        top_p=0.5,
        top_k=3,
        stop=("x",),
        seed=0,
        presence_penalty=0.1,
        frequency_penalty=0.2,
    ) == {
        "maxOutputTokens": 1,
        "temperature": 0.0,
        "topP": 0.5,
        "topK": 3,
        "stopSequences": ["x"],
        "seed": 0,
        "presencePenalty": 0.1,
        "frequencyPenalty": 0.2,
    }


def test_sampling_is_not_sent_to_models_that_ignore_it() -> None:
    assert config(FOURTH, temperature=1.0, top_p=0.5, top_k=3, max_tokens=9) == {"maxOutputTokens": 9}


@pytest.mark.parametrize(
    ("model", "thinking", "sent"),
    [
        ("gemini-3.8-flash", "high", {"thinkingLevel": "HIGH"}),
        ("gemini-3.8-flash", "minimal", {"thinkingLevel": "LOW"}),
        ("gemini-3.5-flash", "minimal", {"thinkingLevel": "MINIMAL"}),
        ("gemini-3.8-flash", 0, {"thinkingLevel": "LOW"}),
        ("gemini-3.8-flash", 9000, {"thinkingLevel": "MEDIUM"}),
        ("gemini-3.8-flash", -1, None),
        ("gemini-2.5-flash", "low", {"thinkingBudget": 1024}),
        ("gemini-2.5-flash", -1, {"thinkingBudget": -1}),
        ("gemini-2.0-flash", "low", None),
    ],
)
def test_thinking_is_configured_by_level_or_budget(model: str, thinking: Any, sent: Any) -> None:
    assert config(capabilities_of(model), thinking=thinking).get("thinkingConfig") == sent


def test_thoughts_are_shown_on_request() -> None:
    assert config(show_thoughts=True) == {"thinkingConfig": {"includeThoughts": True}}


def test_structured_output_is_json_of_a_schema() -> None:
    assert fields(RequestConfig("m", output=Output(SCHEMA)))["generationConfig"] == {
        "responseMimeType": "application/json",
        "responseJsonSchema": SCHEMA,
    }
    assert fields(RequestConfig("m", output=Output()))["generationConfig"] == {"responseMimeType": "application/json"}
    fields(RequestConfig("m", tools=(ADD,), output=Output(SCHEMA)))
    with pytest.raises(ConfigError, match="not both"):
        fields(RequestConfig("m", tools=(ADD,), output=Output(SCHEMA)), LEGACY)


def test_a_forced_call_without_tools_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no functions are declared"):
        fields(RequestConfig("m", tool_choice=ToolChoice("required")))


def test_a_cache_for_a_model_without_caches_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no explicit caches"):
        fields(RequestConfig("gemini-4-argon", cache=CachePolicy("cachedContents/1")), FOURTH)


def test_extra_fields_are_merged_at_every_depth_in_either_casing() -> None:
    settings = ModelSettings(
        thinking="high", extra={"generation_config": {"thinking_config": {"include_thoughts": True}}}
    )
    assert fields(RequestConfig("m", settings=settings)) == {
        "generationConfig": {"thinkingConfig": {"thinkingLevel": "HIGH", "includeThoughts": True}}
    }
    with pytest.raises(ConfigError, match="extra must not have 'contents'"):
        fields(RequestConfig("m", settings=ModelSettings(extra={"contents": []})))


def test_unknown_extra_fields_are_sent() -> None:
    settings = ModelSettings(
        max_tokens=5, extra={"generationConfig": {"responseModalities": ["TEXT"]}, "labels": {"a": "b"}}
    )
    assert fields(RequestConfig("m", settings=settings)) == {
        "generationConfig": {"maxOutputTokens": 5, "responseModalities": ["TEXT"]},
        "labels": {"a": "b"},
    }


def test_parallel_calls_can_be_allowed_but_not_forbidden() -> None:
    config = RequestConfig("m", tools=(ADD,), tool_choice=ToolChoice("auto", parallel=True))
    assert fields(config)["toolConfig"] == {"functionCallingConfig": {"mode": "AUTO"}}
    with pytest.raises(ConfigError, match="cannot be limited to one call at a time"):
        fields(RequestConfig("m", tools=(ADD,), tool_choice=ToolChoice("auto", parallel=False)))
