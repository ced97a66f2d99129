"""An MCP server on the official SDK, over stdio or HTTP, for the tests of the client."""

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from mcp import types
from mcp.server.mcpserver import Context, Elicit, ElicitationResult, MCPServer, Resolve
from mcp.server.mcpserver.utilities.types import Audio, Image
from pydantic import BaseModel, Field

PNG = b"\x89PNG\r\n\x1a\n"

server = MCPServer("sample")


class City(BaseModel):
    name: str
    people: int


@server.tool(annotations=types.ToolAnnotations(read_only_hint=True))
def add(a: Annotated[int, Field(description="one")], b: int = 2) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
def city(name: str) -> City:
    """Returns a city."""
    return City(name=name, people=3_000_000)


@server.tool(structured_output=False)
def nothing() -> None:
    """Returns nothing."""


@server.tool()
def fail() -> str:
    """Fails."""
    raise ValueError("broken")


@server.tool(structured_output=False)
def media() -> list[Any]:
    """Returns content of every kind."""
    return [
        "a text",
        Image(data=PNG, format="png"),
        Audio(data=b"RIFF", format="wav"),
        types.ResourceLink(type="resource_link", name="a link", uri="file:///a.txt", mime_type="text/plain"),
        types.EmbeddedResource(
            type="resource",
            resource=types.TextResourceContents(uri="file:///b.txt", mime_type="text/plain", text="inside"),
        ),
        types.EmbeddedResource(
            type="resource",
            resource=types.BlobResourceContents(uri="file:///c.bin", mime_type="application/x-c", blob="AAEC"),
        ),
    ]


@server.tool(structured_output=False)
async def count(steps: int, context: Context) -> str:
    """Reports progress."""
    for step in range(1, steps + 1):
        await context.report_progress(step, steps, f"step {step}")
    return "counted"


def note(path: str, text: str) -> None:
    Path(path).write_text(text)


@server.tool(structured_output=False)
async def wait(path: str) -> str:
    """Waits until it is cancelled, and writes what happened into a file."""
    note(path, "started")
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        note(path, "cancelled")
        raise
    return "waited"


class People(BaseModel):
    people: int


async def how_many() -> Elicit[People]:
    return Elicit("How many people?", People)


@server.tool(structured_output=False)
async def book(answer: Annotated[ElicitationResult[People], Resolve(how_many)]) -> str:
    """Asks the user."""
    return f"{answer.action}: {answer.data.people}" if answer.action == "accept" else answer.action


@server.tool(annotations=types.ToolAnnotations(destructive_hint=True), structured_output=False)
def erase(what: str) -> str:
    """Deletes something."""
    return f"deleted {what}"


@server.tool(structured_output=False)
def environment() -> list[str]:
    """Returns the names of the environment variables."""
    return sorted(os.environ)


@server.tool(structured_output=False)
async def grow(context: Context) -> str:
    """Adds a tool to this server."""

    def added() -> str:
        """Was added."""
        return "added"

    server.add_tool(added, structured_output=False)
    await context.notify_tools_changed()  # to subscribers
    await context.session.send_tool_list_changed()  # in the older protocol
    return "grown"


@server.tool(structured_output=False)
def die(path: str) -> str:
    """Ends the server, once."""
    if not Path(path).exists():
        Path(path).write_text("died")
        os._exit(1)
    return "survived"


@server.tool(annotations=types.ToolAnnotations(read_only_hint=True), structured_output=False)
def die_reading(path: str) -> str:
    """Ends the server, once, and claims to change nothing."""
    return die(path)


@server.tool(structured_output=False)
def crash(path: str) -> str:
    """Ends the server each time, and counts how often."""
    with Path(path).open("a") as file:
        file.write("x")
    os._exit(9)


def serve_http() -> None:
    """Serve on a free port, whose number is written to stdout."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)  # noqa: T201 - read by the test
    app = server.streamable_http_app()
    asyncio.run(uvicorn.Server(uvicorn.Config(app, log_level="error")).serve([listener]))


if __name__ == "__main__":
    if "--http" in sys.argv:
        serve_http()
    else:
        server.run("stdio")
