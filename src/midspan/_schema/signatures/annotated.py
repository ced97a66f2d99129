"""What `Annotated` adds to a type: a description, examples, limits and validators.

A plain string, `msgspec.Meta`, pydantic's `Field` and `annotated_types` are understood by the names of their
attributes. What only pydantic understands, pydantic runs.
"""

import operator
import re
import sys
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from midspan._schema.signatures.conversion import ConversionError, Schema, TypeSchema, call_foreign

_LIMITS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "ge": (operator.ge, "must be at least {}"),
    "gt": (operator.gt, "must be greater than {}"),
    "le": (operator.le, "must be at most {}"),
    "lt": (operator.lt, "must be less than {}"),
    "multiple_of": (lambda value, step: value % step == 0, "must be a multiple of {}"),
    "min_length": (lambda value, size: len(value) >= size, "must have a length of at least {}"),
    "max_length": (lambda value, size: len(value) <= size, "must have a length of at most {}"),
    "pattern": (lambda value, pattern: re.search(pattern, value) is not None, "must match the pattern {}"),
}
"""By the names of `msgspec.Meta`: how a limit is checked, and what to say if a value exceeds it."""
_BASE_TYPES: dict[str, Any] = {"string": str, "integer": int, "number": float, "array": list, "object": dict}


class Annotations(Struct, frozen=True):
    """The metadata of one `Annotated`."""

    keywords: Schema = {}
    """Keywords that constrain nothing: description, examples."""
    limits: dict[str, Any] = {}
    predicates: tuple[Callable[[Any], Any], ...] = ()
    needs_pydantic: bool = False
    """Whether there is something that only pydantic understands, such as its validators."""

    def apply(self, inner: TypeSchema) -> TypeSchema:
        """Return the type with all that JSON Schema can express of these annotations, and the rest as checks."""
        schema = dict(inner.schema)
        for name, value in self.limits.items():
            schema |= _limit_keywords(name, value, _json_types(inner.schema))
        schema |= self.keywords
        if not self.limits and not self.predicates:
            return replace(inner, schema=schema)
        return TypeSchema(schema, lambda value: self._check(inner.convert(value)))

    def _check(self, value: Any) -> Any:
        for name, limit in self.limits.items():
            is_within, message = _LIMITS[name]
            if value is not None and not call_foreign(is_within, value, limit):
                raise ConversionError.of(f"{message.format(limit)}, got {value!s:.80}")
        for predicate in self.predicates:
            if not call_foreign(predicate, value):
                name = getattr(predicate, "__name__", type(predicate).__name__)
                reason = "is not allowed" if name == "<lambda>" else f"does not satisfy {name}"
                raise ConversionError.of(f"{value!s:.80} {reason}")
        return value


def read_annotations(metadata: Iterable[Any]) -> Annotations:
    """Return what all these objects say. The last one wins, which is the outermost."""
    keywords: Schema = {}
    limits: dict[str, Any] = {}
    predicates: list[Callable[[Any], Any]] = []
    items = [part for item in metadata for part in (item, *_parts(item))]
    for item in items:
        keywords |= _keywords(item)
        limits |= _limits(item)
        predicates += _predicates(item)
    return Annotations(keywords, limits, tuple(predicates), any(map(_is_for_pydantic, items)))


def _parts(item: Any) -> Iterable[Any]:
    # pydantic keeps the limits of a Field in a list of objects with one limit each.
    parts = getattr(item, "metadata", ())
    return parts if isinstance(parts, list | tuple) else ()


def _keywords(item: Any) -> Schema:
    if isinstance(item, str):
        return {"description": item}
    keywords: Schema = {}
    if isinstance(description := getattr(item, "description", None), str):
        keywords["description"] = description
    if isinstance(examples := getattr(item, "examples", None), list):
        keywords["examples"] = examples
    if isinstance(extra := getattr(item, "extra_json_schema", None), dict):
        keywords |= extra
    return keywords


def _limits(item: Any) -> dict[str, Any]:
    if isinstance(item, type):
        return {}
    limits = {name: getattr(item, name, None) for name in _LIMITS}
    if isinstance(limits["pattern"], re.Pattern):
        limits["pattern"] = limits["pattern"].pattern
    return {name: value for name, value in limits.items() if value is not None and not callable(value)}


def _predicates(item: Any) -> list[Callable[[Any], Any]]:
    annotated_types = sys.modules.get("annotated_types")
    if annotated_types is None:
        return []
    if isinstance(item, annotated_types.Predicate):
        return [item.func]
    if isinstance(item, annotated_types.Timezone):
        return [_has_timezone(item.tz)]
    return []


def _has_timezone(wanted: Any) -> Callable[[Any], bool]:
    def timezone(value: Any) -> bool:
        if wanted is None or wanted is Ellipsis:
            return (value.tzinfo is None) == (wanted is None)
        return str(value.tzinfo) == str(wanted)

    return timezone


def _is_for_pydantic(item: Any) -> bool:
    if hasattr(item, "__get_pydantic_core_schema__"):
        return True
    if not type(item).__module__.startswith("pydantic") or hasattr(item, "metadata"):
        return False
    settings = getattr(item, "__dict__", {"": True})
    return any(value is not None and name not in _LIMITS for name, value in settings.items())


def _json_types(schema: Schema) -> set[str]:
    """Return the JSON types that a limit can apply to."""
    if "contentEncoding" in schema or "format" in schema:
        return set()  # JSON has the text, the limit applies to what the text means
    types = {schema["type"]} if isinstance(schema.get("type"), str) else set()
    return types.union(*(_json_types(option) for option in schema.get("anyOf", ())))


def _limit_keywords(name: str, value: Any, types: set[str]) -> Schema:
    """Return a limit in JSON Schema as msgspec writes it; nothing if it does not apply to these types."""
    keywords: Schema = {}
    for base in (_BASE_TYPES[known] for known in _BASE_TYPES if known in types):
        try:
            keywords |= msgspec.json.schema(Annotated[base, msgspec.Meta(**{name: value})])
        except (TypeError, ValueError):  # a limit of another type, such as a date
            continue
    keywords.pop("type", None)
    keywords.pop("items", None)
    return keywords
