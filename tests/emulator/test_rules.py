"""For every rule a request that breaks it, which is rejected like the real server does, and a similar valid one."""

import json
from typing import Any, NamedTuple

import pytest

from midspan.emulator import LocalGemini
from midspan.emulator.gemini.models import ModelRules
from midspan.providers.gemini.capabilities import Api
from tests.emulator.plain_client import (
    DEVELOPER,
    VERTEX,
    ask,
    calling,
    declared,
    model,
    result,
    send,
    stream,
    tools,
    user,
)

NEW, OLD, OLDER, FOUR = "gemini-3.8-flash", "gemini-2.5-flash", "gemini-2.0-flash", "gemini-4-argon"
VERTEX_1 = VERTEX.replace("v1beta1", "v1")
HI = {"contents": [user("Hi.")]}
ROUND = [user("Hi."), model(calling()), user(result())]
FUNCTION = {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}}
COUNT = "Please ensure that the number of function response parts is equal to the number of function call parts"
ORDER = "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
RESULT_ORDER = "Please ensure that function response turn comes immediately after a function call turn."
BOTH = "You can only set only one of thinking budget and thinking level."
PNG = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}


LARGE_SCHEMA = {
    "type": "OBJECT",
    "properties": {f"a_long_name_of_a_property_{at}": {"type": "STRING"} for at in range(1_500)},
}


class Rule(NamedTuple):
    name: str
    invalid: Any
    message: str
    valid: Any
    model: str = NEW
    valid_model: str | None = None
    path: str = DEVELOPER


def contents(*items: Any) -> dict[str, Any]:
    return {"contents": list(items)}


def with_tools(declared_tools: Any, **more: Any) -> dict[str, Any]:
    return {**HI, "tools": declared_tools, **more}


def choice(mode: str, *names: str) -> dict[str, Any]:
    config = {"mode": mode, **({"allowedFunctionNames": list(names)} if names else {})}
    return {"toolConfig": {"functionCallingConfig": config}}


def config(**fields: Any) -> dict[str, Any]:
    return {**HI, "generationConfig": fields}


def schema(**keywords: Any) -> dict[str, Any]:
    """A request whose one function has one parameter of this schema."""
    return with_tools(declared({"type": "OBJECT", "properties": {"a": keywords}}))


SHOWN = {"includeServerSideToolInvocations": True}
PLACE = "tools[0].function_declarations[0].parameters"
UNKNOWN = "Invalid JSON payload received. Unknown name \"{}\" at '{}': Cannot find field."

