"""The encoded form of a history, kept beside it.

Every turn of a conversation sends all its messages again. A request is joined from the bytes of the previous one and of
the new messages, so the cost of a turn does not grow with that of encoding the conversation.
"""

from collections.abc import Callable, Hashable, Sequence
from threading import Lock

from msgspec import Raw, Struct

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
    count, known = history.cached(key)
    messages = history.messages[count:]
    if known is not None and (
        known.head != head or (messages and is_one_turn(history.messages[count - 1], messages[0]))
    ):
        known, messages = None, history.messages
    pieces = [*encode(messages)]
    if known is not None:
        pieces.insert(0, known.buffer[0][: known.length])
    elif pieces:
        pieces[0] = b"".join((head, pieces[0]))
    else:
        return head.removesuffix(b",") + tail
    pieces[-1] = b"".join((pieces[-1], tail))
    body = b",".join(pieces)
    if messages:
        # The bytes are kept as a view into this body, not copied out of it.
        view = memoryview(body)[: len(body) - len(tail)]
        history.cache(key, _Encoded(head, [view], len(view)) if known is None else known.extended(view))
    return body


_lock = Lock()


class _Encoded(Struct, frozen=True, gc=False):
    """The start of a request, with the messages of a history.

    Each longer history of a conversation replaces the bytes in the buffer. So all histories that a caller keeps, such
    as those of a series of chats, share the bytes of one request instead of holding one each.
    """

    head: bytes
    buffer: list[memoryview]
    """A list of one item."""
    length: int
    """How many bytes of the buffer belong to this history."""

    def extended(self, view: memoryview) -> "_Encoded":
        """Return the start of a request with a longer history, which begins with this one."""
        buffer = self.buffer
        with _lock:
            if len(buffer[0]) == self.length:
                buffer[0] = view
            else:  # another history has continued this one already
                buffer = [view]
        return _Encoded(self.head, buffer, len(view))
