"""For every rule a request that breaks it, refused with the code and the words of the real server, and the nearest
legal one, which passes."""

import json
from typing import Any, NamedTuple

import pytest

from midspan.emulator import LocalGemini
from tests.emulator.asking import (
    DEVELOPER,
    VERTEX,
    ask,
    calling,
    declared,
    model,
    result,
    send,
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


MANY_WORDS = {
    "type": "OBJECT",
    "properties": {f"a_long_name_of_a_property_{at}": {"type": "STRING"} for at in range(1_500)},
}


class Rule(NamedTuple):
    name: str
    broken: Any
    words: str
    legal: Any
    model: str = NEW
    legal_model: str | None = None
    path: str = DEVELOPER


def contents(*given: Any) -> dict[str, Any]:
    return {"contents": list(given)}


def with_tools(given: Any, **more: Any) -> dict[str, Any]:
    return {**HI, "tools": given, **more}


def choice(mode: str, *names: str) -> dict[str, Any]:
    config = {"mode": mode, **({"allowedFunctionNames": list(names)} if names else {})}
    return {"toolConfig": {"functionCallingConfig": config}}


def config(**given: Any) -> dict[str, Any]:
    return {**HI, "generationConfig": given}


def schema(**given: Any) -> dict[str, Any]:
    """A request whose one function has one parameter of this schema."""
    return with_tools(declared({"type": "OBJECT", "properties": {"a": given}}))


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
        "a mode that there is not",
        with_tools(tools("f"), **choice("SOMETIMES")),
        '(type.googleapis.com/google.ai.generativelanguage.v1beta.FunctionCallingConfig.Mode), "SOMETIMES"',
        with_tools(tools("f"), **choice("auto")),
    ),
    Rule(
        "two kinds in one part",
        contents(user({"text": "a", **PNG})),
        "oneof field 'data' is already set",
        contents(user("a", PNG)),
    ),
    Rule(
        "base64 that is none",
        contents(user({"inlineData": {"mimeType": "image/png", "data": "a"}})),
        "(TYPE_BYTES), Base64 decoding failed",
        contents(user(PNG)),
    ),
    Rule("no contents", {}, "contents is not specified", HI),
    Rule(
        "a part that says nothing",
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
        "a role that there is not",
        contents({"role": "system", "parts": [{"text": "x"}]}),
        "Please use a valid role: user, model.",
        contents({"role": "function", "parts": [{"text": "x"}]}),
    ),
    Rule(
        "a file that cannot be read",
        contents(user({"inlineData": {"mimeType": "application/msword", "data": ""}})),
        "Unsupported MIME type: application/msword",
        contents(user({"inlineData": {"mimeType": "application/pdf", "data": ""}})),
    ),
    # Declarations
    Rule(
        "a name with a blank",
        with_tools(tools("get weather")),
        "tools[0].function_declarations[0].name: Invalid function name. Must start with a letter",
        with_tools(tools("get_weather")),
    ),
    Rule(
        "a name that starts with a digit", with_tools(tools("1f")), "Invalid function name.", with_tools(tools("_1f"))
    ),
    Rule("a name that is too long", with_tools(tools("f" * 65)), "maximum length of 64", with_tools(tools("f" * 64))),
    Rule(
        "one name twice",
        with_tools(tools("f", "f")),
        "Duplicate function declaration found: f",
        with_tools(tools("f", "g")),
    ),
    Rule(
        "one name twice in two tools",
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
        "both kinds of schema",
        with_tools(tools({"name": "f", "parameters": FUNCTION, "parametersJsonSchema": {"type": "object"}})),
        "must not be set when parameters is set",
        with_tools(tools({"name": "f", "parametersJsonSchema": {"type": "object", "$defs": {}, "oneOf": []}})),
    ),
    Rule(
        "functions where the model has none",
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
        "a type that there is not",
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
        "an empty word in an enum",
        schema(type="STRING", enum=[""]),
        "enum[0]: cannot be empty",
        schema(type="STRING", enum=["x"]),
    ),
    Rule(
        "a format of strings that there is not",
        schema(type="STRING", format="uri"),
        "only 'enum' and 'date-time' are supported for STRING type",
        schema(type="STRING", format="date-time"),
    ),
    Rule(
        "required, but not defined",
        with_tools(declared({**FUNCTION, "required": ["b"]})),
        f"{PLACE}.required[0]: property is not defined",
        with_tools(declared({**FUNCTION, "required": ["a"]})),
    ),
    # Choices
    Rule(
        "a choice without functions",
        {**HI, **choice("ANY")},
        "Function calling config is set without function_declarations.",
        {**HI, **choice("NONE")},
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
        "built-in tools beside functions before Gemini 3",
        with_tools([*tools("f"), {"googleSearch": {}}]),
        "Tool use with function calling is unsupported",
        with_tools([{"googleSearch": {}}]),
        model=OLD,
    ),
    Rule(
        "built-in tools beside functions, and not shown",
        with_tools([*tools("f"), {"googleSearch": {}}]),
        "Please enable tool_config.include_server_side_tool_invocations",
        with_tools([*tools("f"), {"googleSearch": {}}], toolConfig={"includeServerSideToolInvocations": True}),
    ),
    Rule(
        "calls shown before Gemini 3",
        with_tools([{"googleSearch": {}}], toolConfig={"includeServerSideToolInvocations": True}),
        "Tool call context circulation is not enabled",
        with_tools([{"googleSearch": {}}]),
        model=OLD,
    ),
    Rule(
        "JSON beside functions before Gemini 3",
        {**with_tools(tools("f")), "generationConfig": {"responseMimeType": "application/json"}},
        "Function calling with a response mime type: 'application/json' is unsupported",
        config(responseMimeType="application/json"),
        model=OLD,
    ),
    Rule(
        "JSON after calls before Gemini 3",
        {"contents": ROUND, "generationConfig": {"responseMimeType": "application/json"}},
        "'application/json' is unsupported",
        {"contents": ROUND},
        model=OLD,
    ),
    # Turns
    Rule("a call that nobody answers", contents(user("Hi."), model(calling()), user("And?")), COUNT, contents(*ROUND)),
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
        "a call after a turn of the model",
        contents(user("Hi."), model("Well."), model(calling()), user(result())),
        ORDER,
        contents(user("Hi."), model("Well.", calling()), user(result())),
    ),
    Rule(
        "two turns of calls in a row",
        contents(user("Hi."), model(calling()), model(calling()), user(result())),
        ORDER,
        contents(*ROUND, model(calling()), user(result())),
    ),
    Rule("a result out of nowhere", contents(user("Hi."), user(result())), RESULT_ORDER, contents(*ROUND)),
    Rule(
        "a result after words of the model",
        contents(user("Hi."), model("Well."), user(result())),
        RESULT_ORDER,
        contents(*ROUND),
    ),
    Rule(
        "the model has the last word",
        contents(user("Hi."), model("Well")),
        "Requests ending with a model turn are not supported.",
        contents(user("Hi."), model("Well"), user("Go on.")),
    ),
    Rule(
        "the model has the last word, where it may",
        contents(user("Hi."), model("Well")),
        "Requests ending with a model turn are not supported.",
        contents(user("Hi."), model("Well")),
        legal_model="gemini-3-flash-preview",
    ),
    Rule(
        "a result that is a list",
        contents(user("Hi."), model(calling()), user(result(response=[1]))),
        "Proto field is not repeating, cannot start list.",
        contents(*ROUND),
    ),
    Rule(
        "a result that is a word",
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
        "an id that is not the call's",
        contents(user("Hi."), model(calling(id="a")), user(result(id="b"))),
        "functionResponse.id does not match functionCall.id",
        contents(user("Hi."), model(calling(id="a")), user(result(id="a"))),
    ),
    Rule(
        "an id for a call that has none",
        contents(user("Hi."), model(calling()), user(result(id="b"))),
        "functionResponse.id does not match functionCall.id",
        contents(user("Hi."), model(calling(id="a")), user(result())),
    ),
    Rule(
        "one id for two results",
        contents(user("Hi."), model(calling(id="a"), calling(id="b")), user(result(id="a"), result(id="a"))),
        "functionResponse.id does not match functionCall.id",
        contents(user("Hi."), model(calling(id="a"), calling(id="b")), user(result(id="b"), result(id="a"))),
    ),
    Rule(
        "a name that is not the call's",
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
        "a call without its signature",
        contents(user("Hi."), model(calling(signature=None)), user(result())),
        "Function call is missing a thought_signature in functionCall parts. This is required",
        contents(*ROUND),
    ),
    Rule(
        "a result of the server's own tool that it did not call",
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
        "a name of a parameter",
        with_tools(declared({"type": "OBJECT", "properties": {"a-b": {"type": "STRING"}}})),
        f"{PLACE}.properties[a-b]: Invalid parameter name.",
        with_tools(declared({"type": "OBJECT", "properties": {"a_b": {"type": "STRING"}}})),
    ),
    Rule(
        "too many words in the schemas of calls that are held to them",
        with_tools(declared(MANY_WORDS), **choice("ANY")),
        "The specified schema produces a constraint that has too many states for serving.",
        with_tools(declared(MANY_WORDS), **choice("AUTO")),
    ),
    Rule(
        "too many words in a JSON Schema, and none in the functions that are allowed",
        with_tools(tools("g", {"name": "f", "parametersJsonSchema": MANY_WORDS}), **choice("VALIDATED")),
        "too many states for serving",
        with_tools(tools("g", {"name": "f", "parametersJsonSchema": MANY_WORDS}), **choice("ANY", "g")),
    ),
    Rule(
        "a behavior outside of Live",
        with_tools(tools({"name": "f", "behavior": "NON_BLOCKING"})),
        "tools[0].function_declarations[0].behavior: behavior is only supported by",
        with_tools(tools({"name": "f", "behavior": "BEHAVIOR_UNSPECIFIED"})),
    ),
    Rule(
        "half a candidate",
        config(topK=1.5),
        "Invalid value at 'generation_config.top_k' (TYPE_INT32), 1.5",
        config(topK=40.0),
    ),
    Rule(
        "an instruction that says nothing",
        {**HI, "systemInstruction": {"parts": []}},
        "* GenerateContentRequest.system_instruction.parts: parts must not be empty.",
        {**HI, "systemInstruction": {"parts": [{"text": "Be brief."}]}},
    ),
    Rule(
        "an empty signature, which is none",
        contents(user("Hi."), model(calling(signature="")), user(result())),
        "Function call is missing a thought_signature in functionCall parts. This is required",
        contents(user("Hi."), model(calling(signature="")), user(result())),
        legal_model=OLD,
    ),
    Rule(
        "one call answered twice by its name",
        contents(user("Hi."), model(calling("a"), calling("b")), user(result("a"), result("a"))),
        "functionResponse.name does not match functionCall.name",
        contents(user("Hi."), model(calling("a"), calling("b")), user(result("b"), result("a"))),
    ),
    Rule(
        "one call answered by its id and by its name",
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
        "two calls of one id",
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
        "the name and place of a call without its signature",
        contents(user("Hi."), model(calling("g", signature=None)), user(result("g"))),
        "function call `default_api:g` , position 2.",
        contents(user("Hi."), model(calling("g")), user(result("g"))),
    ),
    Rule(
        "a later step without its signature",
        contents(*ROUND, model(calling(signature=None)), user(result())),
        "position 4",
        contents(*ROUND, model(calling()), user(result())),
    ),
    Rule(
        "a call without its signature in an earlier turn",
        contents(user("Hi."), model(calling(signature=None)), user(result())),
        "missing a thought_signature",
        contents(user("Hi."), model(calling(signature=None)), user(result()), model("Well."), user("Thanks.")),
    ),
    Rule(
        "a call without its signature before Gemini 3",
        contents(user("Hi."), model(calling(signature=None)), user(result())),
        "missing a thought_signature",
        contents(user("Hi."), model(calling(signature=None)), user(result())),
        legal_model=OLD,
    ),
    Rule(
        "a signature that is no base64",
        contents(user("Hi."), model(calling(signature="a")), user(result())),
        "Invalid value at 'contents[1].parts[0].thought_signature' (TYPE_BYTES), Base64 decoding failed",
        contents(*ROUND),
    ),
    # Caches, files, families
    Rule(
        "a cache beside tools",
        with_tools(tools("f"), cachedContent="cachedContents/x"),
        "CachedContent can not be used with GenerateContent request setting system_instruction, tools or tool_config.",
        with_tools(tools("f")),
    ),
    Rule(
        "a cache beside tools at Vertex",
        with_tools(tools("f"), cachedContent="projects/p/locations/l/cachedContents/1"),
        "Tool config, tools and system instruction should not be set in the request when using cached content.",
        with_tools(tools("f")),
        path=VERTEX,
    ),
    Rule(
        "a cache at Gemini 4",
        {**HI, "cachedContent": "cachedContents/x"},
        "CachedContent is not supported for models/gemini-4-argon",
        HI,
        model=FOUR,
    ),
    Rule(
        "a name that is none of a cache",
        {**HI, "cachedContent": "1234567890"},
        "Invalid CachedContent name: 1234567890.",
        HI,
    ),
    Rule(
        "files in results before Gemini 3",
        contents(user("Hi."), model(calling()), user(result(parts=[PNG]))),
        "`function_response.parts` is not supported for this model",
        contents(*ROUND),
        model=OLD,
    ),
    Rule(
        "files in results, named by the Developer API",
        contents(user("Hi."), model(calling()), user(result(parts=[PNG], response={"a": {"$ref": "x"}}))),
        "does not match to a display_name",
        contents(user("Hi."), model(calling()), user(result(parts=[PNG]))),
    ),
    Rule(
        "words among the files of a result",
        contents(user("Hi."), model(calling()), user(result(parts=[{"text": "x"}]))),
        UNKNOWN.format("text", "contents[2].parts[0].function_response.parts[0]"),
        contents(user("Hi."), model(calling()), user(result(parts=[PNG]))),
    ),
    Rule(
        "the least thinking at Gemini 4",
        config(thinkingConfig={"thinkingLevel": "MINIMAL"}),
        "Thinking level MINIMAL is not supported for this model.",
        config(thinkingConfig={"thinkingLevel": "LOW"}, temperature=0.5, topP=0.9, topK=3),
        model=FOUR,
    ),
    Rule(
        "a level of thinking before Gemini 3",
        config(thinkingConfig={"thinkingLevel": "LOW"}),
        "Thinking level is not supported for this model.",
        config(thinkingConfig={"thinkingBudget": 128}),
        model=OLD,
    ),
    Rule(
        "a level and a budget",
        config(thinkingConfig={"thinkingLevel": "LOW", "thinkingBudget": 1}),
        BOTH,
        config(thinkingConfig={"thinkingBudget": 1}),
    ),
    Rule(
        "thinking where the model does not",
        config(thinkingConfig={"thinkingBudget": 5}),
        "Thinking is not enabled for models/gemini-2.0-flash",
        config(thinkingConfig={"thinkingBudget": 0}),
        model=OLDER,
    ),
    Rule(
        "a temperature out of range",
        config(temperature=3),
        "temperature must be in the range [0.0, 2.0].",
        config(temperature=2),
    ),
    Rule(
        "a temperature out of range at Vertex",
        config(temperature=1000.0),
        "Unable to submit request because it has a temperature value of 1000 but the supported range is from 0 "
        "(inclusive) to 2.0001 (exclusive).",
        config(temperature=2),
        path=VERTEX,
    ),
    Rule(
        "a mime type that there is not",
        config(responseMimeType="text/html"),
        "allowed mimetypes are `text/plain`",
        config(responseMimeType="application/json"),
    ),
    Rule(
        "an answer's schema without items",
        config(responseMimeType="application/json", responseSchema={"type": "ARRAY"}),
        "generation_config.response_schema.items: missing field",
        config(responseMimeType="application/json", responseSchema={"type": "ARRAY", "items": {"type": "STRING"}}),
    ),
    Rule(
        "a system instruction where the model takes none",
        {**HI, "systemInstruction": user("Be brief.")},
        "Developer instruction is not enabled for models/gemma-3-27b-it",
        HI,
        model="gemma-3-27b-it",
    ),
    Rule(
        "what only Vertex has",
        {**HI, "modelArmorConfig": {}},
        'Unknown name "modelArmorConfig": Cannot find field.',
        {**HI, "labels": {"a": "b"}},
    ),
    Rule(
        "what only the Developer API has",
        with_tools([{"mcpServers": []}]),
        UNKNOWN.format("mcpServers", "tools[0]"),
        with_tools([{"enterpriseWebSearch": {}}]),
        path=VERTEX,
    ),
    Rule("a token that nobody gave", {**HI, "continuationToken": "abcd"}, "Invalid continuation token.", HI),
    Rule(
        "more than a model can read",
        contents(user("word " * 1_000_000)),
        "exceeds the maximum number of tokens allowed (1048576).",
        contents(user("word " * 100_000)),
    ),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_what_breaks_a_rule_is_refused_in_the_words_of_the_server(rule: Rule, echo: LocalGemini) -> None:
    reply = ask(echo.url, rule.broken, rule.model, rule.path)
    assert reply.status == 400, reply
    assert reply.json["error"]["status"] == "INVALID_ARGUMENT"
    assert rule.words in reply.words


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_the_nearest_legal_request_passes(rule: Rule, echo: LocalGemini) -> None:
    reply = ask(echo.url, rule.legal, rule.legal_model or rule.model, rule.path)
    assert reply.status == 200, reply


