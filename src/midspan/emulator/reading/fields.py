"""What the fields of a message are called and what they hold, taken from the message's own type."""

from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from msgspec import UnsetType
from msgspec.structs import fields

from midspan.emulator.reading.words import BASE64, ENUMS, ONLY
from midspan.providers.gemini.capabilities import Api
from midspan.providers.gemini.proto import EXTRA, Proto


class Kind(Enum):
    """What a field holds; scalars are called what the server calls them."""

    STRING = "TYPE_STRING"
    BYTES = "TYPE_BYTES"
    BOOL = "TYPE_BOOL"
    INTEGER = "TYPE_INT32"
    NUMBER = "TYPE_DOUBLE"
    ENUM = "enum"
    MESSAGE = "message"
    OBJECT = "google.protobuf.Struct"
    VALUE = "google.protobuf.Value"


class Field(NamedTuple):
    name: str
    """As the server calls it in its words."""
    json_name: str
    kind: Kind
    form: type[Proto] | None = None
    repeated: bool = False
    mapped: bool = False
    enum: tuple[str, tuple[str, ...]] | None = None
    only: Api | None = None
    """The one API that has this field."""


@cache
def fields_of(form: type[Proto]) -> dict[str, Field]:
    """The fields of a message under both names that JSON may use."""
    hints = get_type_hints(form)
    table = {}
    for one in fields(form):
        if one.encode_name != EXTRA:
            found = _field(form, one.name, one.encode_name, hints[one.name])
            table[found.json_name] = table[found.name] = found
    return table


def _field(form: type[Proto], name: str, json_name: str, hint: Any) -> Field:
    place = (form.__name__, name)
    single, repeated, mapped = _unwrapped(hint)
    kind, message = _kind(single)
    if kind is Kind.STRING and place in BASE64:
        kind = Kind.BYTES
    only = next((api for api, places in ONLY.items() if place in places), None)
    return Field(name, json_name, kind, message, repeated, mapped, ENUMS.get(place), only)


def _unwrapped(hint: Any) -> tuple[Any, bool, bool]:
    only = _without_none(hint)
    if get_origin(only) is list:
        return _without_none(get_args(only)[0]), True, False
    if get_origin(only) is dict and get_args(only)[1] is not Any:
        return _without_none(get_args(only)[1]), False, True
    return only, False, False


_SCALARS: dict[Any, Kind] = {
    str: Kind.STRING,
    bool: Kind.BOOL,
    int: Kind.INTEGER,
    (int, str): Kind.INTEGER,
    (int, float): Kind.NUMBER,
    (str, int): Kind.ENUM,
}


def _kind(hint: Any) -> tuple[Kind, type[Proto] | None]:
    if isinstance(hint, type) and issubclass(hint, Proto):
        return Kind.MESSAGE, hint
    if get_origin(hint) is dict:
        return Kind.OBJECT, None
    return _SCALARS.get(hint if isinstance(hint, type) else get_args(hint), Kind.VALUE), None


def _without_none(hint: Any) -> Any:
    if get_origin(hint) not in (Union, UnionType):
        return hint
    rest = tuple(one for one in get_args(hint) if one not in (NoneType, UnsetType))
    return rest[0] if len(rest) == 1 else Union[rest]  # noqa: UP007 - made of a tuple, which `|` cannot be
