import asyncio
import gzip
import json
from importlib.resources import files
from typing import Any

import pytest

from midspan._schema.arguments import SchemaValidator
from midspan._types.parts import ToolCall, ToolResult
from midspan._types.specs import Effects
from midspan.errors import ConfigError
from midspan.tools.execution import execute
from midspan.tools.function import Tool
from midspan.toolsets.weather import weather_tool
from tests.http import misbehaving
from tests.http.misbehaving import Behaviour, Exchange, Server, response
from tests.http.test_errors import run
from tests.toolsets.stand_in import DAYS, document, forecast, path_of

BASIC = {"location": "東京", "current_temp_c": "1", "condition": "Partly cloudy"}


def ask(behaviour: Behaviour, timeout: float = 4.0, **arguments: Any) -> ToolResult:
    """Call the tool while the service behaves like this. No connection may be left open."""
    results = []

    async def main() -> None:
        async with Server(behaviour) as server:
            tool = tool_for(server, timeout)
            results.append(await call(tool, **{"location": "東京", **arguments}))
            server.go_on.set()
        assert all(b"Host: 127.0.0.1" in request.head for request in server.requests)

    run(main())
    return results[0]


def tool_for(server: Server, timeout: float = 4.0) -> Tool[..., Any]:
    return weather_tool(url=f"http://127.0.0.1:{server.port}", timeout=timeout)


async def call(tool: Tool[..., Any], **arguments: Any) -> ToolResult:
    return await execute(tool, ToolCall("1", "get_weather", arguments))


def answering(body: Any, status: str = "200 OK", *headers: str) -> Behaviour:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def answer(exchange: Exchange) -> None:
        await exchange.send(response(data, status, *headers))

    return answer


def error_of(result: ToolResult) -> str:
    assert result.is_error
    assert isinstance(result.value, str)
    return result.value


@pytest.mark.requirement("S3-12")
def test_default_call_returns_three_fields_for_a_place_in_any_script() -> None:
    result = ask(forecast)
    assert (result.is_error, result.value) == (False, BASIC)


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("東京", "/%E6%9D%B1%E4%BA%AC"),
        ("São Paulo", "/S%C3%A3o%20Paulo"),
        (" Springfield, Illinois ", "/Springfield%2C%20Illinois"),
        ("48.85,-2.35", "/48.85%2C-2.35"),
        ("~Eiffel Tower", "/~Eiffel%20Tower"),
        ("a&b=c+d", "/a%26b%3Dc%2Bd"),
        ("दिल्ली", "/%E0%A4%A6%E0%A4%BF%E0%A4%B2%E0%A5%8D%E0%A4%B2%E0%A5%80"),
    ],
)
def test_place_is_one_quoted_segment_of_the_path(place: str, path: str) -> None:
    async def main() -> None:
        async with Server(forecast) as server:
            result = await call(tool_for(server), location=place)
            assert result.value["location"] == place
            asked, _, query = path_of(server.requests[0]).partition("?")
            assert query == "format=j1"
            # Some characters may stand in a path as they are or quoted, and mean the same.
            assert asked.replace(",", "%2C").replace("+", "%2B").replace("&", "%26").replace("=", "%3D") == path

    run(main())


@pytest.mark.parametrize(
    "place",
    [
        "..",
        ".",
        "   ",
        "../../admin",
        "a/b",
        "a\\b",
        "x?format=3",
        "x#y",
        "%2e%2e",
        "@example.org",
        ":help",
        "a\r\nb",
        "a\x00b",
        "\ud800x",
        "http://elsewhere",
        "//elsewhere",
    ],
)
def test_invalid_place_is_never_sent(place: str) -> None:
    async def main() -> None:
        async with Server(forecast) as server:
            words = error_of(await call(tool_for(server), location=place))
            assert words.startswith("invalid parameters: location: ")
            assert server.requests == []

    run(main())


@pytest.mark.parametrize(
    "arguments",
    [
        {"location": ""},
        {"location": "x" * 101},
        {"location": ["Oslo", "Rome"]},
        {},
        {"location": "Oslo", "detail": "all"},
        {"location": "Oslo", "host": "elsewhere"},
    ],
)
def test_arguments_are_validated(arguments: dict[str, Any]) -> None:
    assert error_of(asyncio.run(call(weather_tool(), **arguments))).startswith("invalid parameters:")


