"""Tools that are ready to be given to a model: the weather, the time, arithmetic.

Nothing is loaded before it is used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wasat.tools.function import Tool
    from wasat.toolsets import calculator as calculator
    from wasat.toolsets import clock as clock
    from wasat.toolsets import weather as weather

_TOOLSETS = ("calculator", "clock", "weather")


def ready_tools() -> "list[Tool[..., Any]]":
    """All of them with their usual settings: `Agent(model, ready_tools())`."""
    from wasat.toolsets import calculator, clock, weather

    return [weather.weather_tool(), *clock.clock_tools(), calculator.calculator_tool()]


if not TYPE_CHECKING:  # or a checker would believe that every name is here

    def __getattr__(name: str) -> Any:
        if name not in _TOOLSETS:
            raise AttributeError(f"module 'wasat.toolsets' has no attribute {name!r}")
        from importlib import import_module

        return import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return [*_TOOLSETS, "ready_tools"]
