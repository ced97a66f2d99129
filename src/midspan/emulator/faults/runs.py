"""Plans while they are carried out: which request of a plan comes next, and what was made of it."""

from midspan.emulator.faults.plan import Fault, FaultPlan, Kind


class PlanRun:
    """One plan and how far it has come."""

    def __init__(self, plan: FaultPlan) -> None:
        self.plan = plan
        self.requests = 0
        self.made: list[Fault] = []
        self._waiting: tuple[Fault, ...] = ()
        """Chunks that shall be doubled, which only a stream has."""

    def next(self, *, streaming: bool) -> tuple[Fault, ...]:
        """The faults of the next request."""
        at = self.requests
        self.requests += 1
        if not self.plan.faults:
            return ()
        faults = self._waiting + self.plan.at(at)
        self._waiting = () if streaming else tuple(one for one in faults if one.kind is Kind.DOUBLED_CHUNK)
        return tuple(one for one in faults if one not in self._waiting)
