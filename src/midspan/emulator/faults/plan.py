"""A plan of faults: which request meets which one. It can be printed, read back and drawn by chance from a seed."""

import math
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from midspan.errors import ConfigError


class Kind(StrEnum):
    RATE_LIMIT = "rate_limit"
    """429 that says how long to wait."""
    RATE_LIMIT_BARE = "rate_limit_bare"
    """429 that does not."""
    DAILY_QUOTA = "daily_quota"
    """429 for which waiting does not help."""
    STATUS_500 = "status_500"
    STATUS_502 = "status_502"
    STATUS_503 = "status_503"
    STATUS_504 = "status_504"
    HTML_PAGE = "html_page"
    """An error page of a front-end."""
    ERROR_LIST = "error_list"
    """An error inside a JSON list."""
    ERROR_EVENT = "error_event"
    """An error within the stream, as an event."""
    ERROR_BARE = "error_bare"
    """An error within the stream, as JSON on lines of its own."""
    RESET_BEFORE_HEADERS = "reset_before_headers"
    RESET_IN_EVENT = "reset_in_event"
    RESET_IN_CHARACTER = "reset_in_character"
    """In the middle of the bytes of one character."""
    NO_FINISH = "no_finish"
    """The stream ends in good order, and nobody says why."""
    STALL = "stall"
    """Nothing comes for a while, then the rest."""
    SLOW_FIRST_BYTE = "slow_first_byte"
    HUGE_EVENT = "huge_event"
    DOUBLED_CHUNK = "doubled_chunk"
    MALFORMED_JSON = "malformed_json"
    MALFORMED_CALL = "malformed_function_call"
    UNEXPECTED_CALL = "unexpected_tool_call"
    EMPTY_STOP = "empty_stop"
    """STOP, and no parts."""
    CONTINUATION = "continuation"
    """The answer goes on if asked again with its token."""


_TIMED = {Kind.RATE_LIMIT: 2.0, Kind.STALL: 120.0, Kind.SLOW_FIRST_BYTE: 5.0}
_LARGE = {Kind.HUGE_EVENT: 2_000_000}
_AT_CHUNK = frozenset(
    (
        Kind.ERROR_EVENT,
        Kind.ERROR_BARE,
        Kind.RESET_IN_EVENT,
        Kind.RESET_IN_CHARACTER,
        Kind.STALL,
        Kind.HUGE_EVENT,
        Kind.DOUBLED_CHUNK,
        Kind.MALFORMED_JSON,
    )
)
_MOST = {"chunk": 1_000_000, "seconds": 31_536_000, "size": 256 * 1024 * 1024}
"""What each measure may be at most: a year, and as much as fits into memory."""
_ENTRY = re.compile(r"(?P<at>[0-9]{1,9}):(?P<kind>[a-z_0-9]+)(?:\((?P<rest>[^()]*)\))?")
_BETWEEN = re.compile(r"\s+(?![^()]*\))")
"""Space that stands within no parentheses."""


class Fault(Struct, frozen=True, order=True):
    """One thing that goes wrong, with the n-th request that a model is asked."""

    at: int
    kind: Kind
    chunk: int = 0
    """With which chunk of a stream; if there are fewer, with the last one."""
    seconds: float = 0.0
    size: int = 0

    def __post_init__(self) -> None:
        if type(self.at) is not int or self.at < 0:
            raise ConfigError(f"a fault counts requests from 0 on, not {self.at!r:.80}")
        kind = _kind(self.kind)
        force_setattr(self, "kind", kind)
        for name in _MOST:
            force_setattr(self, name, _measure(kind, name, getattr(self, name)))

    def __str__(self) -> str:
        given = [
            *([f"chunk={self.chunk}"] if self.kind in _AT_CHUNK else []),
            *([f"seconds={_written(self.seconds)}"] if self.kind in _TIMED else []),
            *([f"size={self.size}"] if self.kind in _LARGE else []),
        ]
        return f"{self.at}:{self.kind.value}" + (f"({','.join(given)})" if given else "")


def _written(seconds: float) -> str:
    return str(int(seconds)) if seconds == seconds // 1 else repr(seconds)


def fault(at: int, kind: Kind | str, **how: float) -> Fault:
    """A fault with the usual measures where none are given: `fault(0, "stall", seconds=30)`."""
    known = _kind(kind)
    made = Fault(at, known, seconds=_TIMED.get(known, 0.0), size=_LARGE.get(known, 0))
    wrong = how.keys() - set(_measures(known))
    if wrong:
        has = " and ".join(_measures(known)) or "no measures"
        raise ConfigError(f"{known.value} has {has}, not {', '.join(sorted(wrong))}")
    return replace(made, **how)


def _kind(given: Any) -> Kind:
    try:
        return Kind(given)
    except ValueError as error:
        raise ConfigError(f"no fault is called {str(given)[:80]!r}; known: {', '.join(Kind)}") from error


