from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midspan.emulator import Fault, FaultPlan, Kind, LocalGemini, fault, shrink
from midspan.errors import ConfigError

FAULTS = st.builds(
    lambda at, kind, chunk, seconds, size: FaultPlan.parse(
        str(fault(at, kind, **{} if not str(fault(0, kind)).count("chunk") else {"chunk": chunk}))
    ).faults[0],
    st.integers(0, 20),
    st.sampled_from(list(Kind)),
    st.integers(0, 9),
    st.floats(0, 1000),
    st.integers(0, 10_000),
)


@given(st.lists(FAULTS, max_size=8))
def test_a_plan_that_is_printed_can_be_read_back(faults: list[Fault]) -> None:
    plan = FaultPlan(tuple(faults))
    assert FaultPlan.parse(str(plan)) == plan


@given(st.integers())
def test_a_seed_draws_the_same_plan_every_time(seed: int) -> None:
    plan = FaultPlan.random(seed)
    assert plan == FaultPlan.random(seed) == FaultPlan.parse(str(plan))


def test_seeds_draw_every_kind_of_fault() -> None:
    drawn = {one.kind for seed in range(300) for one in FaultPlan.random(seed)}
    assert drawn == set(Kind)
    few = FaultPlan.random(1, requests=100, chance=1, kinds=[Kind.STALL])
    assert len(few) == 100
    assert {one.kind for one in few} == {Kind.STALL}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0:boom", "no fault is called 'boom'; known: rate_limit"),
        ("stall", "write it as 0:status_503"),
        ("0:stall(chunk=x)", "chunk is a number"),
        ("0:stall(colour=1)", "not colour"),
        ("0:stall(seconds=-1)", "counts from 0"),
        ("0:stall(chunk=inf)", "counts from 0"),
        ("0:stall(chunk=nan)", "counts from 0"),
        ("0:stall(chunk=" + "9" * 5_000 + ")", "counts from 0"),
        ("9" * 5_000 + ":stall", "is no fault"),
        ("0:stall(seconds=nan)", "counts from 0"),
        ("0:stall(seconds=inf)", "counts from 0"),
        ("0:huge_event(size=1e15)", "counts from 0"),
        ("0:stall(chunk=1.7)", "whole number"),
        ("0:stall(chunk=1,chunk=2)", "given twice"),
        ("0:status_503(seconds=3)", "status_503 has no measures, not seconds"),
        ("0:rate_limit(chunk=3)", "rate_limit has seconds, not chunk"),
    ],
)
def test_what_is_no_plan_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words.replace("(", r"\(")):
        FaultPlan.parse(text)


@pytest.mark.parametrize("wrong", [5, b"0:status_503", {"0:status_503": 1}, [5], Fault(0, Kind.STALL)])
def test_what_is_no_plan_is_refused_wherever_plans_are_given(wrong: Any) -> None:
    with LocalGemini() as server:
        for give in (
            FaultPlan.of,
            lambda plan: LocalGemini(faults=plan),
            lambda plan: setattr(server, "plan", plan),
            lambda plan: server.plans.update(name=plan),
            lambda plan: shrink(plan, bool),
        ):
            with pytest.raises(ConfigError, match=r"faults are a text, as '0:status_503', or a list|'5' is no fault"):
                give(wrong)
    with pytest.raises(ConfigError, match="FaultPlan is made of faults, not of"):
        FaultPlan(wrong)


WRONG: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], str]] = {
    "text": (FaultPlan.parse, (5,), {}, "a plan is read from a text"),
    "seed": (FaultPlan.random, ("x",), {}, "drawn from a seed, a whole number, not from 'x'"),
    "requests": (FaultPlan.random, (1,), {"requests": -1}, "0 or more, not -1"),
    "chance": (FaultPlan.random, (1,), {"chance": float("nan")}, "chance is a number from 0 to 1, not nan"),
    "no kinds": (FaultPlan.random, (1,), {"kinds": []}, r"kinds is a list of kinds of faults, .* not \[\]"),
    "kinds": (FaultPlan.random, (1,), {"kinds": "stall"}, "kinds is a list of kinds of faults, .* not 'stall'"),
    "a kind": (FaultPlan.random, (1,), {"kinds": ["boom"]}, "no fault is called 'boom'"),
    "at": (fault, ("x", "stall"), {}, "counts requests from 0 on, not 'x'"),
    "kind": (fault, (0, 5), {}, "no fault is called '5'"),
    "measure": (fault, (0, "stall"), {"seconds": "x"}, "seconds is a number, not 'x'"),
    "at of a fault": (Fault, (-1, Kind.STALL), {}, "counts requests from 0 on, not -1"),
    "kind of a fault": (Fault, (0, "boom"), {}, "no fault is called 'boom'"),
    "measure of a fault": (Fault, (0, Kind.STALL), {"seconds": float("nan")}, "seconds counts from 0"),
    "fails": (shrink, (FaultPlan(), 5), {}, "fails is a function"),
}


@pytest.mark.parametrize("name", WRONG)
def test_each_wrong_argument_is_told(name: str) -> None:
    function, given, named, words = WRONG[name]
    with pytest.raises(ConfigError, match=words):
        function(*given, **named)


def test_faults_may_be_written_by_hand() -> None:
    by_hand: Any = Fault(0, "stall", chunk=2.0, seconds=1)  # type: ignore[arg-type]
    assert by_hand == fault(0, Kind.STALL, chunk=2, seconds=1)
    assert str(FaultPlan([by_hand])) == "0:stall(chunk=2,seconds=1)"  # type: ignore[arg-type]
    assert shrink("0:status_503", bool) == FaultPlan.parse("0:status_503")  # type: ignore[arg-type]


def test_space_within_parentheses_does_not_matter() -> None:
    spaced = FaultPlan.parse("  0:stall( chunk = 1,  seconds=2.5 )\n 1:status_503 ")
    assert spaced == FaultPlan.parse("0:stall(chunk=1,seconds=2.5) 1:status_503")
    exact = FaultPlan.parse("0:stall(seconds=1234567.125) 1:stall(seconds=1234567)")
    assert FaultPlan.parse(str(exact)) == exact


def test_plans_are_made_of_text_faults_or_nothing() -> None:
    plan = FaultPlan.of("0:status_503 2:stall(chunk=1,seconds=30)")
    assert FaultPlan.of(plan) is plan
    assert FaultPlan.of(["0:status_503", fault(2, "stall", chunk=1, seconds=30)]) == plan
    assert list(FaultPlan.of(None)) == []
    assert plan.at(2) == (Fault(2, Kind.STALL, chunk=1, seconds=30.0),)


def test_the_smallest_plan_that_still_fails_is_found() -> None:
    tried = []

    def fails(plan: FaultPlan) -> bool:
        tried.append(plan)
        kinds = [one.kind for one in plan]
        return Kind.STALL in kinds and Kind.STATUS_503 in kinds

    plan = FaultPlan.of(
        "0:rate_limit 1:status_503 2:html_page 3:stall(chunk=3,seconds=90) 4:huge_event 5:no_finish 6:stall "
        "7:status_500"
    )
    assert str(shrink(plan, fails)) == "0:status_503 0:stall(chunk=0,seconds=1)"
    assert len(tried) < 100


def test_a_plan_that_does_not_fail_stays_as_it_is() -> None:
    plan = FaultPlan.random(3)
    assert shrink(plan, lambda _: False) is plan
    assert shrink(plan, lambda _: True) == FaultPlan()
