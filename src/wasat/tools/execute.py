"""One call, from the model's arguments to a result for the model: check, run, check again, make it fit.

It never raises for a tool's fault. What went wrong is told to the model in words that it can act on; a traceback is
for the log.
"""

import asyncio
import inspect
import logging
from typing import Any

from wasat.errors import ArgumentError, ToolError
from wasat.tools.deadline import limited
from wasat.tools.function import Tool
from wasat.tools.outcome import outcome
from wasat.tools.threads import THREADS
from wasat.types.parts import ToolCall, ToolResult

_log = logging.getLogger("wasat.tools")


async def execute(tool: Tool[..., Any], call: ToolCall, context: Any = None) -> ToolResult:
    """What came of a call, whatever came of it."""
    changes: tuple[str, ...] = ()
    arguments = tool.parameters.ready(call.arguments)
    if arguments is None:
        prepared = tool.parameters.prepare(call.arguments)
        if prepared.problems:
            return failed(call, f"invalid parameters: {'; '.join(map(str, prepared.problems))}")
        arguments, changes = prepared.arguments, prepared.changes
    try:
        work = tool.invoke(arguments, context) if tool.is_async else _in_thread(tool, arguments, context)
        returned = await limited(work, tool.timeout)
    except TimeoutError as error:
        if isinstance(error.__cause__, asyncio.CancelledError):
            return failed(call, f"{tool.name} took longer than {tool.timeout:g} seconds and was stopped")
        return _raised(tool, call, error)  # the tool's own doing
    except ArgumentError as error:
        return failed(call, f"invalid parameters: {error}")
    except ToolError as error:
        return failed(call, str(error))
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return _raised(tool, call, error)  # the tool's own doing: nobody cancelled us
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a tool is foreign code
        return _raised(tool, call, error)
    return outcome(tool, call, returned, changes)


async def _in_thread(tool: Tool[..., Any], arguments: dict[str, Any], context: Any) -> Any:
    returned = await THREADS.run(tool.invoke, arguments, context)
    # A plain function may still hand out something to be awaited: a lambda around a coroutine function, say.
    return await returned if inspect.isawaitable(returned) else returned


def failed(call: ToolCall, words: str) -> ToolResult:
    """A result that tells the model what went wrong."""
    return ToolResult(call.id, call.name, words, is_error=True)


def _raised(tool: Tool[..., Any], call: ToolCall, error: BaseException) -> ToolResult:
    _log.warning("tool %s raised %s", tool.name, type(error).__name__, exc_info=error)
    return failed(call, f"{tool.name} failed: {_message(error)}")


def _message(error: BaseException) -> str:
    try:
        words = str(error).strip()
    except Exception:  # noqa: BLE001 - even the words of an exception are foreign code
        words = ""
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
