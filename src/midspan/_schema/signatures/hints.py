"""A type hint → its JSON Schema, and the hint by which msgspec makes its values.

Types that msgspec does not make by itself, or makes in another shape than the model is told, become placeholders.
Unions are tried from left to right where msgspec cannot tell the members apart, so `date | str` prefers the date.
"""

import datetime
import decimal
import enum
import io
import types
import typing
import uuid
from collections import abc
from dataclasses import InitVar
from os import PathLike
from typing import Any

import msgspec
from msgspec import Struct

from midspan._schema.jsonable import to_jsonable
from midspan._schema.signatures.choices import enum_hint, enum_schema, literal_hint, literal_schema
from midspan._schema.signatures.constraints import notes
from midspan._schema.signatures.conversion import converted, is_accepted, is_placeholder, placeholder
from midspan._schema.signatures.definitions import Definitions, Schema, reference, referred
from midspan._schema.signatures.hashing import is_hashable
from midspan._schema.signatures.models import is_pydantic, pydantic_hint, pydantic_schema
from midspan._schema.signatures.records import NO_DEFAULT, Direction, Field, Record, record_of
from midspan.errors import SchemaError


class Form(Struct, frozen=True):
    """What one hint looks like as JSON, and what msgspec makes of that JSON."""

    schema: Schema
    hint: Any

    def described(self, description: str) -> "Form":
        """With this description, unless it has one of its own."""
        if not description or "description" in self.schema:
            return self
        return Form({**self.schema, "description": description}, self.hint)

    def defaulting(self, default: Any) -> "Form":
        """With this default, if JSON can say it in such a way that the very same value comes back."""
        if default is NO_DEFAULT:
            return self
        try:
            said = to_jsonable(default)
            made = converted(said, self.hint)
            is_same = bool(made == default)
        except Exception:  # noqa: BLE001 - any class may be a default, and its conversion or == is foreign code
            return self
        if not is_same:
            return self
        # `x: float = 1` gives 1.0, so that filling it in leaves nothing to convert.
        return Form({**self.schema, "default": made if type(made) is float else said}, self.hint)


