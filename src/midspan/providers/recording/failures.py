"""Exceptions as values of a recording, and back."""

import builtins
from typing import Any, cast

import msgspec

from midspan import errors
from midspan.errors import InvalidRequest, MidspanError, ProviderError
from midspan.providers.recording.lines import Failure

_CARRIED = ("status", "retry_delay_seconds", "details", "violations", "raw_finish_reason", "limit")


def failure_of(error: BaseException) -> Failure:
    """What is to be kept of an exception."""
    carried = {name: value for name in _CARRIED if (value := getattr(error, name, None)) not in (None, ())}
    return Failure(type(error).__name__, _words(error), _sayable(carried) if isinstance(error, MidspanError) else {})


def error_of(failure: Failure) -> Exception:
    """An exception of the same name and words, which whoever catches the first one catches too."""
    kind = getattr(errors, failure.type, None)
    if not (isinstance(kind, type) and issubclass(kind, MidspanError)):
        return _foreign(failure)
    error = kind.__new__(kind, failure.message)
    Exception.__init__(error, failure.message)  # its own would ask for more than the words
    error.__dict__ |= _defaults(kind) | {name: _tuples(value) for name, value in failure.carries.items()}
    return error


def _defaults(kind: type[MidspanError]) -> dict[str, Any]:
    """What an error carries where nothing else was said."""
    fields: dict[str, Any] = {}
    if issubclass(kind, ProviderError):
        fields |= {"status": None, "retry_delay_seconds": None, "details": ()}
    if issubclass(kind, InvalidRequest):
        fields["violations"] = ()
    return fields


def _tuples(value: Any) -> Any:
    """The lists of JSON as errors have them: several details, and pairs that say what is wrong with a field."""
    return tuple(tuple(one) if isinstance(one, list) else one for one in value) if isinstance(value, list) else value


def _foreign(failure: Failure) -> Exception:
    """One that is not ours: of Python's own class of that name if there is one, in any case with that name."""
    known = getattr(builtins, failure.type, None)
    usable = isinstance(known, type) and issubclass(known, Exception) and not issubclass(known, BaseExceptionGroup)
    above: Any = known if usable else Exception
    kind: Any = type(failure.type, (above,), {"__str__": lambda _: failure.message})
    return cast("Exception", kind.__new__(kind))


def _words(error: BaseException) -> str:
    try:
        return str(error).encode(errors="replace").decode()
    except Exception:  # noqa: BLE001 - even the words of an exception are foreign code
        return ""


def _sayable(carried: dict[str, Any]) -> dict[str, Any]:
    try:
        said: dict[str, Any] = msgspec.to_builtins(carried)
    except (TypeError, msgspec.MsgspecError, RecursionError):
        return {name: value for name, value in carried.items() if isinstance(value, str | int | float)}
    return said
