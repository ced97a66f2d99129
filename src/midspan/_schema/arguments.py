"""Validate the arguments of a call: fill in defaults, coerce values, report what is wrong.

A value is changed only if the schema allows a single reading. Parsing the JSON in a string is preferred to wrapping a
value in an array or encoding it as a string.
"""

import operator
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, cached_property, partial
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from midspan._schema.problems import MAX_PROBLEMS, Problem, Steps, describe, format_errors, quoted, schema_error_text
from midspan._schema.tree import (
    ANYTHING,
    SchemaNode,
    SchemaTree,
    has_type,
    limit_pattern_lengths,
    measure,
    takes_quadratic_time,
    type_of,
)
from midspan.errors import SchemaError

_MAX_BACKTRACKS = 100_000
_MAX_CHECKS = 10_000
"""Above this, listing all errors takes too long (the validator cannot stop early), so only the first is reported."""
_MAX_DEPTH = 100
_MAX_ATTEMPTS = 20_000
"""Nested unions multiply the attempts to coerce a value. After this many, and four per part, it is left as it is."""
_WRAPPERS = frozenset(("array", "string"))
"""The types that a value of another type may be wrapped in: `"a"` becomes `["a"]`, 5 becomes "5"."""
_MAX_EXACT = 2**53
"""Below this, a float represents every integer exactly."""
_SEPARATOR = re.compile(r"[,;\n]")
"""Of the items in a text that may be a list."""
_WORDS = {"true": True, "false": False, "null": None, "none": None}
_CHANGEABLE_TYPES = frozenset((dict, list, float))
"""Types of values that may have to be changed although they are valid."""
_DEFAULT_DEPTH = 25
"""What a default counts towards the depth, so that a default that contains itself ends after a few levels."""
_DROPPED: Any = object()
"""In `changes`, the new value of a property that was dropped."""
_INEXACT = object()
"""Marks an integer that was given as a float of 2**53 or more, whose last digits are lost."""


