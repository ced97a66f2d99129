"""Structured output: the fields of a request that ask for it, and the answer as a value of the requested type."""

from collections.abc import Mapping
from typing import Any

from midspan._schema.adapt import adapt_schema
from midspan.errors import ArgumentError, ConfigError, MalformedResponseError, SchemaError
from midspan.gemini.types import check_schema, to_json_data
from midspan.providers.gemini import wire
from midspan.providers.gemini.capabilities import GEMINI_JSON_SCHEMA
from midspan.providers.gemini.proto import from_plain, has_extra


def output_fields(schema: Any, json_schema: Any, mime_type: Any) -> tuple[dict[str, Any], Any]:
    """Return the fields of generationConfig that ask for an answer of a schema or a type, and the type of the answer.

    The type is Any if a schema was passed instead of a type.
    """
    if schema is not None and json_schema is not None:
        raise ConfigError("response_schema and response_json_schema are both given; the API accepts only one of them")
    requested = json_schema if schema is None else schema
    if requested is None:
        return {}, Any
    fields = {"response_mime_type": "application/json"}
    if isinstance(requested, wire.Schema | Mapping):
        if schema is None:
            return {**fields, "response_json_schema": requested}, Any
        return fields | schema_field(requested, "response_schema", "response_schema", "response_json_schema"), Any
    if mime_type not in (None, "application/json"):
        raise ConfigError(f"an answer of a type is JSON, not {mime_type}; leave response_mime_type out")
    from midspan._schema.output_type import OutputType  # loaded with the first type

    adapted = adapt_schema(OutputType(requested).schema, GEMINI_JSON_SCHEMA, arguments=False).schema
    return fields | ({"response_json_schema": adapted} if adapted else {}), requested


def schema_field(schema: Any, where: str, name: str, json_name: str) -> dict[str, Any]:
    """Return the schema under `name` if it has only keywords of the API's own schemas, else under `json_name`."""
    check_schema(schema, where)
    plain = to_json_data(schema, where)
    if isinstance(plain, bool):
        raise SchemaError(f"{where}: {plain} is not an object")
    return {json_name if has_extra(from_plain(wire.Schema, plain)) else name: plain}


def parse_answer(text: str, output_type: Any) -> Any:
    """Return the answer as JSON data, or as a value of a type; Any means JSON data."""
    from midspan._schema.output_type import OutputType, parse_json  # loaded with the first structured answer

    try:
        value = parse_json(text)
        if output_type is Any:
            return value
        output = OutputType(output_type)
        return output.parse(adapt_schema(output.schema, GEMINI_JSON_SCHEMA, arguments=False).restore_names(value))
    except ArgumentError as error:
        raise MalformedResponseError(f"the answer is not the requested JSON: {error}") from error
