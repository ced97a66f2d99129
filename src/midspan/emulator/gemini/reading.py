"""Reads the JSON of a request like the API does: every field must be known and have the right type.

The messages and their fields are those of `midspan.providers.gemini.wire`. The reader collects all violations, because
the API reports them together.
"""

import binascii
from collections.abc import Sequence
from contextlib import suppress
from types import NoneType
from typing import Any, get_args, get_origin

import msgspec

from midspan.emulator.gemini.api import invalid_json
from midspan.emulator.gemini.models import ModelRules
from midspan.providers.gemini.capabilities import SCHEMA_TYPES, Api
from midspan.providers.gemini.proto import AnyProto, Proto, ProtoField, known_fields

_FROM_URLSAFE = str.maketrans("-_", "+/")
_TYPE_URL = "type.googleapis.com/"
_STRUCT = f"{_TYPE_URL}google.protobuf.Struct"

_ENUMS: dict[str, tuple[str, Sequence[str]]] = {
    "Schema.type": ("Type", ("TYPE_UNSPECIFIED", *SCHEMA_TYPES)),
    "FunctionCallingConfig.mode": (
        "FunctionCallingConfig.Mode",
        ("MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED"),
    ),
    "ThinkingConfig.thinking_level": (
        "ThinkingConfig.ThinkingLevel",
        ("THINKING_LEVEL_UNSPECIFIED", "LOW", "MEDIUM", "HIGH", "MINIMAL"),
    ),
}
"""The name of an enum and its members in the order of their numbers. Other enum fields accept any word."""

_BASE64 = ("Blob.data", "Part.thought_signature", "GenerateContentRequest.continuation_token")
_CALL_IDS = ("FunctionCall.id", "FunctionResponse.id")
_ONLY_IN_DEVELOPER_API = """
    Part.tool_call Part.tool_response Part.part_metadata Tool.file_search Tool.mcp_servers
    ToolConfig.include_server_side_tool_invocations FunctionResponse.will_continue GenerateContentRequest.store
    CountTokensRequest.generate_content_request
"""
_ONLY_IN_VERTEX = """
    GenerateContentRequest.model_armor_config GenerateContentRequest.generation_output_config
    GenerationConfig.audio_timestamp GenerationConfig.routing_config GenerationConfig.model_selection_config
    FunctionCall.partial_args FunctionCall.will_continue FunctionCallingConfig.stream_function_call_arguments
    Tool.retrieval Tool.enterprise_web_search Tool.parallel_ai_search Tool.exa_ai_search SafetySetting.method
    Schema.additional_properties Schema.defs Schema.ref
"""
_UNKNOWN = {Api.DEVELOPER: _ONLY_IN_VERTEX.split(), Api.VERTEX: _ONLY_IN_DEVELOPER_API.split()}
"""Fields that an API does not know."""


def read(message: type[AnyProto], body: bytes, rules: ModelRules) -> AnyProto:
    """Decode the body of a request."""
    reader = _Reader(rules)
    try:
        data = msgspec.json.decode(body, type=dict[str, Any]) if body.strip() else {}
        canonical = reader.message(message, data, "")
        if reader.violations:
            raise invalid_json(reader.violations)
        return msgspec.convert(canonical, message)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # also a number too large for its field
        raise invalid_json([("", f"Invalid JSON payload received. {error}")]) from error


