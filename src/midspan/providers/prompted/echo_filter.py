"""Tells a call that a model makes from one that it only repeats from a prompt, a file or a tool result."""

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

from midspan._types.messages import Message
from midspan._types.parts import Blob, Text, ToolResult
from midspan.providers.prompted.calls import NAME_KEYS
from midspan.providers.prompted.history import to_json
from midspan.providers.prompted.scanner import WrittenCall

_MAX_CHARS = 1_000_000
"""In a longer text, every argument counts as found."""
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_WORD = re.compile(r"\w+")
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_QUOTES = r"[\"'“”`*\\]{0,6}"


class EchoFilter:
    """Knows the texts of a conversation that others wrote. They are read when the first call is checked.

    A call is an echo if one of these texts calls the same tool, in whatever form, and contains all words and numbers
    of the arguments. So a quotation is recognised even if the model changed spaces, quotes or the form of the call.
    """

    def __init__(self, messages: Iterable[Message]) -> None:
        self._messages = tuple(messages)
        self._calling: dict[str, list[_Quoted]] = {}
        """The texts that call a tool, by its name."""

    def is_echo(self, call: WrittenCall, nonce: str) -> bool:
        """Whether this call may be a repetition. A call with a nonce repeats only texts that contain the nonce, too."""
        if call.name not in self._calling:
            pattern = _calls_of(call.name)
            texts = [quoted for quoted in self._texts if call.name in quoted.text and pattern.search(quoted.text)]
            self._calling[call.name] = texts
        texts = self._calling[call.name]
        return any(text.contains(call.arguments) for text in texts if nonce in text.text)

    @cached_property
    def _texts(self) -> "list[_Quoted]":
        return [_Quoted(text) for message in self._messages if message.role == "user" for text in _texts_of(message)]


def _calls_of(name: str) -> re.Pattern[str]:
    """Return an expression for the beginning of a call of this tool in any form."""
    tool = re.escape(name)
    return re.compile(
        rf"(?<![\w-]){tool}{_QUOTES}\s*[({{\[<]"
        rf"|(?:[>=\]|]|{_QUOTES}(?:{'|'.join(NAME_KEYS)}){_QUOTES}\s*:|(?i:action|call)\S{{0,80}}:)"
        rf"\s*{_QUOTES}(?:default_api[.:]|functions\.|tools\.)?{tool}(?![\w-])"
    )


def _texts_of(message: Message) -> Iterator[str]:
    yield "".join(part.text for part in message.parts if type(part) is Text)
    for part in message.parts:
        if type(part) is Blob:
            yield _file_text(part)
        elif type(part) is ToolResult:
            value = part.model_value
            yield value if isinstance(value, str) else to_json(value)
            yield from map(_file_text, part.media)


def _file_text(blob: Blob) -> str:
    is_media = blob.media_type.startswith(("image/", "audio/", "video/"))
    return "" if is_media or blob.base64 is None else blob.data.decode("utf-8", "ignore")


class _Quoted:
    """A text that others wrote. What is escaped in it counts in both forms."""

    def __init__(self, text: str) -> None:
        self.text = f"{text}\n{_ESCAPE.sub(_unescape, text)}" if "\\" in text else text

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(_WORD.findall(self.text.casefold()))

    @cached_property
    def _numbers(self) -> frozenset[float]:
        return frozenset(float(number) for number in _NUMBER.findall(self.text))

    def contains(self, value: Any) -> bool:
        """Whether all words and numbers of this value are in the text."""
        if len(self.text) > _MAX_CHARS:
            return True
        if isinstance(value, dict):
            return all(self.contains(key) and self.contains(item) for key, item in value.items())
        if isinstance(value, list | tuple):
            return all(map(self.contains, value))
        if isinstance(value, str):
            words = _WORD.findall(value.casefold())
            return all(word in self._words or (not word.isascii() and word in self.text.casefold()) for word in words)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return not is_number or abs(value) in self._numbers


def _unescape(escape: re.Match[str]) -> str:
    letter = escape[1]
    return chr(int(letter[1:], 16)) if len(letter) > 1 else _ESCAPES.get(letter, letter)
