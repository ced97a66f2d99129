"""A request of the Gemini client is the same JSON as that of the official SDK, apart from the rules listed here."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from midspan.gemini import (
    Client,
    CodeExecution,
    ComputerUse,
    Content,
    FileSearch,
    FunctionDeclaration,
    GenerationConfig,
    GoogleMaps,
    GoogleSearch,
    Part,
    Schema,
    Tool,
    UrlContext,
)
from tests.gemini.recorder import Recorder, recorder

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the SDK's own dependencies
    from google import genai
    from google.genai import types

RULES = {
    "casing": "the SDK writes parameters_json_schema and a few others in snake_case; the API reads both",
    "role": "the SDK gives the system instruction a role, which the API does not look at",
    "empty": "the SDK sends generationConfig or toolConfig as {} where nothing is set",
    "alphabet": "the SDK writes bytes in the URL-safe alphabet of base64; the API reads both",
    "mixed tools": "the SDK leaves out includeServerSideToolInvocations and VALIDATED, which the API demands",
}


def casing(value: Any, inside: str = "") -> Any:
    """Names of the API's own fields in camelCase."""
    if isinstance(value, list):
        return [casing(item, inside) for item in value]
    if not isinstance(value, dict):
        return value
    if inside in ("args", "response", "properties", "parametersJsonSchema", "responseJsonSchema", "labels"):
        return {name: casing(item) if inside == "properties" else item for name, item in value.items()}
    return {(camel := _camel(name)): casing(item, camel) for name, item in value.items()}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def same(body: dict[str, Any]) -> dict[str, Any]:
    """A body with everything brought to one form that a rule allows to differ."""
    made = casing(body)
    made.get("systemInstruction", {}).pop("role", None)
    for name in ("generationConfig", "toolConfig"):
        if made.get(name) == {}:
            del made[name]
    _standard_alphabet(made)
    return made


def _standard_alphabet(value: Any) -> None:
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _standard_alphabet(item)
    if isinstance(value, dict):
        for name in ("data", "thoughtSignature"):
            if isinstance(value.get(name), str):
                value[name] = value[name].replace("-", "+").replace("_", "/")


SCHEMA = {"type": "object", "properties": {"my_city": {"type": "string"}}, "required": ["my_city"]}
THEIR_FUNCTION = types.FunctionDeclaration(name="f", description="F.", parameters_json_schema=SCHEMA)
OUR_FUNCTION = FunctionDeclaration(name="f", description="F.", parameters_json_schema=SCHEMA)
THEIR_TYPED = types.FunctionDeclaration(
    name="g",
    description="G.",
    parameters=types.Schema(
        type="OBJECT",
        properties={"a_b": types.Schema(type="ARRAY", items=types.Schema(type="STRING", enum=["x", "y"]), min_items=1)},
        required=["a_b"],
    ),
)
OUR_TYPED = FunctionDeclaration(
    name="g",
    description="G.",
    parameters=Schema(
        type="OBJECT",
        properties={"a_b": Schema(type="ARRAY", items=Schema(type="STRING", enum=["x", "y"]), min_items=1)},
        required=["a_b"],
    ),
)

Config = types.GenerateContentConfig
Case = tuple[str, Any, dict[str, Any], Any, dict[str, Any]]


def with_config(name: str, ours: dict[str, Any], **theirs: Any) -> Case:
    return name, "hi", theirs, "hi", ours


def alike(name: str, **settings: Any) -> Case:
    return with_config(name, settings, **settings)


def alike_config(name: str, **settings: Any) -> Case:
    return with_config(name, {"generation_config": settings}, **settings)


