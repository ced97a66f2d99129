"""The seam through which time and chance come in: above it is whoever waits, below it the system or a test."""

import asyncio
import time
from collections.abc import Sequence
from typing import Protocol

from midspan.errors import ConfigError


class Clock(Protocol):
    """Time that passes, and chance."""

    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...

    def random(self) -> float:
        """A number from 0 up to, but without, 1."""
        ...


def check_clock(clock: object) -> None:
    """Refuse what is no clock; None stands for that of the system."""
    has_all = not isinstance(clock, type) and all(callable(getattr(clock, name, None)) for name in _NEEDED)
    if clock is not None and not has_all:
        raise ConfigError(f"clock is a Clock, with {', '.join(_NEEDED)}; not {clock!r}")


_NEEDED = ("monotonic", "sleep", "random")


class SystemClock:
    """The time and the chance of the machine."""

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def random(self) -> float:
        from random import random  # takes as long to load as all of us, and is rarely needed

        return random()  # noqa: S311 - spreads retries, protects nothing


class VirtualClock:
    """Time that passes only by sleeping, at once, and chance that is foretold: for tests.

    `slept` is how long each sleep was; `chances` are given in turn, and the last one from then on.
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
