"""Tools that are described by a list of parameters, as registries of worker processes describe theirs."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from midspan.errors import SchemaError
from midspan.schema.normal import normal
from midspan.types.specs import ToolSpec

_OF_THE_LIST = frozenset(("name", "required", "validation_json", "validation"))


def spec_from_parameters(name: str, description: str, parameters: Iterable[Mapping[str, Any]]) -> ToolSpec:
    """The spec of a tool whose parameters are each a name, a type in any spelling, and whatever else a schema may say.

    `required` of a parameter is true or false; `validation_json` holds further keywords of JSON Schema as text.
    """
    if not isinstance(name, str) or not name:
        raise SchemaError(f"the name of a tool is a text that is not empty, not {name!r}")
    if not isinstance(description, str):
        raise SchemaError(f"{name}: description is a text, not {description!r}")
    if isinstance(parameters, str | bytes | Mapping) or not isinstance(parameters, Iterable):
        raise SchemaError(f"{name}: parameters are a list of dicts, one for each parameter; not {parameters!r}")
    properties: dict[str, Any] = {}
    required = []
    for parameter in parameters:
        if not isinstance(parameter, Mapping):
            raise SchemaError(f"{name}: a parameter is a dict of its name, its type and so on; not {parameter!r}")
        key = parameter.get("name")
        if not isinstance(key, str) or not key:
            raise SchemaError(f"a parameter of {name} has no name: {dict(parameter)!r}")
        if key in properties:
            raise SchemaError(f"{name} has two parameters called {key!r}")
        properties[key] = _schema(name, key, parameter)
        if parameter.get("required") not in (True, False, None):
            raise SchemaError(f"parameter {key!r} of {name}: required is true or false, not {parameter['required']!r}")
        if parameter.get("required"):
            required.append(key)
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return ToolSpec(name, description, schema | ({"required": required} if required else {}))


def _schema(tool: str, name: str, parameter: Mapping[str, Any]) -> dict[str, Any]:
    said = {key: value for key, value in parameter.items() if key not in _OF_THE_LIST and value not in (None, "")}
    try:
        given = parameter.get("validation_json") or "{}"
        if not isinstance(given, str | bytes):
            raise SchemaError(f"validation_json is JSON as text, not {given!r}")
        more = msgspec.json.decode(given)
        if not isinstance(more, dict):
            raise SchemaError(f"validation_json is an object of further keywords, not {given!r}")
        return normal({"type": "any", **said, **more})
    except (SchemaError, TypeError, msgspec.DecodeError) as error:
        raise SchemaError(f"parameter {name!r} of {tool}: {error}") from error
