"""Plans while they are carried out: which request of a plan comes next, and what was made of it."""

from wasat.emulator.faults.plan import Fault, FaultPlan


class PlanRun:
    """One plan and how far it has come."""

    def __init__(self, plan: FaultPlan) -> None:
        self.plan = plan
        self.requests = 0
        self.made: list[Fault] = []

    def next(self) -> tuple[Fault, ...]:
        """The faults of the next request."""
        at = self.requests
        self.requests += 1
        return self.plan.at(at) if self.plan.faults else ()