def _measures(kind: Kind) -> list[str]:
    has = {"chunk": kind in _AT_CHUNK, "seconds": kind in _TIMED, "size": kind in _LARGE}
    return [name for name, is_there in has.items() if is_there]


def _measure(kind: Kind, name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{kind.value}: {name} is a number, not {value!r}")
    if not 0 <= value <= _MOST[name]:  # nor is it when it is no number at all
        raise ConfigError(f"{kind.value}: {name} counts from 0 to {_MOST[name]}, not {value:g}")
    if name == "seconds":
        return float(value)
    if not math.floor(value) == value:
        raise ConfigError(f"{kind.value}: {name} is a whole number, not {value:g}")
    return int(value)


class FaultPlan(Struct, frozen=True):
    """Faults by the request that meets them; a request may meet several. Written as `0:status_503 2:stall(chunk=1)`."""

    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        given: Any = self.faults
        if not isinstance(given, tuple | list) or not all(isinstance(one, Fault) for one in given):
            raise ConfigError(f"a FaultPlan is made of faults, not of {given!r:.80}; FaultPlan.of reads other things")
        force_setattr(self, "faults", tuple(given))

    def __str__(self) -> str:
        return " ".join(map(str, self.faults))

    def __iter__(self) -> Iterator[Fault]:
        return iter(self.faults)

    def __len__(self) -> int:
        return len(self.faults)

    def at(self, request: int) -> tuple[Fault, ...]:
        return tuple(one for one in self.faults if one.at == request)

    @classmethod
    def of(cls, given: "FaultPlan | str | Sequence[Fault | str] | None") -> "FaultPlan":
        """A plan from its text, from faults, or from nothing."""
        if isinstance(given, FaultPlan):
            return given
        if given is None:
            return cls()
        if isinstance(given, str):
            return cls.parse(given)
        if not isinstance(given, Iterable) or isinstance(given, bytes | Mapping):
            raise ConfigError(f"faults are a text, as '0:status_503', or a list of faults or a plan, not {given!r:.80}")
        return cls(tuple(one if isinstance(one, Fault) else _parsed(one) for one in given))

    @classmethod
    def parse(cls, text: str) -> "FaultPlan":
        """The plan that was printed like this."""
        if not isinstance(text, str):
            raise ConfigError(f"a plan is read from a text, as '0:status_503 2:stall(chunk=1)', not from {text!r:.80}")
        return cls(tuple(_parsed(word) for word in _BETWEEN.split(text.strip()) if word))

    @classmethod
    def random(
        cls, seed: int, *, requests: int = 8, chance: float = 0.4, kinds: Sequence[Kind] = tuple(Kind)
    ) -> "FaultPlan":
        """Faults drawn by chance among the first requests; the same seed draws the same."""
        kinds = _drawable(seed, requests, chance, kinds)
        draw = random.Random(seed)  # noqa: S311 - it shall repeat, not surprise
        faults = []
        for at in range(requests):
            if draw.random() < chance:
                kind = draw.choice(kinds)
                how: dict[str, float] = {"chunk": draw.randrange(4)} if kind in _AT_CHUNK else {}
                if kind in _TIMED:
                    how["seconds"] = draw.choice((0.5, 2.0, 10.0, 90.0))
                if kind in _LARGE:
                    how["size"] = draw.choice((70_000, 300_000, 1_500_000))
                faults.append(fault(at, kind, **how))
        return cls(tuple(faults))


def _drawable(seed: Any, requests: Any, chance: Any, kinds: Any) -> Sequence[Kind]:
    """The kinds, if all of these are such that faults can be drawn by them."""
    if type(seed) is not int:
        raise ConfigError(f"a plan is drawn from a seed, a whole number, not from {seed!r:.80}")
    if type(requests) is not int or requests < 0:
        raise ConfigError(f"requests is among how many faults are drawn, 0 or more, not {requests!r:.80}")
    if type(chance) not in (int, float) or not 0 <= chance <= 1:
        raise ConfigError(f"chance is a number from 0 to 1, not {chance!r:.80}")
    if not isinstance(kinds, Iterable) or isinstance(kinds, str) or not (several := [_kind(one) for one in kinds]):
        raise ConfigError(f"kinds is a list of kinds of faults, as [Kind.STALL], not {kinds!r:.80}")
    return several


def _parsed(word: str) -> Fault:
    found = _ENTRY.fullmatch(word.strip()) if isinstance(word, str) else None
    if found is None:
        raise ConfigError(f"{str(word)[:80]!r} is no fault; write it as 0:status_503 or 2:stall(chunk=1,seconds=30)")
    how: dict[str, float] = {}
    for pair in filter(None, (found["rest"] or "").split(",")):
        name, _, value = map(str.strip, pair.partition("="))
        if name in how:
            raise ConfigError(f"{word!r}: {name} is given twice")
        try:
            how[name] = float(value)
        except ValueError as error:
            raise ConfigError(f"{word!r}: {name} is a number, not {value[:40]!r}") from error
    return fault(int(found["at"]), found["kind"], **how)
