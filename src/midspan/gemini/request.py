"""What a caller of the Gemini-level face says, as the body of a request."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from msgspec.structs import fields, replace

from midspan._types.messages import History
from midspan._types.specs import ToolChoice
from midspan.errors import ConfigError
from midspan.gemini.checking import given_fields, plain, read_plain, shown
from midspan.gemini.contents import Contents, check_messages, encode_contents, system_content
from midspan.gemini.output import output_fields
from midspan.gemini.tools import Toolish, declaration_of, tool_config_of, tools_of
from midspan.providers.gemini import wire
from midspan.providers.gemini.capabilities import Capabilities
from midspan.providers.gemini.config import check_json_with_tools
from midspan.providers.gemini.encode import body_of
from midspan.providers.gemini.proto import AnyProto, Proto, dump, from_plain, to_plain

__all__ = [
    "Contents",
    "Toolish",
    "declaration_of",
    "from_plain_or_same",
    "identity_of",
    "request_fields",
    "request_of",
    "tools_of",
]


def request_fields(
    capabilities: Capabilities,
    *,
    system_instruction: Contents | None = None,
    tools: Toolish | Iterable[Toolish] | None = (),
    tool_choice: ToolChoice | str | dict[str, Any] | None = None,
    tool_config: Any = None,
    cached_content: Any = None,
    generation_config: Any = None,
    **more: Any,
) -> bytes:
    """Every field of a request but its contents, each with a comma before it. `more` are fields of generationConfig
    (`temperature=…`, `thinking_config=…`), or of the request (`labels=…`, `safety_settings=…`).
    """
    top = {name: more.pop(name) for name in list(more) if name in _TOP_FIELDS}
    given = {name: plain(value, name) for name, value in top.items() if value is not None}
    request = read_plain(wire.GenerateContentRequest, given, "") if given else wire.GenerateContentRequest()
    declared = tools_of(tools)
    if cached_content is not None:
        # It holds system instruction and tools; the API refuses both beside it.
        request = replace(request, cached_content=cache_name(cached_content, "cached_content"))
    else:
        request = replace(
            request,
            system_instruction=system_content(system_instruction),
            tools=declared or None,
            tool_config=tool_config_of(declared, tool_choice, tool_config, capabilities),
        )
    request = replace(request, generation_config=_generation_config(generation_config, more))
    _check_output(request, capabilities)
    inside = dump(request)[1:-1]
    return b"," + inside if inside else b""


def _check_output(request: wire.GenerateContentRequest, capabilities: Capabilities) -> None:
    config = request.generation_config
    if request.tools and config and config.response_mime_type == _JSON:
        check_json_with_tools(capabilities)


def request_of(contents: Contents, more: bytes, capabilities: Capabilities, *, needed: bool = True) -> bytes:
    """The body of a request: contents of any form, and the fields that `request_fields` made."""
    if isinstance(contents, History) and len(contents):
        check_messages(contents)
        return body_of(contents, more, capabilities)
    written = encode_contents(contents, capabilities)
    if needed and not written:
        raise ConfigError("there is nothing to ask: the contents are empty")
    return b"".join((b'{"contents":[', written, b"]", more, b"}"))


def cache_name(given: Any, where: str) -> str:
    """The name of a cache, also of one that was just made."""
    name = given.name if isinstance(given, wire.CachedContent) else given
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise ConfigError(f"{where} cannot be {shown(given)}; it is not a valid name in cachedContents")
    return name


_JSON = "application/json"
_SCALARS = frozenset((str, int, float, bool, type(None)))


def identity_of(request: dict[str, Any]) -> tuple[Any, ...] | None:
    """What tells two requests apart without looking far into them; None if something in it may change in place."""
    key: list[Any] = []
    for name, value in request.items():
        items = value if type(value) in (list, tuple) else (value,)
        key.append(name)
        for item in items:
            kind = type(item)
            if kind in _SCALARS:
                key += (kind, item)  # the kind too, because True is 1
            elif not isinstance(item, Proto) and callable(item):
                key.append(id(item))
            else:
                return None
    return tuple(key)


def from_plain_or_same(form: type[AnyProto], value: Any) -> AnyProto:
    """The message, out of dicts if it is not one already; nothing in it is refused, for it is the server's."""
    if isinstance(value, form):
        return value
    if not isinstance(value, Mapping):
        raise ConfigError(f"{shown(value)} is no {form.__name__}; give one, or a dict of its fields")
    return from_plain(form, {name: to_plain(item) for name, item in value.items()})


_TOP_FIELDS = {
    found.name for found in fields(wire.GenerateContentRequest) if found.name not in ("extra", "contents", "model")
} - {"system_instruction", "tools", "tool_config", "cached_content", "generation_config"}
_GENERATION_FIELDS = {found.name for found in fields(wire.GenerationConfig) if found.name != "extra"}
_OTHER_FIELDS = ("system_instruction", "tools", "tool_choice", "tool_config", "cached_content", "generation_config")
_OUTPUT_FIELDS = ("response_schema", "response_json_schema")


def _generation_config(config: Any, settings: dict[str, Any]) -> wire.GenerationConfig | None:
    """What is given by its own name counts before what the config says."""
    for name in settings:
        if name not in _GENERATION_FIELDS:
            near = get_close_matches(name, [*_GENERATION_FIELDS, *_TOP_FIELDS, *_OTHER_FIELDS], 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"there is no setting called {name!r}{hint}")
    both = {} if config is None else given_fields(wire.GenerationConfig, config, "generation_config")
    both |= {name: value for name, value in settings.items() if value is not None}
    schema, json_schema = (both.pop(name, None) for name in _OUTPUT_FIELDS)
    both |= output_fields(schema, json_schema, both.get("response_mime_type"))
    if not both:
        return None
    return read_plain(wire.GenerationConfig, plain(both, ""), "", names=not isinstance(config, Proto))
