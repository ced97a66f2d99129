"""A conversation as a request of the Chat Completions API.

What the model of a service sent goes back to it as it came, but for fields that the service only sends. Messages of
other providers are encoded from their parts, without reasoning.
"""

import logging
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import msgspec
from msgspec import Raw

from midspan._types.encoded import MessageEncoder, join_body
from midspan._types.exchange import ModelRequest, Output, RequestConfig
from midspan._types.messages import Message
from midspan._types.parts import Blob, Opaque, Text, Thought, ToolCall, ToolResult
from midspan._types.specs import AnyTool, BuiltinTool, ModelSettings, ToolChoice
from midspan.errors import ConfigError
from midspan.providers.encoding import (
    allowed_tools,
    arguments_text,
    encode_head,
    encode_items,
    json_text,
    own_data,
    result_text,
    unaccepted_media,
    valid_id,
)
from midspan.providers.openai.profile import NAMES, Preset

_log = logging.getLogger("midspan.providers.openai")

_SENT_FIELDS = ("role", "content", "refusal", "tool_calls", "audio", "name", "function_call")
"""The fields of a model's message that go back to every service."""
_CALL_FIELDS = ("id", "type", "function", "custom")
_NULL, _EMPTY = Raw(b"null"), Raw(b'""')
_OUTPUT_NAME = "answer"


def request_body(request: ModelRequest, preset: Preset, *, stream: bool) -> bytes:
    """Return the JSON that asks for the next turn."""
    config = request.config
    head = config.derived(preset, _encode_config, config, preset)
    tail = b'],"stream":true,"stream_options":{"include_usage":true}}' if stream else b"]}"
    return join_body(request.history, _encoder(preset), head, tail)


# All fields but the messages


def _encode_config(config: RequestConfig, preset: Preset) -> bytes:
    """Return the fields before the messages, and the message with the system prompt."""
    settings, choice = config.settings, config.tool_choice
    fields: dict[str, Any] = {"model": config.model}
    tools = config.tools if preset.allowed_tools else allowed_tools(config.tools, choice)
    if tools:
        fields["tools"] = [_encode_tool(tool) for tool in tools]
        if choice is not None:
            fields |= {"tool_choice": _encode_choice(choice, preset), "parallel_tool_calls": choice.parallel}
    system = config.system or ""
    if config.output is not None:
        fields["response_format"], instruction = _encode_output(config.output, preset)
        system = "\n\n".join(filter(None, (system, instruction)))
    fields |= {
        preset.max_tokens_field: settings.max_tokens,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "top_k": settings.top_k if preset.top_k else None,
        "stop": settings.stop or None,
        preset.seed_field: settings.seed,
        "presence_penalty": settings.presence_penalty,
        "frequency_penalty": settings.frequency_penalty,
        "reasoning_effort": encode_effort(settings, config.model),
        "prompt_cache_key": config.cache.key if config.cache is not None else None,
    }
    if settings.top_k is not None and not preset.top_k:
        _log.warning("%s has no setting top_k; it is ignored", preset.service)
    head = encode_head(fields, settings.extra, "messages")
    return head + encode_items([{"role": "system", "content": system}])[0] + b"," if system else head


def _encode_tool(tool: AnyTool) -> dict[str, Any]:
    if isinstance(tool, BuiltinTool):
        return {"type": tool.name, **tool.config}
    function: dict[str, Any] = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    function["parameters"] = tool.parameters or {"type": "object", "properties": {}}
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _encode_choice(choice: ToolChoice, preset: Preset) -> Any:
    mode = choice.mode
    if not choice.names or mode == "none":
        return mode
    functions = [{"type": "function", "function": {"name": name}} for name in choice.names]
    if len(functions) == 1 and mode == "required":
        return functions[0]
    if preset.allowed_tools:
        return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": functions}}
    return mode


