"""The options of a request and its body, built from what a caller passes: contents, system prompt, tools, settings."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypedDict

from msgspec import UNSET
from msgspec.structs import replace

from midspan._schema.adapt import adapt_schema
from midspan._types.encoded import EncodedMessage, join_body
from midspan._types.messages import ROLES, History, Message
from midspan._types.specs import Limits, ToolChoice, ToolSpec
from midspan.errors import ConfigError, SchemaError
from midspan.gemini.types import FunctionDeclaration, check_schema, read, set_fields, to_json_data
from midspan.providers.gemini import encode, wire
from midspan.providers.gemini.capabilities import FUNCTION_NAME, GEMINI_JSON_SCHEMA, Capabilities
from midspan.providers.gemini.proto import Proto, dump, from_plain, has_extra, to_plain
from midspan.tools.function import tool_of
from midspan.tools.toolbox import SessionTools, Toolbox

Contents = Any
"""A string, a part, a content, a message; a list of them; a History; or dicts as the API has them."""
_Object = Mapping[str, Any] | None

_NAMED = ("system_instruction", "tools", "tool_choice", "tool_config", "cached_content", "generation_config")
_TOP_FIELDS = {*wire.GenerateContentRequest.__struct_fields__} - {"extra", "contents", "model", *_NAMED}


class RequestOptions(TypedDict, total=False):
    """Everything in a request except its contents."""

    model: str | None
    """Default: the model of the client."""
    tools: Any
    """Functions, tools, declarations, toolboxes, built-in tools, dicts of Gemini or OpenAI; one of them or a list."""
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
    # Fields of the generation config. The others are passed in `generation_config`.
    temperature: float | None
    top_p: float | None
    top_k: float | None
    max_output_tokens: int | None
    stop_sequences: Sequence[str] | None
    seed: int | None
    response_mime_type: str | None
    response_schema: Any
    """A Python type, a Schema or a dict."""
    response_json_schema: Any
    thinking_config: wire.ThinkingConfig | _Object


class AutoOptions(RequestOptions, total=False):
    """The options of a request whose calls are executed."""

    turn_limit: int | None
    """The maximum number of requests, 10 by default."""
    limits: Limits | dict[str, Any] | None
    """All limits of the run, in place of `turn_limit`."""


class RequestFields(NamedTuple):
    """Everything in a request except its contents, as the JSON before and after them."""

    head: bytes
    tail: bytes
    output_type: Any
    """The Python type of the answer; Any if no type was passed."""

    def body(self, contents: Contents, capabilities: Capabilities, *, may_be_empty: bool = False) -> bytes:
        """Return the body of a request with these contents."""
        if isinstance(contents, History) and len(contents):
            return join_body(contents, encode.message_encoder(capabilities), self.head, b"]%b}" % self.tail)
        encoded = encode_contents(contents, capabilities)
        if not encoded and not may_be_empty:
            raise ConfigError("the contents are empty")
        return b"".join((self.head, encoded, b"]", self.tail, b"}"))


def request_fields(
    capabilities: Capabilities,
    *,
    system_instruction: Contents | None = None,
    tools: Any = (),
    tool_choice: Any = None,
    tool_config: Any = None,
    cached_content: Any = None,
    generation_config: Any = None,
    **settings: Any,
) -> RequestFields:
    """Return the fields of a request. `settings` are fields of generationConfig or of the request itself."""
    request = read(
        wire.GenerateContentRequest, {name: settings.pop(name) for name in _TOP_FIELDS & settings.keys()}, ""
    )
    declared = read_tools(tools)
    head = encode.HEAD
    if cached_content is not None:  # it holds the tools, which the API rejects in the request
        held = {"system_instruction": system_instruction, "tool_choice": tool_choice, "tool_config": tool_config}
        request = replace(request, cached_content=cache_name(cached_content, **held))
    else:
        system = _read_system(system_instruction)
        if system is not None and not capabilities.system_instruction:
            head, system = encode.head_with(to_plain(replace(system, role="user"))), None
        config = read_tool_config(declared, tool_choice, tool_config, capabilities)
        request = replace(request, system_instruction=system, tools=declared or None, tool_config=config)
    generation, output_type = _generation_config(generation_config, settings)
    if request.tools and generation and generation.response_mime_type == "application/json":
        encode.check_json_with_tools(capabilities)
    inner = dump(replace(request, generation_config=generation))[1:-1]
    return RequestFields(head, b"," + inner if inner else b"", output_type)


def _generation_config(config: Any, settings: dict[str, Any]) -> tuple[wire.GenerationConfig | None, Any]:
    """Return the generation config, and the type of the answer. A setting by its name replaces the one in `config`."""
    for name in settings:
        if name not in RequestOptions.__annotations__:
            raise ConfigError(f"unknown setting {name!r}; if the API has it, pass generation_config={{{name!r}: …}}")
    merged = {} if config is None else set_fields(wire.GenerationConfig, config, "generation_config")
    merged |= {name: value for name, value in settings.items() if value is not None}
    schema, json_schema = merged.pop("response_schema", None), merged.pop("response_json_schema", None)
    fields, output_type = _output_fields(schema, json_schema, merged.get("response_mime_type"))
    merged = fields | merged
    return read(wire.GenerationConfig, merged, "") if merged else None, output_type


def _output_fields(schema: Any, json_schema: Any, mime_type: Any) -> tuple[dict[str, Any], Any]:
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
        return fields | _schema_field(requested, "response_schema", "response_schema", "response_json_schema"), Any
    if mime_type not in (None, "application/json"):
        raise ConfigError(f"an answer of a type is JSON, not {mime_type}; leave response_mime_type out")
    from midspan._schema.output_type import OutputType  # loaded with the first type

    adapted = adapt_schema(OutputType(requested).schema, GEMINI_JSON_SCHEMA, arguments=False).schema
    return fields | ({"response_json_schema": adapted} if adapted else {}), requested


def _schema_field(schema: Any, where: str, name: str, json_name: str) -> dict[str, Any]:
    """Return the schema under `name` if it has only keywords of the API's own schemas, else under `json_name`."""
    plain = check_schema(schema, where)
    if isinstance(plain, bool):
        raise SchemaError(f"{where}: {plain} is not an object")
    return {json_name if has_extra(from_plain(wire.Schema, plain)) else name: plain}


