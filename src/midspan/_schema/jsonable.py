"""Python values as JSON data.

msgspec converts the values that it knows and that have no parts. Containers and records are walked here, because JSON
has no NaN and no unpaired surrogates, because a NamedTuple keeps its names, and because errors say where they are.
"""

import dataclasses
import enum
import math
from collections.abc import Callable, Iterable, Mapping, Sequence, ValuesView
from collections.abc import Set as AbstractSet
from os import PathLike
from typing import Any

import msgspec
from msgspec import Struct

from midspan._schema.records import is_named_tuple, is_pydantic, pydantic_value
from midspan._types.texts import with_article
from midspan.errors import ResultError


def to_jsonable(value: Any) -> Any:
    """Return the value as dicts with text keys, lists, text, numbers, booleans and None; or raise a ResultError."""
    try:
        return _convert(value)
    except RecursionError as error:
        raise ResultError("nested too deeply, or it contains itself") from error
    except ResultError:
        raise
    except Exception as error:  # properties and serializers of any class may run here
        raise ResultError(f"it is not JSON serializable: {type(error).__name__}: {error}") from error


def _convert(value: Any) -> Any:
    convert = _EXACT.get(type(value))
    if convert is not None:
        return convert(value)
    if isinstance(value, enum.Enum):
        return _convert(value.value)
    if isinstance(value, PathLike):
        return _text(str(value))
    if is_pydantic(type(value)):
        return _convert(pydantic_value(value))
    if (record := _record(value)) is not None:
        return record
    if callable(getattr(value, "tolist", None)) and not isinstance(value, memoryview):
        return _convert(value.tolist())  # numbers and arrays of numpy
    for base, convert in _BASES:
        if isinstance(value, base):
            return convert(value)
    return msgspec.to_builtins(value, enc_hook=_reject)


def _text(value: str) -> str:
    text = str.__str__(value)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ResultError(f"the text contains {text[error.start]!r}, an unpaired surrogate") from error
    return text


def _number(value: float) -> float:
    if not math.isfinite(value):
        raise ResultError(f"JSON has no number for {value!r}; return None or a text instead")
    return float(value)


def _integer(value: int) -> int:
    if value.bit_length() > _MAX_INTEGER_BITS:
        raise ResultError("the number has too many digits; return a text instead")
    return value


_MAX_INTEGER_BITS = 14_000
"""Python converts integers of up to 4,300 digits to text."""


def _array(values: Iterable[Any]) -> list[Any]:
    items: list[Any] = []
    try:
        items.extend(map(_convert, values))
    except ResultError as error:
        raise error.within(f"[{len(items)}]") from None
    return items


def _set(values: AbstractSet[Any]) -> list[Any]:
    # Text hashes differently in each process; a result that is stored or compared must not.
    try:
        return _array(sorted(values))
    except TypeError:
        return _array(sorted(values, key=repr))


def _object(mapping: Mapping[Any, Any]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    try:
        for key, item in mapping.items():
            data[_key(key)] = _convert(item)
    except ResultError as error:
        step = f".{key}" if isinstance(key, str) and key.isprintable() else f"[{key!r}]"
        raise error.within(step) from None
    if len(data) < len(mapping):
        raise ResultError(f"some of the keys {', '.join(map(repr, list(mapping)[:10]))} are the same as text")
    return data


def _key(key: Any) -> str:
    if type(key) is str:
        return _text(key)
    try:
        (name,) = msgspec.to_builtins({key: None}, str_keys=True)
    except TypeError as error:
        raise ResultError(f"a key is {with_article(type(key).__name__)}, and keys of JSON objects are text") from error
    return str(name)


def _record(value: Any) -> dict[str, Any] | None:
    """Return the fields of a record under their names in JSON; None if the value is not a record."""
    cls, tag = type(value), {}
    if issubclass(cls, Struct):
        fields = [(field.name, field.encode_name) for field in msgspec.structs.fields(cls)]
        config = cls.__struct_config__
        tag = {} if config.tag is None else {config.tag_field: config.tag}
    elif dataclasses.is_dataclass(cls):
        fields = [(field.name, field.name) for field in dataclasses.fields(cls)]
    elif is_named_tuple(cls):
        fields = [(name, name) for name in cls._fields]
    else:
        return None
    items = {key: getattr(value, name, msgspec.UNSET) for name, key in fields}
    return _object({**tag, **{key: item for key, item in items.items() if item is not msgspec.UNSET}})


def _reject(value: Any) -> Any:
    name = with_article(type(value).__name__)
    raise ResultError(f"{name} is not JSON serializable; return text, numbers, lists, dicts or a dataclass")


_EXACT: dict[type, Callable[[Any], Any]] = {
    str: _text,
    float: _number,
    dict: _object,
    list: _array,
    tuple: _array,
    int: _integer,
    **dict.fromkeys((bool, type(None)), lambda value: value),
}
# Collections only if they say of themselves that they are: a table has a length and yields its columns, and is no list.
_BASES: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (bytes | bytearray | memoryview, msgspec.to_builtins),
    (msgspec.Raw, lambda value: _convert(msgspec.json.decode(value))),
    (str, _text),
    (int, int),
    (float, _number),
    (Mapping, _object),
    (AbstractSet, _set),
    (Sequence | ValuesView, _array),
)
