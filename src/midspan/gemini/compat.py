"""Names of earlier Gemini libraries: a registry of functions by declaration, and module-level automatic execution.

`generate_content_with_auto_tools` and the stream functions use one client for the whole process, which is created from
the environment with the first request, as `Client()` is; `use` replaces it.
"""

import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from midspan._loop.blocking import run_blocking
from midspan._schema.dialects.dialect import NameRule
from midspan._types.messages import Message
from midspan._types.parts import ToolCall, ToolResult
from midspan._types.specs import BuiltinTool
from midspan.errors import ConfigError
from midspan.gemini.checking import describe
from midspan.gemini.client import Client
from midspan.gemini.request import Contents
from midspan.gemini.response import GenerateContentResponse
from midspan.gemini.tools import ToolLike, read_tools
from midspan.gemini.types import Content, FunctionDeclaration, check_schema
from midspan.providers.gemini import wire
from midspan.providers.gemini.capabilities import Capabilities
from midspan.providers.gemini.encode import encode_message
from midspan.providers.gemini.proto import Proto, dump, load, to_plain
from midspan.tools.declared import tool_from_schema
from midspan.tools.function import Tool, is_async
from midspan.tools.schedule import run_calls
from midspan.tools.toolbox import Duplicates, Toolbox

if TYPE_CHECKING:
    from midspan._loop.background import RunStatus
    from midspan._loop.background_runs import View
    from midspan.gemini.auto import AutoResponse

_NAMES = NameRule(extra="-", digit_first=True)
_SCHEMAS = ("parameters", "parameters_json_schema", "response", "response_json_schema")


def new_function_declaration(
    name: str, description: str, parameters: Any = None, **options: Any
) -> FunctionDeclaration:
    """Return a declaration whose name, description and schemas every API of the family accepts."""
    if not isinstance(name, str) or not _NAMES.allows(name):
        raise ConfigError(f"{describe(name)} is not a valid function name; use 1 to 64 ASCII letters, digits, _ and -")
    if not isinstance(description, str) or not description.strip():
        raise ConfigError(f"{name} needs a description; it is all that the model knows of the function")
    fields = {"name": name, "description": description, "parameters": parameters, **options}
    for schema in _SCHEMAS:
        check_schema(fields.get(schema), f"{name}.{schema}")
    [tool] = read_tools([fields])
    [declaration] = tool.function_declarations or []
    return load(FunctionDeclaration, dump(declaration))


class ToolRegistry:
    """Functions by the names of their declarations."""

    def __init__(self) -> None:
        self._toolbox = Toolbox()

    def register(
        self,
        declaration: wire.FunctionDeclaration | dict[str, Any] | Callable[..., Any],
        function: Callable[..., Any] | None = None,
        *,
        duplicates: Duplicates = "error",
    ) -> Tool[..., Any]:
        """Let a function execute the calls of a declaration.

        It gets the arguments by name if each of its parameters has the name of a declared property, otherwise as one
        dict. A Python function alone needs no declaration.
        """
        if function is None and callable(declaration) and not isinstance(declaration, Proto):
            return self._toolbox.register(declaration, duplicates=duplicates)
        if not callable(function):
            raise ConfigError(f"{describe(function)} is not a function")
        declarations = [item for tool in read_tools([declaration]) for item in tool.function_declarations or []]
        if len(declarations) != 1:
            raise ConfigError(f"{describe(declaration)} is not the declaration of one function")
        return self._toolbox.register(_tool(declarations[0], function), duplicates=duplicates)

    async def execute_calls_async(self, calls: Iterable[Any]) -> list[ToolResult]:
        """Execute calls and return their results in the same order. An error is a result and disturbs no other call."""
        return await run_calls([_call(item) for item in calls], self._toolbox.source().call)

    def execute_calls(self, calls: Iterable[Any]) -> list[ToolResult]:
        """Do the same in plain code."""
        return run_blocking(self.execute_calls_async(calls))

    def executable(self, tools: Sequence[ToolLike]) -> list[Any]:
        """Return tools for an agent: declarations with the functions registered for them, all others as they are."""
        executable: list[Any] = []
        for item in tools:
            if not isinstance(item, Proto | dict):
                executable.append(item)
                continue
            for tool in read_tools([item]):
                executable += [self._registered(declaration) for declaration in tool.function_declarations or ()]
                fields = to_plain(tool)
                fields.pop("functionDeclarations", None)
                executable += [BuiltinTool(name, config) for name, config in fields.items()]
        return executable

    def _registered(self, declaration: wire.FunctionDeclaration) -> Tool[..., Any]:
        name, registered = declaration.name or "", self._toolbox.tools()
        if name not in registered:
            raise ConfigError(f"no function is registered for {name!r}; use Tools.register(declaration, function)")
        return _tool(declaration, registered[name])

    def clear(self) -> None:
        """Remove all functions."""
        self._toolbox = Toolbox()


