"""Fault plans: which request meets which fault. A plan can be printed, parsed, drawn from a seed and shrunk."""

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import replace

from midspan.emulator.validate import Seconds, Validated
from midspan.errors import ConfigError


class FaultKind(StrEnum):
    RATE_LIMIT = "rate_limit"
    """429 with a RetryInfo."""
    RATE_LIMIT_BARE = "rate_limit_bare"
    """429 without a RetryInfo."""
    DAILY_QUOTA = "daily_quota"
    """429 for the rest of the day."""
    STATUS_500 = "status_500"
    STATUS_502 = "status_502"
    STATUS_503 = "status_503"
    STATUS_504 = "status_504"
    HTML_PAGE = "html_page"
    """The error page of a front end."""
    ERROR_LIST = "error_list"
    """An error inside a JSON list."""
    ERROR_EVENT = "error_event"
    """An error in the stream, as an event."""
    ERROR_BARE = "error_bare"
    """An error in the stream, as JSON without `data:`."""
    RESET_BEFORE_HEADERS = "reset_before_headers"
    RESET_IN_EVENT = "reset_in_event"
    RESET_IN_CHARACTER = "reset_in_character"
    """Between the bytes of one character."""
    NO_FINISH = "no_finish"
    """The response is complete, but has no finishReason."""
    STALL = "stall"
    """A pause before a chunk."""
    SLOW_FIRST_BYTE = "slow_first_byte"
    HUGE_EVENT = "huge_event"
    DOUBLED_CHUNK = "doubled_chunk"
    MALFORMED_JSON = "malformed_json"
    MALFORMED_CALL = "malformed_function_call"
    UNEXPECTED_CALL = "unexpected_tool_call"
    EMPTY_STOP = "empty_stop"
    """STOP without parts."""
    CONTINUATION = "continuation"
    """The answer continues in a second request, with a token."""


_PARAMETERS: dict[FaultKind, dict[str, Any]] = {
    FaultKind.RATE_LIMIT: {"seconds": 2.0},
    FaultKind.ERROR_EVENT: {"chunk": 0},
    FaultKind.ERROR_BARE: {"chunk": 0},
    FaultKind.RESET_IN_EVENT: {"chunk": 0},
    FaultKind.RESET_IN_CHARACTER: {"chunk": 0},
    FaultKind.STALL: {"chunk": 0, "seconds": 120.0},
    FaultKind.SLOW_FIRST_BYTE: {"seconds": 5.0},
    FaultKind.HUGE_EVENT: {"chunk": 0, "size": 2_000_000},
    FaultKind.DOUBLED_CHUNK: {"chunk": 0},
    FaultKind.MALFORMED_JSON: {"chunk": 0},
}
"""The parameters of each kind and their defaults; the other kinds have none."""
_RANDOM: dict[str, tuple[Any, ...]] = {
    "chunk": (0, 1, 2, 3),
    "seconds": (0.5, 2.0, 10.0, 90.0),
    "size": (70_000, 300_000, 1_500_000),
}
_FAULT = re.compile(r"(?P<at>[0-9]{1,9}):(?P<kind>[a-z_0-9]+)(?:\((?P<parameters>[^()]*)\))?")
_SEPARATOR = re.compile(r"\s+(?![^()]*\))")
"""Space outside of parentheses."""


class Fault(Validated, frozen=True, order=True):
    """A fault that the n-th request to a model meets, counted from 0."""

    at: Annotated[int, Meta(ge=0)]
    kind: FaultKind
    chunk: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    """The chunk of a stream; the last one if there are fewer."""
    seconds: Seconds = 0.0
    size: Annotated[int, Meta(ge=0, le=2**28)] = 0

    def __str__(self) -> str:
        values = [f"{name}={_number_text(getattr(self, name))}" for name in _PARAMETERS.get(self.kind, ())]
        return f"{self.at}:{self.kind.value}" + (f"({','.join(values)})" if values else "")


def _number_text(number: float) -> str:
    return repr(int(number) if number == int(number) else number)


def fault(at: int, kind: FaultKind | str, **parameters: float) -> Fault:
    """Make a fault; missing parameters have their defaults: `fault(0, "stall", seconds=30)`."""
    if kind not in list(FaultKind):
        raise ConfigError(f"unknown fault {str(kind)[:80]!r}; known: {', '.join(FaultKind)}")
    known = _PARAMETERS.get(FaultKind(kind), {})
    unknown = parameters.keys() - known
    if unknown:
        names = ", ".join(known) or "none"
        raise ConfigError(f"unknown parameter {', '.join(sorted(unknown))} of {kind}; known: {names}")
    return Fault(at, FaultKind(kind), **{**known, **parameters})


