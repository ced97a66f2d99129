"""Fill in defaults, and convert whole numbers that arrived as floats, in arguments that are otherwise valid.

Where there is something to do is determined once, so that a call pays only for those places.
"""

from collections.abc import Callable, Iterator
from itertools import chain, repeat
from typing import Any

import msgspec

from midspan._schema.paths import Steps, format_path
from midspan._schema.tree import SchemaNode
from midspan._schema.validation.compiled import MAX_VALUE_DEPTH, CompiledSchema, measure

_Test = Callable[[Any], bool]
_MAX_DEFAULT_VALUES = 1_000


class DefaultsPlan:
    """What to do at one place of a value, and inside it. None stands for a plan without anything to do."""

    def __init__(self) -> None:
        self.is_integer = False
        self.defaults: dict[str, Any] = {}
        self.properties: dict[str, DefaultsPlan] = {}
        self.patterns: list[tuple[_Test, DefaultsPlan | None]] = []
        """Plans for properties whose names pass a test."""
        self.additional: DefaultsPlan | None = None
        self.prefix: list[DefaultsPlan | None] = []
        self.items: DefaultsPlan | None = None
        self.variants: list[tuple[_Test, DefaultsPlan | None]] = []
        """The plan of the first variant that the value fits is applied."""

    @property
    def inner(self) -> "list[DefaultsPlan]":
        tested = (plan for _, plan in (*self.patterns, *self.variants))
        plans = (*self.properties.values(), *tested, self.additional, *self.prefix, self.items)
        return [plan for plan in plans if plan is not None]

    @property
    def only_numbers(self) -> bool:
        """Whether there is nothing to do but to convert floats, as in most arrays of integers."""
        return not (self.defaults or self.inner)

    @property
    def reaches_deeper(self) -> bool:
        """Whether there is something to do beyond named properties."""
        return bool(self.patterns or self.additional or self.prefix or self.items or self.variants)

    def apply_defaults(self, value: Any, steps: Steps, changes: list[str], *, defaults: bool = True) -> Any:
        """Return the value with everything filled in; the same object if there was nothing to do."""
        if type(value) is dict:
            result: Any = self._object(value, steps, changes, defaults)
        elif type(value) is list:
            result = self._array(value, steps, changes, defaults)
        elif type(value) is float and self.is_integer and value.is_integer():
            changes.append(f"{format_path(steps)}: {value} → {int(value)}")
            return int(value)
        else:
            return value
        for fits, plan in self.variants:
            if fits(result):
                return result if plan is None else plan.apply_defaults(result, steps, changes, defaults=defaults)
        return result

    def _object(self, value: dict[str, Any], steps: Steps, changes: list[str], defaults: bool) -> dict[str, Any]:
        changed: dict[str, Any] = {}
        for name, default in self.defaults.items() if defaults else ():
            if name not in value:
                # A copy, because the tool may change what it gets. It is filled in already, when the plan is made:
                # a schema whose default needs its own default would never end here.
                changed[name] = msgspec.to_builtins(default) if isinstance(default, dict | list) else default
        for name, plan in self._property_plans(value):
            filled = plan.apply_defaults(value[name], (*steps, name), changes, defaults=defaults)
            if filled is not value[name]:
                changed[name] = filled
        return {**value, **changed} if changed else value

    def _property_plans(self, value: dict[str, Any]) -> "Iterator[tuple[str, DefaultsPlan]]":
        if self.additional is None and not self.patterns:
            yield from ((name, plan) for name, plan in self.properties.items() if name in value)
            return
        for name in value:
            plan = self.properties.get(name) or next(
                (plan for fits, plan in self.patterns if fits(name)), self.additional
            )
            if plan is not None:
                yield name, plan

    def _array(self, value: list[Any], steps: Steps, changes: list[str], defaults: bool) -> list[Any]:
        if not self.prefix and (self.items is None or (self.items.only_numbers and float not in map(type, value))):
            return value
        plans = chain(self.prefix, repeat(self.items))
        filled = [
            item if plan is None else plan.apply_defaults(item, (*steps, index), changes, defaults=defaults)
            for index, (item, plan) in enumerate(zip(value, plans, strict=False))
        ]
        return value if all(new is old for new, old in zip(filled, value, strict=True)) else filled

    def prune(self, working: set[int]) -> None:
        """Remove the plans without anything to do."""

        def keep(plan: DefaultsPlan | None) -> DefaultsPlan | None:
            return plan if id(plan) in working else None

        self.properties = {name: plan for name, plan in self.properties.items() if keep(plan)}
        self.additional, self.items = keep(self.additional), keep(self.items)
        self.prefix = [keep(plan) for plan in self.prefix] if any(map(keep, self.prefix)) else []
        self.patterns = [(fits, keep(plan)) for fits, plan in self.patterns]
        if self.additional is None and not any(plan for _, plan in self.patterns):
            self.patterns = []
        self.variants = [(fits, keep(plan)) for fits, plan in self.variants]
        if all(plan is None or plan.only_numbers for _, plan in self.variants):
            self.variants = []  # they matter inside objects and arrays; which numbers are integers, the union says