def test_what_older_families_let_through_is_let_through(echo: LocalGemini) -> None:
    split = contents(user("Hi."), model(calling(), calling("g")), user(result()), user(result("g")))
    assert ask(echo.url, split, OLD).status == 200
    unanswered = contents(user("Hi."), model(calling()), user("And?"))
    assert ask(echo.url, unanswered, OLDER).status == 200
    assert ask(echo.url, unanswered, OLD).status == 400
    mixed = contents(user("Hi."), model(calling(id="a")), user(result(id="b")))
    assert ask(echo.url, mixed, "gemini-3.5-flash").status == 200


def test_what_a_server_ran_itself_needs_no_other_answer(echo: LocalGemini) -> None:
    ran = contents(user("Hi."), model(calling(), result(), "Done."), user("And?"))
    assert ask(echo.url, ran, OLD).status == 200
    in_chunks = contents(user("Hi."), model(calling()), model(result()), model("Done."), user("And?"))
    assert ask(echo.url, in_chunks).status == 200


def test_every_unknown_field_is_named_at_once(echo: LocalGemini) -> None:
    reply = ask(echo.url, schema(type="STRING", const=1, examples=[2]))
    violations = reply.json["error"]["details"][0]["fieldViolations"]
    assert [one["field"] for one in violations] == [f"{PLACE}.properties[0].value"] * 2
    assert reply.words == "\n".join(one["description"] for one in violations)


