"""Names, environments and protocol versions of servers, without starting one."""

import sys
from pathlib import Path
from typing import Any

import pytest

from midspan.tools import MCPServer
from midspan.tools.mcp.protocols import ProtocolCache, ProtocolInfo
from midspan.tools.mcp.stdio import LineSplitter, LongLine


@pytest.fixture(scope="session", autouse=True)
def prefork() -> None:
    """Start no process: these tests need no server."""


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("npx -y server-time", "server-time"),
        ("npx -y @scope/server-time@1.2", "server-time"),
        ("python -m mcp_time", "mcp_time"),
        ("uvx --quiet", "uvx"),
        (["/usr/bin/server.py"], "server"),
        (["/usr/bin/server.py", "data"], "server"),
        (["./server.py", "--verbose"], "server"),
        (["python", "clock.py", "/srv/data", "./x"], "clock"),
        ("python clock.py", "clock"),
    ],
)
def test_name_of_a_command_is_its_last_word_that_is_a_name(command: Any, name: str) -> None:
    assert MCPServer(command).name == name
    assert MCPServer(command, name="own").name == "own"


def test_name_of_a_url_is_its_host() -> None:
    assert MCPServer(url="https://mcp.example/x").name == "mcp.example"
    assert MCPServer(url="https:///x").name == "server"


def test_environment_has_the_variables_of_the_user_and_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/bin")
    monkeypatch.setenv("HOME", "/home/u")
    monkeypatch.setenv("GEMINI_API_KEY", "secret")
    monkeypatch.setenv("APPDATA", "windows")
    environment = MCPServer("a", env={"HOME": "/other", "TOKEN": "t"}).config.environment
    assert (environment["PATH"], environment["HOME"], environment["TOKEN"]) == ("/bin", "/other", "t")
    assert "GEMINI_API_KEY" not in environment
    assert ("APPDATA" in environment) == (sys.platform == "win32")


def test_included_and_excluded_tools() -> None:
    assert MCPServer("a").config.uses("t")
    assert not MCPServer("a", exclude=["t"]).config.uses("t")
    assert MCPServer("a", include=["t"]).config.uses("t")
    assert not MCPServer("a", include=["u"]).config.uses("t")
    assert not MCPServer("a", include=["t"], exclude=["t"]).config.uses("t")


def test_identity_is_the_url_or_the_command() -> None:
    assert MCPServer(["a", "b c"]).config.identity == "a 'b c'"
    assert MCPServer(url="https://x/").config.identity == "https://x/"
    assert MCPServer("a", cwd=Path("/srv")).config.cwd == "/srv"


def test_protocol_versions_are_remembered_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "protocols.json"
    legacy, modern = ProtocolInfo("legacy"), ProtocolInfo("2026-07-28", {"x": 1})
    cache = ProtocolCache(path)
    cache.remember("a", None)
    assert not path.exists()
    cache.remember("a", legacy)
    cache.remember("b", modern)
    assert (ProtocolCache(path).get("a"), ProtocolCache(path).get("b")) == (legacy, modern)
    written = path.stat().st_mtime_ns
    cache.remember("a", legacy)
    assert path.stat().st_mtime_ns == written
    cache.remember("a", None)
    assert (ProtocolCache(path).get("a"), ProtocolCache(path).get("b")) == (None, modern)
    assert "command" not in path.read_text()


def test_protocol_versions_are_remembered_in_memory() -> None:
    cache = ProtocolCache()
    cache.remember("a", ProtocolInfo("legacy"))
    assert cache.get("a") == ProtocolInfo("legacy")
    assert cache.get("b") is None


def test_lines_are_split_and_long_ones_are_skipped() -> None:
    splitter = LineSplitter(600)
    assert list(splitter.feed(b"a\nb")) == [b"a"]
    assert list(splitter.feed(b"c\n\nd\n")) == [b"bc", b"", b"d"]
    assert list(splitter.feed(b"x" * 600 + b"\n")) == [b"x" * 600]
    assert splitter.skipped_bytes == 0
    assert list(splitter.feed(b"h" * 601)) == []
    assert splitter.skipped_bytes == 601
    assert list(splitter.feed(b"t" * 100)) == []
    assert splitter.skipped_bytes == 701
    assert list(splitter.feed(b"e\nnext\n")) == [LongLine(702, b"h" * 512, b"h" * 411 + b"t" * 100 + b"e"), b"next"]
    assert splitter.skipped_bytes == 0
