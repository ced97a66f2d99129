"""The JSON body of a request, joined from pieces that were encoded once.

Every turn of a conversation sends all its messages again. A body is built from the bytes of the previous one and of
the new messages, so the cost of a turn does not grow with the cost of encoding the conversation.
"""

import re
from collections.abc import Callable, Hashable, Sequence
from hashlib import blake2b
from threading import Lock

import msgspec

from midspan._types.messages import History, Message
from midspan._types.parts import ToolResult

EncodeMessages = Callable[[Sequence[Message]], Sequence[bytes]]
"""Encodes messages in a row; the number of results may differ, because wires split and join messages differently."""


def join_body(history: History, key: Hashable, encode: EncodeMessages, head: bytes, tail: bytes) -> bytes:
    """Return `head`, the encoded messages separated by commas, and `tail`.

    Only messages that are new since the last request are encoded. `key` identifies the encoding.
    """
    body = b""

    def extend(known: EncodedMessages | None, messages: tuple[Message, ...]) -> EncodedMessages:
        nonlocal body
        if known is not None and history.messages[-len(messages) - 1].role == messages[0].role:
            known, messages = None, history.messages  # `encode` may join them with what precedes them
        pieces: list[bytes | memoryview] = [known.encoded] if known is not None and len(known) else []
        for encoded in encode(messages):
            pieces += (b",", encoded) if pieces else (encoded,)
        body = b"".join((head if pieces else head.removesuffix(b","), *pieces, tail))
        view = memoryview(body)[len(head) : len(body) - len(tail)]
        return EncodedMessages(_Buffer(view), len(view)) if known is None else known.extended(view)

    encoded = history.derived(key, extend)
    return body or b"".join((head, encoded.encoded, tail))


class _Buffer:
    """The encoded messages of the longest history of a conversation."""

    __slots__ = ("encoded", "lock")

    def __init__(self, encoded: memoryview) -> None:
        self.encoded = encoded
        self.lock = Lock()


class EncodedMessages:
    """The encoded messages of a history: the first `length` bytes of a buffer.

    Each longer history of a conversation replaces the buffer, so all the histories that a caller keeps share the bytes
    of one request instead of holding one each.
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

    def extended(self, encoded: memoryview) -> "EncodedMessages":
        """Return the messages of a longer history, which begin with these."""
        buffer = self._buffer
        with buffer.lock:
            if len(buffer.encoded) == self._length:
                buffer.encoded = encoded
                return EncodedMessages(buffer, len(encoded))
        return EncodedMessages(_Buffer(encoded), len(encoded))  # another history has continued this one already


def join_turns(
    messages: Sequence[Message], is_separate: Callable[[Message], bool] = lambda _: False
) -> list[list[Message]]:
    """Return the messages as turns: messages of the same role in a row are one turn, unless one `is_separate`."""
    turns: list[list[Message]] = []
    for message in messages:
        last = turns[-1][-1] if turns else None
        if last is not None and last.role == message.role and not is_separate(last) and not is_separate(message):
            turns[-1].append(message)
        else:
            turns.append([message])
    return turns


def result_text(result: ToolResult) -> str:
    """Return what a tool returned as text, for services that accept only text: a string as it is, others as JSON."""
    value = result.model_value
    if value is None and (result.content or not result.is_error):
        text = ""
    else:
        text = value if isinstance(value, str) else json_text(value)
    return f"{text}\n\n{result.hint}" if result.hint is not None and text else text or result.hint or ""


def json_text(value: object) -> str:
    """Return a value as JSON text."""
    return msgspec.json.encode(value).decode()


def fitting_id(id: str, pattern: re.Pattern[str]) -> str:
    """Return the id of a call, or one derived from it if the service does not accept its characters or its length."""
    if pattern.fullmatch(id):
        return id
    return f"call_{blake2b(id.encode('utf-8', 'surrogatepass'), digest_size=12).hexdigest()}"
