"""Arguments from a model as a tool takes them: fill in defaults, coerce, validate.

Values are changed only where the schema allows a single reading.
"""

import operator
from collections.abc import Callable
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Struct

from midspan._schema.problems import Problem, Steps, describe, format_errors, format_path, quoted
from midspan._schema.tree import TYPES, SchemaNode, SchemaTree, format_pointer, has_type, measure, type_of
from midspan.errors import SchemaError

_MAX_BACKTRACKS = 100_000
_MAX_WORK = 50_000
"""Beyond this the validator's list of errors takes seconds to make, so only the first one is reported."""
_MAX_DEPTH = 100
_MAX_ATTEMPTS = 20_000
"""Unions in unions multiply; a value that takes more attempts than this is left as it is."""
_NEW_TYPES = frozenset(("array", "string"))
"""A single value may become an array of one, and an object or an array JSON text, if no other reading fits."""
_MAX_EXACT = 2**53
"""Below this, a float represents every integer exactly."""
_WORDS = {"true": True, "false": False, "null": None, "none": None}
_CHANGEABLE = frozenset((dict, list, float))
"""Types of values that `_Coercer.fill` may change."""
_DEFAULT_DEPTH = 25
"""What a default counts towards the depth, so that a default that contains itself ends after a few levels."""


class ValidatedArguments(Struct, frozen=True):
    """Arguments as the tool gets them, what had to be changed in them, and what is still wrong."""

    arguments: dict[str, Any]
    changes: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()


def _refuse(uri: str) -> Any:
    raise ValueError(f"{uri} is never fetched")


