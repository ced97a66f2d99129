"""What the offline model finds named in a prompt."""

from datetime import date
from typing import Any

import pytest

from midspan.providers.offline.reading.dates import Day, Time
from midspan.providers.offline.reading.prompt import Prompt


def named(prompt: str) -> list[tuple[str, Any]]:
    return [(one.kind, one.value) for one in Prompt(prompt).mentions if one.kind not in ("phrase", "unit")]


@pytest.mark.parametrize(
    ("prompt", "value"),
    [
        ("take 5 of them", 5),
        ("take five of them", 5),
        ("two hundred and five pages", 205),
        ("it costs $2,500.50", 2500.5),
        ("minus -3 here", -3),
        ("about 3.5k views", 3500),
        ("nearly 2 million users", 2_000_000),
        ("a 30% chance", 30),
        ("1.5e3 volts", 1500.0),
    ],
)
def test_numbers_in_figures_and_words(prompt: str, value: float) -> None:
    assert ("number", value) in named(prompt)


@pytest.mark.parametrize(
    ("prompt", "day"),
    [
        ("on 2025-03-05", date(2025, 3, 5)),
        ("on March 5, 2025", date(2025, 3, 5)),
        ("the 5th of March 2025", date(2025, 3, 5)),
        ("3/5/2025", date(2025, 3, 5)),
        ("25/12/2025", date(2025, 12, 25)),
        ("on March 5", date(2024, 3, 5)),
        ("tomorrow", date(2024, 1, 2)),
        ("next Friday", date(2024, 1, 5)),
        ("on 31 February 2025", None),
    ],
)
def test_days(prompt: str, day: date | None) -> None:
    (found,) = [value for kind, value in named(prompt) if kind == "date"]
    assert isinstance(found, Day)
    assert found.on(date(2024, 1, 1)) == day


@pytest.mark.parametrize(
    ("prompt", "time"),
    [("at 7 pm", "19:00"), ("at 14:30", "14:30"), ("at noon", "12:00"), ("8 in the morning", "08:00")],
)
def test_times_of_day(prompt: str, time: str) -> None:
    (found,) = [value for kind, value in named(prompt) if kind == "time"]
    assert isinstance(found, Time)
    assert str(found) == time


@pytest.mark.parametrize(
    ("prompt", "name"),
    [
        ("the weather in New York today", "New York"),
        ("a trip to Rio de Janeiro", "Rio de Janeiro"),
        ("in Miami, Florida", "Miami, Florida"),
        ("books by Ursula K. Le Guin", "Ursula K. Le Guin"),
        ("the weather in 東京", "東京"),
        ("dinner at The Blue Door", "The Blue Door"),
        ("Anna's address", "Anna"),
    ],
)
def test_names(prompt: str, name: str) -> None:
    assert ("name", name) in named(prompt)


def test_the_first_word_of_a_sentence_is_no_name_for_its_capital() -> None:
    assert [value for kind, value in named("Find it. While you do, call me. Please hurry.") if kind == "name"] == []


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("say 'it is late' to her", ("quoted", "it is late")),
        ("say “hello”", ("quoted", "hello")),
        ("mail joe@example.com.", ("email", "joe@example.com")),
        ("see https://example.com/a?b=1.", ("url", "https://example.com/a?b=1")),
        ("open /var/log/syslog", ("path", "/var/log/syslog")),
        ("ping 10.0.0.1 now", ("address", "10.0.0.1")),
        ("order A-1007 is late", ("code", "A-1007")),
        ("what is (3 + 4) * 12?", ("expression", "(3 + 4) * 12")),
        ("the list [1, 2, 3]", ("list", [1, 2, 3])),
        ("with {'a': 1}", ("object", {"a": 1})),
        ("100 swiss francs", ("currency", "CHF")),
        ("in Japanese please", ("language", "Japanese")),
    ],
)
def test_what_shows_by_its_form(prompt: str, expected: tuple[str, Any]) -> None:
    assert expected in named(prompt)


def test_things_told_in_one_breath_are_a_group() -> None:
    found = {one.value: one.group for one in Prompt("rice, tomatoes and basil, for Ann or Bob").mentions}
    assert found["rice"] == found["tomatoes"] == found["basil"] > 0
    assert found["Ann"] == found["Bob"] > found["rice"]


def test_of_a_long_prompt_the_beginning_and_the_end_are_read() -> None:
    text = Prompt("weather in Oslo " + "x" * 100_000 + " and in Rome").text
    assert len(text) < 13_000
    assert "Oslo" in text
    assert "Rome" in text
