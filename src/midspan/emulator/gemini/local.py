"""LocalGemini, the server that users enter, and its clock."""

import math
from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import quote

from msgspec import Meta

from midspan._http.retry import Clock, SystemClock
from midspan.emulator.gemini.caches import Caches
from midspan.emulator.gemini.errors import ApiError
from midspan.emulator.gemini.fault_plan import Fault, FaultPlan, PlanLike
from midspan.emulator.gemini.faults import PlanProgress, Plans
from midspan.emulator.gemini.models import Models
from midspan.emulator.gemini.service import Report, Service
from midspan.emulator.gemini.sources import source_of
from midspan.emulator.http import HttpServer, Request
from midspan.emulator.validate import Validated
from midspan.errors import ConfigError
from midspan.providers.provider import Provider


class _Options(Validated, frozen=True):
    api_key: Annotated[str, Meta(pattern=r"\S")] | None
    models: tuple[Annotated[str, Meta(min_length=1)], ...] | None
    retired_models: bool
    strict_signatures: bool
    min_cache_tokens: Annotated[int, Meta(ge=0)]


class LocalGemini(HttpServer):
    """A local server with the Gemini API, as strict as the real one.

    `with` runs it in a thread of its own, `async with` in the running event loop.

    - `script`: answers, as a list, a function of the conversation, a Script or the path of a TOML file; `model`: a
      provider that answers instead. Without both, the server repeats what the user wrote.
    - `faults`: the fault plan of all requests that name none.
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
        min_cache_tokens: int = 1_024,
    ) -> None:
        clock = SystemClock() if clock is None else clock
        names: Any = models
        options = _Options(api_key, names, retired_models, strict_signatures, min_cache_tokens)
        known = Models(options.models, retired=retired_models)
        self._service = Service(
            source_of(script, model),
            known,
            Caches(clock, known, min_tokens=min_cache_tokens),
            api_key=api_key,
            strict_signatures=strict_signatures,
        )
        super().__init__(self._service.handle, host=host, port=port, clock=clock)
        self.plan = faults

    def url_for(self, plan: str) -> str:
        """Return a base URL whose requests use a plan of `plans`, for clients that cannot send a header."""
        return f"{self.url}/~{quote(plan, safe='')}"

    @property
    def plan(self) -> FaultPlan:
        """The fault plan of all requests that name none. Setting it starts the count of requests again."""
        return self._service.default_plan.plan

    @plan.setter
    def plan(self, plan: PlanLike) -> None:
        self._service.default_plan = PlanProgress(FaultPlan.of(plan))

    @property
    def plans(self) -> Plans:
        """Plans by name, for requests to `url_for(name)` or with the header `x-midspan-plan: name`."""
        return self._service.plans

    @property
    def injected(self) -> tuple[Fault, ...]:
        """The faults of `plan` that have been injected."""
        return tuple(self._service.default_plan.injected)

    @property
    def requests(self) -> tuple[Request, ...]:
        """The last requests, without those with large bodies."""
        return tuple(self._service.log.requests)

    @property
    def errors(self) -> tuple[ApiError, ...]:
        """The last errors that were sent, without injected ones."""
        return tuple(self._service.log.errors)

    def report(self) -> Report:
        """Count requests, answers, errors, faults and open connections."""
        return self._service.log.report(self.open_connections)

    def clear(self) -> None:
        """Forget all requests and errors, and set the counts to zero."""
        self._service.log.clear()


class ScaledClock(SystemClock):
    """The system clock with shorter sleeps: `ScaledClock(1000)` sleeps a second in a millisecond.

    The time itself is not scaled, so time limits do not depend on the speed of the machine.
    """

    def __init__(self, factor: float) -> None:
        if type(factor) not in (int, float) or not 0 < factor < math.inf:
            raise ConfigError(f"factor must be a positive number, got {factor!r:.80}")
        self.factor = factor

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / self.factor)
