"""The protocol between a run and whatever executes its tools.

Above is the loop, which lists the tools and makes calls. Below are functions, toolboxes, other processes and other
machines. A source knows nothing of models, turns or histories. It does not raise if a tool fails: the outcome of a call
is its result.
"""

from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from midspan._types.context import RunContext
from midspan._types.parts import ToolCall, ToolResult
from midspan._types.specs import ToolSpec


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

    def __iter__(self) -> Iterator[ToolSpec]:
        return iter(self.tools)

    def __len__(self) -> int:
        return len(self.tools)

    def is_same_as(self, other: "ToolListing | None") -> bool:
        """Whether nothing has changed between two listings of one source."""
        if self is other or other is None:
            return self is other
        if self.version is not None and other.version is not None:
            return self.version == other.version
        return self == other


@runtime_checkable
class ToolSource(Protocol):
    """Some tools. Inherit from it for an `aclose` that does nothing.

    Runs in different event loops and threads may use one source at the same time. Wrap a source that belongs to one
    event loop in `LoopBound`.
    """

    async def list_tools(self) -> ToolListing:
        """Return the tools that there are now. A run lists them once, when it starts."""
        ...

    async def call(self, call: ToolCall, context: RunContext[Any]) -> ToolResult:
        """Execute one call and return its result."""
        ...

    async def aclose(self) -> None:
        """Release what the source holds: processes, connections. The agent that was given a source closes it."""
        return
