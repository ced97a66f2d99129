"""One call, from the model's arguments to a result for the model: check, run, check again, make it fit.

It never raises for a tool's fault. What went wrong is told to the model in words that it can act on; a traceback is
for the log. One thing escapes: KeyboardInterrupt in an async tool, which is a person's wish and not the tool's.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable
from contextvars import copy_context
from typing import Any

from midspan.errors import ArgumentError, ToolError
from midspan.tools.apart import apart, rest_apart, value_of
from midspan.tools.deadline import Expired, Raised, begun, cancels_heard, rest_of, was_cancelled_since
from midspan.tools.failure import described, failed, listed, refused
from midspan.tools.function import Tool
from midspan.tools.outcome import outcome as result_of
from midspan.tools.own_task import begun_apart
from midspan.tools.threads import THREADS
from midspan.types.parts import ToolCall, ToolResult

_log = logging.getLogger("midspan.tools")


async def execute(tool: Tool[..., Any], call: ToolCall, context: Any = None) -> ToolResult:
    """What came of a call, whatever came of it."""
    changes: tuple[str, ...] = ()
    arguments = tool.parameters.ready(call.arguments)
    if arguments is None:
        prepared = tool.parameters.prepare(call.arguments)
        if prepared.problems:
            return refused(call, f"invalid parameters:{listed(map(str, prepared.problems))}")
        arguments, changes = prepared.arguments, prepared.changes
    before = None
    try:
        if tool.is_async and not tool.waits:
            work = tool.invoke(arguments, context)
            ended, returned = copy_context().run(begun, work)  # what it sets there is its own
            if not ended:
                before = cancels_heard()
                returned = await rest_of(work, returned, tool.timeout)
        elif tool.is_async:
            outcome, task = begun_apart(tool.invoke(arguments, context))
            if outcome is not None:
                returned = value_of(outcome)
            else:
                before = cancels_heard()
                returned = await rest_apart(task, tool.timeout)
        else:
            before = cancels_heard()
            returned = await _in_thread(tool, arguments, context)
    except (KeyboardInterrupt, GeneratorExit):  # GeneratorExit: we are closed; a tool's own comes as Raised
        raise
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and was_cancelled_since(before):
            raise
        return _raised(tool, call, error)
    return result_of(tool, call, returned, changes)


async def _in_thread(tool: Tool[..., Any], arguments: dict[str, Any], context: Any) -> Any:
    returned = await THREADS.run(tool.invoke, arguments, context, seconds=tool.timeout)
    # A plain function may still hand out something to be awaited: a lambda around a coroutine function, say.
    if not inspect.isawaitable(returned):
        return returned
    return await apart(_awaited(returned), tool.timeout)


async def _awaited(waiting: Awaitable[Any]) -> Any:
    return await waiting


def _raised(tool: Tool[..., Any], call: ToolCall, error: BaseException) -> ToolResult:
    if isinstance(error, Expired):
        return failed(call, f"{tool.name} took longer than {tool.timeout:g} seconds{_end(tool, error)}")
    if isinstance(error, Raised):
        error = error.error
    if isinstance(error, ArgumentError):
        return failed(call, f"invalid parameters:{listed(str(error).splitlines())}")
    if isinstance(error, ToolError):
        return failed(call, str(error))
    _log.warning("tool %s raised %s", tool.name, type(error).__name__, exc_info=error)
    return failed(call, f"{tool.name} failed: {described(error)}")


def _end(tool: Tool[..., Any], expired: Expired) -> str:
    if expired.is_left:
        return ", did not end when it was stopped, and is not waited for any longer"
    if expired.late:
        return "; it went on when it was stopped, and its result came late"
    return " and was stopped" if tool.is_async else " and is not waited for any longer; it may still be running"
