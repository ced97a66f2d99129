"""Questions to the user in the terminal: of tools and MCP servers, and whether a call may run."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from midspan._cli.output import Display
from midspan._cli.text import escape_line, escape_lines, format_arguments
from midspan._types.parts import ToolCall
from midspan.errors import ConfigError

_YES = ("y", "yes")
_NO = ("n", "no")
_MAX_CHARS = 2_000


class Terminal:
    """The user at the terminal. There is nobody to ask if stdin or stderr is something else."""

    def __init__(self) -> None:
        self.displays: Sequence[Display] = ()
        """Shown while a run goes on; they are interrupted by a question."""
        self._one_at_a_time: asyncio.Lock | None = None

    @property
    def is_interactive(self) -> bool:
        return sys.stdin.isatty() and sys.stderr.isatty()

    @property
    def on_question(self) -> Callable[[str, dict[str, Any] | None], Awaitable[Any]] | None:
        """What answers the questions of tools; None if nobody can."""
        return self._ask if self.is_interactive else None

    @property
    def approve(self) -> Callable[[ToolCall], Awaitable[bool]] | None:
        """What decides on calls that need approval; None if nobody can."""
        return self._approve if self.is_interactive else None

    def confirm(self, question: str) -> bool:
        """Ask whether to trust or delete something, outside a run. Raises ConfigError if nobody can be asked."""
        if not self.is_interactive:
            raise ConfigError("not a terminal; pass --yes to trust these servers")
        _write(f"{escape_line(question)} (y/n) ")
        return sys.stdin.readline().strip().lower() in _YES

    async def _approve(self, call: ToolCall) -> bool:
        arguments = format_arguments(call.arguments, _MAX_CHARS)
        question = f"{escape_line(call.name)}({arguments}) may delete or overwrite something. Run it?"
        return bool(await self._ask(question, {"type": "boolean"}))

    async def _ask(self, question: str, schema: dict[str, Any] | None) -> Any:
        """Return the answer, in the form of the schema; None if the user ends the input."""
        if self._one_at_a_time is None:
            self._one_at_a_time = asyncio.Lock()
        async with self._one_at_a_time:
            for display in self.displays:
                display.close()
            _write(f"{escape_lines(question)}\n")
            properties = (schema or {}).get("properties")
            try:
                if isinstance(properties, dict):
                    return await _form(properties, (schema or {}).get("required", ()))
                return await _value("", schema or {}, is_required=True)
            except EOFError:
                _write("\n")
                return None


async def _form(properties: dict[str, Any], required: Sequence[str]) -> dict[str, Any]:
    answer = {}
    for name, prop in properties.items():
        value = await _value(prop.get("title") or name, prop, is_required=name in required)
        if value is not None:
            answer[name] = value
    return answer


async def _value(label: str, schema: dict[str, Any], *, is_required: bool) -> Any:
    """Ask for one value until it can be read. An empty line is the default, or no value."""
    is_text = schema.get("type", "string") == "string" and "enum" not in schema
    while True:
        _write(f"{_prompt(label, schema)}> ")
        text = (await _read_line()).strip()
        if not text and "default" in schema:
            return schema["default"]
        if not text and not is_required:
            return None
        value = text if is_text else _parse(text, schema)
        if value is not None and (value != "" or not is_required):
            return value


def _prompt(label: str, schema: dict[str, Any]) -> str:
    choices = schema.get("enum") or (("y", "n") if schema.get("type") == "boolean" else ())
    details = [schema.get("description", ""), "/".join(map(str, choices))]
    details += [f"default {schema['default']}"] if "default" in schema else []
    shown = "; ".join(filter(None, details))
    return escape_line(f"{label} ({shown}) " if shown else label).lstrip()


def _parse(text: str, schema: dict[str, Any]) -> Any:
    """Return the value of a line; None if it has another type."""
    if "enum" in schema:
        return next((choice for choice in schema["enum"] if str(choice) == text), None)
    try:
        match schema.get("type"):
            case "boolean":
                return True if text.lower() in _YES else False if text.lower() in _NO else None
            case "integer":
                return int(text)
            case "number":
                return float(text)
            case "array":
                return [item.strip() for item in text.split(",") if item.strip()]
    except ValueError:
        return None
    return text


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


async def _read_line() -> str:
    """Read a line without blocking the event loop, so that Ctrl-C cancels the run. Raises EOFError at the end."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(sys.stdin.fileno(), readable.set)
    except NotImplementedError:  # Windows
        line: str = await asyncio.to_thread(sys.stdin.readline)
    else:
        try:
            await readable.wait()
        finally:
            loop.remove_reader(sys.stdin.fileno())
        line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line


TERMINAL = Terminal()
"""There is only one."""
