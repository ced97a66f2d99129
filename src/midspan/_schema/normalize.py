"""Normalize schemas as people write them to the JSON Schema (2020-12) that they mean, and that Midspan enforces."""

import logging
import re
from typing import Any

from midspan._schema.tree import LIST_KEYWORDS, MAP_KEYWORDS, Schema, SchemaTree, check_size, has_type, map_subschemas
from midspan.errors import SchemaError

_log = logging.getLogger("midspan._schema")
_TYPE_NUMBERS = ("any", "string", "number", "integer", "boolean", "array", "object", "null")
"""`google.ai.generativelanguage.Type`, by number."""
_ANNOTATIONS = frozenset(("$defs", "definitions", "title", "description", "default", "examples"))
"""Keywords that constrain nothing."""


def normalize(schema: Any) -> Schema:
    """Return the schema in plain JSON Schema, as a new dict.

    Type names of Python and Java, older drafts and OpenAPI's `nullable` are translated. An unknown type name, or what
    is not a schema at all, is an error with its location. Malformed constraints stay: the validator reports them.
    """
    check_size(schema)
    root = _normalized(schema, "")
    if isinstance(root, bool):
        root = {} if root else {"not": {}}
    return root


def normalize_tree(schema: Any) -> SchemaTree:
    """Return the normalized schema as a tree, without malformed keywords and references that lead out of the document.

    It is for models. A schema that the validator has accepted has no malformed keywords.
    """
    tree = SchemaTree(normalize(schema))
    _drop_malformed(tree)
    for node in tree.nodes:
        if node.ref_target is None:  # what is not in the document is never fetched
            node.schema.pop("$ref", None)
    return tree


def _normalized(schema: Any, pointer: str) -> Schema | bool:
    if isinstance(schema, str):
        schema = schema.lower() == "true" if schema.lower() in ("true", "false") else {"type": schema}
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, dict):
        raise SchemaError(f"no schema at {pointer or 'the root'}: {schema!r:.80} is neither an object nor a boolean")
    normalized = _modernize(schema)
    declared, is_nullable = normalized.pop("type", None), normalized.pop("nullable", None) is True
    normalized |= map_subschemas(normalized, lambda item, path: _normalized(item, pointer + path))
    types = list(dict.fromkeys(_type_name(name, pointer) for name in _as_list(declared)))
    if declared is not None and types and "any" not in types:
        normalized["type"] = types[0] if len(types) == 1 else types
    if normalized.get("type") == "array" and (items := _ITEMS.fullmatch(str(declared).strip().lower())):
        item_type = _TYPES.get(items[1] or items[2], "any")
        normalized.setdefault("items", {} if item_type == "any" else {"type": item_type})
    _fix_enum(normalized)
    return _with_null(normalized) if is_nullable else normalized


def _modernize(schema: Schema) -> Schema:
    """Return the schema with the keywords of older drafts in today's spelling, and without empty keywords."""
    normalized = {
        keyword: _corrected(keyword, value)
        for keyword, value in schema.items()
        if keyword not in ("$schema", "$vocabulary")
        and (value is not None or keyword in ("default", "const"))
        and (value or keyword not in ("enum", "examples", *LIST_KEYWORDS))
    }
    if isinstance(normalized.get("items"), list):
        normalized["prefixItems"] = normalized.pop("items")
        if "additionalItems" in normalized:
            normalized["items"] = normalized.pop("additionalItems")
    dependencies = normalized.pop("dependencies", None)
    for name, dependency in dependencies.items() if isinstance(dependencies, dict) else ():
        keyword = "dependentRequired" if isinstance(dependency, list) else "dependentSchemas"
        others = normalized.get(keyword)
        normalized[keyword] = {name: dependency, **(others if isinstance(others, dict) else {})}
    return normalized


def _corrected(keyword: str, value: Any) -> Any:
    """Return the value of a keyword in the form that JSON Schema has for it."""
    if keyword in MAP_KEYWORDS:
        return value or {}  # PHP encodes an empty object as []
    if type(value) is float and value.is_integer() and keyword.startswith(("min", "max")):
        return int(value)
    return list(value) if isinstance(value, tuple) else value


def _drop_malformed(tree: SchemaTree) -> None:
    """Delete keywords with a value that the meta-schema rejects, such as `"minLength": "many"`, and log a warning."""
    from jsonschema_rs import meta  # slow to import

    try:
        for node in [] if meta.is_valid(tree.root.schema) else tree.nodes:
            for keyword in node.schema.keys() - node.subschemas.keys():
                if not meta.is_valid({keyword: node.schema[keyword]}):
                    value = node.schema.pop(keyword)
                    _log.warning("ignored %r: %.80r at %s of a schema: not a valid value", keyword, value, node.pointer)
    except ValueError:
        return  # something in it that is not JSON, which compiling the schema reports


def _with_null(schema: Schema) -> Schema:
    if "const" in schema:
        schema["enum"] = [schema.pop("const")]
    if isinstance(schema.get("enum"), list) and None not in schema["enum"]:
        schema["enum"] = [*schema["enum"], None]
    if "type" in schema:
        schema["type"] = list(dict.fromkeys([*_as_list(schema["type"]), "null"]))
        return schema
    annotations = {key: value for key, value in schema.items() if key in _ANNOTATIONS}
    constraints = {key: value for key, value in schema.items() if key not in annotations}
    return {**annotations, "anyOf": [constraints, {"type": "null"}]} if constraints else schema


def _fix_enum(schema: Schema) -> None:
    """Correct an enum whose values all contradict the type: they are meant for the items, or the type is wrong."""
    values, declared = schema.get("enum"), schema.get("type")
    if not isinstance(values, list) or not isinstance(declared, str):
        return
    if any(has_type(value, [declared]) for value in values):
        return
    if declared == "array" and isinstance(items := schema.setdefault("items", {}), dict):
        items.setdefault("enum", schema.pop("enum"))
    else:
        del schema["type"]


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


_ALIASES = {
    "string": "str text char character varchar bytes "
    "date datetime date-time timestamp time duration uuid uri url email",
    "integer": "int long short byte bigint biginteger int8 int16 int32 int64 uint uint8 uint16 uint32 uint64",
    "number": "float double numeric num decimal bigdecimal real float32 float64",
    "boolean": "bool",
    "null": "none nonetype nil void undefined",
    "array": "list tuple set frozenset sequence iterable collection queue deque stack "
    "arraylist linkedlist vector hashset treeset",
    "object": "dict dictionary map hashmap hashtable treemap linkedhashmap mapping record struct typeddict",
    "any": "anything mixed unknown jsonvalue type_unspecified *",
}
"""Type names of Python, Java and TypeScript, which people write instead of those of JSON Schema."""
_ITEMS = re.compile(r"\w+[\[<](\w+)[\]>]|(\w+)\[\]")
"""The type of the items in `List[int]` and `string[]`."""
_TYPES = {"": "any"} | {alias: name for name, aliases in _ALIASES.items() for alias in (name, *aliases.split())}


def _type_name(name: Any, pointer: str) -> str:
    """Return the JSON type, or "any", for a type name in any case. Of `HashMap<String, Long>` the outer name counts."""
    if type(name) is int and 0 <= name < len(_TYPE_NUMBERS):
        name = _TYPE_NUMBERS[name]
    text = str(name).strip().lower()  # None means null
    json_type = "array" if text.endswith("[]") else _TYPES.get(re.split(r"[\[<]", text)[0].rpartition(".")[2])
    if json_type is None:
        raise SchemaError(f"unknown type {name!r:.80} at {pointer or 'the root'}")
    return json_type
