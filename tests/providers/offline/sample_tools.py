"""Tools for the tests of the offline model, and a short way to ask about them."""

from collections.abc import Callable
from typing import Any, Literal

from midspan import tool
from midspan._types.specs import ToolSpec
from midspan.providers.offline.choose import choose_calls

Unit = Literal["celsius", "fahrenheit", "kelvin"]


def writing(*functions: Callable[..., Any]) -> list[ToolSpec]:
    """Tools that do not declare what they do."""
    return [tool(function).spec for function in functions]


def reading(*functions: Callable[..., Any]) -> list[ToolSpec]:
    """Tools that declare themselves read-only."""
    return [tool(reads="*")(function).spec for function in functions]


def call(question: str, tools: list[ToolSpec]) -> tuple[str, dict[str, Any]] | None:
    """The one call that a question leads to, or None."""
    calls = choose_calls(question, tools)
    assert len(calls) < 2
    return calls[0] if calls else None


def order_item(item: str, quantity: int) -> None:
    """Order an item."""


def cancel_order(order_id: int) -> None:
    """Cancel an order."""


def add_item(name: str) -> None:
    """Add an item to the shopping list."""


def remove_item(name: str) -> None:
    """Remove an item from the shopping list."""


def open_valve(valve_id: int) -> None:
    """Open a valve."""


def close_valve(valve_id: int) -> None:
    """Close a valve."""


def lock_door(door: str) -> None:
    """Lock a door of the house."""


def unlock_door(door: str) -> None:
    """Unlock a door of the house."""


def start_server(name: str) -> None:
    """Start a server."""


def stop_server(name: str) -> None:
    """Stop a server."""


def buy_shares(symbol: str, quantity: int) -> None:
    """Buy shares of a company."""


def sell_shares(symbol: str, quantity: int) -> None:
    """Sell shares of a company."""


def enable_feature(feature: str) -> None:
    """Enable a feature of the app."""


def disable_feature(feature: str) -> None:
    """Disable a feature of the app."""


def send_message(recipient: str, text: str) -> None:
    """Send a message to somebody."""


def delete_message(message_id: int) -> None:
    """Delete a message."""


def turn_on_light(room: str) -> None:
    """Turn on the light in a room."""


def turn_off_light(room: str) -> None:
    """Turn off the light in a room."""


def delete_user(user_id: int) -> None:
    """Delete a user."""


def convert_temperature(value: float, from_unit: Unit, to_unit: Unit) -> float:
    """Convert a temperature."""
    return value


def stock_level(item: str) -> int:
    """How many pieces of an item are in stock."""
    return {"lamp": 12, "chair": 4}[item]


def get_weather(city: str) -> dict[str, Any]:
    """The weather in a city."""
    return {"city": city, "sky": "clear"}


def triangle_area(base: float, height: float) -> float:
    """The area of a triangle.

    Args:
        base: The base in meters.
        height: The height in meters.
    """
    return base * height / 2


def find_route(origin: str, destination: str) -> list[str]:
    """Find a route from one city to another."""
    return [origin, destination]