RULES = [
    # Fields
    Rule("unknown field at the root", {**HI, "foo": 1}, 'Unknown name "foo": Cannot find field.', HI),
    Rule(
        "unknown field of a part",
        contents({"role": "user", "parts": [{"txt": "x"}]}),
        UNKNOWN.format("txt", "contents[0].parts[0]"),
        contents({"role": "user", "parts": {"text": "x"}}),
    ),
    Rule(
        "unknown field in a config",
        config(temprature=1),
        UNKNOWN.format("temprature", "generation_config"),
        {**HI, "generation_config": {"max_output_tokens": "5"}},
    ),
    Rule(
        "text that is a number",
        contents(user({"text": 5})),
        "Invalid value at 'contents[0].parts[0].text' (TYPE_STRING), 5",
        HI,
    ),
    Rule(
        "unknown function calling mode",
        with_tools(tools("f"), **choice("SOMETIMES")),
        '(type.googleapis.com/google.ai.generativelanguage.v1beta.FunctionCallingConfig.Mode), "SOMETIMES"',
        with_tools(tools("f"), **choice("auto")),
    ),
    Rule(
        "two data fields in one part",
        contents(user({"text": "a", **PNG})),
        "oneof field 'data' is already set",
        contents(user("a", PNG)),
    ),
    Rule(
        "invalid base64",
        contents(user({"inlineData": {"mimeType": "image/png", "data": "a"}})),
        "(TYPE_BYTES), Base64 decoding failed",
        contents(user(PNG)),
    ),
    Rule("no contents", {}, "contents is not specified", HI),
    Rule(
        "part without data",
        contents(user({})),
        "contents[0].parts[0].data: required oneof field 'data' must have one initialized field",
        contents(user("")),
    ),
    Rule(
        "no parts", contents({"role": "user", "parts": []}), "contents[0].parts: contents.parts must not be empty.", HI
    ),
    Rule(
        "no parts field",
        contents({"role": "user"}),
        "contents.parts must not be empty.",
        contents(user("a"), {"role": "model"}, user("b")),
    ),
    Rule(
        "unknown role",
        contents({"role": "system", "parts": [{"text": "x"}]}),
        "Please use a valid role: user, model.",
        contents({"role": "function", "parts": [{"text": "x"}]}),
    ),
    # Declarations
    Rule(
        "function name with a space",
        with_tools(tools("get weather")),
        "tools[0].function_declarations[0].name: Invalid function name. Must start with a letter",
        with_tools(tools("get_weather")),
    ),
    Rule(
        "function name that starts with a digit",
        with_tools(tools("1f")),
        "Invalid function name.",
        with_tools(tools("_1f")),
    ),
    Rule(
        "function name that is too long",
        with_tools(tools("f" * 65)),
        "maximum length of 64",
        with_tools(tools("f" * 64)),
    ),
    Rule(
        "duplicate function name",
        with_tools(tools("f", "f")),
        "Duplicate function declaration found: f",
        with_tools(tools("f", "g")),
    ),
    Rule(
        "duplicate function name in two tools",
        with_tools([*tools("f"), *tools("f")]),
        "Duplicate function declaration found: f",
        with_tools([*tools("f"), *tools("g")]),
    ),
    Rule(
        "too many functions",
        with_tools(tools(*(f"f{i}" for i in range(513)))),
        "At most 512 function declarations can be specified.",
        with_tools(tools(*(f"f{i}" for i in range(512)))),
    ),
    Rule(
        "parameters and parametersJsonSchema",
        with_tools(tools({"name": "f", "parameters": FUNCTION, "parametersJsonSchema": {"type": "object"}})),
        "must not be set when parameters is set",
        with_tools(tools({"name": "f", "parametersJsonSchema": {"type": "object", "$defs": {}, "oneOf": []}})),
    ),
    Rule(
        "functions for a model without function calling",
        with_tools(tools("f")),
        "Function calling is not enabled for models/gemma-3-27b-it",
        HI,
        model="gemma-3-27b-it",
    ),
    # Schemas
    *(
        Rule(
            f"{keyword} in parameters",
            schema(type="STRING", **{keyword: value}),
            UNKNOWN.format(keyword, f"{PLACE}.properties[0].value"),
            schema(type="STRING", description="x"),
        )
        for keyword, value in {
            "$schema": "x",
            "$ref": "#/x",
            "$defs": {},
            "const": 1,
            "oneOf": [],
            "allOf": [],
            "not": {},
            "exclusiveMinimum": 1,
            "exclusiveMaximum": 1,
            "examples": [],
            "$comment": "x",
            "enumDescriptions": [],
            "additionalProperties": False,
            "multipleOf": 2,
            "patternProperties": {},
        }.items()
    ),
    Rule(
        "additionalProperties at the root of parameters",
        with_tools(declared({**FUNCTION, "additionalProperties": False})),
        UNKNOWN.format("additionalProperties", PLACE),
        with_tools(declared(FUNCTION)),
    ),
    Rule(
        "an array without items",
        schema(type="ARRAY"),
        f"{PLACE}.properties[a].items: missing field",
        schema(type="ARRAY", items={"type": "STRING"}),
    ),
    Rule(
        "a list of types",
        schema(type=["string", "null"]),
        "Proto field is not repeating, cannot start list.",
        schema(type="string", nullable=True),
    ),
    Rule(
        "unknown type",
        schema(type="any"),
        '(type.googleapis.com/google.ai.generativelanguage.v1beta.Type), "any"',
        schema(type="object"),
    ),
    Rule(
        "numbers in an enum",
        schema(type="INTEGER", enum=[1]),
        f"{PLACE}.properties[0].value.enum[0]' (TYPE_STRING), 1",
        schema(type="STRING", enum=["1"]),
    ),
    Rule(
        "an enum of a number type",
        schema(type="INTEGER", enum=["1"]),
        "enum: only allowed for STRING type",
        schema(type="STRING", enum=["1"], format="enum"),
    ),
    Rule(
        "empty enum value",
        schema(type="STRING", enum=[""]),
        "enum[0]: cannot be empty",
        schema(type="STRING", enum=["x"]),
    ),
    Rule(
        "unknown string format",
        schema(type="STRING", format="uri"),
        "only 'enum' and 'date-time' are supported for STRING type",
        schema(type="STRING", format="date-time"),
    ),
    Rule(
        "required property that is not defined",
        with_tools(declared({**FUNCTION, "required": ["b"]})),
        f"{PLACE}.required[0]: property is not defined",
        with_tools(declared({**FUNCTION, "required": ["a"]})),
    ),
    # Choices
    Rule(
        "mode ANY without functions",
        {**HI, **choice("ANY")},
        "Function calling config is set without function_declarations.",
        {**HI, **choice("NONE")},
    ),
    Rule(
        "mode VALIDATED with built-in tools alone",
        with_tools([{"googleSearch": {}}], **choice("VALIDATED")),
        "Function calling config is set without function_declarations.",
        with_tools([{"googleSearch": {}}], **choice("AUTO")),
    ),
    Rule(
        "allowed names in mode AUTO",
        with_tools(tools("f"), **choice("AUTO", "f")),
        "allowed_function_names should be set only when",
        with_tools(tools("f"), **choice("ANY", "f")),
    ),
    Rule(
        "an allowed name that is not declared",
        with_tools(tools("f"), **choice("ANY", "g")),
        "function `g` is not declared in tools",
        with_tools(tools("f", "g"), **choice("VALIDATED", "g")),
    ),
    Rule(
        "streamed arguments of the Developer API",
        with_tools(tools("f"), toolConfig={"functionCallingConfig": {"streamFunctionCallArguments": True}}),
        'Unknown name "streamFunctionCallArguments"',
        with_tools(tools("f")),
    ),
    Rule(
        "built-in tools with functions before Gemini 3",
        with_tools([*tools("f"), {"googleSearch": {}}]),
        "Tool use with function calling is unsupported",
        with_tools([{"googleSearch": {}}]),
        model=OLD,
    ),
    Rule(
        "built-in tools with functions without includeServerSideToolInvocations",
        with_tools([*tools("f"), {"googleSearch": {}}]),
        "Please enable tool_config.include_server_side_tool_invocations",
        with_tools([*tools("f"), {"googleSearch": {}}], toolConfig=SHOWN),
    ),
    Rule(
        "mode AUTO with built-in tools beside functions",
        with_tools([*tools("f"), {"googleSearch": {}}], toolConfig=SHOWN | choice("AUTO")["toolConfig"]),
        "Function calling mode AUTO is not supported together with built-in tools; use VALIDATED.",
        with_tools([{"googleSearch": {}}], toolConfig=SHOWN | choice("AUTO")["toolConfig"]),
    ),
    Rule(
        "includeServerSideToolInvocations before Gemini 3",
        with_tools([{"googleSearch": {}}], toolConfig=SHOWN),
        "Tool call context circulation is not enabled",
        with_tools([{"googleSearch": {}}]),
        model=OLD,
    ),
    Rule(
        "JSON output with functions before Gemini 3",
        {**with_tools(tools("f")), "generationConfig": {"responseMimeType": "application/json"}},
        "Function calling with a response mime type: 'application/json' is unsupported",
        config(responseMimeType="application/json"),
        model=OLD,
    ),
    Rule(
        "JSON output after calls before Gemini 3",
        {"contents": ROUND, "generationConfig": {"responseMimeType": "application/json"}},
        "'application/json' is unsupported",
        {"contents": ROUND},
        model=OLD,
    ),
    # Turns
    Rule("call without a result", contents(user("Hi."), model(calling()), user("And?")), COUNT, contents(*ROUND)),
    Rule(
        "fewer results than calls",
        contents(user("Hi."), model(calling(), calling("g", signature=None)), user(result())),
        COUNT,
        contents(user("Hi."), model(calling(), calling("g", signature=None)), user(result(), result("g"))),
    ),
    Rule(
        "more results than calls",
        contents(user("Hi."), model(calling()), user(result(), result())),
        COUNT,
        contents(*ROUND),
    ),
    Rule(
        "results in two contents",
        contents(user("Hi."), model(calling(), calling("g", signature=None)), user(result()), user(result("g"))),
        COUNT,
        contents(user("Hi."), model(calling(), calling("g")), user(result(), result("g"))),
    ),
    Rule("a call at the end", contents(user("Hi."), model(calling())), COUNT, contents(*ROUND), model=OLD),
    Rule("a call at the beginning", contents(model(calling()), user(result())), ORDER, contents(*ROUND)),
    Rule(
        "fewer results than calls in two contents of the model",
        contents(user("Hi."), model(calling("f")), model(calling("g")), user(result("f"))),
        COUNT,
        contents(user("Hi."), model(calling("f")), model(calling("g")), user(result("f"), result("g"))),
    ),
    Rule(
        "a second model content without a signature",
        contents(user("Hi."), model(calling()), model(calling("g", signature=None)), user(result(), result("g"))),
        "missing a thought_signature",
        contents(user("Hi."), model(calling()), model(calling("g")), user(result(), result("g"))),
    ),
    Rule("result without a call", contents(user("Hi."), user(result())), RESULT_ORDER, contents(*ROUND)),
    Rule(
        "result after text of the model",
        contents(user("Hi."), model("Well."), user(result())),
        RESULT_ORDER,
        contents(*ROUND),
    ),
    Rule(
        "model turn last",
        contents(user("Hi."), model("Well")),
        "Requests ending with a model turn are not supported.",
        contents(user("Hi."), model("Well"), user("Go on.")),
    ),
    Rule(
        "model turn last in a newer family",
        contents(user("Hi."), model("Well")),
        "Requests ending with a model turn are not supported.",
        contents(user("Hi."), model("Well")),
        valid_model="gemini-3-flash-preview",
    ),
    Rule(
        "a result that is a list",
        contents(user("Hi."), model(calling()), user(result(response=[1]))),
        "Proto field is not repeating, cannot start list.",
        contents(*ROUND),
    ),
    Rule(
        "result that is a string",
        contents(user("Hi."), model(calling()), user(result(response="x"))),
        "(type.googleapis.com/google.protobuf.Struct)",
        contents(*ROUND),
    ),
    Rule(
        "a result without a name",
        contents(user("Hi."), model(calling()), user({"functionResponse": {"response": {}}})),
        "function_response.name: Name cannot be empty.",
        contents(*ROUND),
    ),
    # Ids
    Rule(
        "result id that does not match",
        contents(user("Hi."), model(calling(id="a")), user(result(id="b"))),
        "functionResponse.id does not match functionCall.id",
        contents(user("Hi."), model(calling(id="a")), user(result(id="a"))),
    ),
    Rule(
        "result id for a call without an id",
        contents(user("Hi."), model(calling()), user(result(id="b"))),
        "functionResponse.id does not match functionCall.id",
        contents(user("Hi."), model(calling(id="a")), user(result())),
    ),
    Rule(
        "two results with one id",
        contents(user("Hi."), model(calling(id="a"), calling(id="b")), user(result(id="a"), result(id="a"))),
        "functionResponse.id does not match functionCall.id",
        contents(user("Hi."), model(calling(id="a"), calling(id="b")), user(result(id="b"), result(id="a"))),
    ),
    Rule(
        "result name that does not match",
        contents(user("Hi."), model(calling(id="a")), user(result("g", id="a"))),
        "functionResponse.name does not match functionCall.name",
        contents(user("Hi."), model(calling(id="a")), user(result(id="a"))),
    ),
    Rule(
        "ids in version 1 of Vertex",
        contents(user("Hi."), model(calling(id="a")), user(result(id="a"))),
        UNKNOWN.format("id", "contents[1].parts[0].function_call"),
        contents(*ROUND),
        path=VERTEX_1,
    ),
    # Signatures
    Rule(
        "call without a signature",
        contents(user("Hi."), model(calling(signature=None)), user(result())),
        "Function call is missing a thought_signature in functionCall parts. This is required",
        contents(*ROUND),
    ),
    Rule(
        "server-side result without its call",
        contents(user("Hi."), model({"toolResponse": {"id": "b", "toolType": "URL_CONTEXT"}}, "Well."), user("And?")),
        "Invalid value at 'contents[1].parts[0].tool_response.id'",
        contents(
            user("Hi."),
            model(
                {"toolCall": {"id": "b", "toolType": "URL_CONTEXT"}},
                {"toolResponse": {"id": "b", "toolType": "URL_CONTEXT"}},
                "Well.",
            ),
            user("And?"),
        ),
    ),
    Rule(
        "call without a signature after text",
        contents(user("Hi."), model("Let me see.", calling(signature=None)), user(result())),
        "Function call is missing a thought_signature in functionCall parts. This is required",
        contents(user("Hi."), model("Let me see.", calling()), user(result())),
    ),
    Rule(
        "invalid parameter name",
        with_tools(declared({"type": "OBJECT", "properties": {"a-b": {"type": "STRING"}}})),
        f"{PLACE}.properties[a-b]: Invalid parameter name.",
        with_tools(declared({"type": "OBJECT", "properties": {"a_b": {"type": "STRING"}}})),
    ),
    Rule(
        "schemas too large for mode ANY",
        with_tools(declared(LARGE_SCHEMA), **choice("ANY")),
        "The specified schema produces a constraint that has too many states for serving.",
        with_tools(declared(LARGE_SCHEMA), **choice("AUTO")),
    ),
    Rule(
        "JSON Schema too large for mode VALIDATED",
        with_tools(tools("g", {"name": "f", "parametersJsonSchema": LARGE_SCHEMA}), **choice("VALIDATED")),
        "too many states for serving",
        with_tools(tools("g", {"name": "f", "parametersJsonSchema": LARGE_SCHEMA}), **choice("ANY", "g")),
    ),
    Rule(
        "behavior outside of Live",
        with_tools(tools({"name": "f", "behavior": "NON_BLOCKING"})),
        "tools[0].function_declarations[0].behavior: behavior is only supported by",
        with_tools(tools({"name": "f", "behavior": "BEHAVIOR_UNSPECIFIED"})),
    ),
    Rule(
        "empty signature",
        contents(user("Hi."), model(calling(signature="")), user(result())),
        "Function call is missing a thought_signature in functionCall parts. This is required",
        contents(user("Hi."), model(calling(signature="")), user(result())),
        valid_model=OLD,
    ),
    Rule(
        "two results with one name",
        contents(user("Hi."), model(calling("a"), calling("b")), user(result("a"), result("a"))),
        "functionResponse.name does not match functionCall.name",
        contents(user("Hi."), model(calling("a"), calling("b")), user(result("b"), result("a"))),
    ),
    Rule(
        "results with one id and one name for the same call",
        contents(
            user("Hi."), model(calling("a", id="1"), calling("b", id="2")), user(result("a", id="1"), result("a"))
        ),
        "functionResponse.name does not match functionCall.name",
        contents(
            user("Hi."), model(calling("a", id="1"), calling("a", id="2")), user(result("a"), result("a", id="1"))
        ),
        FOUR,
    ),
    Rule(
        "two calls with one id",
        contents(
            user("Hi."),
            model(calling("a", id="1"), calling("a", id="1")),
            user(result("a", id="1"), result("a", id="1")),
        ),
        "functionResponse.id does not match functionCall.id",
        contents(
            user("Hi."),
            model(calling("a", id="1"), calling("a", id="2")),
            user(result("a", id="2"), result("a", id="1")),
        ),
    ),
    Rule(
        "name and position of a call without a signature",
        contents(user("Hi."), model(calling("g", signature=None)), user(result("g"))),
        "function call `default_api:g` , position 2.",
        contents(user("Hi."), model(calling("g")), user(result("g"))),
    ),
    Rule(
        "later step without a signature",
        contents(*ROUND, model(calling(signature=None)), user(result())),
        "position 4",
        contents(*ROUND, model(calling()), user(result())),
    ),
    Rule(
        "call without a signature in the current turn",
        contents(user("Hi."), model(calling(signature=None)), user(result())),
        "missing a thought_signature",
        contents(user("Hi."), model(calling(signature=None)), user(result()), model("Well."), user("Thanks.")),
    ),
    Rule(
        "call without a signature from Gemini 3 on",
        contents(user("Hi."), model(calling(signature=None)), user(result())),
        "missing a thought_signature",
        contents(user("Hi."), model(calling(signature=None)), user(result())),
        valid_model=OLD,
    ),
    Rule(
        "signature that is not base64",
        contents(user("Hi."), model(calling(signature="a")), user(result())),
        "Invalid value at 'contents[1].parts[0].thought_signature' (TYPE_BYTES), Base64 decoding failed",
        contents(*ROUND),
    ),
    # Caches, files, families
    Rule(
        "cached content with tools",
        with_tools(tools("f"), cachedContent="cachedContents/x"),
        "CachedContent can not be used with GenerateContent request setting system_instruction, tools or tool_config.",
        with_tools(tools("f")),
    ),
    Rule(
        "cached content with tools on Vertex",
        with_tools(tools("f"), cachedContent="projects/p/locations/l/cachedContents/1"),
        "Tool config, tools and system instruction should not be set in the request when using cached content.",
        with_tools(tools("f")),
        path=VERTEX,
    ),
    Rule(
        "cached content for Gemini 4",
        {**HI, "cachedContent": "cachedContents/x"},
        "CachedContent is not supported for models/gemini-4-argon",
        HI,
        model=FOUR,
    ),
    Rule(
        "files in results before Gemini 3",
        contents(user("Hi."), model(calling()), user(result(parts=[PNG]))),
        "`function_response.parts` is not supported for this model",
        contents(*ROUND),
        model=OLD,
    ),
    Rule(
        "reference to a file in a result on the Developer API",
        contents(user("Hi."), model(calling()), user(result(parts=[PNG], response={"a": {"$ref": "x"}}))),
        "does not match to a display_name",
        contents(user("Hi."), model(calling()), user(result(parts=[PNG]))),
    ),
    Rule(
        "text in the parts of a result",
        contents(user("Hi."), model(calling()), user(result(parts=[{"text": "x"}]))),
        UNKNOWN.format("text", "contents[2].parts[0].function_response.parts[0]"),
        contents(user("Hi."), model(calling()), user(result(parts=[PNG]))),
    ),
    Rule(
        "thinking level MINIMAL for Gemini 4",
        config(thinkingConfig={"thinkingLevel": "MINIMAL"}),
        "Thinking level MINIMAL is not supported for this model.",
        config(thinkingConfig={"thinkingLevel": "LOW"}, temperature=0.5, topP=0.9, topK=3),
        model=FOUR,
    ),
    Rule(
        "thinking level before Gemini 3",
        config(thinkingConfig={"thinkingLevel": "LOW"}),
        "Thinking level is not supported for this model.",
        config(thinkingConfig={"thinkingBudget": 128}),
        model=OLD,
    ),
    Rule(
        "thinking level and thinking budget",
        config(thinkingConfig={"thinkingLevel": "LOW", "thinkingBudget": 1}),
        BOTH,
        config(thinkingConfig={"thinkingBudget": 1}),
    ),
    Rule(
        "thinking budget for a model without thinking",
        config(thinkingConfig={"thinkingBudget": 5}),
        "Thinking is not enabled for models/gemini-2.0-flash",
        config(thinkingConfig={"thinkingBudget": 0}),
        model=OLDER,
    ),
    Rule(
        "nine candidates",
        config(candidateCount=9),
        "Multiple candidates is not enabled for this model",
        config(candidateCount=8),
        model=OLD,
    ),
    Rule(
        "two candidates from Gemini 3 on",
        config(candidateCount=2),
        "Multiple candidates is not enabled for this model",
        config(candidateCount=1),
    ),
    Rule(
        "negative number of candidates",
        config(candidateCount=-1),
        "it has a candidateCount value of -1 but the supported range is from 1 (inclusive) to 9 (exclusive). Update",
        config(candidateCount=1),
    ),
    Rule(
        "temperature out of range",
        config(temperature=1000),
        "Unable to submit request because it has a temperature value of 1000 but the supported range is from 0",
        config(temperature=2),
    ),
    Rule(
        "response schema without items",
        config(responseMimeType="application/json", responseSchema={"type": "ARRAY"}),
        "generation_config.response_schema.items: missing field",
        config(responseMimeType="application/json", responseSchema={"type": "ARRAY", "items": {"type": "STRING"}}),
    ),
    Rule(
        "system instruction for a model without it",
        {**HI, "systemInstruction": user("Be brief.")},
        "Developer instruction is not enabled for models/gemma-3-27b-it",
        HI,
        model="gemma-3-27b-it",
    ),
    Rule(
        "field of Vertex only",
        {**HI, "modelArmorConfig": {}},
        'Unknown name "modelArmorConfig": Cannot find field.',
        {**HI, "labels": {"a": "b"}},
    ),
    Rule(
        "field of the Developer API only",
        with_tools([{"mcpServers": []}]),
        UNKNOWN.format("mcpServers", "tools[0]"),
        with_tools([{"enterpriseWebSearch": {}}]),
        path=VERTEX,
    ),
    Rule("unknown continuation token", {**HI, "continuationToken": "abcd"}, "Invalid continuation token.", HI),
    Rule(
        "too many tokens",
        contents(user("word " * 1_000_000)),
        "exceeds the maximum number of tokens allowed (1048576).",
        contents(user("word " * 100_000)),
    ),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_request_that_breaks_a_rule_is_rejected(rule: Rule, echo: LocalGemini) -> None:
    reply = ask(echo.url, rule.invalid, rule.model, rule.path)
    assert reply.status == 400, reply
    assert reply.json["error"]["status"] == "INVALID_ARGUMENT"
    assert rule.message in reply.message


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_similar_valid_request_is_accepted(rule: Rule, echo: LocalGemini) -> None:
    reply = ask(echo.url, rule.valid, rule.valid_model or rule.model, rule.path)
    assert reply.status == 200, reply


def test_adjacent_model_contents_are_one_turn(echo: LocalGemini) -> None:
    text_then_call = contents(user("Hi."), model("Let me see."), model(calling()), user(result()))
    call_then_text = contents(user("Hi."), model(calling()), model(""), user(result()))
    for name in (OLDER, OLD, "gemini-3-flash-preview", NEW, FOUR):
        assert ask(echo.url, text_then_call, name).status == 200, name
        assert ask(echo.url, call_then_text, name).status == 200, name


@pytest.mark.parametrize(
    ("name", "api", "amount"),
    [
        ("gemini-1.0-pro", Api.DEVELOPER, 1),
        ("gemini-1.5-flash", Api.DEVELOPER, 8),
        ("gemini-2.5-flash", Api.DEVELOPER, 8),
        ("gemini-2.5-flash-image", Api.DEVELOPER, 1),
        ("gemini-3-flash-preview", Api.DEVELOPER, 1),
        ("gemini-3-flash-preview", Api.VERTEX, 8),
    ],
)
def test_the_number_of_candidates_depends_on_the_family(name: str, api: Api, amount: int) -> None:
    assert ModelRules(name, api).max_candidates == amount


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gemini-2.0-flash", "joins_user_contents accepts_unanswered_calls accepts_prefill rejects_thinking"),
        ("gemini-2.5-flash", "joins_user_contents accepts_prefill sends_signatures"),
        ("gemini-2.5-flash-image", "joins_user_contents accepts_prefill rejects_thinking"),
        ("gemini-3-flash-preview", "accepts_prefill sends_ids sends_signatures requires_signatures"),
        ("gemini-3-pro-image", "accepts_prefill sends_ids"),
        ("gemini-3.5-flash", "sends_ids sends_signatures requires_signatures"),
        ("gemini-3.7-flash", "sends_ids sends_signatures requires_signatures checks_ids"),
    ],
)
def test_the_rules_depend_on_the_family(name: str, expected: str) -> None:
    assert {field for field, value in vars(ModelRules(name)).items() if value is True} == set(expected.split())


