"""Use MCP servers that others wrote, as an agent does: python scripts/mcp_servers.py

The npm packages are in the folder MIDSPAN_NODE_MODULES. Each Python server has a virtual environment of its own in the
folder MIDSPAN_MCP_VENVS (`.ci` by default), named after its package: `venv-mcp-server-time`. Servers that are not
installed are skipped; in CI (the variable CI is set) that is a failure. Exits 1 if a server fails.
"""

import project_python  # noqa: F401 - imported first: it restarts the script with the Python of .venv if necessary

# isort: split
import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from midspan import Agent, MCPServer
from midspan.messages import ToolCall
from midspan.testing import ScriptedProvider

ROOT = Path(__file__).parent.parent
SECONDS = 60.0
MODULES = os.environ.get("MIDSPAN_NODE_MODULES")
VENVS = Path(os.environ.get("MIDSPAN_MCP_VENVS", ROOT / ".ci"))


class Check(NamedTuple):
    """A server, the tools that it must have, and a call with a part of its result."""

    name: str
    server: MCPServer
    tools: set[str]
    call: tuple[str, dict[str, Any]]
    expected: str


class MissingServer(Exception):
    """The server is not installed."""


def main() -> int:
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder).resolve()
        (home / "note.txt").write_text("written by a test")
        subprocess.run(["git", "init", "--quiet", str(home)], check=True)  # noqa: S603, S607 - our own command
        for name in CHECKS:
            try:
                with CHECKS[name](home) as check:
                    asyncio.run(use(check))
                print(f"{name}: ok", flush=True)
            except MissingServer as missing:
                print(f"{name}: skipped, {missing} is not installed", flush=True)
                failures += bool(os.environ.get("CI"))
            except (AssertionError, Exception) as error:  # noqa: BLE001 - reported, and the others are tried
                print(f"{name}: FAILED: {type(error).__name__}: {error}", flush=True)
                failures += 1
    print(f"{len(CHECKS) - failures} of {len(CHECKS)} servers passed or were skipped")
    return int(failures > 0)


async def use(check: Check) -> None:
    """List the tools and let a model make the call."""

    async def on_question(_question: str, _schema: dict[str, Any] | None) -> Any:
        return {"size": 3}

    tool, arguments = check.call
    script: list[ToolCall | str] = [ToolCall("1", tool, arguments), "done"]
    async with asyncio.timeout(SECONDS), Agent(ScriptedProvider(script), [check.server]) as agent:
        listing = await check.server.list_tools()
        assert not listing.unavailable, listing.unavailable
        names = {spec.name for spec in listing}
        assert check.tools <= names, f"the tools are {sorted(names)}"
        result = await agent.run("?", on_question=on_question)
    (answer,) = [result for message in result.messages for result in message.results]
    assert not answer.is_error, answer.value
    assert check.expected in str((answer.value, answer.content)), answer


def npm(package: str, *arguments: str) -> list[str]:
    folder = Path(MODULES or "", "@modelcontextprotocol", package)
    if not MODULES or not folder.is_dir():
        raise MissingServer(f"@modelcontextprotocol/{package} in MIDSPAN_NODE_MODULES")
    return ["node", str(folder / "dist" / "index.js"), *arguments]


def python(package: str, *arguments: str) -> list[str]:
    interpreter = VENVS / f"venv-{package}" / "bin" / "python"
    if not interpreter.exists():
        raise MissingServer(str(interpreter))
    return [str(interpreter), *arguments]


@contextmanager
def everything(_home: Path) -> Iterator[Check]:
    server = MCPServer(npm("server-everything"), name="everything")
    yield Check("everything", server, {"echo", "get-sum"}, ("echo", {"message": "hello"}), "Echo: hello")


@contextmanager
def everything_http(_home: Path) -> Iterator[Check]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    command = npm("server-everything", "streamableHttp")
    environment = {"PATH": os.environ["PATH"], "PORT": str(port)}
    output = subprocess.DEVNULL
    with subprocess.Popen(command, env=environment, stdout=output, stderr=output) as process:  # noqa: S603 - our own
        try:
            wait_for(port)
            server = MCPServer(url=f"http://127.0.0.1:{port}/mcp", name="everything")
            yield Check("everything over HTTP", server, {"get-sum"}, ("get-sum", {"a": 2, "b": "3"}), "5")
        finally:
            process.kill()


def wait_for(port: int) -> None:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise TimeoutError(f"nothing listens on port {port}")


@contextmanager
def filesystem(home: Path) -> Iterator[Check]:
    server = MCPServer(npm("server-filesystem", str(home)), name="filesystem")
    path = str(home / "note.txt")
    yield Check("filesystem", server, {"write_file"}, ("read_text_file", {"path": path}), "written by a test")


@contextmanager
def memory(home: Path) -> Iterator[Check]:
    server = MCPServer(npm("server-memory"), name="memory", env={"MEMORY_FILE_PATH": str(home / "memory.jsonl")})
    entity = {"name": "Midspan", "entityType": "program", "observations": ["small"]}
    yield Check("memory", server, {"read_graph"}, ("create_entities", {"entities": [entity]}), "Midspan")


@contextmanager
def server_time(_home: Path) -> Iterator[Check]:
    server = MCPServer(python("mcp-server-time", "-m", "mcp_server_time"), name="time")
    yield Check("time", server, {"convert_time"}, ("get_current_time", {"timezone": "Asia/Tokyo"}), "Asia/Tokyo")


@contextmanager
def git(home: Path) -> Iterator[Check]:
    server = MCPServer(python("mcp-server-git", "-m", "mcp_server_git"), name="git")
    yield Check("git", server, {"git_log"}, ("git_status", {"repo_path": str(home)}), "note.txt")


@contextmanager
def old_sdk(_home: Path) -> Iterator[Check]:
    program = str(ROOT / "tests" / "tools" / "mcp" / "old_server.py")
    yield Check("mcp 1.x", MCPServer(python("mcp-1", program), name="old"), {"add"}, ("order", {}), "size 3")


CHECKS = {
    "server-everything (stdio)": everything,
    "server-everything (HTTP)": everything_http,
    "server-filesystem": filesystem,
    "server-memory": memory,
    "mcp-server-time": server_time,
    "mcp-server-git": git,
    "a server on mcp 1.x": old_sdk,
}

if __name__ == "__main__":
    sys.exit(main())
