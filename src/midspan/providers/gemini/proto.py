"""Messages of the Gemini API as typed structs that lose nothing.

The API reads camelCase and snake_case alike, and adds fields. Known fields become typed; everything else in an object
stays in its `extra` and is written out again in the same place. Only names of the message's own fields are re-cased.
"""

from functools import cache
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import fields

from midspan.errors import MalformedResponseError
from midspan.providers.reading import READ_ERRORS

EnumValue = str | int
"""A value of an enum. Unknown values are kept; servers send numbers if they are asked to."""
Number = int | float
EXTRA = "@extra"


class Proto(Struct, frozen=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """A message of the API. Fields that are None are not sent."""

    extra: dict[str, Any] = field(name=EXTRA, default_factory=dict)
    """Fields that are not known here, or are of another type, under their own names."""


AnyProto = TypeVar("AnyProto", bound=Proto)


def load(message_type: type[AnyProto], data: bytes | msgspec.Raw) -> AnyProto:
    """Decode a message. Every JSON object is one."""
    try:
        message: AnyProto = _decoder(message_type).decode(data)
        if _EXTRA_KEY not in bytes(data):
            return message
    except READ_ERRORS:
        pass  # an unknown field, another type, or snake_case
    try:
        return from_plain(message_type, msgspec.json.decode(data, type=dict[str, Any]))
    except READ_ERRORS as error:
        raise MalformedResponseError(f"not the JSON of a {message_type.__name__}: {error}") from error


def from_plain(message_type: type[AnyProto], plain: dict[str, Any], *, strict: bool = False) -> AnyProto:
    """Return the message of these dicts and lists, in either casing.

    A value of a wrong type is kept in `extra`, where it can be sent back; with `strict` it is a ValidationError.
    """
    known, values, extra = known_fields(message_type), {}, {}
    for name, value in plain.items():
        field = known.get(name)
        if field is None or field.attribute in values:  # unknown, or there in both casings
            extra[name] = value
            continue
        try:
            values[field.attribute] = _convert(value, field, strict)
        except (msgspec.ValidationError, RecursionError) as error:
            if strict:
                raise msgspec.ValidationError(f"{field.attribute}: {error}") from error
            extra[name] = value
    return message_type(**values, extra=extra)


def _convert(value: Any, field: "ProtoField", strict: bool) -> Any:
    message = field.message
    if message is None or value is None:
        return msgspec.convert(value, field.hint)
    if field.container is list:
        return [from_plain(message, item, strict=strict) for item in msgspec.convert(value, list[dict[str, Any]])]
    if field.container is dict:
        items = msgspec.convert(value, dict[str, dict[str, Any]])
        return {name: from_plain(message, item, strict=strict) for name, item in items.items()}
    return from_plain(message, msgspec.convert(value, dict[str, Any]), strict=strict)


def dump(message: Proto) -> bytes:
    """Encode a message."""
    data = _encoder.encode(message)
    # Messages with extra fields are rare; looking for the key is cheaper than walking every message.
    return _encoder.encode(to_plain(message)) if _EXTRA_KEY in data else data


def has_extra(message: Proto) -> bool:
    """Whether the message, or one within it, has fields that are not known."""
    return _EXTRA_KEY in _encoder.encode(message)


def to_plain(value: Any) -> Any:
    """Return a message as dicts and lists, with its extra fields in their place."""
    if isinstance(value, Proto):
        value = fields_to_send(value)
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return {name: to_plain(item) for name, item in value.items()} if isinstance(value, dict) else value


def fields_to_send(message: Proto) -> dict[str, Any]:
    """Return the fields of a message that are sent, by their names in the API."""
    values = {known.name: getattr(message, known.attribute) for known in known_fields(type(message)).values()}
    return {name: value for name, value in values.items() if value is not None and value is not UNSET} | message.extra


class ProtoField(NamedTuple):
    """A field of a message."""

    attribute: str
    name: str
    hint: Any
    message: type[Proto] | None
    """The type of the message, or messages, in this field."""
    container: type | None
    """List or dict if there are several."""
    item: Any
    """The type of the value, or of each of several, without None."""


@cache
def known_fields(message_type: type[Proto]) -> dict[str, ProtoField]:
    """Return the fields of a message by their names in both casings."""
    hints, table = get_type_hints(message_type), {}
    for known in fields(message_type):
        if known.encode_name != EXTRA:
            item = _without_none(hints[known.name])
            container = origin if (origin := get_origin(item)) in (list, dict) else None
            item = _without_none(get_args(item)[-1]) if container else item
            message = item if isinstance(item, type) and issubclass(item, Proto) else None
            field = ProtoField(known.name, known.encode_name, hints[known.name], message, container, item)
            table[known.encode_name] = table[known.name] = field
    return table


def _without_none(hint: Any) -> Any:
    if get_origin(hint) not in (Union, UnionType):
        return hint
    members = [member for member in get_args(hint) if member not in (NoneType, UnsetType)]
    return members[0] if len(members) == 1 else hint


_encoder = msgspec.json.Encoder()
_decoder = cache(msgspec.json.Decoder)
_EXTRA_KEY = f'"{EXTRA}"'.encode()
