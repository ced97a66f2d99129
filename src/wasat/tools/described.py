"""Tools that are described by a list of parameters, as registries of worker processes describe theirs."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from wasat.errors import SchemaError
from wasat.schema.normal import normal
from wasat.types.specs import ToolSpec

_OF_THE_LIST = frozenset(("name", "required", "validation_json", "validation"))


def spec_from_parameters(name: str, description: str, parameters: Iterable[Mapping[str, Any]]) -> ToolSpec:
    """The spec of a tool whose parameters are each a name, a type in any spelling, and whatever else a schema may say.

    `required` of a parameter is true or false; `validation_json` holds further keywords of JSON Schema as text.
    """
    properties: dict[str, Any] = {}
    required = []
    for parameter in parameters:
        key = parameter.get("name")
        if not isinstance(key, str) or not key:
            raise SchemaError(f"a parameter of {name} has no name: {dict(parameter)!r}")
        if key in properties:
            raise SchemaError(f"{name} has two parameters called {key!r}")
        properties[key] = _schema(name, key, parameter)
        if parameter.get("required"):
            required.append(key)
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return ToolSpec(name, description, schema | ({"required": required} if required else {}))


def _schema(tool: str, name: str, parameter: Mapping[str, Any]) -> dict[str, Any]:
    said = {key: value for key, value in parameter.items() if key not in _OF_THE_LIST and value not in (None, "")}
    try:
        more = msgspec.json.decode(parameter.get("validation_json") or "{}")
        return normal({"type": "any", **said, **more})
    except (SchemaError, TypeError, msgspec.DecodeError) as error:
        raise SchemaError(f"parameter {name!r} of {tool}: {error}") from error
