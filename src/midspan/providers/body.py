"""The JSON body of a request, joined from pieces that were encoded once.

Every turn of a conversation sends all its messages again. A body is built from the bytes of the previous one and of
the new messages, so the cost of a turn does not grow with the cost of encoding the conversation.
"""

import re
from collections.abc import Callable, Hashable, Sequence
from threading import Lock

import msgspec
from msgspec import Raw

from midspan._types.messages import History, Message
from midspan._types.parts import ToolResult

EncodedMessage = bytes | memoryview | Raw
EncodeMessages = Callable[[Sequence[Message]], Sequence[EncodedMessage]]
"""Encodes messages in a row. The number of results may differ, because APIs split and join messages differently."""
IsOneTurn = Callable[[Message, Message], bool]
"""Whether two messages in a row are encoded as one."""


def join_body(
    history: History, key: Hashable, encode: EncodeMessages, is_one_turn: IsOneTurn, head: bytes, tail: bytes
) -> bytes:
    """Return `head`, the encoded messages separated by commas, and `tail`.

    Only messages that are new since the last request are encoded; the bytes of the others are copied, once. `key`
    identifies the encoding. A head that ends with a comma loses it if there are no messages.
    """
    body = b""

    def extend(known: _Encoded | None, messages: tuple[Message, ...]) -> _Encoded:
        nonlocal body
        if known is None or not known[1] or is_one_turn(history.messages[-len(messages) - 1], messages[0]):
            body = _joined(head, encode(history.messages), tail)
            known = None
        else:
            body = _joined(head, [known[0][0][: known[1]], *encode(messages)], tail)
        # The bytes are kept as a view into this body, not copied out of it.
        encoded = memoryview(body)[len(head) : len(body) - len(tail)]
        return ([encoded], len(encoded)) if known is None else _extended(known, encoded)

    buffer, length = history.derived(key, extend)
    return body or _joined(head, [buffer[0][:length]] if length else [], tail)


def _joined(head: bytes, messages: Sequence[EncodedMessage], tail: bytes) -> bytes:
    if not messages:
        return head.removesuffix(b",") + tail
    pieces: list[EncodedMessage] = [head]
    for message in messages:
        pieces += (message, b",")
    pieces[-1] = tail
    return b"".join(pieces)


_Encoded = tuple[list[memoryview], int]
"""The encoded messages of a history: a buffer, which is a list of one item, and how many of its bytes they are.

Each longer history of a conversation replaces the bytes in the buffer. So all histories that a caller keeps, such as
those of a series of chats, share the bytes of one request instead of holding one each.
"""
_lock = Lock()


def _extended(messages: _Encoded, encoded: memoryview) -> _Encoded:
    """Return the messages of a longer history, which begin with these."""
    buffer, length = messages
    with _lock:
        if len(buffer[0]) == length:
            buffer[0] = encoded
            return buffer, len(encoded)
    return [encoded], len(encoded)  # another history has continued this one already


def have_same_role(first: Message, second: Message) -> bool:
    return first.role == second.role


def never(_first: Message, _second: Message) -> bool:
    return False


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
    from hashlib import blake2b  # ids rarely need it

    return f"call_{blake2b(id.encode('utf-8', 'surrogatepass'), digest_size=12).hexdigest()}"
