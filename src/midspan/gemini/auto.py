"""Automatic execution of calls: the agent loop with the names and types of the Gemini API.

Calls of declarations are executed by the functions that are registered for them in `Tools`.
"""

import inspect
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from midspan._loop.agent import Agent
from midspan._loop.blocking import run_blocking
from midspan._loop.result import RunResult, final_text
from midspan._loop.run_stream import RunStream
from midspan._types.events import TextDelta
from midspan._types.exchange import CachePolicy, FinishReason, ModelResponse
from midspan._types.messages import History, Message
from midspan._types.parts import Text, ToolCall, ToolResult
from midspan._types.specs import BuiltinTool, Limits, ModelSettings
from midspan.errors import ConfigError
from midspan.gemini.request import Contents, cache_name, encode_contents, read_tools, request_fields, tool_list
from midspan.gemini.response import GenerateContentResponse
from midspan.providers.gemini import decode, wire
from midspan.providers.gemini.capabilities import Capabilities
from midspan.providers.gemini.client import Gemini
from midspan.providers.gemini.encode import HEAD, encode_message
from midspan.providers.gemini.proto import Proto, load, to_plain
from midspan.tools.declared import tool_from_schema
from midspan.tools.function import Tool
from midspan.tools.schedule import run_calls
from midspan.tools.toolbox import Duplicates, Toolbox

if TYPE_CHECKING:
    from midspan.gemini.client import AsyncClient

_LOSSLESS = Capabilities(signatures=False)
"""Capabilities with which messages of the model are encoded exactly as they were received."""


class AutoResponse(GenerateContentResponse):
    """The final answer; `result` also has the messages, calls and usage of the run."""

    def __init__(self, result: RunResult, output_type: Any) -> None:
        super().__init__(result.response, result.text, output_type=output_type)
        self.result = result

    @property
    def added(self) -> list[wire.Content]:
        """Every content after those that were passed in: the turns of the model, and the results of its calls."""
        messages = [message for message in self.result.new_messages if message.parts]
        return [load(wire.Content, bytes(encode_message(message, _LOSSLESS))) for message in messages]


def prepare(client: "AsyncClient", contents: Contents, options: Mapping[str, Any]) -> tuple[Agent, History, Any]:
    """Return the agent for a request, its history, and the type of the answer."""
    request = dict(options)
    model, tools = request.pop("model", None), request.pop("tools", None)
    cache, choice = request.pop("cached_content", None), request.pop("tool_choice", None)
    turns, limits = request.pop("turn_limit", None), request.pop("limits", None)
    if turns is not None and limits is not None:
        raise ConfigError("turn_limit and limits are both given; use limits=Limits(max_turns=…)")
    limits = Limits.of((limits or {}) if turns is None else {"max_turns": turns})
    _, capabilities = client.resolve(model)
    provider = Gemini(model or client.model, api=client.api, capabilities=capabilities)
    held = {name: request.get(name) for name in ("system_instruction", "tool_config")}
    policy = None if cache is None else CachePolicy(cache_name(cache, tool_choice=choice, **held))
    fields = request_fields(capabilities, **request)
    settings = ModelSettings(extra=msgspec.json.decode(b"{%b}" % fields.tail[1:]))
    executable = Tools.executable(tool_list(tools))
    agent = Agent(provider, executable, limits=limits, settings=settings, tool_choice=choice, cache=policy)
    history = contents if isinstance(contents, History) else _history(encode_contents(contents, capabilities))
    first = fields.head.removeprefix(HEAD).removesuffix(b",")  # the system prompt of a model that gets it as a content
    return agent, _history(first).append(*history), fields.output_type


def _history(contents: bytes) -> History:
    raws = msgspec.json.decode(b"[%b]" % contents, type=list[Raw])
    return History(decode.conversation(map(bytes, raws)))


async def answer_chunks(stream: RunStream, output_type: Any = Any) -> AsyncGenerator[GenerateContentResponse, None]:
    """Yield the final answer of a run in chunks, and then the whole answer."""
    async with stream, aclosing(final_text((0, event) async for event in stream)) as deltas:
        async for _, delta in deltas:
            # A chunk without text and with finish reason CUT tells the reader to discard the text before it.
            parts = (Text(delta.text),) if isinstance(delta, TextDelta) else ()
            answer = ModelResponse(Message("model", parts), FinishReason.END if parts else FinishReason.CUT)
            yield GenerateContentResponse(answer, is_chunk=True)
    yield AutoResponse(stream.result, output_type)


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
        if function is None and callable(declaration):
            return self._toolbox.register(declaration, duplicates=duplicates)
        declarations = [item for tool in read_tools([declaration]) for item in tool.function_declarations or []]
        if len(declarations) != 1:
            raise ConfigError(f"{declaration!r:.80} is not the declaration of one function")
        return self._toolbox.register(_tool(declarations[0], function), duplicates=duplicates)

    async def execute_calls_async(self, calls: Iterable[Any]) -> list[ToolResult]:
        """Execute calls and return their results in the same order. An error is a result; other calls still run."""
        return await run_calls([_call(item) for item in calls], self._toolbox.source().call)

    def execute_calls(self, calls: Iterable[Any]) -> list[ToolResult]:
        """Like `execute_calls_async`, for sync code."""
        return run_blocking(self.execute_calls_async(calls))

    def executable(self, tools: Sequence[Any]) -> list[Any]:
        """Return tools for an agent: declarations with the functions registered for them, all others as they are."""
        executable: list[Any] = []
        registered = self._toolbox.tools()
        for item in tools:
            if not isinstance(item, Proto | dict):
                executable.append(item.source() if isinstance(item, Toolbox) else item)
                continue
            for tool in read_tools([item]):
                for name in [declaration.name or "" for declaration in tool.function_declarations or ()]:
                    if name not in registered:
                        raise ConfigError(
                            f"no function is registered for {name!r}; use Tools.register(declaration, function)"
                        )
                    executable.append(registered[name])
                builtins = to_plain(replace(tool, function_declarations=None))
                executable += [BuiltinTool(name, config) for name, config in builtins.items()]
        return executable


Tools = ToolRegistry()
"""The registry of this process."""


def _tool(declaration: wire.FunctionDeclaration, function: Any) -> Tool[..., Any]:
    schema = declaration.parameters_json_schema
    if schema is UNSET or schema is None:
        schema = {"type": "object"} if declaration.parameters is None else to_plain(declaration.parameters)
    name = declaration.name or ""
    return tool_from_schema(name, declaration.description or "", schema, _callback(function, name, schema))


def _callback(function: Callable[..., Any], name: str, schema: Any) -> Callable[..., Any]:
    """Return a function of one dict, which passes the arguments by name if the function has parameters for them."""
    declared = schema.get("properties") or {}
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # functions written in C may have no signature
        return function
    try:
        signature.bind(**dict.fromkeys(declared))
    except TypeError as error:
        if signature.parameters.keys() & declared.keys():
            raise ConfigError(f"the function for {name} does not fit its declaration: {error}") from error
        return function
    return lambda arguments: function(**arguments)


def _call(item: Any) -> ToolCall:
    call = ToolCall.read(item.function_call if isinstance(item, wire.Part) else item)
    if call is None:
        raise ConfigError(f"{item!r:.80} is not a call; pass a FunctionCall, a ToolCall or a dict of name and args")
    return call
