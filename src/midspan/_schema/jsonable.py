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
from midspan.errors import ResultError


def to_jsonable(value: Any) -> Any:
    """Return the value as dicts with text keys, lists, text, numbers, booleans and None; or raise a ResultError."""
    try:
        data = _convert(value)
        msgspec.json.encode(data)  # rejects unpaired surrogates, and numbers with too many digits
        return data
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
        return str(value)
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


def _number(value: float) -> float:
    if not math.isfinite(value):
        raise ResultError(f"JSON has no number for {value!r}; return None or a text instead")
    return float(value)


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
    for key, item in mapping.items():
        [name] = [key] if type(key) is str else msgspec.to_builtins({key: None}, str_keys=True)
        try:
            data[name] = _convert(item)
        except ResultError as error:
            raise error.within(f".{name}" if name.isprintable() else f"[{name!r}]") from None
    if len(data) < len(mapping):
        raise ResultError("two of its keys, such as 1 and '1', are the same in JSON")
    return data


def _record(value: Any) -> dict[str, Any] | None:
    """Return the fields of a record under their names in JSON; None if the value is not a record."""
    cls = type(value)
    items: dict[str, Any] = {}
    if issubclass(cls, Struct):
        config = cls.__struct_config__
        if config.tag_field is not None:
            items[config.tag_field] = config.tag
        items |= {field.encode_name: getattr(value, field.name) for field in msgspec.structs.fields(cls)}
    elif dataclasses.is_dataclass(cls):
        items = {field.name: getattr(value, field.name, msgspec.UNSET) for field in dataclasses.fields(cls)}
    elif is_named_tuple(cls):
        items = value._asdict()
    else:
        return None
    return _object({key: item for key, item in items.items() if item is not msgspec.UNSET})


def _reject(value: Any) -> Any:
    name = type(value).__name__
    article = "an" if name[:1] in "AEIOUaeiou" else "a"
    raise ResultError(f"{article} {name} is not JSON serializable; return text, numbers, lists, dicts or a dataclass")


_EXACT: dict[type, Callable[[Any], Any]] = {
    **dict.fromkeys((str, int, bool, type(None)), lambda value: value),
    float: _number,
    dict: _object,
    list: _array,
    tuple: _array,
}
# Only declared collections: a DataFrame, for example, has a length and can be iterated over, but is not a list.
_BASES: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (bytes | bytearray | memoryview, msgspec.to_builtins),
    (msgspec.Raw, lambda value: _convert(msgspec.json.decode(value))),
    (str, str.__str__),
    (int, int),
    (float, _number),
    (Mapping, _object),
    (AbstractSet, _set),
    (Sequence | ValuesView, _array),
)
