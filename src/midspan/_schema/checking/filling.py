"""Defaults, and whole numbers that arrived as floats: what is put right in arguments that are otherwise valid.

Which places are concerned is found out once, so that a call pays only for those.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from midspan._schema.checking.validators import Compiled
from midspan._schema.checking.weight import DEEPEST_VALUE, measured
from midspan._schema.paths import Steps, format_path
from midspan._schema.positions import array_schemas
from midspan._schema.type_aliases import TYPES, type_of

Test = Callable[[Any], bool]

_LARGEST_DEFAULT = 1_000


class Filling:
    """What to do at one place of a value, and inside it."""

    __slots__ = ("branches", "defaults", "inside", "is_flat", "is_integer", "items", "others", "patterns", "prefix")

    def __init__(self) -> None:
        self.is_integer = False
        self.is_flat = False
        """Whether floats are all that there may be to do here, as in most lists of integers."""
        self.defaults: dict[str, Any] = {}
        self.inside: dict[str, Filling] = {}
        self.patterns: list[tuple[Test, Filling | None]] = []
        """For properties whose names match."""
        self.others: Filling | None = None
        self.items: Filling | None = None
        self.prefix: list[Filling | None] = []
        self.branches: list[tuple[Test, Filling | None]] = []
        """Of a union: the first whose schema the value fits is followed."""

    @property
    def inner(self) -> "list[Filling]":
        """What there is inside it."""
        tested = (one for _, one in (*self.patterns, *self.branches))
        found = (*self.inside.values(), *tested, self.others, self.items, *self.prefix)
        return [one for one in found if one is not None]

    def keep(self, working: set[int]) -> None:
        """Forget the places at which there is nothing to do."""

        def kept(filling: Filling | None) -> Filling | None:
            return filling if id(filling) in working else None

        self.inside = {name: one for name, one in self.inside.items() if kept(one)}
        self.others, self.items = kept(self.others), kept(self.items)
        self.prefix = [kept(one) for one in self.prefix] if any(map(kept, self.prefix)) else []
        self.patterns = [(fits, kept(one)) for fits, one in self.patterns]
        if self.others is None and not any(one for _, one in self.patterns):
            self.patterns = []
        self.branches = [(fits, kept(one)) for fits, one in self.branches]
        if not any(one and (one.defaults or one.inner) for _, one in self.branches):
            self.branches = []  # they matter inside objects and arrays; what a number shall be, the whole union says
        self.is_flat = not (self.defaults or self.inner)

    def applied(self, value: Any, steps: Steps, changes: list[str], *, defaults: bool = True) -> Any:
        """The value put right; the same object if there was nothing to do."""
        kind = type(value)
        if kind is dict:
            return self._branch(self._object(value, steps, changes, defaults), steps, changes, defaults)
        if kind is list:
            return self._branch(self._array(value, steps, changes, defaults), steps, changes, defaults)
        if kind is float and self.is_integer and value.is_integer():
            changes.append(f"{format_path(steps)}: {value} → {int(value)}")
            return int(value)
        return value

    def _branch(self, value: Any, steps: Steps, changes: list[str], defaults: bool) -> Any:
        for fits, filling in self.branches:
            if fits(value):
                return value if filling is None else filling.applied(value, steps, changes, defaults=defaults)
        return value

    def _object(self, value: dict[str, Any], steps: Steps, changes: list[str], defaults: bool) -> dict[str, Any]:
        others = self.others
        is_flat = others is not None and others.is_flat and not (self.defaults or self.inside or self.patterns)
        if is_flat and float not in map(type, value.values()):
            return value
        result = value
        for name, default in self.defaults.items() if defaults else ():
            if name not in value:
                result = dict(value) if result is value else result
                # A copy, because the tool may change what it is given. It is filled in already, when it was read:
                # a schema whose default asks for itself would never end here.
                result[name] = msgspec.to_builtins(default) if isinstance(default, dict | list) else default
        for name, filling in self._concerned(value):
            inner = value[name]
            filled = filling.applied(inner, (*steps, name), changes, defaults=defaults)
            if filled is not inner:
                result = dict(value) if result is value else result
                result[name] = filled
        return result

    def _concerned(self, value: dict[str, Any]) -> Iterator[tuple[str, "Filling"]]:
        if self.others is None and not self.patterns:
            yield from ((name, filling) for name, filling in self.inside.items() if name in value)
            return
        for name in value:
            found = self.inside.get(name) or next((one for fits, one in self.patterns if fits(name)), self.others)
            if found is not None:
                yield name, found

    def _array(self, value: list[Any], steps: Steps, changes: list[str], defaults: bool) -> list[Any]:
        items, prefix = self.items, self.prefix
        if items is None and not prefix:
            return value
        if not prefix and items is not None and items.is_flat and float not in map(type, value):
            return value
        fillings = [*prefix, *[items] * (len(value) - len(prefix))]
        filled = [
            one if filling is None else filling.applied(one, (*steps, at), changes, defaults=defaults)
            for at, (one, filling) in enumerate(zip(value, fillings, strict=False))
        ]
        return value if all(new is old for new, old in zip(filled, value, strict=False)) else filled


def filling_of(compiled: Compiled) -> Filling | None:
    """What this schema asks to put right; None if there is nothing."""
    return _Planner(compiled).plan()


class _Planner:
    def __init__(self, compiled: Compiled) -> None:
        self._compiled = compiled
        self._known: dict[int, Filling] = {}
        self._words: dict[int, frozenset[str]] = {}

    def plan(self) -> Filling | None:
        root = self.at(self._compiled.schema)
        working = {id(one) for one in self._known.values() if one.is_integer or one.defaults}
        grown = True
        while grown:
            grown = False
            # From the inside out, so that once is nearly always enough.
            for filling in reversed(self._known.values()):
                if id(filling) not in working and any(id(one) in working for one in filling.inner):
                    working.add(id(filling))
                    grown = True
        for filling in self._known.values():
            filling.keep(working)
        return root if id(root) in working else None

    def at(self, schema: Any) -> Filling | None:
        """The same object for the same schema, so that recursion in the one becomes recursion in the other."""
        if not isinstance(schema, dict):
            return None
        known = self._known.get(id(schema))
        if known is None:
            known = self._known[id(schema)] = Filling()
            words = self._types(schema)
            known.is_integer = "integer" in words and "number" not in words
            self._gather(known, schema, 0)
        return known

    def _gather(self, filling: Filling, schema: Any, depth: int) -> None:
        if not isinstance(schema, dict) or depth > 16:
            return
        target = self._compiled.document.targets.get(id(schema))
        branches = _branches(schema)
        for part in (target, *schema.get("allOf", ()), *(branches if len(branches) == 1 else ())):
            self._gather(filling, part, depth + 1)
        for name, inner in schema.get("properties", {}).items():
            within = self.at(inner)
            if within is not None:
                filling.inside.setdefault(name, within)
            if isinstance(inner, dict) and "default" in inner and self._fits(inner["default"], inner):
                filling.defaults.setdefault(name, self._filled(inner["default"], inner, within))
        filling.patterns = filling.patterns or [
            (self._matcher(pattern), self.at(inner)) for pattern, inner in schema.get("patternProperties", {}).items()
        ]
        filling.others = filling.others or self.at(schema.get("additionalProperties"))
        prefix, items = array_schemas(schema)
        filling.items = filling.items or self.at(items)
        filling.prefix = filling.prefix or [self.at(one) for one in prefix]
        if len(branches) > 1 and not filling.branches:
            filling.branches = [(self._tester(one), self.at(one)) for one in branches]

    def _matcher(self, pattern: str) -> Test:
        return lambda name: self._compiled.matches(pattern, name)

    def _tester(self, schema: Any) -> Test:
        return lambda value: self._fits(value, schema)

    def _filled(self, default: Any, schema: dict[str, Any], within: Filling | None) -> Any:
        """A default with the defaults inside it."""
        filled = default if within is None else within.applied(default, (), [])
        is_small = measured(filled, DEEPEST_VALUE)[0] <= _LARGEST_DEFAULT
        return filled if is_small and self._fits(filled, schema) else default

    def _fits(self, value: Any, schema: Any) -> bool:
        """A default that its own schema forbids (a lone null, mostly) means «may be left out»."""
        if isinstance(schema, bool):
            return schema
        validator = self._compiled.part(schema)
        try:
            return validator is not None and validator.is_valid(value)
        except ValueError:  # something in it that JSON cannot say
            return False

    def _types(self, schema: Any) -> frozenset[str]:
        """The types that a value here may have; "number" is among them only if it may have a fraction."""
        if not isinstance(schema, dict):
            return frozenset() if schema is False else _ALL
        if (known := self._words.get(id(schema))) is not None:
            return known
        self._words[id(schema)] = _ALL  # for a schema that speaks of itself
        found = _own_types(schema)
        target = self._compiled.document.targets.get(id(schema))
        for part in (*([] if target is None else [target]), *schema.get("allOf", ())):
            found &= self._types(part)
        for union in (schema.get("anyOf"), schema.get("oneOf")):
            if union:
                found &= frozenset[str]().union(*(self._types(one) for one in union))
        self._words[id(schema)] = found
        return found


_ALL = frozenset(TYPES)


def _own_types(schema: dict[str, Any]) -> frozenset[str]:
    words = schema.get("type", _ALL)
    found = frozenset([words] if isinstance(words, str) else words)
    if "number" in found:
        found |= {"integer"}
    if "const" in schema or isinstance(schema.get("enum"), list):
        options = [schema["const"]] if "const" in schema else schema["enum"]
        found &= {"number" if type(option) is float else type_of(option) for option in options}
    return found


def _branches(schema: dict[str, Any]) -> list[Any]:
    """The branches of a union that are not null; `Optional` has one."""
    branches = schema.get("anyOf") or schema.get("oneOf") or ()
    return [one for one in branches if not (isinstance(one, dict) and one.get("type") == "null")]
