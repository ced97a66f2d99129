"""The seam between a run and whatever runs its tools.

Above is the loop, which asks what there is and has calls done; below are functions, toolboxes, other processes, other
machines. A source knows nothing of models, turns or histories. It never raises for a tool's fault: whatever comes of a
call is its result.
"""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from midspan.types.parts import ToolCall, ToolResult
from midspan.types.specs import ToolSpec


@runtime_checkable
class ToolSource(Protocol):
    """Some tools."""

    async def list_tools(self) -> Sequence[ToolSpec]:
        """What there is now."""

    async def call(self, call: ToolCall, context: Any = None) -> ToolResult:
        """Have one call done; `context` is for the tool, from whoever started the run, past the model."""
