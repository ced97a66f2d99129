"""Requests are joined from the bytes of the previous one and of the new messages."""

from collections.abc import Sequence

from midspan._types.encoded import MessageEncoder, join_body
from midspan._types.messages import History, Message

A, B, C = (Message.user(text) for text in "abc")


class Texts:
    """Encodes messages as their texts, and notes which of them it encodes."""

    def __init__(self, *, joins_all: bool = False) -> None:
        self.encoded: list[str] = []
        self.encoder = MessageEncoder("texts", self._encode, lambda _first, _second: joins_all)

    def _encode(self, messages: Sequence[Message]) -> list[bytes]:
        self.encoded += [message.text for message in messages]
        return [message.text.encode() for message in messages]

    def join(self, history: History, head: bytes = b"[") -> bytes:
        return join_body(history, self.encoder, head, b"]")


def test_only_new_messages_are_encoded() -> None:
    texts, first = Texts(), History([A])
    assert texts.join(first) == b"[a]"
    assert texts.join(first) == b"[a]"
    second = first.append(B, C)
    assert (texts.join(second), texts.join(second)) == (b"[a,b,c]", b"[a,b,c]")
    assert texts.encoded == ["a", "b", "c"]


def test_request_without_messages_has_no_comma_before_its_tail() -> None:
    texts = Texts()
    assert texts.join(History(), b"[x,") == b"[x]"
    assert texts.join(History([A]), b"[x,") == b"[x,a]"


def test_all_messages_are_encoded_again_after_another_head() -> None:
    texts, first = Texts(), History([A])
    texts.join(first)
    assert texts.join(first.append(B), b"{") == b"{a,b]"
    assert texts.encoded == ["a", "a", "b"]


def test_messages_that_are_one_turn_are_encoded_together() -> None:
    texts, first = Texts(joins_all=True), History([A])
    texts.join(first)
    texts.join(first)
    assert texts.encoded == ["a"]
    texts.join(first.append(B))
    assert texts.encoded == ["a", "a", "b"]


def test_several_histories_may_continue_the_same_one() -> None:
    texts, first = Texts(), History([A])
    texts.join(first)
    second, other = first.append(B), first.append(C)
    assert (texts.join(second), texts.join(other), texts.join(first)) == (b"[a,b]", b"[a,c]", b"[a]")
    assert (texts.join(second.append(C)), texts.join(other.append(B))) == (b"[a,b,c]", b"[a,c,b]")
    assert texts.encoded == ["a", "b", "c", "c", "b"]


def test_histories_of_one_conversation_share_the_bytes_of_one_request() -> None:
    texts, first = Texts(), History([A])
    texts.join(first)
    second, other = first.append(B), first.append(C)
    texts.join(second)
    texts.join(other)
    starts = [history.cached("texts")[1] for history in (first, second, other)]
    assert starts[0].buffer is starts[1].buffer is not starts[2].buffer
