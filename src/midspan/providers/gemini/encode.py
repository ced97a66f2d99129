"""Our values as Gemini's: the body of a request, joined from pieces that were written once.

Above is the client, which sends the body. This module knows which model and API the body is for only through
`Capabilities`. What a provider sent goes back as it came; what another provider's model said is said again in Gemini's
words.
"""

from typing import Any

import msgspec
from msgspec import Raw

from midspan.errors import ConfigError
from midspan.providers.gemini.capabilities import Capabilities
from midspan.providers.gemini.reading import DIALECT, encode_json
from midspan.providers.gemini.setup import encode_setup, encode_system_as_content
from midspan.types.exchange import ModelRequest
from midspan.types.messages import History, Message
from midspan.types.parts import Blob, Opaque, Part, Text, Thought, ToolCall, ToolResult, is_local_id

Written = bytes | memoryview | Raw

# For calls that Gemini did not make itself: https://ai.google.dev/gemini-api/docs/thought-signatures
SKIP_SIGNATURE = "skip_thought_signature_validator"


def request_body(request: ModelRequest, capabilities: Capabilities) -> bytes:
    """The JSON that asks for the next turn."""
    tail = encode_setup(request.setup, capabilities)
    if request.continuation is not None:
        tail += b',"continuationToken":' + encode_json(request.continuation)
    return body_of(request.history, tail, capabilities, first=encode_system_as_content(request.setup, capabilities))


def body_of(history: History, tail: bytes, capabilities: Capabilities, *, first: bytes = b"") -> bytes:
    """A request of these contents, `first` before them and the fields of `tail` after them.

    Of the history only what is new is written; the rest is copied, once.
    """
    dialect = capabilities.contents_dialect
    count, known = history.encoded.get(dialect, (0, b""))
    new = [encode_message(message, capabilities) for message in history.messages[count:]]
    head = b'{"contents":[' + first
    contents = _with_commas(known, new)
    body = b"".join((head, *contents, b"]", tail, b"}"))
    if new:
        # What was just written is known the next time; it is looked at inside this body, not copied out of it.
        size = sum(map(len, contents))
        history.encoded[dialect] = (len(history), memoryview(body)[len(head) : len(head) + size])
    return body


def _with_commas(known: Written, new: list[Written]) -> list[Written]:
    pieces = [known] if known else []
    for piece in new:
        if piece:
            pieces += (b",", piece) if pieces else (piece,)
    return pieces


def encode_message(message: Message, capabilities: Capabilities) -> Written:
    """One content; nothing for a message that holds nothing, because the API refuses a content without parts."""
    try:
        if message.origin == DIALECT and message.raw and message.parts:
            return _returned(message, capabilities)
        parts = _parts(message, capabilities)
        return encode_json({"role": message.role, "parts": parts}) if parts else b""
    except (TypeError, UnicodeEncodeError, RecursionError) as error:
        raise ConfigError(f"a message of the {message.role} holds something that JSON cannot say: {error}") from error


def _returned(message: Message, capabilities: Capabilities) -> Written:
    """What Gemini sent, untouched, unless this model refuses something that another one gave."""
    first = next((part for part in message.parts if type(part) is ToolCall), None)
    unsigned = capabilities.signatures and first is not None and first.signature is None
    with_ids = not capabilities.call_ids and any(_has_id(part) for part in message.parts)
    foreign = not capabilities.server_side_parts and any(_is_server_side(part) for part in message.parts)
    if not (unsigned or with_ids or foreign):
        return message.raw
    content = msgspec.json.decode(message.raw)
    parts = [
        part for part in content["parts"] if not foreign or not isinstance(part, dict) or not _SERVER_SIDE & part.keys()
    ]
    if unsigned:
        _sign_first_call(parts)
    if with_ids:
        _drop_ids(parts)
    return encode_json({**content, "parts": parts}) if parts else b""


_SERVER_SIDE = frozenset(("toolCall", "toolResponse"))


def _has_id(part: Part) -> bool:
    return isinstance(part, ToolCall | ToolResult) and not is_local_id(part.id)


def _is_server_side(part: Part) -> bool:
    return isinstance(part, Opaque) and part.name in _SERVER_SIDE


def _drop_ids(parts: list[Any]) -> None:
    for part in parts:
        for kind in ("functionCall", "functionResponse"):
            if isinstance(part, dict) and isinstance(part.get(kind), dict):
                part[kind].pop("id", None)


def _parts(message: Message, capabilities: Capabilities) -> list[Any]:
    write = _write_gemini if message.origin == DIALECT else _write_foreign
    parts = [written for part in message.parts if (written := write(part, capabilities)) is not None]
    if capabilities.signatures and message.role == "model":
        _sign_first_call(parts)
    if not capabilities.media_in_results:
        parts += [_blob(blob) for result in message.results for blob in result.media]
    return parts


def _sign_first_call(parts: list[Any]) -> None:
    for part in parts:
        if isinstance(part, dict) and isinstance(part.get("functionCall"), dict):
            part["thoughtSignature"] = part.get("thoughtSignature") or SKIP_SIGNATURE
            return


def _write_gemini(part: Part, capabilities: Capabilities) -> Any:
    """A part that Gemini sent, of a message that was edited since; its signature stays on it."""
    match part:
        case Text(text, signature) if text or signature:
            return _signed({"text": text}, signature)
        case Thought(text, signature):
            return _signed({"text": text, "thought": True}, signature)
        case Opaque():
            return part.raw
        case Blob() | ToolCall():
            return _signed(_write_foreign(part, capabilities), part.signature)
    return _write_foreign(part, capabilities)


def _write_foreign(part: Part, capabilities: Capabilities) -> Any:
    """A part that the user, a tool or another provider's model made.

    Thoughts and signatures of another model are not Gemini's, and what is opaque to us is nonsense to it.
    """
    if isinstance(part, ToolResult):
        return {"functionResponse": _response(part, capabilities)}
    if isinstance(part, Text):
        return {"text": part.text} if part.text else None
    if isinstance(part, ToolCall):
        return {"functionCall": {**_id(part.id, capabilities), "name": part.name, "args": part.arguments}}
    return _blob(part) if isinstance(part, Blob) else None


def _signed(written: dict[str, Any], signature: str | None) -> dict[str, Any]:
    return written if signature is None else {**written, "thoughtSignature": signature}


def _blob(blob: Blob) -> dict[str, Any]:
    if blob.url is not None:
        return {"fileData": {"fileUri": blob.url, "mimeType": blob.media_type}}
    return {"inlineData": {"mimeType": blob.media_type, "data": blob.base64}}


def _response(result: ToolResult, capabilities: Capabilities) -> dict[str, Any]:
    value = result.model_value
    if result.is_error:
        value = value if isinstance(value, dict) and "error" in value else {"error": value}
    elif not isinstance(value, dict):
        value = {capabilities.result_key: value}
    written = {"name": result.name, "response": value, **_id(result.id, capabilities)}
    if result.media and capabilities.media_in_results:
        written["parts"] = [_blob(blob) for blob in result.media]
    return written


def _id(id: str, capabilities: Capabilities) -> dict[str, str]:
    """The id where the server gave it and takes it back; one of ours is never shown."""
    return {"id": id} if capabilities.call_ids and not is_local_id(id) else {}
