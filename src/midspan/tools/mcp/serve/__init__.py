"""MCP servers for tools, over HTTP and stdio. Needs the extra `mcp`."""

from importlib.util import find_spec

from midspan.errors import ConfigError

if find_spec("mcp") is None:
    raise ConfigError("MCP needs the package mcp; install it with pip install 'midspan[mcp]'")
