"""Convert JSON values to Python values, also of settings, and read the metadata of `Annotated`.

In `Annotated`, a plain string is a description; limits come from `msgspec.Meta`, pydantic's `Field` and
`annotated_types`. Pydantic checks what JSON Schema cannot express.
"""

import datetime
import decimal
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from midspan._schema.problems import MAX_PROBLEMS, Problem, nearest, quoted
from midspan._schema.tree import Schema
from midspan.errors import ArgumentError, ConfigError, SchemaError

T = TypeVar("T", bound=Struct)
Convert = Callable[[Any], Any]

_MAX_EXPONENT = 6_144
"""The limit of the decimal128 format. A larger number would fill the memory if it were written in digits."""
_CONSTRAINTS = ("ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "pattern")
_PYDANTIC = ("pydantic", "annotated_types")
_NUMBER_CONSTRAINTS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}
_LIMIT_KEYWORDS = {
    "string": {"min_length": "minLength", "max_length": "maxLength", "pattern": "pattern"},
    "integer": _NUMBER_CONSTRAINTS,
    "number": _NUMBER_CONSTRAINTS,
    "array": {"min_length": "minItems", "max_length": "maxItems"},
    "object": {"min_length": "minProperties", "max_length": "maxProperties"},
}
JSON_SCALARS = frozenset((str, int, float, bool, type(None)))


class ConversionError(Exception):
    """A value cannot be converted, for these reasons."""

    def __init__(self, *problems: Problem) -> None:
        self.problems = problems

    @classmethod
    def of(cls, message: str) -> "ConversionError":
        return cls(Problem((), " ".join(message.split())))

    @classmethod
    def expected(cls, expected: str, value: Any) -> "ConversionError":
        return cls.of(f"expected {expected}, got {quoted(value)}")


class TypeSchema(Struct, frozen=True):
    """A type hint as JSON Schema, and the function that converts JSON to its values."""

    schema: Schema
    convert: Convert
    needs_no_conversion: bool = False
    """Whether valid JSON is passed on as it is. Not floats: JSON may write them as integers."""

    def describe(self, description: str) -> "TypeSchema":
        """Return it with this description, unless it has one."""
        if not description or "description" in self.schema:
            return self
        return replace(self, schema={**self.schema, "description": description})


def settings_of(struct: type[T], values: Mapping[str, Any], source: str, others: Collection[str] = ()) -> T:
    """Return `values` as a Struct. Raises ConfigError, which starts with `source`, if one is unknown or not valid.

    `others` are the names of settings of `source` that are read elsewhere.
    """
    known = [*others, *struct.__struct_fields__]
    for name in values:
        if name not in known:
            close = nearest(name, known)
            hint = f"did you mean {close}? " if close else ""
            raise ConfigError(f"{source}: unknown setting {name!r}; {hint}known settings: {', '.join(known)}")
    try:
        return msgspec.convert(dict(values), struct)
    except msgspec.ValidationError as error:
        from midspan._schema.arguments import SchemaValidator  # loaded with the first error

        problems = SchemaValidator(msgspec.json.schema(struct)).problems(dict(values))
        raise ConfigError(f"{source}: {'; '.join(map(str, problems)) or error}") from error


def convert_arguments(value: Any, convert: Convert) -> Any:
    """Convert a value that is valid by its schema. Raises ArgumentError for what only the type rejects."""
    try:
        return convert(value)
    except ConversionError as error:
        raise argument_error(error.problems) from error
    except RecursionError as error:
        raise ArgumentError("", "nested too deeply") from error


def argument_error(problems: Sequence[Problem]) -> ArgumentError:
    """Return the error for the model: one problem, or one line for each."""
    if len(problems) == 1:
        return ArgumentError(problems[0].path, problems[0].message)
    return ArgumentError("", "\n".join(map(str, problems[:MAX_PROBLEMS])))


def convert_parts(parts: Iterable[tuple[Any, Any, Any]]) -> dict[Any, Any]:
    """Convert the parts of a value, given with their steps and types, and return them by step. Raises all problems."""
    converted = {}
    problems: list[Problem] = []
    for step, item, item_type in parts:
        try:
            converted[step] = item_type.convert(item)
        except ConversionError as error:
            problems += [Problem((step, *problem.steps), problem.message) for problem in error.problems]
    if problems:
        raise ConversionError(*problems)
    return converted