CASES: list[Case] = [
    ("text", "hi", {}, "hi", {}),
    ("two texts", ["a", "b"], {}, ["a", "b"], {}),
    (
        "history",
        [types.Content(role="user", parts=[types.Part(text="a")]), types.Content(role="model", parts=[types.Part(text="b")]), types.Content(role="user", parts=[types.Part(text="c")])],
        {},
        [Content.text("a"), Content.text("b", "model"), Content.text("c")],
        {},
    ),
    (
        "image",
        ["see", types.Part.from_bytes(data=b"\xfb\xff\x00", mime_type="image/png")],
        {},
        ["see", Part.from_bytes(b"\xfb\xff\x00", "image/png")],
        {},
    ),
    ("file", [types.Part.from_uri(file_uri="gs://b/x", mime_type="video/mp4")], {}, [Part.from_uri("gs://b/x", "video/mp4")], {}),
    (
        "call and response",
        [
            types.Content(role="user", parts=[types.Part(text="a")]),
            types.Content(role="model", parts=[types.Part(function_call=types.FunctionCall(id="1", name="f", args={"a_b": 1}), thought_signature=b"\xfb\xff")]),
            types.Content(role="user", parts=[types.Part(function_response=types.FunctionResponse(id="1", name="f", response={"r_s": 2}))]),
        ],
        {},
        [
            Content.text("a"),
            {"role": "model", "parts": [{"functionCall": {"id": "1", "name": "f", "args": {"a_b": 1}}, "thoughtSignature": "+/8="}]},
            Content(role="user", parts=[Part.from_function_response("f", {"r_s": 2}, id="1")]),
        ],
        {},
    ),
    (
        "code",
        [types.Content(role="model", parts=[types.Part(executable_code=types.ExecutableCode(code="1", language="PYTHON"))]), types.Content(role="user", parts=[types.Part(text="go on")])],
        {},
        [{"role": "model", "parts": [{"executable_code": {"code": "1", "language": "PYTHON"}}]}, Content.text("go on")],
        {},
    ),
    ("video", [types.Part(file_data=types.FileData(file_uri="u", mime_type="video/mp4"), video_metadata=types.VideoMetadata(start_offset="1s", fps=2.0))], {}, [{"file_data": {"file_uri": "u", "mime_type": "video/mp4"}, "video_metadata": {"start_offset": "1s", "fps": 2.0}}], {}),
    alike("system", system_instruction="Be brief."),
    alike("temperature", temperature=0.5),
    alike("zero temperature", temperature=0.0),
    alike("top p", top_p=0.5),
    alike("top k", top_k=7),
    alike_config("candidates", candidate_count=2),
    alike("max tokens", max_output_tokens=5),
    alike("stop", stop_sequences=["a", "b"]),
    alike("seed", seed=7),
    alike_config("penalties", presence_penalty=0.1, frequency_penalty=0.2),
    alike_config("log probabilities", response_logprobs=True, logprobs=3),
    alike("json", response_mime_type="application/json"),
    alike("json schema", response_mime_type="application/json", response_json_schema=SCHEMA),
    with_config("response schema", {"response_mime_type": "application/json", "response_schema": Schema(type="OBJECT", properties={"a_b": Schema(type="INTEGER")})}, response_mime_type="application/json", response_schema=types.Schema(type="OBJECT", properties={"a_b": types.Schema(type="INTEGER")})),
    alike_config("modalities", response_modalities=["TEXT", "IMAGE"]),
    alike_config("media resolution", media_resolution="MEDIA_RESOLUTION_LOW"),
    with_config("thinking level", {"thinking_config": {"thinking_level": "LOW", "include_thoughts": True}}, thinking_config=types.ThinkingConfig(thinking_level="LOW", include_thoughts=True)),
    with_config("thinking budget", {"thinking_config": {"thinking_budget": 0}}, thinking_config=types.ThinkingConfig(thinking_budget=0)),
    with_config("speech", {"generation_config": {"speech_config": {"voiceConfig": {"prebuiltVoiceConfig": {"voiceName": "Kore"}}}, "response_modalities": ["AUDIO"]}}, response_modalities=["AUDIO"], speech_config=types.SpeechConfig(voice_config=types.VoiceConfig(prebuilt_voice_config=types.PrebuiltVoiceConfig(voice_name="Kore")))),
    with_config("safety", {"safety_settings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}]}, safety_settings=[types.SafetySetting(category="HARM_CATEGORY_HARASSMENT", threshold="OFF")]),
    with_config("cached content", {"cached_content": "cachedContents/1"}, cached_content="cachedContents/1"),
    with_config("generation config", {"generation_config": GenerationConfig(temperature=1, top_k=3)}, temperature=1, top_k=3),
    with_config("function", {"tools": [OUR_FUNCTION]}, tools=[types.Tool(function_declarations=[THEIR_FUNCTION])]),
    with_config("typed function", {"tools": [OUR_TYPED]}, tools=[types.Tool(function_declarations=[THEIR_TYPED])]),
    with_config("functions in one tool", {"tools": [Tool(function_declarations=[OUR_FUNCTION, OUR_TYPED])]}, tools=[types.Tool(function_declarations=[THEIR_FUNCTION, THEIR_TYPED])]),
    with_config("functions in two tools", {"tools": [OUR_FUNCTION, OUR_TYPED]}, tools=[types.Tool(function_declarations=[THEIR_FUNCTION]), types.Tool(function_declarations=[THEIR_TYPED])]),
    with_config("function without parameters", {"tools": [FunctionDeclaration(name="n", description="N.")]}, tools=[types.Tool(function_declarations=[types.FunctionDeclaration(name="n", description="N.")])]),
    with_config("mode any", {"tools": [OUR_FUNCTION], "tool_choice": {"type": "required", "tool": "f"}}, tools=[types.Tool(function_declarations=[THEIR_FUNCTION])], tool_config=types.ToolConfig(function_calling_config=types.FunctionCallingConfig(mode="ANY", allowed_function_names=["f"]))),
    with_config("mode none", {"tools": [OUR_FUNCTION], "tool_choice": "none"}, tools=[types.Tool(function_declarations=[THEIR_FUNCTION])], tool_config=types.ToolConfig(function_calling_config=types.FunctionCallingConfig(mode="NONE"))),
    with_config("mode validated", {"tools": [OUR_FUNCTION], "tool_config": {"function_calling_config": {"mode": "VALIDATED"}}}, tools=[types.Tool(function_declarations=[THEIR_FUNCTION])], tool_config=types.ToolConfig(function_calling_config=types.FunctionCallingConfig(mode="VALIDATED"))),
    with_config("search", {"tools": [GoogleSearch()]}, tools=[types.Tool(google_search=types.GoogleSearch())]),
    with_config("url context", {"tools": [UrlContext()]}, tools=[types.Tool(url_context=types.UrlContext())]),
    with_config("code execution", {"tools": [CodeExecution()]}, tools=[types.Tool(code_execution=types.ToolCodeExecution())]),
    with_config("maps", {"tools": [GoogleMaps()], "tool_config": {"retrieval_config": {"lat_lng": {"latitude": 1.0, "longitude": 2.0}}}}, tools=[types.Tool(google_maps=types.GoogleMaps())], tool_config=types.ToolConfig(retrieval_config=types.RetrievalConfig(lat_lng=types.LatLng(latitude=1.0, longitude=2.0)))),
    with_config("file search", {"tools": [FileSearch(file_search_store_names=["s"], top_k=3)]}, tools=[types.Tool(file_search=types.FileSearch(file_search_store_names=["s"], top_k=3))]),
    with_config("computer use", {"tools": [ComputerUse(environment="ENVIRONMENT_BROWSER", excluded_predefined_functions=["x"])]}, tools=[types.Tool(computer_use=types.ComputerUse(environment="ENVIRONMENT_BROWSER", excluded_predefined_functions=["x"]))]),
    with_config("two built-in tools", {"tools": [GoogleSearch(), UrlContext()]}, tools=[types.Tool(google_search=types.GoogleSearch()), types.Tool(url_context=types.UrlContext())]),
]  # fmt: skip


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Recorder, genai.Client, Client]]:
    with recorder() as record, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        record.answer(
            {"candidates": [{"content": {"role": "model", "parts": [{"text": "x"}]}, "finishReason": "STOP"}]}
        )
        theirs = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=record.url, api_version="v1beta"))
        with Client("gemini-3.8-flash", api_key="k", base_url=record.url) as ours:
            yield record, theirs, ours
        theirs.close()