class ValidatedArguments(Struct, frozen=True):
    """Arguments as the tool gets them, what had to be changed in them, and what is still wrong."""

    arguments: Any
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
        check_formats: bool = False,
        retrieve: Callable[[str], Any] = _never_fetch,
    ) -> None:
        import jsonschema_rs  # slow to import

        # Patterns without lookaround and back-references are matched in linear time by this engine, too.
        engine = jsonschema_rs.FancyRegexOptions(backtrack_limit=_MAX_BACKTRACKS)
        options: dict[str, Any] = {"validate_formats": check_formats, "retriever": retrieve, "pattern_options": engine}
        compile_schema: Callable[[Any], Any] = partial(jsonschema_rs.validator_for, **options)
        self._compile_subschemas: Callable[[Any], Any] = partial(jsonschema_rs.validator_map_for, **options)
        self._matcher = cache(lambda pattern: compile_schema({"pattern": pattern}).is_valid)
        try:
            if not isinstance(schema, dict | bool):
                raise ValueError(f"{quoted(schema)} is neither an object nor a boolean")
            self._tree = SchemaTree(schema)
            self._cost = self._tree.validation_cost()
            self._validator = compile_schema(schema)
            patterns = (node.schema.get("pattern") for node in self._tree.nodes)
            if any(map(takes_quadratic_time, patterns)):
                if re.search("draft-0[46]", str(self._tree.root.schema.get("$schema"))):  # they have no `if`
                    raise ValueError("a pattern takes quadratic time; begin it with ^")
                self._tree = SchemaTree(limit_pattern_lengths(self._tree.root.schema))
                self._validator = compile_schema(self._tree.root.schema)
        except ValueError as error:
            raise SchemaError(f"invalid {label} schema{schema_error_text(error)}") from error
        except RecursionError as error:
            raise SchemaError(f"invalid {label} schema: its references are nested too deeply") from error

    def problems(self, value: Any) -> tuple[Problem, ...]:
        """Return what is wrong with a value as it is: nothing filled in, nothing coerced."""
        measured = measure(value, self._cost.max_value_depth)
        if measured is None:
            return (Problem((), f"is nested more than {self._cost.max_value_depth} levels deep, or too large"),)
        try:
            if self._validator.is_valid(value):
                return ()
            if self._cost.estimate(*measured) <= _MAX_CHECKS:
                return tuple(format_errors(self._validator.iter_errors(value), self._tree))
            return (self._first_problem(value),)
        except ValueError as error:
            return (Problem((), f"contains something that is not JSON: {error}"[:300]),)

    def _first_problem(self, value: Any) -> Problem:
        """Return the innermost part that does not fit. The search ends at a union, because any variant may be meant."""
        node = self._tree.root
        steps: Steps = ()
        while True:
            keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
            children = ((key, self.child(part, key)) for key in keys for part in node.flattened)
            misfit = next(((key, child) for key, child in children if not self.fits(value[key], child)), None)
            if misfit is None:
                expected = describe(node) or "another value"
                return Problem(steps, f"does not fit: expected {expected}, got {quoted(value)}")
            key, node = misfit
            steps, value = (*steps, key), value[key]

    def fits(self, value: Any, node: SchemaNode) -> bool:
        """Return whether the value fits one schema inside this one."""
        if node.boolean is not None:
            return node.boolean
        validator = self._subvalidators.get(f"#{node.pointer}")
        try:
            return validator is not None and bool(validator.is_valid(value))
        except ValueError:  # something in it that is not JSON
            return False

    def child(self, node: SchemaNode, key: str | int) -> SchemaNode:
        """Return the schema of an item or a property; if several patterns match its name, one that any value fits."""
        if isinstance(key, int):
            return node.item(key)
        if key in node.properties or not node.pattern_properties:
            return node.properties.get(key, node.additional)
        matching = [schema for pattern, schema in node.pattern_properties.items() if self._matcher(pattern)(key)]
        return ANYTHING if len(matching) > 1 else (*matching, node.additional)[0]

    @cached_property
    def _subvalidators(self) -> Any:
        return self._compile_subschemas(self._tree.root.raw)

    @cached_property
    def accepts(self) -> Callable[[Any], bool]:
        """Returns whether a JSON value is valid as it is."""
        return (lambda value: not self.problems(value)) if self._cost.needs_measuring else self._validator.is_valid

    @cached_property
    def fill_if_valid(self) -> Callable[[dict[str, Any]], dict[str, Any] | None]:
        """Returns valid arguments with their defaults; None if anything in them may have to be changed or reported.

        Most calls need no more than this.
        """
        is_valid = self._validator.is_valid
        nodes, coercer = self._tree.root.flattened, _Coercer(self)
        missing = (coercer.missing_defaults({}, node) for node in reversed(nodes))
        defaults = {name: default for part in missing for name, default in part.items()}
        mutable = [name for name, default in defaults.items() if isinstance(default, dict | list)]
        names = {prop: name for node in nodes for name, prop in node.properties.items()}
        others = {used for node in nodes for used, _ in node.used_nodes}.difference(nodes, names)
        if self._cost.needs_measuring or any(node.changes_valid_values for node in others):
            return lambda _arguments: None
        changeable = [name for prop, name in names.items() if prop.changes_valid_values]

        def fill_if_valid(arguments: dict[str, Any]) -> dict[str, Any] | None:
            try:
                for name in changeable:
                    if not _stays_if_valid(arguments.get(name)):
                        return None
                filled = defaults | arguments if defaults else arguments
                for name in mutable:
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

    def repair(self, arguments: Any) -> ValidatedArguments:
        """Like `validate`, for arguments that `fill_if_valid` does not accept, and for values other than objects."""
        measured = measure(arguments, self._cost.max_value_depth)
        if measured is None:
            return ValidatedArguments(arguments, problems=self.problems(arguments))
        attempts: list[ValidatedArguments] = []
        # A default can break what is valid without it (`oneOf`, `maxProperties`): then it is not filled in.
        for defaults in (True, False):
            coercer = _Coercer(self, defaults, attempts_left=[_MAX_ATTEMPTS + 4 * measured[0]])
            coerced = arguments
            with suppress(ValueError, TypeError):  # something in it that is not JSON, which is a problem of its own
                coerced = coercer.coerce(arguments, self._tree.root)
            problems = (*self.problems(coerced), *coercer.inexact_integers())
            attempts.append(ValidatedArguments(coerced, coercer.format_changes(), problems))
            if not attempts[-1].problems:
                break
        return min(reversed(attempts), key=lambda attempt: len(attempt.problems))


def _is_inexact(value: Any) -> bool:
    """Return whether the value is a float that may stand for several integers."""
    return type(value) is float and abs(value) >= _MAX_EXACT


def _stays_if_valid(value: Any) -> bool:
    """Return whether the value needs no change if it is valid, whatever its schema."""
    is_flat = type(value) is list and _CHANGEABLE_TYPES.isdisjoint(map(type, value))
    return is_flat or type(value) not in _CHANGEABLE_TYPES


