"""CPU of a call of an MCP tool: through Midspan, and with the bare client of the SDK.

python benchmarks/mcp_calls.py [CALLS]

Both call the same server in another process, in turns; only the CPU of the client counts. The SDK validates structured
results with jsonschema, Midspan with jsonschema-rs. Exits 1 if Midspan takes more than 1.3 times the CPU of the SDK.
"""

import asyncio
import statistics
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import process_time

from mcp import Client, StdioServerParameters

from midspan._types.context import RunContext
from midspan._types.parts import ToolCall
from midspan.tools import MCPServer
from midspan.tools.execution import run_call

SERVER = [sys.executable, str(Path(__file__).parent.parent / "tests" / "tools" / "mcp" / "sample_server.py")]
ROUNDS = 7
MAX_RATIO = 1.3


async def measure(name: str, bare: Client, source: MCPServer, calls: int) -> float:
    async def with_sdk() -> None:
        result = await bare.call_tool("add", {"a": 1, "b": 2})
        assert result.structured_content == {"result": 3}

    async def with_midspan() -> None:
        context = RunContext(None, run_id="run", call_id="1")
        result, _ = await run_call(source.call, ToolCall("1", "add", {"a": 1, "b": 2}), context)
        assert result.value == 3

    await bare.list_tools()
    await source.list_tools()
    pairs = [(await cpu(with_sdk, calls), await cpu(with_midspan, calls)) for _ in range(ROUNDS + 1)]
    sdk, midspan = (statistics.median(column) * 1e6 for column in zip(*pairs[1:], strict=True))
    ratio = statistics.median(midspan / sdk for sdk, midspan in pairs[1:])
    print(f"{name:<6} SDK {sdk:6.0f} µs   Midspan {midspan:6.0f} µs   ratio {ratio:.2f}")
    return ratio


async def cpu(call: Callable[[], Awaitable[None]], calls: int) -> float:
    """Return the CPU seconds of one call."""
    start = process_time()
    for _ in range(calls):
        await call()
    return (process_time() - start) / calls


def main() -> int:
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    with subprocess.Popen([*SERVER, "--http"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            url = f"http://127.0.0.1:{process.stdout.readline().strip()}/mcp"
            ratios = asyncio.run(measure_all(url, calls))
        finally:
            process.kill()
    return int(max(ratios) > MAX_RATIO)


async def measure_all(url: str, calls: int) -> list[float]:
    source = MCPServer(SERVER, name="sample")
    async with Client(StdioServerParameters(command=SERVER[0], args=SERVER[1:])) as bare:
        ratios = [await measure("stdio", bare, source, calls)]
    await source.aclose()
    source = MCPServer(url=url, name="sample")
    async with Client(url) as bare:
        # A call takes 50 ms here, nearly all of it waiting.
        ratios.append(await measure("HTTP", bare, source, max(1, calls // 10)))
    await source.aclose()
    return ratios


if __name__ == "__main__":
    sys.exit(main())
