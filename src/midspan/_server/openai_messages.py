"""Requests of OpenAI's Chat Completions API as conversations, tools and settings of a run.

Calls of the client's own tools are handed to the client, and come back with their results in a later request. The
client knows neither the calls that the server made in the same turn nor what the provider sent along. So the ids of
such calls name the run, and the stored messages of that run take the place of the client's.
"""

import mimetypes
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from midspan._server import documents
from midspan._server.http import HttpError, invalid
from midspan._server.service import StoredRun
from midspan._types.messages import Message
from midspan._types.parts import Blob, Part, Text, ToolCall, ToolResult
from midspan._types.run_state import ToolRun
from midspan._types.specs import ToolChoice, ToolSpec
from midspan.errors import ConfigError
from midspan.providers.stream import read_arguments
from midspan.tools.declared import tool_from_spec

_HANDED = "handed_to_client"
_CALL_ID = re.compile(r"call_(run_[0-9a-f]{16})_(\d{1,4})")
_CONTINUE = "Continue."
_UNLIMITED_CHARS = 2**40

FindRun = Callable[[str], Awaitable[StoredRun]]


def client_call_id(run_id: str, index: int) -> str:
    """Return the id under which the client gets a call of a run."""
    return f"call_{run_id}_{index}"


def client_tool(declaration: documents.OpenAITool) -> Any:
    """Return a tool of the client. It ends the run: its result says what the client has to call."""
    function = declaration.function
    spec = ToolSpec(function.name, function.description or "", function.parameters, strict=function.strict)

    def hand_over(arguments: dict[str, Any]) -> dict[str, Any]:
        return {_HANDED: {"name": function.name, "arguments": arguments}}

    try:
        return tool_from_spec(spec, hand_over, final=True, max_result_chars=_UNLIMITED_CHARS)
    except ConfigError as error:
        raise invalid(str(error)) from None


def handed_call(result: ToolResult) -> tuple[str, dict[str, Any]] | None:
    """Return name and arguments of a call that the client has to make, if this is the result of one."""
    value = result.value
    if not result.is_final or not isinstance(value, dict) or value.keys() != {_HANDED}:
        return None
    return value[_HANDED]["name"], value[_HANDED]["arguments"]


def handed_calls(runs: Iterable[ToolRun]) -> list[tuple[int, str, dict[str, Any]]]:
    """Return the calls that the client has to make, each with its position in the turn."""
    return [(run.index, *handed) for run in runs if (handed := handed_call(run.result)) is not None]


def system_prompt(agent_system: str | None, messages: Sequence[documents.OpenAIMessage]) -> str | None:
    """Return the server's system prompt, followed by that of the request."""
    texts = [_text(message) for message in messages if message.role in ("system", "developer")]
    return "\n\n".join(filter(None, (agent_system, *texts))) or None


async def conversation(messages: Sequence[documents.OpenAIMessage], find_run: FindRun) -> list[Message]:
    """Return the messages of a request, with the stored messages of runs that handed calls to the client."""
    results = {message.tool_call_id: _text(message) for message in messages if message.role == "tool"}
    converted: list[Message] = []
    restored: set[str] = set()
    for message in messages:
        if message.role == "assistant":
            stored = await _restore(message, results, find_run)
            if stored is not None:
                converted += stored
                restored |= {call.id for call in message.tool_calls or ()}
                continue
            parts = _model_parts(message)
        elif message.role == "tool":
            if message.tool_call_id in restored:
                continue
            parts = [ToolResult(message.tool_call_id or "", "", _text(message))]
        elif message.role == "user":
            parts = _user_parts(message)
        else:
            continue
        if parts:
            converted.append(Message("model" if message.role == "assistant" else "user", tuple(parts)))
    if converted and converted[-1].role == "model":
        converted.append(Message.user(_CONTINUE))
    if not converted:
        raise invalid("there is nothing to answer: no message of the user has content")
    return converted


async def _restore(
    message: documents.OpenAIMessage, results: dict[str | None, str], find_run: FindRun
) -> tuple[Message, ...] | None:
    """Return the stored messages of the run that handed these calls to the client; None if there is none."""
    ids = [_CALL_ID.fullmatch(call.id) for call in message.tool_calls or ()]
    runs = {match[1] for match in ids if match is not None}
    if len(runs) != 1 or None in ids:
        return None
    try:
        run = await find_run(runs.pop())
    except HttpError:
        return None  # deleted, or another owner's: use the client's messages
    if run.start is None or run.end is None:
        return None
    added = run.state.history[len(run.start.messages) :]
    if not added:
        return None
    *earlier, last = added
    indexes = {int(match[2]): match[0] for match in ids if match is not None}
    if not last.results or max(indexes) >= len(last.results):
        return None
    answered = [
        _client_result(result, results.get(indexes[index])) if index in indexes else result
        for index, result in enumerate(last.results)
    ]
    return (*earlier, last.with_parts(tuple(answered)))


