"""Arguments from a model as a tool takes them: fill in defaults, coerce, validate."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from midspan._schema.coercion import Coercer, DefaultsPlan
from midspan._schema.compiled import CompiledSchema
from midspan._schema.problems import Problem, Steps, describe, format_errors, quoted
from midspan._schema.tree import measure

__all__ = ["Problem", "SchemaValidator", "ValidatedArguments"]

_MAX_WORK = 50_000
"""Beyond this the validator's list of errors takes seconds to make, so only the first one is reported."""


class ValidatedArguments(Struct, frozen=True):
    """Arguments as the tool gets them, what had to be changed in them, and what is still wrong."""

    arguments: dict[str, Any]
    changes: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()


class SchemaValidator:
    """A schema compiled once, for any number of values. Errors call it "invalid `label` schema"."""

    __slots__ = ("_compiled", "_plan", "accepts", "fast_path")

    def __init__(
        self,
        schema: dict[str, Any],
        *,
        label: str = "parameters",
        formats: bool = False,
        remotes: Mapping[str, Any] | None = None,
    ) -> None:
        self._compiled = CompiledSchema(schema, label=label, formats=formats, remotes=remotes)
        self._plan = DefaultsPlan(self._compiled)
        self.fast_path = _fast_path(self._compiled, self._plan)
        """Returns the arguments as the tool gets them if defaults are all that they lack; else None.

        This is the way of most calls, and costs little more than validation.
        """
        is_simple = not _needs_depth_check(self._compiled)
        self.accepts: Callable[[Any], bool] = self._compiled.validator.is_valid if is_simple else self._is_valid
        """Returns whether a JSON value is valid as it is, at the price of validation alone."""

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
            attempts.append(msgspec.structs.replace(attempt, problems=self.problems(attempt.arguments)))
            if not attempts[-1].problems:
                return attempts[-1]
        return min(attempts[len(filled) :], key=lambda attempt: len(attempt.problems))

    def problems(self, value: Any) -> tuple[Problem, ...]:
        """Return what is wrong with a value as it is: nothing filled in, nothing coerced."""
        return _problems(value, self._compiled)

    def _is_valid(self, value: Any) -> bool:
        return not self.problems(value)

    def _filled(self, arguments: dict[str, Any], *, defaults: bool) -> ValidatedArguments:
        changes: list[str] = []
        filled = self._plan.apply_defaults(arguments, self._compiled.root, (), changes, defaults=defaults)
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


def _problems(value: Any, compiled: CompiledSchema) -> tuple[Problem, ...]:
    cost = compiled.cost
    size, depth = measure(value, cost.max_value_depth)
    if depth > cost.max_value_depth:
        return (Problem((), f"is nested more than {cost.max_value_depth} levels deep, or too large"),)
    try:
        if compiled.validator.is_valid(value):
            return ()
        if cost.estimate(size, depth) <= _MAX_WORK:
            return tuple(format_errors(compiled.validator.iter_errors(value), compiled.tree))
        return (_first_problem(value, compiled),)
    except ValueError as error:
        return (Problem((), f"contains something that is not JSON: {error}"[:300]),)


def _first_problem(value: Any, compiled: CompiledSchema) -> Problem:
    """Return the innermost part that does not fit, as far as no union hides which variant was meant."""
    node = compiled.root
    steps: Steps = ()
    while True:
        keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        parts = ((key, schema.part(key)) for key in keys for schema in node.conjuncts)
        wrong = next((part for part in parts if not compiled.fits(value[part[0]], part[1])), None)
        if wrong is None:
            return Problem(steps, f"does not fit: expected {describe(node) or 'another value'}, got {quoted(value)}")
        steps, node, value = (*steps, wrong[0]), wrong[1], value[wrong[0]]


def _needs_depth_check(compiled: CompiledSchema) -> bool:
    """Return whether validating a value may go deeper into it than the schema itself is deep."""
    return compiled.cost.is_recursive or compiled.cost.compares


def _fast_path(compiled: CompiledSchema, plan: DefaultsPlan) -> Callable[[dict[str, Any]], dict[str, Any] | None]:
    """Return the check for calls that are valid as they are; a closure, because looking up attributes costs as much."""
    is_valid = compiled.validator.is_valid
    schemas = compiled.root.applying
    others = [node for schema in schemas for keyword, node in schema.children if keyword not in ("properties", "$defs")]
    if _needs_depth_check(compiled) or any(map(plan.is_active, others)):
        return lambda _arguments: None
    defaults = plan.defaults(compiled.root)
    # The function may change a default that is a container, so each call gets its own copy.
    containers = {name: default for name, default in defaults.items() if isinstance(default, dict | list)}
    properties = [item for schema in schemas for item in schema.properties.items() if plan.is_active(item[1])]
    nested = tuple((name, node) for name, node in properties if node.types & {"object", "array"})
    integers = tuple(name for name, node in properties if not node.types & {"object", "array"})
    has_containers = bool(containers or nested)

    def fast_path(arguments: dict[str, Any]) -> dict[str, Any] | None:
        try:
            filled = defaults | arguments if defaults else arguments
            for name in integers:
                if type(filled.get(name)) is float:
                    return None
            if has_containers:
                for name in containers:
                    if name not in arguments:
                        filled[name] = msgspec.to_builtins(containers[name])
                for name, node in nested:
                    value = filled.get(name)
                    if plan.apply_defaults(value, node, (), []) is not value:
                        return None
            return filled if is_valid(filled) else None
        except (ValueError, TypeError, AttributeError, RecursionError):
            return None  # not an object, or something in it that is not JSON: `validate` reports it

    return fast_path
