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
from midspan.toolsets.clock import clock_tools

WINTER = datetime(2026, 1, 15, 12, 30, 15, 999, tzinfo=UTC)
SUMMER = datetime(2026, 7, 15, 12, 30, tzinfo=UTC)
BEFORE_SPRING = datetime(2026, 3, 29, 0, 59, 59, tzinfo=UTC)
"""The last second of winter time in Europe."""


def ask(name: str, now: datetime = WINTER, home: str = "UTC", **arguments: Any) -> ToolResult:
    tools = {tool.name: tool for tool in clock_tools(now=lambda: now, home=home)}
    return asyncio.run(execute(tools[name], ToolCall("1", name, arguments)))


def time_in(zone: str, now: datetime = WINTER) -> str:
    result = ask("get_time", now, zone=zone)
    assert not result.is_error, result.value
    return str(result.value["time"])


def error(result: ToolResult) -> str:
    assert result.is_error
    return str(result.value)


def test_time_has_weekday_and_zone() -> None:
    assert ask("get_time", zone="Europe/Oslo").value == {
        "time": "2026-01-15T13:30:15+01:00",
        "weekday": "Thursday",
        "zone": "Europe/Oslo",
        "abbreviation": "CET",
        "is_summer_time": False,
    }
    assert ask("get_time", SUMMER, zone="Europe/Oslo").value["is_summer_time"] is True


def test_home_zone_is_utc_by_default() -> None:
    assert ask("get_time").value["zone"] == "UTC"
    assert ask("get_time", home="Asia/Tokyo").value["zone"] == "Asia/Tokyo"
    with pytest.raises(ConfigError, match="home: unknown time zone 'Nowhere'"):
        clock_tools(home="Nowhere")


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
    assert ask("get_time", zone=written).value["zone"] == zone


@pytest.mark.parametrize("zone", ["London, Ontario", "London, UK", "London, England"])
def test_city_with_a_region_is_rejected_with_a_suggestion(zone: str) -> None:
    """There is a London in Ontario, too, so the city alone does not decide."""
    message = error(ask("get_time", zone=zone))
    assert message.startswith(f"invalid parameters: zone: unknown time zone {zone!r}; did you mean Europe/London?")
    assert "use the IANA name" in message


def test_positive_offset_is_east_of_utc() -> None:
    assert time_in("UTC+2") == "2026-01-15T14:30:15+02:00"
    assert time_in("Etc/GMT+2") == "2026-01-15T10:30:15-02:00"  # where the sign is the other way round


def test_city_with_equivalent_zones_is_not_ambiguous() -> None:
    assert ask("get_time", zone="Buenos Aires").value["zone"].endswith("/Buenos_Aires")


def test_ambiguous_name_is_rejected_with_the_zones() -> None:
    assert "'West' is ambiguous: Australia/West or Brazil/West?" in error(ask("get_time", zone="West"))


def test_similar_names_are_suggested_for_an_unknown_one() -> None:
    assert error(ask("get_time", zone="Tokio")).startswith(
        "invalid parameters: zone: unknown time zone 'Tokio'; did you mean Asia/Tokyo?"
    )
    assert "did you mean" not in error(ask("get_time", zone="Rivendell Valley"))


@pytest.mark.parametrize(
    "zone",
    [
        "../../etc/passwd",
        "/etc/localtime",
        "America",
        "zone.tab",
        "\x00",
        "UTC+99",
        "UTC+14:01",
        "UTC+2:75",
        "東京",
        "-",
        "a" * 64,
    ],
)
def test_unknown_zone_is_rejected(zone: str) -> None:
    assert error(ask("get_time", zone=zone)).startswith("invalid parameters: zone: unknown time zone ")


@pytest.mark.parametrize("zone", ["", "a" * 65, ["Oslo", "Rome"]])
def test_zone_must_be_a_short_string(zone: Any) -> None:
    assert error(ask("get_time", zone=zone)).startswith("invalid parameters: zone: ")


