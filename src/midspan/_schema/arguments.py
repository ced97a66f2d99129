"""Validate the arguments of a call: fill in defaults, coerce values, report what is wrong.

A value is changed only if the schema allows a single reading. Parsing the JSON in a string is preferred to wrapping a
value in an array or encoding it as a string.
"""

import operator
import re
from collections.abc import Callable
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from midspan._schema.problems import Problem, Steps, describe, format_errors, format_path, quoted
from midspan._schema.tree import (
    MAX_SEARCHED_CHARS,
    TYPES,
    SchemaNode,
    SchemaTree,
    change_subschemas,
    format_pointer,
    has_type,
    measure,
    takes_quadratic_time,
    type_of,
)
from midspan.errors import SchemaError

_MAX_BACKTRACKS = 100_000
_MAX_WORK = 50_000
"""Above this, listing all errors takes the validator seconds, so only the first one is reported."""
_MAX_DEPTH = 100
_MAX_ATTEMPTS = 20_000
"""Unions in unions multiply; a value that takes more attempts, plus four for each of its parts, is left as it is."""
_WRAPPING_TYPES = frozenset(("array", "string"))
"""If nothing else fits, a single value may be wrapped in an array, and an object or array written as JSON text.

If this is empty, numbers are not written as text either.
"""
_MAX_EXACT = 2**53
"""Below this, a float represents every integer exactly."""
_WORDS = {"true": True, "false": False, "null": None, "none": None}
_CHANGEABLE = frozenset((dict, list, float))
"""Types of values that may have to be changed although they are valid."""
_DEFAULT_DEPTH = 25
"""What a default counts towards the depth, so that a default that contains itself ends after a few levels."""


class ValidatedArguments(Struct, frozen=True):
    """Arguments as the tool gets them, what had to be changed in them, and what is still wrong."""

    arguments: dict[str, Any]
    changes: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()


def _never_fetch(_uri: str) -> Any:
    raise ValueError("schemas are not fetched")


