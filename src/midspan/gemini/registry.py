"""Declarations and the functions behind them: register once, execute whatever calls a model makes."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from midspan._loop.blocking import run_blocking
from midspan._schema.normalize import normalize
from midspan._types.messages import Message
from midspan._types.parts import ToolCall, ToolResult
from midspan._types.specs import BuiltinTool
from midspan.errors import ConfigError, SchemaError
from midspan.gemini.checking import plain, shown
from midspan.gemini.tools import Toolish, tools_of
from midspan.gemini.types import Content, FunctionDeclaration
from midspan.providers.gemini import wire
from midspan.providers.gemini.capabilities import Capabilities
from midspan.providers.gemini.encode import encode_message
from midspan.providers.gemini.proto import Proto, load, to_plain
from midspan.tools.declared import tool_from_schema
from midspan.tools.function import Tool, is_async
from midspan.tools.schedule import run_calls
from midspan.tools.toolbox import Duplicates, Toolbox

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def new_function_declaration(name: str, description: str, parameters: Any = None, **more: Any) -> FunctionDeclaration:
    """A declaration that every API of the family takes: a short plain name, and words that say what it is for."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(f"{shown(name)} is no name for a function: 1 to 64 letters, digits, _ and - of ASCII")
    if not isinstance(description, str) or not description.strip():
        raise ConfigError(f"{name} needs a description, which is all that the model knows of it")
    for word in more:
        if word not in _MORE:
            raise ConfigError(f"the declaration of {name} takes no {word!r}; it takes: {', '.join(_MORE)}")
    given = {"name": name, "description": description, "parameters": parameters, **more}
    for word in ("parameters", "parameters_json_schema", "response", "response_json_schema"):
        _check_schema(given.get(word), f"{name}.{word}")
    [made] = tools_of([{word: value for word, value in given.items() if value is not None}])
    declared = (made.function_declarations or [])[0]
    return FunctionDeclaration(
        **{field: getattr(declared, field) for field in declared.__struct_fields__ if field != "extra"}
    )


_MORE = ("parameters_json_schema", "response", "response_json_schema", "behavior")


def _check_schema(schema: Any, where: str) -> None:
    """The API's own schemas have fewer words than JSON Schema, and the same types."""
    if isinstance(schema, Mapping | wire.Schema):
        try:
            normalize(plain(schema, where))
        except SchemaError as error:
            raise SchemaError(f"{where}: {error}") from error


class ToolRegistry:
    """Functions by the names of their declarations."""

    def __init__(self) -> None:
        self._box = Toolbox()

    def register(
        self,
        declaration: wire.FunctionDeclaration | dict[str, Any] | Callable[..., Any],
        function: Callable[..., Any] | None = None,
        *,
        duplicates: Duplicates = "error",
    ) -> Tool[..., Any]:
        """Have calls of this declaration done by a function, which gets the arguments by name, or else as one dict.

        By name it gets them if each of its parameters is called as a declared one. A Python function alone needs no
        declaration: it is made from its signature.
        """
        if function is None and callable(declaration) and not isinstance(declaration, Proto):
            return self._box.register(declaration, duplicates=duplicates)
        if not callable(function):
            raise ConfigError(f"{shown(function)} is no function that could be called")
        declared = [one for made in tools_of([declaration]) for one in made.function_declarations or []]
        if len(declared) != 1:
            raise ConfigError(f"{shown(declaration)} is not the declaration of one function")
        return self._box.register(_tool(declared[0], function), duplicates=duplicates)

    async def execute_calls_async(self, calls: Iterable[Any]) -> list[ToolResult]:
        """What came of each call, in their order; one that fails is a result that says so, and disturbs no other."""
        given = _several(calls, "calls", "FunctionCall, ToolCall or dict of name and args")
        return await run_calls([_call(one) for one in given], self._box.source().call)

    def execute_calls(self, calls: Iterable[Any]) -> list[ToolResult]:
        """The same for plain code."""
        return run_blocking(self.execute_calls_async(calls))

    def executable(self, tools: Sequence[Toolish]) -> list[Any]:
        """Tools as an agent takes them: declarations with the functions registered for them, all others as they are."""
        found: list[Any] = []
        for one in tools:
            if not isinstance(one, Proto | dict):
                found.append(one)
                continue
            for made in tools_of([one]):
                found += [self._registered(declared) for declared in made.function_declarations or ()]
                found += [
                    BuiltinTool(kind, config)
                    for kind, config in to_plain(made).items()
                    if kind != "functionDeclarations"
                ]
        return found

    def _registered(self, declared: wire.FunctionDeclaration) -> Tool[..., Any]:
        name = declared.name or ""
        known = self._box.tools()
        if name not in known:
            raise ConfigError(f"no function is registered for {name!r}; see Tools.register(declaration, function)")
        return _tool(declared, known[name])

    def clear(self) -> None:
        """Forget all of them."""
        self._box = Toolbox()


Tools = ToolRegistry()
"""The registry of this process."""


def _tool(declared: wire.FunctionDeclaration, function: Any) -> Tool[..., Any]:
    if isinstance(function, Tool):
        return function
    schema = declared.parameters_json_schema
    if schema is msgspec.UNSET or schema is None:
        schema = {"type": "object"} if declared.parameters is None else to_plain(declared.parameters)
    name = declared.name or ""
    return tool_from_schema(name, declared.description or "", schema, _of_one_dict(function, name, schema))


def _of_one_dict(function: Callable[..., Any], name: str, schema: Any) -> Callable[..., Any]:
    """The function, or one that gives it the arguments by their names if its parameters have them."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # what is written in C may not tell
        return function
    declared = schema.get("properties") or {}
    named = {one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters)
    if len(named) + takes_all < len(parameters) or not named <= declared.keys() or (declared and not parameters):
        return function
    for word in declared if not takes_all else ():
        if word not in named:
            raise ConfigError(f"the function for {name} has no parameter {word!r}, which its declaration has")
    if is_async(function):

        async def call_async(arguments: dict[str, Any]) -> Any:
            return await function(**arguments)

        return call_async
    return lambda arguments: function(**arguments)


def _call(given: Any) -> ToolCall:
    call = ToolCall.read(given.function_call if isinstance(given, wire.Part) else given)
    if call is None:
        raise ConfigError(f"{shown(given)} is no call; give a FunctionCall, a ToolCall or a dict of name and args")
    return call


def _several(given: Any, what: str, kinds: str) -> tuple[Any, ...]:
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise ConfigError(f"{what} cannot be {shown(given)}; give a list, each item a {kinds}")
    return tuple(given)


def from_tool_results(results: Iterable[ToolResult]) -> Content:
    """The turn that gives results to the model: one content, one part for each of them, in their order."""
    given = _several(results, "results", "ToolResult, as Tools.execute_calls returned them")
    for result in given:
        if not isinstance(result, ToolResult):
            raise ConfigError(f"{shown(result)} is no result; give what Tools.execute_calls returned")
    if not given:
        raise ConfigError("there are no results, and the API refuses a turn that says nothing")
    return load(Content, bytes(encode_message(Message("user", given), Capabilities())))
