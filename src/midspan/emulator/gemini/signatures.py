"""Thought signatures: the emulator recognises its own, and whether one was changed or moved to another call."""

from base64 import b64decode, b64encode
from hashlib import blake2b
from typing import Any

import msgspec

from midspan.providers.gemini.encode import SKIP_SIGNATURE
from midspan.providers.gemini.wire import FunctionCall

_PREFIX = b"\x12midspan:"
_PREFIX_BASE64 = b64encode(_PREFIX).decode()
_NONCE_SIZE = 10
_TAG_SIZE = 17
"""Makes the size a multiple of 3, so that the base64 has no padding that a client could drop."""
_FROM_URLSAFE = str.maketrans("-_", "+/")

_INVALID = "Invalid thought signature."
_DUMMIES = (SKIP_SIGNATURE, "context_engineering_is_the_way_to_go")
_DUMMIES_BASE64 = tuple(b64encode(dummy.encode()).decode().rstrip("=") for dummy in _DUMMIES)
"""The API accepts these words in place of a signature; some clients encode them."""


def sign(name: str, nonce: int, args: dict[str, Any] | None = None) -> str:
    """Create the signature of a call, or of text if the name is empty."""
    data = _PREFIX + nonce.to_bytes(_NONCE_SIZE, "big")
    return b64encode(data + _tag(data, name, args)).decode()


def signature_error(signature: str, call: FunctionCall, *, is_first: bool, strict: bool) -> str | None:
    """Return what is wrong with the signature of a call; `is_first` says whether it is the first of its content.

    Signatures of other servers cannot be verified; `strict` rejects them.
    """
    if not signature.startswith(_PREFIX_BASE64):
        is_dummy = signature.rstrip("=") in (*_DUMMIES, *_DUMMIES_BASE64)
        return _INVALID if strict and not is_dummy else None
    data = b64decode(signature.translate(_FROM_URLSAFE) + "=" * (-len(signature) % 4))
    signed, tag = data[: len(_PREFIX) + _NONCE_SIZE], data[len(_PREFIX) + _NONCE_SIZE :]
    if len(tag) != _TAG_SIZE:
        return "Corrupted thought signature."
    # Only the first of parallel calls is signed.
    return None if is_first and tag == _tag(signed, call.name or "", call.args) else _INVALID


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
