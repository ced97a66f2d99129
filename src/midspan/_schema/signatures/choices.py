"""Types that are a list of allowed values: Literal and Enum."""

import enum
import typing
from collections.abc import Iterable
from typing import Any

from midspan._schema.signatures.conversion import is_accepted, placeholder
from midspan._schema.signatures.definitions import Schema
from midspan._schema.signatures.docstrings import documentation
from midspan.errors import SchemaError


def literal_schema(values: tuple[Any, ...]) -> Schema:
    return _enumeration(map(_said, values))


def literal_hint(values: tuple[Any, ...]) -> Any:
    """What makes the value that was named; members of enums are named by their values."""
    hint: Any = typing.Literal[values]
    if any(isinstance(value, enum.Enum) for value in values) or not is_accepted(hint):
        return _choice("Literal", values)
    return hint


def enum_schema(kind: type[enum.Enum]) -> Schema:
    """An Enum by its values; numbers are explained by the names that they have."""
    if issubclass(kind, enum.Flag):
        raise SchemaError(f"{kind.__name__} is a Flag, whose values combine; use a list of the members of an Enum")
    schema = _enumeration(member.value for member in kind)
    if description := _meaning(kind):
        schema["description"] = description
    return schema


def enum_hint(kind: type[enum.Enum]) -> Any:
    return kind if is_accepted(kind) else _choice(kind.__name__, kind)


def _enumeration(values: Iterable[Any]) -> Schema:
    allowed = list(values)
    if not allowed:
        raise SchemaError("there is no value to choose from")
    types = {_JSON_TYPES.get(type(value), "") for value in allowed}
    if "" in types:
        raise SchemaError(f"not all of {allowed!r} can be said in JSON; use text or numbers")
    return {"type": types.pop(), "enum": allowed} if len(types) == 1 else {"enum": allowed}


def _choice(name: str, members: Iterable[Any]) -> Any:
    by_value = {_exactly(_said(member)): member for member in members}
    allowed = ", ".join(repr(value) for _, value in by_value)

    def choose(value: Any) -> Any:
        try:
            return by_value[_exactly(value)]
        except (KeyError, TypeError):
            raise ValueError(f"{value!r} is not one of {allowed}") from None

    return placeholder(name, choose)


def _exactly(value: Any) -> tuple[bool, Any]:
    # Python takes True for 1, JSON does not.
    return isinstance(value, bool), value


def _said(value: Any) -> Any:
    return value.value if isinstance(value, enum.Enum) else value


def _meaning(kind: type[enum.Enum]) -> str:
    written = documentation(kind.__dict__.get("__doc__")).description
    if all(isinstance(member.value, str) for member in kind):
        return written
    names = ", ".join(f"{member.value!r} = {member.name}" for member in kind)
    return f"{written}\n\n{names}".strip()


_JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