class SchemaValidator:
    """A schema compiled once, for any number of values. Errors call it "invalid `label` schema"."""

    def __init__(
        self,
        schema: Any,
        *,
        label: str = "parameters",
        formats: bool = False,
        retrieve: Callable[[str], Any] = _refuse,
    ) -> None:
        import jsonschema_rs  # slow to import

        self.schema = schema
        # Patterns without lookaround and back-references are matched in linear time by this engine, too.
        engine = jsonschema_rs.FancyRegexOptions(backtrack_limit=_MAX_BACKTRACKS)
        self._options: dict[str, Any] = {"validate_formats": formats, "retriever": retrieve, "pattern_options": engine}
        self._parts: Any = None
        try:
            if not isinstance(schema, dict | bool):
                raise ValueError(f"{quoted(schema)} is neither an object nor a boolean")
            self.tree = SchemaTree(schema)
            self.root = self.tree.root
            self.cost = self.tree.validation_cost()
            self.validator = jsonschema_rs.validator_for(schema, **self._options)
        except ValueError as error:
            raise SchemaError(f"invalid {label} schema{_describe(error)}") from error
        except RecursionError as error:
            raise SchemaError(f"invalid {label} schema: its references are nested too deeply") from error

    def problems(self, value: Any) -> tuple[Problem, ...]:
        """Return what is wrong with a value as it is: nothing filled in, nothing coerced."""
        size, depth = measure(value, self.cost.max_value_depth)
        if depth > self.cost.max_value_depth:
            return (Problem((), f"is nested more than {self.cost.max_value_depth} levels deep, or too large"),)
        try:
            if self.validator.is_valid(value):
                return ()
            if self.cost.estimate(size, depth) <= _MAX_WORK:
                return tuple(format_errors(self.validator.iter_errors(value), self.tree))
            return (self._first_problem(value),)
        except ValueError as error:
            return (Problem((), f"contains something that is not JSON: {error}"[:300]),)

    def _first_problem(self, value: Any) -> Problem:
        """Return the innermost part that does not fit, as far as no union hides which variant was meant."""
        node = self.root
        steps: Steps = ()
        while True:
            keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
            parts = ((key, schema.part(key)) for key in keys for schema in node.conjuncts)
            wrong = next((part for part in parts if not self.fits(value[part[0]], part[1])), None)
            if wrong is None:
                return Problem(
                    steps, f"does not fit: expected {describe(node) or 'another value'}, got {quoted(value)}"
                )
            steps, node, value = (*steps, wrong[0]), wrong[1], value[wrong[0]]

    def fits(self, value: Any, node: SchemaNode) -> bool:
        """Return whether the value fits one schema inside this one."""
        if node.always is not None:
            return node.always
        import jsonschema_rs

        if self._parts is None:
            self._parts = jsonschema_rs.validator_map_for(self.schema, **self._options)
        part = self._parts.get(f"#{node.pointer}")
        try:
            return part is not None and bool(part.is_valid(value))
        except ValueError:  # something in it that is not JSON
            return False

    @cached_property
    def accepts(self) -> Callable[[Any], bool]:
        """Returns whether a JSON value is valid as it is, at the price of validation alone."""
        return (lambda value: not self.problems(value)) if self.cost.is_unbounded else self.validator.is_valid

    @cached_property
    def fast_path(self) -> Callable[[dict[str, Any]], dict[str, Any] | None]:
        """Returns the arguments as the tool gets them if defaults are all that they lack; else None.

        Most calls take this path, which costs little more than validation. It is a closure, because looking up
        attributes costs as much.
        """
        is_valid = self.validator.is_valid
        schemas = self.root.applying
        inner = [item for schema in schemas for item in schema.children if item[0] not in ("properties", "$defs")]
        if self.cost.is_unbounded or any(_may_change(node) for _, node in inner):
            return lambda _arguments: None
        defaults = _Coercer(self).fill({}, self.root)
        properties = [item for schema in schemas for item in schema.properties.items() if _may_change(item[1])]

        def fast_path(arguments: dict[str, Any]) -> dict[str, Any] | None:
            try:
                # A copy: the function may change a default that is a container.
                filled = msgspec.to_builtins(defaults) | arguments if defaults else arguments
                for name, node in properties:
                    value = filled.get(name)
                    if type(value) in _CHANGEABLE and _Coercer(self).fill(value, node) is not value:
                        return None
                return filled if is_valid(filled) else None
            except (ValueError, TypeError, AttributeError, RecursionError):
                return None  # not an object, or something in it that is not JSON: `validate` reports it

        return fast_path

    def validate(self, arguments: dict[str, Any]) -> ValidatedArguments:
        """Fill in defaults, coerce values that do not fit, and report the rest. `arguments` is not changed."""
        ready = self.fast_path(arguments)
        if ready is not None:
            return ValidatedArguments(ready)
        max_depth = self.cost.max_value_depth
        if measure(arguments, max_depth)[1] > max_depth:
            return ValidatedArguments(arguments, problems=self.problems(arguments))
        attempts: list[ValidatedArguments] = []
        # A default can break what is valid without it (`oneOf`, `maxProperties`): then it is not filled in.
        for defaults in (True, False):
            coercer = _Coercer(self, defaults=defaults)
            changed = coercer.coerce(arguments, self.root)
            attempts.append(ValidatedArguments(changed, tuple(coercer.changes), self.problems(changed)))
            if not attempts[-1].problems:
                break
        return min(reversed(attempts), key=lambda attempt: len(attempt.problems))


def _describe(error: ValueError) -> str:
    """Say where the schema is wrong, if that is known, and what is wrong with it: ` at /type: 5 is not a type`."""
    import jsonschema_rs

    if not isinstance(error, jsonschema_rs.ValidationError):
        return f": {(str(error).strip().splitlines() or ['it cannot be read'])[0][:300]}"
    pointer = format_pointer(*error.instance_path)
    if pointer.endswith("/type") or "/type/" in pointer:
        return f" at {pointer}: {quoted(error.instance)} is not a type; the types are {', '.join(TYPES)}"
    return f"{' at ' if pointer else ''}{pointer}: {error.message[:300]}"


def _may_change(node: SchemaNode) -> bool:
    """Return whether a valid value of the schema may contain an integer written as 5.0, or lack a default."""
    return any(
        inner.is_integer or any("default" in prop.schema for prop in inner.properties.values())
        for inner in node.reachable
    )


