"""Reads JSON that does not fit its Struct: what cannot be read is as good as absent, the rest is still read.

The decoders in `decode` are strict and fast. This module is for the documents that they refuse.
"""

import re
from collections.abc import Iterator
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


def recover(form: type[AnyStruct], data: bytes | Raw) -> tuple[AnyStruct, Raw]:
    """Return what can be read of `data`, and `data` itself, repaired if only its characters were invalid."""
    raw = Raw(data)
    try:
        return _read(form, raw), raw
    except READ_ERRORS as error:
        repaired = _with_valid_characters(bytes(raw))
        if repaired is None:
            raise MalformedResponse(f"Gemini sent no JSON: {_quoted(bytes(raw))}") from error
    return recover(form, repaired)


def _read(form: type[AnyStruct], raw: Raw) -> AnyStruct:
    present = _object(raw)
    known = {}
    for field in fields(form):
        value = present.get(field.encode_name)
        if value is not None:
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
    if len(items) == 1:  # front-ends wrap an answer in a list of one
        return _object(items[0])
    raise MalformedResponse(f"Gemini sent {_quoted(bytes(raw))} where an object belongs")


def _convert(hint: Any, raw: Raw) -> Any:
    first = bytes(raw)[:1]
    kind = _without_none(hint)
    origin, item = get_origin(kind), next(iter(get_args(kind)), kind)
    if kind is Raw:
        return raw
    if origin is list and (item is Raw or _is_struct(item)):
        items = items_of(raw) if first == b"[" else [raw]
        return items if item is Raw else list(_read_items(item, items))
    if _is_struct(kind) and first == b"{":
        return _read(kind, raw)
    if origin is dict and first not in (b"{", b"n"):
        return _arguments(raw)
    return msgspec.json.decode(raw, type=hint, strict=False)


def _without_none(hint: Any) -> Any:
    if get_origin(hint) not in (Union, UnionType):
        return hint
    return next(arg for arg in get_args(hint) if arg is not NoneType)


def _is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Struct)


def _read_items(form: type[Struct], items: list[Raw]) -> Iterator[Any]:
    for item in items:
        if bytes(item)[:1] == b"{":
            yield _read(form, item)


def _arguments(raw: Raw) -> Any:
    """Read arguments that came as text. Anything that is not an object must not pass for «no arguments»."""
    try:
        return msgspec.json.decode(msgspec.json.decode(raw, type=str), type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise MalformedResponse(f"Gemini sent {_quoted(bytes(raw))} where an object belongs") from error


_SURROGATE = re.compile("[\ud800-\udfff]")


def _with_valid_characters(data: bytes) -> bytes | None:
    """Return the same JSON without unpaired surrogates, which Python's own parser accepts; None if it is no JSON."""
    try:
        import json  # loaded for broken documents only

        plain = json.loads(data.decode("utf-8-sig", "replace"), parse_constant=_refuse)
        repaired = _SURROGATE.sub("\ufffd", json.dumps(plain, ensure_ascii=False)).encode()
    except (ValueError, RecursionError):
        return None
    return repaired if repaired != data else None


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _quoted(data: bytes) -> str:
    return repr(data[:120].decode("utf-8", "replace")) + ("…" if len(data) > 120 else "")
