"""Classes with fields: dataclass, TypedDict, NamedTuple, msgspec Struct; and fields as parameter defaults.

Pydantic types are read and created by pydantic itself, which is already imported if such a type exists.
"""

import dataclasses
import inspect
import sys
import typing
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from midspan._schema.conversion import ConversionError, Convert, call_foreign
from midspan._schema.docstrings import parse_docstring
from midspan._schema.problems import Problem
from midspan._schema.tree import Schema, without_titles
from midspan.errors import SchemaError

Direction = Literal["in", "out"]
"""Whether a value comes from the model or goes to it: which fields are required can differ."""

NO_DEFAULT: Any = inspect.Parameter.empty
_CONTAINERS = (list, dict, set, frozenset, tuple)


class Field(Struct, frozen=True):
    """One field: its name in JSON, the keyword of the constructor, and what it may contain."""

    key: str
    keyword: str
    """Empty for the tag of a Struct, which no constructor takes."""
    hint: Any
    required: bool
    default: Any = NO_DEFAULT
    description: str = ""
    factory: Callable[[], Any] | None = None
    """Makes the value if it is missing, where Python itself would not: see `unwrap_default`."""


class Record(Struct, frozen=True):
    """A class as its fields, and how to make an instance from them."""

    fields: tuple[Field, ...]
    make: Callable[..., Any]
    description: str


def record_of(hint: Any, direction: Direction) -> Record | None:
    """Return the record that a class, or a generic class with its arguments, is; None if it is not a record."""
    cls = typing.get_origin(hint) or hint
    if is_typed_dict(cls):
        fields = _typed_dict_fields(cls)
    elif isinstance(cls, type) and issubclass(cls, Struct):
        fields = _struct_fields(cls, direction)
    elif isinstance(cls, type) and dataclasses.is_dataclass(cls):
        fields = _dataclass_fields(cls, direction)
    elif is_named_tuple(cls):
        fields = _named_tuple_fields(cls, direction)
    else:
        return None
    documentation = parse_docstring(own_docstring(cls))
    values = dict(zip(getattr(cls, "__parameters__", ()), typing.get_args(hint), strict=False))
    described = tuple(
        replace(
            field,
            hint=_substitute(field.hint, values),
            description=field.description or documentation.parameters.get(field.keyword, ""),
        )
        for field in fields
    )
    return Record(described, dict if is_typed_dict(cls) else cls, documentation.description)


def special_forms(name: str) -> tuple[Any, ...]:
    """Return `typing.name`, and that of typing_extensions if it is another object."""
    modules = (typing, sys.modules.get("typing_extensions"))
    return tuple(getattr(module, name) for module in modules if hasattr(module, name))


def class_hints(cls: type) -> dict[str, Any]:
    """Return the hints of a class with strings resolved. It may refer to itself even where it is not global."""
    parameters = {parameter.__name__: parameter for parameter in getattr(cls, "__type_params__", ())}
    try:
        return typing.get_type_hints(cls, localns={**parameters, cls.__name__: cls}, include_extras=True)
    except Exception as error:  # evaluating an annotation is foreign code
        raise SchemaError(
            f"cannot resolve the type hints of {cls.__name__}: {error}; "
            f"the names in them must exist in module {cls.__module__!r} at run time"
        ) from error


def is_typed_dict(cls: Any) -> bool:
    # typing.is_typeddict does not know those of typing_extensions.
    return isinstance(cls, type) and hasattr(cls, "__required_keys__")


def is_named_tuple(cls: Any) -> bool:
    return isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields")


def own_docstring(cls: type) -> str:
    """Return the docstring that was written for this class, not one that Python generated or a base class has."""
    text = cls.__dict__.get("__doc__")
    # Dataclasses and NamedTuples without a docstring get their signature as one.
    return inspect.cleandoc(text) if isinstance(text, str) and not text.startswith(f"{cls.__name__}(") else ""


def unwrap_default(field: Field) -> Field:
    """Return a parameter whose default is `pydantic.Field(…)` with what that object says."""
    fields, declared = sys.modules.get("pydantic.fields"), field.default
    if isinstance(declared, dataclasses.Field | type(msgspec.field())):
        raise SchemaError(f"parameter {field.key!r}: field() is for classes; write the default value itself")
    if fields is None or not isinstance(declared, fields.FieldInfo):
        return field
    field = replace(field, hint=Annotated[(field.hint, declared)], required=declared.is_required())
    if field.required:
        return replace(field, default=NO_DEFAULT)
    factory = declared.default_factory
    default = declared.default if factory is None else _known_default(NO_DEFAULT, factory)
    return replace(field, default=default, factory=factory or (lambda: declared.default))


