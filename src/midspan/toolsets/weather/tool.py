"""The tool `get_weather`, put together: its schemas, its service, its report."""

from importlib.resources import files
from typing import Any

from midspan._http.transport import Transport
from midspan.tools.declared import tool_from_schema
from midspan.tools.function import Tool
from midspan.toolsets.weather.document import read
from midspan.toolsets.weather.report import report
from midspan.toolsets.weather.service import DEFAULT_TIMEOUT, Service

_DESCRIPTION = (
    "The weather at a place: the temperature and the condition now, and if asked for, a forecast for one of the next "
    "days. Call it once for each place."
)
_EXAMPLES = (
    {"location": "東京"},
    {"location": "Oslo", "date": "tomorrow", "detail": "detailed"},
    {"location": "Springfield, Illinois", "date": "today", "hourly": True},
)
_PATIENCE = 10.0
"""Seconds beyond the service's own time, so that its words reach the model and not those of a tool that hangs."""


def weather_tool(
    *, url: str | None = None, timeout: float = DEFAULT_TIMEOUT, transport: Transport | None = None
) -> Tool[..., Any]:
    """The tool `get_weather`.

    `url` is the service's address; if it is not given, that of MIDSPAN_WEATHER_URL, or wttr.in. `timeout` is for the
    whole exchange with it, in seconds.
    """
    service = Service(url, timeout=timeout, transport=transport)

    async def get_weather(arguments: dict[str, Any]) -> dict[str, Any]:
        document = read(await service.fetch(arguments["location"]))
        return report(document, **arguments)

    return tool_from_schema(
        "get_weather",
        _DESCRIPTION,
        _schema("parameters.json"),
        get_weather,
        response=_schema("response.json"),
        reads="weather:{location}",
        examples=_EXAMPLES,
        timeout=timeout + _PATIENCE,
    )


def _schema(name: str) -> bytes:
    return files(__package__).joinpath(name).read_bytes()
