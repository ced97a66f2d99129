"""Faults: which request meets which fault, as a plan that can be printed, parsed, drawn from a seed and shrunk, and how
the faults of a request change its answer, its JSON and its bytes.
"""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from midspan.emulator.gemini.conversation import Answer
from midspan.emulator.gemini.documents import Document
from midspan.emulator.gemini.errors import DETAIL_TYPE, ApiError
from midspan.emulator.http import HTML, Reply, Reset, Seconds, Step, Wait, reply
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
_FAULT = re.compile(r"(?P<at>[0-9]{1,9}):(?P<kind>\w+)(?:\((?P<parameters>[^()]*)\))?")
_SEPARATOR = re.compile(r"\s+(?![^()]*\))")
"""Space outside of parentheses."""


class Fault(Struct, frozen=True, order=True):
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
    for name in parameters:
        if name not in known:
            raise ConfigError(f"unknown parameter {name} of {kind}; known: {', '.join(known) or 'none'}")
    try:
        return msgspec.convert({"at": at, "kind": kind, **known, **parameters}, Fault, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"invalid fault {kind}: {error}") from error


class FaultPlan(Struct, frozen=True):
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
        if isinstance(plan, str):
            return cls.parse(plan)
        return cls(tuple(item if isinstance(item, Fault) else _parse(item) for item in plan or ()))

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
    match = _FAULT.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"{text[:80]!r} is not a fault; expected text such as 2:stall(chunk=1,seconds=30)")
    pairs = (parameter.partition("=") for parameter in filter(None, (match["parameters"] or "").split(",")))
    parameters: dict[str, Any] = {name.strip(): value.strip() for name, _, value in pairs}
    return fault(int(match["at"]), match["kind"], **parameters)


def shrink(plan: FaultPlan, fails: Callable[[FaultPlan], bool]) -> FaultPlan:
    """Return the smallest plan for which `fails` is still true; the plan itself if it never is.

    Faults are left out, and the rest is made milder. Print the result; `FaultPlan.parse` reads it.
    """
    if not fails(plan):
        return plan
    while (smaller := next(filter(fails, _smaller(plan.faults)), None)) is not None:
        plan = smaller
    return plan


