"""Coroutines marked with `pytest.mark.anyio` are tests: the plugin comes with the MCP SDK."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
