"""The server that the official conformance suite of MCP tests: python server.py [PORT]

It prints its address. The suite expects tools, prompts and resources of certain names. The tools are ordinary
functions. Midspan offers neither prompts, resources and completions, nor sampling and the roots of the client: they are
added with the SDK of the protocol, as any user could.
"""

import asyncio
import base64
import sys
from socket import create_server
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server import ServerRequestContext
from mcp.server.subscriptions import PromptsListChanged
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from starlette.applications import Starlette
from starlette.routing import Route

from midspan.errors import ToolError
from midspan.messages import Blob, Resource, Text
from midspan.tools import RunContext, Toolbox, mcp_app, mcp_server, tool, tool_from_spec

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
WAV = b"RIFF$\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x80\x3e\0\0\x02\0\x10\0data\0\0\0\0"

toolbox = Toolbox()


@toolbox.register
def test_simple_text() -> str:
    """Return a text."""
    return "This is a simple text response for testing."


@toolbox.register
def test_image_content() -> Blob:
    """Return an image."""
    return Blob.of(PNG, "image/png")


@toolbox.register
def test_audio_content() -> Blob:
    """Return a sound."""
    return Blob.of(WAV, "audio/wav")


@toolbox.register
def test_embedded_resource() -> Resource:
    """Return a resource with its content."""
    return Resource("test://embedded-resource", media_type="text/plain", text="This is an embedded resource content.")


@toolbox.register
def test_multiple_content_types() -> list[Text | Blob | Resource]:
    """Return a text, an image and a resource."""
    data = '{"test":"data","value":123}'
    return [
        Text("Multiple content types test:"),
        Blob.of(PNG, "image/png"),
        Resource("test://mixed-content-resource", media_type="application/json", text=data),
    ]


@toolbox.register
def test_error_handling() -> str:
    """Fail."""
    raise ToolError("This tool intentionally returns an error for testing")


@toolbox.register
async def test_tool_with_progress(context: RunContext[None]) -> str:
    """Report progress."""
    for fraction in (0.0, 0.5, 1.0):
        context.progress(fraction)
        await asyncio.sleep(0.05)
    return "done"


@toolbox.register
async def test_tool_with_logging(context: RunContext[None]) -> str:
    """Log three messages."""
    for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        context.log(message)
        await asyncio.sleep(0.05)
    return "logged"


@toolbox.register
def test_logging_tool(context: RunContext[None]) -> str:
    """Log a message."""
    context.log("a message")
    return "logged"


def _form(title: str, field: str, kind: str = "string") -> dict[str, Any]:
    return {"title": title, "type": "object", "properties": {field: {"type": kind}}, "required": [field]}


@toolbox.register
async def test_streaming_elicitation(context: RunContext[None]) -> str:
    """Report progress, then ask."""
    context.progress(0.5)
    return str(await context.ask_user("Go on?", _form("go_on", "ok", "boolean")))


@toolbox.register
async def test_input_required_result_elicitation(context: RunContext[None]) -> str:
    """Ask for a name."""
    answer = await context.ask_user("What is your name?", _form("user_name", "name"))
    return f"Hello, {answer['name']}!"


@toolbox.register
async def test_input_required_result_request_state(context: RunContext[None]) -> str:
    """Ask for a confirmation; only a valid state leads back here."""
    await context.ask_user("Please confirm", _form("confirm", "ok", "boolean"))
    return "state-ok"


@toolbox.register
async def test_input_required_result_tampered_state(context: RunContext[None]) -> str:
    """Ask for a confirmation."""
    await context.ask_user("Please confirm", _form("confirm", "ok", "boolean"))
    return "confirmed"


@toolbox.register
async def test_input_required_result_multi_round(context: RunContext[None]) -> str:
    """Ask one question after the other."""
    name = await context.ask_user("Step 1: What is your name?", _form("step1", "name"))
    color = await context.ask_user("Step 2: What is your favorite color?", _form("step2", "color"))
    return f"{name['name']} likes {color['color']}"


@toolbox.register
async def test_elicitation(message: str, context: RunContext[None]) -> str:
    """Ask for two texts."""
    fields = {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    }
    form = {"type": "object", "properties": fields, "required": ["username", "email"]}
    return f"User response: action=accept, content={await context.ask_user(message, form)}"


@toolbox.register
async def test_elicitation_sep1034_defaults(context: RunContext[None]) -> str:
    """Ask with defaults."""
    fields = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    answer = await context.ask_user("Please check the values", {"type": "object", "properties": fields})
    return f"Elicitation completed: action=accept, content={answer}"