class SchemaValidator:
    """A schema compiled once, for any number of values. Errors call it "invalid `label` schema"."""

    def __init__(
        self,
        schema: Any,
        *,
        label: str = "parameters",
        formats: bool = False,
        retrieve: Callable[[str], Any] = _never_fetch,
    ) -> None:
        import jsonschema_rs  # slow to import

        self.schema = schema
        # Patterns without lookaround and back-references are matched in linear time by this engine, too.
        engine = jsonschema_rs.FancyRegexOptions(backtrack_limit=_MAX_BACKTRACKS)
        self._options: dict[str, Any] = {"validate_formats": formats, "retriever": retrieve, "pattern_options": engine}
        self._subschemas: Any = None
        try:
            if not isinstance(schema, dict | bool):
                raise ValueError(f"{quoted(schema)} is neither an object nor a boolean")
            self.tree = SchemaTree(schema)
            self.root = self.tree.root
            self.cost = self.tree.validation_cost()
            self.validator = jsonschema_rs.validator_for(schema, **self._options)
            patterns = (node.schema.get("pattern") for node in self.tree.nodes)
            if any(map(takes_quadratic_time, patterns)):
                if re.search("draft-0[46]", str(self.root.schema.get("$schema"))):  # they have no `if`
                    raise ValueError("a pattern takes quadratic time; begin it with ^")
                self.schema = _limit_searches(self.root.schema)
                self.tree = SchemaTree(self.schema)
                self.root = self.tree.root
                self.validator = jsonschema_rs.validator_for(self.schema, **self._options)
        except ValueError as error:
            raise SchemaError(f"invalid {label} schema{_error_details(error)}") from error
        except RecursionError as error:
            raise SchemaError(f"invalid {label} schema: its references are nested too deeply") from error

    def problems(self, value: Any) -> tuple[Problem, ...]:
        """Return what is wrong with a value as it is: nothing filled in, nothing coerced."""
        measured = measure(value, self.cost.max_value_depth)
        if measured is None:
            return (Problem((), f"is nested more than {self.cost.max_value_depth} levels deep, or too large"),)
        try:
            if self.validator.is_valid(value):
                return ()
            if self.cost.estimate(*measured) <= _MAX_WORK:
                return tuple(format_errors(self.validator.iter_errors(value), self.tree))
            return (self._first_problem(value),)
        except ValueError as error:
            return (Problem((), f"contains something that is not JSON: {error}"[:300]),)

    def _first_problem(self, value: Any) -> Problem:
        """Return the innermost part that does not fit. The search ends at a union, because any variant may be meant."""
        node = self.root
        steps: Steps = ()
        while True:
            keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
            parts = ((key, schema.part(key)) for key in keys for schema in node.conjuncts)
            wrong = next((part for part in parts if not self.fits(value[part[0]], part[1])), None)
            if wrong is None:
                expected = describe(node) or "another value"
                return Problem(steps, f"does not fit: expected {expected}, got {quoted(value)}")
            steps, node, value = (*steps, wrong[0]), wrong[1], value[wrong[0]]

    def fits(self, value: Any, node: SchemaNode) -> bool:
        """Return whether the value fits one schema inside this one."""
        if node.always is not None:
            return node.always
        import jsonschema_rs

        if self._subschemas is None:
            self._subschemas = jsonschema_rs.validator_map_for(self.schema, **self._options)
        validator = self._subschemas.get(f"#{node.pointer}")
        try:
            return validator is not None and bool(validator.is_valid(value))
        except ValueError:  # something in it that is not JSON
            return False

    @cached_property
    def accepts(self) -> Callable[[Any], bool]:
        """Returns whether a JSON value is valid as it is."""
        return (lambda value: not self.problems(value)) if self.cost.needs_measuring else self.validator.is_valid

    @cached_property
    def fill_if_valid(self) -> Callable[[dict[str, Any]], dict[str, Any] | None]:
        """Returns valid arguments with their defaults; None if anything in them may have to be changed or reported.

        Most calls need no more than this.
        """
        is_valid = self.validator.is_valid
        schemas, coercer = self.root.conjuncts, _Coercer(self)
        missing = (coercer.missing({}, schema) for schema in reversed(schemas))
        defaults = {name: default for inner in missing for name, default in inner.items()}
        containers = [name for name, default in defaults.items() if isinstance(default, dict | list)]
        properties = {prop: name for schema in schemas for name, prop in schema.properties.items()}
        others = {node for schema in schemas for node, _ in schema.dependencies}.difference(schemas, properties)
        if self.cost.needs_measuring or any(node.may_change for node in others):
            return lambda _arguments: None
        changeable = [name for prop, name in properties.items() if prop.may_change]

        def fill_if_valid(arguments: dict[str, Any]) -> dict[str, Any] | None:
            try:
                for name in changeable:
                    if not _is_plain(arguments.get(name)):
                        return None
                filled = defaults | arguments if defaults else arguments
                for name in containers:
                    if name not in arguments:
                        filled[name] = msgspec.to_builtins(defaults[name])  # a copy: the tool may change it
                return filled if is_valid(filled) else None
            except (ValueError, TypeError, AttributeError):
                return None  # not an object, or something in it that is not JSON: `repair` reports it

        return fill_if_valid

    def validate(self, arguments: dict[str, Any]) -> ValidatedArguments:
        """Fill in defaults, coerce values that do not fit, and report the rest. `arguments` is not changed."""
        filled = self.fill_if_valid(arguments)
        return self.repair(arguments) if filled is None else ValidatedArguments(filled)

    def repair(self, arguments: dict[str, Any]) -> ValidatedArguments:
        """Like `validate`, for arguments that `fill_if_valid` does not accept."""
        measured = measure(arguments, self.cost.max_value_depth)
        if measured is None:
            return ValidatedArguments(arguments, problems=self.problems(arguments))
        attempts: list[ValidatedArguments] = []
        # A default can break what is valid without it (`oneOf`, `maxProperties`): then it is not filled in.
        for defaults in (True, False):
            coercer = _Coercer(self, defaults, attempts_left=[_MAX_ATTEMPTS + 4 * measured[0]])
            changed = coercer.coerce(arguments, self.root)
            attempts.append(ValidatedArguments(changed, tuple(coercer.changes), self.problems(changed)))
            if not attempts[-1].problems:
                break
        return min(reversed(attempts), key=lambda attempt: len(attempt.problems))


