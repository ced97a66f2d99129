"""The quick ways through the checker say the same as the thorough one, whatever was asked before."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midspan.emulator.checking import Checker, Target
from midspan.emulator.quick import forget_turns
from midspan.emulator.refusal import Refusal
from midspan.providers.gemini.capabilities import Api
from tests.emulator.asking import SKIP, calling, model, result, tools, user

CONTENTS = [
    user("Hi."),
    user("And?"),
    user(""),
    model("Well."),
    model(""),
    model(calling("f")),
    model(calling("f", signature=None)),
    model(calling("f", signature="")),
    model(calling("f", id="a")),
    model(calling("f", id="a"), calling("g", id="b", signature=None)),
    model(calling("f", id="a"), calling("g", id="a", signature=None)),
    model("Let me see.", calling("f")),
    model(calling("f"), result("f"), "Done."),
    model(calling("f", signature="a")),
    user(result("f")),
    user(result("f", id="a")),
    user(result("f", id="a"), result("g", id="b")),
    user(result("f", id="a"), result("f")),
    user(result("f", id="b")),
    user(result("f"), "And?"),
    user(result("f", parts=[{"inlineData": {"mimeType": "image/png", "data": "AAAA"}}])),
    {"role": "user", "parts": []},
    {"role": "model"},
    {"role": "system", "parts": [{"text": "x"}]},
    {"role": "user", "parts": [{"text": "x", "colour": 1}]},
]
SETUPS: list[dict[str, Any]] = [
    {},
    {"tools": tools("f", "g")},
    {"tools": tools("f", "f")},
    {"generationConfig": {"responseMimeType": "application/json"}},
    {"foo": 1},
]
TARGETS = [
    Target("gemini-3.8-flash"),
    Target("gemini-3-flash-preview"),
    Target("gemini-2.5-flash"),
    Target("gemini-2.0-flash"),
    Target("gemini-3.8-flash", Api.VERTEX, "v1"),
]


def forgetful() -> Checker:
    """A checker that knows nothing of what was asked before."""
    forget_turns()
    return Checker()


def verdict(contents: list[Any], setup: dict[str, Any], target: Target, checker: Checker | None = None) -> str:
    """What is said to a request that is written as almost all are."""
    body = json.dumps({"contents": contents, **setup}, separators=(",", ":"))
    try:
        (checker or forgetful()).check(body.encode(), target)
    except Refusal as refusal:
        return refusal.message
    return "fine"


def thorough(contents: list[Any], setup: dict[str, Any], target: Target) -> str:
    """What is said to the same request, written so that it must be read field by field."""
    return verdict([_oddly(one) for one in contents], setup, target)


def _oddly(content: Any) -> Any:
    """The same content in the other casing, and a part that is alone without its list."""
    if "parts" not in content:
        return content
    parts = [{_SNAKE.get(name, name): value for name, value in part.items()} for part in content["parts"]]
    return {**content, "parts": parts[0] if len(parts) == 1 else parts}


_SNAKE = {
    "functionCall": "function_call",
    "functionResponse": "function_response",
    "thoughtSignature": "thought_signature",
}


@settings(max_examples=400)
@given(
    st.lists(st.sampled_from(CONTENTS), max_size=7),
    st.sampled_from(SETUPS),
    st.sampled_from(TARGETS),
)
def test_every_way_through_says_the_same(contents: list[Any], setup: dict[str, Any], target: Target) -> None:
    wanted = thorough(contents, setup, target)
    checker = forgetful()
    assert verdict(contents, setup, target, checker) == wanted, "seen for the first time"
    assert verdict(contents, setup, target, checker) == wanted, "seen again"
    checker = forgetful()
    for end in range(1, len(contents) + 1):
        grown = verdict(contents[:end], setup, target, checker)
        assert grown == thorough(contents[:end], setup, target), "grown by one content"


@settings(max_examples=100)
@given(st.lists(st.sampled_from([0, 1, 2]), min_size=1, max_size=12))
def test_a_conversation_that_goes_on_is_checked_from_where_it_was(kinds: list[int]) -> None:
    """Rounds of a conversation, each request the one before and more; some of them are wrong and then given up."""
    checker = forgetful()
    target = TARGETS[0]
    history: list[Any] = [user("Hi.")]
    for number, kind in enumerate(kinds):
        id = f"id{number}"
        if kind == 0:
            more = [model(calling("f", id=id)), user(result("f", id=id))]
        elif kind == 1:
            more = [model("Well."), user(f"And {number}?")]
        else:
            more = [model(calling("f", id=id, signature=None)), user(result("f", id=id))]
        said = verdict([*history, *more], SETUPS[1], target, checker)
        assert ("missing a thought_signature" in said) == (kind == 2), said
        if kind != 2:
            assert said == "fine"
            history += more


def test_what_was_refused_once_is_no_beginning() -> None:
    checker = forgetful()
    wrong = [user("Hi."), model(calling("f", signature=None)), user(result("f"))]
    for _ in range(2):
        assert "missing a thought_signature" in verdict(wrong, {}, TARGETS[0], checker)
    assert "missing a thought_signature" in verdict(
        [*wrong, model(calling("f", signature=SKIP)), user(result("f"))], {}, TARGETS[0], checker
    )


@pytest.mark.parametrize("tail", [b"}", b',"tools":[]}', b" }", b"]}", b""])
def test_bytes_that_only_look_like_a_beginning_are_read_for_what_they_are(tail: bytes) -> None:
    checker = forgetful()
    start = b'{"contents":[{"role":"user","parts":[{"text":"Hi."}]}'
    checker.check(start + b"]}", TARGETS[0])
    for middle in (b"", b",", b',{"role":"user","parts":[{"text":"x"}]}', b'],"contents":['):
        body = start + middle + b"]" + tail
        try:
            legal = json.loads(body)
        except ValueError:
            legal = None
        try:
            question = checker.check(body, TARGETS[0])
        except Refusal:
            assert legal is None or not legal["contents"], body
        else:
            assert legal is not None, body
            assert len(question.turns) == len(legal["contents"]), body


def test_a_body_that_was_cut_off_is_no_request_and_no_beginning() -> None:
    checker = forgetful()
    body = json.dumps({"contents": [user("Hi. " * 100)]}, separators=(",", ":")).encode()
    checker.check(body, TARGETS[0])
    for end in range(len(body) - 6, len(body)):
        with pytest.raises(Refusal, match="Invalid JSON payload"):
            checker.check(body[:end], TARGETS[0])
        assert len(checker.check(body, TARGETS[0]).turns) == 1
