"""Thought signatures of the emulator: made so that its own can be told from others, and from what was done to them."""

import hmac
from base64 import b64encode
from binascii import a2b_base64, b2a_base64
from hashlib import blake2b
from math import isfinite
from typing import Any, NamedTuple

import msgspec

_MARK = b"\x12midspan:"
_END = b"\x92gemini-local"
"""Two marks, so that damage to one of them does not make the signature look like a foreign one. Their lengths keep both
marks aligned to whole base64 groups."""
_MARK_IN_BASE64 = b64encode(_MARK).decode()
_PIECES = frozenset(_MARK_IN_BASE64[:size] for size in range(2, len(_MARK_IN_BASE64)))
_END_IN_BASE64 = b64encode(_END[1:]).decode()
_KEY = b"thought signatures of the local Gemini"
_TAG_SIZE = 16
_NONCE_SIZE = 10
_SIZE = len(_MARK) + _NONCE_SIZE + _TAG_SIZE + len(_END)
_FROM_URLSAFE = str.maketrans("-_", "+/")

_SKIP_WORDS = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
SKIP = frozenset((*_SKIP_WORDS, *(b64encode(word.encode()).decode().rstrip("=") for word in _SKIP_WORDS)))
"""What stands for a signature where there is none; some clients send it in base64."""


def sign(name: str, nonce: int, args: Any = None, place: int = 0) -> str:
    """The signature for the n-th call of an answer, or for words if the name is empty."""
    data = _MARK + nonce.to_bytes(_NONCE_SIZE, "big")
    return b2a_base64(data + _tag(data, name, args, place) + _END, newline=False).decode()


class Verdict(NamedTuple):
    """What a signature on a call is worth."""

    forged: str | None = None
    """What the server says to one of its own that is not as it was given."""
    foreign: bool = False
    """It was made elsewhere, and is none of ours to judge."""


GENUINE = Verdict()
_FOREIGN = Verdict(foreign=True)
_CORRUPTED = Verdict("Corrupted thought signature.")
_INVALID = Verdict("Invalid thought signature.")


def verdict(signature: str, name: str, args: dict[str, Any] | None = None, place: int = 0) -> Verdict:
    """What a signature on this call is worth."""
    if not _is_own(signature):
        return GENUINE if signature.rstrip("=") in SKIP else _FOREIGN
    data = a2b_base64(signature.translate(_FROM_URLSAFE) + "=" * (-len(signature) % 4))
    if len(data) != _SIZE or not data.startswith(_MARK) or not data.endswith(_END):
        return _CORRUPTED
    signed, tag = data[: -_TAG_SIZE - len(_END)], data[-_TAG_SIZE - len(_END) : -len(_END)]
    return GENUINE if hmac.compare_digest(tag, _tag(signed, name, args, place)) else _INVALID


def _is_own(signature: str) -> bool:
    """Whether one of the marks is left, or nothing but the beginning of one."""
    return signature.startswith(_MARK_IN_BASE64) or signature.endswith(_END_IN_BASE64) or signature in _PIECES


_encode = msgspec.json.Encoder(order="sorted").encode
_keyed = blake2b(key=_KEY, digest_size=_TAG_SIZE)


def _tag(data: bytes, name: str, args: dict[str, Any] | None, place: int) -> bytes:
    made = _keyed.copy()
    made.update(b"%b%d:%d:%b" % (data, place, len(name), name.encode()))
    if args:
        made.update(_encode(_canonical(args)))
    return made.digest()


def _canonical(value: Any) -> Any:
    """The same for all ways in which clients write it: 3 and 3.0 are one number, and a null may be left out."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return value
    if kind is dict:
        return {key: said for key, inner in value.items() if (said := _canonical(inner)) is not None}
    if kind is list or kind is tuple:
        return [_canonical(inner) for inner in value]
    if kind is float or kind is int:
        return _number(value)
    # A script may give more than JSON has; what is signed is what goes out.
    return _canonical(msgspec.to_builtins(value))


def _number(value: float) -> float | str | None:
    try:
        number = float(value) + 0.0  # minus nothing is nothing
    except OverflowError:
        return str(value)
    return number if isfinite(number) else None  # which is what goes out for it
