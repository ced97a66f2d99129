import dataclasses
import datetime
from typing import Any

import pytest

from midspan.errors import ConfigError
from midspan.gemini import (
    Content,
    FunctionCall,
    FunctionDeclaration,
    FunctionResponse,
    GoogleSearch,
    Part,
    Schema,
    Tool,
)
from midspan.providers.gemini.proto import dump


@pytest.mark.requirement("S0-01")
def test_a_tool_holds_declarations_or_built_in_tools() -> None:
    assert Tool().function_declarations == []
    assert Tool().google_search is None
    assert dump(Tool()) == b"{}"
    assert dump(Tool(google_search=GoogleSearch())) == b'{"googleSearch":{}}'


@pytest.mark.requirement("S0-04", "S4-08")
@pytest.mark.parametrize(
    "fields",
    [{}, {"name": "f"}, {"description": "F."}, {"name": " ", "description": "F."}, {"name": "f", "description": ""}],
)
def test_a_declaration_needs_a_name_and_a_description(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"a FunctionDeclaration needs a (name|description)"):
        FunctionDeclaration(**fields)
    made = FunctionDeclaration(name="f", description="F.", parameters=Schema(type="OBJECT"))
    assert dump(made) == b'{"name":"f","description":"F.","parameters":{"type":"OBJECT"}}'


@pytest.mark.requirement("S0-03")
def test_a_schema_needs_a_type_that_the_api_knows() -> None:
    for known in ("STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "object"):
        assert Schema(type=known).type == known
    assert Schema(any_of=[Schema(type="STRING"), Schema(type="NULL")]).type is None
    with pytest.raises(ConfigError, match=r"a Schema needs a type, one of STRING, NUMBER, .*; got None"):
        Schema(description="x")
    with pytest.raises(ConfigError, match=r"a Schema needs a type, one of STRING, .*; got 'objekt'"):
        Schema(type="objekt")


@pytest.mark.requirement("S0-03")
@pytest.mark.parametrize("place", ["parameters", "response"])
def test_a_declaration_with_an_unknown_type_at_any_depth_is_an_error(place: str) -> None:
    schema: Any = {"type": "OBJECT", "properties": {"a": {"type": "ARRAY", "items": {"type": "objekt"}}}}
    with pytest.raises(ConfigError, match=f"f.{place}: unknown type 'objekt' at /properties/a/items"):
        FunctionDeclaration(name="f", description="F.", **{place: schema})


@pytest.mark.requirement("S0-03")
def test_fields_of_a_schema_that_are_not_set_are_not_sent() -> None:
    schema = Schema(type="OBJECT", properties={"a_b": Schema(type="STRING", enum=["x"])}, required=["a_b"])
    assert dump(schema) == (b'{"type":"OBJECT","properties":{"a_b":{"type":"STRING","enum":["x"]}},"required":["a_b"]}')


@pytest.mark.requirement("S0-05")
def test_a_call_needs_a_name_and_has_arguments() -> None:
    assert FunctionCall(name="f").args == FunctionCall(name="f", args=None).args == {}  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="a FunctionCall needs a name"):
        FunctionCall(args={})


@pytest.mark.requirement("S0-06")
@pytest.mark.parametrize(
    "fields", [{}, {"name": "f"}, {"response": {}}, {"name": "f", "response": [1]}, {"name": "f", "response": "x"}]
)
def test_a_response_needs_a_name_and_an_object(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        FunctionResponse(**fields)


@pytest.mark.requirement("S0-07")
def test_helpers_create_parts() -> None:
    part = Part()
    assert (part.text, part.inline_data, part.function_call, part.function_response) == (None, None, None, None)
    assert dump(Part.from_text("a")) == b'{"text":"a"}'
    assert dump(Part.from_bytes(b"x", "image/png")) == b'{"inlineData":{"mimeType":"image/png","data":"eA=="}}'
    assert dump(Part.from_uri("u", "a/b")) == b'{"fileData":{"fileUri":"u","mimeType":"a/b"}}'
    assert dump(Part.from_function_call("f", {"a_b": 1})) == b'{"functionCall":{"name":"f","args":{"a_b":1}}}'
    assert (
        dump(Part.from_function_response("f", {"a_b": 1})) == b'{"functionResponse":{"name":"f","response":{"a_b":1}}}'
    )


@pytest.mark.requirement("S0-18")
def test_helpers_create_contents() -> None:
    assert dump(Content.text("a")) == b'{"role":"user","parts":[{"text":"a"}]}'
    assert dump(Content(role="model", parts=[Part.from_text("a")])) == b'{"role":"model","parts":[{"text":"a"}]}'


def test_data_too_large_to_send_inline_is_an_error_with_a_hint() -> None:
    with pytest.raises(ConfigError, match=r"76\.0 MB of video/mp4 are too large to send inline .* Files API"):
        Part.from_bytes(bytes(76 * 2**20), "video/mp4")


def test_results_may_be_any_json_object() -> None:
    @dataclasses.dataclass
    class Weather:
        on: datetime.date

    part = Part.from_function_response("f", Weather(datetime.date(2026, 1, 1)))
    assert dump(part) == b'{"functionResponse":{"name":"f","response":{"on":"2026-01-01"}}}'
    with pytest.raises(ConfigError, match=r"the response of 'f' must be an object, as {'result': …}, got 5"):
        Part.from_function_response("f", 5)