def test_json_that_is_none_is_refused(echo: LocalGemini) -> None:
    for body in (b"{", b"[]", b"\xff", b'{"contents": [{"parts": [{"text": "\xff"}]}]}', b"[" * 100_000):
        reply = ask(echo.url, body)
        assert (reply.status, reply.json["error"]["status"]) == (400, "INVALID_ARGUMENT"), body[:20]


@pytest.mark.parametrize("depth", [20, 300, 400, 600, 900, 950, 1_500, 5_000])
def test_schemas_that_are_nested_too_deep_are_refused(depth: int, echo: LocalGemini) -> None:
    deep = '{"type":"ARRAY","items":' * depth + '{"type":"STRING"}' + "}" * depth
    body = json.dumps(with_tools(declared({"type": "OBJECT", "properties": {"a": "DEEP"}}))).replace('"DEEP"', deep)
    reply = ask(echo.url, body.encode())
    assert reply.status in ((200,) if depth == 20 else (200, 400) if depth < 600 else (400,)), reply
    nested = '{"a":' * depth + "1" + "}" * depth
    filled = json.dumps(contents(user("Hi."), model(calling()), user(result(parts=[PNG], response={"a": "DEEP"}))))
    assert ask(echo.url, filled.replace('"DEEP"', nested).encode()).status in (200, 400)