class FaultPlan(Validated, frozen=True):
    """Faults by the request that meets them: `FaultPlan.parse("0:status_503 2:stall(chunk=1)")`."""

    faults: tuple[Fault, ...] = ()

    def __str__(self) -> str:
        return " ".join(map(str, self.faults))

    def __iter__(self) -> Iterator[Fault]:
        return iter(self.faults)

    def __len__(self) -> int:
        return len(self.faults)

    def at(self, request: int) -> tuple[Fault, ...]:
        """Return the faults of the n-th request."""
        return tuple(fault for fault in self.faults if fault.at == request)

    @classmethod
    def of(cls, plan: "PlanLike") -> "FaultPlan":
        """Convert text, a list of faults or None to a plan."""
        if isinstance(plan, FaultPlan):
            return plan
        if plan is None:
            return cls()
        if isinstance(plan, str):
            return cls.parse(plan)
        if not isinstance(plan, Iterable) or isinstance(plan, bytes | Mapping):
            raise ConfigError(
                f"faults must be text such as '0:status_503', a list of faults or a plan, got {plan!r:.80}"
            )
        return cls(tuple(item if isinstance(item, Fault) else _parse(item) for item in plan))

    @classmethod
    def parse(cls, text: str) -> "FaultPlan":
        """Read a plan as it is printed."""
        return cls(tuple(_parse(item) for item in _SEPARATOR.split(text.strip()) if item))

    @classmethod
    def random(
        cls, seed: int, *, requests: int = 8, chance: float = 0.4, kinds: Sequence[FaultKind] = tuple(FaultKind)
    ) -> "FaultPlan":
        """Draw faults among the first requests; the same seed draws the same plan."""
        generator = random.Random(seed)  # noqa: S311 - it must repeat, it is not for security
        faults = []
        for at in range(requests):
            if generator.random() < chance:
                kind = generator.choice(kinds)
                parameters = {name: generator.choice(_RANDOM[name]) for name in _PARAMETERS.get(kind, ())}
                faults.append(fault(at, kind, **parameters))
        return cls(tuple(faults))


PlanLike = FaultPlan | str | Sequence[Fault | str] | None


def _parse(text: str) -> Fault:
    match = _FAULT.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise ConfigError(f"{str(text)[:80]!r} is not a fault; expected text such as 2:stall(chunk=1,seconds=30)")
    parameters: dict[str, float] = {}
    for parameter in filter(None, (match["parameters"] or "").split(",")):
        name, _, value = map(str.strip, parameter.partition("="))
        if name in parameters:
            raise ConfigError(f"{text!r}: {name} is given twice")
        try:
            number = float(value)
        except ValueError as error:
            raise ConfigError(f"{text!r}: {name} must be a number, got {value[:40]!r}") from error
        parameters[name] = int(number) if name != "seconds" and number.is_integer() else number
    return fault(int(match["at"]), match["kind"], **parameters)


def shrink(plan: FaultPlan, fails: Callable[[FaultPlan], bool]) -> FaultPlan:
    """Return the smallest plan for which `fails` is still true; the plan itself if it never is.

    Faults are left out, and the rest is made milder. Print the result; `FaultPlan.parse` reads it.
    """
    plan = FaultPlan.of(plan)
    if not fails(plan):
        return plan
    while (smaller := next(filter(fails, _smaller(plan)), None)) is not None:
        plan = smaller
    return plan


def _smaller(plan: FaultPlan) -> Iterator[FaultPlan]:
    """Yield smaller plans, the smallest first."""
    faults, count = plan.faults, len(plan)
    if count > 2:
        yield FaultPlan(faults[: count // 2])
        yield FaultPlan(faults[count // 2 :])
    for index in range(count):
        yield FaultPlan(faults[:index] + faults[index + 1 :])
    for index, item in enumerate(faults):
        for milder in _milder(item):
            yield FaultPlan((*faults[:index], milder, *faults[index + 1 :]))


def _milder(item: Fault) -> Iterator[Fault]:
    if item.chunk:
        yield replace(item, chunk=0)
        yield replace(item, chunk=item.chunk - 1)
    if item.seconds > 1:
        yield replace(item, seconds=float(int(item.seconds / 2)))
    if item.size > 1_000:
        yield replace(item, size=item.size // 2)
    if item.at:
        yield replace(item, at=item.at - 1)
