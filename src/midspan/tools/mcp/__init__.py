"""MCP, both ways: the tools of MCP servers, and MCP servers for tools. Needs the extra `mcp`."""