class _Reader:
    """Converts a message to its canonical form: camelCase names, lists where the API allows single values."""

    def __init__(self, rules: ModelRules) -> None:
        self.violations: list[tuple[str, str]] = []
        package = "google.ai.generativelanguage" if rules.api is Api.DEVELOPER else "google.cloud.aiplatform"
        self._package = f"{_TYPE_URL}{package}.{rules.version}"
        call_ids = () if rules.capabilities.call_ids else _CALL_IDS
        self._unknown = {*_UNKNOWN[rules.api], *call_ids}

    def message(self, message: type[Proto], data: dict[str, Any], path: str) -> dict[str, Any]:
        known = known_fields(message)
        canonical = {}
        for name, value in data.items():
            field = known.get(name)
            if field is None or (place := f"{message.__name__}.{field.attribute}") in self._unknown:
                self._unknown_name(name, path, "Cannot find field.")
            elif value is not None:
                field_path = f"{path}.{field.attribute}" if path else field.attribute
                accepts_list = field.container is list or (field.container is None and field.item is Any)
                if isinstance(value, list) and not accepts_list:
                    self._unknown_name(name, path, "Proto field is not repeating, cannot start list.")
                else:
                    canonical[field.name] = self._field(field, place, value, field_path)
        return canonical

    def _field(self, field: ProtoField, place: str, value: Any, path: str) -> Any:
        if field.container is list:
            items = enumerate(value if isinstance(value, list) else [value])
            return [self._value(field, place, item, f"{path}[{index}]") for index, item in items if item is not None]
        if field.container is dict and field.item is not Any:
            if not isinstance(value, dict):
                return self._invalid(path, "Map", value)
            members = enumerate((key, item) for key, item in value.items() if item is not None)
            return {key: self._value(field, place, item, f"{path}[{index}].value") for index, (key, item) in members}
        return self._value(field, place, value, path)

    def _value(self, field: ProtoField, place: str, value: Any, path: str) -> Any:
        if field.message is not None:
            if isinstance(value, dict):
                return self.message(field.message, value, path)
            return self._invalid(path, f"{self._package}.{field.message.__name__}", value)
        if get_origin(field.item) is dict or (field.container is dict and field.item is Any):
            return value if isinstance(value, dict) else self._invalid(path, _STRUCT, value)
        return value if field.item is Any else self._scalar(field, place, value, path)

    def _scalar(self, field: ProtoField, place: str, value: Any, path: str) -> Any:
        types = tuple(member for member in get_args(field.item) or (field.item,) if member is not NoneType)
        if types == (str, int):
            return self._enum(place, value, path)
        if place in _BASE64:
            with suppress(ValueError, AttributeError):  # not base64, not a string
                binascii.a2b_base64(standard_base64(value), strict_mode=True)
                return value
            return self._invalid(path, "TYPE_BYTES", f"Base64 decoding failed for {value!r:.80}")
        type_name, target = _SCALARS[types]
        try:
            return msgspec.convert(value, target, strict=False)  # numbers and booleans may be written as strings
        except msgspec.ValidationError:
            return self._invalid(path, type_name, value)

    def _enum(self, place: str, value: Any, path: str) -> Any:
        name, members = _ENUMS.get(place, ("TYPE_ENUM", ()))
        if type(value) is int:
            return members[value] if 0 <= value < len(members) else value
        if isinstance(value, str) and not members:
            return value
        if isinstance(value, str) and value.upper() in members:
            return value.upper()
        return self._invalid(path, f"{self._package}.{name}" if members else name, value)

    def _unknown_name(self, name: str, path: str, reason: str) -> None:
        at = f" at '{path}'" if path else ""
        self.violations.append((path, f'Invalid JSON payload received. Unknown name "{name}"{at}: {reason}'))

    def _invalid(self, path: str, type_name: str, value: Any) -> None:
        text = value if type_name == "TYPE_BYTES" else msgspec.json.encode(value).decode()
        self.violations.append((path, f"Invalid value at '{path}' ({type_name}), {text:.200}"))


def standard_base64(text: str) -> str:
    """Return base64 in one form: clients use either alphabet, with or without padding."""
    text = text.rstrip("=").translate(_FROM_URLSAFE)
    return text + "=" * (-len(text) % 4)


_SCALARS: dict[tuple[type, ...], tuple[str, Any]] = {
    (str,): ("TYPE_STRING", str),
    (bool,): ("TYPE_BOOL", bool),
    (int,): ("TYPE_INT32", int),
    (int, str): ("TYPE_INT64", int),
    (int, float): ("TYPE_DOUBLE", int | float),
}
"""By the types of the field."""