@pytest.mark.parametrize("name", ["gemini-nonexistent", "gemini-5.0-flash", "gpt-4", "gemini-3.9-flash", "x"])
def test_a_model_that_there_is_not_is_not_found(name: str, echo: LocalGemini) -> None:
    reply = ask(echo.url, HI, name)
    assert (reply.status, reply.json["error"]["status"]) == (404, "NOT_FOUND")
    assert reply.words.startswith(f"models/{name} is not found for API version v1beta, or is not supported for")
    reply = ask(echo.url, HI, name, VERTEX)
    assert (reply.status, "Publisher Model `projects/p/locations/us-central1/publishers/google" in reply.words) == (
        404,
        True,
    )


def test_names_of_the_latest_models_are_only_in_the_beta(echo: LocalGemini) -> None:
    assert ask(echo.url, HI, "gemini-flash-latest").status == 200
    assert ask(echo.url, HI, "gemini-flash-latest", DEVELOPER.replace("v1beta", "v1")).status == 404


def test_a_wrong_key_is_refused_as_the_real_server_does_it(echo: LocalGemini) -> None:
    path = DEVELOPER.format(NEW, "generateContent")
    for key in ("", "invalid"):
        reply = send(echo.url, "POST", path, HI, {"x-goog-api-key": key})
        assert (reply.status, reply.json["error"]["status"]) == (400, "INVALID_ARGUMENT")
        assert reply.words == "API key not valid. Please pass a valid API key."
        assert reply.json["error"]["details"][0]["reason"] == "API_KEY_INVALID"
    assert send(echo.url, "POST", path + "?key=invalid", HI, {}).status == 400
    assert send(echo.url, "POST", path + "?key=k", HI, {}).status == 200
    assert send(echo.url, "POST", path, HI, {"authorization": "Bearer t"}).status == 200
    reply = send(echo.url, "POST", path, HI, {})
    assert (reply.status, reply.json["error"]["status"]) == (403, "PERMISSION_DENIED")
    path = VERTEX.format(NEW, "generateContent")
    assert send(echo.url, "POST", path, HI, {}).json["error"]["status"] == "UNAUTHENTICATED"
    assert send(echo.url, "POST", path, HI, {"authorization": "Bearer invalid"}).status == 401


def test_with_a_key_of_its_own_a_server_takes_no_other() -> None:
    with LocalGemini(api_key="sesame") as server:
        path = DEVELOPER.format(NEW, "generateContent")
        assert send(server.url, "POST", path, HI, {"x-goog-api-key": "sesame"}).status == 200
        assert send(server.url, "POST", path, HI, {"x-goog-api-key": "other"}).status == 400


def test_with_models_of_its_own_a_server_has_no_others() -> None:
    with LocalGemini(models=["models/mine"]) as server:
        assert ask(server.url, HI, "mine").status == 200
        assert ask(server.url, HI, NEW).status == 404
        assert [one["name"] for one in send(server.url, "GET", "/v1beta/models").json["models"]] == ["models/mine"]
