"""Time that runs faster: so that stalls of minutes pass in moments, for the server and its client alike."""

import math

from midspan._http.retry import SystemClock
from midspan.errors import ConfigError


class ScaledClock(SystemClock):
    """The machine's clock, so many times as fast: `ScaledClock(1000)` sleeps a second in a millisecond."""

    def __init__(self, factor: float) -> None:
        if type(factor) not in (int, float) or not 0 < factor < math.inf:
            raise ConfigError(f"a clock runs forward, not {factor!r:.80} times as fast; give a number above 0")
        self.factor = factor

    def monotonic(self) -> float:
        return super().monotonic() * self.factor

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / self.factor)
