"""What a tool says that it does to the world, checked against its parameters when it is made."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from midspan.errors import SchemaError
from midspan.types.specs import Effects

_HOLE = re.compile(r"\{([^{}]*)\}")


def effects_of(
    tool: str, parameters: dict[str, Any], *, reads: str | Iterable[str], writes: str | Iterable[str], idempotent: bool
) -> Effects | None:
    """The declaration as a value; None if nothing was declared."""
    if not isinstance(idempotent, bool):
        raise SchemaError(f"{tool}: idempotent is True or False, not {idempotent!r}")
    effects = Effects(_templates(tool, "reads", reads), _templates(tool, "writes", writes), idempotent)
    for template in (*effects.reads, *effects.writes):
        _check(template, tool, parameters)
    return None if effects == Effects() else effects


def _templates(tool: str, word: str, given: str | Iterable[str]) -> tuple[str, ...]:
    if isinstance(given, str):
        return (given,)
    if isinstance(given, bytes | Mapping) or not isinstance(given, Iterable):
        raise SchemaError(f"{tool}: {word} is the name of a thing, as 'account:{{id}}', or several; not {given!r}")
    return tuple(given)


def _check(template: str, tool: str, parameters: dict[str, Any]) -> None:
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