def call_user_code(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a constructor or validator of the user. What it raises is a problem of the value."""
    try:
        return function(*args, **kwargs)
    except (ConversionError, RecursionError):
        raise
    except (ValueError, TypeError, AssertionError) as error:
        raise ConversionError.of(str(error) or type(error).__name__) from error
    except Exception as error:  # foreign code
        raise ConversionError.of(f"{type(error).__name__}: {error}") from error


def scalar_type(hint: Any) -> TypeSchema | None:
    """Return the TypeSchema of a scalar type that msgspec can convert; None for other hints."""
    hint = type(None) if hint is None else hint
    if not isinstance(hint, type) or hint not in _SCALARS:
        return None
    schema, expected = _SCALARS[hint]

    def convert(value: Any) -> Any:
        if type(value) is hint:
            return value
        try:
            converted: Any = msgspec.convert(value, hint)
        except msgspec.ValidationError:
            raise ConversionError.expected(expected, value) from None
        if hint is decimal.Decimal and not (converted.is_finite() and abs(converted.adjusted()) <= _MAX_EXPONENT):
            raise ConversionError.expected("a finite number with a reasonable exponent", value)
        return converted

    return TypeSchema(dict(schema), convert, hint in JSON_SCALARS - {float})


_BASE64 = {"type": "string", "contentEncoding": "base64"}
_SCALARS: dict[Any, tuple[Schema, str]] = {
    str: ({"type": "string"}, "string"),
    int: ({"type": "integer"}, "integer"),
    float: ({"type": "number"}, "number"),
    bool: ({"type": "boolean"}, "boolean"),
    type(None): ({"type": "null"}, "null"),
    bytes: (_BASE64, "base64 text"),
    bytearray: (_BASE64, "base64 text"),
    datetime.datetime: (
        {"type": "string", "format": "date-time"},
        "a date and time that exists, as YYYY-MM-DDTHH:MM:SS with Z or an offset if the time zone matters",
    ),
    datetime.date: ({"type": "string", "format": "date"}, "a date that exists, as YYYY-MM-DD"),
    datetime.time: ({"type": "string", "format": "time"}, "a time of day, as HH:MM:SS"),
    datetime.timedelta: ({"type": "string", "format": "duration"}, "a duration as in ISO 8601, such as P1DT2H30M"),
    uuid.UUID: ({"type": "string", "format": "uuid"}, "a UUID of 32 hexadecimal digits, as 8-4-4-4-12"),
    decimal.Decimal: ({"type": "string", "format": "decimal"}, "a decimal number in digits, such as 12.50"),
}
"""The schema of each scalar type, and what an error message says that was expected."""


def read_metadata(hint: Any) -> list[Any]:
    """Return the metadata of an `Annotated`. A `Field` of pydantic has a list of objects with one limit each."""
    parts = [(item, getattr(item, "metadata", ())) for item in hint.__metadata__]
    return [part for item, inner in parts for part in (item, *(inner if isinstance(inner, list | tuple) else ()))]


def needs_pydantic(item: Any) -> bool:
    """Return whether an item is or does more than a limit, such as the validators of pydantic."""
    if hasattr(item, "__get_pydantic_core_schema__"):
        return True
    if hasattr(item, "metadata") or not any(_package(cls) in _PYDANTIC for cls in type(item).__mro__):
        return False
    # Not of subclasses: pydantic ignores those of `annotated_types.Ge` and the other limits.
    settings = getattr(item, "__dict__", {}) if _package(type(item)) in _PYDANTIC else {}
    return not _limits(item) or any(value is not None and name not in _CONSTRAINTS for name, value in settings.items())


def annotation_keywords(metadata: list[Any], schema: Schema) -> tuple[Schema, bool]:
    """Return the keywords that the metadata adds to the schema of a type, and whether they express all limits.

    Values are validated against the keywords before they are converted. The last item wins, which is the outermost.
    """
    keywords: Schema = {}
    is_complete = True
    types = _json_types(schema)
    for item in metadata:
        texts = {"description": item if isinstance(item, str) else getattr(item, "description", None)}
        texts["examples"] = getattr(item, "examples", None)
        keywords |= {name: text for name, text in texts.items() if isinstance(text, str | list)}
        keywords |= getattr(item, "extra_json_schema", None) or {}
        for name, limit in _limits(item).items():
            applicable = [known[name] for base, known in _LIMIT_KEYWORDS.items() if base in types and name in known]
            if applicable and isinstance(limit, int | float | str):
                keywords |= dict.fromkeys(applicable, limit)
            elif _package(type(item)) in _PYDANTIC:
                is_complete = False
            else:
                raise SchemaError(f"{item!r} cannot limit values of this type")
    return keywords, is_complete


def _package(cls: type) -> str:
    return cls.__module__.partition(".")[0]


def _limits(item: Any) -> dict[str, Any]:
    """Return the limits that an object of any package has as attributes."""
    limits = {} if isinstance(item, type) else {name: getattr(item, name, None) for name in _CONSTRAINTS}
    # A pattern may be a `re.Pattern`.
    plain = {name: getattr(limit, "pattern", limit) for name, limit in limits.items()}
    return {name: limit for name, limit in plain.items() if limit is not None and not callable(limit)}


def _json_types(schema: Schema) -> set[str]:
    """Return the JSON types that a limit can apply to."""
    if "contentEncoding" in schema or "format" in schema:
        return set()  # the limit applies to the decoded value, not to its text
    types = {schema["type"]} if isinstance(schema.get("type"), str) else set()
    return types.union(*(_json_types(option) for option in schema.get("anyOf", ())))