def plan_defaults(compiled: CompiledSchema) -> DefaultsPlan | None:
    """Return what this schema wants to be filled in; None if there is nothing."""
    planner = _Planner(compiled)
    root = planner.plan(compiled.root)
    plans = planner.complete()
    working = {id(plan) for plan in plans if plan.is_integer or plan.defaults}
    has_grown = True
    while has_grown:
        has_grown = False
        for plan in reversed(plans):  # from the inside out, so that once is nearly always enough
            if id(plan) not in working and any(id(inner) in working for inner in plan.inner):
                working.add(id(plan))
                has_grown = True
    for plan in plans:
        plan.prune(working)
    return root if id(root) in working else None


class _Planner:
    def __init__(self, compiled: CompiledSchema) -> None:
        self._compiled = compiled
        self._plans: dict[int, tuple[DefaultsPlan, SchemaNode]] = {}
        self._defaults: list[tuple[DefaultsPlan, str, SchemaNode]] = []

    def plan(self, node: SchemaNode) -> DefaultsPlan | None:
        """Return the plan of a node, the same each time, so that recursive schemas have recursive plans."""
        if node.always is not None:
            return None
        if id(node) not in self._plans:
            self._plans[id(node)] = DefaultsPlan(), node
        return self._plans[id(node)][0]

    def complete(self) -> list[DefaultsPlan]:
        """Fill in all plans that were asked for, those inside them, and return them."""
        completed = 0
        while completed < len(self._plans):
            for plan, node in list(self._plans.values())[completed:]:
                plan.is_integer = "integer" in node.types and "number" not in node.types
                self._add(plan, node)
                completed += 1
        for plan, name, prop in reversed(self._defaults):
            plan.defaults[name] = self._filled_default(prop)
        return [plan for plan, _ in self._plans.values()]

    def _add(self, plan: DefaultsPlan, node: SchemaNode, depth: int = 0) -> None:
        for schema in reversed(node.conjuncts):  # what the node itself says comes last, and loses
            variants = [variant for variant in schema.variants if not variant.is_null]
            if len(variants) == 1 and depth < 16:
                self._add(plan, variants[0], depth + 1)
            for name, prop in schema.properties.items():
                self._add_property(plan, name, prop)
            plan.patterns = plan.patterns or [
                (self._pattern_test(pattern), self.plan(inner)) for pattern, inner in schema.pattern_properties.items()
            ]
            plan.additional = plan.additional or self.plan(schema.additional)
            plan.items = plan.items or self.plan(schema.items)
            plan.prefix = plan.prefix or [self.plan(item) for item in schema.prefix]
            if len(variants) > 1 and not plan.variants:
                plan.variants = [(self._fit_test(variant), self.plan(variant)) for variant in variants]

    def _add_property(self, plan: DefaultsPlan, name: str, prop: SchemaNode) -> None:
        inner = self.plan(prop)
        if inner is not None:
            plan.properties.setdefault(name, inner)
        # A default that its own schema forbids (null, mostly) means "may be left out".
        is_usable = "default" in prop.schema and self._compiled.fits(prop.schema["default"], prop)
        if is_usable and name not in plan.defaults:
            plan.defaults[name] = prop.schema["default"]
            self._defaults.append((plan, name, prop))

    def _filled_default(self, prop: SchemaNode) -> Any:
        """Return a default with the defaults inside it."""
        default = prop.schema["default"]
        plan = self.plan(prop)
        filled = default if plan is None else plan.apply_defaults(default, (), [])
        is_small = measure(filled, MAX_VALUE_DEPTH)[0] <= _MAX_DEFAULT_VALUES
        return filled if is_small and self._compiled.fits(filled, prop) else default

    def _pattern_test(self, pattern: str) -> _Test:
        return lambda name: self._compiled.matches(pattern, name)

    def _fit_test(self, node: SchemaNode) -> _Test:
        return lambda value: self._compiled.fits(value, node)
