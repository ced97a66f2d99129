"""Sources around a source: one whose calls are written down, and one that answers them from what was."""

import logging
from collections.abc import Sequence
from time import perf_counter
from typing import Any, cast

from msgspec.structs import replace

from midspan.providers.recording.failures import error_of, failure_of
from midspan.providers.recording.lines import Called, Listed
from midspan.providers.recording.player import Player
from midspan.providers.recording.tape import Tape
from midspan.tools.source import ToolSource
from midspan.types.parts import ToolCall, ToolResult
from midspan.types.specs import ToolSpec

_log = logging.getLogger("midspan.testing")


class RecordedTools:
    """Tools whose calls go onto a tape, each when it has ended."""

    def __init__(self, source: ToolSource, tape: Tape) -> None:
        self._source = source
        self._tape = tape
        self._listed: tuple[ToolSpec, ...] | None = None

    async def list_tools(self) -> Sequence[ToolSpec]:
        specs = await self._source.list_tools()
        if self._listed != (listed := tuple(specs)):
            self._tape.write(Listed(listed))
            self._listed = listed
        return specs

    async def call(self, call: ToolCall, context: Any = None) -> ToolResult:
        begin = perf_counter()
        try:
            result = await self._source.call(call, context)
        except Exception as error:
            self._tape.write(Called(call, perf_counter() - begin, error=failure_of(error)))
            raise
        kept = result if isinstance(result, ToolResult) else None
        self._tape.write(Called(call, perf_counter() - begin, result=kept))
        return result


class ReplayedTools:
    """Tools that are declared as they are now, and not run."""

    def __init__(self, source: ToolSource, player: Player) -> None:
        self._source = source
        self._player = player

    async def list_tools(self) -> Sequence[ToolSpec]:
        """The tools there are; where they are elsewhere and cannot be asked for, those there were."""
        try:
            return await self._source.list_tools()
        except Exception as error:  # noqa: BLE001 - a source is foreign code
            _log.info("the tools cannot be listed, so those of the recording are taken: %s", error)
            return self._player.tools()

    async def call(self, call: ToolCall, context: Any = None) -> ToolResult:  # noqa: ARG002 - of the seam
        then = await self._player.called(call)
        if then.error is not None:
            raise error_of(then.error)
        result = then.result
        if result is None or result.id != then.call.id:
            return cast("ToolResult", result)  # its source broke its promise, and the run shall see that again
        return replace(result, id=call.id)