class _Coercer:
    """One attempt to make a value fit its schema. `changes` describes what it changed in the copy that it returns."""

    def __init__(self, validator: SchemaValidator, *, defaults: bool = True) -> None:
        self._validator = validator
        self._defaults = defaults
        self._new_types = _NEW_TYPES
        self._attempts = [_MAX_ATTEMPTS]
        self.changes: list[str] = []

    def _attempt(self, new_types: frozenset[str]) -> "_Coercer":
        """Return another attempt, for a part of the value."""
        attempt = _Coercer(self._validator, defaults=self._defaults)
        attempt._new_types, attempt._attempts = new_types, self._attempts
        return attempt

    def fill(self, value: Any, node: SchemaNode, steps: Steps = (), depth: int = 0) -> Any:
        """Return a value with its defaults, and 5.0 as 5 for an integer; the same object if there was nothing to do."""
        if depth > _MAX_DEPTH:
            return value
        if type(value) is float and node.is_integer and value.is_integer():
            self._note(steps, f"{value} → {int(value)}")
            return int(value)
        if not isinstance(value, dict | list) or (type(value) is list and _CHANGEABLE.isdisjoint(map(type, value))):
            return value
        for schema in node.applying:
            value = self._parts(value, schema, self.fill, steps, depth)
        for variants in (schema.not_null_variants for schema in node.applying):
            fitting = (variant for variant in variants if self._validator.fits(value, variant))
            if len(variants) > 1 and (chosen := next(fitting, None)) is not None:
                return self.fill(value, chosen, steps, depth + 1)
        return value

    def coerce(self, value: Any, node: SchemaNode, steps: Steps = (), depth: int = 0) -> Any:
        """Return the value, changed where it does not fit and the schema leaves no doubt what was meant."""
        if self._validator.fits(value, node):
            return self.fill(value, node, steps, depth)
        self._attempts[0] -= 1
        if depth > _MAX_DEPTH or self._attempts[0] < 0:
            return value
        for part in [*([node.target] if node.target else []), *node.all_of]:
            value = self.coerce(value, part, steps, depth + 1)
        if node.variants:
            value = self._variant(value, node, steps, depth)
        return self._parts(self._retype(value, node, steps, depth), node, self.coerce, steps, depth)

    def _parts(self, value: Any, node: SchemaNode, change: Callable[..., Any], steps: Steps, depth: int) -> Any:
        """Return a container with its parts changed, and an object with its defaults and without absent properties."""
        if isinstance(value, list):
            items = [change(item, node.item(index), (*steps, index), depth + 1) for index, item in enumerate(value)]
            return value if all(map(operator.is_, items, value)) else items
        if not isinstance(value, dict):
            return value
        result = {}
        for name, item in value.items():
            result[name] = change(item, node.part(name), (*steps, name), depth + 1)
            prop = node.properties.get(name)
            if prop is None or name in node.schema.get("required", ()) or change == self.fill:
                continue
            if self._means_absent(result[name], prop):
                self._note((*steps, name), f"{quoted(result.pop(name))} dropped, it may be left out")
        if self._defaults:
            result |= self._missing(result, node, depth)
        is_same = result.keys() == value.keys() and all(map(operator.is_, result.values(), value.values()))
        return value if is_same else result

    def _missing(self, value: dict[str, Any], node: SchemaNode, depth: int) -> dict[str, Any]:
        """Return the defaults of absent properties, except those that their own schema forbids: often null."""
        missing = {}
        for name, prop in node.properties.items():
            if name not in value and "default" in prop.schema and self._validator.fits(prop.schema["default"], prop):
                default = msgspec.to_builtins(prop.schema["default"])  # a copy: the tool may change it
                filled = self.fill(default, prop, (name,), depth + _DEFAULT_DEPTH)
                missing[name] = filled if self._validator.fits(filled, prop) else default
        return missing

    def _variant(self, value: Any, node: SchemaNode, steps: Steps, depth: int) -> Any:
        """Return the value as the first variant that it can be made to fit, preferably without wrapping it."""
        for new_types in dict.fromkeys((frozenset[str](), self._new_types)):
            for variant in node.variants:
                attempt = self._attempt(new_types)
                candidate = attempt.coerce(value, variant, steps, depth + 1)
                if self._validator.fits(candidate, variant):
                    self.changes += attempt.changes
                    return candidate
        others = node.not_null_variants
        return self.coerce(value, others[0], steps, depth + 1) if len(others) == 1 else value

    def _means_absent(self, value: Any, node: SchemaNode) -> bool:
        """Return whether this is null, or the default, and does not fit the schema: both mean "not given"."""
        default = node.schema.get("default")
        is_default = value == default and type(value) is type(default)  # Python takes False for 0, JSON does not
        return (value is None or is_default) and not self._validator.fits(value, node)

    def _retype(self, value: Any, node: SchemaNode, steps: Steps, depth: int) -> Any:
        """Convert the value to a type that the schema expects, and find an option in another case."""
        options = node.options or []
        declared = node.schema.get("type") or [type_of(option) for option in options]
        types = [declared] if isinstance(declared, str) else declared
        if types and not has_type(value, types):
            converted = _convert(value, types)
            if converted is value:
                converted = self._wrap(value, node, self._new_types.intersection(types), steps, depth)
            value = self._replaced(value, converted, steps)
        if isinstance(value, str) and value not in options:
            word = value.strip().casefold()
            same = [option for option in options if isinstance(option, str) and option.strip().casefold() == word]
            value = self._replaced(value, same[0] if len(same) == 1 else value, steps)
        return value

    def _replaced(self, value: Any, new: Any, steps: Steps) -> Any:
        if new is not value:
            self._note(steps, f"{quoted(value)} → {quoted(new)}")
        return new

    def _wrap(self, value: Any, node: SchemaNode, types: frozenset[str], steps: Steps, depth: int) -> Any:
        if "array" in types and _is_single(value, steps):
            candidate = self._attempt(frozenset({"array"})).coerce([value], node, steps, depth + 1)
        elif "string" in types and _is_document(value):
            candidate = msgspec.json.encode(value).decode()
        else:
            return value
        return candidate if self._validator.fits(candidate, node) else value

    def _note(self, steps: Steps, change: str) -> None:
        self.changes.append(f"{format_path(steps)}: {change}" if steps else change)


