"""Servers for the tests of the MCP client."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from midspan.tools import MCPServer
from midspan.tools.mcp.protocols import ProtocolCache, ProtocolInfo
from tests.prefork import Prefork

FOLDER = Path(__file__).parent
_PREFORK = Prefork("tests.tools.mcp.sample_server", "anyio._backends._asyncio")
SAMPLE = _PREFORK.command(str(FOLDER / "sample_server.py"))

Connect = Callable[..., MCPServer]


@pytest.fixture(scope="session", autouse=True)
def prefork() -> Iterator[None]:
    """Imports the MCP SDK once, which takes more than a second, and not in each sample server."""
    with _PREFORK:
        yield


@contextmanager
def http_server(command: list[str]) -> Iterator[str]:
    """Start a server that writes its port to stdout, and yield its URL."""
    with subprocess.Popen([*command, "--http"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}/mcp"
        finally:
            process.kill()


@pytest.fixture(scope="session")
def sample_url() -> Iterator[str]:
    with http_server(SAMPLE) as url:
        yield url


@pytest.fixture(params=["stdio", "http"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["2025-11-25", "2026-07-28"])
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def connect_all(transport: str, era: str, request: pytest.FixtureRequest) -> Connect:
    """Returns a function that makes a source for the sample server, over each transport and in each era."""
    return _connector(transport, era, request)


@pytest.fixture(params=[("stdio", "2025-11-25"), ("http", "2026-07-28")], ids="-".join)
def connect(request: pytest.FixtureRequest) -> Connect:
    """Like `connect_all`, for what does not depend on both transport and era."""
    return _connector(*request.param, request)


def _connector(transport: str, era: str, request: pytest.FixtureRequest) -> Connect:
    def make(**options: Any) -> MCPServer:
        options = {"name": "sample", "protocol_cache": cache_of(era), **options}
        if transport == "http":
            return MCPServer(url=request.getfixturevalue("sample_url"), **options)
        return MCPServer(SAMPLE, **options)

    return make


class LegacyOnly(ProtocolCache):
    """Says of every server that it speaks the older protocol."""

    def get(self, server: str) -> ProtocolInfo | None:
        return ProtocolInfo("legacy")


def cache_of(era: str) -> ProtocolCache:
    return ProtocolCache() if era == "2026-07-28" else LegacyOnly()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack
