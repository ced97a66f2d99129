"""A stand-in for wttr.in on loopback, which answers as the service does with `?format=j1`."""

import json
from typing import Any
from urllib.parse import unquote

from tests.http.misbehaving import Exchange, response

DAYS = ("2026-11-16", "2026-11-17", "2026-11-18")


def sky(condition: str, **more: str) -> dict[str, Any]:
    return {
        "FeelsLikeC": "-3",
        "FeelsLikeF": "27",
        "cloudcover": "75",
        "humidity": "81",
        "precipInches": "0.0",
        "precipMM": "0.4",
        "pressure": "1013",
        "pressureInches": "30",
        "uvIndex": "1",
        "visibility": "10",
        "visibilityMiles": "6",
        "weatherCode": "116",
        "weatherDesc": [{"value": condition}],
        "weatherIconUrl": [{"value": ""}],
        "winddir16Point": "SSW",
        "winddirDegree": "200",
        "windspeedKmph": "14",
        "windspeedMiles": "9",
        **more,
    }


def day(date: str, warmth: int) -> dict[str, Any]:
    hours = [
        sky(
            "Sunny" if time == 1200 else "Clear ",
            time=str(time),
            tempC=str(warmth + time // 300),
            chanceofrain="20",
            chanceofsnow="0",
        )
        for time in range(0, 2400, 300)
    ]
    return {
        "astronomy": [{"moon_phase": "Waxing Crescent", "sunrise": "08:05 AM", "sunset": "03:50 PM"}],
        "avgtempC": str(warmth + 3),
        "date": date,
        "hourly": hours,
        "maxtempC": str(warmth + 7),
        "mintempC": str(warmth),
        "sunHour": "4.0",
        "totalSnow_cm": "0.0",
        "uvIndex": "1",
    }


def document(place: str = "Oslo", **more: Any) -> dict[str, Any]:
    now = sky(
        "Partly cloudy", temp_C="1", temp_F="34", localObsDateTime=f"{DAYS[0]} 10:12 AM", observation_time="09:12 AM"
    )
    return {
        "current_condition": [now],
        "nearest_area": [
            {
                "areaName": [{"value": place}],
                "country": [{"value": "Norway"}],
                "latitude": "59.917",
                "longitude": "10.750",
                "population": "0",
                "region": [{"value": ""}],
                "weatherUrl": [{"value": ""}],
            }
        ],
        "request": [{"query": place, "type": "City"}],
        "weather": [day(date, warmth) for date, warmth in zip(DAYS, (-2, 0, 3), strict=True)],
        **more,
    }


async def forecast(exchange: Exchange) -> None:
    """What a healthy service does."""
    place = unquote(path_of(exchange).partition("?")[0].strip("/"))
    await exchange.send(response(json.dumps(document(place)).encode(), "200 OK", "Content-Type: application/json"))


def path_of(exchange: Exchange) -> str:
    return exchange.head.split(b" ")[1].decode()
