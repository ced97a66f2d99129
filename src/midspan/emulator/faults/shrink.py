"""The smallest plan that still fails: faults left out one by one, then each made as mild as it can be."""

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from midspan.emulator.faults.plan import Fault, FaultPlan
from midspan.errors import ConfigError

Fails = Callable[[FaultPlan], bool]


def shrink(plan: FaultPlan, fails: Fails) -> FaultPlan:
    """The least of this plan with which `fails` is still true; the plan itself if it never was.

    Print it: it can be read back with `FaultPlan.parse`.
    """
    if not callable(fails):
        raise ConfigError(f"fails is a function that says of a plan whether it still fails, not {fails!r:.80}")
    plan = FaultPlan.of(plan)
    if not fails(plan):
        return plan
    smaller = True
    while smaller:
        smaller = False
        for candidate in _candidates(plan):
            if fails(candidate):
                plan, smaller = candidate, True
                break
    return plan


def _candidates(plan: FaultPlan) -> Iterator[FaultPlan]:
    """Smaller plans, the smallest first."""
    count = len(plan)
    if count > 2:
        yield FaultPlan(plan.faults[: count // 2])
        yield FaultPlan(plan.faults[count // 2 :])
    for at in range(count):
        yield FaultPlan(plan.faults[:at] + plan.faults[at + 1 :])
    for at, one in enumerate(plan.faults):
        for milder in _milder(one):
            yield FaultPlan((*plan.faults[:at], milder, *plan.faults[at + 1 :]))


def _milder(one: Fault) -> Iterator[Fault]:
    if one.chunk:
        yield replace(one, chunk=0)
        yield replace(one, chunk=one.chunk - 1)
    if one.seconds > 1:
        yield replace(one, seconds=float(int(one.seconds / 2)))
    if one.size > 1_000:
        yield replace(one, size=one.size // 2)
    if one.at:
        yield replace(one, at=one.at - 1)
