"""Arguments from a model as a tool takes them: fill in defaults, coerce, validate."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from midspan._schema.coercion import Coercer
from midspan._schema.compiled import MAX_VALUE_DEPTH, CompiledSchema
from midspan._schema.problems import Problem, Steps, format_path
from midspan._schema.tree import SchemaNode, measure

__all__ = ["Problem", "SchemaValidator", "ValidatedArguments"]

_MAX_DEFAULT_VALUES = 1_000


class ValidatedArguments(Struct, frozen=True):
    """Arguments as the tool gets them, what had to be changed in them, and what is still wrong."""

    arguments: dict[str, Any]
    changes: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()


class SchemaValidator:
    """A schema compiled once, for any number of values. Errors call it "invalid `label` schema"."""

    __slots__ = ("_compiled", "_plan", "accepts", "fast_path", "problems")

    def __init__(
        self,
        schema: dict[str, Any],
        *,
        label: str = "parameters",
        formats: bool = False,
        remotes: Mapping[str, Any] | None = None,
    ) -> None:
        self._compiled = CompiledSchema(schema, label=label, formats=formats, remotes=remotes)
        self._plan = _DefaultsPlan(self._compiled)
        self.fast_path = _fast_path(self._compiled, self._plan)
        """Returns the arguments as the tool gets them if defaults are all that they lack; else None.

        This is the way of most calls, and costs little more than validation.
        """
        self.problems = self._compiled.problems
        """Returns what is wrong with a value as it is: nothing filled in, nothing coerced."""
        self.accepts: Callable[[Any], bool] = self._compiled.validator.is_valid
        """Returns whether a JSON value is valid as it is, at the price of validation alone."""
        if self._compiled.cost.needs_depth_check:
            self.accepts = lambda value: not self.problems(value)

    def validate(self, arguments: dict[str, Any]) -> ValidatedArguments:
        """Fill in defaults, coerce values that do not fit, and report the rest. The given dict is not changed."""
        ready = self.fast_path(arguments)
        if ready is not None:
            return ValidatedArguments(ready)
        max_depth = self._compiled.cost.max_value_depth
        if measure(arguments, max_depth)[1] > max_depth:
            return ValidatedArguments(arguments, problems=self.problems(arguments))
        # A default can break what is valid without it (`oneOf`, `maxProperties`): then it is not filled in.
        filled = [self._filled(arguments, defaults=True), self._filled(arguments, defaults=False)]
        if filled[0].arguments is filled[1].arguments:
            del filled[1]
        attempts = []
        for attempt in (*filled, *map(self._coerced, filled)):
            attempts.append(replace(attempt, problems=self.problems(attempt.arguments)))
            if not attempts[-1].problems:
                return attempts[-1]
        return min(attempts[len(filled) :], key=lambda attempt: len(attempt.problems))

    def _filled(self, arguments: dict[str, Any], *, defaults: bool) -> ValidatedArguments:
        changes: list[str] = []
        filled = self._plan.apply(arguments, self._compiled.root, (), changes, defaults=defaults)
        return ValidatedArguments(filled, tuple(changes))

    def _coerced(self, filled: ValidatedArguments) -> ValidatedArguments:
        coercer = Coercer(self._compiled)
        coerced = coercer.coerce(filled.arguments, self._compiled.root)
        if not coercer.changes:
            return filled
        # What was text before may be an object now, and lack its defaults.
        again = self._filled(coerced, defaults=True)
        if again.arguments is coerced or self.problems(again.arguments):
            again = self._filled(coerced, defaults=False)
        return ValidatedArguments(again.arguments, (*filled.changes, *coercer.changes, *again.changes))


class _DefaultsPlan:
    """What to fill in, and at which nodes of a schema there is anything to do, so that a call pays only for those."""

    def __init__(self, compiled: CompiledSchema) -> None:
        self._compiled = compiled
        self._defaults = {id(node): self._usable_defaults(node) for node in compiled.tree.nodes}
        self._active = self._active_nodes()
        for node in compiled.tree.nodes:
            for name, default in self._defaults[id(node)].items():
                self._defaults[id(node)][name] = self._filled_default(default, node.properties[name])

    def is_active(self, node: SchemaNode) -> bool:
        """Return whether there may be something to do in values of this node."""
        return id(node) in self._active

    def defaults(self, node: SchemaNode) -> dict[str, Any]:
        """Return the defaults of the properties of an object."""
        found: dict[str, Any] = {}
        for schema in node.applying:
            found = {**self._defaults.get(id(schema), {}), **found}
        return found

    def apply(self, value: Any, node: SchemaNode, steps: Steps, changes: list[str], *, defaults: bool = True) -> Any:
        """Return the value with everything filled in; the same object if there was nothing to do."""
        if not self.is_active(node):
            return value
        changed: dict[Any, Any] = {}
        if type(value) is dict:
            # Copies, because the tool may change what it gets. They are filled in already: a default that needs itself
            # as a default would never end here.
            missing = self.defaults(node) if defaults else {}
            changed = {name: msgspec.to_builtins(item) for name, item in missing.items() if name not in value}
            keys: Any = value
        elif type(value) is list:
            keys = self._indexes(value, node)
        elif type(value) is float and node.is_integer and value.is_integer():
            changes.append(f"{format_path(steps)}: {value} → {int(value)}")
            return int(value)
        else:
            return value
        for step in keys:
            item = value[step]
            for schema in node.applying:
                item = self.apply(item, schema.part(step), (*steps, step), changes, defaults=defaults)
            if item is not value[step]:
                changed[step] = item
        filled = _replaced(value, changed) if changed else value
        for variants in (schema.not_null_variants for schema in node.applying):
            fitting = (variant for variant in variants if self._compiled.fits(filled, variant))
            if len(variants) > 1 and (chosen := next(fitting, None)) is not None:
                return self.apply(filled, chosen, steps, changes, defaults=defaults)
        return filled

    def _indexes(self, value: list[Any], node: SchemaNode) -> range:
        """Return the indexes of items with something to do: none in an array of integers, as most are."""
        items = [item for schema in node.applying for item in (*schema.prefix, schema.items) if self.is_active(item)]
        is_numeric = not any(item.types & {"object", "array"} for item in items)
        return range(0 if is_numeric and float not in map(type, value) else len(value))

    def _usable_defaults(self, node: SchemaNode) -> dict[str, Any]:
        """Return the defaults of properties. One that its own schema forbids (null, mostly) means "may be left out"."""
        props = [(name, prop) for name, prop in node.properties.items() if "default" in prop.schema]
        defaults = {name: prop.schema["default"] for name, prop in props}
        return {name: defaults[name] for name, prop in props if self._compiled.fits(defaults[name], prop)}

    def _filled_default(self, default: Any, prop: SchemaNode) -> Any:
        """Return a default with the defaults inside it."""
        filled = self.apply(default, prop, (), [])
        is_small = measure(filled, MAX_VALUE_DEPTH)[0] <= _MAX_DEFAULT_VALUES
        return filled if is_small and self._compiled.fits(filled, prop) else default

    def _active_nodes(self) -> set[int]:
        nodes = self._compiled.tree.nodes
        active = {id(node) for node in nodes if self._defaults[id(node)] or node.is_integer}
        size = -1
        while active and size < len(active):
            size = len(active)
            for node in reversed(nodes):  # from the inside out, so that once is nearly always enough
                if any(id(inner) in active for inner, _ in node.dependencies):
                    active.add(id(node))
        return active


def _replaced(value: Any, changed: dict[Any, Any]) -> Any:
    if isinstance(value, dict):
        return {**value, **changed}
    return [changed.get(index, item) for index, item in enumerate(value)]


def _fast_path(compiled: CompiledSchema, plan: _DefaultsPlan) -> Callable[[dict[str, Any]], dict[str, Any] | None]:
    """Return the check for calls that are valid as they are; a closure, because looking up attributes costs as much."""
    is_valid = compiled.validator.is_valid
    schemas = compiled.root.applying
    others = [node for schema in schemas for keyword, node in schema.children if keyword not in ("properties", "$defs")]
    if compiled.cost.needs_depth_check or any(map(plan.is_active, others)):
        return lambda _arguments: None
    defaults = plan.defaults(compiled.root)
    # The function may change a default that is a container, so each call gets its own copy.
    containers = {name: default for name, default in defaults.items() if isinstance(default, dict | list)}
    properties = [item for schema in schemas for item in schema.properties.items() if plan.is_active(item[1])]

    def fast_path(arguments: dict[str, Any]) -> dict[str, Any] | None:
        try:
            filled = defaults | arguments if defaults else arguments
            for name in containers:
                if name not in arguments:
                    filled[name] = msgspec.to_builtins(containers[name])
            for name, node in properties:
                value = filled.get(name)
                if type(value) in _MAY_CHANGE and plan.apply(value, node, (), []) is not value:
                    return None
            return filled if is_valid(filled) else None
        except (ValueError, TypeError, AttributeError, RecursionError):
            return None  # not an object, or something in it that is not JSON: `validate` reports it

    return fast_path


_MAY_CHANGE = frozenset((dict, list, float))
