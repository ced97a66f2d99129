"""The fields of a class that is a record: dataclass, TypedDict, NamedTuple, msgspec Struct, attrs."""

import dataclasses
import inspect
import sys
import typing
from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec
from msgspec import Struct

from midspan._schema.signatures.docstrings import documentation
from midspan._types.parts import ProviderData
from midspan.errors import SchemaError

Direction = Literal["in", "out"]
"""Whether a value comes from the model or goes to it: what must be there, and what may be, can differ."""

NO_DEFAULT: Any = inspect.Parameter.empty
"""The default of what has none."""


class Field(Struct, frozen=True):
    """One field: its name in JSON, what the constructor calls it, and what may stand in it."""

    key: str
    keyword: str
    """Empty for the tag of a Struct, which no constructor takes."""
    hint: Any
    required: bool
    default: Any = NO_DEFAULT
    description: str = ""


class Record(Struct, frozen=True):
    """A class as its fields, and how to make an instance from them."""

    fields: tuple[Field, ...]
    make: Callable[..., Any]
    description: str


def record_of(hint: Any, direction: Direction) -> Record | None:
    """The record that this class, or generic class with its arguments, is; None if it is none."""
    kind = typing.get_origin(hint) or hint
    read = _reader(kind)
    if read is None:
        return None
    written = documentation(own_docstring(kind))
    values = dict(zip(getattr(kind, "__parameters__", ()), typing.get_args(hint), strict=False))
    fields = tuple(
        msgspec.structs.replace(
            field,
            hint=_substituted(field.hint, values),
            description=field.description or written.parameters.get(field.keyword, ""),
        )
        for field in read(kind, direction)
    )
    make = dict if is_typed_dict(kind) else kind
    return Record(fields, make, written.description)


def hints_of(kind: type) -> dict[str, Any]:
    """The hints of a class, strings resolved; it may speak of itself even where it is not global."""
    try:
        return typing.get_type_hints(kind, localns={kind.__name__: kind}, include_extras=True)
    except (NameError, TypeError, SyntaxError, AttributeError) as error:
        raise SchemaError(
            f"the hints of {kind.__name__} cannot be resolved: {error}; "
            f"what they name must be importable in module {kind.__module__!r} at run time"
        ) from error


def is_typed_dict(kind: Any) -> bool:
    # typing.is_typeddict does not know those of typing_extensions.
    return isinstance(kind, type) and hasattr(kind, "__required_keys__")


def is_named_tuple(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def own_docstring(kind: type) -> str:
    """What somebody wrote about this class, and not what Python made up or a base class says."""
    text = kind.__dict__.get("__doc__")
    if not isinstance(text, str):  # none, or one that each object has of its own
        return ""
    # Dataclasses and NamedTuples without a docstring are given their signature for one.
    return "" if text.startswith(f"{kind.__name__}(") else text


def _reader(kind: Any) -> Callable[[Any, Direction], Iterator[Field]] | None:
    if not isinstance(kind, type):
        return None
    if is_typed_dict(kind):
        return _typed_dict_fields
    if issubclass(kind, Struct):
        return _struct_fields
    if dataclasses.is_dataclass(kind):
        return _dataclass_fields
    if is_named_tuple(kind):
        return _named_tuple_fields
    return _attrs_fields if hasattr(kind, "__attrs_attrs__") else None


def _typed_dict_fields(kind: Any, _: Direction) -> Iterator[Field]:
    for name, hint in hints_of(kind).items():
        bare, said = _unqualified(hint)
        # With annotations that are text, Python itself does not see the words Required and NotRequired.
        yield Field(name, name, bare, said if said is not None else name in kind.__required_keys__)


def _unqualified(hint: Any) -> tuple[Any, bool | None]:
    """The hint inside Required, NotRequired and ReadOnly, and which of the first two it was."""
    said = None
    while (word := getattr(typing.get_origin(hint), "_name", None)) in ("Required", "NotRequired", "ReadOnly"):
        said = {"Required": True, "NotRequired": False}.get(word, said)
        (hint,) = typing.get_args(hint)
    return hint, said


def _struct_fields(kind: Any, direction: Direction) -> Iterator[Field]:
    if kind.__struct_config__.array_like:
        raise SchemaError(f"{kind.__name__} is array_like, so its fields have no names for a model to fill in")
    hints = hints_of(kind)
    config = kind.__struct_config__
    if config.tag is not None:
        yield Field(config.tag_field, "", typing.Literal[config.tag], required=True)
    for field in msgspec.structs.fields(kind):
        if hints[field.name] == ProviderData | None:
            continue  # of our own parts: bytes of a provider, which no tool takes or returns
        default = _known_default(field.default, field.default_factory)
        required = field.required or (direction == "out" and default is not msgspec.UNSET)
        yield Field(field.encode_name, field.name, hints[field.name], required, default)


def _dataclass_fields(kind: Any, direction: Direction) -> Iterator[Field]:
    hints = hints_of(kind)
    own = dataclasses.fields(kind)
    names = {field.name for field in own}
    for field in kind.__dataclass_fields__.values():
        hint = hints[field.name]
        if field.name not in names and not isinstance(hint, dataclasses.InitVar):
            continue
        taken = field.init if direction == "in" else field.name in names
        if not taken:
            continue
        default = _known_default(field.default, field.default_factory)
        required = direction == "out" or (
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        )
        description = field.metadata.get("description", "")
        yield Field(field.name, field.name, hint, required, default, description)


def _named_tuple_fields(kind: Any, direction: Direction) -> Iterator[Field]:
    hints = hints_of(kind)
    defaults = kind._field_defaults
    for name in kind._fields:
        default = defaults.get(name, NO_DEFAULT)
        required = direction == "out" or name not in defaults
        yield Field(name, name, hints.get(name, Any), required, default)


def _attrs_fields(kind: Any, direction: Direction) -> Iterator[Field]:
    hints = hints_of(kind)
    nothing = sys.modules["attr"].NOTHING
    for attribute in kind.__attrs_attrs__:
        # msgspec writes no private attributes, so a result has none.
        if not (attribute.init if direction == "in" else not attribute.name.startswith("_")):
            continue
        required = direction == "out" or attribute.default is nothing
        default = NO_DEFAULT if attribute.default is nothing else attribute.default
        hint = hints.get(attribute.name, attribute.type or Any)
        description = attribute.metadata.get("description", "")
        yield Field(attribute.name, attribute.alias, hint, required, default, description)


def _known_default(default: Any, factory: Any) -> Any:
    if default is not msgspec.NODEFAULT and default is not dataclasses.MISSING:
        return default
    # Another factory may give something else each time, which no schema can say.
    return factory() if factory in (list, dict, set, frozenset, tuple) else NO_DEFAULT


def _substituted(hint: Any, values: dict[Any, Any]) -> Any:
    if isinstance(hint, typing.TypeVar):
        return values.get(hint, hint)
    parameters = getattr(hint, "__parameters__", ())
    if not values or not parameters or isinstance(hint, type):
        return hint
    return hint[tuple(values.get(parameter, parameter) for parameter in parameters)]
