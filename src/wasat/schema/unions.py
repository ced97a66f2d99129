"""Several schemas as one: the unions that a dialect can say."""

from typing import Any

from wasat.schema.dialect import Dialect

Schema = dict[str, Any]

_ARRAYS_IN_ARRAYS = 3


def anything(dialect: Dialect, depth: int = _ARRAYS_IN_ARRAYS) -> Schema:
    """The schema of any value.

    Where every schema needs a type it is a union of them all, and since an array needs the schema of its items,
    arrays in arrays in arrays end somewhere: the one place where a lowered schema is narrower than «anything».
    """
    if dialect.untyped:
        return {}
    branches: list[Schema] = [{"type": dialect.types[word]} for word in ("string", "number", "boolean", "object")]
    if depth:
        branches.append({"type": dialect.types["array"], "items": anything(dialect, depth - 1)})
    return joined(dialect, branches, null=True)


def joined(dialect: Dialect, schemas: list[Schema], *, null: bool) -> Schema:
    """One schema for what fits any of these, or null."""
    branches: list[Schema] = []
    for schema in schemas:
        for branch in schema["anyOf"] if schema.keys() == {"anyOf"} else [schema]:
            if branch not in branches and {**branch, "nullable": True} not in branches:
                branches.append(branch)
    if not branches:
        return {"type": dialect.types["null"]}
    if {} in branches:
        return {}
    if null:
        branches = _with_null(dialect, branches)
    return branches[0] if len(branches) == 1 else {"anyOf": branches}


def _with_null(dialect: Dialect, branches: list[Schema]) -> list[Schema]:
    first = branches[0]
    if dialect.nullable:
        if any(branch.get("nullable") or branch.get("type") == dialect.types["null"] for branch in branches):
            return branches
        return [{**first, "nullable": True}, *branches[1:]]
    if len(branches) == 1 and isinstance(first.get("type"), str) and "enum" not in first:
        return [{**first, "type": [first["type"], dialect.types["null"]]}]
    null = {"type": dialect.types["null"]}
    return branches if null in branches or any("type" not in branch for branch in branches) else [*branches, null]


def values_by_type(values: list[Any]) -> dict[str, list[Any]]:
    """The values of an `enum`, in groups of one JSON type; numbers are one group, integers if all are."""
    groups: dict[str, list[Any]] = {}
    for value in values:
        groups.setdefault(type_of(value), []).append(value)
    if "number" in groups and "integer" in groups:
        groups["number"] += groups.pop("integer")
    return groups


def type_of(value: Any) -> str:
    """The JSON Schema word for the type of this value; a float without a fraction is an integer."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, dict) else "array"
