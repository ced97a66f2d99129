"""Detects calls that a model only repeats from a prompt, a file or a result."""

import re
from collections.abc import Iterable
from functools import cached_property

from midspan._types.messages import Message
from midspan._types.parts import Blob, ToolCall
from midspan.providers.encoding import json_text, result_text
from midspan.providers.prompted.calls import NAME_KEYS
from midspan.providers.prompted.scanner import NAMESPACE

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
# From Thai on, scripts without spaces between words: each letter is a token.
_TOKEN = re.compile(r"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|[^\W\d_\u0e00-\U0010ffff]+|[^\W\d_]")
_LITERALS = frozenset(["true", "false", "null"])
_QUOTES = r"[\"'“”`*\\]{0,6}"


class EchoFilter:
    """Knows the texts of a conversation that others wrote. They are read when the first call is checked.

    A call is an echo if one of these texts calls the same tool, in whatever form, and contains all words and numbers
    of the arguments. So a quotation is recognised even if the model changed spaces, quotes or the form of the call.
    """

    def __init__(self, messages: Iterable[Message]) -> None:
        self._messages = tuple(messages)
        self._calling: dict[str, list[tuple[str, frozenset[str | float]]]] = {}
        """The texts that call a tool, by its name, each with its tokens."""

    def is_echo(self, call: ToolCall, nonce: str) -> bool:
        """Whether this call may be a repetition. A call with a nonce repeats only texts that contain the nonce, too."""
        if call.name not in self._calling:
            pattern = _calls_of(call.name)
            self._calling[call.name] = [(text, _tokens(text)) for text in self._texts if pattern.search(text)]
        wanted = _tokens(_unescaped(json_text(call.arguments))) - _LITERALS
        return any(nonce in text and wanted <= tokens for text, tokens in self._calling[call.name])

    @cached_property
    def _texts(self) -> list[str]:
        """The texts of users, results and files, raw and with their escape sequences decoded."""
        texts: list[str] = []
        for message in self._messages:
            if message.role == "user":
                blobs = [part for part in message.parts if isinstance(part, Blob)]
                blobs += [blob for result in message.results for blob in result.media]
                texts += [message.text, *map(result_text, message.results), *map(_file_text, blobs)]
        return [f"{text}\n{_unescaped(text)}" if "\\" in text else text for text in texts]


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda escape: chr(int(escape[1], 16)) if escape[1] else " ", text)


def _tokens(text: str) -> frozenset[str | float]:
    """Return the words and the numbers of a text, without signs."""
    tokens = _TOKEN.findall(text.casefold())
    return frozenset(float(token) if token[0].isdecimal() else token for token in tokens)


def _calls_of(name: str) -> re.Pattern[str]:
    """Return an expression for the beginning of a call of this tool in any form."""
    tool = re.escape(name)
    return re.compile(
        rf"(?<![\w-]){tool}{_QUOTES}\s*[({{\[<]"
        rf"|(?:[>=\]|]|{_QUOTES}(?:{'|'.join(NAME_KEYS)}){_QUOTES}\s*:|(?i:action|call)\S{{0,80}}:)"
        rf"\s*{_QUOTES}(?:{NAMESPACE})?{tool}(?![\w-])"
    )


def _file_text(blob: Blob) -> str:
    is_media = blob.media_type.startswith(("image/", "audio/", "video/"))
    return "" if is_media or blob.base64 is None else blob.data.decode("utf-8", "ignore")
