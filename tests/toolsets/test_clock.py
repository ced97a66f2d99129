import asyncio
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from midspan._types.parts import ToolCall, ToolResult
from midspan._types.specs import Effects
from midspan.errors import ConfigError
from midspan.tools.execution import execute
from midspan.toolsets.clock import clock_tool

WINTER = datetime(2026, 1, 15, 12, 30, 15, 999, tzinfo=UTC)
SUMMER = datetime(2026, 7, 15, 12, 30, tzinfo=UTC)
BEFORE_SPRING = datetime(2026, 3, 29, 0, 59, 59, tzinfo=UTC)
"""The last second of winter time in Europe."""


def ask(now: datetime = WINTER, home: str = "UTC", **arguments: Any) -> ToolResult:
    return asyncio.run(execute(clock_tool(now=lambda: now, home=home), ToolCall("1", "get_time", arguments)))


def time_in(zone: str, now: datetime = WINTER) -> str:
    result = ask(now, zone=zone)
    assert not result.is_error, result.value
    return str(result.value["time"])


def error(result: ToolResult) -> str:
    assert result.is_error
    return str(result.value)


def test_time_has_weekday_and_zone() -> None:
    assert ask(zone="Europe/Oslo").value == {
        "time": "2026-01-15T13:30:15+01:00",
        "weekday": "Thursday",
        "zone": "Europe/Oslo",
        "abbreviation": "CET",
        "is_summer_time": False,
    }
    assert ask(SUMMER, zone="Europe/Oslo").value["is_summer_time"] is True


def test_home_zone_is_utc_by_default() -> None:
    assert ask().value["zone"] == "UTC"
    assert ask(home="Asia/Tokyo").value["zone"] == "Asia/Tokyo"
    with pytest.raises(ConfigError, match="unknown time zone 'Nowhere'"):
        clock_tool(home="Nowhere")


@pytest.mark.parametrize(
    ("written", "zone"),
    [
        ("Tokyo", "Asia/Tokyo"),
        ("new york", "America/New_York"),
        ("New_York", "America/New_York"),
        ("São Paulo", "America/Sao_Paulo"),
        ("america/los angeles", "America/Los_Angeles"),
        ("EUROPE/OSLO", "Europe/Oslo"),
        (" Paris ", "Europe/Paris"),
        ("Port-au-Prince", "America/Port-au-Prince"),
        ("utc", "UTC"),
        ("Z", "UTC"),
        ("UTC+2", "UTC+02:00"),
        ("UTC+14", "UTC+14:00"),
        ("gmt -3:30", "UTC-03:30"),
        ("+0530", "UTC+05:30"),
        ("Etc/GMT+2", "Etc/GMT+2"),
    ],
)
def test_zones_are_found_by_city_name_and_offset(written: str, zone: str) -> None:
    assert ask(zone=written).value["zone"] == zone


@pytest.mark.parametrize("zone", ["London, Ontario", "London, UK", "London, England"])
def test_city_with_a_region_is_rejected_with_a_suggestion(zone: str) -> None:
    """There is a London in Ontario, too, so the city alone does not decide."""
    message = error(ask(zone=zone))
    assert message.startswith(f"invalid parameters: zone: unknown time zone {zone!r}; did you mean Europe/London?")
    assert "use the IANA name" in message


def test_positive_offset_is_east_of_utc() -> None:
    assert time_in("UTC+2") == time_in("GMT+2") == "2026-01-15T14:30:15+02:00"
    assert time_in("Etc/GMT+2") == "2026-01-15T10:30:15-02:00"  # where the sign is the other way round


def test_first_of_several_zones_of_a_city_is_used() -> None:
    assert ask(zone="Buenos Aires").value["zone"] == "America/Argentina/Buenos_Aires"


def test_similar_names_are_suggested_for_an_unknown_one() -> None:
    assert error(ask(zone="Tokio")).startswith(
        "invalid parameters: zone: unknown time zone 'Tokio'; did you mean Asia/Tokyo?"
    )
    assert "did you mean" not in error(ask(zone="Rivendell Valley"))


@pytest.mark.parametrize(
    "zone",
    [
        "../../etc/passwd",
        "/etc/localtime",
        "America",
        "zone.tab",
        "\x00",
        "UTC+99",
        "UTC+15",
        "UTC+2:75",
        "東京",
        "-",
        "a" * 64,
    ],
)
def test_unknown_zone_is_rejected(zone: str) -> None:
    assert error(ask(zone=zone)).startswith("invalid parameters: zone: unknown time zone ")


@pytest.mark.parametrize("zone", ["", "a" * 65, ["Oslo", "Rome"]])
def test_zone_must_be_a_short_string(zone: Any) -> None:
    assert error(ask(zone=zone)).startswith("invalid parameters: zone: ")


def test_summer_time_begins_and_ends_in_the_right_second() -> None:
    assert time_in("Europe/Berlin", BEFORE_SPRING) == "2026-03-29T01:59:59+01:00"
    assert time_in("Europe/Berlin", BEFORE_SPRING + timedelta(seconds=1)) == "2026-03-29T03:00:00+02:00"
    autumn = datetime(2026, 10, 25, 0, 59, 59, tzinfo=UTC)
    assert time_in("Europe/Berlin", autumn) == "2026-10-25T02:59:59+02:00"
    assert time_in("Europe/Berlin", autumn + timedelta(seconds=1)) == "2026-10-25T02:00:00+01:00"
    assert time_in("Australia/Lord_Howe", WINTER)[-6:] == "+11:00"
    assert time_in("Australia/Lord_Howe", SUMMER)[-6:] == "+10:30"


def test_clock_tool_declares_itself_read_only_and_repeatable() -> None:
    assert clock_tool().spec.effects == Effects(reads=("clock",))
    assert clock_tool().spec.repeatable, "the same call has another result later"


def test_utc_and_offsets_work_without_time_zone_data() -> None:
    code = """if True:
        import sys
        sys.modules["tzdata"] = None
        from datetime import UTC, datetime
        from midspan.toolsets.clock import clock_tool
        get_time = clock_tool(now=lambda: datetime(2026, 1, 1, tzinfo=UTC))
        print(get_time("UTC").time, get_time("UTC+2").time)
        try:
            get_time("Europe/Oslo")
        except Exception as error:
            print(type(error).__name__, error)
    """
    environment = {**os.environ, "PYTHONTZPATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment, timeout=60
    )
    times, words = done.stdout.splitlines()
    assert times == "2026-01-01T00:00:00+00:00 2026-01-01T02:00:00+02:00"
    assert words.startswith("ToolError this machine has no time zone data")
    assert "tzdata" in words
