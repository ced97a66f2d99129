"""What a caller gave, as messages of the API, or the reason in words why it can be none."""

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

_NEAR = 0.85
"""How alike an unknown name must be to a known one to be a slip; what is less so may be a field that came later."""


_MOST_BITS = 1024
"""Of the largest number that the API, which counts in doubles, can read."""


def shown(value: Any) -> str:
    """A value in the words of an error: short, whatever it is and however its own repr behaves."""
    try:
        return _repr.repr(value)
    except Exception:  # noqa: BLE001 - the repr of what a caller gave is foreign code
        return f"<{type(value).__name__}>"


_repr = Repr()
_repr.maxlevel, _repr.maxstring, _repr.maxother = 3, 80, 80


def plain(value: Any, where: str) -> Any:
    """The value as JSON has it: dicts, lists, texts, numbers; dates, dataclasses and models are said as such."""
    from midspan._schema.jsonable import to_jsonable  # loaded with the first dict

    try:
        return to_jsonable(_opened(value))
    except ResultError as error:
        place = f"{where}{error.path}".lstrip(".")
        raise ConfigError(f"{place} cannot be sent: {error.problem.partition('; return')[0]}") from error
    except RecursionError as error:
        raise ConfigError(f"{where} cannot be sent: it is nested too deeply, or contains itself") from error


def check_text(text: str, where: str) -> str:
    """The text, if it is made of whole characters."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = text[error.start]
        raise ConfigError(f"{where} cannot be sent: the text holds {half!r}, which is no whole character") from error
    return text


def _opened(value: Any) -> Any:
    """The value without messages in it, however deep they are."""
    kind = type(value)
    if kind in _WITHOUT_INSIDE:
        return value
    if kind in (list, tuple):
        return [_opened(item) for item in value]
    if isinstance(value, Proto):
        return _opened(to_plain(value))
    if kind is dict or isinstance(value, Mapping):
        return {name: _opened(item) for name, item in value.items()}
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise ResultError("the number is larger than any that can be read again")
    return value


_WITHOUT_INSIDE = frozenset((str, float, bool, type(None)))


def read(form: type[AnyProto], value: Any, where: str) -> AnyProto:
    """The message that a caller means: one of its kind, or a dict of its fields, in either casing."""
    if not isinstance(value, form | Mapping):
        raise ConfigError(f"{where} cannot be {shown(value)}; give a {form.__name__}, or a dict of its fields")
    if isinstance(value, form) and fitting_json(form, value) is not None:
        return value
    return read_plain(form, plain(value, where), where, names=isinstance(value, Mapping))


def given_fields(form: type[Proto], value: Any, where: str) -> dict[str, Any]:
    """What a caller set, by the names of the attributes and not looked into; other names stay as they are."""
    known = _known(form)
    if isinstance(value, form):
        own = {attribute: getattr(value, attribute) for attribute, _ in known.values()}
        return {name: one for name, one in own.items() if one is not None and one is not msgspec.UNSET} | value.extra
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} cannot be {shown(value)}; give a {form.__name__}, or a dict of its fields")
    fields_: dict[str, Any] = {}
    for name, one in value.items():
        if not isinstance(name, str):
            raise ConfigError(f"{where} has {shown(name)} for the name of a field; names are texts")
        attribute = known[name][0] if name in known else name
        if attribute in fields_:
            raise ConfigError(f"{where}.{attribute} is given twice")
        if one is not None:
            fields_[attribute] = one
    return fields_


def read_plain(
    form: type[AnyProto], given: dict[str, Any], where: str, *, names: bool = True, kinds: bool = True
) -> AnyProto:
    """The message of these fields; `names` refuses those that look like a slip, `kinds` values of the wrong type."""
    made = from_plain(form, given)
    try:
        problem = next(_misfits(made, where, names=names, kinds=kinds), None)
    except RecursionError:
        problem = f"{where} is nested too deeply"
    if problem is not None:
        raise ConfigError(problem)
    return made


def written(form: type[Proto], message: Proto, where: str, *, kinds: bool = True) -> bytes:
    """The JSON of a message that a caller made, whose fields nobody has looked at yet."""
    data = fitting_json(form, message)
    if data is None:
        data = dump(read_plain(form, plain(message, where), where, names=False, kinds=kinds))
    return data


def fitting_json(form: type[Proto], message: Proto) -> bytes | None:
    """The JSON of a message all of whose fields are of their types and known; None if one is not, or may not be.

    What is None is not written, so a null is the caller's own, or a NaN, of which the encoder makes one.
    """
    try:
        data = dump(message)
        _strict(form).decode(data)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError, OverflowError):
        return None  # something odd, or something that only the server knows: the slow way tells them apart
    return None if b"null" in data else data


_strict = cache(msgspec.json.Decoder)


def _misfits(message: Proto, where: str, *, names: bool, kinds: bool) -> Iterator[str]:
    """What stands among the leftovers of a message and does not belong there."""
    known = _known(type(message))
    for name, value in message.extra.items():
        if name in known:
            if not kinds:
                continue
            attribute, hint = known[name]
            place = f"{where}.{attribute}".lstrip(".")
            twice = getattr(message, attribute) not in (None, msgspec.UNSET, [], {})
            yield f"{place} is given twice" if twice else f"{place} cannot be {shown(value)}; it takes {_words(hint)}"
        elif names and name not in _SCHEMA_WORDS and (near := get_close_matches(name, known, 1, _NEAR)):
            yield f"there is no field called {name!r}{where and ' in ' + where}; did you mean {near[0]}?"
    for attribute, _ in dict.fromkeys(known.values()):
        for step, inner in _messages(getattr(message, attribute)):
            yield from _misfits(inner, f"{where}.{attribute}{step}".lstrip("."), names=names, kinds=kinds)


_SCHEMA_WORDS = frozenset(("$defs", "$ref", "examples"))
"""Of JSON Schema, and no slips for the words of the API's own schemas that they resemble."""


def _messages(value: Any) -> Iterator[tuple[str, Proto]]:
    match value:
        case Proto():
            yield "", value
        case list():
            yield from ((f"[{at}]", item) for at, item in enumerate(value) if isinstance(item, Proto))
        case dict():
            yield from ((f"[{name!r}]", item) for name, item in value.items() if isinstance(item, Proto))


@cache
def _known(form: type[Proto]) -> dict[str, tuple[str, Any]]:
    """In both casings, the attribute and the hint of each field."""
    hints = get_type_hints(form)
    own = [one for one in fields(form) if one.encode_name != EXTRA]
    return {name: (one.name, hints[one.name]) for one in own for name in (one.name, one.encode_name)}


def _words(hint: Any) -> str:
    """What a field takes, in words."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        members = [one for one in arguments if one not in (type(None), UnsetType)]
        if float in members:
            members.remove(int)
        return " or ".join(map(_words, members))
    if origin is list:
        return f"a list, each item {_words(arguments[0])}"
    if origin is dict:
        return "a dict" if arguments[1] is Any else f"a dict, each value {_words(arguments[1])}"
    if isinstance(hint, type) and issubclass(hint, Proto):
        return f"a {hint.__name__} or a dict of its fields"
    return _NAMES.get(hint, "any JSON")


_NAMES = {str: "a text", bool: "True or False", int: "a whole number", float: "a number"}
