"""Ready tools: weather, clock and calculator. Nothing is imported before it is used."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from midspan.tools.function import Tool
    from midspan.toolsets import calculator as calculator
    from midspan.toolsets import clock as clock
    from midspan.toolsets import weather as weather

_TOOLSETS = ("calculator", "clock", "weather")


def ready_tools() -> "list[Tool[..., Any]]":
    """Return all of the tools with their default settings: `Agent(model, ready_tools())`."""
    from midspan.toolsets import calculator, clock, weather

    return [weather.weather_tool(), *clock.clock_tools(), calculator.calculator_tool()]


if not TYPE_CHECKING:  # a type checker would accept any name otherwise

    def __getattr__(name: str) -> Any:
        if name not in _TOOLSETS:
            raise AttributeError(f"module 'midspan.toolsets' has no attribute {name!r}")
        from importlib import import_module

        return import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return [*_TOOLSETS, "ready_tools"]
