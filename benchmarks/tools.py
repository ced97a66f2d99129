"""The cost of executing a small tool beside a hand-written floor, in one run: ratio and budget.

The floor validates the arguments with jsonschema-rs, awaits the function in a task of its own and validates what it
returned. Midspan also applies defaults, binds the arguments, enforces the timeout, copies the result and measures its
size. The second floor awaits the function without a task; it has no budget, because nothing in it could be cancelled
or abandoned. Exits 1 if the budget is exceeded.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypedDict

import jsonschema_rs

from midspan._types.parts import ToolCall
from midspan.tools.execution import execute
from midspan.tools.function import tool

BUDGET = 1.5
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


async def measure() -> list[tuple[float, float, float]]:
    """Return (floor, bare floor, Midspan) of each round; a round runs them right after each other."""
    assert get_weather.spec.parameters is not None
    takes = jsonschema_rs.validator_for(get_weather.spec.parameters)
    gives = jsonschema_rs.validator_for(get_weather.spec.response or {})
    call = ToolCall("1", "get_weather", ARGUMENTS)

    async def floor() -> Any:
        assert takes.is_valid(ARGUMENTS)
        returned = await asyncio.create_task(get_weather.function(**ARGUMENTS))  # type: ignore[arg-type]
        assert gives.is_valid(returned)
        return returned

    async def bare() -> Any:
        assert takes.is_valid(ARGUMENTS)
        returned = await get_weather.function(**ARGUMENTS)  # type: ignore[arg-type]
        assert gives.is_valid(returned)
        return returned

    async def ours() -> Any:
        return await execute(get_weather, call)

    assert (await ours()).value == await floor() == await bare()
    return [
        (await cpu_microseconds(floor), await cpu_microseconds(bare), await cpu_microseconds(ours))
        for _ in range(ROUNDS)
    ]


def main() -> int:
    rounds = asyncio.run(measure())
    floor, bare, ours = (statistics.median(times) for times in zip(*rounds, strict=True))
    ratio = statistics.median(ours / floor for floor, _, ours in rounds)
    print(f"execute a small tool: {ours:.2f} µs; floor in a task {floor:.2f} µs, without a task {bare:.2f} µs")
    print(f"tools {ratio:.2f}x ({BUDGET}); without a task {statistics.median(c / b for _, b, c in rounds):.2f}x")
    return int(ratio > BUDGET)


if __name__ == "__main__":
    sys.exit(main())
