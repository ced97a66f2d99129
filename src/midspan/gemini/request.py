"""The body of a request, from whatever a caller passes: contents, system instruction, tools and settings."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from msgspec.structs import fields, replace

from midspan._types.encoded import EncodedMessage
from midspan._types.messages import ROLES, History, Message
from midspan._types.texts import check_text
from midspan.errors import ConfigError
from midspan.gemini.checking import describe, encode, read, read_json, set_fields, to_json
from midspan.gemini.output import output_fields
from midspan.gemini.tools import ToolLike, read_tool_config, read_tools
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
from midspan.providers.gemini.proto import Proto, dump, from_plain, to_plain

Contents = Any
"""A string, a part, a content, a message; a list of them; a History; or dicts as the API has them."""

_EXPECTED = "pass a string, a Part, a Content, a Message, a dict of one of these, or a list of them"
_NAMED = ("system_instruction", "tools", "tool_choice", "tool_config", "cached_content", "generation_config")
_TOP_FIELDS = {field.name for field in fields(wire.GenerateContentRequest)} - {"extra", "contents", "model", *_NAMED}
_GENERATION_FIELDS = {field.name for field in fields(wire.GenerationConfig)} - {"extra"}


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
            return body_of(contents, self.tail, capabilities, head=self.head)
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
    top = {name: to_json(value, name) for name, value in top.items() if value is not None}
    request = read_json(wire.GenerateContentRequest, top, "") if top else wire.GenerateContentRequest()
    declared = read_tools(tools)
    head = HEAD
    if cached_content is not None:  # which holds system instruction and tools; the API rejects both beside it
        request = replace(request, cached_content=cache_name(cached_content, "cached_content"))
    else:
        system = read_system(system_instruction)
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
    if not merged:
        return None
    return read_json(wire.GenerationConfig, to_json(merged, ""), "", check_names=not isinstance(config, Proto))


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
        _encode_content(item, f"contents[{at}]" if is_list else "contents", capabilities)
        for at, item in enumerate(items)
    ]
    return b",".join([content for content in encoded if content])


def _is_part(item: Any) -> bool:
    return isinstance(item, str | wire.Part) or (isinstance(item, Mapping) and not {"parts", "role"} & item.keys())


def _encode_content(item: Any, where: str, capabilities: Capabilities) -> EncodedMessage:
    """Return a content as JSON. A content of the model may have unknown fields, and goes back unchanged."""
    if isinstance(item, Message):
        return encode_message(item, capabilities)
    content = _read_content(item, where)
    is_model, parts = content.role == "model", content.parts or []
    if is_model and not parts:
        return b""  # the API rejects a content without parts
    if not is_model and (not parts or any(part == type(part)() for part in parts)):
        raise ConfigError(f"{where} is empty, or one of its parts is; {_EXPECTED}")
    return encode(wire.Content, content, where, check_types=not is_model)


def _read_content(item: Any, where: str) -> wire.Content:
    """Return a content from a part, or from a dict, whose parts may be strings, or a single one without a list."""
    if isinstance(item, wire.Content):
        if not isinstance(item.parts, list | tuple) or not all(isinstance(part, wire.Part) for part in item.parts):
            raise ConfigError(f"the parts of {where} must be a list of Part, got {describe(item.parts)}")
        return item if item.role is None else replace(item, role=_read_role(item.role, where))
    if not isinstance(item, Mapping) or _is_part(item):
        return wire.Content(role="user", parts=[_read_part(item, where)])
    parts = item.get("parts")
    parts = parts if isinstance(parts, list | tuple) else [] if parts is None else [parts]
    role = None if item.get("role") is None else _read_role(item["role"], where)
    is_model = role == "model"
    fields = to_json({**item, "parts": [], "role": role}, where)
    content = from_plain(wire.Content, fields) if is_model else read_json(wire.Content, fields, where)
    return replace(content, parts=[_read_part(part, where, is_model=is_model) for part in parts])


def _read_part(item: Any, where: str, *, is_model: bool = False) -> wire.Part:
    if isinstance(item, str):
        check_text(item, where)
        return wire.Part(text=item)
    if isinstance(item, wire.Part):
        return item  # its fields are checked when it is encoded
    if not isinstance(item, Mapping):
        raise ConfigError(f"{where} cannot be or contain {describe(item)}; {_EXPECTED}")
    fields = to_json(item, where)
    return from_plain(wire.Part, fields) if is_model else read_json(wire.Part, fields, where)


def _read_role(role: Any, where: str) -> str:
    if role in ("system", "developer"):
        raise ConfigError(f"{where} has the role {role!r}; pass such text as system_instruction=…")
    if not isinstance(role, str) or role not in ROLES:
        raise ConfigError(f"{where} has the role {describe(role)}; use 'user' or 'model'")
    return ROLES[role]


def read_system(system: Contents | None) -> wire.Content | None:
    """Return a system instruction as a content without a role."""
    where = "system_instruction"
    if system is None:
        return None
    if isinstance(system, Mapping) and "parts" in system:
        system = _read_content({name: value for name, value in system.items() if name != "role"}, where)
    elif not isinstance(system, wire.Content):
        items = system if isinstance(system, list | tuple) else [system]
        system = wire.Content(parts=[_read_part(item, where) for item in items])
    return read(wire.Content, system, where)
