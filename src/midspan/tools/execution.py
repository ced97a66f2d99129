"""Run calls: validate the arguments, run the tool, and turn what it returned or raised into a result.

Every error of a tool becomes an error result for the model, with the traceback in the log. Only KeyboardInterrupt and
SystemExit are raised, because they are meant for the program.
"""

import asyncio
import inspect
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from time import monotonic, perf_counter
from typing import Any

import msgspec

from midspan._types.context import NO_CONTEXT, RunContext
from midspan._types.parts import NOT_RUN, Blob, Resource, Text, ToolCall, ToolResult
from midspan._types.texts import count_noun, truncate
from midspan.errors import ArgumentError, DuplicateToolError, ResultError, ToolError
from midspan.tools.function import Tool, tool_of
from midspan.tools.source import ToolListing, ToolSource, bulleted, describe_error, unknown_tool_result
from midspan.tools.tasks import THREADS, Expired, ToolRaised, run_in_task

_log = logging.getLogger("midspan.tools")

_MAX_ITEMS = 10_000
"""How many items of a generator are read."""
_MAX_MEDIA_DEPTH = 4
_PLAIN_TYPES = frozenset((dict, list, tuple, str, int, float, bool, type(None)))
"""What most functions return."""
_CONTENT_TYPES = frozenset((Text, Blob, Resource))


