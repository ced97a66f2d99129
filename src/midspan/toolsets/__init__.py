"""Ready tools: weather, clock and calculator; CloudGenie, a demonstration. Nothing is imported before it is used."""

from typing import TYPE_CHECKING, Any

from midspan._lazy import lazy_attributes

if TYPE_CHECKING:
    from midspan.tools.function import Tool
    from midspan.toolsets.calculator import calculate as calculate
    from midspan.toolsets.calculator import calculator_tool as calculator_tool
    from midspan.toolsets.clock import clock_tool as clock_tool
    from midspan.toolsets.cloudgenie import cloudgenie_tools as cloudgenie_tools
    from midspan.toolsets.weather import weather_tool as weather_tool

_NAMES = {
    "midspan.toolsets.calculator": "calculate calculator_tool",
    "midspan.toolsets.clock": "clock_tool",
    "midspan.toolsets.cloudgenie": "cloudgenie_tools",
    "midspan.toolsets.weather": "weather_tool",
}

if not TYPE_CHECKING:  # a type checker would accept any name otherwise
    __all__, __getattr__, __dir__ = lazy_attributes(__name__, _NAMES)
    __all__ += ["ready_tools"]


def ready_tools() -> "list[Tool[..., Any]]":
    """Return the tools for weather, time and arithmetic with their default settings: `Agent(model, ready_tools())`."""
    from midspan.toolsets import calculator, clock, weather

    return [weather.weather_tool(), clock.clock_tool(), calculator.calculator_tool()]