class _Coercer(Struct):
    """One attempt to make a value fit its schema. The value itself stays as it is; changed parts are copies."""

    validator: SchemaValidator
    defaults: bool = True
    wrappers: frozenset[str] = _WRAPPERS
    attempts_left: list[int] = field(default_factory=lambda: [_MAX_ATTEMPTS])
    """One number, shared by all attempts on parts of the value."""
    changes: list[tuple[Steps, Any, Any]] = field(default_factory=list)
    """The path of each change, the value before it and the value after it."""

    def coerce(self, value: Any, node: SchemaNode, steps: Steps = (), depth: int = 0) -> Any:
        """Return the value with its defaults, changed where the schema allows a single reading.

        If there is nothing to change, it is the same object.
        """
        if depth > _MAX_DEPTH or self.attempts_left[0] < 0:
            return value
        if (_stays_if_valid(value) or not node.changes_valid_values) and self.validator.fits(value, node):
            return value
        self.attempts_left[0] -= 1
        for part in node.flattened:
            for union in part.unions:
                value = self._coerce_to_variant(value, union, steps, depth)
            converted = self._convert(value, part, steps, depth)
            if converted is not value:
                self.changes.append((steps, value, converted))
            value = self._coerce_parts(converted, part, steps, depth)
        return value

    def format_changes(self) -> tuple[str, ...]:
        """Return the changes as text: the first twenty, and how many more there are."""
        formatted = []
        for steps, before, after in self.changes[:MAX_PROBLEMS]:
            if after is _INEXACT:
                continue
            text = "dropped, it may be left out" if after is _DROPPED else f"→ {quoted(after)}"
            formatted.append(str(Problem(steps, f"{quoted(before)} {text}")))
        more = len(self.changes) - MAX_PROBLEMS
        return (*formatted, f"and {more} more") if more > 0 else tuple(formatted)

    def inexact_integers(self) -> Iterator[Problem]:
        """Yield a problem for each integer whose digits are not known."""
        for steps, before, after in self.changes:
            if after is _INEXACT:
                yield Problem(steps, f"expected integer with all of its digits, got {quoted(before)}")

    def _coerce_parts(self, value: Any, node: SchemaNode, steps: Steps, depth: int) -> Any:
        """Return an array with its items coerced, or an object with its properties; any other value as it is.

        An object also gets its defaults, and loses the properties whose value means "not given".
        """
        if not isinstance(value, dict | list):
            return value
        parts: dict[Any, Any] = value if isinstance(value, dict) else dict(enumerate(value))
        optional = node.properties.keys() - set(node.schema.get("required", ()))
        result: dict[Any, Any] = {}
        wrong_count = 0
        for key, part in parts.items():
            if wrong_count > MAX_PROBLEMS:  # more than are reported, so the rest stays as it is
                result[key] = part
                continue
            child = self.validator.child(node, key)
            coerced = self.coerce(part, child, (*steps, key), depth + 1)
            is_wrong = not self.validator.fits(coerced, child)
            if is_wrong and key in optional and _means_absent(coerced, child):
                self.changes.append(((*steps, key), coerced, _DROPPED))
                continue
            result[key] = coerced
            wrong_count += is_wrong
        if self.defaults and isinstance(value, dict):
            result |= self.missing_defaults(result, node, steps, depth)
        if result.keys() == parts.keys() and all(map(operator.is_, result.values(), parts.values())):
            return value
        return result if isinstance(value, dict) else list(result.values())

    def missing_defaults(
        self, value: dict[str, Any], node: SchemaNode, steps: Steps = (), depth: int = 0
    ) -> dict[str, Any]:
        """Return the defaults of absent properties, except those (often null) that do not fit their own schema."""
        missing = {}
        for name, prop in node.properties.items():
            if name not in value and "default" in prop.schema and self.validator.fits(prop.schema["default"], prop):
                default = msgspec.to_builtins(prop.schema["default"])  # a copy: the tool may change it
                filled = self.coerce(default, prop, (*steps, name), depth + _DEFAULT_DEPTH)
                missing[name] = filled if self.validator.fits(filled, prop) else default
        return missing

    def _coerce_to_variant(self, value: Any, union: list[SchemaNode], steps: Steps, depth: int) -> Any:
        """Return the value coerced to a variant; the value itself if it could become different values."""
        ordered = sorted(union, key=lambda variant: variant.is_integer) if _is_inexact(value) else union
        fitting = next((variant for variant in ordered if self.validator.fits(value, variant)), None)
        if fitting is not None:
            return self.coerce(value, fitting, steps, depth + 1)
        variants = [variant for variant in union if self._fits_discriminator(value, variant)]
        for wrappers in dict.fromkeys((frozenset[str](), self.wrappers)):
            candidates = []
            for variant in variants:
                attempt = replace(self, wrappers=wrappers, changes=[])
                candidate = attempt.coerce(value, variant, steps, depth + 1)
                if self.validator.fits(candidate, variant):
                    candidates.append((candidate, attempt.changes))
            candidates.sort(key=lambda item: isinstance(item[0], list))  # x is preferred to [x]
            if candidates:
                if self.attempts_left[0] < 0 or not _are_equal([candidate for candidate, _ in candidates]):
                    return value
                self.changes += candidates[0][1]
                return candidates[0][0]
        others = [variant for variant in union if variant.types != {"null"}]
        return self.coerce(value, others[0], steps, depth + 1) if len(others) == 1 else value

    def _fits_discriminator(self, value: Any, variant: SchemaNode) -> bool:
        """Return whether the properties with `enum` or `const`, such as a tag, can be coerced to fit: a cheap check."""
        schemas = variant.flattened if isinstance(value, dict) else ()
        properties = [item for schema in schemas for item in schema.properties.items() if item[0] in value]
        attempt = replace(self, changes=[])
        return all(
            self.validator.fits(attempt.coerce(value[name], prop), prop) or _means_absent(value[name], prop)
            for name, prop in properties
            if prop.enum_values is not None
        )

    def _convert(self, value: Any, node: SchemaNode, steps: Steps, depth: int) -> Any:
        """Convert the value to a type that the schema declares, and a text to the spelling that `enum` has."""
        if type(value) is float and node.is_integer and value.is_integer():
            if not _is_inexact(value):
                return int(value)
            self.changes.append((steps, value, _INEXACT))
            return value
        options = node.enum_values or []
        declared = node.schema.get("type") or [type_of(option) for option in options]
        types = [declared] if isinstance(declared, str) else declared
        if types and not has_type(value, types):
            parsed = _parse_as(value, types)
            value = self._wrap(value, node, types, steps, depth) if parsed is value else parsed
        if not isinstance(value, str) or value in options:
            return value
        folded = value.strip().casefold()
        matching = [option for option in options if isinstance(option, str) and option.strip().casefold() == folded]
        return matching[0] if len(matching) == 1 else value

    def _wrap(self, value: Any, node: SchemaNode, types: list[str], steps: Steps, depth: int) -> Any:
        """Return an integer as text, an object or array as JSON text, or a value as the only item of an array.

        A float is not converted to text, because it loses digits, such as the last one of the version 3.10.
        """
        candidates: list[Any] = []
        if "string" in types and isinstance(value, int) and self.wrappers:
            # It need not fit yet: `_convert` then looks for it in another case.
            candidates.append(str(value).lower() if isinstance(value, bool) else str(value))
        wrapped: list[Any] = []
        if "string" in self.wrappers.intersection(types) and _may_be_json_text(value):
            wrapped.append(msgspec.json.encode(value).decode())
        if "array" in self.wrappers.intersection(types) and _may_be_only_item(value, steps):
            attempt = replace(self, wrappers=frozenset({"array"}), changes=[])
            wrapped.append(attempt.coerce([value], node, steps, depth + 1))
        candidates += [candidate for candidate in wrapped if self.validator.fits(candidate, node)]
        return candidates[0] if candidates and _are_equal(candidates) else value


