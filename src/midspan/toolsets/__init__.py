"""Ready tools: weather, clock and calculator. Nothing is imported before it is used."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from midspan.tools.function import Tool

__all__ = ["ready_tools"]


def ready_tools() -> "list[Tool[..., Any]]":
    """Return all of the tools with their default settings: `Agent(model, ready_tools())`."""
    from midspan.toolsets import calculator, clock, weather

    return [weather.weather_tool(), *clock.clock_tools(), calculator.calculator_tool()]
