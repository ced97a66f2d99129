"""What can be said of a tool beside its function and its schemas, and what is wrong with it told when it is made."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from midspan.errors import ConfigError, ResultError, SchemaError
from midspan.schema.results import sayable
from midspan.types.specs import ToolSpec
from midspan.types.texts import check_text

Final = bool | Callable[[Any], bool]

_LONGEST_TIMEOUT = 1e300
"""What is above it, as 10**400, is no float, or none that can be added to the time of a clock."""


_SAID = ("name", "description", "reads", "writes", "idempotent", "examples", "repeatable")
_OF_EXECUTION = ("final", "timeout", "largest_result")


def check_known(execution: Iterable[str]) -> None:
    """What is said of how a tool is run, by its names."""
    for name in execution:
        if name not in _OF_EXECUTION:
            raise ConfigError(f"a tool has no option {name!r}; it has: {', '.join((*_SAID, *_OF_EXECUTION))}")


def check_options(spec: Any, *, final: Any, timeout: Any, largest_result: Any) -> None:
    """All that a tool is made of, beside its schemas."""
    if not isinstance(spec, ToolSpec):
        raise ConfigError(f"a tool is made of a ToolSpec, not of {spec!r}; tool(function) makes one")
    check_name(spec.name)
    name = spec.name
    check_text(spec.description, f"{name}: description")
    if not isinstance(spec.repeatable, bool):
        raise ConfigError(f"{name}: repeatable is True or False, not {spec.repeatable!r}")
    if timeout is not None and not is_seconds(timeout):
        raise ConfigError(f"{name}: timeout is a number of seconds above 0, or None for no limit; not {timeout!r}")
    if not isinstance(largest_result, int) or isinstance(largest_result, bool) or largest_result < 1:
        raise ConfigError(f"{name}: largest_result is a number of characters above 0, not {largest_result!r}")
    if not isinstance(final, bool) and not (callable(final) and takes_values(final, 1)):
        raise ConfigError(f"{name}: final is True, False or a function of the result, not {final!r}")
    if is_async(final):
        raise ConfigError(f"{name}: final is not awaited; give a plain function of the result")


def is_seconds(value: Any) -> bool:
    """Whether this is a time that somebody may be given; True and False are no numbers here."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= _LONGEST_TIMEOUT


def check_name(name: Any) -> None:
    check_text(name, "the name of a tool")
    if not name:
        raise ConfigError("a tool needs a name; the one that was given is empty")


def takes_values(function: Callable[..., Any], count: int) -> bool:
    """Whether it can be called with so many values, as far as Python can tell."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def is_async(function: Any) -> bool:
    method = getattr(type(function), "__call__", None)  # noqa: B004 - the method is wanted, not whether there is one
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(method)


def examples_of(tool: str, given: Any) -> tuple[dict[str, Any], ...]:
    """The examples as JSON says them, and as copies: nobody changes the declaration by changing his own."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise SchemaError(f"{tool}: examples are a list of dicts, each the arguments of one call; not {given!r}")
    return tuple(_example(tool, one) for one in given)


def _example(tool: str, given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise SchemaError(f"{tool}: an example is a dict, the arguments of one call; not {given!r}")
    try:
        said: dict[str, Any] = sayable(given)
    except ResultError as error:
        where = f" at {error.path.lstrip('.')}" if error.path else ""
        raise SchemaError(f"{tool}: the example {given!r} holds something{where} that JSON cannot say") from error
    return said
