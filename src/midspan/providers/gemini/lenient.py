"""Reads JSON that does not fit its Struct: a field that cannot be read counts as absent, the rest is still read.

The decoders in `decode` are strict and fast. This module is for the documents that they reject.
"""

import re
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import fields

from midspan.errors import MalformedResponse

AnyStruct = TypeVar("AnyStruct", bound=Struct)
READ_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a decoder raises for a document that does not fit."""

fields_of = msgspec.json.Decoder(dict[str, Raw]).decode
"""The fields of a JSON object, each as its own bytes."""
items_of = msgspec.json.Decoder(list[Raw]).decode
_NULL = Raw(b"null")


def recover(form: type[AnyStruct], raw: Raw) -> tuple[AnyStruct, Raw]:
    """Return what can be read of `raw`, and `raw` itself, repaired if its characters were invalid."""
    try:
        return _read(form, raw), raw
    except READ_ERRORS as error:
        repaired = _with_valid_characters(bytes(raw))
        if repaired is None:
            raise MalformedResponse(f"Gemini sent {_quoted(raw)}, which is not JSON") from error
    return recover(form, Raw(repaired))


def _read(form: type[AnyStruct], raw: Raw) -> AnyStruct:
    present = _object(raw)
    known = {}
    for field in fields(form):
        value = present.get(field.encode_name)
        if value is not None and value != _NULL:
            try:
                known[field.name] = _convert(field.type, value)
            except msgspec.ValidationError:
                continue
    return form(**known)


def _object(raw: Raw) -> dict[str, Raw]:
    try:
        return fields_of(raw)
    except msgspec.ValidationError:
        pass
    items = items_of(raw) if bytes(raw).lstrip()[:1] == b"[" else []
    if len(items) == 1:  # front ends wrap a response in a list of one
        return _object(items[0])
    raise _not_an_object(raw)


def _convert(hint: Any, raw: Raw) -> Any:
    kind = hint
    if get_origin(hint) in (Union, UnionType):
        kind = next(member for member in get_args(hint) if member is not NoneType)
    origin, item = get_origin(kind), next(iter(get_args(kind)), None)
    first = bytes(raw)[:1]
    if kind is Raw:
        return raw
    if origin is list:
        items = items_of(raw) if first == b"[" else [raw]
        return items if item is Raw else [_convert(item, value) for value in items if bytes(value)[:1] == b"{"]
    if isinstance(kind, type) and issubclass(kind, Struct) and first == b"{":
        return _read(kind, raw)
    if origin is dict and first != b"{":
        return _arguments(raw)
    return msgspec.json.decode(raw, type=hint, strict=False)


def _arguments(raw: Raw) -> Any:
    """Read arguments that came as text. Anything that is not an object must not count as «no arguments»."""
    try:
        return msgspec.json.decode(msgspec.json.decode(raw, type=str), type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise _not_an_object(raw) from error


def _not_an_object(raw: Raw) -> MalformedResponse:
    return MalformedResponse(f"Gemini sent {_quoted(raw)} where a JSON object was expected")


_SURROGATE = re.compile("[\ud800-\udfff]")


def _with_valid_characters(data: bytes) -> bytes | None:
    """Return the same JSON without unpaired surrogates, which Python's own parser accepts; None if it is not JSON."""
    import json  # loaded for broken documents only

    try:
        plain = json.loads(data.decode("utf-8-sig", "replace"), parse_constant=_reject_constant)
        repaired = _SURROGATE.sub("\ufffd", json.dumps(plain, ensure_ascii=False)).encode()
    except (ValueError, RecursionError):
        return None
    return repaired if repaired != data else None


def _reject_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _quoted(raw: Raw) -> str:
    data = bytes(raw)
    return repr(data[:120].decode("utf-8", "replace")) + ("…" if len(data) > 120 else "")