def _is_single(value: Any, steps: Steps) -> bool:
    """Return whether the value may be meant as the only item of an array.

    Not inside an array: a row is not a table of one column. And not a text that begins like an array or an object and
    is not valid JSON.
    """
    if value is None or (steps and isinstance(steps[-1], int)):
        return False
    return not (isinstance(value, str) and value.lstrip()[:1] in ("[", "{") and not isinstance(_parse(value), dict))


def _is_document(value: Any) -> bool:
    """Return whether the value can only be meant as JSON text. An array of plain values may be a list of texts."""
    if isinstance(value, list):
        return any(isinstance(item, dict | list) for item in value)
    return isinstance(value, dict) and bool(value)


def _convert(value: Any, types: list[str]) -> Any:
    """Return what a text contains as JSON, or as Python writes True and None; and a number or a boolean as text."""
    if isinstance(value, int | float) and "string" in types:
        return str(value).lower() if isinstance(value, bool) else str(value)
    if not isinstance(value, str):
        return value
    word = value.strip().lower()
    parsed = _WORDS[word] if word in _WORDS else _parse(value)
    if isinstance(parsed, str) or not has_type(parsed, types):
        return value
    if isinstance(parsed, float) and "number" not in types:
        return int(parsed) if abs(parsed) < _MAX_EXACT else value
    return parsed


def _parse(text: str) -> Any:
    """Return the JSON value of a text; the text itself if it is not JSON."""
    try:
        return msgspec.json.decode(text.strip())
    except (msgspec.DecodeError, RecursionError, ValueError):
        return text
