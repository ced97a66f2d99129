"""JSON of protocol-buffer messages as typed Structs, without losing anything.

The API reads camelCase and snake_case alike and adds fields when it likes. Known fields become typed;
whatever else stands in an object stays in its `extra` and is written out again in the same place.
Only the names of the message's own fields are ever re-cased, never what a user put into it.
"""

from collections.abc import Callable
from functools import cache
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, UNSET, Struct, UnsetType, field
from msgspec.structs import fields

from midspan.errors import MalformedResponse

Word = str | int
"""A value of an enum: open, any word is kept; a number where the server was asked for numbers."""
Number = int | float
EXTRA = "@extra"


class Proto(Struct, frozen=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """A message of the API. What is None is not sent."""

    extra: dict[str, Any] = field(name=EXTRA, default_factory=dict)
    """What the other side wrote and we have no field for, under its own names."""


AnyProto = TypeVar("AnyProto", bound=Proto)


def load(form: type[AnyProto], data: bytes | str | msgspec.Raw) -> AnyProto:
    """Read a message; every JSON object is one, only what is not JSON is refused."""
    try:
        message: AnyProto = _decoder(form).decode(data)
        if _MARK not in (data.encode() if isinstance(data, str) else bytes(data)):
            return message
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # an unknown field, an odd type or the other casing: the slow way keeps them all
    try:
        plain = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedResponse(f"not the JSON of a {form.__name__}: {error}") from error
    if not isinstance(plain, dict):
        raise MalformedResponse(f"a {form.__name__} is a JSON object, not {type(plain).__name__}")
    return from_plain(form, plain)


def from_plain(form: type[AnyProto], plain: dict[str, Any]) -> AnyProto:
    """Read a message out of dicts and lists, in either casing."""
    known: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for name, value in plain.items():
        found = _fields(form).get(name)
        if found is None or found.attribute in known:
            extra[name] = value
            continue
        try:
            known[found.attribute] = found.convert(value)
        except (msgspec.ValidationError, TypeError, RecursionError):
            extra[name] = value
    return form(**known, extra=extra)


def dump(message: Proto | list[Any]) -> bytes:
    """Write a message, or a list of them."""
    written = _encoder.encode(message)
    # Messages with leftovers are rare; looking for the mark is cheaper than walking every message.
    return _encoder.encode(to_plain(message)) if _MARK in written else written


def to_plain(value: Any) -> Any:
    """A message as dicts and lists, with its leftovers in their place."""
    match value:
        case Proto():
            written = {
                found.name: to_plain(item)
                for found in _fields(type(value)).values()
                if not found.is_default(item := getattr(value, found.attribute))
            }
            return {**written, **value.extra}
        case list():
            return [to_plain(item) for item in value]
        case dict():
            return {name: to_plain(item) for name, item in value.items()}
    return value


class _Field(NamedTuple):
    attribute: str
    name: str
    convert: Callable[[Any], Any]
    empty: Any
    """What it is if nobody set it: nothing, or a list or dict without items."""

    def is_default(self, value: Any) -> bool:
        return value is None or value is UNSET or (self.empty is not None and value == self.empty)


@cache
def _fields(form: type[Proto]) -> dict[str, _Field]:
    hints = get_type_hints(form)
    table = {}
    for known in fields(form):
        if known.encode_name == EXTRA:
            continue
        empty = known.default_factory() if known.default_factory is not NODEFAULT else None
        found = _Field(known.name, known.encode_name, _converter(hints[known.name]), empty)
        table[known.encode_name] = table[known.name] = found
    return table


def _converter(hint: Any) -> Callable[[Any], Any]:
    """How a field of this type is read from plain values."""
    only = _without_none(hint)
    inner = _without_none(get_args(only)[-1]) if get_origin(only) in (list, dict) else None
    if isinstance(only, type) and issubclass(only, Proto):
        return lambda value: None if value is None else _message(only, value)
    if isinstance(inner, type) and issubclass(inner, Proto):
        if get_origin(only) is list:
            return lambda value: None if value is None else [_message(inner, item) for item in _a(list, value)]
        return lambda value: (
            None if value is None else {name: _message(inner, item) for name, item in _a(dict, value).items()}
        )
    return lambda value: msgspec.convert(value, hint)


def _without_none(hint: Any) -> Any:
    if get_origin(hint) in (Union, UnionType):
        rest = [one for one in get_args(hint) if one not in (NoneType, UnsetType)]
        if len(rest) == 1:
            return rest[0]
    return hint


def _message(form: type[Proto], value: Any) -> Proto:
    return from_plain(form, _a(dict, value))


def _a(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"expected {kind.__name__}")
    return value


_encoder = msgspec.json.Encoder()
_MARK = f'"{EXTRA}"'.encode()


_decoder = cache(msgspec.json.Decoder)
