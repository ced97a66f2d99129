"""Type hints as JSON Schema, with the conversion of JSON to their values.

Dataclasses, TypedDicts, NamedTuples and Structs ("records") are objects with the names of their fields. A value of a
union is converted to the first member that accepts it, so `date | str` prefers the date.
"""

import enum
import types
import typing
from collections import Counter, abc
from collections.abc import Callable, Iterable
from os import PathLike
from typing import Any

import msgspec
from msgspec.structs import replace

from midspan._schema.conversion import (
    JSON_SCALARS,
    ConversionError,
    TypeSchema,
    annotation_keywords,
    call_user_code,
    convert_parts,
    needs_pydantic,
    read_metadata,
    scalar_type,
)
from midspan._schema.docstrings import parse_docstring
from midspan._schema.jsonable import to_jsonable
from midspan._schema.problems import quoted
from midspan._schema.records import (
    NO_DEFAULT,
    Direction,
    Field,
    fields_of,
    is_pydantic,
    is_typed_dict,
    own_docstring,
    pydantic_type,
    special_forms,
)
from midspan._schema.tree import PYTHON_TYPES, Schema, change_subschemas
from midspan.errors import SchemaError

_CONTAINERS: dict[Any, Any] = {
    **dict.fromkeys((list, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable), list),
    **dict.fromkeys((set, abc.Set, abc.MutableSet), set),
    frozenset: frozenset,
}
_MAPPINGS = (dict, abc.Mapping, abc.MutableMapping)
_ITERATORS = (abc.Iterator, abc.Generator, abc.AsyncIterable, abc.AsyncIterator, abc.AsyncGenerator)
"""Types that a function may return, but that no argument can have."""
_DEFS = "#/$defs/"
_QUALIFIERS = ("Final", "Required", "NotRequired", "ReadOnly")


