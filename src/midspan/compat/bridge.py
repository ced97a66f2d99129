"""The tools of sessions as Gemini tools, and tools as registries of worker processes describe them."""

from collections.abc import Awaitable, Mapping, Sequence
from inspect import isawaitable
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from midspan._loop.blocking import run_blocking
from midspan._schema.adapt import adapt_schema
from midspan._types.parts import ToolResult
from midspan._types.specs import ToolSpec
from midspan.errors import ConfigError
from midspan.gemini.types import FunctionDeclaration, Schema, Tool
from midspan.providers.gemini.capabilities import GEMINI_PARAMETERS
from midspan.providers.gemini.proto import from_plain
from midspan.tools.declared import spec_from_parameters


class InternalToolSpec(Struct, frozen=True):
    """A tool as a registry of worker processes has it.

    A parameter is a dict: `name`, `type` in any spelling, `description`, `required`, other keywords of JSON Schema, and
    `validation_json`, which is JSON text with more of them.
    """

    name: str
    description: str = ""
    parameters: Sequence[Mapping[str, Any]] = ()


class SessionRegistry(Protocol):
    """What has tools per session: a `Toolbox` or `Workers`."""

    def list_tools(self, session: str | None = None) -> Any:
        """Return the specs of the tools of a session, or an awaitable of them."""

    def execute_in_session(
        self, session: str | None, name: str, arguments: dict[str, Any], *, context: Any = None
    ) -> Awaitable[ToolResult]: ...


class ToolBridge:
    """Gives a model of Gemini the tools of a session. The `_async` methods do the same in a coroutine."""

    def __init__(self, registry: SessionRegistry) -> None:
        self._registry = registry

    def get_tools_for_gemini(self, session: str | None) -> list[Tool]:
        """Return one tool with all declarations of a session; none if it has no tools. Raises UnknownSessionError."""
        return run_blocking(self.get_tools_for_gemini_async(session))

    async def get_tools_for_gemini_async(self, session: str | None) -> list[Tool]:
        specs = self._registry.list_tools(session)
        declarations = [_declaration(spec) for spec in (await specs if isawaitable(specs) else specs)]
        return [Tool(function_declarations=[*declarations])] if declarations else []

    def execute_in_session(self, session: str | None, name: str, arguments: dict[str, Any]) -> ToolResult:
        """Call a tool of a session."""
        return run_blocking(self.execute_in_session_async(session, name, arguments))

    async def execute_in_session_async(self, session: str | None, name: str, arguments: dict[str, Any]) -> ToolResult:
        return await self._registry.execute_in_session(session, name, arguments)

    @staticmethod
    def from_snakepit_tool(spec: InternalToolSpec | Mapping[str, Any]) -> Tool:
        """Return a Gemini tool with one declaration."""
        try:
            tool = spec if isinstance(spec, InternalToolSpec) else msgspec.convert(spec, InternalToolSpec)
        except msgspec.ValidationError as error:
            raise ConfigError(f"not a valid tool: {error}") from error
        description = tool.description or tool.name.replace("_", " ").strip().capitalize()
        return Tool(function_declarations=[_declaration(spec_from_parameters(tool.name, description, tool.parameters))])


def _declaration(spec: ToolSpec) -> FunctionDeclaration:
    adapted = adapt_schema(spec.parameters or {}, GEMINI_PARAMETERS)
    schema = None if adapted.is_empty else from_plain(Schema, adapted.schema)
    return FunctionDeclaration(name=spec.name, description=spec.description, parameters=schema)
