"""What the offline model sees in a text."""

import pytest

from midspan.providers.offline.language import Question, name_words, singular, stem, unit_of


@pytest.mark.parametrize(
    ("text", "mentions"),
    [
        ("Order 3 lamps", [("number", 3)]),
        ("It costs $1,250.50 or 5% less", [("number", 1250.5), ("unclear", 5)]),
        ("between May 3rd, 2026 and the 4 of june 2026", [("date", "2026-05-03"), ("date", "2026-06-04")]),
        ("user 'Ann' of \"Acme Inc.\"", [("quoted", "Ann"), ("quoted", "Acme Inc.")]),
        ("the Bank of England in New York", [("name", "Bank of England"), ("name", "New York")]),
        (
            "mail bob@example.com about U-1234 on 2026/11/16",
            [("link", "bob@example.com"), ("code", "U-1234"), ("date", "2026-11-16")],
        ),
        ("twelve meters tomorrow", [("number", 12), ("day", "tomorrow")]),
        ("a base of 5m and a note in D#", [("number", 5), ("unclear", "D")]),
        ("2 million people", [("unclear", 2)]),
        ("What is it?", []),
        ("tell me The truth", []),
    ],
)
def test_values_are_found_in_order(text: str, mentions: list[tuple[str, object]]) -> None:
    assert [(mention.kind, mention.value) for mention in Question(text).mentions] == mentions


@pytest.mark.parametrize(
    ("text", "verb"),
    [
        ("Delete user 2", "delete"),
        ("Could you please delete user 2?", "delete"),
        ("I'd like to order 3 lamps", "order"),
        ("What is the weather?", ""),
        ("I refused to delete it", ""),
        ("", ""),
    ],
)
def test_verb_is_that_of_the_command(text: str, verb: str) -> None:
    assert Question(text).verb == verb


@pytest.mark.parametrize("text", ["Don't go", "I won\N{RIGHT SINGLE QUOTATION MARK}t", "never", "all except Bob"])
def test_negation_is_seen(text: str) -> None:
    assert Question(text).is_negated


def test_inflections_share_a_stem() -> None:
    assert stem("movies") == stem("movie")
    assert stem("cities") == stem("city")
    assert stem("calculating") == stem("calculation") == stem("calculate")
    assert stem("lock") != stem("unlock")


def test_identifiers_nouns_and_units_are_read() -> None:
    assert name_words("getUser_id") == ["get", "user", "id"]
    assert [singular(word) for word in ("lamps", "boxes", "batteries", "glasses", "bus")] == [
        "lamp",
        "box",
        "battery",
        "glasses",
        "bus",
    ]
    assert unit_of("KM") == unit_of("kilometers") == "kilometer"
    assert unit_of("lamp") == ""


def test_very_long_text_is_cut() -> None:
    assert len(Question("9" * 100_000).text) == 4000
    assert Question("9" * 100_000).mentions[0].kind == "number"
