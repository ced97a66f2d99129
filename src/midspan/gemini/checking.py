"""Values that a caller passes, as messages of the API; or an error that says what is wrong, where, and what to pass.

A message is first checked by msgspec, strictly. Only what that rejects is looked at field by field, for the error.
"""

import types
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from reprlib import Repr
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UnsetType
from msgspec.structs import fields

from midspan.errors import ConfigError, ResultError
from midspan.providers.gemini.proto import EXTRA, AnyProto, Proto, dump, from_plain, to_plain

_MAX_INT_BITS = 1024
"""Of the largest number that the API, which uses doubles, can read."""
_SIMILARITY = 0.85
"""How similar an unknown name must be to a known one to count as a typo; others may be fields of a newer API."""
_SCHEMA_KEYWORDS = frozenset(("$defs", "$ref", "examples"))
"""Keywords of JSON Schema that look like typos of the API's own keywords."""

_repr = Repr()
_repr.maxlevel, _repr.maxstring, _repr.maxother = 3, 80, 80


def describe(value: Any) -> str:
    """Return a short repr for an error message."""
    try:
        return _repr.repr(value)
    except Exception:  # noqa: BLE001 - the repr of a caller's value is foreign code
        return f"<{type(value).__name__}>"


def to_json(value: Any, where: str) -> Any:
    """Return the value as JSON data: dicts, lists, strings, numbers. Dates, dataclasses and models are converted."""
    from midspan._schema.jsonable import to_jsonable  # loaded with the first dict

    try:
        return to_jsonable(_without_messages(value))
    except ResultError as error:
        raise ConfigError(f"{f'{where}{error.path}'.lstrip('.')} cannot be sent: {error.problem}") from error
    except RecursionError as error:
        raise ConfigError(f"{where} cannot be sent: it is nested too deeply, or contains itself") from error


def _without_messages(value: Any) -> Any:
    """Return the value with every message in it converted to a dict."""
    kind = type(value)
    if kind in (str, float, bool, type(None)):
        return value
    if kind in (list, tuple):
        return [_without_messages(item) for item in value]
    if isinstance(value, Proto):
        return _without_messages(to_plain(value))
    if isinstance(value, Mapping):
        return {name: _without_messages(item) for name, item in value.items()}
    if isinstance(value, int) and value.bit_length() > _MAX_INT_BITS:
        raise ResultError("the number is too large")
    return value


def check_text(text: Any, where: str) -> str:
    """Return the text; raise an error if it is not a string, or cannot be encoded."""
    if not isinstance(text, str):
        raise ConfigError(f"{where} must be a string, got {describe(text)}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{where} cannot be sent: it has an unpaired surrogate, {text[error.start]!r}") from error
    return text


def read(form: type[AnyProto], value: Any, where: str) -> AnyProto:
    """Return the message that a caller passed, as such or as a dict of its fields, in either casing."""
    if not isinstance(value, form | Mapping):
        raise ConfigError(f"{where} cannot be {describe(value)}; pass a {form.__name__}, or a dict of its fields")
    if isinstance(value, form) and encode_strictly(form, value) is not None:
        return value
    return read_json(form, to_json(value, where), where, check_names=isinstance(value, Mapping))


def read_json(
    form: type[AnyProto], value: dict[str, Any], where: str, *, check_names: bool = True, check_types: bool = True
) -> AnyProto:
    """Return the message of these fields; raise an error for names that look like a typo, or values of a wrong type."""
    message = from_plain(form, value)
    try:
        problem = next(_problems(message, where, check_names, check_types), None)
    except RecursionError:
        problem = f"{where} is nested too deeply"
    if problem is not None:
        raise ConfigError(problem)
    return message


def encode(form: type[Proto], message: Proto, where: str, *, check_types: bool = True) -> bytes:
    """Return the JSON of a message that a caller made, whose fields were not checked yet."""
    data = encode_strictly(form, message)
    if data is None:
        value = to_json(message, where)
        data = dump(read_json(form, value, where, check_names=False, check_types=check_types))
    return data