def test_candidates_cannot_be_streamed(echo: LocalGemini) -> None:
    assert stream(echo.url, config(candidateCount=2), OLD).status == 400
    assert stream(echo.url, config(candidateCount=1), OLD).status == 200


def test_older_families_accept_split_results_and_unanswered_calls(echo: LocalGemini) -> None:
    split = contents(user("Hi."), model(calling(), calling("g")), user(result()), user(result("g")))
    assert ask(echo.url, split, OLD).status == 200
    unanswered = contents(user("Hi."), model(calling()), user("And?"))
    assert ask(echo.url, unanswered, OLDER).status == 200
    assert ask(echo.url, unanswered, OLD).status == 400
    mixed = contents(user("Hi."), model(calling(id="a")), user(result(id="b")))
    assert ask(echo.url, mixed, "gemini-3.5-flash").status == 200


def test_results_of_tools_that_the_server_runs_may_be_in_the_model_turn(echo: LocalGemini) -> None:
    ran = contents(user("Hi."), model(calling(), result(), "Done."), user("And?"))
    assert ask(echo.url, ran, OLD).status == 200
    in_chunks = contents(user("Hi."), model(calling()), model(result()), model("Done."), user("And?"))
    assert ask(echo.url, in_chunks).status == 200


def test_the_number_of_an_enum_value_means_the_same_as_its_name(echo: LocalGemini) -> None:
    any_mode = {"functionCallingConfig": {"mode": 2}}
    declared = with_tools(tools({"name": "f", "description": "f", "parameters": {"type": 6}}), toolConfig=any_mode)
    part = ask(echo.url, declared).json["candidates"][0]["content"]["parts"][0]
    assert part["functionCall"]["name"] == "f"
    without_tools = ask(echo.url, {**HI, "toolConfig": any_mode})
    assert without_tools.message == "Function calling config is set without function_declarations."
    assert ask(echo.url, config(thinkingConfig={"thinkingLevel": 3})).status == 200
    assert ask(echo.url, config(thinkingConfig={"thinkingLevel": 99})).status == 400


