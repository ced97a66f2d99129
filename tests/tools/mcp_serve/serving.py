"""An ASGI application on a real port of this machine, and the eras in which clients connect."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

ERAS = ("legacy", "auto")
"""How the official client connects: with the handshake of 2025-11-25, or as 2026-07-28 has it."""


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[str]:
    """Yield the address of the application, which is served by uvicorn in this event loop."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="critical", ws="none"))
    task = asyncio.create_task(server.serve())
    try:
        while not server.started:
            if task.done():
                await task
            await asyncio.sleep(0.005)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.should_exit = True
        server.force_exit = True
        await task