def _means_absent(value: Any, node: SchemaNode) -> bool:
    """Return whether a value that does not fit is null, also as text, or the default: they mean "not given"."""
    if value in (None, "null"):
        return True
    default = node.schema.get("default")
    return value == default and type(value) is type(default)  # False == 0 in Python, not in JSON


def _may_be_only_item(value: Any, steps: Steps) -> bool:
    """Return whether the value may be meant as the only item of an array.

    Not inside an array: a row is not a table of one column. Neither null, nor a text that means null, that may be a
    list (`a, b`), or that begins like an array or an object and is not a valid object.
    """
    if value is None or (steps and isinstance(steps[-1], int)):
        return False
    if not isinstance(value, str):
        return True
    if value.lstrip()[:1] in ("[", "{"):
        return isinstance(_parse(value), dict)
    return _WORDS.get(value.strip().lower(), value) is not None and not _SEPARATOR.search(value)


def _may_be_json_text(value: Any) -> bool:
    """Return whether the value may be encoded as JSON text. An array of scalars may be meant as a list of strings."""
    if isinstance(value, list):
        return any(isinstance(item, dict | list) for item in value)
    return isinstance(value, dict) and bool(value)


def _are_equal(candidates: list[Any]) -> bool:
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
    """Return the JSON value of a text; the text itself if it is not JSON, or has a name twice."""
    from midspan._schema.lenient_json import parse_json  # loaded with the first text that may be JSON

    try:
        return parse_json(text.strip())
    except ValueError:
        return text
