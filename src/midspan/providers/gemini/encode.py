"""Our values as Gemini's: the body of a request, joined from pieces that were written once.

Above is the client, which sends the body. This module knows which model and API the body is for only through
`Capabilities`. What Gemini sent goes back as it came; what another provider's model said is encoded anew.
"""

from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from midspan.errors import ConfigError
from midspan.providers.gemini.capabilities import Capabilities
from midspan.providers.gemini.config import encode_config, encode_system_as_content
from midspan.providers.gemini.reading import DIALECT, encode_json, fields_of, part_of, signature_of
from midspan.types.exchange import ModelRequest
from midspan.types.messages import History, Message
from midspan.types.parts import Blob, Opaque, Part, ProviderData, Text, Thought, ToolCall, ToolResult, is_local_id

Written = bytes | memoryview | Raw

# For calls that Gemini did not make itself: https://ai.google.dev/gemini-api/docs/thought-signatures
SKIP_SIGNATURE = "skip_thought_signature_validator"


def request_body(request: ModelRequest, capabilities: Capabilities, continuation_token: str | None = None) -> bytes:
    """The JSON that asks for the next turn."""
    tail = encode_config(request.config, capabilities)
    if continuation_token is not None:
        tail += b',"continuationToken":' + encode_json(continuation_token)
    return body_of(request.history, tail, capabilities, first=encode_system_as_content(request.config, capabilities))


def body_of(history: History, tail: bytes, capabilities: Capabilities, *, first: bytes = b"") -> bytes:
    """A request of these contents, `first` before them and the fields of `tail` after them.

    Only new messages are encoded; the bytes of the others are copied, once.
    """
    head, body = b'{"contents":[' + first, b""

    def extend(known: Written | None, messages: tuple[Message, ...]) -> Written:
        nonlocal body
        new = [encode_message(message, capabilities) for message in messages]
        contents = _with_commas(known or b"", new)
        body = b"".join((head, *contents, b"]", tail, b"}"))
        # The bytes are kept as a view into this body, not copied out of it.
        return memoryview(body)[len(head) : len(head) + sum(map(len, contents))]

    contents = history.derived(capabilities.contents_dialect, extend)
    return body or b"".join((head, contents, b"]", tail, b"}"))


def _with_commas(known: Written, new: list[Written]) -> list[Written]:
    pieces = [known] if known else []
    for piece in new:
        if piece:
            pieces += (b",", piece) if pieces else (piece,)
    return pieces


def encode_message(message: Message, capabilities: Capabilities) -> Written:
    """One content; nothing for a message that holds nothing, because the API refuses a content without parts."""
    try:
        data = message.provider_data
        if data is not None and data.raw and data.origin == DIALECT and message.parts:
            return _returned(message, data.raw, capabilities)
        parts = _parts(message, capabilities)
        return encode_json({"role": message.role, "parts": parts}) if parts else b""
    except (TypeError, UnicodeEncodeError, RecursionError) as error:
        raise ConfigError(f"a message of the {message.role} holds something that JSON cannot say: {error}") from error


def _returned(message: Message, raw: Raw, capabilities: Capabilities) -> Written:
    """What Gemini sent, untouched, unless this model refuses something that another one gave."""
    first = next((part for part in message.parts if type(part) is ToolCall), None)
    unsigned = capabilities.signatures and first is not None and signature_of(first) is None
    with_ids = not capabilities.call_ids and any(_has_id(part) for part in message.parts)
    foreign = not capabilities.server_side_parts and any(_is_server_side(part) for part in message.parts)
    if not (unsigned or with_ids or foreign):
        return raw
    content = msgspec.json.decode(raw)
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
    data = message.provider_data
    is_ours = data is not None and data.origin == DIALECT
    parts: list[Any] = []
    needs_signature = capabilities.signatures and message.role == "model"
    for part in message.parts:
        written = _part(part, is_ours, capabilities)
        if written is None:
            continue
        if needs_signature and type(part) is ToolCall:
            written, needs_signature = _signed(written, signature_of(part)), False  # only the first call must have one
        parts.append(written)
    if not capabilities.media_in_results:
        parts += [_blob(blob) for result in message.results for blob in result.media]
    return parts


