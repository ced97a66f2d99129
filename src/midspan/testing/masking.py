"""Masks secrets in JSON: known values, and texts with the shape of a key, a token or a password in a URL.

Known are the secrets that the caller lists, the credentials that providers of this process use, and environment
variables whose names and values suggest a secret.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from midspan.providers.auth import secrets_in_use

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
        "k_": r"[sr]k_(?:live|test)_\w{10,}",  # Stripe
        "gh": r"gh[pousr]_\w{20,}|github_pat_\w{20,}",  # "gith" has it, too
        "glpat-": r"glpat-[\w-]{16,}",
        "xox": r"xox[abeoprs]-[\w-]{10,}",  # Slack
        "xapp-": r"xapp-[\w-]{10,}",
        "IA": r"A(?:K|S)IA[0-9A-Z]{16}",  # AWS
        "hf_": r"hf_[A-Za-z0-9]{20,}",
        "npm_": r"npm_[A-Za-z0-9]{30,}",
        "eyJ": r"eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}",  # JSON web tokens
        "key=": r"(?<=[?&]key=)[\w.-]{8,}",
        "PRIVATE KEY": r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    }.items()
}
"""What a secret looks like, by a text that it always has. Searching for that text is much faster."""

_BEARER = re.compile(r"(?<=(?i:bearer)[ \t])\s*(?:(?=\S*\d)[\w.~+/=-]{8,}|[\w.~+/=-]{20,})")
"""A token in a header, whose scheme may be written in any case."""
_STRING_OR_NUMBER = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|-?[0-9][0-9.eE+-]*', re.DOTALL)


class SecretMasker:
    """Replaces secrets by `[masked]` and leaves all other bytes as they are."""

    def __init__(self, secrets: Iterable[str] = (), environment: Mapping[str, str] = os.environ) -> None:
        listed = [secrets] if isinstance(secrets, str) else secrets
        self._known = {*filter(str.strip, listed), *_secrets_of(environment)}

    def mask(self, data: bytes) -> bytes:
        """Mask the secrets in JSON."""
        # The longest first: of two secrets that begin alike, all of the longer one is masked.
        return _mask_json(data, sorted(self._known | secrets_in_use(), key=len, reverse=True))


def _mask_json(data: bytes, secrets: list[str]) -> bytes:
    def mask_token(match: re.Match[bytes]) -> bytes:
        token = match[0]
        if token[:1] != b'"':
            return _encode(MASK) if token.decode() in secrets else token
        text = msgspec.json.decode(token, type=str) if b"\\" in token else token[1:-1].decode()
        masked = _mask_text(text, secrets)
        return token if masked == text else _encode(masked)

    return _STRING_OR_NUMBER.sub(mask_token, data)


def _mask_text(text: str, secrets: list[str]) -> str:
    if any(secret in text for secret in secrets):
        text = re.sub("|".join(map(re.escape, secrets)), MASK, text)
    for marker, shape in _SHAPES.items():
        if marker in text:
            text = shape.sub(MASK, text)
    if "bearer" in text.lower():
        text = _BEARER.sub(MASK, text)
    if "://" in text and "@" in text:
        text = _URL_PASSWORD.sub(rf"\1{MASK}", text)
    if "\\" in text and text[:1] in ("{", "[", '"'):  # JSON in a string, where secrets are escaped twice
        text = _mask_json(text.encode(), secrets).decode()
    return text


_encode = msgspec.json.Encoder().encode


def _secrets_of(environment: Mapping[str, str]) -> Iterator[str]:
    for name, value in environment.items():
        if (match := _URL_PASSWORD.search(value)) and len(match[2]) >= _MIN_VARIABLE:
            yield match[2]
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper()
        is_secret = _SECRET_NAME.search(words) or (_MAYBE_SECRET_NAME.search(words) and _RANDOM.fullmatch(value))
        if is_secret and len(value.strip()) >= _MIN_VARIABLE:
            yield value.strip()
