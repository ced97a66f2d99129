"""`format` in the schemas of tools is enforced where the caller asks for it."""

import asyncio
from typing import Annotated, Any

import msgspec
import pytest

from midspan._types.parts import ToolCall
from midspan.tools.declared import tool_from_schema
from midspan.tools.execution import execute
from midspan.tools.function import Tool, tool

ADDRESS = {"type": "string", "format": "ipv4"}
PARAMETERS = {"type": "object", "properties": {"host": ADDRESS, "hosts": {"type": "array", "items": ADDRESS}}}


def run(made: Tool[..., Any], **arguments: Any) -> Any:
    return asyncio.run(execute(made, ToolCall("1", made.name, arguments))).value


@pytest.mark.parametrize(
    ("arguments", "path"), [({"host": "nowhere"}, "host"), ({"hosts": ["1.2.3.4", "x"]}, "hosts[1]")]
)
def test_formats_of_arguments_are_enforced_if_the_caller_asks_for_it(arguments: dict[str, Any], path: str) -> None:
    lenient = tool_from_schema("ping", "Ping.", PARAMETERS, lambda _: "pong")
    strict = tool_from_schema("ping", "Ping.", PARAMETERS, lambda _: "pong", check_formats=True)
    assert run(lenient, **arguments) == "pong"
    assert run(strict, host="127.0.0.1") == "pong"
    assert run(strict, **arguments).startswith(f'invalid parameters: {path}: expected format "ipv4", got ')


def test_formats_of_results_are_enforced_too() -> None:
    strict = tool_from_schema("find", "Find.", {}, lambda _: "nowhere", response=ADDRESS, check_formats=True)
    assert run(strict) == 'invalid response: expected format "ipv4", got "nowhere"'


def test_formats_in_type_hints_are_enforced_too() -> None:
    @tool(check_formats=True)
    def ping(host: Annotated[str, msgspec.Meta(extra_json_schema={"format": "ipv4"})]) -> str:
        """Ping."""
        return "pong"

    assert run(ping, host="127.0.0.1") == "pong"
    assert run(ping, host="x") == 'invalid parameters: host: expected format "ipv4", got "x"'
