"""Masks secrets in recordings: known values, and texts with the shape of a key, a token or a password in a URL.

Known are the secrets that the caller lists, the credentials that providers of this process use, and environment
variables whose names and values suggest a secret.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import cache
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import fields, replace

from midspan._types.exchange import RequestConfig
from midspan.providers.auth import secrets_in_use
from midspan.testing.format import ExchangeLine, ToolsLine, encode

MASK = "[masked]"

_MIN_VARIABLE = 6
"""A variable with a shorter value holds a number or a switch, which would be found in many words."""

_SECRET_NAME = re.compile(
    r"(SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL)S?(_|$) | (API|ACCESS|PRIVATE|SIGNING|ENCRYPTION)_?KEYS?(_|$)"
    r"| TOKEN$ | (^|_)PASS$ | _PWD$",
    re.VERBOSE,
)
_MAYBE_SECRET_NAME = re.compile(r"(^|_)(KEY|TOKEN)(_|$)")
"""Also in SORT_KEY or TOKEN_LIMIT; the value decides."""
_RANDOM = re.compile(r"(?=\S*[0-9])(?=\S*[A-Za-z])(?!/)(?!.*://)\S{12,}")
_URL_PASSWORD = re.compile(r"(?<=://)([^\s/?#:@\"'<>]{0,200}:)([^\s/?#@\"'<>]{1,500})(?=@)")

_SHAPES = r"""(?xs:
    (?<![A-Za-z0-9_-])(?:  # base64 data has all of these now and then, after a letter or digit
    AIza[\w-]{20,} | AQ\.[\w-]{20,} | ya29\.[\w.-]{8,}  # Google
    | sk-[\w-]{12,}  # OpenAI, Anthropic
    | [sr]k_(?:live|test)_\w{10,}  # Stripe
    | gh[pousr]_\w{20,} | github_pat_\w{20,} | glpat-[\w-]{16,}
    | xox[abeoprs]-[\w-]{10,} | xapp-[\w-]{10,}  # Slack
    | A(?:K|S)IA[0-9A-Z]{16}  # AWS
    | hf_[A-Za-z0-9]{20,} | npm_[A-Za-z0-9]{30,}
    | eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}  # JSON web tokens
    | (?<=[?&]key=)[\w.-]{8,}
    | (?<=(?i:bearer)[ \t])\s*(?:(?=\S*\d)[\w.~+/=-]{8,}|[\w.~+/=-]{20,})  # in a header
    | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----.*?(?:-----END[ ][A-Z ]*PRIVATE[ ]KEY-----|\Z)))"""
"""What a secret looks like."""
_STRING_OR_NUMBER = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|-?[0-9][0-9.eE+-]*', re.DOTALL)
"""A string without an end is not searched again from each quote in it, which would take quadratic time."""


class SecretMasker:
    """Replaces secrets by `[masked]` and leaves all other bytes as they are."""

    def __init__(self, secrets: Iterable[str] = (), environment: Mapping[str, str] = os.environ) -> None:
        if isinstance(secrets, Mapping):  # os.environ, for example
            secrets = secrets.values()
        listed = [secrets] if isinstance(secrets, str) else secrets
        self._known = {*filter(str.strip, listed), *_secrets_of(environment)}
        self._tool_names: set[str] = set()

    def mask(self, value: Any) -> Any:
        """Mask the secrets in a line of a recording, or in JSON. Words of the file format and names of tools stay."""
        # In a request, the tools have the names that the model uses for them.
        declaration = value.request.config if isinstance(value, ExchangeLine) else value
        if isinstance(declaration, ToolsLine | RequestConfig):
            self._tool_names.update(tool.name for tool in declaration.tools)
        secrets = self._known | secrets_in_use()
        names = frozenset(filter(_pattern(secrets).search, self._tool_names))  # the others need no protection
        # The shapes again: one may begin where a known secret ends.
        patterns = _pattern(secrets, names), _pattern(set(), names)

        def mask_text(text: str) -> str:
            for pattern in patterns:
                text = pattern.sub(lambda match: match[0] if match[0] in names else MASK, text)
            text = _URL_PASSWORD.sub(rf"\1{MASK}", text)
            # It may contain JSON, where secrets are escaped twice.
            return _mask_json(text.encode(), mask_text).decode() if "\\" in text else text

        return _mask(value, mask_text)


def _pattern(secrets: set[str], names: frozenset[str] = frozenset()) -> re.Pattern[str]:
    """Return a pattern for secrets and whole names of tools, the longest first: one may be the start of another."""
    texts = sorted(secrets | names, key=len, reverse=True)
    patterns = [rf"(?<![\w-]){re.escape(text)}(?![\w-])" if text in names else re.escape(text) for text in texts]
    return re.compile("|".join([*patterns, _SHAPES]))


def _mask(value: Any, mask_text: Callable[[str], str]) -> Any:
    match value:
        case Struct():
            values = {name: getattr(value, name) for name in _fields_with_texts(type(value))}
            texts = {name: item for name, item in values.items() if not isinstance(item, int | float)}
            masked = replace(value, **{name: _mask(item, mask_text) for name, item in texts.items()})
            return value if masked == value else masked  # a copy of a default would be encoded
        case tuple() | list():
            return type(value)(_mask(item, mask_text) for item in value)
        case dict():
            return {_mask(key, mask_text): _mask(item, mask_text) for key, item in value.items()}
        case Raw():
            return Raw(_mask_json(bytes(value), mask_text))
        case str() if not isinstance(value, Enum):
            return mask_text(value)
        case int() | float() if mask_text(str(value)) == MASK:
            return MASK
    return value


@cache
def _fields_with_texts(line_type: type[Struct]) -> list[str]:
    """Return the fields that can have any text, not only some words."""
    return [field.name for field in fields(line_type) if "Literal" not in repr(field.type)]


def _mask_json(data: bytes, mask_text: Callable[[str], str]) -> bytes:
    def mask_token(match: re.Match[bytes]) -> bytes:
        token = match[0]
        if token[:1] != b'"':
            return encode(MASK) if mask_text(token.decode()) == MASK else token
        try:
            text = msgspec.json.decode(token, type=str)
        except msgspec.DecodeError:  # text that only resembles JSON
            return token
        masked = mask_text(text)
        return token if masked == text else encode(masked)

    return _STRING_OR_NUMBER.sub(mask_token, data)


def _secrets_of(environment: Mapping[str, str]) -> Iterator[str]:
    for name, value in environment.items():
        if (match := _URL_PASSWORD.search(value)) and len(match[2]) >= _MIN_VARIABLE:
            yield match[2]
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper()
        is_secret = _SECRET_NAME.search(words) or (_MAYBE_SECRET_NAME.search(words) and _RANDOM.fullmatch(value))
        if is_secret and len(value.strip()) >= _MIN_VARIABLE:
            yield value.strip()
