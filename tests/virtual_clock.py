"""A clock for tests."""

import asyncio
from collections.abc import Sequence

from midspan._http.retry import Clock


class VirtualClock(Clock):
    """A clock for tests: sleeping takes no time, and random numbers are given.

    `slept` lists the length of each sleep. `chances` are returned in turn, the last one repeatedly.
    """

    def __init__(self, chances: Sequence[float] = (1.0,)) -> None:
        self._now = 0.0
        self._chances = list(chances)
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self._now += seconds
        await asyncio.sleep(0)

    def random(self) -> float:
        return self._chances.pop(0) if len(self._chances) > 1 else self._chances[0]
