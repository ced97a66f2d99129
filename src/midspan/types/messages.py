"""Turns of a conversation, and the conversation itself."""

from collections.abc import Iterable, Iterator
from typing import Literal, Self, overload

import msgspec
from msgspec import Raw, Struct

from midspan.types.parts import Part, Text, ToolCall, ToolResult

Role = Literal["user", "model"]

NO_BYTES = Raw(b"")
"""Stands for bytes that are not there. It is compared by identity where defaults are left out of a document."""


class Message(Struct, frozen=True, gc=False, omit_defaults=True):
    """One turn. What came from a provider also keeps the exact bytes it came in."""

    role: Role
    parts: tuple[Part, ...]
    origin: str | None = None
    """The dialect that `raw` is written in; its provider gets `raw` back, every other one gets `parts`."""
    raw: Raw = NO_BYTES

    @classmethod
    def user(cls, *parts: Part | str) -> Self:
        """A turn of the user, or of the tools, which speak in the user's role."""
        return cls("user", tuple(Text(part) if isinstance(part, str) else part for part in parts))

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if type(part) is Text)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls that want an answer; one that the provider answered itself, in the same turn, does not."""
        calls = [part for part in self.parts if type(part) is ToolCall]
        answered = {part.id for part in self.parts if type(part) is ToolResult} if calls else ()
        return tuple([call for call in calls if call.id not in answered] if answered else calls)

    @property
    def results(self) -> tuple[ToolResult, ...]:
        return tuple(part for part in self.parts if type(part) is ToolResult)

    def edited(self, parts: Iterable[Part]) -> Self:
        """This turn with other parts; signatures stay on the parts that had them.

        If all of the parts are of this turn, in any order, their original bytes stay too, with whatever in them only
        the provider knows. With a part among them that is new or changed, the bytes of all go.
        """
        chosen = tuple(parts)
        return type(self)(self.role, chosen, self.origin, _bytes_of(chosen, self))


def _bytes_of(chosen: tuple[Part, ...], message: Message) -> Raw:
    """The bytes of a turn with only these of its parts; none if they cannot be told apart in it."""
    places = {id(part): at for at, part in enumerate(message.parts)}
    if not message.raw or not chosen or any(id(part) not in places for part in chosen):
        return NO_BYTES
    try:
        fields = _fields_of(message.raw)
        pieces = _items_of(fields["parts"])
    except (msgspec.DecodeError, KeyError):
        return NO_BYTES  # a dialect that does not write one piece for each part
    if len(pieces) != len(message.parts):
        return NO_BYTES
    kept = b",".join([pieces[places[id(part)]] for part in chosen])
    return Raw(msgspec.json.encode(fields | {"parts": Raw(b"[%b]" % kept)}))


_fields_of = msgspec.json.Decoder(dict[str, Raw]).decode
_items_of = msgspec.json.Decoder(list[Raw]).decode


class History:
    """Messages in order. It never changes; it grows by making the next one, which shares what is encoded.

    `encoded` belongs to the encoders: by dialect, the bytes of the messages so far, so that a turn
    costs the encoding of what is new and one copy of the rest.
    """

    __slots__ = ("encoded", "messages")

    def __init__(
        self,
        messages: Iterable[Message] = (),
        encoded: dict[str, tuple[int, bytes | memoryview]] | None = None,
    ):
        self.messages = tuple(messages)
        self.encoded = encoded if encoded is not None else {}

    def plus(self, *messages: Message) -> "History":
        return History(self.messages + messages, self.encoded.copy())

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)

    def __contains__(self, message: object) -> bool:
        return message in self.messages

    @overload
    def __getitem__(self, place: int) -> Message: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Message, ...]: ...

    def __getitem__(self, place: int | slice) -> Message | tuple[Message, ...]:
        return self.messages[place]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, tuple):
            return self.messages == other
        return isinstance(other, History) and self.messages == other.messages

    __hash__ = None  # type: ignore[assignment]  # it is equal by its messages, which have no hash

    def __reduce__(self) -> tuple[type["History"], tuple[tuple[Message, ...]]]:
        return History, (self.messages,)  # what is encoded is made again where the copy is used

    def __repr__(self) -> str:
        return f"History({list(self.messages)!r})"