Tools = ToolRegistry()
"""The registry of this process."""


def _tool(declaration: wire.FunctionDeclaration, function: Any) -> Tool[..., Any]:
    if isinstance(function, Tool):
        return function
    schema = declaration.parameters_json_schema
    if schema is UNSET or schema is None:
        schema = {"type": "object"} if declaration.parameters is None else to_plain(declaration.parameters)
    name = declaration.name or ""
    return tool_from_schema(name, declaration.description or "", schema, _callback(function, name, schema))


def _callback(function: Callable[..., Any], name: str, schema: Any) -> Callable[..., Any]:
    """Return a function of one dict, which passes the arguments by name if the function has parameters for them."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # functions written in C may have no signature
        return function
    declared = schema.get("properties") or {}
    named = {item.name for item in parameters if item.kind in (item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY)}
    takes_all = any(item.kind is item.VAR_KEYWORD for item in parameters)
    if len(named) + takes_all < len(parameters) or not named <= declared.keys() or (declared and not parameters):
        return function
    missing = None if takes_all else next((prop for prop in declared if prop not in named), None)
    if missing is not None:
        raise ConfigError(f"the function for {name} has no parameter {missing!r}, which its declaration has")
    if is_async(function):

        async def call_async(arguments: dict[str, Any]) -> Any:
            return await function(**arguments)

        return call_async
    return lambda arguments: function(**arguments)


def _call(item: Any) -> ToolCall:
    call = ToolCall.read(item.function_call if isinstance(item, wire.Part) else item)
    if call is None:
        raise ConfigError(f"{describe(item)} is not a call; pass a FunctionCall, a ToolCall or a dict of name and args")
    return call


def from_tool_results(results: Iterable[ToolResult]) -> Content:
    """Return the turn that gives results to the model: one content, one part for each result, in their order."""
    content = bytes(encode_message(Message("user", tuple(results)), Capabilities()))
    if not content:
        raise ConfigError("results is empty, and the API rejects a content without parts")
    return load(Content, content)


def extract_text(response: Any) -> str:
    """Return the text of a response, without thoughts; raise an error if there is none."""
    answer = response if isinstance(response, GenerateContentResponse) else getattr(response, "message", response)
    text = getattr(answer, "text", None)
    if not isinstance(text, str) or not text:
        raise ConfigError("No text content found in response")
    return text


_lock = threading.Lock()
_client: Client | None = None


def use(client: Client | None) -> None:
    """Let all functions of this module use this client; None means the one of the environment again."""
    global _client  # noqa: PLW0603 - one for the process
    with _lock:
        _client = client


def _shared_client() -> Client:
    global _client  # noqa: PLW0603 - one for the process
    with _lock:
        if _client is None:
            _client = Client()
        return _client


def generate_content_with_auto_tools(contents: Contents, tools: Any = None, **request: Any) -> "AutoResponse":
    """Execute calls until the final answer; see `AsyncClient.generate_content_with_auto_tools`."""
    return _shared_client().generate_content_with_auto_tools(contents, tools, **request)


def stream_generate_with_auto_tools(contents: Contents, tools: Any = None, **request: Any) -> str:
    """Do the same in the background; return the id to subscribe to."""
    return _shared_client().stream_generate_with_auto_tools(contents, tools, **request)


def subscribe_stream(stream_id: str, *, view: "View" = "final", from_event: int = 0) -> Iterator[Any]:
    """Yield the text of the final answer in pieces; with `view="all"`, every event of the run with its number."""
    return _shared_client().subscribe_stream(stream_id, view=view, from_event=from_event)


def stop_stream(stream_id: str) -> bool:
    """Cancel a background run; return whether it was still running."""
    return _shared_client().stop_stream(stream_id)


def get_stream_status(stream_id: str) -> "RunStatus":
    return _shared_client().get_stream_status(stream_id)
