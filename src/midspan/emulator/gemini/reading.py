"""Reads the JSON of a request like the API does: every field must be known and have the right type.

The messages and their fields are those of `midspan.providers.gemini.wire`. The reader collects all violations, because
the API reports them together.
"""

import binascii
import re
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import Struct, inspect

from midspan.emulator.gemini.errors import invalid, invalid_json
from midspan.providers.gemini.capabilities import Api
from midspan.providers.gemini.proto import EXTRA, Proto

AnyProto = TypeVar("AnyProto", bound=Proto)

_MAX_VIOLATIONS = 200
_MAX_QUOTED_CHARS = 200
_FROM_URLSAFE = bytes.maketrans(b"-_", b"+/")
_TYPE_URL = "type.googleapis.com/"
TOO_DEEP = "A FunctionDeclaration in the request exceeds the maximum allowed nesting depth."

_ENUM_TABLE = """
Schema.type: Type = TYPE_UNSPECIFIED STRING NUMBER INTEGER BOOLEAN ARRAY OBJECT NULL
FunctionCallingConfig.mode: FunctionCallingConfig.Mode = MODE_UNSPECIFIED AUTO ANY NONE VALIDATED
ThinkingConfig.thinking_level: ThinkingConfig.ThinkingLevel = THINKING_LEVEL_UNSPECIFIED LOW MEDIUM HIGH MINIMAL
FunctionDeclaration.behavior: FunctionDeclaration.Behavior = UNSPECIFIED BEHAVIOR_UNSPECIFIED BLOCKING NON_BLOCKING
FunctionResponse.scheduling: FunctionResponse.Scheduling = SCHEDULING_UNSPECIFIED SILENT WHEN_IDLE INTERRUPT
GenerationConfig.response_modalities: GenerationConfig.Modality = MODALITY_UNSPECIFIED TEXT IMAGE AUDIO VIDEO
ExecutableCode.language: ExecutableCode.Language = LANGUAGE_UNSPECIFIED PYTHON
CodeExecutionResult.outcome: CodeExecutionResult.Outcome =
    OUTCOME_UNSPECIFIED OUTCOME_OK OUTCOME_FAILED OUTCOME_DEADLINE_EXCEEDED
SafetySetting.threshold: SafetySetting.HarmBlockThreshold =
    HARM_BLOCK_THRESHOLD_UNSPECIFIED BLOCK_LOW_AND_ABOVE BLOCK_MEDIUM_AND_ABOVE BLOCK_ONLY_HIGH BLOCK_NONE OFF
SafetySetting.category: HarmCategory =
    HARM_CATEGORY_UNSPECIFIED HARM_CATEGORY_HARASSMENT HARM_CATEGORY_HATE_SPEECH HARM_CATEGORY_SEXUALLY_EXPLICIT
    HARM_CATEGORY_DANGEROUS_CONTENT HARM_CATEGORY_CIVIC_INTEGRITY HARM_CATEGORY_JAILBREAK HARM_CATEGORY_DEROGATORY
    HARM_CATEGORY_TOXICITY HARM_CATEGORY_VIOLENCE HARM_CATEGORY_SEXUAL HARM_CATEGORY_MEDICAL HARM_CATEGORY_DANGEROUS
    HARM_CATEGORY_IMAGE_HATE HARM_CATEGORY_IMAGE_DANGEROUS_CONTENT HARM_CATEGORY_IMAGE_HARASSMENT
    HARM_CATEGORY_IMAGE_SEXUALLY_EXPLICIT
"""
"""Message and field, the name of the enum, and its members. Other enum fields accept any word."""
_ENUMS_IN_ORDER = ("Type", "FunctionCallingConfig.Mode")
"""Enums whose members are listed in the order of their numbers."""
_ENUMS = {
    place: (name, members.split())
    for place, name, members in re.findall(r"(\S+): (\S+) =((?:\s+[A-Z_]+\b)+)", _ENUM_TABLE)
}

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