@pytest.mark.parametrize(
    ("date", "expected"),
    [
        ("today", DAYS[0]),
        ("tomorrow", DAYS[1]),
        ("day_after_tomorrow", DAYS[2]),
        (DAYS[1], DAYS[1]),
    ],
)
def test_day_can_be_a_word_or_a_date(date: str, expected: str) -> None:
    result = ask(forecast, date=date)
    assert result.value["forecast"]["date"] == expected
    assert {name: result.value[name] for name in BASIC} == BASIC


def test_forecast_has_the_range_and_the_weather_at_noon() -> None:
    assert ask(forecast, date="today").value == {
        **BASIC,
        "forecast": {"date": DAYS[0], "min_temp_c": "-2", "max_temp_c": "5", "condition": "Sunny"},
    }


@pytest.mark.parametrize("date", ["2026-11-30", "7", "next week", "2026-02-31"])
def test_day_beyond_the_forecast_is_reported_with_the_known_days(date: str) -> None:
    assert error_of(ask(forecast, date=date)) == (
        f"there is no forecast for {date!r}; there are forecasts for {', '.join(DAYS)}"
    )


def test_invalid_forecast_does_not_matter_if_it_is_not_requested() -> None:
    for body in (changed("", "weather", 1, "mintempC"), changed({}, "weather"), changed(None, "weather")):
        assert ask(answering(body)).value == BASIC
    body = changed("", "weather", 1, "mintempC")
    assert ask(answering(body), date="today").value["forecast"]["date"] == DAYS[0]
    assert ask(answering(body), date="day_after_tomorrow").value["forecast"]["date"] == DAYS[2]
    assert error_of(ask(answering(body), date="tomorrow")).startswith("invalid response: forecast.min_temp_c: ")


def test_missing_value_is_reported_with_its_name() -> None:
    body = changed("", "current_condition", 0, "temp_C")
    assert error_of(ask(answering(body))).startswith("invalid response: current_temp_c: ")


def test_report_cached_since_yesterday_does_not_shift_the_days() -> None:
    kept = document()
    kept["current_condition"][0]["localObsDateTime"] = f"{DAYS[1]} 00:10 AM"
    assert ask(answering(kept), date="today").value["forecast"]["date"] == DAYS[1]
    assert "there is no forecast" in error_of(ask(answering(kept), date="day_after_tomorrow"))


def test_detail_levels_add_fields() -> None:
    detailed, full = ask(forecast, detail="detailed").value, ask(forecast, detail="full", date="today").value
    assert detailed == {
        **BASIC,
        "details": {
            "feels_like_c": "-3",
            "humidity_percent": "81",
            "wind_kmph": "14",
            "precipitation_mm": "0.4",
            "wind_direction": "SSW",
        },
    }
    assert full["details"]["pressure_hpa"] == "1013"
    assert full["area"] == "東京, Norway"
    assert full["observed_at"] == f"{DAYS[0]} 10:12 AM"
    assert (full["forecast"]["sunrise"], full["forecast"]["sunset"]) == ("08:05 AM", "03:50 PM")
    assert full["forecast"]["details"]["rain_chance_percent"] == "20"


@pytest.mark.parametrize(
    ("areas", "area"),
    [
        ([{"areaName": [{"value": "Rockall"}], "country": [{"value": ""}]}], "Rockall"),
        ([{"areaName": [{"value": "x" * 99}], "country": [{"value": "Norway"}]}], "x" * 40),
        ([{"areaName": []}], None),
        ("Oslo", None),
    ],
)
def test_area_has_town_and_country_if_known(areas: Any, area: str | None) -> None:
    assert ask(answering(document(nearest_area=areas)), detail="full").value.get("area") == area


def test_hourly_forecast_is_for_the_requested_day() -> None:
    hours = ask(forecast, hourly=True, date="tomorrow").value["forecast"]["hourly"]
    assert [hour["time"] for hour in hours] == [f"{hour:02}:00" for hour in range(0, 24, 3)]
    assert hours[4] == {"time": "12:00", "temp_c": "4", "condition": "Sunny"}
    assert "details" in ask(forecast, hourly=True, detail="full").value["forecast"]["hourly"][0]


