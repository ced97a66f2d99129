from dataclasses import dataclass
from typing import Any

import pydantic
import pytest

from midspan._types.specs import ToolChoice
from midspan.errors import ConfigError, InvalidRequestError, SchemaError
from midspan.gemini import (
    Client,
    CodeExecution,
    Content,
    FunctionDeclaration,
    GoogleSearch,
    McpServer,
    Part,
    Schema,
    Tool,
    UrlContext,
)
from tests.gemini.recorder import Recorder


def answer(*parts: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, "finishReason": "STOP"}]}


def add(a_b: int) -> int:
    """Adds."""
    return a_b


class Place(pydantic.BaseModel):
    city: str
    inner: "Place | None" = None


SEARCHED = [
    {"toolCall": {"id": "s1", "toolType": "GOOGLE_SEARCH_WEB", "args": {"q": "x"}}, "thoughtSignature": "a"},
    {"toolResponse": {"id": "s1", "toolType": "GOOGLE_SEARCH_WEB", "response": {"r_s": [1]}}},
    {"functionCall": {"id": "7", "name": "add", "args": {"a_b": 1}}, "thoughtSignature": "b"},
]


@pytest.mark.requirement("S0-18")
def test_functions_beside_built_in_tools_are_called_and_server_side_parts_go_back(
    client: Client, server: Recorder
) -> None:
    server.answer(answer(*SEARCHED))
    server.answer(answer({"text": "done"}))
    tools = [GoogleSearch(), CodeExecution(), add]
    contents: list[Any] = [Content.text("x")]
    response = client.generate_content(contents, tools=tools)
    assert server.last.body["toolConfig"] == {
        "includeServerSideToolInvocations": True,
        "functionCallingConfig": {"mode": "VALIDATED"},
    }
    assert [call.name for call in response.function_calls] == ["add"]  # the server's own is none of ours
    results = [Part.from_function_response(call.name, {"sum": 1}, id=call.id) for call in response.function_calls]
    final = client.generate_content([*contents, response.content, Content(role="user", parts=results)], tools=tools)
    assert final.text == "done"
    assert server.last.body["contents"][1] == {"role": "model", "parts": SEARCHED}
    assert server.last.body["tools"] == server.seen[0].body["tools"]


@pytest.mark.parametrize(
    "tools", [[add, GoogleSearch()], [Tool(google_search=GoogleSearch()), add], [{"urlContext": {}}, add]]
)
def test_models_that_take_either_functions_or_built_in_tools_are_not_sent_both(client: Client, tools: Any) -> None:
    with pytest.raises(ConfigError, match="functions or built-in tools, not both; use a Gemini 3 model"):
        client.generate_content("x", model="gemini-2.5-pro", tools=tools)


def test_server_side_calls_are_not_requested_from_vertex(server: Recorder) -> None:
    server.answer(answer({"text": "x"}))
    with Client(vertex=True, project="p", token=lambda: "t", base_url=server.url) as client:
        client.generate_content("x", tools=[add, GoogleSearch()])
    assert "toolConfig" not in server.last.body


def test_a_choice_of_the_callers_stands_beside_built_in_tools(client: Client, server: Recorder) -> None:
    server.answer(answer({"text": "x"}))
    client.generate_content("x", tools=[add, UrlContext()], tool_choice=ToolChoice("required", ("add",)))
    assert server.last.body["toolConfig"] == {
        "includeServerSideToolInvocations": True,
        "functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["add"]},
    }


@pytest.mark.parametrize("choice", ["bogus", {"type": "bogus"}, {"type": "any", "names": [5]}, 5])
def test_unknown_tool_choice_is_an_error(client: Client, choice: Any) -> None:
    with pytest.raises(ConfigError, match=r"tool.choice"):
        client.generate_content("x", tools=[add], tool_choice=choice)


def test_functions_may_stand_in_a_tool_in_any_form(client: Client, server: Recorder) -> None:
    server.answer(answer({"text": "x"}))
    declared = FunctionDeclaration(name="f", description="F.")
    for tool in (
        Tool(function_declarations=[add, declared]),  # type: ignore[list-item]
        {"function_declarations": [add, {"name": "f", "description": "F."}]},
        {"functionDeclarations": (add, declared)},
    ):
        client.generate_content("x", tools=tool)
        [made] = server.last.body["tools"]
        assert [one["name"] for one in made["functionDeclarations"]] == ["add", "f"]


def test_parameters_may_be_json_schema(client: Client, server: Recorder) -> None:
    server.answer(answer({"text": "x"}))
    named = {"name": "f", "description": "F."}
    schema = Place.model_json_schema()
    client.generate_content("x", tools=[{**named, "parameters": schema}])
    assert server.last.body["tools"][0]["functionDeclarations"] == [{**named, "parametersJsonSchema": schema}]
    own = {"type": "object", "properties": {"a_b": {"type": "string"}}}
    client.generate_content("x", tools=[{**named, "parameters": own}])
    assert server.last.body["tools"][0]["functionDeclarations"] == [{**named, "parameters": own}]
    client.generate_content("x", tools=[{**named, "parameters": Schema(type="OBJECT"), "response": own}])
    assert server.last.body["tools"][0]["functionDeclarations"] == [
        {**named, "parameters": {"type": "OBJECT"}, "response": own}
    ]