class LocalTools(ToolSource):
    """Functions and tools, each under its own name."""

    def __init__(self, tools: Iterable[Tool[..., Any] | Callable[..., Any]] = ()) -> None:
        self._tools: dict[str, Tool[..., Any]] = {}
        for function in tools:
            tool = tool_of(function)
            if tool.name in self._tools:
                raise DuplicateToolError(f"two tools are named {tool.name!r}; rename one of them")
            self._tools[tool.name] = tool

    def tools(self) -> dict[str, Tool[..., Any]]:
        """Return the tools by name."""
        return self._tools

    async def list_tools(self) -> ToolListing:
        return ToolListing(tuple(tool.spec for tool in self.tools().values()))

    async def call(self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
        tools = self.tools()
        tool = tools.get(call.name)
        return unknown_tool_result(call, tools) if tool is None else await execute(tool, call, context)


SourceCall = Callable[[ToolCall, RunContext[Any]], Awaitable[ToolResult]]
"""`ToolSource.call`."""


async def run_call(
    source_call: SourceCall, call: ToolCall, context: RunContext[Any], *, in_task: bool = True
) -> tuple[ToolResult, float]:
    """Return one result and its duration, even if the source raises or answers another call.

    `in_task=False` is for sources that run user code in tasks anyway; a second task would only cost time.
    """
    started = perf_counter()
    try:
        if in_task:
            result: ToolResult = await run_in_task(source_call, call, context, name=call.name)
            if not isinstance(result, ToolResult) or (result.id, result.name) != (call.id, call.name):
                raise TypeError("the source did not return a result of this call")
            _encode(result)  # raises an error if it is not JSON serializable
        else:
            result = await source_call(call, context)
    except Exception as error:  # noqa: BLE001 - sources are user code
        cause = error.error if isinstance(error, ToolRaised) else error
        name, fields = type(cause).__name__, context.log_fields
        _log.error("the source of tool %s raised %s", call.name, name, exc_info=cause, extra=fields)
        context.report_error(cause)
        result = call.error_result(f"{call.name} failed: {describe_error(cause)}")
    return result, perf_counter() - started


async def execute(tool: Tool[..., Any], call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
    """Run the call and return its result, which is an error result if it fails."""
    if tool.isolate:
        from midspan.tools.workers.source import run_isolated  # loaded for isolated tools

        return await run_isolated(tool, call, context)
    notes: tuple[str, ...] = ()
    arguments = tool.parameters.fill_if_valid(call.arguments)
    if arguments is None:
        validated = tool.parameters.repair(call.arguments)
        if validated.problems:
            return _invalid_arguments(call, validated.problems)
        arguments, notes = validated.arguments, validated.changes
    started, name = context.start(tool.timeout), call.name
    function = (
        partial(tool.function, **arguments) if tool.bind is None else partial(_bind_and_call, tool, arguments, context)
    )
    try:
        if tool.is_async:
            value = await run_in_task(function, timeout=tool.timeout, name=name)
        else:
            value = await THREADS.run(function, timeout=tool.timeout)
        if type(value) not in _PLAIN_TYPES:
            value = await _resolve(value, tool, started)
    except asyncio.CancelledError:
        context.cancel()
        raise
    except Expired as expired:
        context.cancel()
        return call.error_result(timeout_message(name, tool.timeout, expired))
    except ToolRaised as raised:
        return _error_result(call, raised.error, context)
    except ToolError as error:  # the function was not started; the message says why
        return call.error_result(f"{name} was not run: {error}", NOT_RUN)
    return _to_tool_result(tool, call, value, notes)


def execute_here(
    tool: Tool[..., Any], call: ToolCall, context: RunContext[Any], loop: asyncio.AbstractEventLoop
) -> ToolResult:
    """Run the call of a sync function in the current thread, without a timeout. Worker processes use this.

    `loop` runs in another thread and awaits what the function returns if that is a coroutine or an async generator.
    """
    validated = tool.parameters.validate(call.arguments)
    if validated.problems:
        return _invalid_arguments(call, validated.problems)
    try:
        value = _bind_and_call(tool, validated.arguments, context)
        if type(value) not in _PLAIN_TYPES:
            value = asyncio.run_coroutine_threadsafe(_resolve(value, tool, monotonic()), loop).result()
    except Exception as error:  # noqa: BLE001 - tools are user code
        return _error_result(call, error, context)
    return _to_tool_result(tool, call, value, validated.changes)


class _InvalidArguments(Exception):
    """An ArgumentError that was raised before the function was called."""


async def _resolve(value: Any, tool: Tool[..., Any], started: float) -> Any:
    """Await, or collect in a list, what a function returned if it is an awaitable or a generator."""
    name = tool.spec.name
    while True:  # a lambda may return a coroutine, which may return a generator
        seconds_left = None if tool.timeout is None else tool.timeout - (monotonic() - started)
        if inspect.isawaitable(value):
            value = await run_in_task(lambda awaitable: awaitable, value, timeout=seconds_left, name=name)
            continue
        if isinstance(value, Iterator | range):
            try:
                items = await THREADS.run(list, islice(value, _MAX_ITEMS + 1), timeout=seconds_left)
            except ToolError as error:  # no thread was free
                raise ToolRaised(ToolError(f"{name} ran, but its result could not be read: {error}")) from error
        elif isinstance(value, AsyncIterator):
            items = await run_in_task(_collect, value, timeout=seconds_left, name=name)
        else:
            return value
        return items if len(items) <= _MAX_ITEMS else [*items[:-1], f"… [cut: the first {_MAX_ITEMS:,} items]"]


def _bind_and_call(tool: Tool[..., Any], arguments: dict[str, Any], context: RunContext[Any]) -> Any:
    if tool.bind is None:
        return tool.function(**arguments)
    try:
        positional, keywords = tool.bind(arguments, context)
    except ArgumentError as error:
        raise _InvalidArguments from error
    return tool.function(*positional, **keywords)


async def _collect(iterator: AsyncIterator[Any]) -> list[Any]:
    items = []
    async for item in iterator:
        items.append(item)
        if len(items) > _MAX_ITEMS:
            break
    if isinstance(iterator, AsyncGenerator):
        await iterator.aclose()
    return items


def _invalid_arguments(call: ToolCall, problems: Iterable[object]) -> ToolResult:
    return call.error_result(f"invalid parameters:{bulleted(map(str, problems))}", NOT_RUN)


def _error_result(call: ToolCall, error: BaseException, context: RunContext[Any]) -> ToolResult:
    if isinstance(error, _InvalidArguments):
        return _invalid_arguments(call, str(error.__cause__).splitlines())
    if isinstance(error, ArgumentError):
        return call.error_result(f"invalid parameters:{bulleted(str(error).splitlines())}")
    if isinstance(error, ToolError):
        return call.error_result(str(error))
    name, fields = type(error).__name__, {**context.log_fields, "tool": call.name}
    _log.warning("tool %s raised %s", call.name, name, exc_info=error, extra=fields)
    context.report_error(error)
    return call.error_result(f"{call.name} failed: {describe_error(error)}")


def timeout_message(name: str, seconds: float | None, expired: Expired) -> str:
    """Return the error message for a call that timed out."""
    return f"{name} timed out after {count_noun(seconds or 0, 'second')}{expired.suffix}"


def _to_tool_result(tool: Tool[..., Any], call: ToolCall, returned: Any, notes: tuple[str, ...]) -> ToolResult:
    """Return the result of a call whose function returned `returned`.

    A value that does not match the return annotation goes to the model with a hint, because the tool has already run.
    Only a response schema that was given explicitly is enforced.
    """
    if type(returned) is not dict and (content := _ordered_content(returned)):
        return ToolResult(call.id, call.name, content=content, is_final=_is_final(tool, returned), notes=notes)
    media: list[Blob] = []
    is_error, hint, schema = False, None, tool.response
    try:
        value, size = _to_json_data(returned, media)
    except ResultError as error:
        if tool.enforces_response and schema is not None:
            return call.error_result(f"invalid response: {error}")
        value, size = _describe_unserializable(returned, error), 0
    else:
        if schema is not None and not media and not schema.accepts(value):
            # A tool may return an error that does not match the schema of its results.
            is_error = isinstance(value, dict) and bool(value.get("error"))
            if not is_error:
                problems = bulleted(map(str, schema.problems(value)))
                if tool.enforces_response:
                    return call.error_result(f"invalid response:{problems}")
                _log.warning("the result of tool %s does not match its return annotation:%s", call.name, problems)
                hint = f"The result does not match the declared output:{problems}"
    is_final = not is_error and tool.final is not False and _is_final(tool, value)
    if size > tool.max_result_chars:  # in bytes, which may be more than the characters
        text = value if isinstance(value, str) else _encode(value).decode()
        value = value if len(text) <= tool.max_result_chars else truncate(text, tool.max_result_chars)
    return ToolResult(call.id, call.name, value, is_error, tuple(media), is_final, notes, hint)


def _is_final(tool: Tool[..., Any], value: Any) -> bool:
    if isinstance(tool.final, bool):
        return tool.final
    try:
        return bool(tool.final(value))
    except Exception:  # noqa: BLE001 - user code
        _log.exception("final= of tool %s raised; treating the result as not final", tool.name)
        return False


def _to_json_data(value: Any, media: list[Blob]) -> tuple[Any, int]:
    """Return a tool's value as JSON data, and its size in bytes as JSON. Images and audio are moved into `media`.

    A value that survives encoding and decoding unchanged is plain data, as most are; msgspec detects this much faster
    than a walk in Python. The decoded copy also keeps later changes by the tool out of the conversation.
    """
    try:
        encoded = _encode(value)
        data = _decode(encoded)
        if data == value:
            return data, len(encoded)
    except Exception:  # noqa: BLE001, S110 - comparing may run user code; the slow path below reports what is wrong
        pass
    from midspan._schema.jsonable import to_jsonable  # loaded with the first value that is not plain data

    data = to_jsonable(_extract_media(value, media))
    return data, len(_encode(data))


def _ordered_content(value: Any) -> tuple[Text | Blob | Resource, ...]:
    """Return the content if a function returned texts or resources, perhaps with media; otherwise nothing."""
    parts = value if type(value) in (list, tuple) else (value,)
    if not parts or type(parts[0]) not in _CONTENT_TYPES:  # the usual case
        return ()
    types = set(map(type, parts))
    return tuple(parts) if types <= _CONTENT_TYPES and types != {Blob} else ()


def _extract_media(value: Any, media: list[Blob], depth: int = 0) -> Any:
    """Return the value with a name in place of each image or other medium, which is appended to `media`."""
    if isinstance(value, bytes | bytearray | memoryview) and (media_type := media_type_of(value)):
        value = Blob.of(bytes(value), media_type)
    if isinstance(value, Blob):
        media.append(value)
        return value.name or value.media_type
    if depth == _MAX_MEDIA_DEPTH or type(value) not in (list, tuple, dict):
        return value
    if type(value) is dict:
        return {name: _extract_media(item, media, depth + 1) for name, item in value.items()}
    return [_extract_media(item, media, depth + 1) for item in value]


_FIRST_BYTES = {
    rb"\x89PNG\r\n\x1a\n": "image/png",
    rb"\xff\xd8\xff": "image/jpeg",
    rb"GIF8": "image/gif",
    rb"%PDF-": "application/pdf",
    rb"RIFF....WEBP": "image/webp",
    rb"RIFF....WAVE": "audio/wav",
}
"""Media types by a regular expression for the first bytes of a file."""


def media_type_of(data: bytes | bytearray | memoryview) -> str | None:
    """Guess the media type from the first bytes."""
    return next((media_type for start, media_type in _FIRST_BYTES.items() if re.match(start, data, re.DOTALL)), None)


def _describe_unserializable(value: Any, error: ResultError) -> str:
    """Return why a value is not JSON serializable, and its repr."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - __repr__ is user code
        text = "its repr() failed"
    return truncate(f"{error}. repr: {text}")


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
