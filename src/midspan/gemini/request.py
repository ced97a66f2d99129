"""The options of a request, and its body, from whatever a caller passes: contents, system instruction, settings."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

from msgspec.structs import replace

from midspan._types.encoded import join_body
from midspan._types.messages import ROLES, History, Message
from midspan._types.specs import Limits, ToolChoice
from midspan.errors import ConfigError
from midspan.gemini.output import is_type, output_fields
from midspan.gemini.tools import ToolLike, read_tool_config, read_tools
from midspan.gemini.types import describe, read, set_fields
from midspan.providers.gemini import wire
from midspan.providers.gemini.capabilities import Capabilities
from midspan.providers.gemini.encode import (
    HEAD,
    check_json_with_tools,
    encode_message,
    encode_messages,
    head_with,
    message_encoder,
)
from midspan.providers.gemini.proto import dump, to_plain

Contents = Any
"""A string, a part, a content, a message; a list of them; a History; or dicts as the API has them."""
_Object = Mapping[str, Any] | None

_EXPECTED = "pass a string, a Part, a Content, a Message, a dict of one of these, or a list of them"
_NAMED = ("system_instruction", "tools", "tool_choice", "tool_config", "cached_content", "generation_config")
_TOP_FIELDS = {*wire.GenerateContentRequest.__struct_fields__} - {"extra", "contents", "model", *_NAMED}
_GENERATION_FIELDS = {*wire.GenerationConfig.__struct_fields__} - {"extra"}


class RequestOptions(TypedDict, total=False):
    """Everything of a request beside its contents."""

    model: str | None
    """Default: the model of the client."""
    tools: Any
    """Functions, tools, declarations, toolboxes, built-in tools, dicts; one of them or a list."""
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


class AutoOptions(RequestOptions, total=False):
    """The options of a request whose calls are executed."""

    turn_limit: int | None
    """The maximum number of requests, 10 by default."""
    limits: Limits | dict[str, Any] | None


class RequestFields(NamedTuple):
    """Everything in a request but its contents: what stands before them, and what stands after them."""

    head: bytes
    tail: bytes
    form: Any
    """The Python type that the answer should be of; Any if it was not requested by a type."""

    @property
    def first_content(self) -> bytes:
        """The system instruction, for a model that gets it as a content."""
        return self.head.removeprefix(HEAD).removesuffix(b",")

    def body(self, contents: Contents, capabilities: Capabilities, *, may_be_empty: bool = False) -> bytes:
        """Return the body of a request with these contents."""
        if isinstance(contents, History) and len(contents):
            return join_body(contents, message_encoder(capabilities), self.head, b"]%b}" % self.tail)
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
    request = read(
        wire.GenerateContentRequest, {name: settings.pop(name) for name in _TOP_FIELDS & settings.keys()}, ""
    )
    declared = read_tools(tools)
    head = HEAD
    if cached_content is not None:  # which holds system instruction and tools; the API rejects both beside it
        request = replace(request, cached_content=cache_name(cached_content))
    else:
        system = _read_system(system_instruction)
        if system is not None and not capabilities.system_instruction:
            head, system = head_with(to_plain(replace(system, role="user"))), None
        config = read_tool_config(declared, tool_choice, tool_config, capabilities)
        request = replace(request, system_instruction=system, tools=declared or None, tool_config=config)
    generation, form = _generation_config(generation_config, settings)
    if request.tools and generation and generation.response_mime_type == "application/json":
        check_json_with_tools(capabilities)
    inner = dump(replace(request, generation_config=generation))[1:-1]
    return RequestFields(head, b"," + inner if inner else b"", form)


def _generation_config(config: Any, settings: dict[str, Any]) -> tuple[wire.GenerationConfig | None, Any]:
    """Return the generation config, and the type of the answer. A setting by its name replaces the one in `config`."""
    for name in settings:
        if name not in _GENERATION_FIELDS:
            raise ConfigError(f"unknown setting {name!r}")
    merged = {} if config is None else set_fields(wire.GenerationConfig, config, "generation_config")
    merged |= {name: value for name, value in settings.items() if value is not None}
    schema, json_schema = merged.pop("response_schema", None), merged.pop("response_json_schema", None)
    merged |= output_fields(schema, json_schema, merged.get("response_mime_type"))
    form = next((item for item in (schema, json_schema) if is_type(item)), Any)
    return read(wire.GenerationConfig, merged, "") if merged else None, form


def cache_name(cache: wire.CachedContent | str) -> str:
    """Return the name of a cache, which may be passed itself."""
    name = cache.name if isinstance(cache, wire.CachedContent) else cache
    if not name:
        raise ConfigError("'' is not a valid name in cachedContents")
    return name


def encode_contents(contents: Contents, capabilities: Capabilities) -> bytes:
    """Return the contents as JSON, with commas between them."""
    is_list = isinstance(contents, list | tuple | History)
    items = list(contents) if is_list else [contents]
    if items and all(isinstance(item, Message) for item in items):
        return b",".join(encode_messages(items, capabilities))
    if items and all(_is_part(item) for item in items):
        items = [{"role": "user", "parts": items}]  # parts in a row are one turn
    encoded = [
        encode_message(item, capabilities) if isinstance(item, Message) else _encode_content(item, f"contents[{at}]")
        for at, item in enumerate(items)
    ]
    return b",".join([content for content in encoded if content])


def _is_part(item: Any) -> bool:
    return isinstance(item, str | wire.Part) or (isinstance(item, Mapping) and not {"parts", "role"} & item.keys())


def _encode_content(item: Any, where: str) -> bytes:
    content = _read_content({"role": "user", "parts": [item]} if _is_part(item) else item, where)
    return dump(content) if content.parts else b""  # the API rejects a content without parts


def _read_content(item: Any, where: str) -> wire.Content:
    """Return a content, whose parts may be strings, or a single one without a list.

    A content of the model may have fields of unexpected types, and goes back unchanged.
    """
    if not isinstance(item, wire.Content | Mapping):
        raise ConfigError(f"{where} cannot be {describe(item)}; {_EXPECTED}")
    fields = set_fields(wire.Content, item, where)
    if (role := fields.get("role")) is not None:
        if role not in ROLES:
            raise ConfigError(
                f"{where} has the role {role!r}; use 'user' or 'model', and system_instruction=… for a system prompt"
            )
        fields["role"] = ROLES[role]
    parts = fields.get("parts", [])
    parts = parts if isinstance(parts, list | tuple) else [parts]
    fields["parts"] = [{"text": part} if isinstance(part, str) else part for part in parts]
    return read(wire.Content, fields, where, strict=fields.get("role") != "model")


def _read_system(system: Contents | None) -> wire.Content | None:
    """Return a system instruction as a content without a role."""
    if system is None:
        return None
    if not isinstance(system, wire.Content) and not (isinstance(system, Mapping) and "parts" in system):
        system = {"parts": system}
    fields = set_fields(wire.Content, system, "system_instruction")
    return _read_content({**fields, "role": None}, "system_instruction")
