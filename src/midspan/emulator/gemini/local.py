"""LocalGemini, the server that users enter, and its clock."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from midspan._http.retry import Clock, SystemClock
from midspan.emulator.gemini.caches import Caches
from midspan.emulator.gemini.errors import ApiError
from midspan.emulator.gemini.faults import Fault, FaultPlan, PlanLike, PlanProgress
from midspan.emulator.gemini.models import Models
from midspan.emulator.gemini.script import source_of
from midspan.emulator.gemini.service import Service
from midspan.emulator.http import HttpServer, Request
from midspan.providers.provider import Provider


class Report(Struct, frozen=True):
    """Counts since the server was created or cleared."""

    requests: int
    answered: int
    errors: dict[int, int]
    """By status."""
    faults: dict[str, int]
    """By kind."""
    open_connections: int


class LocalGemini(HttpServer):
    """A local server with the Gemini API, as strict as the real one.

    `with` runs it in a thread of its own, `async with` in the running event loop.

    - `script`: answers, as a list, a function of the conversation, a Script or the path of a TOML file; `model`: a
      provider that answers instead. Without both, the server repeats what the user wrote.
    - `faults`: the fault plan of all requests to `url`.
    - `api_key`: the only valid key; by default any key is valid.
    - `models`: the only models; by default those of the real API, with `retired_models` also those that were shut down.
    - `strict_signatures`: reject thought signatures of other servers.
    - `clock`: for delays and expiry times.
    """

    def __init__(
        self,
        script: Any = None,
        *,
        model: Provider | None = None,
        faults: PlanLike = None,
        api_key: str | None = None,
        models: Sequence[str] | None = None,
        retired_models: bool = False,
        strict_signatures: bool = False,
        clock: Clock | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        clock = SystemClock() if clock is None else clock
        known = Models(models, retired=retired_models)
        self._service = Service(
            source_of(script, model),
            known,
            Caches(clock, known),
            api_key=api_key,
            strict_signatures=strict_signatures,
        )
        self._service.plans.append(PlanProgress(faults))
        super().__init__(self._service.handle, host=host, port=port, clock=clock)

    def url_for(self, plan: PlanLike) -> str:
        """Return another base URL, whose requests have this fault plan: one for each conversation, for example."""
        self._service.plans.append(PlanProgress(plan))
        return f"{self.url}/~{len(self._service.plans) - 1}"

    @property
    def plan(self) -> FaultPlan:
        """The fault plan of all requests to `url`. Setting it starts the count of requests again."""
        return self._service.plans[0].plan

    @plan.setter
    def plan(self, plan: PlanLike) -> None:
        self._service.plans[0] = PlanProgress(plan)

    @property
    def injected(self) -> tuple[Fault, ...]:
        """The faults of `plan` that have been injected."""
        return tuple(self._service.plans[0].injected)

    @property
    def requests(self) -> tuple[Request, ...]:
        """The last requests, without those with large bodies."""
        return tuple(self._service.requests)

    @property
    def errors(self) -> tuple[ApiError, ...]:
        """The last errors that were sent, without injected ones."""
        return tuple(self._service.errors)

    def report(self) -> Report:
        """Count requests, answers, errors, faults and open connections."""
        service = self._service
        counts = dict(service.error_counts), dict(service.fault_counts)
        return Report(service.received, service.answered, *counts, self.open_connections)

    def clear(self) -> None:
        """Forget all requests and errors, and set the counts to zero."""
        self._service.clear()


class ScaledClock(SystemClock):
    """The system clock with shorter sleeps: `ScaledClock(1000)` sleeps a second in a millisecond.

    The time itself is not scaled, so time limits do not depend on the speed of the machine.
    """

    def __init__(self, factor: float) -> None:
        self.factor = factor

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / self.factor)
