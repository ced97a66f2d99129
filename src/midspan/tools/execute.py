"""Execute one call: find the tool, validate the arguments, run it, turn what it returned or raised into a result.

Every failure of a tool becomes an error result for the model; tracebacks go to the log. Only KeyboardInterrupt and
SystemExit of an async tool are raised, because they are meant for the program.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import Any

from midspan._types.context import NO_CONTEXT, RunContext
from midspan._types.parts import ToolCall, ToolResult
from midspan.errors import ArgumentError, ConfigError, DuplicateTool, ToolError
from midspan.tools.error_results import bulleted, describe_error, failed, refused
from midspan.tools.function import Tool, tool_of
from midspan.tools.results import to_tool_result
from midspan.tools.source import ToolListing, ToolSource
from midspan.tools.tasks import Expired, ToolRaised, run_in_task
from midspan.tools.threads import THREADS

_log = logging.getLogger("midspan.tools")

_MAX_NAME_CHARS = 200


class LocalTools(ToolSource):
    """Functions and tools, each under its own name."""

    def __init__(self, tools: Iterable[Tool[..., Any] | Callable[..., Any]] = ()) -> None:
        if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Iterable):
            raise ConfigError(f"tools must be a list of functions and tools, got {tools!r:.80}")
        self._tools: dict[str, Tool[..., Any]] = {}
        for function in tools:
            tool = tool_of(function)
            if tool.name in self._tools:
                raise DuplicateTool(f"two tools are named {tool.name!r}; rename one of them")
            self._tools[tool.name] = tool
        self.listing = ToolListing(tuple(tool.spec for tool in self._tools.values()))
        """What `list_tools` returns. It never changes."""

    async def list_tools(self) -> ToolListing:
        return self.listing

    async def call(self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
        tool = self._tools.get(call.name)
        return unknown(call, self._tools) if tool is None else await execute(tool, call, context)


async def execute(tool: Tool[..., Any], call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
    """Run the call and return its result, whatever happens."""
    changes: tuple[str, ...] = ()
    arguments = tool.parameters.fast_path(call.arguments)
    if arguments is None:
        prepared = tool.parameters.validate(call.arguments)
        if prepared.problems:
            return refused(call, f"invalid parameters:{bulleted(map(str, prepared.problems))}")
        arguments, changes = prepared.arguments, prepared.changes
    context.start(tool.timeout)
    try:
        if tool.is_async:
            value = await run_in_task(tool.invoke, arguments, context, timeout=tool.timeout, name=tool.spec.name)
        else:
            value = await _run_in_thread(tool, arguments, context)
    except asyncio.CancelledError:
        context.cancel()
        raise
    except Expired as expired:
        context.cancel()
        return failed(
            call,
            f"{tool.name} timed out after {tool.timeout:g} seconds{timeout_ending(expired, is_async=tool.is_async)}",
        )
    except ToolRaised as raised:
        return _error_result(tool, call, raised.error)
    except ToolError as error:  # no thread could be had
        return failed(call, str(error))
    return to_tool_result(tool, call, value, changes)


async def _run_in_thread(tool: Tool[..., Any], arguments: dict[str, Any], context: RunContext[Any]) -> Any:
    end = None if tool.timeout is None else monotonic() + tool.timeout
    value = await THREADS.run(tool.invoke, arguments, context, timeout=tool.timeout)
    # A plain function may still return an awaitable: a lambda around a coroutine function, for example.
    if not inspect.isawaitable(value):
        return value
    return await run_in_task(lambda: value, timeout=None if end is None else end - monotonic(), name=tool.name)


def _error_result(tool: Tool[..., Any], call: ToolCall, error: BaseException) -> ToolResult:
    if isinstance(error, ArgumentError):
        return failed(call, f"invalid parameters:{bulleted(str(error).splitlines())}")
    if isinstance(error, ToolError):
        return failed(call, str(error))
    _log.warning("tool %s raised %s", tool.name, type(error).__name__, exc_info=error)
    return failed(call, f"{tool.name} failed: {describe_error(error)}")


def timeout_ending(expired: Expired, *, is_async: bool = True) -> str:
    """Say what became of a call that timed out."""
    if expired.is_abandoned:
        return ", ignored its cancellation and was abandoned; it may still be running"
    if expired.late_result:
        return ", ignored its cancellation and returned too late; its result was discarded"
    return " and was cancelled" if is_async else "; its thread was abandoned and may still be running"


def unknown(call: ToolCall, names: Iterable[str] | Mapping[str, Any]) -> ToolResult:
    """Return the result of a call to a tool that does not exist, with the names that the model may have meant."""
    from difflib import get_close_matches  # loaded with the first unknown tool

    known = list(names)
    wanted = call.name.removeprefix("default_api").lstrip(".:")
    near = [wanted] if wanted in known else get_close_matches(wanted[:_MAX_NAME_CHARS], known, 3, 0.5)
    message = f"unknown tool: {call.name[:_MAX_NAME_CHARS]}"
    message += f"; did you mean {' or '.join(near)}?" if near else ""
    message += f"; the tools are: {', '.join(known[:50])}" if known else "; there are no tools"
    return refused(call, message)
