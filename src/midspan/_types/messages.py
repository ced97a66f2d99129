"""Messages, and the history of a conversation."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Literal, Self, TypeVar, overload

from msgspec import Struct

from midspan._types.parts import Part, ProviderData, Text, ToolCall, ToolResult

Role = Literal["user", "model"]
ROLES: dict[str, Role] = {"user": "user", "model": "model", "assistant": "model", "function": "user", "tool": "user"}
"""Our role for each role that other APIs and older clients use."""
T = TypeVar("T")


class Message(Struct, frozen=True, gc=False, omit_defaults=True):
    """A message of the user or of the model. A message from a provider keeps the form in which the provider sent it."""

    role: Role
    parts: tuple[Part, ...]
    provider_data: ProviderData | None = None
    """The message as its provider wrote it. That provider gets these bytes back; every other one gets `parts`."""

    @classmethod
    def user(cls, *parts: Part | str) -> Self:
        """Return a message of the user, or with the results of tools, which have the user's role."""
        return cls("user", tuple(Text(part) if isinstance(part, str) else part for part in parts))

    @property
    def text(self) -> str:
        return "".join([part.text for part in self.parts if type(part) is Text])

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls that need a result; those that the provider answered itself, in the same turn, do not."""
        calls, answered = [], set()
        for part in self.parts:
            if type(part) is ToolCall:
                calls.append(part)
            elif type(part) is ToolResult:
                answered.add(part.id)
        return tuple([call for call in calls if call.id not in answered] if answered else calls)

    @property
    def results(self) -> tuple[ToolResult, ...]:
        return tuple([part for part in self.parts if type(part) is ToolResult])

    def with_parts(self, parts: Iterable[Part]) -> Self:
        """Return this message with other parts. Parts that stay keep their `provider_data`, signatures included."""
        data = self.provider_data
        return type(self)(self.role, tuple(parts), None if data is None else ProviderData(data.origin))


class History:
    """Messages in order. A history never changes; `append` returns a longer one that shares the cached values."""

    __slots__ = ("_derived", "messages")

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self.messages = tuple(messages)
        self._derived: dict[Hashable, tuple[int, Any]] = {}
        """Shared with the history this one was appended to; replaced, never mutated."""

    def append(self, *messages: Message) -> "History":
        """Return a history with these messages at its end."""
        longer = object.__new__(History)  # without the work of __init__
        longer.messages = self.messages + messages
        longer._derived = self._derived
        return longer

    def derived(self, key: Hashable, extend: Callable[[T | None, tuple[Message, ...]], T]) -> T:
        """Return what `extend` makes of these messages, computed once and cached here.

        `extend` gets the value of a shorter history that this one was appended to (None if there is none) and the
        messages that are new since. Encoders cache the bytes of a conversation here, so a turn encodes only its own.
        """
        count, cached = self.cached(key)
        value: T = cached if 0 < count == len(self.messages) else extend(cached, self.messages[count:])
        self.cache(key, value)
        return value

    def cached(self, key: Hashable) -> tuple[int, Any]:
        """Return the number of messages that the cached value covers, and the value; (0, None) without one."""
        return self._derived.get(key, (0, None))

    def cache(self, key: Hashable, value: Any) -> None:
        """Cache a value that was derived from all messages of this history."""
        self._derived = {**self._derived, key: (len(self.messages), value)}

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)

    def __contains__(self, message: object) -> bool:
        return message in self.messages

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Message, ...]: ...

    def __getitem__(self, index: int | slice) -> Message | tuple[Message, ...]:
        return self.messages[index]

    def __eq__(self, other: object) -> bool:
        return self.messages == (other.messages if isinstance(other, History) else other)

    __hash__ = None  # type: ignore[assignment]  # compared by its messages, which are not hashable

    def __reduce__(self) -> tuple[type["History"], tuple[tuple[Message, ...]]]:
        return History, (self.messages,)  # derived values are made again where the copy is used

    def __repr__(self) -> str:
        return f"History({list(self.messages)!r})"