def _encode_output(output: Output, preset: Preset) -> tuple[dict[str, Any], str]:
    """Return `response_format`, and what the system prompt has to say."""
    schema = output.json_schema
    if schema is None:
        return {"type": "json_object"}, "Answer with JSON only."  # the API demands that the prompt mentions JSON
    if not preset.json_schema:
        return {"type": "json_object"}, f"Answer with JSON only, of this JSON Schema: {json_text(schema)}"
    strict = {"strict": True} if output.strict else {}
    return {"type": "json_schema", "json_schema": {"name": output_name(schema), "schema": schema, **strict}}, ""


def output_name(schema: dict[str, Any]) -> str:
    """Return the name of an answer's schema, which the API demands."""
    title = schema.get("title")
    return NAMES.replace_invalid(title) if isinstance(title, str) and title else _OUTPUT_NAME


_WITH_MINIMAL_EFFORT = re.compile(r"(openai/)?gpt-5(-|$)|(google/)?gemini-")
"""GPT-5 itself, and Gemini behind a compatible API, which picks the nearest level. GPT-5.1 and others reject it."""


def encode_effort(settings: ModelSettings, model: str) -> str | None:
    """Return `reasoning_effort`; a number of tokens, or a level that the model lacks, becomes the nearest level."""
    thinking = settings.thinking
    if thinking == "minimal" and not _WITH_MINIMAL_EFFORT.match(model):
        return "low"
    if thinking is None or isinstance(thinking, str):
        return thinking
    if thinking < 0:
        return None  # the model decides
    if thinking == 0:
        return "none"
    return "low" if thinking <= 2_048 else "medium" if thinking <= 8_192 else "high"


# Messages


@cache
def _encoder(preset: Preset) -> MessageEncoder:
    def encode(messages: Sequence[Message]) -> list[bytes]:
        return encode_items(item for message in messages for item in _encode_message(message, preset))

    return MessageEncoder(preset, encode)


def _encode_message(message: Message, preset: Preset) -> Iterator[Any]:
    """Yield the messages of the API for one of ours: each result of a tool is a message of its own."""
    if message.role == "model":
        yield from _encode_model_message(message, preset)
    elif (raw := own_data(message, preset.name)) is not None:
        yield raw  # in the form of the service, such as a message of the developer
    else:
        yield from _encode_user_message(message, preset)


def _encode_user_message(message: Message, preset: Preset) -> Iterator[dict[str, Any]]:
    content: list[Any] = []
    for part in message.parts:
        if isinstance(part, ToolResult):
            result: Any = result_text(part)
            if part.media and preset.media_in_results:
                text = [{"type": "text", "text": result}] if result else []
                result = text + _encode_media(part.media, preset)
            yield {"role": "tool", "tool_call_id": valid_id(part.id, preset.id_pattern), "content": result}
    for part in message.parts:
        if isinstance(part, ToolResult):  # most services accept no images in a result, so they follow it
            content += [] if preset.media_in_results else _encode_media(part.media, preset)
        elif isinstance(part, Text):
            content.append({"type": "text", "text": part.text})
        elif isinstance(part, Blob):
            content.append(_encode_blob(part, preset))
        elif isinstance(part, Opaque) and (raw := own_data(part, preset.name)) is not None:
            content.append(raw)
    if len(content) == 1 and isinstance(content[0], dict) and content[0]["type"] == "text":
        content = content[0]["text"]
    if content:
        yield {"role": "user", "content": content}


def _encode_media(media: Sequence[Blob], preset: Preset) -> list[dict[str, Any]]:
    """Return media of a tool or of another model, with a text in place of what the service does not accept."""
    return [
        _encode_blob(blob, preset)
        if _is_accepted(blob, preset)
        else {"type": "text", "text": unaccepted_media(blob).text}
        for blob in media
    ]


def _is_accepted(blob: Blob, preset: Preset) -> bool:
    is_image = _media_type(blob).startswith("image/")
    return is_image or preset.document_urls or blob.url is None or "://" not in blob.url


def _media_type(blob: Blob) -> str:
    return blob.media_type.partition(";")[0].strip().lower()