def test_invalid_details_are_left_out() -> None:
    odd = document()
    odd["current_condition"][0] |= {"humidity": "", "uvIndex": 3, "pressure": None, "winddir16Point": ["N"]}
    odd["weather"][0]["astronomy"] = [{}]
    value = ask(answering(odd), detail="full", date="today").value
    assert "sunrise" not in value["forecast"]
    assert value["details"].keys() == {
        "feels_like_c",
        "wind_kmph",
        "precipitation_mm",
        "visibility_km",
        "cloud_cover_percent",
    }


@pytest.mark.requirement("S3-10")
@pytest.mark.parametrize(
    "behaviour",
    [misbehaving.stall_before_head, misbehaving.stall_within_head, misbehaving.stall_in_body, misbehaving.drip],
)
def test_slow_service_is_reported_as_a_timeout(behaviour: Behaviour) -> None:
    assert error_of(ask(behaviour, timeout=0.1)) == "API request failed: timeout"


@pytest.mark.requirement("S3-10")
def test_timeout_is_three_seconds_by_default() -> None:
    assert weather_tool().timeout == 13.0  # longer than the request
    assert weather_tool(timeout=20).timeout == 30.0


@pytest.mark.parametrize(
    "behaviour",
    [
        misbehaving.reset_before_head,
        misbehaving.close_within_head,
        misbehaving.garbage,
        misbehaving.close_within_chunk,
        misbehaving.promise_more_than_sent,
        misbehaving.bad_compression,
    ],
)
def test_connection_errors_are_reported(behaviour: Behaviour) -> None:
    assert error_of(ask(behaviour)).startswith("API request failed: ")


def test_unreachable_service_is_reported() -> None:
    async def main() -> None:
        async with Server(forecast) as server:
            port = server.port
        words = error_of(await call(weather_tool(url=f"http://127.0.0.1:{port}"), location="Oslo"))
        assert words.startswith("API request failed: ")
        assert f"127.0.0.1:{port}" in words
        assert "connection refused" in words

    run(main())


async def endless(exchange: Exchange) -> None:
    await exchange.send(misbehaving.CHUNKED_HEAD)
    while True:
        await exchange.send(misbehaving.chunk(b" " * 2**16))


@pytest.mark.parametrize(
    "behaviour",
    [
        answering(b'"' + b"x" * 2**21 + b'"'),
        answering(gzip.compress(b" " * 2**24), "200 OK", "Content-Encoding: gzip"),
        endless,
    ],
)
@pytest.mark.requirement("S3-15")
def test_response_above_one_mebibyte_is_rejected(behaviour: Behaviour) -> None:
    assert "is larger than 1,048,576 bytes" in error_of(ask(behaviour))


def test_response_of_one_mebibyte_is_accepted() -> None:
    body = json.dumps(document()).encode()
    assert not ask(answering(body + b" " * (2**20 - len(body)))).is_error
    assert ask(answering(body + b" " * (2**20 - len(body) + 1))).is_error


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("404 Not Found", "unknown place '東京'; try another spelling, or a larger place near it (status 404)"),
        ("429 Too Many Requests", "too many requests; try later (status 429)"),
        ("500 Internal Server Error", "the service failed; try again later (status 500)"),
        ("204 No Content", "status 204"),
        ("403 Forbidden", "status 403"),
    ],
)
def test_status_is_explained(status: str, words: str) -> None:
    body = b"" if status.startswith("204") else b"<html>no</html>"
    assert words in error_of(ask(answering(body, status)))


def test_redirect_is_not_followed() -> None:
    async def main() -> None:
        async with Server(forecast) as elsewhere:
            location = f"Location: http://127.0.0.1:{elsewhere.port}/Oslo?format=j1"
            async with Server(answering(b"", "301 Moved Permanently", location)) as server:
                assert "(status 301)" in error_of(await call(tool_for(server), location="Oslo"))
            assert elsewhere.accepted == 0

    run(main())


def without(*path: Any) -> dict[str, Any]:
    found: Any = document()
    whole = found
    for step in path[:-1]:
        found = found[step]
    del found[path[-1]]
    return whole


