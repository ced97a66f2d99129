"""Sources around a source: one whose calls are written down, and one that answers them from what was."""

import logging
from time import perf_counter
from typing import Any, cast

from msgspec.structs import replace

from midspan._types.context import NO_CONTEXT, RunContext
from midspan._types.parts import ToolCall, ToolResult
from midspan._types.specs import ToolSpec
from midspan.providers.recording.failures import error_of, failure_of
from midspan.providers.recording.lines import Called, Listed
from midspan.providers.recording.player import Player
from midspan.providers.recording.tape import Tape
from midspan.tools.source import ToolListing, ToolSource
from midspan.tools.wrap import WrapperSource

_log = logging.getLogger("midspan.testing")


class RecordedTools(WrapperSource):
    """Tools whose calls go onto a tape, each when it has ended."""

    def __init__(self, source: ToolSource, tape: Tape) -> None:
        super().__init__(source)
        self._tape = tape

    def adapt(self, tools: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
        self._tape.write(Listed(tools))
        return tools

    async def call(self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
        begin = perf_counter()
        try:
            result = await self.source.call(call, context)
        except Exception as error:
            self._tape.write(Called(call, perf_counter() - begin, error=failure_of(error)))
            raise
        kept = result if isinstance(result, ToolResult) else None
        self._tape.write(Called(call, perf_counter() - begin, result=kept))
        return result


class ReplayedTools(WrapperSource):
    """Tools that are declared as they are now, and not run."""

    def __init__(self, source: ToolSource, player: Player) -> None:
        super().__init__(source)
        self._player = player

    async def list_tools(self) -> ToolListing:
        """The tools there are; where they are elsewhere and cannot be asked for, those there were."""
        try:
            listing = await super().list_tools()
        except Exception as error:  # noqa: BLE001 - a source is foreign code
            _log.info("the tools cannot be listed, so those of the recording are used: %s", error)
            return ToolListing(tuple(self._player.tools()))
        return ToolListing(tuple(self._player.tools())) if listing.unavailable else listing

    async def call(self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:  # noqa: ARG002 - protocol
        then = await self._player.called(call)
        if then.error is not None:
            raise error_of(then.error)
        result = then.result
        if result is None or result.id != then.call.id:
            return cast("ToolResult", result)  # its source broke its promise, and the run shall see that again
        return replace(result, id=call.id)
