"""Text and JSON that can be sent.

JSON is Unicode, so unpaired surrogates, as file names may contain them, are not allowed.
"""

import re
from typing import Any

import msgspec

from midspan.errors import ConfigError

MAX_MESSAGE_CHARS = 4_000
"""The length of an error message for a model."""
CHARACTERS_PER_TOKEN = 4
"""A rough estimate for English and JSON."""
NOT_JSON = (TypeError, ValueError, RecursionError, msgspec.MsgspecError)
"""What encoding raises for a value that JSON cannot express."""
encode_sorted = msgspec.json.Encoder(order="deterministic").encode
"""Encode as JSON with sorted keys: equal values give equal bytes."""
SURROGATE = re.compile("[\ud800-\udfff]")
_TOKEN = re.compile(r"[!-~]+")
_MIN_TOKEN_CHARS = 16


def check_text(text: Any, label: str) -> None:
    """Raise ConfigError if a value is not a string that can be sent. `label` says what it is."""
    if not isinstance(text, str):
        raise ConfigError(f"{label} must be a string, got {text!r:.80}")
    try:
        text.isascii() or text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"{label} is not valid Unicode: it contains {text[error.start]!r} at character {error.start}"
        ) from None


def check_token(token: Any) -> None:
    """Raise ConfigError if a value cannot be used as the access token of a server."""
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise ConfigError("a token must be printable ASCII without spaces")
    if len(token) < _MIN_TOKEN_CHARS:
        raise ConfigError(f"a token has fewer than {_MIN_TOKEN_CHARS} characters; try `openssl rand -hex 32`")


def count_noun(count: float, noun: str) -> str:
    """Return a number before a noun: `1 turn`, `2 turns`, `0.5 seconds`."""
    number = f"{count:,}" if isinstance(count, int) else f"{count:g}"
    return f"{number} {noun}" if number == "1" else f"{number} {noun}s"


def estimate_tokens(text: str) -> int:
    return len(text) // CHARACTERS_PER_TOKEN + 1


def replace_surrogates(text: str) -> str:
    """Replace unpaired surrogates, which JSON cannot encode."""
    return SURROGATE.sub("\ufffd", text)


def truncate(text: str, max_chars: int = MAX_MESSAGE_CHARS) -> str:
    """Replace unpaired surrogates, which JSON cannot encode, and cut text that is too long, with a note."""
    text = replace_surrogates(text)
    if len(text) <= max_chars:
        return text
    return f"{text[:max_chars]}… [cut: the first {max_chars:,} of {len(text):,} characters]"


def canonical_json(value: Any) -> bytes:
    """Encode a value so that equal JSON gives equal bytes; 3.0 and 3 are one number, and models write both."""
    try:
        encoded = encode_sorted(value)
        if encoded.find(b".0") < 0:  # `in` would try to read an integer first
            return encoded
        return encode_sorted(_with_integers(msgspec.json.decode(encoded)))
    except NOT_JSON:
        try:
            return repr(value).encode("utf-8", "backslashreplace")
        except RecursionError:
            return object.__repr__(value).encode()  # nested too deeply to be compared


def _with_integers(value: Any) -> Any:
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {key: _with_integers(item) for key, item in value.items()}
    return [_with_integers(item) for item in value] if isinstance(value, list) else value
