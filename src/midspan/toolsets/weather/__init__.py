"""The weather of any place, from wttr.in or whatever speaks as it does."""

from midspan.toolsets.weather.tool import weather_tool

__all__ = ["weather_tool"]
