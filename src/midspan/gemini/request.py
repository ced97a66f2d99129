"""The options of a request, and its body, from whatever a caller passes: contents, system instruction, settings."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple, TypedDict

from msgspec.structs import fields, replace

from midspan._types.messages import ROLES, History, Message
from midspan._types.specs import Limits, ToolChoice
from midspan.errors import ConfigError
from midspan.gemini.output import output_fields
from midspan.gemini.tools import ToolLike, read_tool_config, read_tools
from midspan.gemini.types import describe, is_valid, read, set_fields, to_json
from midspan.providers.gemini import wire
from midspan.providers.gemini.capabilities import Capabilities
from midspan.providers.gemini.encode import (
    HEAD,
    body_of,
    check_json_with_tools,
    encode_message,
    encode_messages,
    head_with,
)
from midspan.providers.gemini.proto import dump, from_plain, to_plain

Contents = Any
"""A string, a part, a content, a message; a list of them; a History; or dicts as the API has them."""
_Object = Mapping[str, Any] | None

_EXPECTED = "pass a string, a Part, a Content, a Message, a dict of one of these, or a list of them"
_NAMED = ("system_instruction", "tools", "tool_choice", "tool_config", "cached_content", "generation_config")
_TOP_FIELDS = {field.name for field in fields(wire.GenerateContentRequest)} - {"extra", "contents", "model", *_NAMED}
_GENERATION_FIELDS = {field.name for field in fields(wire.GenerationConfig)} - {"extra"}


class _Options(TypedDict, total=False):
    """Everything of a request beside its contents, its model and its tools."""

    system_instruction: Any
    tool_choice: ToolChoice | str | dict[str, Any] | None
    tool_config: wire.ToolConfig | _Object
    cached_content: wire.CachedContent | str | None
    safety_settings: Sequence[wire.SafetySetting | Mapping[str, Any]] | None
    labels: dict[str, str] | None
    service_tier: str | None
    store: bool | None
    continuation_token: str | None
    model_armor_config: _Object
    generation_output_config: _Object
    generation_config: wire.GenerationConfig | _Object
    # The fields of the generation config.
    temperature: float | None
    top_p: float | None
    top_k: float | None
    candidate_count: int | None
    max_output_tokens: int | None
    stop_sequences: Sequence[str] | None
    response_logprobs: bool | None
    logprobs: int | None
    presence_penalty: float | None
    frequency_penalty: float | None
    seed: int | None
    response_mime_type: str | None
    response_schema: Any
    response_json_schema: Any
    response_format: Any
    response_modalities: Sequence[str] | None
    media_resolution: str | None
    speech_config: _Object
    thinking_config: wire.ThinkingConfig | _Object
    image_config: _Object
    enable_enhanced_civic_answers: bool | None
    audio_transcription_config: _Object
    translation_config: _Object
    audio_timestamp: bool | None
    routing_config: _Object
    model_selection_config: _Object
    enable_affective_dialog: bool | None


class RequestOptions(_Options, total=False):
    """Everything of a request beside its contents and its model."""

    tools: Any
    """Functions, tools, declarations, toolboxes, built-in tools, dicts; one of them or a list."""


class AutoOptions(_Options, total=False):
    """The options of a request whose calls are executed."""

    model: str | None
    turn_limit: int | None
    """The maximum number of requests, 10 by default."""
    limits: Limits | dict[str, Any] | None


class RequestFields(NamedTuple):
    """Everything in a request but its contents: what stands before them, and what stands after them."""

    head: bytes
    tail: bytes

    @property
    def first_content(self) -> bytes:
        """The system instruction, for a model that gets it as a content."""
        return self.head.removeprefix(HEAD).removesuffix(b",")

    def body(self, contents: Contents, capabilities: Capabilities, *, may_be_empty: bool = False) -> bytes:
        """Return the body of a request with these contents."""
        if isinstance(contents, History) and len(contents):
            return body_of(contents, self.head, b"]%b}" % self.tail, capabilities)
        encoded = encode_contents(contents, capabilities)
        if not encoded and not may_be_empty:
            raise ConfigError("the contents are empty")
        return b"".join((self.head, encoded, b"]", self.tail, b"}"))


def request_fields(
    capabilities: Capabilities,
    *,
    system_instruction: Contents | None = None,
    tools: ToolLike | Sequence[ToolLike] | None = (),
    tool_choice: Any = None,
    tool_config: Any = None,
    cached_content: Any = None,
    generation_config: Any = None,
    **settings: Any,
) -> RequestFields:
    """Return the fields of a request. `settings` are fields of generationConfig (`temperature=…`) or of the request
    (`labels=…`, `safety_settings=…`).
    """
    top = {name: settings.pop(name) for name in list(settings) if name in _TOP_FIELDS}
    request = read(wire.GenerateContentRequest, {name: item for name, item in top.items() if item is not None}, "")
    declared = read_tools(tools)
    head = HEAD
    if cached_content is not None:  # which holds system instruction and tools; the API rejects both beside it
        request = replace(request, cached_content=cache_name(cached_content, "cached_content"))
    else:
        system = _read_system(system_instruction)
        if system is not None and not capabilities.system_instruction:
            head, system = head_with(to_plain(replace(system, role="user"))), None
        config = read_tool_config(declared, tool_choice, tool_config, capabilities)
        request = replace(request, system_instruction=system, tools=declared or None, tool_config=config)
    generation = _generation_config(generation_config, settings)
    if request.tools and generation and generation.response_mime_type == "application/json":
        check_json_with_tools(capabilities)
    inner = dump(replace(request, generation_config=generation))[1:-1]
    return RequestFields(head, b"," + inner if inner else b"")


def _generation_config(config: Any, settings: dict[str, Any]) -> wire.GenerationConfig | None:
    """Return the generation config; a setting that is passed by its own name replaces the one in `config`."""
    for name in settings:
        if name not in _GENERATION_FIELDS:
            similar = get_close_matches(name, [*_GENERATION_FIELDS, *_TOP_FIELDS, *_NAMED], 1)
            raise ConfigError(f"unknown setting {name!r}{f'; did you mean {similar[0]}?' if similar else ''}")
    merged = {} if config is None else set_fields(wire.GenerationConfig, config, "generation_config")
    merged |= {name: value for name, value in settings.items() if value is not None}
    schema, json_schema = merged.pop("response_schema", None), merged.pop("response_json_schema", None)
    merged |= output_fields(schema, json_schema, merged.get("response_mime_type"))
    return read(wire.GenerationConfig, merged, "") if merged else None


def cache_name(cache: Any, where: str) -> str:
    """Return the name of a cache, which may be passed itself."""
    name = cache.name if isinstance(cache, wire.CachedContent) else cache
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise ConfigError(f"{where} cannot be {describe(cache)}; it is not a valid name in cachedContents")
    return name


def encode_contents(contents: Contents, capabilities: Capabilities) -> bytes:
    """Return the contents as JSON, with commas between them."""
    if isinstance(contents, bytes | bytearray | memoryview):
        raise ConfigError("contents cannot be bytes; pass Part.from_bytes(data, mime_type)")
    is_list = isinstance(contents, Sequence | History) and not isinstance(contents, str)
    items = list(contents) if is_list else [contents]
    if items == [""]:
        return b""
    if items and all(isinstance(item, Message) for item in items):
        return b",".join(encode_messages(items, capabilities))
    if items and all(_is_part(item) for item in items):
        items, is_list = [{"role": "user", "parts": items}], False  # parts in a row are one turn
    encoded = [
        encode_message(item, capabilities)
        if isinstance(item, Message)
        else _encode_content(item, f"contents[{at}]" if is_list else "contents")
        for at, item in enumerate(items)
    ]
    return b",".join([content for content in encoded if content])


def _is_part(item: Any) -> bool:
    return isinstance(item, str | wire.Part) or (isinstance(item, Mapping) and not {"parts", "role"} & item.keys())


def _encode_content(item: Any, where: str) -> bytes:
    content = _read_content({"role": "user", "parts": [item]} if _is_part(item) else item, where)
    if content.role != "model" and (not content.parts or any(part == type(part)() for part in content.parts)):
        raise ConfigError(f"{where} is empty, or one of its parts is; {_EXPECTED}")
    return dump(content) if content.parts else b""  # the API rejects a content without parts


def _read_content(item: Any, where: str) -> wire.Content:
    """Return a content, whose parts may be strings, or a single one without a list.

    A content of the model may have unknown fields, and goes back unchanged.
    """
    if isinstance(item, wire.Content) and item.role in (None, "user", "model") and is_valid(wire.Content, item):
        return item
    if not isinstance(item, wire.Content | Mapping):
        raise ConfigError(f"{where} cannot be or contain {describe(item)}; {_EXPECTED}")
    items = set_fields(wire.Content, item, where)
    role, parts = items.get("role"), items.get("parts", [])
    if role is not None:
        items["role"] = role = _read_role(role, where)
    parts = parts if isinstance(parts, list | tuple) else [parts]
    if invalid := [part for part in parts if not isinstance(part, str | wire.Part | Mapping)]:
        raise ConfigError(f"{where} cannot be or contain {describe(invalid[0])}; {_EXPECTED}")
    items["parts"] = [{"text": part} if isinstance(part, str) else part for part in parts]
    return from_plain(wire.Content, to_json(items, where)) if role == "model" else read(wire.Content, items, where)


def _read_role(role: Any, where: str) -> str:
    if role in ("system", "developer"):
        raise ConfigError(f"{where} has the role {role!r}; pass such text as system_instruction=…")
    if not isinstance(role, str) or role not in ROLES:
        raise ConfigError(f"{where} has the role {describe(role)}; use 'user' or 'model'")
    return ROLES[role]


def _read_system(system: Contents | None) -> wire.Content | None:
    """Return a system instruction as a content without a role."""
    if system is None:
        return None
    if not isinstance(system, wire.Content) and not (isinstance(system, Mapping) and "parts" in system):
        system = {"parts": system}
    fields = set_fields(wire.Content, system, "system_instruction")
    return _read_content({**fields, "role": None}, "system_instruction")