class SchemaBuilder:
    """Builds the TypeSchemas of the hints in one schema, which share its `$defs`."""

    def __init__(self, direction: Direction, *, advice: str = "") -> None:
        """`advice` ends the message of the error for a hint that is not JSON serializable."""
        self.direction = direction
        self._advice = advice
        self._definitions: dict[str, Schema] = {}
        """Named types. Every use is a `$ref` until `resolve` inlines most of them."""
        self._known: list[tuple[Any, TypeSchema]] = []

    def build(self, hint: Any) -> TypeSchema:
        """Return the type of a hint; a SchemaError if JSON Schema cannot express it."""
        for build in (scalar_type, self._special, self._generic, self._class):
            if (built := build(hint)) is not None:
                return built
        supported = f"plain types, lists, a dataclass or a TypedDict{self._advice}"
        raise SchemaError(f"{hint_name(hint)} is not JSON serializable; use {supported}")

    def build_at(self, subject: str, hint: Any) -> TypeSchema:
        """Like `build`. Error messages start with `subject`."""
        try:
            return self.build(hint)
        except SchemaError as error:
            raise SchemaError(f"{subject}: {error}") from error

    def build_object(
        self, fields: Iterable[Field], *, name: str, label: str = "field", extra: TypeSchema | None = None
    ) -> TypeSchema:
        """Return the type of an object with these fields, and others of the type `extra`; its values are dicts."""
        built: dict[str, TypeSchema] = {}
        required = []
        for field in fields:
            field_type = self.build_at(f"{label} {field.key!r} of {name}", field.hint)
            if self.direction == "in" and field.default is not NO_DEFAULT:
                field_type = _with_default(field_type, field.default)
            built[field.key] = field_type.describe(field.description)
            if field.required:
                required.append(field.key)
        schema: Schema = {"type": "object", "properties": {key: field_type.schema for key, field_type in built.items()}}
        if required:
            schema["required"] = required
        if extra is not None or self.direction == "in":
            schema["additionalProperties"] = False if extra is None else extra.schema or True

        def convert(value: Any) -> dict[str, Any]:
            is_object = isinstance(value, dict) and all(key in value for key in required)
            if not is_object or (extra is None and not value.keys() <= built.keys()):
                raise ConversionError.expected(f"object with {', '.join(built) or 'no properties'}", value)
            return convert_parts((key, item, built.get(key, extra)) for key, item in value.items())

        return TypeSchema(schema, convert, extra is None and all(part.needs_no_conversion for part in built.values()))

    def resolve(self, schema: Schema) -> Schema:
        """Return the schema with `$defs` for what is used more than once or recursive, and everything else inlined."""
        uses: Counter[str | None] = Counter()

        def count(node: Schema) -> Schema:
            uses[_referenced_name(node)] += 1
            return change_subschemas(node, count)

        for node in (schema, *self._definitions.values()):
            count(node)
        # A recursive type is used at least twice: in itself and elsewhere.
        shared = [name for name in self._definitions if uses[name] > 1]

        def inline(node: Schema) -> Schema:
            name = _referenced_name(node)
            if name is None or name in shared:
                return change_subschemas(node, inline)
            siblings = {key: value for key, value in node.items() if key != "$ref"}
            return {**inline(self._definitions[name]), **siblings}

        result = inline(schema)
        if shared:
            result["$defs"] = {name: inline(self._definitions[name]) for name in shared}
        return result

    def _special(self, hint: Any) -> TypeSchema | None:
        """Return the type of hints that are neither classes nor have arguments."""
        if hint is Any or hint is object:
            return _ANYTHING
        if isinstance(hint, typing.TypeVar):
            return self._union(hint.__constraints__ or (hint.__bound__ or Any,))
        if isinstance(hint, typing.NewType):
            return self.build(hint.__supertype__)
        return None

    def _generic(self, hint: Any) -> TypeSchema | None:
        origin, arguments = typing.get_origin(hint) or hint, typing.get_args(hint)
        if hasattr(hint, "__metadata__"):
            return self._annotated(hint)
        if not isinstance(origin, abc.Hashable):
            return None  # `[int]` and the like are not hints
        if origin in (typing.Union, types.UnionType):
            return self._union(arguments)
        if origin in special_forms("Literal"):
            return _choice(arguments)
        if any(origin in special_forms(name) for name in _QUALIFIERS):
            return self.build(arguments[0] if arguments else Any)
        if origin is tuple:
            return self._tuple(hint, arguments)
        if origin in _MAPPINGS:
            return self._dict(*(arguments or (str, Any)))
        if origin in _CONTAINERS or (origin in _ITERATORS and self.direction == "out"):
            return _array(self.build(arguments[0]) if arguments else _ANYTHING, _CONTAINERS.get(origin, list))
        if isinstance(origin, special_forms("TypeAliasType")):
            value = origin.__value__[arguments] if arguments else origin.__value__
            return self._named(hint, origin.__name__, lambda: self.build(value))
        return None

    def _annotated(self, hint: Any) -> TypeSchema:
        metadata = read_metadata(hint)
        if any(map(needs_pydantic, metadata)):
            texts = [item for item in metadata if isinstance(item, str)]
            return self._pydantic(hint).describe(texts[-1] if texts else "")
        inner = self.build(hint.__origin__)
        keywords, is_complete = annotation_keywords(metadata, inner.schema)
        built = replace(inner, schema={**inner.schema, **keywords})
        if is_complete:
            return built
        _, validate = pydantic_type(hint, self.direction)  # a limit of a date or a Decimal
        return TypeSchema(built.schema, lambda value: validate(inner.convert(value)))

    def _union(self, members: tuple[Any, ...]) -> TypeSchema:
        # In a Struct, UnsetType says that the field may be absent, which `required` says already.
        built = [self.build(member) for member in members if member is not msgspec.UnsetType]
        if len(built) == 1:
            return built[0]
        schema: Schema = {"anyOf": [member.schema for member in built]}
        needs_no_conversion = all(member.needs_no_conversion for member in built)
        return TypeSchema(schema, lambda value: _first_accepting(value, built), needs_no_conversion)

    def _tuple(self, hint: Any, arguments: tuple[Any, ...]) -> TypeSchema:
        if hint in (tuple, typing.Tuple):  # noqa: UP006 - the old spelling is a hint of its own
            return _array(_ANYTHING, tuple)
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return _array(self.build(arguments[0]), tuple)
        built = [self.build(argument) for argument in arguments]
        size = len(built)
        schema: Schema = {"type": "array", "items": False, "minItems": size, "maxItems": size}
        if built:
            schema["prefixItems"] = [item.schema for item in built]

        def convert(value: Any) -> Any:
            if not isinstance(value, list) or len(value) != size:
                raise ConversionError.expected(f"array of {size} items", value)
            return tuple(convert_parts((index, item, built[index]) for index, item in enumerate(value)).values())

        return TypeSchema(schema, convert)

    def _dict(self, key: Any, value: Any) -> TypeSchema:
        keys, values = self.build(key), self.build(value)
        names = self._definitions.get(_referenced_name(keys.schema) or "", keys.schema)
        if names.get("type", "string") not in ("string", "integer"):
            raise SchemaError("the keys of a JSON object are text; use str, int, a date or an Enum of these")
        schema: Schema = {"type": "object", "additionalProperties": values.schema or True}
        if names.get("type") == "integer":
            names = {"enum": list(map(str, names["enum"]))} if "enum" in names else {"pattern": r"^-?[0-9]+$"}
            convert_key = keys.convert
            keys = replace(keys, convert=lambda name: convert_key(call_user_code(int, name)))
        if names.keys() - {"type"}:
            schema["propertyNames"] = names

        def convert(value: Any) -> Any:
            if not isinstance(value, dict):
                raise ConversionError.expected("object", value)
            names = convert_parts((name, name, keys) for name in value)
            items = convert_parts((name, item, values) for name, item in value.items())
            converted = {names[name]: item for name, item in items.items()}
            if len(converted) < len(items):
                raise ConversionError.of("two of its names, such as 1 and 01, mean the same key")
            return converted

        return TypeSchema(schema, convert)

    def _class(self, hint: Any) -> TypeSchema | None:
        cls: Any = typing.get_origin(hint) or hint
        if not isinstance(cls, type):
            return None
        if is_pydantic(cls):
            return self._pydantic(hint)
        if issubclass(cls, enum.Enum):
            return self._named(cls, cls.__name__, lambda: _enum(cls))
        if issubclass(cls, PathLike) and hasattr(cls, "as_posix"):
            text = self.build(str)
            return TypeSchema(text.schema, lambda value: call_user_code(cls, text.convert(value)))
        if (fields := fields_of(hint, self.direction)) is not None:
            return self._named(hint, cls.__name__, lambda: self._record(cls, fields))
        return None

    def _record(self, cls: type, fields: list[Field]) -> TypeSchema:
        built = self.build_object(fields, name=cls.__name__)
        keywords = {field.key: field.keyword for field in fields if field.keyword}
        make = dict if is_typed_dict(cls) else cls

        def convert(value: Any) -> Any:
            present = built.convert(value)
            arguments = {keywords[key]: item for key, item in present.items() if key in keywords}
            return call_user_code(make, **arguments)

        return TypeSchema(built.schema, convert).describe(parse_docstring(own_docstring(cls)).description)

    def _pydantic(self, hint: Any) -> TypeSchema:
        if (known := self._find(hint)) is not None:
            return known
        suffix = f"_{len(self._definitions)}" if self._definitions else ""  # other types may have the same names
        schema, convert = pydantic_type(hint, self.direction, suffix)
        definitions = schema.pop("$defs", {})
        self._definitions |= {name + suffix: definition for name, definition in definitions.items()}
        built = TypeSchema(schema, convert)
        if "$ref" not in schema and not hasattr(hint, "__metadata__"):
            return self._named(hint, hint_name(hint), lambda: built)
        self._known.append((hint, built))
        return built

    def _named(self, hint: Any, name: str, build: Callable[[], TypeSchema]) -> TypeSchema:
        """Return a reference to the definition that `build` returns, which may refer to itself."""
        known = self._find(hint)
        if known is None:
            unique, number = name, 2
            while unique in self._definitions:
                unique, number = f"{name}{number}", number + 1
            self._definitions[unique] = {}  # the definition follows, because it may refer to itself
            known = TypeSchema({"$ref": _DEFS + unique}, lambda value: built.convert(value))  # noqa: PLW0108 - not built yet
            self._known.append((hint, known))
            built = build()
            self._definitions[unique] = built.schema
        return known

    def _find(self, hint: Any) -> TypeSchema | None:
        return next((built for known, built in self._known if known == hint), None)  # some hints are not hashable