class Dialect(Struct, frozen=True):
    """An API in one of its versions, which decides which fields are known."""

    api: Api = Api.DEVELOPER
    version: str = "v1beta"
    call_ids: bool = True

    def type_url(self, name: str) -> str:
        package = "google.ai.generativelanguage" if self.api is Api.DEVELOPER else "google.cloud.aiplatform"
        return f"{_TYPE_URL}{package}.{self.version}.{name}"

    def knows(self, place: str) -> bool:
        return place not in _UNKNOWN[self.api] and (self.call_ids or place not in _CALL_IDS)


def read(message: type[AnyProto], body: bytes, dialect: Dialect) -> AnyProto:
    """Decode the body of a request."""
    reader = _Reader(dialect)
    try:
        canonical = reader.message(message, _decode(body), "")
    except RecursionError as error:
        raise invalid(TOO_DEEP) from error
    if reader.violations:
        raise invalid_json(reader.violations)
    try:
        return msgspec.convert(canonical, message)
    except (msgspec.ValidationError, RecursionError) as error:  # such as a number too large for its field
        raise invalid(f"Invalid JSON payload received. {error}") from error


def _decode(body: bytes) -> dict[str, Any]:
    try:
        decoded = msgspec.json.decode(body) if body.strip() else {}
    except RecursionError as error:
        raise invalid_json([("", "Invalid JSON payload received. Nested too deep.")]) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        excerpt = body[:60].decode("utf-8", "replace")
        raise invalid_json([("", f"Invalid JSON payload received. Unexpected token.\n{excerpt}\n^")]) from error
    if not isinstance(decoded, dict):
        raise invalid_json([("", 'Invalid JSON payload received. Unknown name "": Root element must be a message.')])
    return decoded


class _Field(NamedTuple):
    name: str
    """As in the messages of the server."""
    json_name: str
    place: str
    """The message and the name."""
    type: inspect.Type


@cache
def _fields(message: type[Proto], dialect: Dialect) -> dict[str, _Field]:
    """Return the fields of a message under both of their names, camelCase and snake_case."""
    info = inspect.type_info(message)
    assert isinstance(info, inspect.StructType), "a message is a Struct"
    fields = {}
    for field in info.fields:
        place = f"{message.__name__}.{field.name}"
        if field.encode_name != EXTRA and dialect.knows(place):
            known = _Field(field.name, field.encode_name, place, _without_none(field.type))
            fields[field.encode_name] = fields[field.name] = known
    return fields


def _without_none(type_: inspect.Type) -> inspect.Type:
    if not isinstance(type_, inspect.UnionType):
        return type_
    rest = tuple(member for member in type_.types if not isinstance(member, inspect.NoneType))
    return rest[0] if len(rest) == 1 else inspect.UnionType(rest)