def test_every_kind_of_built_in_tool_can_be_given_alone(client: Client, server: Recorder) -> None:
    server.answer(answer({"text": "x"}))
    client.generate_content("x", tools=McpServer(name="m", streamable_http_transport={"url": "u"}))  # type: ignore[arg-type]
    assert server.last.body["tools"] == [{"mcpServers": [{"name": "m", "streamableHttpTransport": {"url": "u"}}]}]
    client.generate_content("x", tools={"googleSearchRetrieval": {"dynamicRetrievalConfig": {"mode": "DYNAMIC"}}})
    assert server.last.body["tools"] == [{"googleSearchRetrieval": {"dynamicRetrievalConfig": {"mode": "DYNAMIC"}}}]
    with pytest.raises(ConfigError, match=r"tools\[0\].google_search: search_types: Expected `object"):
        client.generate_content("x", tools=GoogleSearch(search_types=5))  # type: ignore[arg-type]


def test_callable_that_cannot_be_hashed_is_declared(client: Client, server: Recorder) -> None:
    @dataclass(frozen=True)
    class Adder:
        summands: list[int]

        def __call__(self, number: int) -> int:
            """Adds."""
            return number + sum(self.summands)

    server.answer(answer({"text": "x"}))
    client.generate_content("x", tools=[Adder([1])])
    assert server.last.body["tools"][0]["functionDeclarations"][0]["name"] == "Adder"


@pytest.mark.requirement("S2-21")
def test_a_tool_as_openai_writes_it_is_declared(client: Client, server: Recorder) -> None:
    server.answer(answer({"text": "x"}))
    schema = {"type": "object", "properties": {"a_b": {"type": "integer"}}, "required": ["a_b"]}
    tool = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": schema}}
    for tools in (tool, [tool], {"functionDeclarations": [tool]}):
        client.generate_content("x", tools=tools)
        [declared] = server.last.body["tools"][0]["functionDeclarations"]
        assert (declared["name"], declared["description"]) == ("add", "Adds.")
        assert declared["parametersJsonSchema"]["properties"] == schema["properties"]
        assert declared["parametersJsonSchema"]["required"] == ["a_b"]


@pytest.mark.parametrize("choice", [{"type": "required"}, "optional"])
def test_required_without_a_tool_means_the_default_choice(client: Client, server: Recorder, choice: Any) -> None:
    server.answer(answer({"text": "x"}))
    client.generate_content("x", tools=[add], tool_choice=choice)
    assert server.last.body["toolConfig"] == {"functionCallingConfig": {"mode": "AUTO"}}


@pytest.mark.parametrize(
    ("config", "sent"),
    [
        ({"functionCallingConfig": {"mode": "AUTO"}}, {"mode": "AUTO"}),
        ({"function_calling_config": {"mode": "NONE"}}, {"mode": "NONE"}),
        ({"retrievalConfig": {"languageCode": "de"}}, None),
    ],
)
def test_mode_in_the_tool_config_of_the_caller_is_not_changed(
    client: Client, server: Recorder, config: Any, sent: Any
) -> None:
    server.answer(answer({"text": "x"}))
    client.generate_content("x", tools=[add, GoogleSearch()], tool_config=config)
    assert server.last.body["toolConfig"].get("functionCallingConfig") == sent
    assert server.last.body["toolConfig"]["includeServerSideToolInvocations"] is True
    explicit = {**config, "includeServerSideToolInvocations": False}
    client.generate_content("x", tools=[add, GoogleSearch()], tool_config=explicit)
    assert server.last.body["toolConfig"]["includeServerSideToolInvocations"] is False


TOO_LARGE = "The specified schema produces a constraint that has too many states for serving."
REJECTED = {"error": {"code": 400, "message": TOO_LARGE, "status": "INVALID_ARGUMENT"}}


@pytest.mark.parametrize("request_", [{"tool_choice": "required"}, {"tool_choice": "validated"}])
def test_tools_that_the_server_cannot_validate_are_an_error(client: Client, server: Recorder, request_: Any) -> None:
    server.answer(REJECTED, status=400)
    with pytest.raises(InvalidRequestError):
        client.generate_content("x", tools=[add], **request_)
    assert len(server.seen) == 1


@pytest.mark.parametrize("schema", [True, False, 5])
def test_a_declaration_whose_schema_is_not_an_object_is_an_error(client: Client, schema: Any) -> None:
    declaration = {"name": "f", "description": "d", "parameters": schema}
    with pytest.raises(SchemaError, match="parameters: "):
        client.generate_content("x", tools=[{"function_declarations": [declaration]}])
