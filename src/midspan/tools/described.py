"""Tools described by a list of parameters, the format of worker process registries."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from midspan._schema.normalize import normalize
from midspan._types.specs import ToolSpec
from midspan.errors import SchemaError

_LIST_KEYS = frozenset(("name", "required", "validation_json", "validation"))


def spec_from_parameters(name: str, description: str, parameters: Iterable[Mapping[str, Any]]) -> ToolSpec:
    """Return the spec of a tool. A parameter is a dict with a name, a type in any spelling and further schema keywords.

    `required` of a parameter is a bool; `validation_json` is JSON text with further keywords of JSON Schema.
    """
    if not isinstance(name, str) or not name:
        raise SchemaError(f"the name of a tool must be a non-empty str, got {name!r}")
    if not isinstance(description, str):
        raise SchemaError(f"{name}: description must be a str, got {description!r}")
    if isinstance(parameters, str | bytes | Mapping) or not isinstance(parameters, Iterable):
        raise SchemaError(f"{name}: parameters must be a list of dicts, got {parameters!r}")
    properties: dict[str, Any] = {}
    required = []
    for parameter in parameters:
        if not isinstance(parameter, Mapping):
            raise SchemaError(f"{name}: a parameter must be a dict with a name and a type, got {parameter!r}")
        key = parameter.get("name")
        if not isinstance(key, str) or not key:
            raise SchemaError(f"a parameter of {name} has no name: {dict(parameter)!r}")
        if key in properties:
            raise SchemaError(f"{name} has two parameters named {key!r}")
        properties[key] = _schema(name, key, parameter)
        if parameter.get("required") not in (True, False, None):
            raise SchemaError(f"parameter {key!r} of {name}: required must be a bool, got {parameter['required']!r}")
        if parameter.get("required"):
            required.append(key)
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return ToolSpec(name, description, schema | ({"required": required} if required else {}))


def _schema(tool: str, name: str, parameter: Mapping[str, Any]) -> dict[str, Any]:
    keywords = {key: value for key, value in parameter.items() if key not in _LIST_KEYS and value not in (None, "")}
    try:
        text = parameter.get("validation_json") or "{}"
        if not isinstance(text, str | bytes):
            raise SchemaError(f"validation_json must be JSON text, got {text!r}")
        more = msgspec.json.decode(text)
        if not isinstance(more, dict):
            raise SchemaError(f"validation_json must be a JSON object, got {text!r}")
        return normalize({"type": "any", **keywords, **more})
    except (SchemaError, TypeError, msgspec.DecodeError) as error:
        raise SchemaError(f"parameter {name!r} of {tool}: {error}") from error