class _Reader:
    """Converts a message to its canonical form: camelCase names, lists where the API allows single values."""

    def __init__(self, dialect: Dialect) -> None:
        self.violations: list[tuple[str, str]] = []
        self._dialect = dialect

    def message(self, message: type[Proto], data: dict[str, Any], path: str) -> dict[str, Any]:
        fields = _fields(message, self._dialect)
        canonical = {}
        for name, value in data.items():
            field = fields.get(name)
            if field is None:
                self._unknown_name(name, path, "Cannot find field.")
            elif value is not None:
                canonical[field.json_name] = self._field(field, name, value, path)
        return canonical

    def _field(self, field: _Field, name: str, value: Any, parent: str) -> Any:
        path = f"{parent}.{field.name}" if parent else field.name
        if isinstance(field.type, inspect.AnyType):
            return value
        if isinstance(field.type, inspect.ListType):
            items = enumerate(value if isinstance(value, list) else [value])
            item_type = field.type.item_type
            return [self._value(field, item_type, item, f"{path}[{at}]") for at, item in items if item is not None]
        if isinstance(value, list):
            return self._unknown_name(name, parent, "Proto field is not repeating, cannot start list.")
        return self._value(field, field.type, value, path)

    def _value(self, field: _Field, type_: inspect.Type, value: Any, path: str) -> Any:
        match type_:
            case inspect.StructType(cls=message):
                assert issubclass(message, Proto), "messages contain messages"
                if isinstance(value, dict):
                    return self.message(message, value, path)
                return self._invalid(path, self._dialect.type_url(message.__name__), value)
            case inspect.DictType(value_type=inspect.AnyType()):
                struct = f"{_TYPE_URL}google.protobuf.Struct"
                return value if isinstance(value, dict) else self._invalid(path, struct, value)
            case inspect.DictType(value_type=value_type):
                if not isinstance(value, dict):
                    return self._invalid(path, "Map", value)
                items = [(key, item) for key, item in value.items() if item is not None]
                return {
                    key: self._value(field, value_type, item, f"{path}[{at}].value")
                    for at, (key, item) in enumerate(items)
                }
        return self._scalar(field, type_, value, path)

    def _scalar(self, field: _Field, type_: inspect.Type, value: Any, path: str) -> Any:
        members = tuple(map(type, type_.types)) if isinstance(type_, inspect.UnionType) else type(type_)
        if members == (inspect.StrType, inspect.IntType):
            return self._enum(field, value, path)
        type_name, convert = ("TYPE_BYTES", _to_base64) if field.place in _BASE64 else _SCALARS[members]
        if isinstance(value, dict | list):
            return self._invalid(path, type_name, value, "Starting an object on a scalar field")
        converted = convert(value)
        if converted is None:
            reason = f"Base64 decoding failed for {_quote(value)}" if type_name == "TYPE_BYTES" else None
            return self._invalid(path, type_name, value, reason)
        return converted

    def _enum(self, field: _Field, value: Any, path: str) -> Any:
        name, members = _ENUMS.get(field.place, ("TYPE_ENUM", ()))
        if type(value) is int:
            return members[value] if name in _ENUMS_IN_ORDER and 0 <= value < len(members) else value
        if isinstance(value, str) and (not members or value.upper() in members):
            return value.upper() if members else value
        return self._invalid(path, self._dialect.type_url(name) if members else name, value)

    def _unknown_name(self, name: str, path: str, reason: str) -> None:
        at = f" at '{path}'" if path else ""
        self._add(path, f'Invalid JSON payload received. Unknown name "{name[:_MAX_QUOTED_CHARS]}"{at}: {reason}')

    def _invalid(self, path: str, type_name: str, value: Any, reason: str | None = None) -> None:
        self._add(path, f"Invalid value at '{path}' ({type_name}), {reason or _quote(value)}")

    def _add(self, path: str, message: str) -> None:
        if len(self.violations) < _MAX_VIOLATIONS:
            self.violations.append((path, message))


def _quote(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _MAX_QUOTED_CHARS else f"{text[:_MAX_QUOTED_CHARS]}…"


def _to_bool(value: Any) -> bool | None:
    return value if isinstance(value, bool) else {"true": True, "false": False}.get(str(value))


def _to_number(value: Any) -> int | float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value
    try:
        number = float(value)
    except ValueError:
        return None
    return number if abs(number) != float("inf") else None


def _to_integer(value: Any) -> int | None:
    number = _to_number(value)
    return int(number) if number is not None and number == number // 1 else None


def _to_base64(value: Any) -> str | None:
    """Return the value if the API can decode it: either alphabet, with or without padding."""
    try:
        data = value.encode("ascii").rstrip(b"=").translate(_FROM_URLSAFE)
        binascii.a2b_base64(data + b"=" * (-len(data) % 4), strict_mode=True)
    except (ValueError, AttributeError):
        return None
    return str(value)


_SCALARS: dict[Any, tuple[str, Callable[[Any], Any]]] = {
    inspect.StrType: ("TYPE_STRING", lambda value: value if isinstance(value, str) else None),
    inspect.BoolType: ("TYPE_BOOL", _to_bool),
    inspect.IntType: ("TYPE_INT32", _to_integer),
    (inspect.IntType, inspect.StrType): ("TYPE_INT64", _to_integer),
    (inspect.IntType, inspect.FloatType): ("TYPE_DOUBLE", _to_number),
}