def hint_name(hint: Any) -> str:
    """Return a hint nearly as its author wrote it."""
    if isinstance(hint, type) and typing.get_origin(hint) is None:
        return hint.__name__
    return str(hint).removeprefix("typing.").removeprefix("collections.abc.")


def _referenced_name(schema: Schema) -> str | None:
    """Return the name of the definition that a schema refers to; None for a reference out of the document."""
    reference = schema.get("$ref", "")
    return reference.removeprefix(_DEFS) if reference.startswith(_DEFS) else None


def _with_default(built: TypeSchema, default: Any) -> TypeSchema:
    """Return the type with this default, if it can be written in JSON so that the same value comes back."""
    try:
        data = to_jsonable(default)
        converted = built.convert(data)
        if converted != default:
            return built
    except Exception:  # noqa: BLE001 - any object may be a default, and converting or comparing it is foreign code
        return built
    # `x: float = 1` gives 1.0, so that filling it in leaves nothing to convert.
    return replace(built, schema={**built.schema, "default": converted if type(converted) is float else data})


def _array(item: TypeSchema, container: Any) -> TypeSchema:
    schema: Schema = {"type": "array", "items": item.schema}
    if container in (set, frozenset):
        schema["uniqueItems"] = True

    def convert(value: Any) -> Any:
        if not isinstance(value, list):
            raise ConversionError.expected("array", value)
        return call_user_code(
            container, convert_parts((index, part, item) for index, part in enumerate(value)).values()
        )

    return TypeSchema(schema, convert)


