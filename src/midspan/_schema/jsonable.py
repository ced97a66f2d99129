"""A value of any Python type → the JSON value that stands for it, or the reason why there is none.

It is written in Python and not left to msgspec because JSON has no NaN and no half characters, because a NamedTuple
shall keep its names, and because the reason says where in the value the trouble is.
"""

import dataclasses
import datetime
import decimal
import enum
import math
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence, ValuesView
from collections.abc import Set as AbstractSet
from functools import lru_cache
from os import PathLike
from typing import Any

import msgspec
from msgspec import Struct

from midspan._schema.signatures.models import is_pydantic, pydantic_value
from midspan._schema.signatures.records import is_named_tuple
from midspan.errors import ResultError


def to_jsonable(value: Any) -> Any:
    """The JSON value for this value: dicts with text for keys, lists, text, numbers, booleans and None."""
    kind: Any = type(value)
    try:
        return (_BY_TYPE.get(kind) or _way_of(kind))(value)
    except RecursionError as error:
        raise ResultError("nested too deeply, or it contains itself") from error
    except ResultError:
        raise
    except Exception as error:  # properties and serialisers of any class may run here
        raise ResultError(f"it cannot be said in JSON: {type(error).__name__}: {error}") from error


def _said(value: Any) -> Any:
    kind: Any = type(value)
    return (_BY_TYPE.get(kind) or _way_of(kind))(value)


def _same(value: Any) -> Any:
    return value


def _text(value: str) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ResultError(f"the text holds {value[error.start]!r}, which is no whole character") from error
    return value


def _number(value: float) -> float:
    if not math.isfinite(value):
        raise ResultError(f"JSON has no number for {value!r}; return None or a text instead")
    return value


def _array(value: Iterable[Any]) -> list[Any]:
    said: list[Any] = []
    try:
        said.extend(map(_said, value))
    except ResultError as error:
        raise error.within(f"[{len(said)}]") from None
    return said


def _set(value: AbstractSet[Any]) -> list[Any]:
    # Text hashes differently in each process; a result that is kept or compared shall not.
    try:
        return _array(sorted(value))
    except TypeError:
        return _array(sorted(value, key=repr))


def _object(value: Mapping[Any, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {}
    try:
        for key, item in value.items():
            kind: Any = type(item)
            name = key if type(key) is str and key.isascii() else _key(key)
            said[name] = (_BY_TYPE.get(kind) or _way_of(kind))(item)
    except ResultError as error:
        raise error.within(_step(key)) from None
    if len(said) < len(value):
        raise ResultError(f"some of the keys {', '.join(map(repr, list(value)[:10]))} are the same as text")
    return said


def _step(key: Any) -> str:
    # Half a character must not get into the words either.
    return f".{key}" if isinstance(key, str) and key.isprintable() else f"[{key!r}]"


def _key(key: Any) -> str:
    if type(key) is str:
        return _text(key)
    try:
        (said,) = msgspec.to_builtins({key: None}, str_keys=True)
    except TypeError as error:
        raise ResultError(f"a key is a {type(key).__name__}, and keys of JSON objects are text") from error
    return str(said)


@lru_cache(maxsize=512)
def _way_of(kind: Any) -> Callable[[Any], Any]:
    """How to say values of a class that is not in the table."""
    for base, say in _BY_BASE:
        if issubclass(kind, base):
            return say
    if is_pydantic(kind):
        return lambda value: _said(pydantic_value(value))
    if fields := _record_fields(kind):
        return lambda value: _record(value, fields)
    if callable(getattr(kind, "tolist", None)):
        return lambda value: _said(value.tolist())  # the numbers and arrays of numpy
    for base, say in _BY_KIND_OF_COLLECTION:
        if issubclass(kind, base):
            return say
    return _refused


def _record(value: Any, fields: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    items = {key: getattr(value, name, msgspec.UNSET) for name, key in fields}
    present = {key: item for key, item in items.items() if item is not msgspec.UNSET}
    return _object(_tag(type(value)) | present)


def _record_fields(kind: Any) -> tuple[tuple[str, str], ...]:
    """What a record's fields are called in Python and in JSON."""
    if issubclass(kind, Struct):
        return tuple((field.name, field.encode_name) for field in msgspec.structs.fields(kind))
    if dataclasses.is_dataclass(kind):
        return tuple((field.name, field.name) for field in dataclasses.fields(kind))
    if is_named_tuple(kind):
        return tuple((name, name) for name in kind._fields)
    names = (attribute.name for attribute in getattr(kind, "__attrs_attrs__", ()))
    return tuple((name, name) for name in names if not name.startswith("_"))


def _tag(kind: Any) -> dict[str, Any]:
    config = getattr(kind, "__struct_config__", None)
    return {} if config is None or config.tag is None else {config.tag_field: config.tag}


def _refused(value: Any) -> Any:
    raise ResultError(
        f"a {type(value).__name__} cannot be said in JSON; return text, numbers, lists, dicts or a dataclass"
    )


_BY_TYPE: dict[type, Callable[[Any], Any]] = {
    str: _text,
    int: _same,
    bool: _same,
    type(None): _same,
    float: _number,
    dict: _object,
    list: _array,
    tuple: _array,
    set: _set,
    frozenset: _set,
}
_BUILTIN = (
    datetime.date,
    datetime.time,
    datetime.timedelta,
    uuid.UUID,
    decimal.Decimal,
    bytes,
    bytearray,
    memoryview,
)
_BY_BASE: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (enum.Enum, lambda value: _said(value.value)),
    (_BUILTIN, msgspec.to_builtins),
    (PathLike, lambda value: _text(str(value))),
    (msgspec.Raw, lambda value: _said(msgspec.json.decode(value))),
    (str, lambda value: _text(str.__str__(value))),
    (int, int),
    (float, lambda value: _number(float(value))),
)
# Only what says of itself that it is one of these: a table has a length and gives its columns, and is no list of them.
_BY_KIND_OF_COLLECTION: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (Mapping, _object),
    (AbstractSet, _set),
    ((Sequence, ValuesView), _array),
)