def cache_name(cache: wire.CachedContent | str, **held: Any) -> str:
    """Return the name of a cache, given as a name or as a CachedContent. A request cannot have what the cache holds."""
    for option, value in held.items():
        if value is not None:
            remedy = "pass system_instruction, tools and tool_config to caches.create"
            raise ConfigError(f"{option} cannot be combined with cached_content, because the cache holds it; {remedy}")
    name = cache.name if isinstance(cache, wire.CachedContent) else cache
    if not name:
        raise ConfigError("'' is not a valid name in cachedContents")
    return name


def encode_contents(contents: Contents, capabilities: Capabilities) -> bytes:
    """Return the contents as JSON, with commas between them."""
    is_list = isinstance(contents, list | tuple | History)
    items = list(contents) if is_list else [contents]
    if items and all(isinstance(item, Message) for item in items):
        return b",".join(encode.encode_messages(items, capabilities))
    if items and all(_is_part(item) for item in items):
        items = [{"role": "user", "parts": items}]  # parts in a row are one turn
    encoded = [_encode_content(item, f"contents[{at}]", capabilities) for at, item in enumerate(items)]
    return b",".join([content for content in encoded if content])


def _is_part(item: Any) -> bool:
    return isinstance(item, str | wire.Part) or (isinstance(item, Mapping) and not {"parts", "role"} & item.keys())


def _encode_content(item: Any, where: str, capabilities: Capabilities) -> EncodedMessage:
    if isinstance(item, Message):
        return encode.encode_message(item, capabilities)
    content = _read_content({"role": "user", "parts": [item]} if _is_part(item) else item, where)
    return dump(content) if content.parts else b""  # the API rejects a content without parts


def _read_content(item: Any, where: str) -> wire.Content:
    """Return a content, whose parts may be strings, or a single one without a list.

    A content of the model may have fields of unexpected types, and goes back unchanged.
    """
    if not isinstance(item, wire.Content | Mapping):
        expected = "a string, a Part, a Content, a Message, a dict of one of these, or a list of them"
        raise ConfigError(f"{where} cannot be {item!r:.80}; pass {expected}")
    fields = set_fields(wire.Content, item, where)
    if "content" in fields:
        raise ConfigError(f"{where} has 'content' as in other APIs; a content of Gemini has 'role' and 'parts'")
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


def tool_list(tools: Any) -> list[Any]:
    """Return the tools that a caller passed: several, one or none."""
    if isinstance(tools, list | tuple):
        return list(tools)
    return [] if tools is None else [tools]


