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

from midspan._schema.conversion import ConversionError, Convert, call_user_code
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


def fields_of(hint: Any, direction: Direction) -> list[Field] | None:
    """Return the fields of a class, or of a generic class with its arguments; None if it has none of its own."""
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
    descriptions = parse_docstring(own_docstring(cls)).parameters
    values = dict(zip(getattr(cls, "__parameters__", ()), typing.get_args(hint), strict=False))
    return [
        replace(
            field,
            hint=_substitute(field.hint, values),
            description=field.description or descriptions.get(field.keyword, ""),
        )
        for field in fields
    ]


def special_forms(name: str) -> tuple[Any, ...]:
    """Return `typing.name`, and that of typing_extensions if it is another object."""
    modules = (typing, sys.modules.get("typing_extensions"))
    return tuple(getattr(module, name) for module in modules if hasattr(module, name))


def resolve_hints(owner: Any, subject: str, names: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Return the hints of an object with texts resolved, by the names of its module, its type parameters and `more`."""
    parameters = {parameter.__name__: parameter for parameter in getattr(owner, "__type_params__", ())}
    try:
        return typing.get_type_hints(owner, names, {**parameters, **more}, include_extras=True)
    except Exception as error:  # evaluating an annotation is foreign code
        raise SchemaError(
            f"cannot resolve the type hint of {subject}: {error}; the names in it must exist in its module at run time"
        ) from error


def _class_hints(cls: Any) -> dict[str, Any]:
    return resolve_hints(cls, cls.__name__, **{cls.__name__: cls})  # a class that is not global may refer to itself


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
    pydantic_fields, default = sys.modules.get("pydantic.fields"), field.default
    if isinstance(default, dataclasses.Field | type(msgspec.field())):
        raise SchemaError(f"parameter {field.key!r}: field() is for classes; write the default value itself")
    if pydantic_fields is None or not isinstance(default, pydantic_fields.FieldInfo):
        return field
    hint: Any = Annotated[(field.hint, default)]
    if default.is_required():
        return replace(field, hint=hint, required=True, default=NO_DEFAULT)
    factory = default.default_factory or (lambda: default.default)
    known = _known_default(NO_DEFAULT, factory) if default.default_factory else default.default
    return replace(field, hint=hint, required=False, default=known, factory=factory)


def _known_default(default: Any, factory: Any) -> Any:
    if default not in (msgspec.NODEFAULT, dataclasses.MISSING, NO_DEFAULT):
        return default
    # Another factory may return something else each time, which no schema can declare.
    return factory() if factory in _CONTAINERS else NO_DEFAULT


def _typed_dict_fields(cls: Any) -> Iterator[Field]:
    qualifiers = dict.fromkeys(special_forms("Required"), True) | dict.fromkeys(special_forms("NotRequired"), False)
    for name, hint in _class_hints(cls).items():
        bare = typing.get_args(hint)[0] if typing.get_origin(hint) in special_forms("ReadOnly") else hint
        # With annotations that are text, Python itself does not see Required and NotRequired.
        required = qualifiers.get(typing.get_origin(bare), name in cls.__required_keys__)
        yield Field(name, name, hint, required)


def _struct_fields(cls: Any, direction: Direction) -> Iterator[Field]:
    config = cls.__struct_config__
    hints = _class_hints(cls)
    if config.tag is not None:
        yield Field(config.tag_field, "", typing.Literal[config.tag], required=True)
    for field in msgspec.structs.fields(cls):
        default = _known_default(field.default, field.default_factory)
        required = field.required or (direction == "out" and default is not msgspec.UNSET)
        yield Field(field.encode_name, field.name, hints[field.name], required, default)


def _dataclass_fields(cls: Any, direction: Direction) -> Iterator[Field]:
    hints = _class_hints(cls)
    for field in dataclasses.fields(cls):
        if direction == "in" and not field.init:
            continue
        is_missing = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        default = _known_default(field.default, field.default_factory)
        description = field.metadata.get("description", "")
        yield Field(field.name, field.name, hints[field.name], direction == "out" or is_missing, default, description)


def _named_tuple_fields(cls: Any, direction: Direction) -> Iterator[Field]:
    hints, defaults = _class_hints(cls), cls._field_defaults
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
            return call_user_code(adapter.validate_python, value)
        except ConversionError as error:
            if isinstance(error.__cause__, pydantic.ValidationError):
                raise ConversionError(*map(_problem, error.__cause__.errors(include_url=False))) from error
            raise

    plain = msgspec.json.decode(msgspec.json.Encoder(decimal_format="number").encode(schema))  # limits may be Decimals
    return without_titles(plain), convert


def _problem(error: Any) -> Problem:
    # For errors of validators, pydantic puts the kind of the error before the message.
    cause = error.get("ctx", {}).get("error")
    return Problem(tuple(error["loc"]), str(cause) if isinstance(cause, Exception) and str(cause) else error["msg"])


def pydantic_value(value: Any) -> Any:
    """Return the JSON value of an instance, under the names that its schema has."""
    if callable(dump := getattr(value, "model_dump", None)):
        return dump(mode="json", by_alias=True)
    return sys.modules["pydantic_core"].to_jsonable_python(value, by_alias=True)
