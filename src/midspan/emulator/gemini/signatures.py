"""Thought signatures: the emulator recognises its own, and whether one was changed or moved to another call."""

from base64 import b64decode, b64encode
from enum import Enum
from hashlib import blake2b
from typing import Any

import msgspec

from midspan.providers.gemini.encode import SKIP_SIGNATURE

_PREFIX = b"\x12midspan:"
_PREFIX_BASE64 = b64encode(_PREFIX).decode()
_NONCE_SIZE = 10
_TAG_SIZE = 17
"""Makes the size a multiple of 3, so that the base64 has no padding that a client could drop."""
_FROM_URLSAFE = str.maketrans("-_", "+/")

_DUMMIES = (SKIP_SIGNATURE, "context_engineering_is_the_way_to_go")
_DUMMIES_BASE64 = tuple(b64encode(dummy.encode()).decode().rstrip("=") for dummy in _DUMMIES)
"""The API accepts these words in place of a signature; some clients encode them."""


class Verdict(Enum):
    VALID = "valid"
    FOREIGN = "foreign"
    """Created by another server; only that server can verify it."""
    CORRUPTED = "Corrupted thought signature."
    INVALID = "Invalid thought signature."
    """It belongs to another call."""


def sign(name: str, nonce: int, args: dict[str, Any] | None = None) -> str:
    """Create the signature of a call, or of text if the name is empty."""
    data = _PREFIX + nonce.to_bytes(_NONCE_SIZE, "big")
    return b64encode(data + _tag(data, name, args)).decode()


def verify(signature: str, name: str, args: dict[str, Any] | None, *, is_first: bool) -> Verdict:
    """Check a signature on a call; `is_first` says whether it is the first call of its content."""
    if not signature.startswith(_PREFIX_BASE64):
        is_dummy = signature.rstrip("=") in (*_DUMMIES, *_DUMMIES_BASE64)
        return Verdict.VALID if is_dummy else Verdict.FOREIGN
    data = b64decode(signature.translate(_FROM_URLSAFE) + "=" * (-len(signature) % 4))
    signed, tag = data[: len(_PREFIX) + _NONCE_SIZE], data[len(_PREFIX) + _NONCE_SIZE :]
    if len(tag) != _TAG_SIZE:
        return Verdict.CORRUPTED
    # Only the first of parallel calls is signed.
    return Verdict.VALID if is_first and tag == _tag(signed, name, args) else Verdict.INVALID


def _tag(data: bytes, name: str, args: dict[str, Any] | None) -> bytes:
    signed = b"%b%d:%b" % (data, len(name), name.encode())
    if args:
        signed += msgspec.json.encode(_canonical(args), order="sorted")
    return blake2b(signed, digest_size=_TAG_SIZE).digest()


def _canonical(value: Any) -> Any:
    """Return the same value for all ways in which clients write it: 3 and 3.0 are equal, a null may be left out."""
    if isinstance(value, dict):
        members = {key: _canonical(inner) for key, inner in value.items()}
        return {key: inner for key, inner in members.items() if inner is not None}
    if isinstance(value, list | tuple):
        return [_canonical(inner) for inner in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value) + 0.0  # -0.0 becomes 0.0
        except OverflowError:
            return str(value)
    return value