def encode_strictly(form: type[Proto], message: Proto) -> bytes | None:
    """Return the JSON of a message if all its fields are known and of their types; None if not, or if in doubt.

    Fields that are None are not written. So a null is a value of the caller, or a NaN, which is encoded as null.
    """
    try:
        data = dump(message)
        _strict_decoder(form).decode(data)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError, OverflowError):
        return None
    return None if b"null" in data else data


_strict_decoder = cache(msgspec.json.Decoder)


def set_fields(form: type[Proto], value: Any, where: str) -> dict[str, Any]:
    """Return the fields that a caller set, by the names of the attributes and unchecked; unknown names stay."""
    known = _known_fields(form)
    if isinstance(value, form):
        values = {attribute: getattr(value, attribute) for attribute, _ in known.values()}
        return {name: item for name, item in values.items() if item is not None and item is not msgspec.UNSET} | (
            value.extra
        )
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} cannot be {describe(value)}; pass a {form.__name__}, or a dict of its fields")
    by_attribute: dict[str, Any] = {}
    for name, item in value.items():
        if not isinstance(name, str):
            raise ConfigError(f"{where} has {describe(name)} as the name of a field; names must be strings")
        attribute = known[name][0] if name in known else name
        if attribute in by_attribute:
            raise ConfigError(f"{where}.{attribute} is given twice")
        if item is not None:
            by_attribute[attribute] = item
    return by_attribute


def _problems(message: Proto, where: str, check_names: bool, check_types: bool) -> Iterator[str]:
    """Yield what is wrong with the fields that `from_plain` could not read, and left in `extra`."""
    known = _known_fields(type(message))
    for name, value in message.extra.items():
        if name in known:
            if not check_types:
                continue
            attribute, hint = known[name]
            place = f"{where}.{attribute}".lstrip(".")
            if getattr(message, attribute) not in (None, msgspec.UNSET, [], {}):
                yield f"{place} is given twice"
            else:
                yield f"{place} cannot be {describe(value)}; pass {_expected(hint)}"
        elif check_names and name not in _SCHEMA_KEYWORDS:
            similar = get_close_matches(name, known, 1, _SIMILARITY)
            if similar:
                yield f"unknown field {name!r}{where and f' in {where}'}; did you mean {similar[0]}?"
    for attribute, _ in dict.fromkeys(known.values()):
        for step, inner in _messages_in(getattr(message, attribute)):
            yield from _problems(inner, f"{where}.{attribute}{step}".lstrip("."), check_names, check_types)


def _messages_in(value: Any) -> Iterator[tuple[str, Proto]]:
    if isinstance(value, Proto):
        yield "", value
    elif isinstance(value, list):
        yield from ((f"[{at}]", item) for at, item in enumerate(value) if isinstance(item, Proto))
    elif isinstance(value, dict):
        yield from ((f"[{name!r}]", item) for name, item in value.items() if isinstance(item, Proto))


@cache
def _known_fields(form: type[Proto]) -> dict[str, tuple[str, Any]]:
    """Return the attribute and the type hint of each field, by its name in both casings."""
    hints = get_type_hints(form)
    known = [field for field in fields(form) if field.encode_name != EXTRA]
    return {name: (field.name, hints[field.name]) for field in known for name in (field.name, field.encode_name)}


_EXPECTED = {str: "a string", bool: "True or False", int: "an integer", float: "a number"}


def _expected(hint: Any) -> str:
    """Describe what a field accepts."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        members = [member for member in arguments if member not in (type(None), UnsetType)]
        if float in members:
            members.remove(int)
        return " or ".join(map(_expected, members))
    if origin is list:
        return f"a list, each item {_expected(arguments[0])}"
    if origin is dict:
        return "a dict" if arguments[1] is Any else f"a dict, each value {_expected(arguments[1])}"
    if isinstance(hint, type) and issubclass(hint, Proto):
        return f"a {hint.__name__} or a dict of its fields"
    return _EXPECTED.get(hint, "any JSON")
