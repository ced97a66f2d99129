"""Defaults, and whole numbers that arrived as floats: what is put right in arguments that are otherwise valid.

Which places are concerned is found out once, so that a call pays only for those.
"""

from copy import deepcopy
from typing import Any

from wasat.schema.size import measured
from wasat.schema.validators import Compiled
from wasat.schema.weight import DEEPEST_VALUE
from wasat.schema.wording import path_of

Steps = tuple[str | int, ...]

_LARGEST_DEFAULT = 1_000


class Filling:
    """What to do at one place of a value, and inside it."""

    __slots__ = ("defaults", "inside", "is_integer", "items", "others", "prefix")

    def __init__(self) -> None:
        self.is_integer = False
        self.defaults: dict[str, Any] = {}
        self.inside: dict[str, Filling] = {}
        self.others: Filling | None = None
        self.items: Filling | None = None
        self.prefix: list[Filling | None] = []

    @property
    def is_idle(self) -> bool:
        return not (self.is_integer or self.defaults or self.inside or self.others or self.items or any(self.prefix))

    def applied(self, value: Any, steps: Steps, changes: list[str]) -> Any:
        """The value put right; the same object if there was nothing to do."""
        kind = type(value)
        if kind is dict:
            return self._object(value, steps, changes)
        if kind is list and (self.items is not None or self.prefix):
            return self._array(value, steps, changes)
        if kind is float and self.is_integer and value.is_integer():
            changes.append(f"{path_of(steps)}: {value} → {int(value)}")
            return int(value)
        return value

    def _object(self, value: dict[str, Any], steps: Steps, changes: list[str]) -> dict[str, Any]:
        result = value
        for name, default in self.defaults.items():
            if name not in value:
                result = dict(value) if result is value else result
                # A copy, because the tool may change what it is given. It is filled in already, when it was read:
                # a schema whose default asks for itself would never end here.
                result[name] = deepcopy(default) if isinstance(default, dict | list) else default
        if self.others is not None:
            concerned = {name: self.inside.get(name, self.others) for name in value}
        else:
            concerned = self.inside
        for name, filling in concerned.items():
            if name in value:
                inner = value[name]
                filled = filling.applied(inner, (*steps, name), changes)
                if filled is not inner:
                    result = dict(value) if result is value else result
                    result[name] = filled
        return result

    def _array(self, value: list[Any], steps: Steps, changes: list[str]) -> list[Any]:
        fillings = [*self.prefix, *[self.items] * (len(value) - len(self.prefix))]
        filled = [
            one if filling is None else filling.applied(one, (*steps, at), changes)
            for at, (one, filling) in enumerate(zip(value, fillings, strict=False))
        ]
        return value if all(new is old for new, old in zip(filled, value, strict=False)) else filled


def filling_of(compiled: Compiled) -> Filling | None:
    """What this schema asks to put right; None if there is nothing."""
    filling = _Planner(compiled).at(compiled.schema)
    return None if filling is None or filling.is_idle else filling


class _Planner:
    def __init__(self, compiled: Compiled) -> None:
        self._compiled = compiled
        self._known: dict[int, Filling] = {}

    def at(self, schema: Any) -> Filling | None:
        """The same object for the same schema, so that recursion in the one becomes recursion in the other."""
        if not isinstance(schema, dict):
            return None
        known = self._known.get(id(schema))
        if known is None:
            known = self._known[id(schema)] = Filling()
            self._gather(known, schema, 0)
            self._prune(known)
        return known

    def _gather(self, filling: Filling, schema: Any, depth: int) -> None:
        if not isinstance(schema, dict) or depth > 16:
            return
        target = self._compiled.document.targets.get(id(schema))
        for part in (target, *schema.get("allOf", ()), _only_branch(schema)):
            self._gather(filling, part, depth + 1)
        filling.is_integer = filling.is_integer or _is_integer(schema)
        for name, inner in schema.get("properties", {}).items():
            within = self.at(inner)
            if within is not None:
                filling.inside.setdefault(name, within)
            if isinstance(inner, dict) and "default" in inner and self._fits(inner["default"], inner):
                filling.defaults.setdefault(name, self._filled(inner["default"], inner, within))
        filling.others = filling.others or self.at(schema.get("additionalProperties"))
        filling.items = filling.items or self.at(schema.get("items"))
        filling.prefix = filling.prefix or [self.at(one) for one in schema.get("prefixItems", ())]

    def _filled(self, default: Any, schema: dict[str, Any], within: Filling | None) -> Any:
        """A default with the defaults inside it."""
        filled = default if within is None else within.applied(default, (), [])
        is_small = measured(filled, DEEPEST_VALUE)[0] <= _LARGEST_DEFAULT
        return filled if is_small and self._fits(filled, schema) else default

    def _prune(self, filling: Filling) -> None:
        """Places without work are forgotten; those still being looked at are kept, they may have some."""
        filling.inside = {name: one for name, one in filling.inside.items() if not one.is_idle}
        filling.others = None if filling.others is None or filling.others.is_idle else filling.others
        filling.items = None if filling.items is None or filling.items.is_idle else filling.items
        if all(one is None or one.is_idle for one in filling.prefix):
            filling.prefix = []

    def _fits(self, default: Any, schema: dict[str, Any]) -> bool:
        """A default that its own schema forbids (a lone null, mostly) means «may be left out»."""
        validator = self._compiled.part(schema)
        return validator is not None and validator.is_valid(default)


def _only_branch(schema: dict[str, Any]) -> Any:
    """The one branch of a union that is not null: what `Optional` becomes."""
    branches = schema.get("anyOf") or schema.get("oneOf") or ()
    others = [one for one in branches if not (isinstance(one, dict) and one.get("type") == "null")]
    return others[0] if len(others) == 1 else None


def _is_integer(schema: dict[str, Any]) -> bool:
    """Whether a number here must be whole; a union that also takes fractions leaves floats alone."""
    words = schema.get("type")
    return words == "integer" or (isinstance(words, list) and "integer" in words and "number" not in words)
