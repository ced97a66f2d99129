"""A server on the SDK of the 1.x line, over stdio. It runs in an environment of its own."""

from mcp.server.fastmcp import Context, FastMCP  # type: ignore[import-not-found]  # of mcp 1.x
from pydantic import BaseModel

server = FastMCP("old")


class Size(BaseModel):
    size: int


@server.tool()
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


@server.tool()
async def order(context: Context) -> str:
    """Asks for a size and reports progress."""
    await context.report_progress(1, 2)
    answer = await context.elicit("Which size?", Size)
    return f"size {answer.data.size}"


if __name__ == "__main__":
    server.run("stdio")
