"""/openapi.json, made from the documents, and a page that shows it: plain HTML without scripts."""

import re
from collections.abc import Sequence
from html import escape
from http import HTTPStatus
from typing import Any, NamedTuple, get_args

import msgspec
from starlette.responses import Response

from midspan._server import documents
from midspan._server.service import ModelChoice
from midspan._storage.journal import StateName
from midspan._version import VERSION

_PARAMETERS: dict[str, dict[str, Any]] = {
    "run_id": {"in": "path", "required": True, "schema": {"type": "string"}},
    "session_id": {"in": "path", "required": True, "schema": {"type": "string", "pattern": documents.SESSION_PATTERN}},
    "model": {"in": "path", "required": True, "schema": {"type": "string"}},
    "state": {"in": "query", "schema": {"enum": [*get_args(StateName)]}},
    "?session_id": {"in": "query", "schema": {"type": "string"}},
    "after": {
        "in": "query",
        "schema": {"type": "string", "pattern": documents.CURSOR_PATTERN},
        "description": "The `next` of the page before.",
    },
    "limit": {"in": "query", "schema": {"type": "integer", "minimum": 1, "maximum": 200, "default": 50}},
    "view": {
        "in": "query",
        "schema": {"enum": ["all", "final"], "default": "all"},
        "description": "All events, or only the text of the final answer.",
    },
    "Last-Event-ID": {
        "in": "header",
        "schema": {"type": "string", "pattern": "^[0-9]{1,15}$"},
        "description": "The id of the last event that the client has; the stream continues after it.",
    },
    "last_event_id": {
        "in": "query",
        "schema": {"type": "string", "pattern": "^[0-9]{1,15}$"},
        "description": "The same, for clients that cannot set a header.",
    },
}

_EVENT = {
    "type": "object",
    "description": "One event of the stream. Its data is JSON.",
    "properties": {"id": {"type": "string"}, "event": {"type": "string"}, "data": {"type": "string"}},
    "required": ["data"],
}
_TEXT: dict[str, Any] = {"type": "string", "pattern": documents.NOT_BLANK}
_USER_TEXT: dict[str, dict[str, Any]] = {
    "CompletionRequest": {"content": _TEXT},
    "UiChatRequest": {
        "parts": {"contains": {"properties": {"type": {"const": "text"}, "text": _TEXT}, "required": ["type", "text"]}}
    },
}
"""In which field a message of the user has its text; a request needs at least one, or the result of a tool."""


class _Operation(NamedTuple):
    """One endpoint. A response is a document, or None for a stream of events; 204 has no content."""

    method: str
    path: str
    summary: str
    responses: dict[int, Any]
    body: Any = None
    parameters: tuple[str, ...] = ()
    or_stream: bool = False
    errors: tuple[int, ...] = ()


_START_ERRORS = (404, 408, 409, 413, 415, 429, 502, 503, 504)
_PAGE = ("after", "limit")
OPERATIONS = (
    _Operation("POST", "/api/v1/chat", "Ask, and get the answer or a stream of events", {200: documents.ChatResponse},
               documents.ChatRequest, or_stream=True, errors=_START_ERRORS),
    _Operation("POST", "/api/v1/runs", "Start a run", {202: documents.RunDocument}, documents.RunRequest,
               errors=_START_ERRORS),
    _Operation("GET", "/api/v1/runs", "List runs, newest first", {200: documents.RunList},
               parameters=("state", "?session_id", *_PAGE)),
    _Operation("GET", "/api/v1/runs/{run_id}", "Get a run", {200: documents.RunDocument}, parameters=("run_id",),
               errors=(404,)),
    _Operation("POST", "/api/v1/runs/{run_id}/cancel", "Cancel a run", {200: documents.RunDocument},
               parameters=("run_id",), errors=(404,)),
    _Operation("GET", "/api/v1/runs/{run_id}/events", "Read the events of a run, and wait for new ones",
               {200: None, 204: None}, parameters=("run_id", "Last-Event-ID", "last_event_id", "view"),
               errors=(404,)),
    _Operation("GET", "/api/v1/sessions", "List sessions, the last one first", {200: documents.SessionList},
               parameters=_PAGE),
    _Operation("GET", "/api/v1/sessions/{session_id}", "Get a session with its messages",
               {200: documents.SessionDocument}, parameters=("session_id",), errors=(404,)),
    _Operation("DELETE", "/api/v1/sessions/{session_id}", "Delete a session with its runs", {204: None},
               parameters=("session_id",), errors=(404,)),
    _Operation("GET", "/api/v1/sessions/{session_id}/export", "Export a session for `midspan.from_json`",
               {200: dict[str, Any]}, parameters=("session_id",), errors=(404,)),
    _Operation("GET", "/api/v1/tools", "List the tools", {200: documents.ToolList}),
    _Operation("GET", "/api/v1/models", "List the models", {200: documents.ModelList}),
    _Operation("GET", "/api/v1/health", "The state of the server and of what it uses",
               {200: documents.Health, 503: documents.Health}),
    _Operation("GET", "/health", "Whether the server accepts work", {200: documents.Health, 503: documents.Health}),
    _Operation("POST", "/api/v1/ui/chat", "Chat with the UI message stream of Vercel's AI SDK", {200: None},
               documents.UiChatRequest, errors=_START_ERRORS),
    _Operation("GET", "/api/v1/ui/chat/{session_id}/stream", "Resume the UI message stream of a chat",
               {200: None, 204: None}, parameters=("session_id",), errors=(404,)),
    _Operation("POST", "/v1/chat/completions", "OpenAI's Chat Completions", {200: documents.Completion},
               documents.CompletionRequest, or_stream=True, errors=_START_ERRORS),
    _Operation("GET", "/v1/models", "OpenAI's list of models", {200: documents.OpenAIModelList}),
    _Operation("GET", "/v1/models/{model}", "One of these models", {200: documents.OpenAIModel}, parameters=("model",),
               errors=(404,)),
)  # fmt: skip