def _client_result(placeholder: ToolResult, text: str | None) -> ToolResult:
    if text is None:
        return replace(placeholder, value="the client sent no result", is_final=False, is_error=True)
    return replace(placeholder, value=text, is_final=False)


def _model_parts(message: documents.OpenAIMessage) -> list[Part]:
    text = _text(message) or message.refusal or ""
    parts: list[Part] = [Text(text)] if text else []
    for call in message.tool_calls or ():
        arguments, error = read_arguments(call.function.arguments)
        raw = call.function.arguments if error else None
        parts.append(ToolCall(call.id, call.function.name, arguments, raw, error))
    return parts


def _user_parts(message: documents.OpenAIMessage) -> list[Part]:
    if isinstance(message.content, str):
        return [Text(message.content)] if message.content.strip() else []
    return [part for item in message.content or () if (part := _content_part(item)) is not None]


def _content_part(item: documents.ContentPart) -> Part | None:
    match item:
        case documents.TextPart(text) | documents.RefusalPart(text):
            return Text(text) if text.strip() else None
        case documents.ImagePart(image):
            return blob_of_url(image.url, "image/jpeg")
        case documents.AudioPart(audio):
            return Blob(f"audio/{audio.format}", base64=audio.data)
        case documents.FilePart(file):
            return blob_of_url(file.file_data, "application/octet-stream", file.filename)
    return None


def blob_of_url(url: str, default_type: str, name: str | None = None) -> Blob:
    """Return the data of a data URL, or a reference to something that the model's service loads."""
    if url.startswith("data:"):
        head, _, data = url[5:].partition(",")
        return Blob(head.partition(";")[0] or default_type, base64=data, name=name)
    file_name = re.split("[?#]", url)[0].rpartition("/")[2]
    return Blob(mimetypes.guess_type(file_name)[0] or default_type, url=url, name=name)


def _text(message: documents.OpenAIMessage) -> str:
    content = message.content
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(item.text for item in content if isinstance(item, documents.TextPart))


def run_settings(body: documents.CompletionRequest) -> dict[str, Any]:
    """Return the settings of the model that a request names."""
    effort = body.reasoning_effort
    values = {
        "temperature": body.temperature,
        "top_p": body.top_p,
        "max_tokens": _integer(body.max_completion_tokens or body.max_tokens),
        "stop": (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ()) or None,
        "seed": _integer(body.seed),
        "presence_penalty": body.presence_penalty,
        "frequency_penalty": body.frequency_penalty,
        "thinking": 0 if effort == "none" else effort,
    }
    return {name: value for name, value in values.items() if value is not None}


def _integer(value: float | None) -> int | None:
    return None if value is None else int(value)


def tool_choice(body: documents.CompletionRequest, known: set[str]) -> ToolChoice | None:
    """Return the tool choice of a request, which must be possible with these tools."""
    choice = body.tool_choice
    if isinstance(choice, documents.NamedToolChoice):
        if choice.function.name not in known:
            raise invalid(f"tool_choice names {choice.function.name[:100]!r}, which is not a tool of the request")
        return ToolChoice("required", (choice.function.name,), body.parallel_tool_calls)
    if choice == "required" and not known:
        raise invalid("tool_choice is required, but there are no tools")
    if choice is None and body.parallel_tool_calls is None:
        return None
    return ToolChoice(choice or "auto", parallel=body.parallel_tool_calls) if known else None


def output_schema(body: documents.CompletionRequest) -> dict[str, Any] | None:
    """Return the JSON Schema of the answer that a request wants."""
    form = body.response_format
    if form is None or form.type == "text":
        return None
    if form.type == "json_object":
        return {"type": "object"}
    if form.type != "json_schema":
        raise invalid('response_format.type must be "text", "json_object" or "json_schema"')
    if form.json_schema is None or form.json_schema.schema is None:
        missing = "response_format.json_schema" if form.json_schema is None else "response_format.json_schema.schema"
        raise invalid(f"{missing} is required")
    return form.json_schema.schema
