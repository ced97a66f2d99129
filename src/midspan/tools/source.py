"""The protocol between a run and the sources that execute its tools, and the error results of calls.

Above is the loop, which lists the tools and makes calls. Below are functions, toolboxes, other processes and other
machines. A source knows nothing of models, turns or histories. It does not raise if a tool fails: the outcome of a call
is its result.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from midspan._types.context import RunContext
from midspan._types.parts import NOT_RUN, ToolCall, ToolResult
from midspan._types.specs import ToolSpec, unknown_tool
from midspan.errors import UnknownSessionError


class UnavailableSource(Struct, frozen=True):
    """A source whose tools could not be listed."""

    name: str
    message: str


class ToolListing(Struct, frozen=True):
    """The tools of a source at one moment."""

    tools: tuple[ToolSpec, ...] = ()
    version: str | int | None = None
    """If a source counts the changes of its tools: listings with equal versions need no comparison of the tools."""
    unavailable: tuple[UnavailableSource, ...] = ()
    """Sources within this one that failed; their tools are missing."""
    name: str | None = None
    """The name of the source, if it has one. Where tools of several sources have the same name, it is their prefix."""
    routes: Mapping[int, Any] = {}
    """Where wrapper sources send the calls of these tools; see `RunContext.routes`."""

    def __iter__(self) -> Iterator[ToolSpec]:
        return iter(self.tools)

    def __len__(self) -> int:
        return len(self.tools)

    def is_same_as(self, other: "ToolListing | None") -> bool:
        """Whether nothing has changed between two listings of one source."""
        if other is not None and None not in (self.version, other.version):
            return self.version == other.version
        return self == other


@runtime_checkable
class ToolSource(Protocol):
    """A source of tools. Inherit from it for an `aclose` that does nothing.

    Runs in different event loops and threads may use one source at the same time. Wrap a source that belongs to one
    event loop in `LoopBound`.
    """

    async def list_tools(self) -> ToolListing:
        """Return the current tools. A run lists them when it starts."""
        ...

    async def call(self, call: ToolCall, context: RunContext[Any]) -> ToolResult:
        """Execute one call and return its result."""
        ...

    async def aclose(self) -> None:
        """Release what the source holds: processes, connections. The agent that was given a source closes it."""
        return


_MAX_INNER_ERRORS = 5


def unknown_tool_result(call: ToolCall, names: Iterable[str]) -> ToolResult:
    """Return the result of a call to a tool that does not exist, with the names that the model may have meant."""
    return call.error_result(unknown_tool(call.name, names), NOT_RUN)


def unknown_session(name: str, sessions: Iterable[str]) -> UnknownSessionError:
    """Return the error for a session that is not open."""
    known = ", ".join(map(repr, sessions)) or "none"
    return UnknownSessionError(f"unknown session {name!r}; open ones: {known}")


def bulleted(problems: Iterable[str]) -> str:
    """Format problems to follow a colon: one on the same line, several as a list."""
    lines = list(problems)
    return f" {lines[0]}" if len(lines) == 1 else "".join(f"\n- {line}" for line in lines)


def describe_error(error: BaseException) -> str:
    """Return the type and message of an exception; of an exception group, those of its first members."""
    message = error_message(error)
    if isinstance(error, BaseExceptionGroup):
        return message
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def error_message(error: BaseException) -> str:
    """Return the message of an exception; empty if it has none."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(describe_error(inner) for inner in error.exceptions[:_MAX_INNER_ERRORS])
    try:
        return str(error).strip()
    except Exception:  # noqa: BLE001 - __str__ is user code
        return ""