@pytest.mark.requirement("S0-11")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "their_contents", "their_config", "our_contents", "our_request"), CASES, ids=[case[0] for case in CASES]
)
def test_a_request_is_the_same_as_the_official_sdk_makes_it(
    servers: tuple[Recorder, genai.Client, Client],
    name: str,
    their_contents: Any,
    their_config: dict[str, Any],
    our_contents: Any,
    our_request: dict[str, Any],
) -> None:
    record, theirs, ours = servers
    theirs.models.generate_content(
        model="gemini-3.8-flash", contents=their_contents, config=Config(**their_config) if their_config else None
    )
    expected = record.last
    ours.generate_content(our_contents, **our_request)
    assert record.last.path == expected.path
    assert same(record.last.body) == same(expected.body)


def test_there_are_enough_kinds_of_request() -> None:
    assert len(CASES) >= 40


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", ["count", "stream", "cache"])
def test_other_calls_are_the_same_too(servers: tuple[Recorder, genai.Client, Client], call: str) -> None:
    record, theirs, ours = servers
    makes: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "count": (
            lambda: theirs.models.count_tokens(model="gemini-3.8-flash", contents="hi"),
            lambda: ours.count_tokens("hi"),
        ),
        "stream": (
            lambda: list(theirs.models.generate_content_stream(model="gemini-3.8-flash", contents="hi")),
            lambda: list(ours.stream_generate_content("hi")),
        ),
        "cache": (
            lambda: theirs.caches.create(
                model="gemini-3.8-flash",
                config=types.CreateCachedContentConfig(
                    contents=["hi"], system_instruction="s", ttl="300s", display_name="d"
                ),
            ),
            lambda: ours.caches.create("hi", system_instruction="s", ttl_seconds=300, display_name="d"),
        ),
    }
    makes[call][0]()
    expected = record.last
    makes[call][1]()
    assert record.last.path == expected.path
    assert same(record.last.body) == same(expected.body)
