"""Clock: the source of time and randomness, which tests replace."""

import asyncio
import time
from collections.abc import Sequence
from typing import Protocol

from midspan.errors import ConfigError


class Clock(Protocol):
    """Time, sleeping and random numbers."""

    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...

    def random(self) -> float:
        """Return a number in [0, 1)."""
        ...


def check_clock(clock: object) -> None:
    """Raise a ConfigError if `clock` is not a Clock; None means the system clock."""
    has_all = not isinstance(clock, type) and all(callable(getattr(clock, name, None)) for name in _METHODS)
    if clock is not None and not has_all:
        raise ConfigError(f"clock must be a Clock with {', '.join(_METHODS)}, got {clock!r}")


_METHODS = ("monotonic", "sleep", "random")


class SystemClock:
    """The time and randomness of the system."""

    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def random(self) -> float:
        from random import random  # slow to import, and rarely needed

        return random()  # noqa: S311 - jitter, not security


class VirtualClock:
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