def openapi_document(models: Sequence[ModelChoice], *, has_tokens: bool) -> bytes:
    """Return the description of the API, with the models of this server."""
    types = [item for operation in OPERATIONS for item in (operation.body, *operation.responses.values()) if item]
    types += [documents.ErrorDocument, documents.OpenAIErrorDocument]
    types = [*dict.fromkeys(item for item in types if isinstance(item, type) and issubclass(item, msgspec.Struct))]
    _, schemas = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    schemas = documents.with_json_patterns(schemas)
    _name_models(schemas, models)
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, has_tokens=has_tokens)
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "Midspan", "version": VERSION, "description": "An agent over HTTP."},
        "paths": paths,
        "components": {"schemas": schemas},
    }
    if has_tokens:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return msgspec.json.encode(document)


def _name_models(schemas: dict[str, Any], models: Sequence[ModelChoice]) -> None:
    """Say in the schemas which models and providers can be named."""
    names = [*dict.fromkeys(name for choice in models for name in (choice.id, choice.model))]
    providers = [*dict.fromkeys(choice.provider for choice in models)]
    for schema in schemas.values():
        properties = schema.get("properties", {})
        if "provider" in properties and "context" in properties:
            properties["provider"] = {"enum": [*providers, None], "default": None}
            properties["model"] = {"enum": [*names, None], "default": None}
    schemas["CompletionRequest"]["properties"]["model"] = {"enum": [*names, None], "default": None}
    for name, fields in _USER_TEXT.items():
        message = {"properties": {"role": {"const": "user"}, **fields}, "required": ["role", *fields]}
        schemas[name]["properties"]["messages"]["contains"] = message
    result = {"properties": {"role": {"const": "tool"}}, "required": ["role"]}
    messages = schemas["CompletionRequest"]["properties"]["messages"]
    messages["contains"] = {"anyOf": [messages["contains"], result]}


def _operation(operation: _Operation, *, has_tokens: bool) -> dict[str, Any]:
    is_open = not operation.path.startswith(("/api/", "/v1/"))
    operation_id = re.sub(r"\W+", "_", f"{operation.method.lower()}{operation.path}").strip("_")
    fields: dict[str, Any] = {"summary": operation.summary, "operationId": operation_id}
    if operation.parameters:
        fields["parameters"] = [{"name": name.removeprefix("?"), **_PARAMETERS[name]} for name in operation.parameters]
    if operation.body is not None:
        fields["requestBody"] = {"required": True, "content": _json(operation.body)}
    responses: dict[str, Any] = {}
    for status, document in operation.responses.items():
        content = {} if status == 204 else _json(document) if document else {}
        if status != 204 and (document is None or operation.or_stream):
            content["text/event-stream"] = {"schema": _EVENT}
        responses[str(status)] = {"description": operation.summary, **({"content": content} if content else {})}
    error = documents.OpenAIErrorDocument if operation.path.startswith("/v1/") else documents.ErrorDocument
    for status in {400, 403, 500, *operation.errors, *((401,) if has_tokens and not is_open else ())}:
        responses.setdefault(str(status), {"description": HTTPStatus(status).phrase, "content": _json(error)})
    fields["responses"] = dict(sorted(responses.items()))
    if has_tokens and not is_open:
        fields["security"] = [{"token": []}]
    return fields


def _json(kind: Any) -> dict[str, Any]:
    is_struct = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    schema = {"$ref": f"#/components/schemas/{kind.__name__}"} if is_struct else {"type": "object"}
    return {"application/json": {"schema": schema}}


_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
code, pre { font: 14px/1.4 ui-monospace, monospace; }
pre { overflow-x: auto; }
:root { color-scheme: light dark; }
"""


def openapi_page(document: bytes) -> Response:
    """Return a page with all endpoints and documents. It has no scripts and loads nothing."""
    api = msgspec.json.decode(document)
    operations = [
        _details(f"{method.upper()} {path}", item["summary"], item)
        for path, methods in api["paths"].items()
        for method, item in methods.items()
    ]
    schemas = sorted(api["components"]["schemas"].items())
    shown = [_details(name, schema.get("description", ""), schema) for name, schema in schemas]
    html = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Midspan API</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>'
        f"<h1>Midspan API {escape(api['info']['version'])}</h1>"
        f'<p>For programs: <a href="openapi.json">openapi.json</a></p>'
        f"<h2>Endpoints</h2>{''.join(operations)}<h2>Documents</h2>{''.join(shown)}</body></html>"
    )
    headers = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}
    return Response(html, headers=headers, media_type="text/html")


def _details(name: str, summary: str, value: dict[str, Any]) -> str:
    json = escape(msgspec.json.format(msgspec.json.encode(value)).decode())
    return f"<details><summary><code>{escape(name)}</code> {escape(summary)}</summary><pre>{json}</pre></details>"
