"""JSON values made into values of Python types, by one call of msgspec.

msgspec makes what it knows. For every other type the hint holds a placeholder, which carries the function that
makes it, so that a whole set of arguments is still one call.
"""

import re
import types
import typing
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any

import msgspec

from midspan._schema.paths import Steps, format_path
from midspan.errors import ArgumentError

_MOST = 20


class _PlaceholderType(type):
    convert: Callable[[Any], Any]
    inside: Any

    # msgspec checks with isinstance what a hook returns, and a placeholder stands for anything.
    def __instancecheck__(cls, instance: object) -> bool:
        return True


def placeholder(name: str, convert: Callable[[Any], Any], inside: Any = None) -> Any:
    """A type that stands in a hint where msgspec shall leave the making to `convert`.

    `inside` is the hint of what it is made from, for telling what is wrong in there.
    """
    return _PlaceholderType(name, (), {"convert": staticmethod(convert), "inside": inside})


class Several(ValueError):
    """More than one thing is wrong, each with the steps to it."""

    def __init__(self, problems: list[tuple[Steps, str]]) -> None:
        super().__init__(
            " and ".join(f"{format_path(steps)}: {words}" if steps else words for steps, words in problems)
        )
        self.problems = problems


def is_placeholder(hint: Any) -> bool:
    return isinstance(hint, _PlaceholderType)


def is_accepted(hint: Any) -> bool:
    """Whether msgspec takes this hint; it refuses some unions, enums and limits."""
    try:
        msgspec.json.Decoder(hint)
    except TypeError:
        return False
    return True


def converted(value: Any, hint: Any) -> Any:
    """The value as this hint says; a ValueError with msgspec's path if that cannot be."""
    return msgspec.convert(value, hint, dec_hook=_make, str_keys=True)


def _make(kind: Any, value: Any) -> Any:
    """What msgspec calls for a placeholder."""
    try:
        return kind.convert(value)
    except msgspec.ValidationError as error:
        # Raised on as it is, it would lose the path that leads here.
        raise ValueError(str(error)) from error
    except (ValueError, TypeError, RecursionError):
        raise
    except Exception as error:  # a constructor is foreign code, and what it raises speaks of its argument
        raise ValueError(f"{type(error).__name__}: {error}") from error


def argument_error(given: list[tuple[Any, Any]]) -> ArgumentError:
    """All that keeps values from becoming what their hints say, one line each, with the path and in words that help."""
    problems = chain.from_iterable(_problems(value, hint, ()) for value, hint in given)
    found = list(dict.fromkeys(islice(problems, _MOST)))
    if len(found) == 1:
        return ArgumentError(*found[0])
    lines = [f"{path}: {words}" if path else words for path, words in found]
    return ArgumentError("", "\n".join(lines) or "it cannot be made into what the tool takes")


def _problems(value: Any, hint: Any, steps: Steps) -> Iterator[tuple[str, str]]:
    """Each part is tried on its own, because msgspec stops at the first that fails and does not tell a dict's keys."""
    try:
        hint.convert(value) if is_placeholder(hint) else converted(value, hint)
    except Several as several:
        yield from ((format_path((*steps, *inner)), _one_line(words)) for inner, words in several.problems)
        return
    except Exception as error:  # noqa: BLE001 - a constructor is foreign code
        failure = error
    else:
        return
    told = False
    for step, inner, inner_hint in _parts(value, hint):
        for problem in _problems(inner, inner_hint, (*steps, step)):
            told = True
            yield problem
    if not told:
        yield _told(failure, steps)


def _parts(value: Any, hint: Any) -> Iterator[tuple[str | int, Any, Any]]:
    """What is inside a value, each with the step to it and the hint that it has there."""
    while is_placeholder(hint) or hasattr(hint, "__metadata__"):
        hint = hint.inside if is_placeholder(hint) else hint.__origin__
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        members = [member for member in arguments if member is not type(None)]
        yield from _parts(value, members[0]) if len(members) == 1 else ()
    elif isinstance(value, dict) and origin is dict:
        yield from ((key, item, arguments[1]) for key, item in value.items())
    elif isinstance(value, dict) and isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        for field in msgspec.structs.fields(hint):
            if field.encode_name in value:
                yield field.encode_name, value[field.encode_name], field.type
    elif isinstance(value, list) and origin is tuple and Ellipsis not in arguments:
        yield from zip(range(len(value)), value, arguments, strict=False)
    elif isinstance(value, list) and origin in (list, tuple, set, frozenset):
        yield from ((at, item, arguments[0]) for at, item in enumerate(value))


def _told(error: Exception, steps: Steps) -> tuple[str, str]:
    """What msgspec, or a constructor, said of what is there."""
    place = format_path(steps)
    if isinstance(error, RecursionError):
        return place, "nested too deeply"
    text = str(error) if isinstance(error, ValueError | TypeError) else f"{type(error).__name__}: {error}"
    inner_first = [match.group(1) for match in _PLACE.finditer(text)]
    path = place + "".join(reversed(inner_first))
    problem = _PLACE.sub("", text)
    if found := _FIELD.fullmatch(problem):
        return f"{path}.{found[2]}".lstrip("."), _FIELD_PROBLEMS[found[1]]
    return path.lstrip("."), _WORDS.get(problem, _one_line(problem))


def _one_line(words: str) -> str:
    return " ".join(words.split())


_PLACE = re.compile(r" - at `(?:key` in `)?\$([^`]*)`")
_FIELD = re.compile(r"Object (missing required|contains unknown) field `(.*)`", re.DOTALL)
_FIELD_PROBLEMS = {
    "missing required": "required, but missing",
    "contains unknown": "there is no such parameter or field",
}
_WORDS = {
    "Invalid RFC3339 encoded date": "not a date; write YYYY-MM-DD, and a day that exists",
    "Invalid RFC3339 encoded datetime": "not a date and time; write YYYY-MM-DDTHH:MM:SS, with Z or an offset "
    "if the time zone matters, and a moment that exists",
    "Invalid RFC3339 encoded time": "not a time of day; write HH:MM:SS",
    "Invalid ISO8601 duration": "not a duration; write it as in ISO 8601, such as P1DT2H30M",
    "Invalid UUID": "not a UUID; write 32 hexadecimal digits as 8-4-4-4-12",
    "Invalid decimal string": "not a decimal number; write it in digits, such as 12.50",
    "Invalid base64 encoded string": "not base64",
}
