"""The encoded form of a history, cached in it.

Every turn of a conversation sends all its messages again. A request is joined from the bytes of the previous one and of
the new messages, so each message is encoded only once.
"""

from collections.abc import Callable, Hashable, Sequence
from threading import Lock

from msgspec import Raw, Struct

from midspan._types.messages import History, Message

EncodedMessage = bytes | memoryview | Raw


class MessageEncoder(Struct, frozen=True, gc=False):
    """How one API encodes messages."""

    key: Hashable
    """Identifies the encoding."""
    encode: Callable[[Sequence[Message]], Sequence[EncodedMessage]]
    """Encodes messages in a row. The number of results may differ, because APIs split and join messages differently."""
    is_one_turn: Callable[[Message, Message], bool] = lambda _first, _second: False
    """Whether two messages in a row are encoded as one."""


def join_body(history: History, encoder: MessageEncoder, head: bytes, tail: bytes) -> bytes:
    """Return `head`, the encoded messages separated by commas, and `tail`.

    Only messages that are new since the last request are encoded; the bytes of the others are copied, once. A head that
    ends with a comma loses it if there are no messages.
    """
    messages = history.messages
    count, prefix = history.cached(encoder.key)
    new = messages[count:]
    if not count or prefix.head != head or (new and encoder.is_one_turn(messages[count - 1], new[0])):
        count, new, prefix = 0, messages, _Prefix(head, _Buffer(head, len(head)), len(head))
    contents = b",".join(encoder.encode(new))
    if not count and not contents:
        return head.removesuffix(b",") + tail
    sent = memoryview(prefix.buffer.body)[: prefix.length]  # a view, so that the join copies it only once
    body = b"".join((sent, b"," if count and contents else b"", contents, tail))
    if new:
        history.cache(encoder.key, prefix.extended(body, len(body) - len(tail)))
    return body


class _Buffer(Struct, gc=False):
    """The last request of a conversation."""

    body: bytes
    length: int
    """How many bytes precede the tail."""


class _Prefix(Struct, frozen=True, gc=False):
    """The start of a request, with the messages of a history.

    Each longer history of a conversation replaces the bytes in the buffer. So all histories that a caller keeps, such
    as those of a series of chats, share the bytes of one request instead of holding one each.
    """

    head: bytes
    buffer: _Buffer
    length: int
    """How many bytes of the buffer belong to this history."""

    def extended(self, body: bytes, length: int) -> "_Prefix":
        """Return the start of a request with a longer history, which begins with this one."""
        buffer = self.buffer
        with _lock:
            if buffer.length == self.length:
                buffer.body, buffer.length = body, length
            else:  # another history has continued this one already
                buffer = _Buffer(body, length)
        return _Prefix(self.head, buffer, length)


_lock = Lock()