def changed(value: Any, *path: Any) -> dict[str, Any]:
    found: Any = document()
    whole = found
    for step in path[:-1]:
        found = found[step]
    found[path[-1]] = value
    return whole


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html><body>Sorry</body></html>",
        b"Unknown location; please try ~35.6,139.7",
        b"\xff\xfe",
        b'{"current_condition": [',
        b"[" * 100_000,
        b'{"x":' * 100_000,
        [],
        {},
        "text",
        {"current_condition": []},
        without("current_condition", 0, "temp_C"),
        without("current_condition", 0, "weatherDesc"),
        without("weather", 0, "hourly"),
        changed(15, "current_condition", 0, "temp_C"),
        changed("warm", "current_condition", 0, "temp_C"),
        changed([], "current_condition", 0, "weatherDesc"),
        changed([{"value": "x" * 201}], "current_condition", 0, "weatherDesc"),
        changed("2500", "weather", 0, "hourly", 0, "time"),
        changed({}, "weather"),
    ],
)
def test_invalid_body_is_reported(body: Any) -> None:
    words = error_of(ask(answering(body), date="today", hourly=True))
    assert words.startswith(("API request failed: the response ", "invalid response: ", "there is no forecast "))
    assert "html" not in words


def test_forecast_is_not_shifted_if_the_report_has_no_day_for_today() -> None:
    body = changed("yesterday", "weather", 0, "date")
    assert error_of(ask(answering(body), date="today")) == (
        f"there is no forecast for 'today'; there are forecasts for yesterday, {', '.join(DAYS[1:])}"
    )


@pytest.mark.parametrize(("date", "expected"), [("today", DAYS[0]), ("tomorrow", DAYS[1]), (None, DAYS[0])])
def test_days_are_counted_from_the_first_one_if_the_time_of_observation_is_unknown(
    date: str | None, expected: str
) -> None:
    body = document()
    del body["current_condition"][0]["localObsDateTime"]
    arguments = {"hourly": True} if date is None else {"date": date}
    assert ask(answering(body), **arguments).value["forecast"]["date"] == expected


def test_report_without_days_has_the_current_weather() -> None:
    assert ask(answering(document(weather=[]))).value == BASIC
    assert "there are forecasts for no day" in error_of(ask(answering(document(weather=[])), date="today"))


def test_cancelled_call_closes_its_connection() -> None:
    async def main() -> None:
        async with Server(misbehaving.stall_before_head) as server:
            task = asyncio.create_task(call(tool_for(server), location="Oslo"))
            await server.until(lambda: bool(server.requests))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await server.until_all_gone()

    run(main())


def test_url_comes_from_the_environment_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with Server(forecast) as server:
            monkeypatch.setenv("MIDSPAN_WEATHER_URL", f"http://127.0.0.1:{server.port}/weather/")
            assert not (await call(weather_tool(), location="Oslo")).is_error
            assert path_of(server.requests[0]) == "/weather/Oslo?format=j1"
            monkeypatch.setenv("MIDSPAN_WEATHER_URL", "http://127.0.0.1:9")
            assert not (await call(tool_for(server), location="Oslo")).is_error

    run(main())


@pytest.mark.parametrize(
    "url", ["wttr.in", "ftp://wttr.in", "http://", "http://h?x=1", "http://h#x", "http://h:x", "http://[::1"]
)
def test_invalid_url_is_rejected(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^weather_tool, url=… or MIDSPAN_WEATHER_URL: '.*' is not a valid base URL"):
        weather_tool(url=url)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf")])
def test_invalid_timeout_is_rejected(timeout: Any) -> None:
    with pytest.raises(ConfigError, match="timeout"):
        weather_tool(timeout=timeout)


@pytest.mark.requirement("S3-12")
def test_schemas_are_package_data() -> None:
    tool = weather_tool()
    for name, schema in (("parameters.json", tool.spec.parameters), ("response.json", tool.spec.response)):
        assert json.loads(files("midspan.toolsets.weather").joinpath(name).read_bytes()) == schema
    assert tool.spec.response is not None
    assert tool.spec.response is not None
    assert SchemaValidator(tool.spec.response).accepts(BASIC)
    assert not SchemaValidator(tool.spec.response).accepts({**BASIC, "more": 1})


def test_tool_declares_its_name_effects_and_examples() -> None:
    spec = weather_tool().spec
    assert spec.name == "get_weather"
    assert spec.effects == Effects(reads=("weather:{location}",))
    assert {"location": "東京"} in spec.examples