def _limit_searches(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with a maximum length for texts whose pattern takes quadratic time."""
    limited = change_subschemas(schema, _limit_searches)
    if not takes_quadratic_time(schema.get("pattern")):
        return limited
    limit = {"maxLength": MAX_SEARCHED_CHARS}
    search = {"if": limit, "then": {"pattern": limited.pop("pattern")}, "else": limit}
    return {**limited, "allOf": [*limited.get("allOf", ()), search]}


def _error_details(error: ValueError) -> str:
    """Say where the schema is wrong, if that is known, and what is wrong with it: ` at /type: 5 is not a type`."""
    import jsonschema_rs

    if not isinstance(error, jsonschema_rs.ValidationError):
        return f": {(str(error).strip().splitlines() or ['it cannot be read'])[0][:300]}"
    pointer = format_pointer(*error.instance_path)
    if pointer.endswith("/type") or "/type/" in pointer:
        return f" at {pointer}: {quoted(error.instance)} is not a type; the types are {', '.join(TYPES)}"
    return f"{' at ' if pointer else ''}{pointer}: {error.message[:300]}"


def _is_plain(value: Any) -> bool:
    """Return whether a valid value stays as it is, whatever its schema."""
    return type(value) not in _CHANGEABLE or (type(value) is list and _CHANGEABLE.isdisjoint(map(type, value)))


class _Coercer(Struct):
    """One attempt to make a value fit its schema. `changes` describes what it changed in the copy that it returns."""

    validator: SchemaValidator
    defaults: bool = True
    wrapping_types: frozenset[str] = _WRAPPING_TYPES
    attempts_left: list[int] = field(default_factory=lambda: [_MAX_ATTEMPTS])
    """One number, shared by all attempts on parts of the value."""
    changes: list[str] = field(default_factory=list)

    def coerce(self, value: Any, node: SchemaNode, steps: Steps = (), depth: int = 0) -> Any:
        """Return the value with its defaults, changed where the schema allows a single reading.

        If there is nothing to change, it is the same object.
        """
        if depth > _MAX_DEPTH or self.attempts_left[0] < 0:
            return value
        if (_is_plain(value) or not node.may_change) and self.validator.fits(value, node):
            return value
        self.attempts_left[0] -= 1
        for part in node.conjuncts:
            for union in part.unions:
                value = self._as_variant(value, union, steps, depth)
            new = self._retype(value, part, steps, depth)
            if new is not value:
                self._note(steps, f"{quoted(value)} → {quoted(new)}")
            value = self._change_parts(new, part, steps, depth)
        return value

    def _change_parts(self, value: Any, node: SchemaNode, steps: Steps, depth: int) -> Any:
        """Return a container with its parts changed.

        An object also gets its defaults, and loses the properties whose value means "not given".
        """
        if isinstance(value, list):
            items = [
                self.coerce(item, node.item(index), (*steps, index), depth + 1) for index, item in enumerate(value)
            ]
            return value if all(map(operator.is_, items, value)) else items
        if not isinstance(value, dict):
            return value
        result = {}
        for name, item in value.items():
            result[name] = self.coerce(item, node.part(name), (*steps, name), depth + 1)
            is_optional = name in node.properties and name not in node.schema.get("required", ())
            if is_optional and self._means_absent(result[name], node.properties[name]):
                self._note((*steps, name), f"{quoted(result.pop(name))} dropped, it may be left out")
        if self.defaults:
            result |= self.missing(result, node, steps, depth)
        is_same = result.keys() == value.keys() and all(map(operator.is_, result.values(), value.values()))
        return value if is_same else result

    def missing(self, value: dict[str, Any], node: SchemaNode, steps: Steps = (), depth: int = 0) -> dict[str, Any]:
        """Return the defaults of absent properties, except those (often null) that do not fit their own schema."""
        missing = {}
        for name, prop in node.properties.items():
            if name not in value and "default" in prop.schema and self.validator.fits(prop.schema["default"], prop):
                default = msgspec.to_builtins(prop.schema["default"])  # a copy: the tool may change it
                filled = self.coerce(default, prop, (*steps, name), depth + _DEFAULT_DEPTH)
                missing[name] = filled if self.validator.fits(filled, prop) else default
        return missing

    def _as_variant(self, value: Any, union: list[SchemaNode], steps: Steps, depth: int) -> Any:
        """Return the value changed to fit a variant; the value itself if variants would change it differently."""
        fitting = next((variant for variant in union if self.validator.fits(value, variant)), None)
        if fitting is not None:
            return self.coerce(value, fitting, steps, depth + 1)
        variants = [variant for variant in union if self._fits_discriminator(value, variant)]
        for wrapping_types in dict.fromkeys((frozenset[str](), self.wrapping_types)):
            candidates = []
            for variant in variants:
                attempt = replace(self, wrapping_types=wrapping_types, changes=[])
                candidate = attempt.coerce(value, variant, steps, depth + 1)
                if self.validator.fits(candidate, variant):
                    candidates.append((candidate, attempt.changes))
            candidates.sort(key=lambda item: isinstance(item[0], list))  # x is preferred to [x]
            if candidates:
                if self.attempts_left[0] < 0 or not _agree([candidate for candidate, _ in candidates]):
                    return value
                self.changes += candidates[0][1]
                return candidates[0][0]
        others = [variant for variant in union if variant.types != {"null"}]
        return self.coerce(value, others[0], steps, depth + 1) if len(others) == 1 else value

    def _fits_discriminator(self, value: Any, variant: SchemaNode) -> bool:
        """Return whether the properties with `enum` or `const`, such as a tag, can be coerced to fit: a cheap check."""
        parts = variant.conjuncts if isinstance(value, dict) else ()
        props = [item for part in parts for item in part.properties.items() if item[0] in value]
        attempt = replace(self, changes=[])
        return all(
            self._means_absent(value[name], prop) or self.validator.fits(attempt.coerce(value[name], prop), prop)
            for name, prop in props
            if prop.options is not None
        )

    def _means_absent(self, value: Any, node: SchemaNode) -> bool:
        """Return whether this is null, or the default, and does not fit the schema: both mean "not given"."""
        default = node.schema.get("default")
        is_default = value == default and type(value) is type(default)  # False == 0 in Python, not in JSON
        return (value is None or is_default) and not self.validator.fits(value, node)

    def _retype(self, value: Any, node: SchemaNode, steps: Steps, depth: int) -> Any:
        """Convert the value to a type that the schema expects, and find an option in another case."""
        if type(value) is float and node.is_integer and value.is_integer():
            return int(value)
        options = node.options or []
        declared = node.schema.get("type") or [type_of(option) for option in options]
        types = [declared] if isinstance(declared, str) else declared
        if types and not has_type(value, types):
            parsed = _parse_as(value, types)
            value = self._wrap(value, node, types, steps, depth) if parsed is value else parsed
        if not isinstance(value, str) or value in options:
            return value
        word = value.strip().casefold()
        same = [option for option in options if isinstance(option, str) and option.strip().casefold() == word]
        return same[0] if len(same) == 1 else value

    def _wrap(self, value: Any, node: SchemaNode, types: list[str], steps: Steps, depth: int) -> Any:
        """Return a number as text, a single value in an array, or a document as JSON text, if one of these fits."""
        if "string" in types and isinstance(value, int | float) and self.wrapping_types:
            texts = [str(value).lower() if isinstance(value, bool) else str(value)]
        else:
            texts = []
        wrapping_types = self.wrapping_types.intersection(types)
        wrapped: list[Any] = []
        if "string" in wrapping_types and _is_document(value):
            wrapped.append(msgspec.json.encode(value).decode())
        if "array" in wrapping_types and _is_single(value, steps):
            attempt = replace(self, wrapping_types=frozenset({"array"}), changes=[])
            wrapped.append(attempt.coerce([value], node, steps, depth + 1))
        # A string need not fit yet: `_retype` then looks for the option in another case.
        candidates = [*texts, *(candidate for candidate in wrapped if self.validator.fits(candidate, node))]
        return candidates[0] if candidates and _agree(candidates) else value

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
    """Return whether the value may be encoded as JSON text. An array of scalars may be meant as a list of strings."""
    if isinstance(value, list):
        return any(isinstance(item, dict | list) for item in value)
    return isinstance(value, dict) and bool(value)


def _agree(candidates: list[Any]) -> bool:
    """Return whether all are equal to the first one, or arrays of only that."""
    return all(candidate in (candidates[0], [candidates[0]]) for candidate in candidates)


def _parse_as(value: Any, types: list[str]) -> Any:
    """Return the JSON value that a text contains (also True and None as in Python); the value itself if none fits."""
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