def read_tools(tools: Any) -> list[wire.Tool]:
    """Return each built-in tool as a tool, then all functions together as one tool."""
    builtins: list[wire.Tool] = []
    functions: list[wire.FunctionDeclaration] = []
    for at, item in enumerate(tool_list(tools)):
        tool = _read_tool(item, f"tools[{at}]")
        functions += tool.function_declarations or []
        tool = replace(tool, function_declarations=None)
        if tool != wire.Tool():
            builtins.append(tool)
    names = [function.name for function in functions]
    for name in names:
        if not FUNCTION_NAME.fullmatch(name or ""):
            raise ConfigError(f"{name!r} is not a valid function name; use ASCII letters, digits, _ . : and -")
        if names.count(name) > 1:
            raise ConfigError(f"two functions are named {name!r}")
    return [*builtins, wire.Tool(function_declarations=functions)] if functions else builtins


def _read_tool(tool: Any, where: str) -> wire.Tool:
    """Return anything that a caller may pass as a tool, such as a function or a Toolbox, as a Tool of the API."""
    if isinstance(tool, wire.McpServer):
        tool = {"mcp_servers": [tool]}
    elif isinstance(tool, wire.Builtin):
        builtin = tool.as_builtin()
        tool = {builtin.name: builtin.config}
    elif isinstance(tool, Toolbox | SessionTools):
        tool = {"function_declarations": [item.spec for item in tool.tools().values()]}
    elif not (isinstance(tool, wire.Tool) or (isinstance(tool, Mapping) and not {"name", "function"} & tool.keys())):
        return wire.Tool(function_declarations=[_read_function(tool, where)])
    fields = set_fields(wire.Tool, tool, where)
    functions = fields.pop("function_declarations", ())
    declarations = [_read_function(item, f"{where}.function_declarations[{at}]") for at, item in enumerate(functions)]
    return replace(read(wire.Tool, fields, where), function_declarations=declarations or None)


def _read_function(function: Any, where: str) -> wire.FunctionDeclaration:
    if isinstance(function, ToolSpec):
        return _declaration_of(function)
    if isinstance(function, Mapping) and "function" in function:
        return _declaration_of(ToolSpec.of(to_json_data(function, where)))
    if isinstance(function, wire.FunctionDeclaration | Mapping):
        fields = set_fields(wire.FunctionDeclaration, function, where)
        for name in ("parameters", "response"):
            if name in fields:
                fields |= _schema_field(fields.pop(name), f"{where}.{name}", name, f"{name}_json_schema")
        return read(wire.FunctionDeclaration, fields, where)
    if callable(function) and not isinstance(function, Proto | type(Proto)):
        try:
            return _declare_callable(function)
        except TypeError:  # it may be unhashable
            return _declare_callable.__wrapped__(function)
    raise ConfigError(
        f"{where} cannot be {function!r:.80}; pass a function, a FunctionDeclaration, a Tool, a Toolbox, a "
        "built-in tool or a dict"
    )


@lru_cache(maxsize=256)
def _declare_callable(function: Callable[..., Any]) -> FunctionDeclaration:
    return _declaration_of(tool_of(function).spec)


def _declaration_of(spec: ToolSpec) -> FunctionDeclaration:
    adapted = adapt_schema(spec.parameters or {}, GEMINI_JSON_SCHEMA)
    schema = UNSET if adapted.is_empty else adapted.schema
    return FunctionDeclaration(name=spec.name, description=spec.description, parameters_json_schema=schema)


def read_tool_config(
    tools: list[wire.Tool], choice: Any, config: Any, capabilities: Capabilities
) -> wire.ToolConfig | None:
    """Return the tool config for these tools. What the caller set in `config` stays as it is."""
    functions = [function.name or "" for tool in tools for function in tool.function_declarations or []]
    tool_choice = None if choice is None else ToolChoice.of(choice)
    has_builtins = any(tool.function_declarations is None for tool in tools)
    fields = encode.tool_config_fields(functions, tool_choice, capabilities, has_builtins=has_builtins)
    if config is not None:
        mode = {} if tool_choice is None else {"functionCallingConfig": fields.get("functionCallingConfig")}
        fields.pop("functionCallingConfig", None)
        fields = {**fields, **to_plain(read(wire.ToolConfig, config, "tool_config")), **mode}
    return from_plain(wire.ToolConfig, fields) if fields else None
