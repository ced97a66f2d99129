"""JSON values made into values of Python types, by one call of msgspec.

msgspec makes what it knows. For every other type the hint holds a placeholder, which carries the function that
makes it, so that a whole set of arguments is still one call.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from wasat.errors import ArgumentError


class _PlaceholderType(type):
    convert: Callable[[Any], Any]

    # msgspec checks with isinstance what a hook returns, and a placeholder stands for anything.
    def __instancecheck__(cls, instance: object) -> bool:
        return True


def placeholder(name: str, convert: Callable[[Any], Any]) -> Any:
    """A type that stands in a hint where msgspec shall leave the making to `convert`."""
    return _PlaceholderType(name, (), {"convert": staticmethod(convert)})


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


def argument_error(error: Exception, place: str = "") -> ArgumentError:
    """What msgspec said of what is at `place`, with the whole path in front and in words that help."""
    if isinstance(error, RecursionError):
        return ArgumentError(place, "nested too deeply")
    text = str(error)
    inner_first = [match.group(1) for match in _PLACE.finditer(text)]
    path = place + "".join(reversed(inner_first))
    problem = _PLACE.sub("", text)
    if found := _FIELD.fullmatch(problem):
        return ArgumentError(f"{path}.{found[2]}".lstrip("."), _FIELD_PROBLEMS[found[1]])
    return ArgumentError(path.lstrip("."), _WORDS.get(problem, problem))


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