@toolbox.register
async def test_elicitation_sep1330_enums(context: RunContext[None]) -> str:
    """Ask for choices."""
    values = ["option1", "option2", "option3"]
    titled = [{"const": f"value{n}", "title": f"{name} Option"} for n, name in ((1, "First"), (2, "Second"))]
    fields = {
        "untitledSingle": {"type": "string", "enum": values},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": values}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    answer = await context.ask_user("Please choose", {"type": "object", "properties": fields})
    return f"Elicitation completed: action=accept, content={answer}"


@toolbox.register
def test_trigger_tool_change() -> str:
    """Add a tool."""
    name = f"extra_{len(toolbox.list_tools())}"
    toolbox.register(tool(lambda: "extra", name=name, description="An extra tool."))
    return "changed"


JSON_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
toolbox.register(
    tool_from_spec(
        {
            "name": "json_schema_2020_12_tool",
            "description": "Tool with JSON Schema 2020-12 features",
            "inputSchema": JSON_SCHEMA,
        },
        lambda arguments: str(arguments),
    )
)
toolbox.register(
    tool_from_spec(
        {
            "name": "test_x_mcp_header",
            "description": "Takes a value that clients also send as a header.",
            "inputSchema": {
                "type": "object",
                "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
            },
        },
        lambda arguments: str(arguments),
    )
)

Request = ServerRequestContext[Any, Any]


def _sampling(question: str, max_tokens: int) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=types.TextContent(text=question))
    return types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(messages=[message], max_tokens=max_tokens)
    )


def _question(message: str, field: str) -> types.ElicitRequest:
    schema = {"type": "object", "properties": {field: {"type": "string"}}, "required": [field]}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


INPUTS: dict[str, dict[str, types.InputRequest]] = {
    "test_input_required_result_sampling": {"capital_question": _sampling("What is the capital of France?", 100)},
    "test_input_required_result_list_roots": {"client_roots": types.ListRootsRequest()},
    "test_input_required_result_multiple_inputs": {
        "user_name": _question("What is your name?", "name"),
        "greeting": _sampling("Generate a greeting", 50),
        "client_roots": types.ListRootsRequest(),
    },
    "test_input_required_result_capabilities": {
        "user_name": _question("What is your name?", "name"),
        "greeting": _sampling("Generate a greeting", 50),
    },
}
"""What these tools need from the client."""
CAPABILITIES = {
    "elicitation/create": types.ClientCapabilities(elicitation=types.ElicitationCapability()),
    "sampling/createMessage": types.ClientCapabilities(sampling=types.SamplingCapability()),
    "roots/list": types.ClientCapabilities(roots=types.RootsCapability()),
}


def _by_sdk() -> str:
    raise AssertionError("the handler below answers")


for name in (*INPUTS, "test_sampling", "test_missing_capability", "test_trigger_prompt_change"):
    toolbox.register(tool(_by_sdk, name=name, description="A tool that needs more than Midspan offers to tools."))

server = mcp_server(toolbox.source(), name="conformance")
call_tool = server.get_request_handler("tools/call")
assert call_tool is not None


async def handle_call(request: Request, params: types.CallToolRequestParams) -> Any:
    if params.name == "test_missing_capability":
        data = types.MissingRequiredClientCapabilityErrorData(
            required_capabilities=types.ClientCapabilities(sampling=types.SamplingCapability())
        )
        raise MCPError(
            types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            "this tool needs sampling",
            data.model_dump(by_alias=True, exclude_none=True),
        )
    if params.name == "test_trigger_prompt_change":
        PROMPTS.append(types.Prompt(name=f"extra_{len(PROMPTS)}", description="An extra prompt."))
        await server.bus.publish(PromptsListChanged())
        return types.CallToolResult(content=[types.TextContent(text="changed")])
    if params.name == "test_sampling":
        question = _sampling(str((params.arguments or {}).get("prompt")), 100)
        metadata = ServerMessageMetadata(related_request_id=request.request_id)
        answer = await request.session.send_request(question, types.CreateMessageResult, metadata=metadata)
        return types.CallToolResult(content=[types.TextContent(text=f"LLM response: {answer.content}")])
    if params.name in INPUTS:
        return _with_inputs(request, params, INPUTS[params.name])
    assert call_tool is not None
    return await call_tool.handler(request, params)


def _with_inputs(request: Request, params: types.CallToolRequestParams, inputs: dict[str, types.InputRequest]) -> Any:
    possible = {
        key: question
        for key, question in inputs.items()
        if request.session.check_client_capability(CAPABILITIES[question.method])
    }
    answers = params.input_responses or {}
    missing = {key: question for key, question in possible.items() if key not in answers}
    if missing:
        return types.InputRequiredResult(input_requests=missing, request_state=params.name)
    texts = [types.TextContent(text=f"{key}: {answers[key].model_dump_json()}") for key in possible]
    return types.CallToolResult(content=[*texts])


PROMPTS = [
    types.Prompt(name="test_simple_prompt", description="A prompt without arguments."),
    types.Prompt(
        name="test_prompt_with_arguments",
        description="A prompt with two arguments.",
        arguments=[
            types.PromptArgument(name="arg1", description="First test argument", required=True),
            types.PromptArgument(name="arg2", description="Second test argument", required=True),
        ],
    ),
    types.Prompt(
        name="test_prompt_with_embedded_resource",
        description="A prompt with a resource.",
        arguments=[types.PromptArgument(name="resourceUri", description="URI of the resource", required=True)],
    ),
    types.Prompt(name="test_prompt_with_image", description="A prompt with an image."),
    types.Prompt(name="test_input_required_result_prompt", description="A prompt that asks for its context."),
]