def test_all_unknown_fields_are_reported_together(echo: LocalGemini) -> None:
    reply = ask(echo.url, schema(type="STRING", const=1, examples=[2]))
    violations = reply.json["error"]["details"][0]["fieldViolations"]
    assert [violation["field"] for violation in violations] == [f"{PLACE}.properties[0].value"] * 2
    assert reply.message == "\n".join(violation["description"] for violation in violations)


def test_invalid_json_is_rejected(echo: LocalGemini) -> None:
    for body in (b"{", b"[]", b"\xff", b'{"contents": [{"parts": [{"text": "\xff"}]}]}', b"[" * 100_000):
        reply = ask(echo.url, body)
        assert (reply.status, reply.json["error"]["status"]) == (400, "INVALID_ARGUMENT"), body[:20]


@pytest.mark.parametrize("depth", [20, 300, 400, 600, 900, 950, 1_500, 5_000])
def test_schemas_that_are_nested_too_deep_are_rejected(depth: int, echo: LocalGemini) -> None:
    deep = '{"type":"ARRAY","items":' * depth + '{"type":"STRING"}' + "}" * depth
    body = json.dumps(with_tools(declared({"type": "OBJECT", "properties": {"a": "DEEP"}}))).replace('"DEEP"', deep)
    reply = ask(echo.url, body.encode())
    assert reply.status in ((200,) if depth == 20 else (200, 400) if depth < 600 else (400,)), reply
    nested = '{"a":' * depth + "1" + "}" * depth
    filled = json.dumps(contents(user("Hi."), model(calling()), user(result(parts=[PNG], response={"a": "DEEP"}))))
    assert ask(echo.url, filled.replace('"DEEP"', nested).encode()).status in (200, 400)


