"""Secrets out of JSON: whatever looks like a key or a token, and the values of variables that are named like one."""

import os
import re
from collections.abc import Iterable, Mapping

import msgspec

from midspan.errors import ConfigError
from midspan.providers.recording.vocabulary import own_words

MASK = "[masked]"

_SHORTEST_VALUE = 6
"""A variable with a shorter value is a switch or a number, and would be found in every second word."""

_NAMES = re.compile("KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.IGNORECASE)

# What goes before must be no letter, or pictures in base64 would hold keys now and then.
_LOOKS = r"""
(?<![A-Za-z0-9_-])(?:
    AIza[\w-]{20,}                                # Google API keys
  | AQ\.[\w-]{20,}
  | ya29\.[\w.-]{8,}                              # OAuth of Google
  | sk-[\w-]{12,} | [sr]k_(?:live|test)_\w{10,}   # OpenAI, Anthropic, Stripe
  | gh[pousr]_\w{20,} | github_pat_\w{20,} | glpat-[\w-]{16,}
  | xox[abeoprs]-[\w-]{10,} | xapp-[\w-]{10,}
  | (?:AKIA|ASIA)[0-9A-Z]{16} | hf_[A-Za-z0-9]{20,} | npm_[A-Za-z0-9]{30,}
  | eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}         # JSON web tokens
)
| (?<=[?&]key=)[\w.-]{8,}
| -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----.*?(?:-----END\ [A-Z ]*PRIVATE\ KEY-----|\Z)
"""
_BEARER = r"\b(?P<bearer>[Bb]earer|BEARER)[\ \t]+(?:(?=\S*\d)[\w.~+/=-]{8,}|[\w.~+/=-]{20,})"

_URL = r"\b(?P<url>[a-zA-Z][\w+.-]{0,30}://[^\s/?\#:@\"'<>]{0,200}:)[^\s/?\#@\"'<>]{1,500}(?=@)"

_SIGNS = (
    "AIza", "AQ.", "ya29.", "sk-", "k_live_", "k_test_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_",
    "glpat-", "xoxa-", "xoxb-", "xoxe-", "xoxo-", "xoxp-", "xoxr-", "xoxs-", "xapp-", "AKIA", "ASIA", "hf_", "npm_",
    ".eyJ", "key=", "://", ":\\/\\/", "PRIVATE KEY", "earer", "EARER",
)  # fmt: skip
"""What every text that looks like a secret holds. To look for these is far cheaper than to look for secrets."""
_LONG = 1_000

_PIECE = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*', re.DOTALL)
"""A text or a number, as JSON writes them."""


class Masking:
    """Puts `[masked]` where a secret was; all else stays byte for byte."""

    def __init__(self, secrets: Iterable[str] = (), environment: Mapping[str, str] = os.environ) -> None:
        named = [value.strip() for name, value in environment.items() if _NAMES.search(name)]
        values = {value for value in named if len(value) >= _SHORTEST_VALUE} | {*checked_secrets(secrets)}
        exact = "|".join(re.escape(value) for value in sorted(values, key=len, reverse=True))
        patterns = [f"(?:{_LOOKS})", _BEARER, _URL, *([f"(?:{exact})"] if exact else [])]
        self._secret = re.compile("|".join(patterns), re.VERBOSE | re.DOTALL)
        self._numbers = {value.encode() for value in values}
        self._signs = (*_SIGNS, *map(_unescaped, values))
        self._byte_signs = tuple(sign.encode() for sign in self._signs)

    def masked(self, data: bytes) -> bytes:
        """The JSON without secrets, in keys, texts and numbers, however they are escaped."""
        if b"\\u" not in data and not any(sign in data for sign in self._byte_signs):
            return data
        return _PIECE.sub(self._piece, data)

    def _text(self, text: str) -> str:
        if len(text) > _LONG and not any(sign in text for sign in self._signs):
            return text
        return self._secret.sub(_mask, text)

    def _piece(self, found: re.Match[bytes]) -> bytes:
        piece = found[0]
        if piece[:1] != b'"':
            return _MASKED if piece in self._numbers else piece
        text = msgspec.json.decode(piece, type=str) if b"\\" in piece else piece[1:-1].decode()
        hidden = text if text in own_words() else self._text(text)
        if b"\\" in piece and hidden[:1] in ("{", "[", '"'):  # JSON within a text, where secrets are escaped twice
            hidden = self.masked(hidden.encode()).decode()
        return piece if hidden == text else msgspec.json.encode(hidden)


_MASKED = msgspec.json.encode(MASK)


def _mask(found: re.Match[str]) -> str:
    if found["url"]:  # its password alone
        return f"{found['url']}{MASK}"
    return f"{found['bearer']} {MASK}" if found["bearer"] else MASK


def _unescaped(value: str) -> str:
    """The longest piece of a value that JSON writes as it is, if it does not write a letter as its number."""
    return max(re.split(r'[\x00-\x1f"\\/\x7f]', value), key=len)


def checked_secrets(secrets: Iterable[str]) -> tuple[str, ...]:
    """The texts that were given, if they are such."""
    if isinstance(secrets, Mapping) or not isinstance(secrets, Iterable):
        raise ConfigError(f"secrets is a list of texts that shall not be recorded, not {type(secrets).__name__}")
    given = (secrets,) if isinstance(secrets, str) else tuple(secrets)
    if not all(isinstance(one, str) and one.strip() for one in given):
        raise ConfigError("secrets are texts that shall not be recorded, none of them empty")
    return given
