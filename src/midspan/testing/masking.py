"""Masks secrets in JSON: known values, and texts with the shape of a key, a token or a password in a URL.

Known are the secrets that the caller lists, the credentials that providers of this process use, and environment
variables whose names and values say that they hold a secret.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct, inspect

from midspan.errors import ConfigError
from midspan.providers.auth import secrets_in_use
from midspan.testing.format import Line

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

# Not after a letter or digit: base64 data has all of these now and then.
_SHAPES = {
    marker: re.compile(rf"(?<![A-Za-z0-9_-])(?:{shape})", re.DOTALL)
    for marker, shape in {
        "AIza": r"AIza[\w-]{20,}",  # Google API keys
        "AQ.": r"AQ\.[\w-]{20,}",
        "ya29.": r"ya29\.[\w.-]{8,}",  # Google OAuth
        "sk-": r"sk-[\w-]{12,}",  # OpenAI, Anthropic
        "k_live_": r"[sr]k_live_\w{10,}",  # Stripe
        "k_test_": r"[sr]k_test_\w{10,}",
        "gh": r"gh[pousr]_\w{20,}|github_pat_\w{20,}",  # "gith" has it, too
        "glpat-": r"glpat-[\w-]{16,}",
        "xox": r"xox[abeoprs]-[\w-]{10,}",  # Slack
        "xapp-": r"xapp-[\w-]{10,}",
        "AKIA": r"AKIA[0-9A-Z]{16}",  # AWS
        "ASIA": r"ASIA[0-9A-Z]{16}",
        "hf_": r"hf_[A-Za-z0-9]{20,}",
        "npm_": r"npm_[A-Za-z0-9]{30,}",
        "eyJ": r"eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}",  # JSON web tokens
        "key=": r"(?<=[?&]key=)[\w.-]{8,}",
        "earer": r"(?<=earer[ \t])\s*(?:(?=\S*\d)[\w.~+/=-]{8,}|[\w.~+/=-]{20,})",
        "EARER": r"(?<=EARER[ \t])\s*(?:(?=\S*\d)[\w.~+/=-]{8,}|[\w.~+/=-]{20,})",
        "PRIVATE KEY": r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    }.items()
}
"""What a secret looks like, by a text that it always has. Searching for that text is much faster."""

_STRING_OR_NUMBER = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|-?[0-9][0-9.eE+-]*', re.DOTALL)


class SecretMasker:
    """Replaces secrets by `[masked]` and leaves all other bytes as they are."""

    def __init__(self, secrets: Iterable[str] = (), environment: Mapping[str, str] = os.environ) -> None:
        listed = [secrets] if isinstance(secrets, str) else [*secrets]
        if isinstance(secrets, Mapping) or not all(isinstance(secret, str) and secret.strip() for secret in listed):
            raise ConfigError("secrets must be a list of non-empty strings")
        self._known = {*listed, *_secrets_of(environment)}

    def mask(self, data: bytes) -> bytes:
        """Mask the secrets of a JSON document, in keys, strings and numbers, escaped or not."""
        # The longest first: of two secrets that begin alike, all of the longer one is masked.
        secrets = sorted(self._known | secrets_in_use(), key=len, reverse=True)
        return _STRING_OR_NUMBER.sub(lambda match: self._mask_token(match[0], secrets), data)

    def _mask_token(self, token: bytes, secrets: list[str]) -> bytes:
        if token[:1] != b'"':
            return _encode(MASK) if token.decode() in secrets else token
        is_escaped = b"\\" in token
        text = msgspec.json.decode(token, type=str) if is_escaped else token[1:-1].decode()
        if text in _format_words():
            return token
        masked = _mask_text(text, secrets)
        if is_escaped and masked[:1] in ("{", "[", '"'):  # JSON in a string, where secrets are escaped twice
            masked = self.mask(masked.encode()).decode()
        return token if masked == text else _encode(masked)


def _mask_text(text: str, secrets: list[str]) -> str:
    if any(secret in text for secret in secrets):
        text = re.sub("|".join(map(re.escape, secrets)), MASK, text)
    for marker, shape in _SHAPES.items():
        if marker in text:
            text = shape.sub(MASK, text)
    return _URL_PASSWORD.sub(rf"\1{MASK}", text) if "://" in text and "@" in text else text


_encode = msgspec.json.Encoder().encode


def _secrets_of(environment: Mapping[str, str]) -> Iterator[str]:
    for name, value in environment.items():
        if (match := _URL_PASSWORD.search(value)) and len(match[2]) >= _MIN_VARIABLE:
            yield match[2]
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper()
        is_secret = _SECRET_NAME.search(words) or (_MAYBE_SECRET_NAME.search(words) and _RANDOM.fullmatch(value))
        if is_secret and len(value.strip()) >= _MIN_VARIABLE:
            yield value.strip()


@cache
def _format_words() -> frozenset[str]:
    """The names and tags of the format itself. They stay even if a secret is the same word."""
    return frozenset(_strings(inspect.type_info(Line), set()))


def _strings(value: Any, seen: set[int]) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, inspect.EnumType):
        yield from (member.value for member in value.cls)
    elif isinstance(value, Struct) and id(value) not in seen:
        seen.add(id(value))
        yield from _strings(msgspec.structs.astuple(value), seen)
    elif isinstance(value, tuple):
        for item in value:
            yield from _strings(item, seen)
