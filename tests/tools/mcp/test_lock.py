"""Pinned definitions: a tool that changes is held back until it is accepted."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from midspan import Agent
from midspan._types.parts import ToolCall
from midspan.errors import ConfigError
from midspan.events import SourceUnavailable
from midspan.testing import ScriptedProvider
from midspan.tools import MCPServer
from midspan.tools.mcp.lock import Lockfile
from midspan.tools.mcp.protocols import ProtocolCache, ProtocolInfo
from tests.tools.mcp.conftest import FOLDER, LegacyOnly

pytestmark = pytest.mark.requirement("MC-03")


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    """A file with other definitions for the server, which it reads when it starts."""
    return tmp_path / "changed.json"


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "midspan.lock"


def server(changed: Path, lock: Path | None) -> MCPServer:
    return MCPServer(
        [sys.executable, str(FOLDER / "hostile_server.py"), str(changed)],
        name="s", lock=lock, include={"good", "hang", "change"}, protocol_cache=LegacyOnly(),
    )  # fmt: skip


def use(server: MCPServer, action: Callable[[], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        try:
            return await action()
        finally:
            await server.aclose()

    return asyncio.run(main())


def names(listing: Any) -> list[str]:
    return [spec.name for spec in listing]


def listed(source: MCPServer) -> list[str]:
    return names(use(source, source.list_tools))


def test_definitions_are_pinned_at_first_use(changed: Path, lock: Path) -> None:
    assert listed(server(changed, lock)) == ["good", "hang", "change"]
    document = json.loads(lock.read_text())
    assert document["servers"]["s"]["good"]["definition"]["description"] == "Works."
    assert len(document["servers"]["s"]["good"]["sha256"]) == 64


@pytest.mark.parametrize(
    "change",
    [{"description": "Works well."}, {"description": "Works.", "inputSchema": {"type": "object", "required": ["a"]}}],
)
def test_changed_tool_is_held_back_and_the_difference_is_shown(changed: Path, lock: Path, change: Any) -> None:
    listed(server(changed, lock))
    changed.write_text(json.dumps({"good": change}))

    async def main() -> list[Any]:
        script = [ToolCall("1", "good", {}), "done"]
        async with Agent(ScriptedProvider(script), [server(changed, lock)]) as agent, agent.stream("?") as stream:
            return [event async for event in stream]

    events = asyncio.run(main())
    (event,) = [event for event in events if isinstance(event, SourceUnavailable)]
    assert event.source == "s.good"
    assert "its definition has changed since it was accepted, so it is held back" in event.message
    assert any(line.startswith("+") and not line.startswith("+++") for line in event.message.splitlines())


def test_accepted_change_is_used(changed: Path, lock: Path) -> None:
    listed(server(changed, lock))
    changed.write_text(json.dumps({"good": {"description": "Works well."}}))
    source = server(changed, lock)

    async def accept() -> tuple[list[str], dict[str, str], Any, list[str]]:
        before = names(await source.list_tools())
        held_back = dict(source.held_back)
        refused = await source.call(ToolCall("1", "good", {}))
        source.accept_changes()
        return before, held_back, refused, names(await source.list_tools())

    before, held_back, refused, after = use(source, accept)
    assert before == ["hang", "change"]
    assert '-  "description": "Works.",' in held_back["good"]
    assert '+  "description": "Works well.",' in held_back["good"]
    assert refused.is_error
    assert "held back" in refused.value
    assert after == ["good", "hang", "change"]


def test_tool_that_changes_while_it_is_used_is_held_back(changed: Path, lock: Path) -> None:
    source = server(changed, lock)

    async def change() -> list[str]:
        await source.list_tools()
        await source.call(ToolCall("1", "change", {}))
        while "good" in names(await source.list_tools()):  # noqa: ASYNC110 - the notification may come later
            await asyncio.sleep(0.01)
        return names(await source.list_tools())

    assert use(source, change) == ["hang", "change"]


def test_without_a_lock_nothing_is_pinned(changed: Path, lock: Path) -> None:
    listed(server(changed, None))
    changed.write_text(json.dumps({"good": {"description": "Works well."}}))
    assert listed(server(changed, None)) == ["good", "hang", "change"]
    assert not lock.exists()


def test_damaged_lock_is_an_error(changed: Path, lock: Path) -> None:
    lock.write_text("{")
    with pytest.raises(ConfigError, match="is damaged"):
        listed(server(changed, lock))


def test_lock_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot write"):
        Lockfile(tmp_path / ("x" * 255)).check("s", {"a": {}})  # the temporary file has a name that is too long


def test_cache_that_cannot_be_read_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "protocols.json"
    path.write_text("{")
    cache = ProtocolCache(path)
    assert cache.get("s") is None
    cache.remember("s", ProtocolInfo("legacy"))
    assert ProtocolCache(path).get("s") == ProtocolInfo("legacy")
