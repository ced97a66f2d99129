import pytest
from hypothesis import given
from hypothesis import strategies as st

from midspan.emulator import Fault, FaultPlan, LocalGemini, shrink
from midspan.emulator.gemini.faults import KINDS
from midspan.errors import ConfigError

IN_CHUNK = [kind for kind, parameters in KINDS.items() if "chunk" in parameters]

FAULTS = st.builds(
    lambda at, kind, chunk: Fault.parse(f"{at}:{kind}" + (f"(chunk={chunk})" if kind in IN_CHUNK else "")),
    st.integers(0, 20),
    st.sampled_from(list(KINDS)),
    st.integers(0, 9),
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
    drawn = {item.kind for seed in range(300) for item in FaultPlan.random(seed).faults}
    assert drawn == set(KINDS)
    assert len(FaultPlan.random(1, requests=100, chance=1).faults) == 100


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0:boom", "'0:boom' is not a fault such as .*; known: rate_limit"),
        ("stall", "'stall' is not a fault such as"),
        ("0:stall(chunk=x)", r"invalid fault '0:stall\(chunk=x\)': chunk: expected integer, got string \"x\"$"),
        ("0:stall(colour=1)", r"invalid fault '0:stall\(colour=1\)': its parameters are: chunk, seconds"),
        ("0:stall(seconds=-1)", "invalid fault .*: seconds: expected at least 0, got -1$"),
        ("0:stall(chunk=inf)", "invalid fault .*chunk"),
        ("0:stall(chunk=nan)", "invalid fault .*chunk"),
        ("0:stall(chunk=" + "9" * 5_000 + ")", "invalid fault .*chunk"),
        ("9" * 5_000 + ":stall", "invalid fault"),
        ("0:stall(seconds=nan)", "invalid fault .*seconds"),
        ("0:stall(seconds=inf)", "invalid fault .*seconds"),
        ("0:huge_event(size=1e15)", "invalid fault .*size"),
        ("0:stall(chunk=1.7)", "invalid fault .*chunk"),
        ("0:status_503(seconds=3)", "its parameters are: none"),
        ("0:rate_limit(chunk=3)", "its parameters are: seconds"),
        ("0:stall(chunk)", "invalid fault .*chunk"),
    ],
)
def test_an_invalid_plan_is_rejected(text: str, message: str) -> None:
    for use in (FaultPlan.parse, lambda plan: LocalGemini(faults=plan)):
        with pytest.raises(ConfigError, match=message):
            use(text)


def test_numbers_are_printed_exactly() -> None:
    exact = FaultPlan.parse("  0:stall(seconds=1234567.125)\n 1:stall(seconds=1234567) ")
    assert FaultPlan.parse(str(exact)) == exact


def test_shrink_finds_the_smallest_plan_that_still_fails() -> None:
    def fails(plan: FaultPlan) -> bool:
        kinds = [item.kind for item in plan.faults]
        return "stall" in kinds and "status_503" in kinds

    plan = FaultPlan.parse(
        "0:rate_limit 1:status_503 2:html_page 3:stall(chunk=3,seconds=90) 4:huge_event 5:no_finish 6:stall "
        "7:status_500"
    )
    assert str(shrink(plan, fails)) == "1:status_503 6:stall(chunk=0,seconds=120)"


def test_shrink_returns_a_plan_that_does_not_fail_unchanged() -> None:
    plan = FaultPlan.random(3)
    assert shrink(plan, lambda _: False) is plan
    assert shrink(plan, lambda _: True) == FaultPlan()
