"""What `Annotated` adds to a type: a description, examples and limits, in anybody's spelling.

A plain string, `msgspec.Meta`, pydantic's `Field`, `annotated_types`: whatever has attributes of these names.
"""

import operator
import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import msgspec
from msgspec import Struct

from midspan._schema.signatures.conversion import converted, is_accepted, placeholder
from midspan._schema.signatures.definitions import Schema


class Notes(Struct, frozen=True):
    """The metadata of one `Annotated`."""

    words: Schema = {}
    """Keywords that say something and enforce nothing: description, examples."""
    limits: dict[str, Any] = {}
    """By the names of `msgspec.Meta`: ge, gt, le, lt, multiple_of, min_length, max_length, pattern."""

    def schema(self, schema: Schema) -> Schema:
        """The schema with all that JSON Schema can say of these notes."""
        noted = dict(schema)
        for limit, value in self.limits.items():
            noted |= dict.fromkeys(_keywords(limit, value, _kinds(schema)), value)
        return {**noted, **self.words}

    def hint(self, hint: Any) -> Any:
        """The hint with all limits; where msgspec does not know a limit for this type, we check it."""
        if not self.limits:
            return hint
        if (meta := _meta(self.limits)) is not None:
            limited: Any = Annotated[hint, meta]
            if is_accepted(limited):
                return limited
        return placeholder("Limited", lambda value: self._checked(converted(value, hint)), hint)

    def _checked(self, value: Any) -> Any:
        for limit, bound in self.limits.items():
            if value is not None and not _CHECKS[limit](value, bound):
                raise ValueError(f"{value!s} is not allowed: {_LIMIT_WORDS[limit]} {bound!s}")
        return value


def _meta(limits: dict[str, Any]) -> msgspec.Meta | None:
    try:
        return msgspec.Meta(**limits)
    except (TypeError, ValueError):  # it takes numbers, but no dates
        return None


def notes(metadata: Iterable[Any]) -> Notes:
    """What all these objects say; the last one wins, which is the outermost."""
    words: Schema = {}
    limits: dict[str, Any] = {}
    for item in metadata:
        for source in (item, *_inner(item)):
            words |= _words(source)
            limits |= _limits(source)
    return Notes(words, limits)


def _inner(item: Any) -> Iterable[Any]:
    # pydantic keeps the limits of a Field in a list of objects with one limit each.
    inner = getattr(item, "metadata", ())
    return inner if isinstance(inner, list | tuple) else ()


def _words(item: Any) -> Schema:
    if isinstance(item, str):
        return {"description": item}
    words: Schema = {}
    if isinstance(description := getattr(item, "description", None), str):
        words["description"] = description
    if isinstance(examples := getattr(item, "examples", None), list):
        words["examples"] = examples
    if isinstance(extra := getattr(item, "extra_json_schema", None), dict):
        words |= extra
    return words


def _limits(item: Any) -> dict[str, Any]:
    if isinstance(item, type):
        return {}
    found = {name: getattr(item, name, None) for name in _CHECKS}
    if isinstance(found["pattern"], re.Pattern):
        found["pattern"] = found["pattern"].pattern
    return {name: value for name, value in found.items() if value is not None and not callable(value)}


def _kinds(schema: Schema) -> set[str]:
    """The JSON types that a limit can be about."""
    if "contentEncoding" in schema or "format" in schema:
        return set()  # the schema sees the text, the limit is about what the text means
    kinds = {schema["type"]} if isinstance(schema.get("type"), str) else set()
    return kinds.union(*(_kinds(option) for option in schema.get("anyOf", ())))


def _keywords(limit: str, value: Any, kinds: set[str]) -> list[str]:
    if limit in _NUMBER_KEYWORDS:
        is_said = kinds & {"integer", "number"} and isinstance(value, int | float)
        return [_NUMBER_KEYWORDS[limit]] if is_said else []
    return [keyword for kind, keyword in _SIZE_KEYWORDS[limit].items() if kind in kinds]


def _is_multiple(value: Any, bound: Any) -> bool:
    return bool(value % bound == 0)


_CHECKS: dict[str, Callable[[Any, Any], bool]] = {
    "ge": operator.ge,
    "gt": operator.gt,
    "le": operator.le,
    "lt": operator.lt,
    "multiple_of": _is_multiple,
    "min_length": lambda value, bound: len(value) >= bound,
    "max_length": lambda value, bound: len(value) <= bound,
    "pattern": lambda value, bound: re.search(bound, value) is not None,
}
_LIMIT_WORDS = {
    "ge": "at least",
    "gt": "more than",
    "le": "at most",
    "lt": "less than",
    "multiple_of": "a multiple of",
    "min_length": "its length is at least",
    "max_length": "its length is at most",
    "pattern": "it matches",
}
_NUMBER_KEYWORDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}
_SIZE_KEYWORDS = {
    "min_length": {"string": "minLength", "array": "minItems", "object": "minProperties"},
    "max_length": {"string": "maxLength", "array": "maxItems", "object": "maxProperties"},
    "pattern": {"string": "pattern"},
}
