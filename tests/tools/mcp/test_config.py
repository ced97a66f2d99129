"""Configuration files with `mcpServers`."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from midspan.errors import ConfigError
from midspan.tools import load_mcp_servers
from midspan.tools.mcp.config import read_config

pytestmark = pytest.mark.requirement("MC-04")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".mcp.json"


def write(path: Path, **servers: Any) -> None:
    path.write_text(json.dumps({"mcpServers": servers}))


def test_servers_have_the_options_of_the_file(path: Path) -> None:
    write(
        path,
        files={"command": "npx", "args": ["-y", "x"], "env": {"A": "1"}, "cwd": "sub", "timeout": 1500,
               "includeTools": ["a"], "excludeTools": ["b"], "startupTimeout": 9000},
        web={"type": "http", "url": "https://example.com/mcp", "headers": {"X-Key": "k"}},
        gemini={"httpUrl": "https://example.com/other"},
        off={"command": "x", "disabled": True},
    )  # fmt: skip
    files, web, gemini = load_mcp_servers(path)
    assert files.name == "files"
    assert files.config.command == ("npx", "-y", "x")
    assert files.config.env == {"A": "1"}
    assert files.config.cwd == str(path.parent / "sub")
    assert (files.config.timeout, files.config.startup_timeout) == (1.5, 9.0)
    assert files.config.uses("a")
    assert not files.config.uses("b")
    assert not files.config.uses("c")
    assert (web.config.url, web.config.headers) == ("https://example.com/mcp", {"X-Key": "k"})
    assert gemini.config.url == "https://example.com/other"


def test_variables_are_replaced_everywhere(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"HOME_BIN": "/bin", "TOKEN": "t", "EMPTY": ""}.items():
        monkeypatch.setenv(name, value)
    write(path, s={"command": "${HOME_BIN}/x", "args": ["${PORT:-80}", "${EMPTY:-1}"], "env": {"TOKEN": "a-${TOKEN}"}})
    entry = read_config(path)["s"]
    assert (entry.command, entry.args, entry.env) == ("/bin/x", ["80", "1"], {"TOKEN": "a-t"})


@pytest.mark.parametrize(
    ("server", "message"),
    [
        ({"command": "${NO_SUCH_VARIABLE}"}, r"the server 's' in .* uses \$\{NO_SUCH_VARIABLE\}, which is not set"),
        ({"args": ["x"]}, "an MCP server needs a command or a url, and not both"),
        ({"command": "x", "url": "http://y"}, "an MCP server needs a command or a url, and not both"),
        ({"command": "x", "args": "y"}, 'args: expected array, got string "y"'),
        ({"command": "x", "args": "${TOKEN}"}, r'args: expected array, got string "\$\{TOKEN\}"'),
        ({"command": "x", "type": "pipe"}, 'type: expected one of "http", .* or null, got "pipe"'),
        ({"command": "x", "env": {"PORT": 80}}, "env.PORT: expected string, got integer 80"),
        ({"command": "x", "env": ["TOKEN=secret"]}, 'env: expected object, got array \\["…"\\]'),
        ({"url": "http://x", "headers": {"A": ["secret"]}}, 'headers.A: expected string, got array \\["…"\\]'),
        ("x", "must be an object with a command or a url"),
        ({"url": "example.com"}, "must start with http"),
        ({"type": "sse", "url": "http://x"}, "uses the transport sse"),
        ({"command": "x", "timeout": -1}, "timeout: expected more than 0, got -1"),
    ],
)
def test_error_names_the_server_and_the_file_and_shows_no_secret(
    path: Path, server: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "secret")
    write(path, s=server)
    with pytest.raises(ConfigError, match=message) as caught:
        load_mcp_servers(path)
    assert "'s'" in str(caught.value)
    assert ".mcp.json" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_target_of_a_server_shows_both_its_command_and_its_url(path: Path) -> None:
    write(
        path, a={"command": "x", "args": ["y"]}, b={"httpUrl": "http://z"}, c={"command": "x", "url": "http://z"}, d={}
    )
    targets = [entry.target for entry in read_config(path, expand=False).values()]
    assert targets == ["x y", "http://z", "x and http://z (not valid: only one of them is allowed)", ""]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "is not valid JSON"),
        (b'{"mcpServers": "\xff"}', "is not valid JSON"),
        (b"{}", "is not a configuration of MCP servers; it needs an object 'mcpServers'"),
        (b"[]", "is not a configuration of MCP servers; it needs an object 'mcpServers'"),
        (None, "cannot read"),
    ],
)
def test_file_that_cannot_be_read_is_an_error(path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        load_mcp_servers(path)


def test_unknown_field_is_reported(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(path, s={"command": "x", "comand": "y", "autoApprove": []})
    with caplog.at_level(logging.WARNING):
        load_mcp_servers(path)
    assert [record.args[1] for record in caplog.records if isinstance(record.args, tuple)] == ["comand"]
