"""A registry of tools with sessions. A tool that is registered for a session can be used only in that session."""

from collections.abc import Callable
from typing import Any, Literal

from midspan._types.context import RunContext
from midspan._types.parts import ToolCall, ToolResult, local_id
from midspan._types.specs import ToolSpec
from midspan.errors import DuplicateToolError
from midspan.tools.execution import LocalTools
from midspan.tools.function import Tool, tool_of
from midspan.tools.source import unknown_session

Duplicates = Literal["error", "skip", "override"]


class Toolbox:
    """Tools by name. Those registered without a session belong to every session."""

    def __init__(self) -> None:
        self._common: dict[str, Tool[..., Any]] = {}
        self._sessions: dict[str, dict[str, Tool[..., Any]]] = {}

    def register(
        self, tool: Tool[..., Any] | Callable[..., Any], *, session: str | None = None, duplicates: Duplicates = "error"
    ) -> Tool[..., Any]:
        """Add a tool to a session, which is opened if it is new, or to all sessions. Returns the registered tool."""
        new = tool_of(tool)
        tools = self._common if session is None else self._sessions.setdefault(session, {})
        if new.name not in tools or duplicates == "override":
            tools[new.name] = new
        elif duplicates != "skip":
            scope = f"in session {session!r}" if session is not None else "for all sessions"
            raise DuplicateToolError(f"{new.name!r} is already registered {scope}; use duplicates='skip' or 'override'")
        return tools[new.name]

    def open_session(self, session: str) -> None:
        """Open a session without tools of its own."""
        self._sessions.setdefault(session, {})

    def close_session(self, session: str) -> None:
        """Remove a session and its own tools."""
        self.tools(session)
        del self._sessions[session]

    def list_tools(self, session: str | None = None) -> tuple[ToolSpec, ...]:
        """Return the specs of the tools of a session; without a session, of those that belong to all."""
        return tuple(tool.spec for tool in self.tools(session).values())

    async def execute_in_session(
        self, session: str | None, name: str, arguments: dict[str, Any], *, context: Any = None
    ) -> ToolResult:
        """Call a tool of a session."""
        call = ToolCall(local_id(), name, arguments)
        return await self.source(session).call(call, RunContext(context, call_id=call.id))

    def source(self, session: str | None = None) -> "SessionTools":
        """Return the tools of one session as a source for runs. Tools that are registered later are included."""
        self.tools(session)
        return SessionTools(self, session)

    def tools(self, session: str | None = None) -> dict[str, Tool[..., Any]]:
        """Return the tools of a session by name; without a session, those that belong to all."""
        if session is None:
            return self._common.copy()  # another thread may register a tool meanwhile
        if session not in self._sessions:
            raise unknown_session(session, self._sessions)
        return {**self._common, **self._sessions[session]}


class SessionTools(LocalTools):
    """The tools of one session of a Toolbox, as they are now."""

    def __init__(self, toolbox: Toolbox, session: str | None) -> None:
        self._toolbox = toolbox
        self._session = session

    def tools(self) -> dict[str, Tool[..., Any]]:
        return self._toolbox.tools(self._session)
