"""What a server has received and answered so far."""

from collections import Counter, deque
from collections.abc import Iterable

from msgspec import Struct

from midspan.emulator.gemini.errors import ApiError
from midspan.emulator.gemini.fault_plan import Fault
from midspan.emulator.http import Request

_MAX_ENTRIES = 256
_MAX_BODY_BYTES = 65_536


class Report(Struct, frozen=True):
    """Counts since the server was created or cleared."""

    requests: int
    answered: int
    errors: dict[int, int]
    """By status."""
    faults: dict[str, int]
    """By kind."""
    open_connections: int


class RequestLog:
    """Counts, and the last requests and errors. Requests with large bodies are only counted."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.answered = 0
        self.requests: deque[Request] = deque(maxlen=_MAX_ENTRIES)
        self.errors: deque[ApiError] = deque(maxlen=_MAX_ENTRIES)
        self._received = 0
        self._errors: Counter[int] = Counter()
        self._faults: Counter[str] = Counter()

    def add_request(self, request: Request) -> None:
        self._received += 1
        if len(request.body) <= _MAX_BODY_BYTES:
            self.requests.append(request)

    def add_error(self, error: ApiError) -> None:
        self._errors[error.code] += 1
        self.errors.append(error)

    def add_faults(self, faults: Iterable[Fault]) -> None:
        self._faults.update(fault.kind.value for fault in faults)

    def report(self, open_connections: int) -> Report:
        return Report(self._received, self.answered, dict(self._errors), dict(self._faults), open_connections)
