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
        (
            "5km 5foo 1e3 1.5E2 #7 $5",
            [("number", 5), ("code", "5foo"), ("number", 1000), ("number", 150), ("number", 7), ("number", 5)],
        ),
        ("3 thousand or 3 Thousands", [("unclear", 3), ("number", 3), ("name", "Thousands")]),
        ("x5* or 7/ and C.d", [("unclear", "x5"), ("unclear", 7), ("unclear", "C")]),
        ("on Feb 30, 2026", [("unclear", None)]),
        ("in The Hague, in The middle, in Oslo's harbor", [("name", "The Hague"), ("name", "Oslo")]),
        (
            "5 Meter and 6 METER, 7 Meter Oslo",
            [("number", 5), ("number", 6), ("name", "METER"), ("number", 7), ("name", "Meter Oslo")],
        ),
        (
            "van Gogh or Vincent van Gogh or Ludwig van b",
            [("name", "Gogh"), ("name", "Vincent van Gogh"), ("name", "Ludwig")],
        ),
        ("Ask Bob's Friend about ID and IP on Monday: Then go", [("name", "Bob"), ("day", "monday")]),
        ("go. Then? Now! Or: Later", []),
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


@pytest.mark.parametrize(
    ("text", "verb_at", "flags"),
    [
        ("Delete user 2", 0, "imperative, one request"),
        ("Could you please delete user 2?", 3, "imperative, one request"),
        ("Will you delete it?", 2, "imperative"),
        ("I want to order it", 3, "one request"),
        ("Help me find it", 2, "one request"),
        ("Hi. Find it", 2, "imperative, context"),
        ("Find it? Now", 0, "imperative, context"),
        ("Find it.", 0, "imperative, one request"),
        ("Find it; now", 0, "imperative"),
        ("Find it\nnow", 0, "imperative"),
        ("Find it?", 0, "imperative"),
    ],
)
def test_form_of_a_request_is_seen(text: str, verb_at: int, flags: str) -> None:
    question = Question(text)
    seen = {
        "imperative": question.is_imperative,
        "context": question.has_context,
        "one request": question.is_one_request,
    }
    assert (question.verb_at, ", ".join(name for name, holds in seen.items() if holds)) == (verb_at, flags)


def test_there_are_no_tokens_outside_of_the_question() -> None:
    question = Question("Add milk")
    assert [question.kind(index) for index in (-1, 0, 1, 2)] == ["", "word", "word", ""]
    assert [question.lower(index) for index in (-1, 0, 1, 2)] == ["", "add", "milk", ""]


@pytest.mark.parametrize("text", ["Don't go", "I won\N{RIGHT SINGLE QUOTATION MARK}t", "never", "all except Bob"])
def test_negation_is_seen(text: str) -> None:
    assert Question(text).is_negated


def test_inflections_share_a_stem() -> None:
    assert stem("movies") == stem("movie")
    assert stem("cities") == stem("city")
    assert stem("calculating") == stem("calculation") == stem("calculate")
    assert stem("lock") != stem("unlock")
    words = "its user's cats boss bus basis ages code used added running called passing feed dies agreed stars"
    stems = "its user cat boss bus basis age cod used add run call pass feed di agr star"
    assert " ".join(map(stem, words.split())) == stems


def test_identifiers_nouns_and_units_are_read() -> None:
    assert name_words("getUser_id") == ["get", "user", "id"]
    assert [singular(word) for word in ("as", "its", "cats", "lamps", "boxes", "batteries", "glasses", "bus")] == [
        "as",
        "its",
        "cat",
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
