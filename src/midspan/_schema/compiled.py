"""Schemas compiled with jsonschema-rs, within bounds on the work that they can cause. Nothing is ever fetched."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from midspan._schema.problems import ErrorFormatter, quoted
from midspan._schema.tree import TYPES, SchemaNode, SchemaTree, format_pointer
from midspan.errors import SchemaError

if TYPE_CHECKING:
    import jsonschema_rs

MAX_CHECKS = 50_000
MAX_REF_DEPTH = 500
MAX_VALUE_DEPTH = 100
_MAX_STACK = 1_000
"""How deep the validator may recurse; it has no limit of its own, and 512 KiB of stack on some systems."""
_MAX_BACKTRACKS = 100_000
_CEILING = 10**12


class CompiledSchema:
    """A schema ready to validate values. Errors call it "invalid `label` schema"."""

    def __init__(
        self,
        schema: Any,
        *,
        label: str,
        formats: bool = False,
        remotes: Mapping[str, Any] | None = None,
    ) -> None:
        self.schema = schema
        self._options: dict[str, Any] = {"validate_formats": formats, "retriever": _retriever(remotes or {})}
        self._parts: Any = None
        try:
            if not isinstance(schema, dict | bool):
                raise ValueError(f"{quoted(schema)} is neither an object nor a boolean")
            self.tree = SchemaTree(schema)
            self.cost = validation_cost(self.tree.root)
            self.validator = self._build()
        except ValueError as error:
            raise SchemaError(f"invalid {label} schema: {self._describe(error)}") from error

    @property
    def root(self) -> SchemaNode:
        return self.tree.root

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

    def _describe(self, error: ValueError) -> str:
        """Say what is wrong with the schema, and where."""
        import jsonschema_rs

        if not isinstance(error, jsonschema_rs.ValidationError):
            return (str(error).strip().splitlines() or ["it cannot be read"])[0][:300]
        if type(error.kind).__name__ == "Referencing":
            return self._describe_reference()
        place = format_pointer(tuple(map(str, error.instance_path)))
        if place.endswith("/type") or "/type/" in place:
            message = f"{quoted(error.instance)} is not a type; the types are {', '.join(TYPES)}"
        else:
            message = " and ".join(problem.message for problem in ErrorFormatter(SchemaTree({})).format(error))
        return f"{message} at {place or 'the root'}"

    def _describe_reference(self) -> str:
        for node in self.tree.unresolved:
            reference = node.schema["$ref"]
            reason = "does not exist" if reference.startswith("#") else "is not in the schema and is never fetched"
            return f"it refers to {quoted(reference)}, which {reason}"
        return f"its $schema is {quoted(self.root.schema.get('$schema'))}, which is not a known draft"


def _retriever(remotes: Mapping[str, Any]) -> Callable[[str], Any]:
    def retrieve(uri: str) -> Any:
        document = remotes.get(uri, remotes.get(uri.rstrip("#")))
        if document is None:
            raise ValueError(f"{uri} is never fetched")
        return document

    return retrieve


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
    is_recursive: bool = False
    compares: bool = False
    """Whether whole values are compared with each other, as by `uniqueItems`."""

    @property
    def max_value_depth(self) -> int:
        return max(8, min(MAX_VALUE_DEPTH, _MAX_STACK // self.ref_depth))

    def estimate(self, size: int, depth: int) -> int:
        """Return about how many validations a value of this size and depth takes."""
        unfolded: int = self.branching ** min(depth, 40)
        return size * (unfolded if self.is_recursive else min(unfolded, self.total))


def validation_cost(root: SchemaNode) -> ValidationCost:
    """Return the cost of a schema. A schema that would take too long is an error."""
    costs, is_recursive = _node_costs(root)
    nodes = [node for node, _ in costs.values()]
    figures = [cost for _, cost in costs.values()]
    cost = ValidationCost(
        max(figure.checks for figure in figures),
        max(figure.branching for figure in figures),
        max(figure.ref_depth for figure in figures),
        costs[id(root)][1].total,
        is_recursive or any("$dynamicRef" in node.schema or "$recursiveRef" in node.schema for node in nodes),
        any("uniqueItems" in node.schema for node in nodes),
    )
    if cost.checks > MAX_CHECKS:
        raise SchemaError(f"its references unfold into more than {MAX_CHECKS:,} checks of one value")
    if cost.ref_depth > MAX_REF_DEPTH:
        raise SchemaError(f"it has a chain of more than {MAX_REF_DEPTH} references")
    return cost


def _node_costs(root: SchemaNode) -> tuple[dict[int, tuple[SchemaNode, ValidationCost]], bool]:
    """Return the cost of each node, and whether any node contains itself.

    Depth first without recursion, because a chain of references may be longer than Python's stack.
    """
    done: dict[int, tuple[SchemaNode, ValidationCost]] = {}
    entered: set[int] = set()
    is_recursive = False
    pending = [(root, False)]
    while pending:
        node, is_complete = pending.pop()
        if is_complete:
            entered.discard(id(node))
            done[id(node)] = node, _combined_cost(node, done)
        elif id(node) not in entered and id(node) not in done:
            entered.add(id(node))
            pending.append((node, True))
            for inner, _ in node.dependencies:
                is_recursive = is_recursive or id(inner) in entered
                if id(inner) not in done:
                    pending.append((inner, False))
    return done, is_recursive


def _combined_cost(node: SchemaNode, done: dict[int, tuple[SchemaNode, ValidationCost]]) -> ValidationCost:
    checks, branching, ref_depth, total = 1, 0, 0, 1
    for inner, is_in_place in node.dependencies:
        cost = done[id(inner)][1] if id(inner) in done else ValidationCost()
        total += cost.total
        if is_in_place:
            checks, branching = checks + cost.checks, branching + cost.branching
            ref_depth = max(ref_depth, cost.ref_depth)
    return ValidationCost(min(checks, _CEILING), min(max(branching, 1), _CEILING), ref_depth + 1, min(total, _CEILING))
