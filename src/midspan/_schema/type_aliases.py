"""The seven type words of JSON Schema: of which type a value is, and what people write instead of them."""

import re
from typing import Any

TYPES = ("string", "number", "integer", "boolean", "array", "object", "null")

_STRING = "str string text char character varchar charsequence unicode"
_INTEGER = "int integer long short byte bigint biginteger int8 int16 int32 int64 uint uint8 uint16 uint32 uint64 ulong"
_NUMBER = "float double number numeric num decimal bigdecimal real float32 float64"
_ARRAY = (
    "array list tuple set frozenset sequence iterable collection arraylist linkedlist vector queue deque stack "
    "hashset linkedhashset treeset immutablelist"
)
_OBJECT = (
    "object dict dictionary map hashmap hashtable treemap linkedhashmap mapping record struct typeddict "
    "defaultdict ordereddict json_object"
)
_TYPES: dict[str, dict[str, Any]] = {
    word: {"type": name}
    for name, words in {
        "string": _STRING,
        "integer": _INTEGER,
        "number": _NUMBER,
        "boolean": "bool boolean",
        "null": "null none nonetype nil void undefined",
        "array": _ARRAY,
        "object": _OBJECT,
    }.items()
    for word in words.split()
}
_FORMATS: dict[str, dict[str, Any]] = {
    word: {"type": "string", "format": name}
    for name, words in {
        "date": "date",
        "date-time": "datetime date-time timestamp",
        "time": "time",
        "duration": "duration timedelta",
        "uuid": "uuid",
        "uri": "uri url",
        "email": "email",
        "byte": "bytes binary",
    }.items()
    for word in words.split()
}
_ANYTHING: dict[str, dict[str, Any]] = {
    word: {} for word in ("any", "anything", "mixed", "unknown", "variant", "jsonvalue", "*", "")
}
_WORDS = _TYPES | _FORMATS | _ANYTHING

_LONGEST = 200
_GENERIC = re.compile(r"(?P<name>[\w.-]+)\s*(?:\[(?P<square>.*)\]|<(?P<angle>.*)>)", re.DOTALL)


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


def schema_for_alias(word: str) -> dict[str, Any] | None:
    """The schema that a type word stands for, in any case and in the manner of Python, Java or TypeScript.

    `{}` is a word for «anything», None a word that nobody knows.
    """
    return _meaning(word) if len(word) <= _LONGEST else None


def _meaning(word: str) -> dict[str, Any] | None:
    word = word.strip()
    name = word.lower().removeprefix("typing.").removeprefix("java.util.").removeprefix("java.lang.")
    if name in _WORDS:
        return dict(_WORDS[name])
    if word.endswith("?"):
        return _union([word[:-1], "null"])
    if len(alternatives := _split(word, "|")) > 1:
        return _union(alternatives)
    if word.endswith("[]"):
        return _list_of(word[:-2])
    generic = _GENERIC.fullmatch(word.removeprefix("typing."))
    return _generic(generic) if generic else None


def _generic(generic: re.Match[str]) -> dict[str, Any] | None:
    name = generic["name"].lower()
    inside = _split(generic["square"] if generic["angle"] is None else generic["angle"], ",")
    if name == "optional":
        return _union([*inside, "null"])
    if name == "union":
        return _union(inside)
    outer = _meaning(name)
    if outer == {"type": "object"} and len(inside) == 2:
        value = _meaning(inside[1])
        return outer | {"additionalProperties": value} if value else outer
    if outer == {"type": "array"} and name != "tuple" and len(inside) == 1:
        return _list_of(inside[0])
    return outer


def _list_of(word: str) -> dict[str, Any] | None:
    items = _meaning(word)
    return None if items is None else {"type": "array", "items": items}


def _union(words: list[str]) -> dict[str, Any] | None:
    meanings = [_meaning(word) for word in words]
    if None in meanings:
        return None
    if {} in meanings:
        return {}
    known = [one for one in meanings if one is not None]
    if all(set(one) == {"type"} for one in known):
        return {"type": list(dict.fromkeys(one["type"] for one in known))}
    return {"anyOf": known}


def _split(text: str, separator: str) -> list[str]:
    """The parts between separators that are not inside brackets."""
    parts, depth, start = [], 0, 0
    for index, character in enumerate(text):
        depth += (character in "[<(") - (character in "]>)")
        if character == separator and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]]
