"""Renders a conversation for a model that only knows text.

What the model wrote goes back as it wrote it. Results become text of the user, one line each: line breaks are escaped
in JSON, so no result can look like two. Start marks of calls in prompts and results are escaped, so a model that
repeats them makes no call.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import msgspec
from msgspec import Raw, Struct

from midspan._types.messages import History, Message
from midspan._types.parts import Blob, Opaque, Part, ProviderData, Text, Thought, ToolCall, ToolResult
from midspan.providers.prompted.forms import call_patterns
from midspan.providers.prompted.reader import REJECTED_PART, rejected_call

ORIGIN = "prompted"
_CALL_ID = re.compile(r"gemini_call_(\d{1,9})")


class TurnData(Struct, frozen=True, omit_defaults=True):
    """What a turn of the model keeps beside its parts: the message of the inner provider, and the nonce."""

    message: Message
    nonce: str

    def provider_data(self) -> ProviderData:
        return ProviderData(ORIGIN, Raw(msgspec.json.encode(self)))


def turn_data(message: Message) -> TurnData | None:
    data = message.provider_data
    if data is None or data.origin != ORIGIN or not data.raw:
        return None
    return msgspec.json.decode(data.raw, type=TurnData)


def next_call_number(history: History) -> int:
    """Return the number of the next call in a conversation."""
    ids = (part.id for message in history for part in message.parts if type(part) is ToolCall)
    numbers = (_CALL_ID.fullmatch(id) for id in ids)
    return max((int(number[1]) + 1 for number in numbers if number), default=0)


class TextRenderer:
    """Renders messages as text. Each message of a history is rendered once."""

    def __init__(self, marker: str) -> None:
        self._patterns = call_patterns(marker, other_forms=True)

    def render(self, history: History, names: tuple[str, ...], marker: str) -> History:
        """Return the conversation as text. It keeps what the inner provider derives from it, such as encoded bytes.

        `marker` is the one with which calls of other providers are written.
        """

        def extend(rendered: History | None, new: tuple[Message, ...]) -> History:
            rendered = History() if rendered is None else rendered
            before = history.messages[len(rendered) - 1] if len(rendered) else None
            pairs = zip((before, *new), new, strict=False)
            return rendered.append(*(self._message(previous, message, names, marker) for previous, message in pairs))

        return history.derived((ORIGIN, marker, names), extend)

    def _message(self, before: Message | None, message: Message, names: tuple[str, ...], marker: str) -> Message:
        if message.role == "model":
            data = turn_data(message)
            return data.message if data is not None else _foreign_turn(message, marker)
        parts: list[Part] = [Text(f"TOOL_ERROR {error}") for error in _unreported_errors(before, message)]
        for is_text, group in groupby(message.parts, lambda part: type(part) is Text):
            items = list(group)
            if is_text:
                parts += self._escaped(items, names)
            else:
                parts += (new for part in items for new in (self._result(part) if type(part) is ToolResult else [part]))
        return message if parts == list(message.parts) else Message("user", tuple(_join_texts(parts)))

    def _escaped(self, texts: list[Part], names: tuple[str, ...]) -> list[Part]:
        """Return adjacent texts with their marks escaped. They are read as one, because a mark may be split."""
        text = "\n" + "".join(part.text for part in texts if type(part) is Text)
        escaped = self._patterns.escape(text, lambda first: "\\" + first, names)
        return texts if escaped == text else [Text(escaped[1:])]

    def _result(self, result: ToolResult) -> Iterator[Part]:
        word = "TOOL_ERROR" if result.is_error else "TOOL_RESULT"
        # An escape in JSON stands for the same letter, so the value does not change.
        value = self._patterns.escape(to_json(result.model_value), lambda first: f"\\u{ord(first):04x}", ())
        note = "" if result.hint is None else f"\nNote: {result.hint}"
        yield Text(f"{word} {result.id} {result.name}: {value}{note}")
        yield from result.media


def _unreported_errors(before: Message | None, message: Message) -> Iterator[str]:
    """Yield the errors of rejected calls in the turn before, unless this message already reports them."""
    for part in before.parts if before is not None and before.role == "model" else ():
        rejected = rejected_call(part) if type(part) is Opaque else None
        if rejected is not None and rejected.error not in message.text:
            yield rejected.error


def _foreign_turn(message: Message, marker: str) -> Message:
    """Return a turn of another provider, or one that was edited, with its calls in our form."""
    if not any(type(part) in (ToolCall, ToolResult, Opaque) for part in message.parts):
        return message
    parts: list[Part] = []
    for part in message.parts:
        match part:
            case ToolCall():
                parts.append(Text(f"{marker}: {part.name}({to_json(part.arguments)})"))
            case Text() | Thought() | Blob():
                parts.append(part)
            case Opaque(name) if name == REJECTED_PART:
                rejected = rejected_call(part)
                parts.append(Text(rejected.text if rejected else ""))
    return Message("model", tuple(_join_texts(parts)))


def _join_texts(parts: Iterable[Part]) -> Iterable[Part]:
    """Return the parts with adjacent texts as one, each on a line of its own."""
    joined: list[Part] = []
    for part in parts:
        if type(part) is Text and joined and type(joined[-1]) is Text:
            joined[-1] = Text(f"{joined[-1].text}\n{part.text}")
        else:
            joined.append(part)
    return joined


def to_json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError) as error:
        return msgspec.json.encode(f"a value that is not JSON serializable: {error}").decode()
