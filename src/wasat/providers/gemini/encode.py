"""Our values as Gemini's: the body of a request, joined from pieces that were written once.

Above is the client, which sends the body. This module knows which model and API the body is for only through
`Capabilities`. What a provider sent goes back as it came; what another provider's model said is said again in Gemini's
words.
"""

from typing import Any

import msgspec
from msgspec import Raw

from wasat.providers.gemini.capabilities import Capabilities
from wasat.providers.gemini.reading import DIALECT, encode_json
from wasat.providers.gemini.setup import encode_setup, encode_system_as_content
from wasat.types.exchange import ModelRequest
from wasat.types.messages import Message
from wasat.types.parts import Blob, Opaque, Part, Text, Thought, ToolCall, ToolResult, is_local_id

Written = bytes | memoryview | Raw

# For calls that Gemini did not make itself: https://ai.google.dev/gemini-api/docs/thought-signatures
SKIP_SIGNATURE = "skip_thought_signature_validator"


def request_body(request: ModelRequest, capabilities: Capabilities) -> bytes:
    """The JSON that asks for the next turn. Of the history only what is new is written; the rest is copied, once."""
    history, dialect = request.history, capabilities.contents_dialect
    count, known = history.encoded.get(dialect, (0, b""))
    new = [encode_message(message, capabilities) for message in history.messages[count:]]
    head = b'{"contents":[' + encode_system_as_content(request.setup, capabilities)
    contents = _with_commas(known, new)
    body = b"".join((head, *contents, b"]", encode_setup(request.setup, capabilities), _continuation(request), b"}"))
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


def _continuation(request: ModelRequest) -> bytes:
    return b"" if request.continuation is None else b',"continuationToken":' + encode_json(request.continuation)


def encode_message(message: Message, capabilities: Capabilities) -> Written:
    """One content; nothing for a message that holds nothing, because the API refuses a content without parts."""
    if message.origin == DIALECT and message.raw and message.parts:
        return _returned(message.raw, capabilities)
    parts = _parts(message, capabilities)
    return encode_json({"role": message.role, "parts": parts}) if parts else b""


def _returned(raw: Raw, capabilities: Capabilities) -> Written:
    """What Gemini sent, untouched, unless this model refuses something that another one gave."""
    data = bytes(raw)
    calls = b'"functionCall"' in data
    unsigned = calls and capabilities.signatures and b'"thoughtSignature"' not in data
    with_ids = not capabilities.call_ids and b'"id"' in data and (calls or b'"functionResponse"' in data)
    if not unsigned and not with_ids:
        return raw
    content = msgspec.json.decode(data)
    if unsigned:
        _sign_first_call(content["parts"])
    if with_ids:
        _drop_ids(content["parts"])
    return encode_json(content)


def _drop_ids(parts: list[Any]) -> None:
    for part in parts:
        for kind in ("functionCall", "functionResponse"):
            if isinstance(part.get(kind), dict):
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
        if isinstance(part, dict) and "functionCall" in part:
            part.setdefault("thoughtSignature", SKIP_SIGNATURE)
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
    value = result.value
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