def _enum(cls: type[enum.Enum]) -> TypeSchema:
    """Return an Enum by its values. Values that are not text are explained by their names."""
    description = parse_docstring(own_docstring(cls)).description
    if not all(isinstance(member.value, str) for member in cls):
        names = ", ".join(f"{member.value!r} = {member.name}" for member in cls)
        description = f"{description}\n\n{names}".strip()
    return _choice(tuple(cls)).describe(description)


def _choice(members: tuple[Any, ...]) -> TypeSchema:
    """Return the type of these values. Members of enums are written by their values."""
    pairs = [(member.value if isinstance(member, enum.Enum) else member, member) for member in members]
    values = [value for value, _ in pairs]
    if not values:
        raise SchemaError("there is no value to choose from")
    if any(type(value) not in JSON_SCALARS for value in values):
        raise SchemaError(f"not all of {values!r} are JSON serializable; use text or numbers")
    # True == 1 in Python, not in JSON.
    by_value = {(isinstance(value, bool), value): member for value, member in pairs}
    types_ = {PYTHON_TYPES[type(value)] for value in values}
    schema: Schema = {"type": types_.pop(), "enum": values} if len(types_) == 1 else {"enum": values}

    def convert(value: Any) -> Any:
        try:
            return by_value[isinstance(value, bool), value]
        except (KeyError, TypeError):
            raise ConversionError.expected(f"one of {', '.join(map(quoted, values))}", value) from None

    return TypeSchema(schema, convert, not any(isinstance(member, enum.Enum | float) for member in members))


def _first_accepting(value: Any, members: list[TypeSchema]) -> Any:
    """Convert a value to the first member of a union that accepts it; a number to the member of its own type."""
    if not isinstance(value, str | list | dict):
        members = sorted(members, key=lambda member: member.schema.get("type") != PYTHON_TYPES.get(type(value)))
    errors = []
    for member in members:
        try:
            return member.convert(value)
        except ConversionError as error:
            if member.schema.get("type") != "null":
                errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    reasons = "; ".join(str(error.problems[0]) for error in errors)
    raise ConversionError.of(f"it fits none of the alternatives: {reasons}")


_ANYTHING = TypeSchema({}, msgspec.to_builtins)
"""Values are copied: the function may change what it gets, and the conversation must not change with it."""
