"""Values that a caller passes, as messages of the API; or an error that says what is wrong, where, and what to pass.

A message is first checked by msgspec, strictly. Only what that rejects is looked at field by field, for the error.
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from reprlib import Repr
from typing import Any

import msgspec

from midspan.errors import ConfigError, ResultError
from midspan.providers.gemini.proto import AnyProto, Proto, dump, from_plain, known_fields, to_plain

_SIMILARITY = 0.85
"""How similar an unknown name must be to a known one to count as a typo; others may be fields of a newer API."""
_SCHEMA_KEYWORDS = frozenset(("$defs", "$ref", "examples"))
"""Keywords of JSON Schema that look like typos of the API's own keywords."""

_repr = Repr()
_repr.maxlevel, _repr.maxstring, _repr.maxother = 3, 80, 80
describe = _repr.repr
"""A short repr for error messages."""


def to_json(value: Any, where: str) -> Any:
    """Return the value as JSON data: dicts, lists, strings, numbers. Dates, dataclasses and models are converted."""
    from midspan._schema.jsonable import to_jsonable  # loaded with the first dict

    try:
        return to_jsonable(to_plain(value))
    except ResultError as error:
        raise ConfigError(f"{f'{where}{error.path}'.lstrip('.')} cannot be sent: {error.problem}") from error
    except RecursionError as error:
        raise ConfigError(f"{where} cannot be sent: it is nested too deeply, or contains itself") from error


def read(form: type[AnyProto], value: Any, where: str) -> AnyProto:
    """Return the message that a caller passed, as such or as a dict of its fields, in either casing."""
    if isinstance(value, form) and encode_strictly(form, value) is not None:
        return value
    check_form(form, value, where)
    return read_json(form, to_json(value, where), where, check_names=isinstance(value, Mapping))


def check_form(form: type[Proto], value: Any, where: str) -> None:
    if not isinstance(value, form | Mapping):
        raise ConfigError(f"{where} cannot be {describe(value)}; pass a {form.__name__}, or a dict of its fields")


def read_json(
    form: type[AnyProto], value: dict[str, Any], where: str, *, check_names: bool = True, check_types: bool = True
) -> AnyProto:
    """Return the message of these fields; raise an error for names that look like a typo, or values of a wrong type."""
    message = from_plain(form, value)
    _check(message, where, check_names=check_names, check_types=check_types)
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
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        return None
    return None if b"null" in data else data


_strict_decoder = cache(msgspec.json.Decoder)


def set_fields(form: type[Proto], value: Any, where: str) -> dict[str, Any]:
    """Return the fields that a caller set, by the names of the attributes and unchecked; unknown names stay."""
    known = known_fields(form)
    check_form(form, value, where)
    if isinstance(value, form):
        items = {field.attribute: getattr(value, field.attribute) for field in known.values()} | value.extra
    else:
        items = {known[name].attribute if name in known else name: item for name, item in value.items()}
        if len(items) < len(value):
            raise ConfigError(f"{where} has a field in both casings, camelCase and snake_case; pass it once")
    return {name: item for name, item in items.items() if item is not None and item is not msgspec.UNSET}


def _check(message: Proto, where: str, **checks: bool) -> None:
    """Raise an error for the first of the fields that `from_plain` could not read, and left in `extra`."""
    known = known_fields(type(message))
    for name, value in message.extra.items():
        if name in known and checks["check_types"]:
            place = f"{where}.{known[name].attribute}".lstrip(".")
            try:
                msgspec.convert(value, known[name].hint)
            except (msgspec.ValidationError, RecursionError) as error:
                raise ConfigError(f"{place} cannot be {describe(value)}: {error}") from error
            raise ConfigError(f"{place} is given twice, in camelCase and in snake_case")
        if name not in known and checks["check_names"] and name not in _SCHEMA_KEYWORDS:
            similar = get_close_matches(name, known, 1, _SIMILARITY)
            if similar:
                raise ConfigError(f"unknown field {name!r}{where and f' in {where}'}; did you mean {similar[0]}?")
    for attribute in {field.attribute: None for field in known.values() if field.message is not None}:
        for step, inner in _messages_in(getattr(message, attribute)):
            _check(inner, f"{where}.{attribute}{step}".lstrip("."), **checks)


def _messages_in(value: Any) -> Iterator[tuple[str, Proto]]:
    if isinstance(value, Proto):
        yield "", value
    elif isinstance(value, list):
        yield from ((f"[{at}]", item) for at, item in enumerate(value))
    elif isinstance(value, dict):
        yield from ((f"[{name!r}]", item) for name, item in value.items())