@pytest.mark.parametrize(
    "name",
    [
        *("x", "gpt-4", "gemini-nonexistent", "gemini-5.0-flash", "gemini-3.9-flash"),
        *(
            "gemini-3.6-flahs",
            "gemini-3.8-flash-ultra",
            "gemini-2.5-nonsense",
            "gemini-2.5-flash-1",
            "gemini-1.5-nonsense",
        ),
    ],
)
def test_an_unknown_model_is_not_found(name: str, echo: LocalGemini) -> None:
    reply = ask(echo.url, HI, name)
    assert (reply.status, reply.json["error"]["status"]) == (404, "NOT_FOUND")
    assert reply.message.startswith(f"models/{name} is not found for API version v1beta, or is not supported for")
    reply = ask(echo.url, HI, name, VERTEX)
    assert (reply.status, "Publisher Model `projects/p/locations/us-central1/publishers/google" in reply.message) == (
        404,
        True,
    )


def test_retired_models_and_previews_are_not_found_unless_the_server_has_them(echo: LocalGemini) -> None:
    retired = ("gemini-1.5-flash", "gemini-2.0-flash-001", "gemini-2.0-flash-exp", "gemini-2.5-pro-preview-03-25")
    with LocalGemini() as current, LocalGemini(models=["gemini-1.5-flash"]) as listed:
        for name in retired:
            assert ask(echo.url, HI, name).status == 200, name
            assert ask(current.url, HI, name).status == 404, name
        assert ask(listed.url, HI, "gemini-1.5-flash").status == 200
        assert ask(current.url, HI, "gemini-2.5-flash-001").status == 200
        assert ask(current.url, HI, "gemma-3-27b-it").status == 200


