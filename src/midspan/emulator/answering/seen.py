"""What a server has seen so far."""

from collections import Counter, deque
from collections.abc import Sequence

from msgspec import Struct

from midspan.emulator.faults.plan import Fault
from midspan.emulator.refusal import Refusal
from midspan.emulator.serving.requests import Request

_KEPT = 256
_LARGEST_KEPT = 65_536


class Report(Struct, frozen=True):
    """Counts since the start, or since they were last set back."""

    requests: int
    answered: int
    refused: dict[int, int]
    """By status."""
    faults: dict[str, int]
    """By kind."""
    open_connections: int


class Seen:
    """Counts, and the last requests and refusals themselves."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.count = 0
        self.answered = 0
        self.requests: deque[Request] = deque(maxlen=_KEPT)
        self.refusals: deque[Refusal] = deque(maxlen=_KEPT)
        self._refused: Counter[int] = Counter()
        self._faults: Counter[str] = Counter()

    def request(self, request: Request) -> None:
        self.count += 1
        # A body that is large is not kept: thousands of them may come.
        if len(request.body) <= _LARGEST_KEPT:
            self.requests.append(request)

    def refusal(self, refusal: Refusal) -> None:
        self._refused[refusal.code] += 1
        self.refusals.append(refusal)

    def faults(self, faults: Sequence[Fault]) -> None:
        self._faults.update(fault.kind.value for fault in faults)

    def report(self, open_connections: int) -> Report:
        return Report(self.count, self.answered, dict(self._refused), dict(self._faults), open_connections)
