"""Our values as Gemini's: the body of a request, joined from pieces that were encoded once.

Above is the client, which sends the body. This module knows which model and API the body is for only through
`Capabilities`. What Gemini sent goes back as it came; what another provider's model said is encoded anew.
"""

from collections.abc import Sequence
from threading import Lock
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from midspan._types.exchange import ModelRequest
from midspan._types.messages import History, Message
from midspan._types.parts import Blob, Opaque, Part, ProviderData, Text, Thought, ToolCall, ToolResult, is_local_id
from midspan.errors import ConfigError
from midspan.providers.gemini.capabilities import Capabilities
from midspan.providers.gemini.config import HEAD, encode_config
from midspan.providers.gemini.decode import ORIGIN, encode_json, part_of, raw_parts, signature_of
from midspan.providers.gemini.lenient import fields_of

Encoded = bytes | memoryview | Raw

# For calls that Gemini did not make itself: https://ai.google.dev/gemini-api/docs/thought-signatures
SKIP_SIGNATURE = "skip_thought_signature_validator"


def request_body(request: ModelRequest, capabilities: Capabilities, continuation_token: str | None = None) -> bytes:
    """Return the JSON that asks for the next turn."""
    config = request.config
    head, tail = config.derived(("gemini", capabilities), lambda: encode_config(config, capabilities))
    if continuation_token is not None:
        tail += b',"continuationToken":' + encode_json(continuation_token)
    return body_of(request.history, tail, capabilities, head=head)


def body_of(history: History, tail: bytes, capabilities: Capabilities, *, head: bytes = HEAD) -> bytes:
    """Return a request of these contents between `head` and the fields of `tail`.

    Only new messages are encoded; the bytes of the others are copied, once.
    """
    body = b""

    def extend(known: _Contents | None, messages: tuple[Message, ...]) -> _Contents:
        nonlocal body
        if known and _is_one_turn(history.messages[-len(messages) - 1], messages[0]):
            known, messages = None, history.messages
        contents: list[Encoded] = [known.encoded] if known else []
        for content in encode_messages(messages, capabilities):
            contents += (b",", content) if contents else (content,)
        body = _joined(head, contents, tail)
        # The bytes are kept as a view into this body, not copied out of it.
        encoded = memoryview(body)[len(head) : -len(tail) - 2]
        return known.extended(encoded) if known else _Contents(_Buffer(encoded), len(encoded))

    contents = history.derived(capabilities.contents_dialect, extend)
    return body or _joined(head, [contents.encoded] if contents else [], tail)


class _Buffer:
    """The encoded contents of the longest history of a conversation."""

    __slots__ = ("encoded", "lock")

    def __init__(self, encoded: memoryview) -> None:
        self.encoded = encoded
        self.lock = Lock()


class _Contents:
    """The encoded contents of a history: the first `length` bytes of a buffer.

    Each longer history of a conversation replaces the buffer, so all the histories that a caller keeps, as of a series
    of chats, share the bytes of one request instead of holding one each.
    """

    __slots__ = ("_buffer", "_length")

    def __init__(self, buffer: _Buffer, length: int) -> None:
        self._buffer = buffer
        self._length = length

    def __len__(self) -> int:
        return self._length

    @property
    def encoded(self) -> memoryview:
        return self._buffer.encoded[: self._length]

    def extended(self, encoded: memoryview) -> "_Contents":
        """Return the contents of a longer history, which begin with these."""
        buffer = self._buffer
        with buffer.lock:
            if len(buffer.encoded) == self._length:
                buffer.encoded = encoded
                return _Contents(buffer, len(encoded))
        return _Contents(_Buffer(encoded), len(encoded))  # another history has continued this one already


def _joined(head: bytes, contents: list[Encoded], tail: bytes) -> bytes:
    return b"".join((head if contents else head.removesuffix(b","), *contents, b"]", tail, b"}"))


def encode_messages(messages: Sequence[Message], capabilities: Capabilities) -> list[Encoded]:
    """Return the contents for these messages. Messages that Gemini wants as one turn are joined."""
    if not any(map(_is_one_turn, messages, messages[1:])):
        return [content for message in messages if (content := encode_message(message, capabilities))]
    contents: list[Encoded] = []
    turn: list[Message] = []
    for message in messages:
        if turn and not _is_one_turn(turn[-1], message):
            contents.append(_encode_turn(turn, capabilities))
            turn = []
        turn.append(message)
    if turn:
        contents.append(_encode_turn(turn, capabilities))
    return [content for content in contents if content]


def _is_one_turn(first: Message, second: Message) -> bool:
    """Whether two messages in a row must be one content.

    The server refuses a call that follows other words of the model, and results of one turn in several contents. Other
    APIs have both in their histories. What Gemini sent itself stays as it is.
    """
    if first.role != second.role:
        return False
    if first.role == "user":
        return all(type(part) is ToolResult for message in (first, second) for part in message.parts)
    return not (_is_as_sent(first) and _is_as_sent(second))


