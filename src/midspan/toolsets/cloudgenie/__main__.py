"""Serve CloudGenie over MCP: python -m midspan.toolsets.cloudgenie [--database FILE] [--http PORT]"""

import asyncio
import os
import sys
from argparse import ArgumentParser
from contextlib import suppress

from midspan.errors import ConfigError
from midspan.toolsets.cloudgenie import cloudgenie_tools

_INSTRUCTIONS = "Look up the blueprints before you create a resource, and name resources as the user does."


def main() -> None:
    parser = ArgumentParser("python -m midspan.toolsets.cloudgenie", description="Serve CloudGenie over MCP.")
    parser.add_argument("--database", metavar="FILE", default=":memory:", help="where resources are kept")
    parser.add_argument("--http", metavar="PORT", type=int, help="serve over HTTP, at /mcp, instead of stdio")
    options = parser.parse_args()
    try:
        from midspan.tools.mcp.serve.app import serve_mcp

        tools = cloudgenie_tools(options.database)
        serving = serve_mcp(tools, name="cloudgenie", instructions=_INSTRUCTIONS, port=options.http, on_start=_show)
        with suppress(KeyboardInterrupt):
            asyncio.run(serving)
    except ConfigError as error:
        parser.error(str(error))


def _show(url: str) -> None:
    sys.stderr.write(f"CloudGenie is at {url}{os.linesep}")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
