import asyncio
from typing import Any

import pytest

from midspan import Agent, tool
from midspan.errors import SchemaError
from midspan.testing import ScriptedProvider
from midspan.tools.function import Tool
from midspan.types.parts import ToolCall


class Shop:
    """Sells one thing."""

    def __init__(self, price: int) -> None:
        self._price = price

    @tool
    def price(self, item: str) -> int:
        """What an item costs."""
        return self._price

    @tool(name="buy_item", timeout=5)
    async def buy(self, item: str) -> str:
        await asyncio.sleep(0)
        return f"{item} for {self._price}"

    @classmethod
    @tool
    def motto(cls, loudly: bool = False) -> str:
        return cls.__name__.upper() if loudly else cls.__name__

    @staticmethod
    @tool
    def hours(day: str) -> str:
        return f"{day}: 9 to 5"


class Kiosk(Shop):
    """Has the same tools."""

    __slots__ = ()


def calls(*names_and_arguments: tuple[str, dict[str, Any]]) -> list[ToolCall]:
    return [ToolCall(str(n), name, arguments) for n, (name, arguments) in enumerate(names_and_arguments)]


def test_methods_are_tools_of_their_objects() -> None:
    cheap, dear = Shop(1), Kiosk(9)
    for shop, price in ((cheap, 1), (dear, 9), (cheap, 1)):
        script = [
            calls(
                ("price", {"item": "tea"}),
                ("buy_item", {"item": "tea"}),
                ("motto", {"loudly": True}),
                ("hours", {"day": "Mon"}),
            ),
            "done",
        ]
        agent = Agent(ScriptedProvider(script), tools=[shop.price, shop.buy, shop.motto, shop.hours])
        values = [one.value for one in agent.run_sync("?").tool_calls]
        assert values == [price, f"tea for {price}", type(shop).__name__.upper(), "Mon: 9 to 5"]


def test_a_method_that_is_a_tool_can_be_called_as_the_method_it_is() -> None:
    shop = Shop(3)
    assert shop.price("tea") == 3
    assert Shop.price(shop, "tea") == 3
    assert asyncio.run(shop.buy("tea")) == "tea for 3"
    assert Shop.motto(loudly=True) == "SHOP"
    assert shop.price is shop.price


def test_it_has_the_options_and_the_schema_of_the_method() -> None:
    made = Shop(3).buy
    assert isinstance(made, Tool)
    assert (made.name, made.timeout) == ("buy_item", 5)
    assert list(Shop(3).price.spec.parameters["properties"]) == ["item"]
    assert Shop(3).price.spec.description == "What an item costs."


def test_without_its_object_it_is_no_tool() -> None:
    with pytest.raises(SchemaError, match="price is a method without its object; give the method of an object"):
        Agent(ScriptedProvider(["x"]), tools=[Shop.price])


def test_objects_that_keep_nothing_have_tools_too() -> None:
    class Bare:
        __slots__ = ("n",)

        def __init__(self, n: int) -> None:
            self.n = n

        @tool
        def number(self) -> int:
            return self.n

    assert Bare(4).number() == 4
    assert [
        Agent(ScriptedProvider([ToolCall("1", "number", {}), "x"]), [Bare(n).number]).run_sync("?").tool_calls[0].value
        for n in (1, 2)
    ] == [1, 2]
