import asyncio
import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from midspan import Agent
from midspan.emulator import LocalGemini
from midspan.errors import ConfigError
from midspan.messages import ToolCall, ToolResult
from midspan.providers import Gemini
from midspan.tools import MCPServer, source_of
from midspan.toolsets.cloudgenie import cloudgenie_tools
from tests.bounds import BOUND

ROOT = Path(__file__).parent.parent.parent
SCRIPT = ROOT / "examples" / "cloudgenie.toml"
SERVER = [sys.executable, "-m", "midspan.toolsets.cloudgenie"]


class Cloud:
    """The tools, without their common prefix."""

    def __init__(self, database: Path | str = ":memory:") -> None:
        self._source = source_of(cloudgenie_tools(database))

    def call(self, name: str, /, **arguments: Any) -> ToolResult:
        return asyncio.run(self._source.call(ToolCall("1", f"cloudgenie_{name}", arguments)))  # type: ignore[call-arg]

    def error(self, name: str, /, **arguments: Any) -> str:
        result = self.call(name, **arguments)
        assert result.is_error
        return str(result.value)


@pytest.mark.requirement("S2-14")
def test_resource_is_created_listed_changed_and_deleted(tmp_path: Path) -> None:
    cloud = Cloud(tmp_path / "cloud.db")
    created = cloud.call("create_resource", name="prod-db", type="database", blueprint_id="postgresql-blueprint").value
    assert (created["id"], created["status"]) == ("resource-1", "running")
    assert Cloud(tmp_path / "cloud.db").call("get_resources").value == [created]
    assert cloud.call("get_resource", id="prod-db").value == cloud.call("get_resource", id="resource-1").value
    stopped = cloud.call("update_resource_status", id="resource-1", status="stopped").value
    assert stopped == {**created, "status": "stopped"}
    assert cloud.call("health_check").value == {"status": "healthy", "blueprints": 5, "resources": 1}
    assert cloud.call("delete_resource", id="prod-db").value == {"deleted": stopped}
    assert cloud.call("get_resources").value == []


@pytest.mark.requirement("S2-14")
def test_mistakes_are_answered_with_what_would_help() -> None:
    cloud = Cloud()
    assert "postgresql-blueprint" in cloud.error("get_blueprint", id="postgres")
    assert cloud.call("get_blueprint", id="redis-blueprint").value["type"] == "cache"
    assert "'database'" in cloud.error("create_resource", name="a", type="cache", blueprint_id="mysql-blueprint")
    assert "pattern" in cloud.error("create_resource", name="Prod DB", type="cache", blueprint_id="redis-blueprint")
    cloud.call("create_resource", name="a", type="cache", blueprint_id="redis-blueprint")
    again = cloud.error("create_resource", name="a", type="cache", blueprint_id="redis-blueprint")
    assert again == "there is a resource named 'a' already"
    assert "resource-1 (a)" in cloud.error("delete_resource", id="b")
    assert "stopped" in cloud.error("update_resource_status", id="a", status="gone")
    with pytest.raises(ConfigError, match="cannot open the database"):
        cloudgenie_tools("/no/such/folder/cloud.db")


def test_tools_declare_what_they_change() -> None:
    specs = {tool.spec.name.removeprefix("cloudgenie_"): tool.spec for tool in cloudgenie_tools()}
    assert len(specs) == 8
    changing = {name for name, spec in specs.items() if spec.changes}
    assert changing == {"create_resource", "delete_resource", "update_resource_status"}
    assert {name for name, spec in specs.items() if spec.destructive} == {"delete_resource"}
    assert all(spec.description and spec.response for spec in specs.values())


PROMPTS = {
    "Show me all blueprints": ["cloudgenie_get_blueprints"],
    "Create a database named test-db": ["cloudgenie_get_blueprints", "cloudgenie_create_resource"],
    "List all my resources and their status": ["cloudgenie_get_resources"],
}
"""The requests of the design, with the calls that they lead to."""


@pytest.mark.requirement("S2-11", "S2-14")
def test_agent_reaches_the_tools_over_mcp_with_the_scripted_gemini(tmp_path: Path) -> None:
    async def main(url: str) -> None:
        server = MCPServer([*SERVER, "--database", str(tmp_path / "cloud.db")], name="cloudgenie")
        agent = Agent(Gemini("gemini-3.8-flash", api_key="k", base_url=url), [server])
        for prompt, names in PROMPTS.items():
            result = await agent.run(prompt)
            assert [call.name for call in result.tool_calls] == names
            assert not any(call.is_error for call in result.tool_calls)
        assert result.tool_calls[0].value[0]["name"] == "test-db"
        await server.aclose()

    with LocalGemini(SCRIPT) as gemini:
        asyncio.run(main(gemini.url))


@pytest.mark.requirement("S2-14")
def test_command_creates_a_resource_over_mcp(tmp_path: Path) -> None:
    config = tmp_path / "cloud.json"
    database = tmp_path / "cloud.db"
    entry = {"command": SERVER[0], "args": [*SERVER[1:], "--database", str(database)]}
    config.write_text(json.dumps({"mcpServers": {"cloudgenie": entry}}))
    with LocalGemini(SCRIPT) as gemini:
        environment = {**os.environ, "GOOGLE_GEMINI_BASE_URL": gemini.url, "GEMINI_API_KEY": "k"}
        environment |= {"XDG_CONFIG_HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
        ended = subprocess.run(
            [
                *(sys.executable, "-m", "midspan", "ask", "--mcp", str(config)),
                "Create a PostgreSQL database named prod-db for production",
            ],
            check=False, env=environment, capture_output=True, text=True, timeout=2 * BOUND, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    assert (ended.returncode, ended.stdout.strip()) == (
        0,
        "The PostgreSQL database prod-db was created from the blueprint postgresql-blueprint.",
    ), ended.stderr
    assert [resource["name"] for resource in Cloud(database).call("get_resources").value] == ["prod-db"]


def test_id_is_never_the_name_of_another_resource() -> None:
    cloud = Cloud()
    cloud.call("create_resource", name="first", type="database", blueprint_id="postgresql-blueprint")
    refused = cloud.error("create_resource", name="resource-1", type="database", blueprint_id="postgresql-blueprint")
    assert "has the form of an id" in refused
    assert cloud.call("delete_resource", id="resource-1").value["deleted"]["name"] == "first"


def test_unused_tools_close_their_database() -> None:
    cloudgenie_tools()
    gc.collect()  # Python 3.13 warns about a connection that nobody closed, and warnings are errors