def test_summer_time_begins_and_ends_in_the_right_second() -> None:
    assert time_in("Europe/Berlin", BEFORE_SPRING) == "2026-03-29T01:59:59+01:00"
    assert time_in("Europe/Berlin", BEFORE_SPRING + timedelta(seconds=1)) == "2026-03-29T03:00:00+02:00"
    autumn = datetime(2026, 10, 25, 0, 59, 59, tzinfo=UTC)
    assert time_in("Europe/Berlin", autumn) == "2026-10-25T02:59:59+02:00"
    assert time_in("Europe/Berlin", autumn + timedelta(seconds=1)) == "2026-10-25T02:00:00+01:00"
    assert time_in("Australia/Lord_Howe", WINTER)[-6:] == "+11:00"
    assert time_in("Australia/Lord_Howe", SUMMER)[-6:] == "+10:30"


def test_converted_time_has_its_date() -> None:
    result = ask("convert_time", time="20:00", source="New York", target="Asia/Tokyo")
    assert result.value["source"]["time"] == "2026-01-15T20:00:00-05:00"
    assert result.value["target"]["time"] == "2026-01-16T10:00:00+09:00"
    assert result.value["target"]["weekday"] == "Friday"
    assert (result.value["target_is_ahead_by_hours"], result.value["note"]) == (14, None)


def test_difference_of_zones_depends_on_the_date() -> None:
    apart = [
        ask("convert_time", time=f"2026-{day}T12:00", source="America/New_York", target="Europe/London").value
        for day in ("01-15", "03-15", "07-15")  # in March they change on different days
    ]
    assert [value["target_is_ahead_by_hours"] for value in apart] == [5, 4, 5]


def test_time_without_a_date_is_today_in_the_source_zone() -> None:
    late = datetime(2026, 1, 15, 23, 30, tzinfo=UTC)
    assert ask("convert_time", late, time="9:05", source="Tokyo").value["source"]["time"][:16] == "2026-01-16T09:05"


def test_skipped_and_repeated_times_have_a_note() -> None:
    skipped = ask("convert_time", time="2026-03-29T02:30", source="Europe/Berlin").value
    assert skipped["note"].startswith("clocks skip 02:30 on that day")
    assert (skipped["source"]["time"], skipped["target"]["time"]) == (
        "2026-03-29T03:30:00+02:00",
        "2026-03-29T01:30:00+00:00",
    )
    twice = ask("convert_time", time="2026-10-25 02:30", source="Europe/Berlin").value
    assert twice["note"].startswith("clocks show 02:30 twice on that day")
    assert twice["target"]["time"] == "2026-10-25T00:30:00+00:00"


@pytest.mark.parametrize(
    "time",
    [
        "",
        "25:00",
        "noon",
        "2026-03-29",
        "2026-02-31T10:00",
        "0001-01-01T00:00",
        "9999-12-31T23:59",
        "14:30Z",
        "12:00+02:00",
        "\N{ARABIC-INDIC DIGIT THREE}:00",
    ],
)
def test_invalid_time_is_rejected(time: str) -> None:
    assert error(ask("convert_time", time=time, source="Tokyo")).startswith("invalid parameters: time: ")


@pytest.mark.parametrize("time", ["9am", "9", "3pm", ""])
def test_time_in_another_format_is_rejected_with_the_right_format(time: str) -> None:
    assert "write it as 14:30 or 2026-03-29T14:30" in error(ask("convert_time", time=time, source="Tokyo"))


def test_unknown_zone_is_reported_with_its_parameter() -> None:
    assert "source: unknown time zone" in error(ask("convert_time", time="10:00", source="Atlantis"))
    assert "target: unknown time zone" in error(ask("convert_time", time="10:00", source="Oslo", target="Atlantis"))


def test_clock_tools_declare_themselves_read_only_and_repeatable() -> None:
    assert [tool.spec.effects for tool in clock_tools()] == [Effects(reads=("clock",))] * 2
    assert all(tool.spec.repeatable for tool in clock_tools()), "the same call has another result later"


def test_utc_and_offsets_work_without_time_zone_data() -> None:
    code = """if True:
        import sys
        sys.modules["tzdata"] = None
        from datetime import UTC, datetime
        from midspan.toolsets.clock import clock_tools
        get_time, _ = clock_tools(now=lambda: datetime(2026, 1, 1, tzinfo=UTC))
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
