"""Where a value does not fit, found by asking yes or no: for values on which a list of errors would take too long."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from wasat.schema.validators import Compiled
from wasat.schema.wording import MOST, Problem, Wording, path_of, quoted

Steps = tuple[str | int, ...]

_LONGEST_CHAIN = 16


def located(value: Any, compiled: Compiled) -> tuple[Problem, ...]:
    """The innermost places that do not fit, as far as no union hides which branch was meant."""
    found = list(islice(_Locating(compiled).problems(value, compiled.schema, (), 0), MOST + 1))
    return tuple(found) if len(found) <= MOST else (*found[:MOST], Problem("", "and more"))


class _Locating:
    def __init__(self, compiled: Compiled) -> None:
        self._compiled = compiled
        self._wording = Wording(compiled.document)

    def problems(self, value: Any, schema: Any, steps: Steps, chain: int) -> Iterator[Problem]:
        inner = False
        for part, one, step in self._parts(value, schema, chain):
            if self._fails(one, part):
                inner = True
                yield from self.problems(one, part, (*steps, *step), 0 if step else chain + 1)
        if not inner:
            expected = self._wording.described(schema) or "something else"
            yield Problem(path_of(steps), f"does not fit: expected {expected}, got {quoted(value)}")

    def _parts(self, value: Any, schema: Any, chain: int) -> Iterator[tuple[Any, Any, Steps]]:
        if not isinstance(schema, dict):
            return
        if chain < _LONGEST_CHAIN:
            for same in (self._compiled.document.targets.get(id(schema)), *schema.get("allOf", ())):
                yield same, value, ()
        if isinstance(value, dict):
            properties, others = schema.get("properties", {}), schema.get("additionalProperties")
            for name, one in value.items():
                yield properties.get(name, others), one, (name,)
        elif isinstance(value, list):
            for at, one in enumerate(value):
                yield schema.get("items"), one, (at,)

    def _fails(self, value: Any, schema: Any) -> bool:
        validator = self._compiled.part(schema) if isinstance(schema, dict) else None
        return validator is not None and not validator.is_valid(value)
