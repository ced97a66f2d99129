"""Arguments from a model as a tool takes them: fill in defaults, coerce, validate."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Struct

from midspan._schema.coercion import CHANGEABLE, Coercer
from midspan._schema.compiled import CompiledSchema
from midspan._schema.problems import Problem
from midspan._schema.tree import SchemaNode, measure


class ValidatedArguments(Struct, frozen=True):
    """Arguments as the tool gets them, what had to be changed in them, and what is still wrong."""

    arguments: dict[str, Any]
    changes: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()


class SchemaValidator(CompiledSchema):
    """A schema compiled once, for any number of values."""

    @cached_property
    def fast_path(self) -> Callable[[dict[str, Any]], dict[str, Any] | None]:
        """Returns the arguments as the tool gets them if defaults are all that they lack; else None.

        Most calls take this path, which costs little more than validation.
        """
        return _fast_path(self)

    @cached_property
    def accepts(self) -> Callable[[Any], bool]:
        """Returns whether a JSON value is valid as it is, at the price of validation alone."""
        return (lambda value: not self.problems(value)) if self.cost.needs_depth_check else self.validator.is_valid

    def validate(self, arguments: dict[str, Any]) -> ValidatedArguments:
        """Fill in defaults, coerce values that do not fit, and report the rest. `arguments` is not changed."""
        ready = self.fast_path(arguments)
        if ready is not None:
            return ValidatedArguments(ready)
        max_depth = self.cost.max_value_depth
        if measure(arguments, max_depth)[1] > max_depth:
            return ValidatedArguments(arguments, problems=self.problems(arguments))
        attempts: list[ValidatedArguments] = []
        for method in (Coercer.fill, Coercer.coerce):
            # A default can break what is valid without it (`oneOf`, `maxProperties`): then it is not filled in.
            for defaults in (True, False):
                coercer = Coercer(self, defaults=defaults)
                changed = method(coercer, arguments, self.root)
                if any(changed is attempt.arguments for attempt in attempts):
                    continue
                attempt = ValidatedArguments(changed, tuple(coercer.changes), self.problems(changed))
                if not attempt.problems:
                    return attempt
                attempts.insert(0, attempt)
        return min(attempts, key=lambda attempt: len(attempt.problems))


def _fast_path(compiled: CompiledSchema) -> Callable[[dict[str, Any]], dict[str, Any] | None]:
    """Return the check for calls that are valid as they are; a closure, because looking up attributes costs as much."""
    is_valid = compiled.validator.is_valid
    schemas = compiled.root.applying
    others = [node for schema in schemas for keyword, node in schema.children if keyword not in ("properties", "$defs")]
    if compiled.cost.needs_depth_check or any(map(_may_change, others)):
        return lambda _arguments: None
    defaults = Coercer(compiled).fill({}, compiled.root)
    # The function may change a default that is a container, so each call gets its own copy.
    containers = {name: default for name, default in defaults.items() if isinstance(default, dict | list)}
    properties = [item for schema in schemas for item in schema.properties.items() if _may_change(item[1])]

    def fast_path(arguments: dict[str, Any]) -> dict[str, Any] | None:
        try:
            filled = defaults | arguments if defaults else arguments
            for name in containers:
                if name not in arguments:
                    filled[name] = msgspec.to_builtins(containers[name])
            for name, node in properties:
                value = filled.get(name)
                if type(value) in CHANGEABLE and Coercer(compiled).fill(value, node) is not value:
                    return None
            return filled if is_valid(filled) else None
        except (ValueError, TypeError, AttributeError, RecursionError):
            return None  # not an object, or something in it that is not JSON: `validate` reports it

    return fast_path


def _may_change(node: SchemaNode) -> bool:
    """Return whether a valid value of the schema may contain an integer written as 5.0, or lack a default."""
    return any(
        inner.is_integer or any("default" in prop.schema for prop in inner.properties.values())
        for inner in node.reachable
    )