def _encode_turn(turn: list[Message], capabilities: Capabilities) -> Encoded:
    if len(turn) == 1:
        return encode_message(turn[0], capabilities)
    fields: dict[str, Any] = {}
    parts: list[Raw] = []
    for message in turn:
        content = encode_message(message, capabilities)
        if content:
            fields |= fields_of(content)
            parts += raw_parts(Raw(content))
        if any(type(part) is ToolCall for part in message.parts):
            capabilities = replace(capabilities, signatures=False)  # only the first call of a turn needs a signature
    return encode_json({**fields, "parts": parts}) if parts else b""


def _is_as_sent(message: Message) -> bool:
    data = message.provider_data
    return data is not None and bool(data.raw) and data.origin == ORIGIN


def encode_message(message: Message, capabilities: Capabilities) -> Encoded:
    """Return one content; nothing for a message without parts, because the API refuses a content without parts."""
    try:
        data = message.provider_data
        if data is not None and data.raw and data.origin == ORIGIN and message.parts:
            return _as_sent(message, data.raw, capabilities)
        parts = _parts(message, capabilities)
        return encode_json({"role": message.role, "parts": parts}) if parts else b""
    except (TypeError, UnicodeEncodeError, RecursionError) as error:
        raise ConfigError(f"a message of the {message.role} is not JSON serializable: {error}") from error


def _as_sent(message: Message, raw: Raw, capabilities: Capabilities) -> Encoded:
    """Return what Gemini sent, untouched, unless this model refuses something that another one gave."""
    unsigned = capabilities.signatures and _lacks_signature(message.parts)
    with_ids = not capabilities.call_ids and any(map(_has_id, message.parts))
    foreign = not capabilities.server_side_parts and any(map(_is_server_side, message.parts))
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


def _lacks_signature(parts: tuple[Part, ...]) -> bool:
    """Whether the first call has no signature; the others need none."""
    for part in parts:
        if type(part) is ToolCall:
            return signature_of(part) is None
    return False


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
    is_ours = data is not None and data.origin == ORIGIN
    parts: list[Any] = []
    needs_signature = capabilities.signatures and message.role == "model"
    for part in message.parts:
        encoded = _part(part, is_ours, capabilities)
        if encoded is None:
            continue
        if needs_signature and type(part) is ToolCall:
            encoded, needs_signature = _signed(encoded, signature_of(part)), False  # only the first call must have one
        parts.append(encoded)
    if not capabilities.media_in_results:
        parts += [_blob(blob) for result in message.results if result.content for blob in result.media]
    return parts


def _signed(call: Any, signature: str | None) -> Any:
    """Return an encoded call with a signature: its own, or the value that tells the server not to check it."""
    if isinstance(call, Raw):
        return call if signature is not None else {**fields_of(call), "thoughtSignature": SKIP_SIGNATURE}
    return {**call, "thoughtSignature": call.get("thoughtSignature") or SKIP_SIGNATURE}


def _sign_first_call(parts: list[Any]) -> None:
    for part in parts:
        if isinstance(part, dict) and isinstance(part.get("functionCall"), dict):
            part["thoughtSignature"] = part.get("thoughtSignature") or SKIP_SIGNATURE
            return


def _part(part: Part, is_ours: bool, capabilities: Capabilities) -> Any:
    """A part of a message that Gemini did not send, or that was edited since."""
    data = part.provider_data
    if data is not None and data.origin == ORIGIN and data.raw:
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
        call: dict[str, Any] = {"name": part.name, "args": part.arguments}
        return {"functionCall": {"id": part.id, **call} if _sends_id(part.id, capabilities) else call}
    return _blob(part) if isinstance(part, Blob) else None


def signed(part: Part, signature: str) -> Part:
    """Return a part with a thought signature, as Gemini would have sent it."""
    plain = _part(part, True, _EVERYTHING)
    raw = encode_json({**plain, "thoughtSignature": signature})
    return replace(part, provider_data=ProviderData(ORIGIN, Raw(raw)))


_EVERYTHING = Capabilities(signatures=False)


def _blob(blob: Blob) -> dict[str, Any]:
    if blob.url is not None:
        return {"fileData": {"fileUri": blob.url, "mimeType": blob.media_type}}
    return {"inlineData": {"mimeType": blob.media_type, "data": blob.base64}}


def _response(result: ToolResult, capabilities: Capabilities) -> dict[str, Any]:
    value = result.model_value if result.content else result.value
    if result.is_error:
        value = value if isinstance(value, dict) and "error" in value else {"error": value}
    elif not isinstance(value, dict):
        value = {capabilities.result_key: value}
    if result.hint is not None:
        value = {**value, "note": result.hint}
    response: dict[str, Any] = {"name": result.name, "response": value}
    if _sends_id(result.id, capabilities):
        response["id"] = result.id
    if result.content and capabilities.media_in_results and result.media:
        response["parts"] = [_blob(blob) for blob in result.media]
    return response


def _sends_id(id: str, capabilities: Capabilities) -> bool:
    """Whether the server gave this id and takes it back; one of ours is never sent."""
    return capabilities.call_ids and not is_local_id(id)
