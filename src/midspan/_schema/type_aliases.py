"""What people write instead of the type names of JSON Schema: type names of Python, Java and TypeScript."""

import re
from itertools import chain
from typing import Any

_TYPE_ALIASES = {
    "string": "str string text char character varchar charsequence unicode",
    "integer": "int integer long short byte bigint biginteger int8 int16 int32 int64 "
    "uint uint8 uint16 uint32 uint64 ulong",
    "number": "float double number numeric num decimal bigdecimal real float32 float64",
    "boolean": "bool boolean",
    "null": "null none nonetype nil void undefined",
    "array": "array list tuple set frozenset sequence iterable collection arraylist linkedlist vector queue deque "
    "stack hashset linkedhashset treeset immutablelist",
    "object": "object dict dictionary map hashmap hashtable treemap linkedhashmap mapping record struct typeddict "
    "defaultdict ordereddict json_object",
}
_FORMAT_ALIASES = {
    "date": "date",
    "date-time": "datetime date-time timestamp",
    "time": "time",
    "duration": "duration timedelta",
    "uuid": "uuid",
    "uri": "uri url",
    "email": "email",
    "byte": "bytes binary",
}
_SCHEMAS: dict[str, dict[str, Any]] = {
    **{alias: {"type": name} for name, aliases in _TYPE_ALIASES.items() for alias in aliases.split()},
    **{
        alias: {"type": "string", "format": name}
        for name, aliases in _FORMAT_ALIASES.items()
        for alias in aliases.split()
    },
    **{alias: {} for alias in ("any", "anything", "mixed", "unknown", "variant", "jsonvalue", "*", "")},
}
_MAX_CHARS = 200
_PACKAGES = re.compile(r"^(?:typing|java\.util|java\.lang)\.")
_GENERIC = re.compile(r"(?P<name>[\w.-]+)\s*(?:\[(?P<square>.*)\]|<(?P<angle>.*)>)", re.DOTALL)


def schema_for_alias(alias: str) -> dict[str, Any] | None:
    """Return the schema that a type name stands for, in any case and as Python, Java or TypeScript write it.

    `{}` stands for any value; None means that the name is unknown.
    """
    return _parse(alias) if len(alias) <= _MAX_CHARS else None


def _parse(text: str) -> dict[str, Any] | None:
    text = _PACKAGES.sub("", text.strip())
    if text.lower() in _SCHEMAS:
        return dict(_SCHEMAS[text.lower()])
    if text.endswith("?"):
        return _union([text[:-1], "null"])
    if len(alternatives := _split(text, "|")) > 1:
        return _union(alternatives)
    if text.endswith("[]"):
        return _array(text[:-2])
    generic = _GENERIC.fullmatch(text)
    return _generic(generic) if generic else None


def _generic(generic: re.Match[str]) -> dict[str, Any] | None:
    name = generic["name"].lower()
    arguments = _split(generic["square"] if generic["angle"] is None else generic["angle"], ",")
    if name in ("optional", "union"):
        return _union([*arguments, "null"] if name == "optional" else arguments)
    outer = _parse(name)
    if outer == {"type": "object"} and len(arguments) == 2:
        value = _parse(arguments[1])
        return outer | {"additionalProperties": value} if value else outer
    if outer == {"type": "array"} and name != "tuple" and len(arguments) == 1:
        return _array(arguments[0])
    return outer


def _array(item: str) -> dict[str, Any] | None:
    items = _parse(item)
    return None if items is None else {"type": "array", "items": items}


def _union(names: list[str]) -> dict[str, Any] | None:
    schemas = [_parse(name) for name in names]
    if None in schemas or {} in schemas:
        return None if None in schemas else {}
    known = [schema for schema in schemas if schema is not None]
    if all(schema.keys() == {"type"} for schema in known):
        types = [schema["type"] if isinstance(schema["type"], list) else [schema["type"]] for schema in known]
        return {"type": list(dict.fromkeys(chain.from_iterable(types)))}
    return {"anyOf": known}


def _split(text: str, separator: str) -> list[str]:
    """Return the parts between separators that are not inside brackets."""
    parts, depth, start = [], 0, 0
    for index, character in enumerate(text):
        depth += (character in "[<(") - (character in "]>)")
        if character == separator and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]]
