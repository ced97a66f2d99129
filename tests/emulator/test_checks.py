"""The checks give the same result for every way to write a request, and raise only ApiError."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from midspan.emulator.gemini.api import ApiError
from midspan.emulator.gemini.check import check
from midspan.emulator.gemini.models import ModelRules
from midspan.providers.gemini.capabilities import Api
from tests.emulator.plain_client import calling, model, result, tools, user

CONTENTS = [
    user("Hi."),
    user(""),
    model("Well."),
    model(calling("f")),
    model(calling("f", signature=None)),
    model(calling("f", signature="")),
    model(calling("f", id="a"), calling("g", id="b", signature=None)),
    model(calling("f", id="a"), calling("g", id="a", signature=None)),
    model("Let me see.", calling("f")),
    model(calling("f"), result("f"), "Done."),
    model(calling("f", signature="a")),
    user(result("f")),
    user(result("f", id="a"), result("g", id="b")),
    user(result("f", id="a"), result("f")),
    user(result("f"), "And?"),
    user(result("f", parts=[{"inlineData": {"mimeType": "image/png", "data": "AAAA"}}])),
    {"role": "user", "parts": []},
    {"role": "model"},
    {"role": "system", "parts": [{"text": "x"}]},
    {"role": "user", "parts": [{"text": "x", "colour": 1}]},
]
CONFIGS: list[dict[str, Any]] = [
    {},
    {"tools": tools("f", "g")},
    {"tools": tools("f", "f")},
    {"generationConfig": {"responseMimeType": "application/json"}},
]
MODELS = [
    ModelRules("gemini-3.8-flash"),
    ModelRules("gemini-3-flash-preview"),
    ModelRules("gemini-2.5-flash"),
    ModelRules("gemini-2.0-flash"),
    ModelRules("gemini-3.8-flash", Api.VERTEX, "v1"),
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["text", "parts", "role", "x"]), inner),
    max_leaves=10,
)


def verdict(request: Any, rules: ModelRules) -> str:
    try:
        check(json.dumps(request).encode(), rules)
    except ApiError as error:
        return error.message
    return "accepted"


def rewrite(content: Any) -> Any:
    """Write a content in snake_case, and a single part without its list."""
    if "parts" not in content:
        return content
    names = {"functionCall": "function_call", "functionResponse": "function_response"}
    parts = [{names.get(name, name): value for name, value in part.items()} for part in content["parts"]]
    return {**content, "parts": parts[0] if len(parts) == 1 else parts}


@given(st.lists(st.sampled_from(CONTENTS), max_size=6), st.sampled_from(CONFIGS), st.sampled_from(MODELS))
def test_casing_and_single_values_do_not_change_the_verdict(
    contents: list[Any], config: dict[str, Any], rules: ModelRules
) -> None:
    rewritten = {"contents": [rewrite(content) for content in contents], **config}
    assert verdict({"contents": contents, **config}, rules) == verdict(rewritten, rules)


@given(
    st.dictionaries(st.sampled_from(["contents", "tools", "toolConfig", "generationConfig", "systemInstruction"]), JSON)
)
def test_any_json_is_accepted_or_rejected_with_an_api_error(request: dict[str, Any]) -> None:
    for rules in MODELS:
        assert verdict(request, rules)


def test_null_counts_as_absent_in_fields_lists_and_maps() -> None:
    parameters = {"type": "OBJECT", "properties": {"a": None, "b": {"type": "STRING", "format": None}}}
    declaration = {"name": "f", "parameters": parameters}
    body = {"contents": [user("Hi."), None], "tools": [{"functionDeclarations": [declaration, None]}], "labels": None}
    request = check(json.dumps(body).encode(), ModelRules("gemini-3.8-flash"))
    assert len(request.contents or ()) == 1
    schema = ((request.tools or ())[0].function_declarations or ())[0].parameters
    assert schema is not None
    assert list(schema.properties or ()) == ["b"]
