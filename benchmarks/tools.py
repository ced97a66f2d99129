"""What checking and calling a small tool costs beside bare validation and the call, in one run: ratio and budget.

The floor validates the arguments with jsonschema-rs, calls the function and validates what it returned; ours also looks
for defaults, binds, watches the clock, makes the result sayable and measures it. Exits 1 where the budget is broken.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypedDict

import jsonschema_rs

from midspan.tools.execute import execute
from midspan.tools.function import tool
from midspan.types.parts import ToolCall

BUDGET = 3.0
ROUNDS = 61
EACH = 1500


class Forecast(TypedDict):
    location: str
    units: str
    temps_c: list[int]


@tool
async def get_weather(
    location: str, days: int = 1, units: Literal["metric", "imperial"] = "metric", alerts: bool = False
) -> Forecast:
    """The weather in a place."""
    return {"location": location, "units": units, "temps_c": [21 + alerts] * days}


ARGUMENTS = {"location": "Paris, France", "days": 3, "units": "metric"}


async def cpu_microseconds(work: Callable[[], Awaitable[Any]]) -> float:
    start = time.process_time_ns()
    for _ in range(EACH):
        await work()
    return (time.process_time_ns() - start) / EACH / 1000


async def measure() -> list[tuple[float, float]]:
    """(floor, ours) of each round; the two of a round run next to each other, on the same machine in the same mood."""
    assert get_weather.spec.parameters is not None
    takes = jsonschema_rs.validator_for(get_weather.spec.parameters)
    gives = jsonschema_rs.validator_for(get_weather.spec.response or {})
    call = ToolCall("1", "get_weather", ARGUMENTS)

    async def floor() -> Any:
        assert takes.is_valid(ARGUMENTS)
        returned = await get_weather.function(**ARGUMENTS)  # type: ignore[arg-type]
        assert gives.is_valid(returned)
        return returned

    async def ours() -> Any:
        return await execute(get_weather, call)

    assert (await ours()).value == await floor()
    return [(await cpu_microseconds(floor), await cpu_microseconds(ours)) for _ in range(ROUNDS)]


def main() -> int:
    pairs = asyncio.run(measure())
    floor, ours = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratio = statistics.median(ours / floor for floor, ours in pairs)
    print(f"check and call a small tool: {ours:.2f} µs, bare validation and the call {floor:.2f} µs")
    print(f"tools {ratio:.2f}x ({BUDGET})")
    return int(ratio > BUDGET)


if __name__ == "__main__":
    sys.exit(main())
