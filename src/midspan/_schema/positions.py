"""Where schemas sit inside a schema."""

from collections.abc import Iterator
from typing import Any

from midspan.errors import SchemaError

MAX_DEPTH = 128
MAX_NODES = 50_000

SINGLE = frozenset(
    {
        "items",
        "additionalItems",
        "additionalProperties",
        "unevaluatedItems",
        "unevaluatedProperties",
        "propertyNames",
        "contains",
        "contentSchema",
        "not",
        "if",
        "then",
        "else",
    }
)
LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
MAPS = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})
IN_PLACE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"})
"""Keywords whose schemas look at the very value that their parent looks at."""


def subschemas(schema: dict[str, Any]) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    """Every schema directly inside this one: the keyword, the way to it, and itself."""
    for keyword, value in schema.items():
        # Up to draft 2019-09 `items` may be a list, too.
        if isinstance(value, list) and (keyword in LISTS or keyword == "items"):
            for index, inner in enumerate(value):
                yield keyword, (keyword, str(index)), inner
        elif keyword in SINGLE:
            yield keyword, (keyword,), value
        elif keyword in MAPS and isinstance(value, dict):
            for name, inner in value.items():
                yield keyword, (keyword, name), inner


def array_schemas(schema: dict[str, Any]) -> tuple[list[Any], Any]:
    """The schemas of the first items one by one, and the one of all that follow; in the words of any draft."""
    items = schema.get("items", True)
    if isinstance(items, list):
        return items, schema.get("additionalItems", True)
    return schema.get("prefixItems", []), items


def pointer(way: tuple[str, ...]) -> str:
    """The way as a JSON Pointer."""
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in way)


def check_size(schema: Any) -> None:
    """Refuse what is nested so deeply, or is so large, that walking it would be the attack.

    Level by level and not by recursion, because this is what makes recursion safe for everybody after it;
    an object of Python that contains itself ends here too.
    """
    level, nodes = [schema], 0
    for _ in range(MAX_DEPTH):
        level = [inner for one in level for inner in _inside(one)]
        nodes += len(level)
        if not level:
            return
        if nodes > MAX_NODES:
            raise SchemaError(f"the schema is too large: more than {MAX_NODES:,} values")
    raise SchemaError(f"the schema is nested more than {MAX_DEPTH} levels deep")


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        return iter(value.values())
    return iter(value) if isinstance(value, list | tuple) else iter(())