class Forms:
    """The forms of the hints of one schema, which share its `$defs`."""

    def __init__(self, direction: Direction) -> None:
        self.direction = direction
        self.definitions = Definitions()
        self._known: dict[Any, Form] = {}

    def form(self, hint: Any) -> Form:
        """The form of this hint; a SchemaError if no schema can say it."""
        if isinstance(hint, type) and (scalar := _SCALARS.get(hint)) is not None:
            return Form(dict(scalar), hint)
        for make in (self._special, self._generic, self._class):
            if (form := make(hint)) is not None:
                return form
        raise refusal(hint)

    def object_form(self, fields: abc.Iterable[Field], *, name: str, what: str = "field") -> Form:
        """The form of an object with these fields; its values are instances of a Struct made for them.

        The Struct calls its fields f0, f1, … because a key need not be a Python name; absent ones are UNSET.
        """
        properties: Schema = {}
        members: list[tuple[str, Any, Any]] = []
        required = []
        for number, field in enumerate(fields):
            form = self._field(field, f"{what} {field.key!r} of {name}").described(field.description)
            properties[field.key] = form.schema
            missing = msgspec.NODEFAULT if field.required else msgspec.UNSET
            members.append((f"f{number}", form.hint, msgspec.field(default=missing, name=field.key)))
            if field.required:
                required.append(field.key)
        schema: Schema = {"type": "object", "properties": properties}
        if required:
            schema["required"] = required
        if self.direction == "in":
            schema["additionalProperties"] = False
        return Form(schema, msgspec.defstruct(name, members, kw_only=True, forbid_unknown_fields=True))

    def _field(self, field: Field, place: str) -> Form:
        try:
            form = self.form(field.hint)
        except SchemaError as error:
            raise SchemaError(f"{place}: {error}") from error
        return form.defaulting(field.default) if self.direction == "in" else form

    def _special(self, hint: Any) -> Form | None:
        """Hints that are neither classes nor have arguments."""
        if hint is None:
            return Form({"type": "null"}, type(None))
        if hint is Any or hint is object:
            return Form({}, Any)
        if isinstance(hint, typing.TypeVar):
            return self._type_variable(hint)
        if isinstance(hint, typing.NewType):
            return self.form(hint.__supertype__)
        if isinstance(hint, InitVar):
            return self.form(hint.type)
        if type(hint).__name__ == "TypeAliasType":
            return self._named(hint, hint.__name__, lambda: self.form(hint.__value__))
        return Form({"type": "string"}, str) if hint is typing.LiteralString else None

    def _type_variable(self, hint: typing.TypeVar) -> Form:
        if hint.__constraints__:
            return self._union(hint.__constraints__)
        return self.form(hint.__bound__ if hint.__bound__ is not None else Any)

    def _generic(self, hint: Any) -> Form | None:
        origin, arguments = typing.get_origin(hint) or hint, typing.get_args(hint)
        if hasattr(hint, "__metadata__"):
            noted, form = notes(hint.__metadata__), self.form(hint.__origin__)
            return Form(noted.schema(form.schema), noted.hint(form.hint))
        if isinstance(origin, list | dict | set):
            return None  # `[int]` and the like are no hints
        if origin in (typing.Union, types.UnionType):
            return self._union(arguments)
        if origin is typing.Literal:
            return Form(literal_schema(arguments), literal_hint(arguments))
        if getattr(origin, "_name", None) in _TRANSPARENT:
            return self.form(arguments[0] if arguments else Any)
        if origin is tuple:
            return self._tuple(hint, arguments)
        if (container := _CONTAINERS.get(origin)) is not None:
            return self._container(container, arguments)
        if type(origin).__name__ == "TypeAliasType":
            return self.form(origin.__value__[arguments])
        return None

    def _union(self, members: tuple[Any, ...]) -> Form:
        # In a Struct, UnsetType says that the field may be absent, which `required` says already.
        forms = [self.form(member) for member in members if member is not msgspec.UnsetType]
        if len(forms) == 1:
            return forms[0]
        schema: Schema = {"anyOf": [form.schema for form in forms]}
        hint: Any = typing.Union[tuple(form.hint for form in forms)]  # noqa: UP007 - made from a tuple
        if is_accepted(hint):
            return Form(schema, hint)
        return Form(schema, placeholder("Union", lambda value: _first_fitting(value, forms)))

    def _tuple(self, hint: Any, arguments: tuple[Any, ...]) -> Form:
        if hint in (tuple, typing.Tuple):  # noqa: UP006 - the old spelling is a hint of its own
            return Form({"type": "array", "items": {}}, tuple)
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return self._container(tuple, arguments)
        forms = [self.form(argument) for argument in arguments]
        size = len(forms)
        schema: Schema = {"type": "array", "items": False, "minItems": size, "maxItems": size}
        if forms:
            schema["prefixItems"] = [form.schema for form in forms]
        return Form(schema, types.GenericAlias(tuple, tuple(form.hint for form in forms)))

    def _container(self, container: Any, arguments: tuple[Any, ...]) -> Form:
        if container is dict:
            return self._dict(*(self.form(argument) for argument in arguments or (str, Any)))
        item = arguments[0] if arguments else Any
        form = self.form(item)
        if container in (set, frozenset):
            if arguments and not is_hashable(item):
                raise SchemaError(f"a set cannot hold {name_of(item)}, which has no hash; use a list")
            return self._set(container, item, form)
        inner = (form.hint, ...) if container is tuple else (form.hint,)
        return Form({"type": "array", "items": form.schema}, types.GenericAlias(container, inner))

    def _set(self, container: Any, item: Any, form: Form) -> Form:
        schema: Schema = {"type": "array", "items": form.schema, "uniqueItems": True}
        if item in _SCALARS:
            return Form(schema, types.GenericAlias(container, (form.hint,)))
        # Some of these may turn out to have no hash after all, and msgspec would not say where.
        items = types.GenericAlias(list, (form.hint,))
        return Form(schema, placeholder("Set", lambda value: container(converted(value, items)), items))

    def _dict(self, key: Form, value: Form) -> Form:
        said = self.definitions.target(key.schema)
        if is_placeholder(key.hint) or said.get("type", "string") not in ("string", "integer", "number"):
            raise SchemaError("the keys of a JSON object are text; use str, a number, a date or an Enum of text")
        schema: Schema = {"type": "object"}
        if names := _key_names(said):
            schema["propertyNames"] = names
        schema["additionalProperties"] = value.schema or True
        return Form(schema, types.GenericAlias(dict, (key.hint, value.hint)))

    def _class(self, hint: Any) -> Form | None:
        kind = typing.get_origin(hint) or hint
        if not isinstance(kind, type):
            return None
        if is_pydantic(kind):
            return self._pydantic(hint)
        if issubclass(kind, enum.Enum):
            return self._enum(kind)
        if issubclass(kind, PathLike) and issubclass(kind, _pure_path()):
            return Form({"type": "string"}, placeholder(kind.__name__, _path_maker(kind)))
        if (record := record_of(hint, self.direction)) is not None:
            return self._named(hint, kind.__name__, lambda: self._record(record, kind.__name__))
        return None

    def _record(self, record: Record, name: str) -> Form:
        shape = self.object_form(record.fields, name=name)

        def make(value: Any) -> Any:
            given = zip(record.fields, msgspec.structs.astuple(converted(value, shape.hint)), strict=True)
            present = ((field.keyword, item) for field, item in given if item is not msgspec.UNSET)
            return record.make(**{keyword: item for keyword, item in present if keyword})

        return Form(shape.schema, placeholder(name, make, shape.hint)).described(record.description)

    def _enum(self, kind: type[enum.Enum]) -> Form:
        if (known := self._known.get(kind)) is None:
            schema = self._defined(kind.__name__, enum_schema(kind))
            known = self._known[kind] = Form(schema, enum_hint(kind))
        return known

    def _pydantic(self, hint: Any) -> Form:
        key = _key(hint)
        if (known := self._known.get(key)) is None:
            name = name_of(hint)
            schema = self.definitions.adopt(pydantic_schema(hint, self.direction))
            if referred(schema) is None:
                schema = self._defined(name, schema)
            known = self._known[key] = Form(schema, pydantic_hint(hint, name))
        return known

    def _defined(self, name: str, schema: Schema) -> Schema:
        name = self.definitions.reserve(name)
        self.definitions.define(name, schema)
        return reference(name)

    def _named(self, hint: Any, name: str, make: abc.Callable[[], Form]) -> Form:
        """A form that may come to speak of itself while it is being made."""
        key = _key(hint)
        if (known := self._known.get(key)) is None:
            name = self.definitions.reserve(name)
            made: list[Form] = []
            stand_in = placeholder(name, lambda value: converted(value, made[0].hint))
            known = self._known[key] = Form(reference(name), stand_in)
            made.append(make())
            self.definitions.define(name, made[0].schema)
            if is_placeholder(made[0].hint):
                stand_in.convert = made[0].hint.convert
                stand_in.inside = made[0].hint.inside
            else:
                stand_in.inside = made[0].hint
        return known


