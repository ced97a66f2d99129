"""The encoded form of a history, kept beside it.

Every turn of a conversation sends all its messages again. A request is joined from the bytes of the previous one and of
the new messages, so the cost of a turn does not grow with that of encoding the conversation.
"""

from collections.abc import Callable, Hashable, Sequence
from threading import Lock

from msgspec import Raw

from midspan._types.messages import History, Message

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
