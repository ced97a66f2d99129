"""What a caller of the Gemini-level face says, as the body of a request."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import msgspec
from msgspec.structs import fields

from wasat.errors import ConfigError
from wasat.gemini.types import LARGEST_INLINE_BYTES, FunctionDeclaration, Tool
from wasat.providers.gemini import declarations, wire
from wasat.providers.gemini.capabilities import Capabilities
from wasat.providers.gemini.encode import Written, body_of, encode_message
from wasat.providers.gemini.proto import AnyProto, Proto, dump, from_plain, to_plain
from wasat.types.messages import History, Message
from wasat.types.specs import ToolChoice

Contents = Any
"""A text, a part, a content, a message; a list of them; a History; or dicts as the API has them."""
Toolish = Any
"""A tool or a declaration of this package, a built-in tool, a Python function, or a dict as the API has it."""


def request_fields(
    capabilities: Capabilities,
    *,
    system_instruction: Contents | None = None,
    tools: Toolish | Iterable[Toolish] | None = (),
    tool_choice: ToolChoice | str | dict[str, Any] | None = None,
    tool_config: Any = None,
    cached_content: str | None = None,
    generation_config: Any = None,
    **more: Any,
) -> bytes:
    """Every field of a request but its contents, each with a comma before it. `more` are fields of generationConfig
    (`temperature=…`, `thinking_config=…`), or of the request (`labels=…`, `safety_settings=…`).
    """
    top = {name: more.pop(name) for name in list(more) if name in _TOP_FIELDS}
    given = tools_of(_several(tools))
    request: dict[str, Any] = dict(top)
    if cached_content is not None:
        request["cached_content"] = cached_content  # which holds system instruction and tools; the API refuses both
    else:
        request |= {
            "system_instruction": _system(system_instruction),
            "tools": given or None,
            "tool_config": _tool_config(given, tool_choice, tool_config, capabilities),
        }
    request["generation_config"] = _generation_config(generation_config, more)
    message = from_plain_or_same(wire.GenerateContentRequest, {k: v for k, v in request.items() if v is not None})
    _check_types(message, _TOP_FIELDS | {"cached_content"})
    inside = dump(message)[1:-1]
    return b"," + inside if inside else b""


def request_of(contents: Contents, more: bytes, capabilities: Capabilities, *, needed: bool = True) -> bytes:
    """The body of a request: contents of any form, and the fields that `request_fields` made."""
    if isinstance(contents, History) and len(contents):
        return body_of(contents, more, capabilities)
    try:
        written = _contents(contents, capabilities)
    except (TypeError, UnicodeEncodeError) as error:
        raise ConfigError(f"the contents hold something that JSON cannot say: {error}") from error
    if needed and not written:
        raise ConfigError("there is nothing to ask: the contents are empty")
    body = b"".join((b'{"contents":[', written, b"]", more, b"}"))
    if len(body) > LARGEST_INLINE_BYTES:
        raise ConfigError(
            f"the request weighs {len(body) / 2**20:.1f} MB, and the API takes 20; upload large files with the "
            "Files API and give Part.from_uri(…)"
        )
    return body


def _contents(contents: Contents, capabilities: Capabilities) -> Written:
    if isinstance(contents, bytes | bytearray):
        raise ConfigError("bytes are no contents; say of what kind they are with Part.from_bytes(data, mime_type)")
    several = isinstance(contents, Sequence | History) and not isinstance(contents, str)
    items = list(contents) if several else [contents]
    if items and all(_is_part(item) for item in items):
        return dump(wire.Content(role="user", parts=[_part(item) for item in items]))
    pieces = [_content(item, capabilities) for item in items]
    return b",".join([piece for piece in pieces if piece])


def tools_of(tools: Iterable[Toolish]) -> list[declarations.Tool]:
    """Each built-in tool for itself, then all functions together as one tool."""
    builtin: list[declarations.Tool] = []
    functions: list[declarations.FunctionDeclaration] = []
    for one in tools:
        made = _tool(one)
        functions += made.function_declarations or []
        rest = msgspec.structs.replace(made, function_declarations=[] if isinstance(made, Tool) else None)
        if rest != type(rest)():
            builtin.append(rest)
    names = [declared.name for declared in functions]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two functions are called {name!r}; the API refuses that")
    return [*builtin, Tool(function_declarations=functions)] if functions else builtin


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


def declaration_of(function: Callable[..., Any]) -> FunctionDeclaration:
    """The declaration of a Python function or tool."""
    from wasat.schema.dialects import GEMINI_JSON_SCHEMA, lower  # loaded with the first tool
    from wasat.tools.function import tool_of

    spec = tool_of(function).spec
    lowered = lower(spec.parameters or {}, GEMINI_JSON_SCHEMA)
    schema = msgspec.UNSET if lowered.is_empty else lowered.schema
    return FunctionDeclaration(name=spec.name, description=spec.description, parameters_json_schema=schema)


def from_plain_or_same(form: type[AnyProto], value: Any) -> AnyProto:
    """The message, out of dicts if it is not one already."""
    if isinstance(value, form):
        return value
    if not isinstance(value, Mapping):
        raise ConfigError(f"{value!r} is no {form.__name__}; give one, or a dict of its fields")
    return from_plain(form, {name: to_plain(item) for name, item in value.items()})


_BUILTIN: dict[type[Proto], str] = {
    hint: name
    for name, hint in (
        ("google_search", declarations.GoogleSearch),
        ("google_search_retrieval", declarations.GoogleSearchRetrieval),
        ("url_context", declarations.UrlContext),
        ("code_execution", declarations.CodeExecution),
        ("google_maps", declarations.GoogleMaps),
        ("file_search", declarations.FileSearch),
        ("computer_use", declarations.ComputerUse),
        ("enterprise_web_search", declarations.EnterpriseWebSearch),
    )
}


def _tool(one: Toolish) -> declarations.Tool:
    match one:
        case declarations.Tool():
            return one
        case declarations.FunctionDeclaration():
            return Tool(function_declarations=[one])
        case declarations.McpServer():
            return declarations.Tool(mcp_servers=[one])
        case Proto() if type(one) in _BUILTIN:
            return from_plain(declarations.Tool, {_BUILTIN[type(one)]: to_plain(one)})
        case Mapping() if "name" in one:
            return Tool(function_declarations=[from_plain(declarations.FunctionDeclaration, dict(one))])
        case Mapping():
            return from_plain(declarations.Tool, dict(one))
    if isinstance(one, type) and issubclass(one, Proto):
        raise ConfigError(f"{one.__name__} is the kind of a tool; the tool is {one.__name__}()")
    if callable(one):
        return Tool(function_declarations=[declaration_of(one)])
    raise ConfigError(f"{one!r} is no tool: give a Tool, a FunctionDeclaration, a built-in tool, a function or a dict")


def _tool_config(
    tools: list[declarations.Tool], choice: Any, config: Any, capabilities: Capabilities
) -> declarations.ToolConfig | None:
    functions = [one.name for made in tools for one in made.function_declarations or []]
    mixed = bool(functions) and len(tools) > 1
    if mixed and not capabilities.builtin_with_functions:
        raise ConfigError("this model takes functions or built-in tools, not both; use a Gemini 3 model")
    made = declarations.ToolConfig() if config is None else from_plain_or_same(declarations.ToolConfig, config)
    chosen = None if choice is None else ToolChoice.of(choice)
    if mixed and capabilities.server_side_calls:
        made = msgspec.structs.replace(made, include_server_side_tool_invocations=True)
        if (chosen is None or chosen.mode == "auto") and made.function_calling_config is None:
            chosen = ToolChoice("validated")
    if chosen is not None:
        if chosen.mode == "any" and not functions:
            raise ConfigError("tool choice 'any' demands a call, but there are no functions")
        missing = [name for name in chosen.names if name not in functions]
        if missing:
            raise ConfigError(f"tool choice asks for {', '.join(missing)}, but there is no such function")
        mode = declarations.FunctionCallingConfig(
            mode=chosen.mode.upper(), allowed_function_names=list(chosen.names) or None
        )
        made = msgspec.structs.replace(made, function_calling_config=mode)
    return made if made != declarations.ToolConfig() else None


_TOP_FIELDS = {
    found.name for found in fields(wire.GenerateContentRequest) if found.name not in ("extra", "contents", "model")
} - {"system_instruction", "tools", "tool_config", "cached_content", "generation_config"}
_GENERATION_FIELDS = {found.name for found in fields(wire.GenerationConfig) if found.name != "extra"}


def _generation_config(config: Any, settings: dict[str, Any]) -> wire.GenerationConfig | None:
    for name in settings:
        if name not in _GENERATION_FIELDS:
            near = get_close_matches(name, [*_GENERATION_FIELDS, *_TOP_FIELDS], 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"there is no setting called {name!r}{hint}")
    base = to_plain(config) if isinstance(config, Proto) else dict(config or {})
    made = from_plain(wire.GenerationConfig, {**base, **{name: to_plain(value) for name, value in settings.items()}})
    _check_types(made, _GENERATION_FIELDS)
    return made if made != wire.GenerationConfig() else None


def _check_types(message: Proto, names: set[str]) -> None:
    """What has a name of ours and stands among the leftovers has not the type that this name stands for."""
    for name, value in message.extra.items():
        if name in names:
            raise ConfigError(f"{name} cannot be {value!r}; see the API's documentation for what it takes")


def _several(tools: Any) -> Iterable[Any]:
    """One tool or many, or none."""
    if tools is None:
        return ()
    return tools if isinstance(tools, Iterable) and not isinstance(tools, Mapping | str) else (tools,)


def _system(given: Contents | None) -> Any:
    if given is None or isinstance(given, wire.Content):
        return given
    if isinstance(given, Mapping) and "parts" in given:
        return dict(given)
    parts = given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    return wire.Content(parts=[_part(part) for part in parts])


def _is_part(item: Any) -> bool:
    return isinstance(item, str | wire.Part) or (
        isinstance(item, Mapping) and "parts" not in item and "role" not in item
    )


def _part(item: Any) -> wire.Part:
    if isinstance(item, str):
        return wire.Part(text=item)
    if isinstance(item, wire.Part | Mapping):
        return from_plain_or_same(wire.Part, item)
    raise ConfigError(f"{item!r} is no part of a content: give a text, a Part, a Content, a Message or a dict of them")


def _checked(content: wire.Content) -> wire.Content:
    if not isinstance(content.parts, list) or not all(isinstance(part, wire.Part) for part in content.parts):
        raise ConfigError(f"the parts of a content are a list of Part, not {content.parts!r}")
    return content


def _content(item: Any, capabilities: Capabilities) -> Written:
    match item:
        case Message():
            return encode_message(item, capabilities)
        case wire.Content():
            return dump(_checked(item))
        case Mapping() if "parts" in item or "role" in item:
            parts = item.get("parts")
            listed = parts if isinstance(parts, list | tuple) else [] if parts is None else [parts]
            return dump(_checked(from_plain(wire.Content, {**item, "parts": [to_plain(_part(one)) for one in listed]})))
    return dump(wire.Content(role="user", parts=[_part(item)]))
