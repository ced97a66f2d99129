"""Schemas compiled with jsonschema-rs, within bounds on the work that they can cause. Nothing is ever fetched."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from midspan._schema.problems import Problem, Steps, describe, format_errors, quoted
from midspan._schema.tree import TYPES, SchemaNode, SchemaTree, format_pointer, measure
from midspan.errors import SchemaError

if TYPE_CHECKING:
    import jsonschema_rs

MAX_CHECKS = 50_000
MAX_REF_DEPTH = 500
MAX_VALUE_DEPTH = 100
_MAX_STACK = 1_000
"""How deep the validator may recurse; it has no limit of its own, and 512 KiB of stack on some systems."""
_MAX_BACKTRACKS = 100_000
_MAX_WORK = 50_000
"""Beyond this the validator's list of errors takes seconds to make, so only the first one is reported."""
_UNBOUNDED = frozenset(("$dynamicRef", "$recursiveRef", "uniqueItems"))
"""References that may lead to the schema that they are in, and a keyword that compares whole values."""


def _refuse(uri: str) -> Any:
    raise ValueError(f"{uri} is never fetched")


class CompiledSchema:
    """A schema ready to validate values. Errors call it "invalid `label` schema"."""

    def __init__(
        self,
        schema: Any,
        *,
        label: str = "parameters",
        formats: bool = False,
        retrieve: Callable[[str], Any] = _refuse,
    ) -> None:
        self.schema = schema
        self._options: dict[str, Any] = {"validate_formats": formats, "retriever": retrieve}
        self._parts: Any = None
        try:
            if not isinstance(schema, dict | bool):
                raise ValueError(f"{quoted(schema)} is neither an object nor a boolean")
            self.tree = SchemaTree(schema)
            self.root = self.tree.root
            self.cost = validation_cost(self.root)
            self.validator = self._build()
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

    def _build(self) -> "jsonschema_rs.Validator":
        """Compile with regular expressions of the linear-time engine if it supports all patterns of the schema."""
        import jsonschema_rs

        self._options["pattern_options"] = jsonschema_rs.RegexOptions()
        try:
            return jsonschema_rs.validator_for(self.schema, **self._options)
        except ValueError:
            self._options["pattern_options"] = jsonschema_rs.FancyRegexOptions(backtrack_limit=_MAX_BACKTRACKS)
            return jsonschema_rs.validator_for(self.schema, **self._options)


def _describe(error: ValueError) -> str:
    """Say where the schema is wrong, if that is known, and what is wrong with it: ` at /type: 5 is not a type`."""
    import jsonschema_rs

    if not isinstance(error, jsonschema_rs.ValidationError):
        return f": {(str(error).strip().splitlines() or ['it cannot be read'])[0][:300]}"
    pointer = format_pointer(*error.instance_path)
    if pointer.endswith("/type") or "/type/" in pointer:
        return f" at {pointer}: {quoted(error.instance)} is not a type; the types are {', '.join(TYPES)}"
    return f"{' at ' if pointer else ''}{pointer}: {error.message[:300]}"


class ValidationCost(Struct, frozen=True):
    """How much work references, unions and `allOf` can make of validating one value."""

    checks: int = 1
    """At most this many schemas look at the same value."""
    branching: int = 1
    """The number of branches through which they reach it."""
    ref_depth: int = 1
    """How many of them are nested in each other."""
    total: int = 1
    """The size of the schema with every reference written out once."""
    is_unbounded: bool = True
    """Whether validating a value may go deeper into it than the schema itself is deep."""

    @property
    def max_value_depth(self) -> int:
        return max(8, min(MAX_VALUE_DEPTH, _MAX_STACK // self.ref_depth))

    def estimate(self, size: int, depth: int) -> int:
        """Return about how many validations a value of this size and depth takes."""
        unfolded: int = self.branching ** min(depth, 40)
        return size * (unfolded if self.is_unbounded else min(unfolded, self.total))


def validation_cost(root: SchemaNode) -> ValidationCost:
    """Return the cost of a schema. A schema that would take too long is an error."""
    known: dict[int, ValidationCost] = {}
    cost = _node_cost(root, known)
    costs = known.values()
    checks, ref_depth = max(cost.checks for cost in costs), max(cost.ref_depth for cost in costs)
    if checks > MAX_CHECKS:
        raise SchemaError(f"its references unfold into more than {MAX_CHECKS:,} checks of one value")
    if ref_depth > MAX_REF_DEPTH:
        raise SchemaError(f"it has a chain of more than {MAX_REF_DEPTH} references")
    return replace(cost, checks=checks, branching=max(cost.branching for cost in costs), ref_depth=ref_depth)


def _node_cost(node: SchemaNode, known: dict[int, ValidationCost]) -> ValidationCost:
    """Return the cost of a node, and add it to those that are known."""
    if id(node) in known:
        return known[id(node)]
    known[id(node)] = ValidationCost()  # for a schema that refers to itself
    checks, branching, ref_depth, total = 1, 0, 0, 1
    is_unbounded = not _UNBOUNDED.isdisjoint(node.schema)
    for inner, is_in_place in node.dependencies:
        cost = _node_cost(inner, known)
        total += cost.total
        is_unbounded = is_unbounded or cost.is_unbounded
        if is_in_place:
            checks += cost.checks
            branching += cost.branching
            ref_depth = max(ref_depth, cost.ref_depth)
    known[id(node)] = ValidationCost(checks, max(branching, 1), ref_depth + 1, total, is_unbounded)
    return known[id(node)]