def _signed(written: Any, signature: str | None) -> Any:
    """A call with a signature: its own, or the value that tells the server not to check it."""
    if isinstance(written, Raw):
        return written if signature is not None else {**fields_of(written), "thoughtSignature": SKIP_SIGNATURE}
    return {**written, "thoughtSignature": written.get("thoughtSignature") or SKIP_SIGNATURE}


def _sign_first_call(parts: list[Any]) -> None:
    for part in parts:
        if isinstance(part, dict) and isinstance(part.get("functionCall"), dict):
            part["thoughtSignature"] = part.get("thoughtSignature") or SKIP_SIGNATURE
            return


def _part(part: Part, is_ours: bool, capabilities: Capabilities) -> Any:
    """A part of a message that Gemini did not send, or that was edited since."""
    data = part.provider_data
    if data is not None and data.origin == DIALECT and data.raw:
        return _sent_part(part, data.raw, capabilities)
    if is_ours and isinstance(part, Thought):
        return {"text": part.text, "thought": True}
    return _plain_part(part, capabilities)


def _sent_part(part: Part, raw: Raw, capabilities: Capabilities) -> Any:
    """A part that Gemini sent: the very bytes if they can go back, else what the part says now with its signature."""
    if isinstance(part, Opaque):
        return raw if capabilities.server_side_parts or not _is_server_side(part) else None
    again = part_of(raw, lambda: part.id)  # type: ignore[union-attr]  # only calls and results have an id to be made
    is_unchanged = encode_json(again) == encode_json(part)
    if is_unchanged and (capabilities.media_in_results or not isinstance(part, ToolResult)):
        return raw if capabilities.call_ids or not _has_id(part) else _without_id(raw)
    rest = {name: value for name, value in fields_of(raw).items() if name not in _PART_KINDS}
    plain = {"text": part.text} if isinstance(part, Text | Thought) else _plain_part(part, capabilities)
    return {**plain, **({"thought": True} if isinstance(part, Thought) else {}), **rest}


def _without_id(raw: Raw) -> Any:
    plain = msgspec.json.decode(raw)
    _drop_ids([plain])
    return plain


_PART_KINDS = frozenset(("text", "thought", "functionCall", "functionResponse", "inlineData", "fileData"))


def _plain_part(part: Part, capabilities: Capabilities) -> Any:
    """A part that the user, a tool or another provider's model made.

    The thoughts of another model are not Gemini's, and its opaque parts are nonsense to it.
    """
    if isinstance(part, ToolResult):
        return {"functionResponse": _response(part, capabilities)}
    if isinstance(part, Text):
        return {"text": part.text} if part.text else None
    if isinstance(part, ToolCall):
        return {"functionCall": {**_id(part.id, capabilities), "name": part.name, "args": part.arguments}}
    return _blob(part) if isinstance(part, Blob) else None


def signed(part: Part, signature: str) -> Part:
    """Return a part with a thought signature, as Gemini would have sent it."""
    plain = _part(part, True, _EVERYTHING)
    raw = encode_json({**plain, "thoughtSignature": signature})
    return replace(part, provider_data=ProviderData(DIALECT, Raw(raw)))


_EVERYTHING = Capabilities(signatures=False)


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
    if result.hint is not None:
        value = {**value, "note": result.hint}
    written = {"name": result.name, "response": value, **_id(result.id, capabilities)}
    if result.media and capabilities.media_in_results:
        written["parts"] = [_blob(blob) for blob in result.media]
    return written


def _id(id: str, capabilities: Capabilities) -> dict[str, str]:
    """The id where the server gave it and takes it back; one of ours is never shown."""
    return {"id": id} if capabilities.call_ids and not is_local_id(id) else {}