def _encode_blob(blob: Blob, preset: Preset) -> dict[str, Any]:
    if not _is_accepted(blob, preset):
        raise ConfigError(f"{preset.service} does not load files from URLs; pass the data of {blob.url}")
    media_type = _media_type(blob)
    url = blob.url or f"data:{media_type};base64,{blob.base64}"
    if media_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    if media_type in _AUDIO_FORMATS and blob.base64 is not None:
        return {"type": "input_audio", "input_audio": {"data": blob.base64, "format": _AUDIO_FORMATS[media_type]}}
    if preset.document_urls:
        return {"type": "document_url", "document_url": url}
    if blob.url is not None:
        return {"type": "file", "file": {"file_id": blob.url}}
    return {"type": "file", "file": {"filename": blob.name or "file", "file_data": url}}


_AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


def _encode_model_message(message: Message, preset: Preset) -> Iterator[dict[str, Any]]:
    if raw := own_data(message, preset.name):
        as_sent = _without_response_fields(raw, preset)
        if _has_content(as_sent):
            yield as_sent
        return
    fields: dict[str, Any] = {"role": "assistant", "content": message.text or None}
    calls: list[Any] = []
    items: list[Any] = []
    """Content that is not text."""
    for part in message.parts:
        raw = own_data(part, preset.name)
        extra = {} if raw is None else _fields_of(raw)
        if isinstance(part, ToolCall):
            calls.append({**_encode_call(part, preset), **extra})
        elif extra and isinstance(part, Opaque) and "type" in extra:
            items.append(extra)
        elif isinstance(part, Thought | Opaque):
            fields |= extra
    if items:
        text = [{"type": "text", "text": message.text}] if message.text else []
        fields["content"] = [*text, *items]
    if calls:
        fields["tool_calls"] = calls
    if _has_content(fields):
        yield fields
    media = [part for part in message.parts if isinstance(part, Blob)]
    if media and not calls:  # images that a model made: only messages of the user can contain them
        yield {"role": "user", "content": _encode_media(media, preset)}


def _has_content(fields: dict[str, Any]) -> bool:
    """Whether a message can be sent: one without content, which some services send, would be rejected."""
    is_more_than_text = not fields.keys().isdisjoint(("tool_calls", "function_call", "audio", "refusal"))
    return is_more_than_text or fields.get("content") not in (None, _NULL, _EMPTY)


def _encode_call(call: ToolCall, preset: Preset) -> dict[str, Any]:
    text = arguments_text(call)
    function = {"name": call.name, "arguments": text if _accepts_arguments(text, preset) else "{}"}
    return {"id": valid_id(call.id, preset.id_pattern), "type": "function", "function": function}


def _without_response_fields(raw: Raw, preset: Preset) -> dict[str, Any]:
    """Return a message that the service sent, without what it does not accept back."""
    names = (*_SENT_FIELDS, *preset.message_fields)
    fields: dict[str, Any] = {
        name: value
        for name, value in _fields_of(raw).items()
        if name in names and (value != _NULL or name == "content")
    }
    if calls := msgspec.json.decode(fields.pop("tool_calls", b"[]"), type=list[dict[str, Raw]]):
        fields["tool_calls"] = [_without_call_fields(call, preset) for call in calls]
    return fields


def _without_call_fields(call: dict[str, Raw], preset: Preset) -> dict[str, Any]:
    names = (*_CALL_FIELDS, *preset.call_fields)
    fields: dict[str, Any] = {"type": "function", **{name: value for name, value in call.items() if name in names}}
    if "function" in call:
        function = _fields_of(call["function"])
        arguments = msgspec.json.decode(function.get("arguments", b"null"))  # some services leave it out, but demand it
        if not _accepts_arguments(arguments, preset):
            fields["function"] = {**function, "arguments": "{}"}
    id = msgspec.json.decode(call["id"])
    return {**fields, "id": valid_id(id, preset.id_pattern)}


def _accepts_arguments(arguments: Any, preset: Preset) -> bool:
    """Whether the service accepts arguments in the history. Ours are JSON text; a few services send an object."""
    if not isinstance(arguments, str):
        return isinstance(arguments, dict)
    try:
        msgspec.json.decode(arguments, type=dict)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return preset.accepts_invalid_arguments
    return True


def _fields_of(raw: Raw) -> dict[str, Raw]:
    return msgspec.json.decode(raw, type=dict[str, Raw])
