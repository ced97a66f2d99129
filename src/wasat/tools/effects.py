"""What a tool says that it does to the world, checked against its parameters when it is made."""

import re
from collections.abc import Iterable
from typing import Any

from wasat.errors import SchemaError
from wasat.types.specs import Effects

_HOLE = re.compile(r"\{([^{}]*)\}")


def effects_of(
    tool: str, parameters: dict[str, Any], *, reads: str | Iterable[str], writes: str | Iterable[str], idempotent: bool
) -> Effects | None:
    """The declaration as a value; None if nothing was declared."""
    effects = Effects(_templates(reads), _templates(writes), idempotent)
    for template in (*effects.reads, *effects.writes):
        _check(template, tool, parameters)
    return None if effects == Effects() else effects


def _templates(given: str | Iterable[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _check(template: str, tool: str, parameters: dict[str, Any]) -> None:
    if not template or _HOLE.sub("", template).strip("{}") != _HOLE.sub("", template):
        raise SchemaError(
            f"{tool}: {template!r} is no name of a thing; write it as 'account:{{id}}', 'account:*' or '*'"
        )
    known = parameters.get("properties") or {}
    for hole in _HOLE.findall(template):
        if hole not in known:
            names = ", ".join(known) or "none"
            raise SchemaError(f"{tool}: {template!r} has a hole for {hole!r}, but the parameters are: {names}")