def _known_default(default: Any, factory: Any) -> Any:
    if default not in (msgspec.NODEFAULT, dataclasses.MISSING, NO_DEFAULT):
        return default
    # Another factory may return something else each time, which no schema can declare.
    return factory() if factory in _CONTAINERS else NO_DEFAULT


def _typed_dict_fields(cls: Any) -> Iterator[Field]:
    readonly = special_forms("ReadOnly")
    qualifiers = dict.fromkeys(special_forms("Required"), True) | dict.fromkeys(special_forms("NotRequired"), False)
    for name, hint in class_hints(cls).items():
        bare, required = hint, name in cls.__required_keys__
        # With annotations that are text, Python itself does not see Required and NotRequired.
        while (origin := typing.get_origin(bare)) in (*readonly, *qualifiers):
            required = qualifiers.get(origin, required)
            (bare,) = typing.get_args(bare)
        yield Field(name, name, bare, required)


def _struct_fields(cls: Any, direction: Direction) -> Iterator[Field]:
    config = cls.__struct_config__
    hints = class_hints(cls)
    if config.tag is not None:
        yield Field(config.tag_field, "", typing.Literal[config.tag], required=True)
    for field in msgspec.structs.fields(cls):
        default = _known_default(field.default, field.default_factory)
        required = field.required or (direction == "out" and default is not msgspec.UNSET)
        yield Field(field.encode_name, field.name, hints[field.name], required, default)


def _dataclass_fields(cls: Any, direction: Direction) -> Iterator[Field]:
    hints = class_hints(cls)
    for field in dataclasses.fields(cls):
        if direction == "in" and not field.init:
            continue
        is_missing = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        default = _known_default(field.default, field.default_factory)
        description = field.metadata.get("description", "")
        yield Field(field.name, field.name, hints[field.name], direction == "out" or is_missing, default, description)


def _named_tuple_fields(cls: Any, direction: Direction) -> Iterator[Field]:
    hints, defaults = class_hints(cls), cls._field_defaults
    for name in cls._fields:
        required = direction == "out" or name not in defaults
        yield Field(name, name, hints.get(name, Any), required, defaults.get(name, NO_DEFAULT))


def _substitute(hint: Any, values: dict[Any, Any]) -> Any:
    if isinstance(hint, typing.TypeVar):
        return values.get(hint, hint)
    parameters = getattr(hint, "__parameters__", ())
    if not values or not parameters or isinstance(hint, type):
        return hint
    return hint[tuple(values.get(parameter, parameter) for parameter in parameters)]


def is_pydantic(cls: Any) -> bool:
    """Return whether this is a model, a dataclass of pydantic, or a type such as `HttpUrl`."""
    return hasattr(cls, "__pydantic_validator__") or hasattr(cls, "__get_pydantic_core_schema__")


def pydantic_type(hint: Any, direction: Direction, suffix: str = "") -> tuple[Schema, Convert]:
    """Return the schema of a hint and the conversion to its values, both by pydantic.

    References have the suffix, the names of definitions do not have it yet.
    """
    mode: Any = "validation" if direction == "in" else "serialization"
    try:
        import pydantic

        adapter = pydantic.TypeAdapter(hint)
        schema = adapter.json_schema(mode=mode, ref_template=f"#/$defs/{{model}}{suffix}")
    except Exception as error:  # hooks of user classes may run here
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise SchemaError(f"pydantic has no JSON Schema for it: {reason}") from error

    def convert(value: Any) -> Any:
        try:
            return call_foreign(adapter.validate_python, value)
        except ConversionError as error:
            if isinstance(error.__cause__, pydantic.ValidationError):
                raise ConversionError(*map(_problem, error.__cause__.errors(include_url=False))) from error
            raise

    return without_titles(schema), convert


def _problem(error: Any) -> Problem:
    # For errors of validators, pydantic puts the kind of the error before the message.
    cause = error.get("ctx", {}).get("error")
    return Problem(tuple(error["loc"]), str(cause) if isinstance(cause, Exception) and str(cause) else error["msg"])


def pydantic_value(value: Any) -> Any:
    """Return the JSON value of an instance, under the names that its schema has."""
    if callable(dump := getattr(value, "model_dump", None)):
        return dump(mode="json", by_alias=True)
    return sys.modules["pydantic_core"].to_jsonable_python(value, by_alias=True)