def _key(hint: Any) -> Any:
    """What a hint is remembered by: itself, unless the metadata of an inner Annotated has no hash."""
    try:
        hash(hint)
    except TypeError:
        return repr(hint)
    return hint


def _first_fitting(value: Any, forms: list[Form]) -> Any:
    problems = []
    for form in forms:
        try:
            return converted(value, form.hint)
        except (ValueError, TypeError) as error:
            problems.append(str(error))
    raise ValueError(f"it fits none of the allowed forms ({', '.join(problems)})")


def _key_names(schema: Schema) -> Schema:
    """What a schema of keys says of them as text, which they always are in JSON."""
    if "enum" in schema:
        return {"enum": [str(value) for value in schema["enum"]]}
    if schema.get("type") == "integer":
        return {"pattern": r"^-?[0-9]+$"}
    return {word: said for word, said in schema.items() if word in _KEY_WORDS}


def _pure_path() -> type:
    from pathlib import PurePath  # slow to import, and few tools take paths

    return PurePath


def _path_maker(kind: type[Any]) -> abc.Callable[[Any], Any]:
    return lambda value: kind(converted(value, str))


def refusal(hint: Any) -> SchemaError:
    return SchemaError(f"{name_of(hint)} cannot be said in JSON; {_advice(hint)}")


def name_of(hint: Any) -> str:
    """A hint as its author wrote it, or nearly."""
    if isinstance(hint, type) and typing.get_origin(hint) is None:
        return hint.__name__
    return str(hint).removeprefix("typing.").removeprefix("collections.abc.")


def _advice(hint: Any) -> str:
    kind = typing.get_origin(hint) or hint
    if kind in (abc.Callable, types.FunctionType):
        return "let the model choose by name, with a Literal or an Enum"
    if isinstance(kind, type) and issubclass(kind, io.IOBase | typing.IO):
        return "take a path, or the content as str or bytes"
    if isinstance(kind, type) and issubclass(kind, abc.Awaitable):
        return f"a model gives values and nothing to wait for; use {_awaited(hint)}"
    if isinstance(kind, type) and issubclass(kind, abc.Iterator | abc.AsyncIterable):
        return "use a list"
    return "use plain types, a dataclass or a TypedDict; what the model shall not see can be a Context[…]"


def _awaited(hint: Any) -> str:
    arguments = typing.get_args(hint)
    return name_of(arguments[-1]) if arguments else "the type of what awaiting it gives"


_SCALARS: dict[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    bytes: {"type": "string", "contentEncoding": "base64"},
    bytearray: {"type": "string", "contentEncoding": "base64"},
    datetime.datetime: {"type": "string", "format": "date-time"},
    datetime.date: {"type": "string", "format": "date"},
    datetime.time: {"type": "string", "format": "time"},
    datetime.timedelta: {"type": "string", "format": "duration"},
    uuid.UUID: {"type": "string", "format": "uuid"},
    decimal.Decimal: {"type": "string", "format": "decimal"},
}
_CONTAINERS: dict[Any, Any] = {
    **dict.fromkeys((list, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable), list),
    **dict.fromkeys((set, abc.Set, abc.MutableSet), set),
    **dict.fromkeys((dict, abc.Mapping, abc.MutableMapping), dict),
    frozenset: frozenset,
}
_TRANSPARENT = ("Final", "Required", "NotRequired", "ReadOnly", "Unpack")
_KEY_WORDS = ("format", "pattern", "minLength", "maxLength")