async def list_prompts(_request: Request, _params: Any) -> types.ListPromptsResult:
    return types.ListPromptsResult(prompts=PROMPTS)


async def get_prompt(_request: Request, params: types.GetPromptRequestParams) -> Any:
    arguments = params.arguments or {}
    if params.name == "test_input_required_result_prompt":
        answer = (params.input_responses or {}).get("user_context")
        if not isinstance(answer, types.ElicitResult):
            question = _question("What context should the prompt use?", "context")
            return types.InputRequiredResult(input_requests={"user_context": question})
        return _prompt(types.TextContent(text=f"Use this context: {answer.content}"))
    if params.name == "test_simple_prompt":
        return _prompt(types.TextContent(text="This is a simple prompt for testing."))
    if params.name == "test_prompt_with_arguments":
        text = f"Prompt with arguments: arg1='{arguments.get('arg1')}', arg2='{arguments.get('arg2')}'"
        return _prompt(types.TextContent(text=text))
    if params.name == "test_prompt_with_embedded_resource":
        contents = types.TextResourceContents(
            uri=arguments.get("resourceUri", ""), mime_type="text/plain", text="Embedded resource content for testing."
        )
        request = types.TextContent(text="Please process the embedded resource above.")
        return _prompt(types.EmbeddedResource(resource=contents), request)
    if params.name == "test_prompt_with_image":
        image = types.ImageContent(data=base64.b64encode(PNG).decode(), mime_type="image/png")
        return _prompt(image, types.TextContent(text="Please analyze the image above."))
    raise MCPError(types.INVALID_PARAMS, f"unknown prompt: {params.name}")


def _prompt(*contents: types.ContentBlock) -> types.GetPromptResult:
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=content) for content in contents])


async def list_resources(_request: Request, _params: Any) -> types.ListResourcesResult:
    return types.ListResourcesResult(
        resources=[
            types.Resource(uri="test://static-text", name="static-text", description="A text.", mime_type="text/plain"),
            types.Resource(
                uri="test://static-binary", name="static-binary", description="An image.", mime_type="image/png"
            ),
        ]
    )


async def list_templates(_request: Request, _params: Any) -> types.ListResourceTemplatesResult:
    template = types.ResourceTemplate(
        uri_template="test://template/{id}/data", name="template", description="Data.", mime_type="application/json"
    )
    return types.ListResourceTemplatesResult(resource_templates=[template])


async def read_resource(_request: Request, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    uri = str(params.uri)
    contents: types.TextResourceContents | types.BlobResourceContents
    if uri == "test://static-text":
        text = "This is the content of the static text resource."
        contents = types.TextResourceContents(uri=uri, mime_type="text/plain", text=text)
    elif uri == "test://static-binary":
        contents = types.BlobResourceContents(uri=uri, mime_type="image/png", blob=base64.b64encode(PNG).decode())
    elif uri.startswith("test://template/") and uri.endswith("/data"):
        id = uri.split("/")[3]
        text = f'{{"id":"{id}","templateTest":true,"data":"Data for ID: {id}"}}'
        contents = types.TextResourceContents(uri=uri, mime_type="application/json", text=text)
    else:
        raise MCPError(types.INVALID_PARAMS, "Resource not found", {"uri": uri})
    return types.ReadResourceResult(contents=[contents])


async def complete(_request: Request, params: types.CompleteRequestParams) -> types.CompleteResult:
    values = [value for value in ("paris", "park", "party") if value.startswith(params.argument.value)]
    return types.CompleteResult(completion=types.Completion(values=values, total=len(values), has_more=False))


async def subscribe(_request: Request, _params: Any) -> types.EmptyResult:
    return types.EmptyResult()


server.add_request_handler("resources/subscribe", types.SubscribeRequestParams, subscribe)
server.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, subscribe)
server.add_request_handler("tools/call", types.CallToolRequestParams, handle_call)
server.add_request_handler("prompts/list", types.PaginatedRequestParams, list_prompts)
server.add_request_handler("prompts/get", types.GetPromptRequestParams, get_prompt)
server.add_request_handler("resources/list", types.PaginatedRequestParams, list_resources)
server.add_request_handler("resources/templates/list", types.PaginatedRequestParams, list_templates)
server.add_request_handler("resources/read", types.ReadResourceRequestParams, read_resource)
server.add_request_handler("completion/complete", types.CompleteRequestParams, complete)


def main() -> None:
    listener = create_server(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0))
    sys.stdout.write(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp\n")
    sys.stdout.flush()
    app = Starlette(routes=[Route("/mcp", endpoint=mcp_app(server))])
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main()
