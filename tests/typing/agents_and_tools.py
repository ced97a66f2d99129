"""Agents, tools and their options, as a program with strict type checking uses them."""

from dataclasses import dataclass
from typing import Any, assert_type

from midspan import Agent, Context, Limits, ModelSettings, RunContext, RunResult, Tool, Toolbox, tool
from midspan.testing import ScriptedProvider
from midspan.tools import LocalTools, Prefixed, ToolSpec, tool_from_schema


@dataclass
class Place:
    city: str
    country: str = "Norway"


@dataclass
class User:
    name: str


@tool(timeout=5)
async def forecast(place: Place, days: int = 1) -> dict[str, float]:
    """The temperature of the next days."""
    return {f"{place.city} {day}": 20.0 for day in range(days)}


@tool
def add(a: int, b: int) -> int:
    """The sum."""
    return a + b


@tool
def greet(user: Context[User], context: RunContext[User]) -> str:
    """Greet the user."""
    context.progress(0.5, "half")
    return f"Hello {user.name}"


class Shop:
    def __init__(self, prices: dict[str, float]) -> None:
        self.prices = prices

    @tool
    def price(self, item: str) -> float:
        """The price of an item."""
        return self.prices[item]

    @tool(read_only=True)
    async def stock(self, item: str, minimum: int = 0) -> int:
        """How many there are."""
        return max(minimum, len(item))


async def main() -> None:
    shop = Shop({"tea": 3.0})
    assert_type(add(1, 2), int)
    assert_type(await forecast(Place("Oslo"), days=2), dict[str, float])
    assert_type(shop.price("tea"), float)
    assert_type(shop.price(item="tea"), float)
    assert_type(await shop.stock("tea", minimum=1), int)
    assert_type(shop.price.name, str)

    agent = Agent("gemini:gemini-3.8-flash", [add, forecast, greet, shop.price], limits=Limits(max_turns=3))
    assert_type(agent.model, str)
    result = await agent.run("hello", context=User("Ada"), settings=ModelSettings(temperature=0.0))
    assert_type(result, RunResult[str])
    assert_type(result.output, str)
    assert_type(agent.run_sync("hello", limits={"max_turns": 3}, settings={"seed": 1}).turns, int)
    agent.run_sync("hello", tool_choice="add", raise_tool_errors=True)

    toolbox = Toolbox()
    toolbox.register(add, session="one")
    tools: list[Any] = [toolbox.source("one"), Prefixed(LocalTools([add]), "math_"), ToolSpec("ask"), {"name": "x"}]
    Agent(ScriptedProvider(["hi"]), tools, raise_tool_errors=True, limits={"max_turns": 3})
    declared: Tool[..., Any] = tool_from_schema("add", "Adds.", {"type": "object"}, print, timeout=5)
    print(declared)

    agent.run_sync("hello", temperature=3)  # type: ignore
    Limits(max_turns="ten")  # type: ignore
    add("1", 2)  # type: ignore
    shop.price(3)  # type: ignore
    Agent("gemini:gemini-3.8-flash", tool_choices="any")  # type: ignore
    tool(timeout="5")  # type: ignore
    tool_from_schema("add", "Adds.", {}, print, timeouts=5)  # type: ignore
    result.text.append("more")  # type: ignore
