from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midspan.emulator import Fault, FaultKind, FaultPlan, LocalGemini, fault, shrink
from midspan.errors import ConfigError

FAULTS = st.builds(
    lambda at, kind, chunk, seconds, size: FaultPlan.parse(
        str(fault(at, kind, **{} if not str(fault(0, kind)).count("chunk") else {"chunk": chunk}))
    ).faults[0],
    st.integers(0, 20),
    st.sampled_from(list(FaultKind)),
    st.integers(0, 9),
    st.floats(0, 1000),
    st.integers(0, 10_000),
)


@given(st.lists(FAULTS, max_size=8))
def test_a_printed_plan_can_be_parsed(faults: list[Fault]) -> None:
    plan = FaultPlan(tuple(faults))
    assert FaultPlan.parse(str(plan)) == plan


@given(st.integers())
def test_the_same_seed_draws_the_same_plan(seed: int) -> None:
    plan = FaultPlan.random(seed)
    assert plan == FaultPlan.random(seed) == FaultPlan.parse(str(plan))


def test_seeds_draw_every_kind_of_fault() -> None:
    drawn = {item.kind for seed in range(300) for item in FaultPlan.random(seed)}
    assert drawn == set(FaultKind)
    few = FaultPlan.random(1, requests=100, chance=1, kinds=[FaultKind.STALL])
    assert len(few) == 100
    assert {item.kind for item in few} == {FaultKind.STALL}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0:boom", "unknown fault 'boom'; known: rate_limit"),
        ("stall", "'stall' is not a fault; expected text such as"),
        ("0:stall(chunk=x)", r"invalid fault stall: .*chunk"),
        ("0:stall(colour=1)", "unknown parameter colour of stall; known: chunk, seconds"),
        ("0:stall(seconds=-1)", r"invalid fault \w+: .*seconds"),
        ("0:stall(chunk=inf)", r"invalid fault \w+: .*chunk"),
        ("0:stall(chunk=nan)", r"invalid fault \w+: .*chunk"),
        ("0:stall(chunk=" + "9" * 5_000 + ")", r"invalid fault \w+: .*chunk"),
        ("9" * 5_000 + ":stall", "is not a fault"),
        ("0:stall(seconds=nan)", r"invalid fault \w+: .*seconds"),
        ("0:stall(seconds=inf)", r"invalid fault \w+: .*seconds"),
        ("0:huge_event(size=1e15)", r"invalid fault \w+: .*size"),
        ("0:stall(chunk=1.7)", r"invalid fault \w+: .*chunk"),
        ("0:status_503(seconds=3)", "unknown parameter seconds of status_503; known: none"),
        ("0:rate_limit(chunk=3)", "unknown parameter chunk of rate_limit; known: seconds"),
    ],
)
def test_an_invalid_plan_is_rejected(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FaultPlan.parse(text)


@pytest.mark.parametrize("parameters", [{"seconds": -1}, {"seconds": float("nan")}, {"chunk": -1}, {"chunk": 1.5}])
def test_an_invalid_parameter_is_rejected(parameters: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="invalid fault stall: Expected"):
        fault(0, "stall", **parameters)


def test_an_unknown_kind_is_rejected() -> None:
    with pytest.raises(ConfigError, match="unknown fault 'boom'"):
        FaultPlan.random(1, chance=1, kinds=["boom"])  # type: ignore[list-item]
    with LocalGemini() as server:
        for use in (
            FaultPlan.of,
            lambda plan: LocalGemini(faults=plan),
            lambda plan: setattr(server, "plan", plan),
            server.url_for,
        ):
            with pytest.raises(ConfigError, match="unknown fault 'boom'"):
                use(["0:boom"])


def test_space_in_parentheses_is_ignored() -> None:
    spaced = FaultPlan.parse("  0:stall( chunk = 1,  seconds=2.5 )\n 1:status_503 ")
    assert spaced == FaultPlan.parse("0:stall(chunk=1,seconds=2.5) 1:status_503")
    exact = FaultPlan.parse("0:stall(seconds=1234567.125) 1:stall(seconds=1234567)")
    assert FaultPlan.parse(str(exact)) == exact


def test_plans_are_converted_from_text_faults_and_none() -> None:
    plan = FaultPlan.of("0:status_503 2:stall(chunk=1,seconds=30)")
    assert FaultPlan.of(plan) is plan
    assert FaultPlan.of(["0:status_503", fault(2, "stall", chunk=1, seconds=30)]) == plan
    assert list(FaultPlan.of(None)) == []
    assert plan.at(2) == (Fault(2, FaultKind.STALL, chunk=1, seconds=30.0),)


def test_shrink_finds_the_smallest_plan_that_still_fails() -> None:
    tried = []

    def fails(plan: FaultPlan) -> bool:
        tried.append(plan)
        kinds = [item.kind for item in plan]
        return FaultKind.STALL in kinds and FaultKind.STATUS_503 in kinds

    plan = FaultPlan.of(
        "0:rate_limit 1:status_503 2:html_page 3:stall(chunk=3,seconds=90) 4:huge_event 5:no_finish 6:stall "
        "7:status_500"
    )
    assert str(shrink(plan, fails)) == "0:status_503 0:stall(chunk=0,seconds=1)"
    assert len(tried) < 100


def test_shrink_returns_a_plan_that_does_not_fail_unchanged() -> None:
    plan = FaultPlan.random(3)
    assert shrink(plan, lambda _: False) is plan
    assert shrink(plan, lambda _: True) == FaultPlan()