def test_latest_aliases_exist_only_in_beta_versions(echo: LocalGemini) -> None:
    assert ask(echo.url, HI, "gemini-flash-latest").status == 200
    assert ask(echo.url, HI, "gemini-flash-latest", DEVELOPER.replace("v1beta", "v1")).status == 404


def test_invalid_credentials_are_rejected(echo: LocalGemini) -> None:
    path = DEVELOPER.format(NEW, "generateContent")
    for key in ("", "invalid"):
        reply = send(echo.url, "POST", path, HI, {"x-goog-api-key": key})
        assert (reply.status, reply.json["error"]["status"]) == (400, "INVALID_ARGUMENT")
        assert reply.message == "API key not valid. Please pass a valid API key."
        assert reply.json["error"]["details"][0]["reason"] == "API_KEY_INVALID"
    assert send(echo.url, "POST", path + "?key=invalid", HI, {}).status == 400
    assert send(echo.url, "POST", path + "?key=k", HI, {}).status == 200
    assert send(echo.url, "POST", path, HI, {"authorization": "Bearer t"}).status == 200
    reply = send(echo.url, "POST", path, HI, {})
    assert (reply.status, reply.json["error"]["status"]) == (403, "PERMISSION_DENIED")
    path = VERTEX.format(NEW, "generateContent")
    assert send(echo.url, "POST", path, HI, {}).json["error"]["status"] == "UNAUTHENTICATED"
    assert (
        "is missing required authentication" in send(echo.url, "POST", path, HI, {"authorization": "Basic t"}).message
    )
    reply = send(echo.url, "POST", path, HI, {"authorization": "Bearer invalid"})
    assert reply.status == 401


