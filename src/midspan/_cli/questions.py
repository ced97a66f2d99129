"""Questions to the user in the terminal: of tools and MCP servers, and whether a call may run."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from midspan._cli.output import Display
from midspan._cli.text import escape_line, escape_lines, format_call, write
from midspan._types.parts import ToolCall
from midspan.errors import ConfigError

_BOOLEANS = {"y": True, "yes": True, "n": False, "no": False}


class Terminal:
    """The user at the terminal, who cannot be asked if stdin or stderr is not a terminal."""

    displays: Sequence[Display] = ()
    """The displays of the current run; a question interrupts them."""
    _one_at_a_time = asyncio.Lock()

    @property
    def is_interactive(self) -> bool:
        return sys.stdin.isatty() and sys.stderr.isatty()

    @property
    def on_question(self) -> Callable[[str, dict[str, Any] | None], Awaitable[Any]] | None:
        """The function that answers the questions of tools; None if nobody can be asked."""
        return self._ask if self.is_interactive else None

    @property
    def approve(self) -> Callable[[ToolCall], Awaitable[bool]] | None:
        """The function that approves calls; None if nobody can be asked."""
        return self._approve if self.is_interactive else None

    def confirm(self, question: str) -> bool:
        """Ask whether to trust or delete something, outside a run. Raises ConfigError if nobody can be asked."""
        if not self.is_interactive:
            remedy = "if you agree, use `midspan mcp trust --yes`, or name the files of MCP servers with --mcp"
            raise ConfigError(f"this is not a terminal, so you cannot be asked; {remedy}")
        write(sys.stderr, f"{escape_line(question)} (y/n) ")
        return _BOOLEANS.get(sys.stdin.readline().strip().lower(), False)

    async def _approve(self, call: ToolCall) -> bool:
        question = f"{format_call(call.name, call.arguments, 2_000)} may delete or overwrite something. Run it?"
        return bool(await self._ask(question, {"type": "boolean"}))

    async def _ask(self, question: str, schema: dict[str, Any] | None) -> Any:
        """Return the answer, in the form of the schema; None if the user ends the input."""
        schema = schema or {}
        async with self._one_at_a_time:
            for display in self.displays:
                display.close()
            write(sys.stderr, f"{escape_lines(question)}\n")
            try:
                if "properties" not in schema:
                    return await _value("", schema, is_required=True)
                required = schema.get("required", ())
                answer = {
                    name: await _value(prop.get("title") or name, prop, is_required=name in required)
                    for name, prop in schema["properties"].items()
                }
                return {name: value for name, value in answer.items() if value is not None}
            except EOFError:
                write(sys.stderr, "\n")
                return None


async def _value(label: str, schema: dict[str, Any], *, is_required: bool) -> Any:
    """Ask for one value until it is valid. An empty line is the default, or no value."""
    from midspan._schema.arguments import SchemaValidator  # loaded with the first question

    validator = SchemaValidator({"type": "object", "properties": {"value": schema or {"type": "string"}}})
    while True:
        write(sys.stderr, f"{_prompt(label, schema)}> ")
        text = (await _read_line()).strip()
        if not text and ("default" in schema or not is_required):
            return schema.get("default")
        value: Any = text
        if schema.get("type") == "boolean":
            value = _BOOLEANS.get(text.lower(), text)
        elif schema.get("type") == "array":
            value = [item.strip() for item in text.split(",")]
        answer = validator.validate({"value": value})  # which also turns text into numbers
        if text and not answer.problems:
            return answer.arguments["value"]
        reason = "; ".join(problem.message for problem in answer.problems) if text else "a value is required"
        write(sys.stderr, f"{escape_line(reason)}\n")


def _prompt(label: str, schema: dict[str, Any]) -> str:
    choices = schema.get("enum") or (("y", "n") if schema.get("type") == "boolean" else ())
    details = [schema.get("description", ""), "/".join(map(str, choices))]
    details += [f"default {schema['default']}"] if "default" in schema else []
    shown = "; ".join(filter(None, details))
    return escape_line(f"{label} ({shown}) " if shown else label).lstrip()


async def _read_line() -> str:
    """Read a line without blocking the event loop, so that Ctrl-C cancels the run. Raises EOFError at the end."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
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
"""The terminal of this process."""
