"""Several schemas as one: the unions that a dialect can say."""

from typing import Any

from midspan._schema.dialects.dialect import SchemaDialect
from midspan._schema.type_aliases import type_of

Schema = dict[str, Any]

_ARRAYS_IN_ARRAYS = 3


def anything(dialect: SchemaDialect, depth: int = _ARRAYS_IN_ARRAYS) -> Schema:
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


def joined(dialect: SchemaDialect, schemas: list[Schema], *, null: bool) -> Schema:
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


def _with_null(dialect: SchemaDialect, branches: list[Schema]) -> list[Schema]:
    first = branches[0]
    if any(_takes_null(dialect, branch) for branch in branches):
        return branches
    if dialect.nullable:
        return [{**first, "nullable": True}, *branches[1:]]
    if len(branches) == 1 and isinstance(first.get("type"), str) and "enum" not in first:
        return [{**first, "type": [first["type"], dialect.types["null"]]}]
    return [*branches, {"type": dialect.types["null"]}]


def _takes_null(dialect: SchemaDialect, schema: Schema) -> bool:
    if "anyOf" in schema:
        return any(_takes_null(dialect, branch) for branch in schema["anyOf"])
    words = schema.get("type")
    if words is None:
        return "enum" not in schema
    return bool(schema.get("nullable")) or dialect.types["null"] in (words if isinstance(words, list) else [words])


def values_by_type(values: list[Any]) -> dict[str, list[Any]]:
    """The values of an `enum`, in groups of one JSON type; numbers are one group, integers if all are."""
    groups: dict[str, list[Any]] = {}
    for value in values:
        groups.setdefault(type_of(value), []).append(value)
    if "number" in groups and "integer" in groups:
        groups["number"] += groups.pop("integer")
    return groups