def test_a_server_with_a_key_accepts_no_other() -> None:
    with LocalGemini(api_key="sesame") as server:
        path = DEVELOPER.format(NEW, "generateContent")
        assert send(server.url, "POST", path, HI, {"x-goog-api-key": "sesame"}).status == 200
        assert send(server.url, "POST", path, HI, {"x-goog-api-key": "other"}).status == 400


def test_a_server_with_a_list_of_models_has_no_others() -> None:
    with LocalGemini(models=["models/mine"]) as server:
        assert ask(server.url, HI, "mine").status == 200
        assert ask(server.url, HI, NEW).status == 404
        assert [item["name"] for item in send(server.url, "GET", "/v1beta/models").json["models"]] == ["models/mine"]


def test_tokens_are_counted_of_known_fields_only(echo: LocalGemini) -> None:
    path = VERTEX.format(NEW, "countTokens")
    assert send(echo.url, "POST", path, {**HI, "systemInstruction": user("Be brief.")}).status == 200
    rejected = send(echo.url, "POST", path, {**HI, "toolConfig": {}})
    assert (rejected.status, 'Unknown name "toolConfig"' in rejected.message) == (400, True)


def test_methods_of_unknown_models_are_not_found(echo: LocalGemini) -> None:
    for method, path in (
        ("GET", "/v1beta/models/x"),
        ("POST", DEVELOPER.format("x", "countTokens")),
        ("POST", DEVELOPER.format("x", "embedContent")),
    ):
        assert send(echo.url, method, path, HI).status == 404, path


def test_the_description_of_a_model_says_whether_it_can_be_cached(echo: LocalGemini) -> None:
    for name, can_be_cached in (("gemini-2.5-flash", True), ("gemini-4-argon", False)):
        methods = send(echo.url, "GET", f"/v1beta/models/{name}").json["supportedGenerationMethods"]
        assert ("createCachedContent" in methods) is can_be_cached, name


def test_invalid_functions_are_not_counted(echo: LocalGemini) -> None:
    reply = send(echo.url, "POST", DEVELOPER.format(NEW, "countTokens"), with_tools(tools("1")))
    assert (reply.status, "Invalid function name" in reply.message) == (400, True)


def test_a_call_counts_fewer_tokens_than_a_file(echo: LocalGemini) -> None:
    def count(*parts: Any) -> int:
        path = DEVELOPER.format(NEW, "countTokens")
        return int(send(echo.url, "POST", path, {"contents": [user(*parts)]}).json["totalTokens"])

    image = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
    assert (count(result()), count(image)) == (8, 258)
