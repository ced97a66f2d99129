"""Thought signatures of the emulator: made so that its own can be told from others, and from what was done to them."""

import hmac
from base64 import b64encode
from binascii import a2b_base64, b2a_base64
from hashlib import blake2b
from typing import NamedTuple

_MARK = b"\x12wasat"
_MARK_IN_BASE64 = b64encode(_MARK).decode()
_KEY = b"thought signatures of the local Gemini"
_TAG_SIZE = 16
_NONCE_SIZE = 9
_FROM_URLSAFE = str.maketrans("-_", "+/")

_SKIP_WORDS = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
SKIP = frozenset((*_SKIP_WORDS, *(b64encode(word.encode()).decode().rstrip("=") for word in _SKIP_WORDS)))
"""What stands for a signature where there is none; some clients send it in base64."""


def sign(name: str, nonce: int) -> str:
    """The signature for a call of this name, or for words if it is empty."""
    data = _MARK + nonce.to_bytes(_NONCE_SIZE, "big")
    return b2a_base64(data + _tag(data, name), newline=False).decode()


class Verdict(NamedTuple):
    """What a signature on a call is worth."""

    forged: str | None = None
    """What the server says to one of its own that is not as it was given."""
    foreign: bool = False
    """It was made elsewhere, and is none of ours to judge."""


def verdict(signature: str, name: str) -> Verdict:
    """What a signature on a call of this name is worth."""
    if not signature.startswith(_MARK_IN_BASE64):
        return _GENUINE if signature.rstrip("=") in SKIP else _FOREIGN
    data = a2b_base64(signature.translate(_FROM_URLSAFE) + "=" * (-len(signature) % 4))
    if len(data) != len(_MARK) + _NONCE_SIZE + _TAG_SIZE:
        return Verdict("Corrupted thought signature.")
    signed, tag = data[:-_TAG_SIZE], data[-_TAG_SIZE:]
    return _GENUINE if hmac.compare_digest(tag, _tag(signed, name)) else Verdict("Invalid thought signature.")


_GENUINE = Verdict()
_FOREIGN = Verdict(foreign=True)


_keyed = blake2b(key=_KEY, digest_size=_TAG_SIZE)


def _tag(data: bytes, name: str) -> bytes:
    made = _keyed.copy()
    made.update(data + name.encode())
    return made.digest()
