"""A conversation in the words of a model that only knows text.

What the model wrote goes back as it wrote it. Results become text of the user, one line each, because a line break in
JSON is escaped and so no result can look like two. What others quote is marked, so that a model which repeats it makes
no call by that.
"""

import re
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

import msgspec
from msgspec import Raw, Struct

from midspan._types.messages import History, Message
from midspan._types.parts import Blob, Opaque, Part, Text, Thought, ToolCall, ToolResult
from midspan.providers.prompted.findings import PART, Declared, refused_of
from midspan.providers.prompted.triggers import Triggers

ORIGIN = "prompted"
_NEAR = 300
_CALL_ID = re.compile(r"gemini_call_(\d{1,9})")


class Kept(Struct, frozen=True, omit_defaults=True):
    """What a turn of the model keeps beside its parts: the turn as the inner provider gave it, and the mark."""

    message: Message
    mark: str | None = None


def kept_in(message: Message) -> Kept | None:
    data = message.provider_data
    return msgspec.json.decode(data.raw, type=Kept) if data is not None and data.origin == ORIGIN and data.raw else None


def next_number(history: History) -> int:
    """The number of the next call in a conversation."""
    ids = (part.id for message in history for part in message.parts if type(part) is ToolCall)
    found = (_CALL_ID.fullmatch(id) for id in ids)
    return max((int(one[1]) + 1 for one in found if one), default=0)


class Renderer:
    """Messages as a model without tools takes them; each message of a history is rendered once."""

    def __init__(self, marker: str, triggers: Triggers) -> None:
        self._marker = marker
        self._triggers = triggers

    def history(self, history: History, tools: Declared, mark: str | None) -> History:
        """The same conversation as text. It keeps what the inner provider derives from it, such as encoded bytes."""
        word = f"{self._marker}[{mark}]" if mark else self._marker

        def extend(known: History | None, new: tuple[Message, ...]) -> History:
            known = History() if known is None else known
            before = history.messages[len(known) - 1] if len(known) else None
            pairs = zip((before, *new), new, strict=False)
            return known.append(*(self._rendered(previous, message, tools, word) for previous, message in pairs))

        return history.derived((ORIGIN, word, tools.names), extend)

    def _rendered(self, before: Message | None, message: Message, tools: Declared, word: str) -> Message:
        if message.role == "model":
            kept = kept_in(message)
            return kept.message if kept is not None else self._foreign(message, word)
        told = "\n".join(self._untold(before, message))
        parts: list[Part] = [Text(told)] if told else []
        for part in self._whole(message.parts, tools):
            parts += self._said(part, tools)
        return message if parts == list(message.parts) else Message("user", tuple(_joined(parts)))

    def _whole(self, parts: Iterable[Part], tools: Declared) -> Iterable[Part]:
        """The parts, but texts as one where a call would begin in one and end in another."""
        made: list[Part] = []
        for is_text, run in groupby(parts, lambda part: type(part) is Text):
            some = list(run)
            texts = [part.text for part in some if type(part) is Text]
            whole = "".join(texts)
            if (
                is_text
                and len(texts) > 1
                and self.quoted(whole, tools) != "".join(self.quoted(one, tools) for one in texts)
            ):
                some = [Text(whole)]
            made += some
        return made

    def _said(self, part: Part, tools: Declared) -> Iterable[Part]:
        match part:
            case Text(text):
                return [Text(self.quoted(text, tools))]
            case ToolResult():
                kind = "TOOL_ERROR" if part.is_error else "TOOL_RESULT"
                note = "" if part.hint is None else f"\nNote: {part.hint}"
                return [Text(f"{kind} {part.id} {part.name}: {self._value(part.model_value)}{note}"), *part.media]
        return [part]

    def _untold(self, before: Message | None, message: Message) -> Iterable[str]:
        """What was wrong with calls of the turn before, unless this turn says it already."""
        words = message.text
        for part in before.parts if before is not None and before.role == "model" else ():
            refused = refused_of(part) if type(part) is Opaque else None
            if refused is not None and refused.problem not in words:
                yield f"TOOL_ERROR {refused.problem}"

    def _foreign(self, message: Message, word: str) -> Message:
        """A turn of another provider's model, or one that was edited: its calls in our form."""
        if not any(type(part) in (ToolCall, ToolResult, Opaque) for part in message.parts):
            return message
        parts: list[Part] = []
        for part in message.parts:
            match part:
                case ToolCall():
                    parts.append(Text(f"{word}: {part.name}({_json(part.arguments)})"))
                case Text() | Thought() | Blob():
                    parts.append(part)
                case Opaque(name) if name == PART:
                    refused = refused_of(part)
                    parts.append(Text(refused.text if refused else ""))
        return Message("model", tuple(_joined(parts)))

    def quoted(self, text: str, tools: Declared) -> str:
        """The text with a backslash before whatever a reader would take for the beginning of a call."""
        return self._marked(text, tools, lambda first: "\\" + first)

    def _value(self, value: Any) -> str:
        # In JSON an escape says the same letter, so the value stays what it is.
        return self._marked(_json(value), None, lambda first: f"\\u{ord(first):04x}")

    def _marked(self, text: str, tools: Declared | None, escaped: Callable[[str], str]) -> str:
        source = "\n" + text if tools is not None else text

        def mark(place: re.Match[str]) -> str:
            if self._triggers.is_result(place):
                return place[0]
            if self._triggers.is_line(place):
                near = place.string[place.start() : place.start() + _NEAR]
                if tools is None or not any(name in near for name in tools.names):
                    return place[0]
            return escaped(place[0][0]) + place[0][1:]

        # Twice, because one beginning can stand within another: print(default_api.
        marked = self._triggers.place.sub(mark, self._triggers.place.sub(mark, source))
        return marked[1:] if tools is not None else marked


def _joined(parts: Iterable[Part]) -> Iterable[Part]:
    """Texts one below the other, as one."""
    joined: list[Part] = []
    for part in parts:
        if type(part) is Text and joined and type(joined[-1]) is Text:
            joined[-1] = Text(f"{joined[-1].text}\n{part.text}")
        else:
            joined.append(part)
    return joined


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError) as error:
        return msgspec.json.encode(f"a value that JSON cannot say: {error}").decode()


def kept_bytes(message: Message, mark: str | None) -> Raw:
    return Raw(msgspec.json.encode(Kept(message, mark)))
