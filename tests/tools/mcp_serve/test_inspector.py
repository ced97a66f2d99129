"""The Inspector, a client in TypeScript, lists and calls tools of ours over stdio and HTTP."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from midspan.tools import mcp_app
from midspan.toolsets.cloudgenie import cloudgenie_tools
from tests.bounds import BOUND
from tests.tools.mcp_serve.serving import served

MODULES = Path(os.environ.get("MIDSPAN_NODE_MODULES", ""))
NODE = MODULES / "node" / "bin" / "node"
INSPECTOR = MODULES / "@modelcontextprotocol" / "inspector-cli" / "build" / "index.js"

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(
        not NODE.is_file() or not INSPECTOR.is_file(),
        reason="needs MIDSPAN_NODE_MODULES with the npm packages node@22 and @modelcontextprotocol/inspector-cli",
    ),
]

CREATE = ("name=prod-db", "type=database", "blueprint_id=postgresql-blueprint")


async def inspect(server: list[str], *options: str) -> Any:
    process = await asyncio.create_subprocess_exec(
        *map(str, (NODE, INSPECTOR, *server, *options)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await asyncio.wait_for(process.communicate(), 2 * BOUND)
    assert process.returncode == 0, errors.decode()
    return json.loads(output)


async def list_and_create(server: list[str]) -> None:
    listed = await inspect(server, "--method", "tools/list")
    assert len(listed["tools"]) == 8
    assert listed["tools"][6]["annotations"]["destructiveHint"] is True
    arguments = [option for argument in CREATE for option in ("--tool-arg", argument)]
    call = ["--method", "tools/call", "--tool-name", "cloudgenie_create_resource"]
    created = await inspect(server, *call, *arguments)
    assert created["structuredContent"]["name"] == "prod-db"
    assert json.loads(created["content"][0]["text"]) == created["structuredContent"]


@pytest.mark.requirement("MS-01")
async def test_inspector_uses_a_server_over_stdio() -> None:
    await list_and_create([sys.executable, "-m", "midspan.toolsets.cloudgenie"])


@pytest.mark.requirement("MS-01")
async def test_inspector_uses_a_server_over_http() -> None:
    async with served(mcp_app(cloudgenie_tools())) as url:
        await list_and_create([url, "--transport", "http"])
