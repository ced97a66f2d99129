"""JSON Schema → what one family of providers accepts, with every loss listed."""

from collections.abc import Iterable
from typing import Any

from midspan.schema.lowering.dialect import Dialect, Loss, Lowered
from midspan.schema.lowering.names import NameRule, legal
from midspan.schema.lowering.walk import lowered

__all__ = ["GEMINI_JSON_SCHEMA", "GEMINI_PARAMETERS", "Dialect", "Loss", "Lowered", "legal_names", "lower"]


_GEMINI_FUNCTIONS = NameRule(extra=".-")

GEMINI_PARAMETERS = Dialect(
    name="gemini parameters",
    # Of the documented fields without those that servers refuse all the same:
    # additionalProperties, defs, ref; and without title, which makes answers worse.
    keywords=frozenset(
        [
            "type",
            "format",
            "description",
            "nullable",
            "default",
            "enum",
            "items",
            "minItems",
            "maxItems",
            "properties",
            "required",
            "minProperties",
            "maxProperties",
            "minLength",
            "maxLength",
            "pattern",
            "minimum",
            "maximum",
            "anyOf",
        ]
    ),
    types={word: word.upper() for word in ("string", "number", "integer", "boolean", "array", "object", "null")},
    enum_types=frozenset({"string"}),
    # «only 'enum' and 'date-time' are supported for STRING type»
    formats={
        "string": frozenset({"date-time"}),
        "number": frozenset({"float", "double"}),
        "integer": frozenset({"int32", "int64"}),
    },
    # «type: must be specified when not using one_of, any_of or all_of fields»
    untyped=False,
    nullable=True,
    # «When using any_of, it must be the only field set»
    union_alone=True,
    # «enum[0]: cannot be empty»
    empty_strings=False,
    functions=_GEMINI_FUNCTIONS,
)
"""`functionDeclarations[].parameters`: the OpenAPI subset, and the only one that the Live API takes."""

GEMINI_JSON_SCHEMA = Dialect(
    name="gemini json schema",
    keywords=frozenset(
        [
            "type",
            "format",
            "description",
            "enum",
            "items",
            "prefixItems",
            "minItems",
            "maxItems",
            "minimum",
            "maximum",
            "anyOf",
            "properties",
            "additionalProperties",
            "required",
        ]
    ),
    types={word: word for word in ("string", "number", "integer", "boolean", "array", "object", "null")},
    enum_types=frozenset({"string", "number", "integer"}),
    empty_strings=False,
    functions=_GEMINI_FUNCTIONS,
)
"""`functionDeclarations[].parametersJsonSchema`: the JSON Schema that Gemini honours."""


def lower(schema: Any, dialect: Dialect, *, arguments: bool = True) -> Lowered:
    """The schema as the dialect says it, wider where it cannot say it, never narrower.

    It takes schemas as people write them, see `normal`. With `arguments` the root is an object, as every
    provider demands of parameters; without, it is whatever the schema says (a response, a structured answer).
    """
    return lowered(schema, dialect, arguments)


def legal_names(names: Iterable[str], dialect: Dialect) -> dict[str, str]:
    """Original → legal name of each function, the same one for no two of them."""
    return legal(names, dialect.functions)
