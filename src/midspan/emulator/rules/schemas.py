"""Schemas in the API's own subset of OpenAPI; which keywords it has at all is known where requests are read."""

from collections.abc import Iterator

from midspan.providers.gemini.capabilities import Api
from midspan.providers.gemini.wire import Schema

_STRING_FORMATS = ("enum", "date-time")


def schema_faults(schema: Schema, path: str, api: Api) -> Iterator[tuple[str, str]]:
    """Where a schema is against the rules, and the server's words."""
    if schema.type == "ARRAY" and schema.items is None:
        yield f"{path}.items", "missing field."
    if schema.enum is not None:
        yield from _enum_faults(schema, path)
    if schema.type == "STRING" and schema.format not in (None, "", *_STRING_FORMATS) and api is Api.DEVELOPER:
        yield f"{path}.format", "only 'enum' and 'date-time' are supported for STRING type"
    properties = schema.properties or {}
    for at, name in enumerate(schema.required or ()):
        if name not in properties:
            yield f"{path}.required[{at}]", "property is not defined"
    for name, inner in properties.items():
        yield from schema_faults(inner, f"{path}.properties[{name}]", api)
    if schema.items is not None:
        yield from schema_faults(schema.items, f"{path}.items", api)
    for at, inner in enumerate(schema.any_of or ()):
        yield from schema_faults(inner, f"{path}.any_of[{at}]", api)


def _enum_faults(schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    if schema.enum and schema.type not in ("STRING", None):
        yield f"{path}.enum", "only allowed for STRING type"
    for at, word in enumerate(schema.enum or ()):
        if not word:
            yield f"{path}.enum[{at}]", "cannot be empty"
