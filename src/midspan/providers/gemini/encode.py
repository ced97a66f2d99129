"""A conversation as the body of a request, joined from pieces that were encoded once.

Above is the client, which sends the body. This module knows the model and the API only through `Capabilities`. What
Gemini sent goes back as it came; what another provider's model said is encoded anew. `config` encodes all but contents.
"""

from collections.abc import Sequence
from threading import Lock
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from midspan._types.exchange import ModelRequest
from midspan._types.messages import History, Message
from midspan._types.parts import Blob, Opaque, Part, Text, Thought, ToolCall, ToolResult, is_local_id
from midspan.errors import ConfigError
from midspan.providers.gemini.capabilities import Capabilities
from midspan.providers.gemini.config import HEAD, encode_config
from midspan.providers.gemini.decode import ORIGIN, part_of, raw_parts, signature_of
from midspan.providers.gemini.structs import encode_json, fields_of

Encoded = bytes | memoryview | Raw

SKIP_SIGNATURE = "skip_thought_signature_validator"
"""For calls that Gemini did not make itself: https://ai.google.dev/gemini-api/docs/thought-signatures"""


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


def _joined(head: bytes, contents: list[Encoded], tail: bytes) -> bytes:
    return b"".join((head if contents else head.removesuffix(b","), *contents, b"]", tail, b"}"))


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


def encode_messages(messages: Sequence[Message], capabilities: Capabilities) -> list[Encoded]:
    """Return the contents for these messages. Messages that Gemini wants as one turn are joined."""
    turns: list[list[Message]] = []
    for message in messages:
        if turns and _is_one_turn(turns[-1][-1], message):
            turns[-1].append(message)
        else:
            turns.append([message])
    return [content for turn in turns if (content := _encode_turn(turn, capabilities))]


def _is_one_turn(first: Message, second: Message) -> bool:
    """Whether two messages in a row must be one content.

    The server rejects a call that follows other words of the model, and results of one turn in several contents. The
    histories of other APIs have both. What Gemini sent itself stays as it is.
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
    """Return one content; nothing for a message without parts, because the API rejects a content without parts."""
    data = message.provider_data
    is_as_sent = data is not None and data.raw and data.origin == ORIGIN and message.parts
    if is_as_sent and not _needs_changes(message.parts, capabilities):
        return data.raw  # type: ignore[union-attr]  # it is not None
    try:
        parts = _encode_parts(message, capabilities)
        fields = fields_of(data.raw) if is_as_sent else {"role": message.role}  # type: ignore[union-attr]
        return encode_json({**fields, "parts": parts}) if parts else b""
    except (TypeError, UnicodeEncodeError, RecursionError) as error:
        raise ConfigError(f"a message of the {message.role} is not JSON serializable: {error}") from error


def _needs_changes(parts: tuple[Part, ...], capabilities: Capabilities) -> bool:
    """Whether this model rejects something in a content that another model of Gemini sent."""
    if capabilities.signatures:
        first_call = next((part for part in parts if type(part) is ToolCall), None)
        if first_call is not None and signature_of(first_call) is None:
            return True
    return (not capabilities.call_ids and any(map(_has_id, parts))) or (
        not capabilities.server_side_parts and any(map(_is_server_side, parts))
    )


def _has_id(part: Part) -> bool:
    return isinstance(part, ToolCall | ToolResult) and not is_local_id(part.id)


def _is_server_side(part: Part) -> bool:
    """Whether it is a call that the server made itself, or the result of one."""
    return isinstance(part, Opaque) and part.name in ("toolCall", "toolResponse")


def _encode_parts(message: Message, capabilities: Capabilities) -> list[Any]:
    is_ours = message.provider_data is not None and message.provider_data.origin == ORIGIN
    needs_signature = capabilities.signatures and message.role == "model"
    parts: list[Any] = []
    for part in message.parts:
        encoded = _encode_part(part, is_ours, capabilities)
        if encoded is None:
            continue
        if needs_signature and type(part) is ToolCall:  # only the first call of a turn must have a signature
            needs_signature = False
            if signature_of(part) is None:
                fields = fields_of(encoded) if isinstance(encoded, Raw) else encoded
                encoded = {**fields, "thoughtSignature": SKIP_SIGNATURE}
        parts.append(encoded)
    if not capabilities.media_in_results:
        parts += [_blob(blob) for result in message.results if result.content for blob in result.media]
    return parts


def _encode_part(part: Part, is_ours: bool, capabilities: Capabilities) -> Any:
    data = part.provider_data
    if data is not None and data.origin == ORIGIN and data.raw:
        return _encode_sent_part(part, data.raw, capabilities)
    if is_ours and isinstance(part, Thought):
        return {"text": part.text, "thought": True}
    return _encode_plain_part(part, capabilities)


def _encode_sent_part(part: Part, raw: Raw, capabilities: Capabilities) -> Any:
    """Return a part that Gemini sent: its bytes if they can go back, else what it says now, with its signature."""
    if isinstance(part, Opaque):
        return raw if capabilities.server_side_parts or not _is_server_side(part) else None
    as_sent = part_of(raw, lambda: part.id)  # type: ignore[union-attr]  # only calls and results need an id
    is_unchanged = encode_json(as_sent) == encode_json(part)
    if is_unchanged and (capabilities.media_in_results or not isinstance(part, ToolResult)):
        return raw if capabilities.call_ids or not _has_id(part) else _without_id(raw)
    rest = {name: value for name, value in fields_of(raw).items() if name not in _PART_KINDS}
    plain = {"text": part.text} if isinstance(part, Text | Thought) else _encode_plain_part(part, capabilities)
    return {**plain, **({"thought": True} if isinstance(part, Thought) else {}), **rest}


_PART_KINDS = frozenset(("text", "thought", "functionCall", "functionResponse", "inlineData", "fileData"))


def _without_id(raw: Raw) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.json.decode(raw)
    for kind in ("functionCall", "functionResponse"):
        if isinstance(fields.get(kind), dict):
            fields[kind].pop("id", None)
    return fields


def _encode_plain_part(part: Part, capabilities: Capabilities) -> Any:
    """Return a part that the user, a tool or another provider's model made.

    Thoughts and opaque parts of another model mean nothing to Gemini and are left out.
    """
    if isinstance(part, ToolResult):
        return {"functionResponse": _encode_result(part, capabilities)}
    if isinstance(part, Text):
        return {"text": part.text} if part.text else None
    if isinstance(part, ToolCall):
        call: dict[str, Any] = {"name": part.name, "args": part.arguments}
        return {"functionCall": {"id": part.id, **call} if _sends_id(part.id, capabilities) else call}
    return _blob(part) if isinstance(part, Blob) else None


def _blob(blob: Blob) -> dict[str, Any]:
    if blob.url is not None:
        return {"fileData": {"fileUri": blob.url, "mimeType": blob.media_type}}
    return {"inlineData": {"mimeType": blob.media_type, "data": blob.base64}}


def _encode_result(result: ToolResult, capabilities: Capabilities) -> dict[str, Any]:
    value = result.model_value if result.content else result.value
    if result.is_error:
        value = value if isinstance(value, dict) and value.get("error") else {"error": value}
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
