"""What can be said of a tool beside its function and its schemas, and what is wrong with it told when it is made."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from midspan._types.specs import Effects, ToolSpec
from midspan._types.texts import check_text
from midspan.errors import ConfigError, ResultError, SchemaError

Final = bool | Callable[[Any], bool]

_LONGEST_TIMEOUT = 1e300
"""What is above it, as 10**400, is no float, or none that can be added to the time of a clock."""
_HOLE = re.compile(r"\{([^{}]*)\}")


_SAID = ("name", "description", "reads", "writes", "idempotent", "examples", "repeatable", "title", "read_only")
_OF_EXECUTION = ("final", "timeout", "max_result_chars")


def check_known(execution: Iterable[str]) -> None:
    """What is said of how a tool is run, by its names."""
    for name in execution:
        if name not in _OF_EXECUTION:
            raise ConfigError(f"a tool has no option {name!r}; it has: {', '.join((*_SAID, *_OF_EXECUTION))}")


def check_options(spec: Any, *, final: Any, timeout: Any, max_result_chars: Any) -> None:
    """All that a tool is made of, beside its schemas."""
    if not isinstance(spec, ToolSpec):
        raise ConfigError(f"a tool is made of a ToolSpec, not of {spec!r}; tool(function) makes one")
    check_name(spec.name)
    name = spec.name
    check_text(spec.description, f"{name}: description")
    if not isinstance(spec.repeatable, bool):
        raise ConfigError(f"{name}: repeatable is True or False, not {spec.repeatable!r}")
    if spec.title is not None:
        check_text(spec.title, f"{name}: title")
    if spec.read_only is not None and not isinstance(spec.read_only, bool):
        raise ConfigError(f"{name}: read_only must be True, False or None, got {spec.read_only!r}")
    if spec.read_only and spec.effects is not None and spec.effects.writes:
        raise ConfigError(f"{name}: read_only contradicts writes={spec.effects.writes!r}")
    if timeout is not None and not is_seconds(timeout):
        raise ConfigError(f"{name}: timeout is a number of seconds above 0, or None for no limit; not {timeout!r}")
    if not isinstance(max_result_chars, int) or isinstance(max_result_chars, bool) or max_result_chars < 1:
        raise ConfigError(f"{name}: max_result_chars is a number of characters above 0, not {max_result_chars!r}")
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
    from midspan._schema.jsonable import to_jsonable  # few tools have examples

    try:
        said: dict[str, Any] = to_jsonable(given)
    except ResultError as error:
        where = f" at {error.path.lstrip('.')}" if error.path else ""
        raise SchemaError(f"{tool}: the example {given!r} holds something{where} that JSON cannot say") from error
    return said


def effects_of(
    tool: str, parameters: dict[str, Any], *, reads: str | Iterable[str], writes: str | Iterable[str], idempotent: bool
) -> Effects | None:
    """The declaration as a value; None if nothing was declared."""
    if not isinstance(idempotent, bool):
        raise SchemaError(f"{tool}: idempotent is True or False, not {idempotent!r}")
    effects = Effects(_templates(tool, "reads", reads), _templates(tool, "writes", writes), idempotent)
    for template in (*effects.reads, *effects.writes):
        _check_template(template, tool, parameters)
    return None if effects == Effects() else effects


def _templates(tool: str, word: str, given: str | Iterable[str]) -> tuple[str, ...]:
    if isinstance(given, str):
        return (given,)
    if isinstance(given, bytes | Mapping) or not isinstance(given, Iterable):
        raise SchemaError(f"{tool}: {word} is the name of a thing, as 'account:{{id}}', or several; not {given!r}")
    return tuple(given)


def _check_template(template: str, tool: str, parameters: dict[str, Any]) -> None:
    if not isinstance(template, str) or not template or _HOLE.sub("", template).strip("{}") != _HOLE.sub("", template):
        raise SchemaError(
            f"{tool}: {template!r} is no name of a thing; write it as 'account:{{id}}', 'account:*' or '*'"
        )
    said = parameters.get("properties")
    known = [key for key in said if isinstance(key, str)] if isinstance(said, dict) else []
    for hole in _HOLE.findall(template):
        if hole not in known:
            names = ", ".join(known) or "none"
            raise SchemaError(f"{tool}: {template!r} has a hole for {hole!r}, but the parameters are: {names}")
