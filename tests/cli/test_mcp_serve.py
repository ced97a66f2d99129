import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import mcp_types
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from tests.bounds import BOUND

MIDSPAN = [sys.executable, "-m", "midspan", "mcp", "serve"]
TOOLS = """
print("loading")

def greet(name: str) -> str:
    "Greet somebody."
    print("greeting")
    return f"Hello, {name}!"
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "greetings.py"
    path.write_text(TOOLS)
    return str(path)


async def greeting(server: StdioServerParameters | str, mode: str) -> list[mcp_types.ContentBlock]:
    async with Client(server, mode=mode) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["greet"]
        return (await client.call_tool("greet", {"name": "Ann"})).content


@contextmanager
def http_server(*options: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    with subprocess.Popen([*MIDSPAN, "--http", "0", *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip(), process
        finally:
            process.kill()


@pytest.mark.requirement("MS-01", "MS-10")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_tools_of_a_file_are_served_over_stdio(file: str, mode: str) -> None:
    server = StdioServerParameters(command=MIDSPAN[0], args=[*MIDSPAN[1:], "--tools", file])
    assert asyncio.run(greeting(server, mode)) == [mcp_types.TextContent(text="Hello, Ann!")]


@pytest.mark.requirement("MS-01")
def test_tools_of_a_file_are_served_over_http_until_a_signal(file: str) -> None:
    with http_server("--tools", file) as (url, process):
        assert asyncio.run(greeting(url, "auto")) == [mcp_types.TextContent(text="Hello, Ann!")]
        assert asyncio.run(greeting(url, "legacy")) == [mcp_types.TextContent(text="Hello, Ann!")]
        port = url.split(":")[2].split("/")[0]
        busy = subprocess.run(
            [*MIDSPAN, "--tools", file, "--http", port],
            check=False, capture_output=True, text=True, timeout=BOUND,
        )  # fmt: skip
        assert busy.returncode == 2
        assert busy.stderr.endswith(f"midspan: cannot listen on 127.0.0.1:{port}: address already in use\n")
        process.send_signal(signal.SIGINT)
        assert process.wait(BOUND) == 0


def test_server_answers_requests_for_an_allowed_host(file: str) -> None:
    with http_server("--tools", file, "--allowed-host", "tools.example.com") as (url, _):
        statuses = []
        for host in ("tools.example.com", "other.example.com"):
            connection = HTTPConnection(urlsplit(url).netloc, timeout=BOUND)
            connection.request("PUT", "/mcp", headers={"Host": host})
            statuses.append(connection.getresponse().status)
            connection.close()
    assert statuses == [405, 421]


def test_errors_are_one_sentence(file: str) -> None:
    for options, message in (
        (["--tools", "missing.py"], "midspan: cannot load the tools in 'missing.py': no such file\n"),
        (["--tools", file, "--http", "x"], "is not a port number"),
        (["--tools", file, "--http", "0", "--host", "0.0.0.0"], "list the names that clients use"),
    ):
        ended = subprocess.run([*MIDSPAN, *options], check=False, capture_output=True, text=True, timeout=BOUND)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert message in ended.stderr
        assert "Traceback" not in ended.stderr


def test_missing_extra_is_named() -> None:
    program = (
        "import sys; sys.modules['mcp'] = None\nfrom midspan._cli.main import main; sys.exit(main(['mcp', 'serve']))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=BOUND
    )  # fmt: skip
    assert ended.returncode == 2
    assert ended.stderr == "midspan: MCP needs the package mcp; install it with pip install 'midspan[mcp]'\n"