def _smaller(faults: tuple[Fault, ...]) -> Iterator[FaultPlan]:
    """Yield smaller plans, the smallest first."""
    if len(faults) > 2:
        half = len(faults) // 2
        yield FaultPlan(faults[:half])
        yield FaultPlan(faults[half:])
    for index in range(len(faults)):
        yield FaultPlan(faults[:index] + faults[index + 1 :])
    for index, item in enumerate(faults):
        for milder in (
            replace(item, at=0, chunk=0),
            replace(item, at=max(0, item.at - 1), chunk=max(0, item.chunk - 1)),
            replace(item, seconds=item.seconds // 2 if item.seconds > 1 else item.seconds, size=item.size // 2),
        ):
            if milder != item:
                yield FaultPlan((*faults[:index], milder, *faults[index + 1 :]))


class PlanProgress:
    """A plan, the number of its next request, and the faults that were injected."""

    def __init__(self, plan: PlanLike) -> None:
        self.plan = FaultPlan.of(plan)
        self.injected: list[Fault] = []
        self._requests = 0

    def next(self, *, is_streaming: bool) -> "RequestFaults":
        """Return the faults of the next request."""
        self._requests += 1
        return RequestFaults(self.plan.at(self._requests - 1), is_streaming)


_MESSAGES = {
    FaultKind.STATUS_500: "An internal error has occurred. Please retry or report in "
    "https://developers.generativeai.google/guide",
    FaultKind.STATUS_502: "The server received an invalid response.",
    FaultKind.STATUS_503: "The model is overloaded. Please try again later.",
    FaultKind.STATUS_504: "The request timed out. Please try again.",
}
_OVERLOADED = ApiError(503, _MESSAGES[FaultKind.STATUS_503])
_PAGE = (
    b"<!DOCTYPE html>\n<html lang=en>\n  <title>Error 502 (Server Error)!!1</title>\n"
    b"  <style>body{font-family:sans-serif}</style>\n  <p><b>502.</b> <ins>That is an error.</ins>\n"
    b"  <p>The server encountered a temporary error and could not complete your request."
    b"<p>Please try again in 30 seconds.  <ins>That is all we know.</ins>\n"
)
_QUOTA = (
    "You exceeded your current quota, please check your plan and billing details. For more information on this error, "
    "head to: https://ai.google.dev/gemini-api/docs/rate-limits."
)


class RequestFaults(Struct, frozen=True):
    """The faults of one request: hooks around the reply, the answer, its JSON and its bytes."""

    faults: tuple[Fault, ...]
    is_streaming: bool

    def has(self, kind: FaultKind) -> bool:
        return any(fault.kind is kind for fault in self.faults)

    def replace_reply(self) -> tuple[Fault, Reply] | None:
        """Return the fault that replaces the whole reply, and that reply; None if there is no such fault."""
        replies = ((fault, _reply(fault, is_streaming=self.is_streaming)) for fault in self.faults)
        return next(((fault, replacement) for fault, replacement in replies if replacement is not None), None)

    def change_answer(self, answer: Answer) -> Answer:
        """Return what the model answers under these faults."""
        for fault in self.faults:
            match fault.kind:
                case FaultKind.MALFORMED_CALL:
                    names = [part["functionCall"].get("name") for part in answer.parts if "functionCall" in part]
                    message = f"Malformed function call: print(default_api.{names[0] if names else 'tool'}(city='x'"
                    answer = Answer(finish_reason="MALFORMED_FUNCTION_CALL", finish_message=message)
                case FaultKind.UNEXPECTED_CALL:
                    answer = Answer(finish_reason="UNEXPECTED_TOOL_CALL", finish_message="Unexpected tool call.")
                case FaultKind.EMPTY_STOP:
                    answer = Answer()
                case FaultKind.NO_FINISH:
                    answer = replace(answer, finish_reason=None, finish_message=None)
                case FaultKind.SLOW_FIRST_BYTE:
                    answer = replace(answer, delay_seconds=answer.delay_seconds + fault.seconds)
        return answer

    def change_documents(self, documents: list[Document]) -> list[Document]:
        """Return the JSON documents that are sent under these faults."""
        documents = list(documents)
        for fault in self.faults:
            at = min(fault.chunk, len(documents) - 1)
            if fault.kind is FaultKind.DOUBLED_CHUNK:
                documents.insert(at, documents[at])
            elif fault.kind is FaultKind.HUGE_EVENT:
                status = {"modelStage": "STABLE", "message": "x" * fault.size}
                documents[at] = documents[at] | {"modelStatus": status}
        return documents

    def change_frames(self, frames: Sequence[bytes]) -> list[Step]:
        """Return the steps that send the frames of the documents under these faults."""
        steps: list[Step] = list(frames)
        for fault in self.faults:
            places = [(at, step) for at, step in enumerate(steps) if isinstance(step, bytes)]
            at, frame = places[min(fault.chunk, len(places) - 1)]
            half = len(frame) // 2
            if Reset() in steps:
                break
            match fault.kind:
                case FaultKind.MALFORMED_JSON:
                    steps[at] = frame.replace(b'":', b'" ', 1)
                case FaultKind.STALL if self.is_streaming:
                    steps.insert(at or min(1, len(steps) - 1), Wait(fault.seconds))  # not before the first of several
                case FaultKind.STALL:
                    steps[at : at + 1] = [frame[:half], Wait(fault.seconds), frame[half:]]
                case FaultKind.RESET_IN_EVENT:
                    steps[at:] = [frame[:half], Wait(0), Reset()]
                case FaultKind.RESET_IN_CHARACTER:
                    start = next((index for index, byte in enumerate(frame) if byte >= 0xC0), None)
                    # In a frame of ASCII a character begins where the rest, which is never sent, would be.
                    sent = frame[: start + 1] if start is not None else frame[:half] + "€".encode()[:2]
                    steps[at:] = [sent, Wait(0), Reset()]
                case FaultKind.ERROR_EVENT | FaultKind.ERROR_BARE:
                    steps[at:] = [_error_frame(fault, is_first=at == places[0][0], is_array=frame[:1] in (b"[", b","))]
        return steps


def _error_frame(fault: Fault, *, is_first: bool, is_array: bool) -> bytes:
    body = _OVERLOADED.body()
    if is_array:
        return (b"[" if is_first else b",") + body + b"]"
    if fault.kind is FaultKind.ERROR_BARE:
        return body.replace(b"\n", b"\r\n") + b"\r\n"
    return b"data: " + body.replace(b"\n", b"") + b"\r\n\r\n"


def _reply(fault: Fault, *, is_streaming: bool) -> Reply | None:
    """Return the reply that a fault sends instead of the answer; None if there is an answer."""
    match fault.kind:
        case FaultKind.RESET_BEFORE_HEADERS:
            return [Reset()]
        case FaultKind.HTML_PAGE:
            return reply(_PAGE, 502, HTML)
        case FaultKind.ERROR_LIST:
            return reply(b"[%b]" % _OVERLOADED.body(), _OVERLOADED.code)
        case FaultKind.ERROR_EVENT | FaultKind.ERROR_BARE if not is_streaming:
            error = _OVERLOADED  # without a stream there is no answer in which the error could occur
        case FaultKind.RATE_LIMIT_BARE:
            error = ApiError(429, "Resource exhausted. Please try again later.")
        case FaultKind.RATE_LIMIT:
            retry = {"@type": f"{DETAIL_TYPE}RetryInfo", "retryDelay": f"{fault.seconds:g}s"}
            details = [_quota("GenerateRequestsPerMinutePerProjectPerModel"), retry]
            error = ApiError(429, f"{_QUOTA} Please retry in {fault.seconds:g}s.", details=details)
        case FaultKind.DAILY_QUOTA:
            error = ApiError(429, _QUOTA, details=[_quota("GenerateRequestsPerDayPerProjectPerModel-FreeTier")])
        case kind if kind in _MESSAGES:
            error = ApiError(int(kind.removeprefix("status_")), _MESSAGES[kind])
        case _:
            return None
    return reply(error.body(), error.code)


def _quota(quota_id: str) -> dict[str, Any]:
    return {"@type": f"{DETAIL_TYPE}QuotaFailure", "violations": [{"quotaId": quota_id, "quotaValue": "50"}]}


def split_for_continuation(answer: Answer) -> tuple[Answer, Answer]:
    """Split an answer into what is sent now and what is sent for the continuation token."""
    texts = (at for at, part in enumerate(answer.parts) if part.get("text") and not part.get("thought"))
    at = next(texts, None)
    if at is None:
        return replace(answer, parts=(), finish_reason="CONTINUATION"), answer
    part = answer.parts[at]
    half = len(part["text"]) // 2
    first, second = {**part, "text": part["text"][:half]}, {**part, "text": part["text"][half:]}
    return (
        replace(answer, parts=(*answer.parts[:at], first), finish_reason="CONTINUATION"),
        replace(answer, parts=(second, *answer.parts[at + 1 :])),
    )
