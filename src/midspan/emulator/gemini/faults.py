"""Faults: a plan assigns faults to requests; the faults of a request change its answer, JSON and bytes."""

import random
import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from midspan._schema.conversion import settings_of
from midspan.emulator.gemini.api import DETAIL_TYPE, ApiError, error_page
from midspan.emulator.gemini.documents import Document
from midspan.emulator.gemini.script import Answer
from midspan.emulator.http import HTML, PauseSeconds, Reply, Reset, Step, Wait, reply
from midspan.errors import ConfigError


def _quota(quota_id: str) -> dict[str, Any]:
    return {"@type": f"{DETAIL_TYPE}QuotaFailure", "violations": [{"quotaId": quota_id, "quotaValue": "50"}]}


_QUOTA = (
    "You exceeded your current quota, please check your plan and billing details. For more information on this error, "
    "head to: https://ai.google.dev/gemini-api/docs/rate-limits."
)
_OVERLOADED = ApiError(503, "The model is overloaded. Please try again later.")
_REPLIES: dict[str, Reply] = {
    "rate_limit_bare": ApiError(429, "Resource exhausted. Please try again later.").reply(),
    "daily_quota": ApiError(429, _QUOTA, [_quota("GenerateRequestsPerDayPerProjectPerModel-FreeTier")]).reply(),
    "status_500": ApiError(500, "An internal error has occurred. Please retry.").reply(),
    "status_502": ApiError(502, "The server received an invalid response.").reply(),
    "status_503": _OVERLOADED.reply(),
    "status_504": ApiError(504, "The request timed out. Please try again.").reply(),
    "html_page": reply(error_page(502), 502, HTML),
    "error_list": reply(b"[%b]" % _OVERLOADED.body(), _OVERLOADED.code),
    "reset_before_headers": [Reset()],
}
"""What is sent instead of an answer, by the kind of the fault."""
KINDS: dict[str, dict[str, float]] = {
    **{kind: {} for kind in _REPLIES},
    "rate_limit": {"seconds": 2.0},  # 429 with a RetryInfo
    "error_event": {"chunk": 0},  # an error in the stream, as an event
    "error_bare": {"chunk": 0},  # an error in the stream, as JSON without `data:`
    "reset_in_event": {"chunk": 0},
    "reset_in_character": {"chunk": 0},  # between the bytes of one character
    "no_finish": {},  # the response is complete, but has no finishReason
    "stall": {"chunk": 0, "seconds": 120.0},  # a pause before a chunk
    "slow_first_byte": {"seconds": 5.0},
    "huge_event": {"chunk": 0, "size": 2_000_000},
    "doubled_chunk": {"chunk": 0},
    "malformed_json": {"chunk": 0},
    "malformed_function_call": {},
    "unexpected_tool_call": {},
    "empty_stop": {},  # STOP without parts
    "continuation": {},  # the answer continues in a second request, with a token
}
"""Each kind of fault with its parameters and their defaults."""
_RANDOM: dict[str, tuple[Any, ...]] = {
    "chunk": (0, 1, 2, 3),
    "seconds": (0.5, 2.0, 10.0, 90.0),
    "size": (70_000, 300_000, 1_500_000),
}
_FAULT = re.compile(r"(?P<at>\d+):(?P<kind>\w+)(?:\((?P<parameters>.*)\))?")


class Fault(Struct, frozen=True):
    """A fault that is injected into the n-th valid request to a model, counted from 0."""

    at: Annotated[int, Meta(ge=0)]
    kind: str
    chunk: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    """The chunk of a stream; the last one if there are fewer."""
    seconds: PauseSeconds = 0.0
    size: Annotated[int, Meta(ge=0, le=2**28)] = 0

    def __str__(self) -> str:
        values = [f"{name}={getattr(self, name):.15g}" for name in KINDS[self.kind]]
        return f"{self.at}:{self.kind}" + (f"({','.join(values)})" if values else "")

    @classmethod
    def parse(cls, text: str) -> "Fault":
        """Read a fault as it is printed, such as `2:stall(chunk=1,seconds=30)`; missing parameters have defaults."""
        match = _FAULT.fullmatch(text)
        if match is None or match["kind"] not in KINDS:
            raise ConfigError(f"{text[:80]!r} is not a fault such as 2:stall(chunk=1); known: {', '.join(KINDS)}")
        known, where = KINDS[match["kind"]], f"invalid fault {text[:80]!r}"
        pairs = [pair.partition("=") for pair in (match["parameters"] or "").split(",") if pair]
        values = {name: _number(value) for name, _, value in pairs}
        if not values.keys() <= known.keys():
            raise ConfigError(f"{where}: its parameters are: {', '.join(known) or 'none'}")
        return settings_of(Fault, {"at": _number(match["at"]), "kind": match["kind"], **known, **values}, where)


def _number(text: str) -> Any:
    """Parse a number. Any other text is returned as it is, for the error message."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


class FaultPlan(Struct, frozen=True):
    """The faults of a server and the requests that get them: `FaultPlan.parse("0:status_503 2:stall(chunk=1)")`."""

    faults: tuple[Fault, ...] = ()

    def __str__(self) -> str:
        return " ".join(map(str, self.faults))

    @classmethod
    def parse(cls, text: str) -> "FaultPlan":
        """Read a plan as it is printed."""
        return cls(tuple(map(Fault.parse, text.split())))

    @classmethod
    def random(cls, seed: int, *, requests: int = 8, chance: float = 0.4) -> "FaultPlan":
        """Draw faults among the first requests; the same seed draws the same plan."""
        generator = random.Random(seed)  # noqa: S311 - it must be reproducible, not secure
        faults = []
        for number in range(requests):
            if generator.random() < chance:
                kind = generator.choice(tuple(KINDS))
                parameters = {name: generator.choice(_RANDOM[name]) for name in KINDS[kind]}
                faults.append(Fault(number, kind, **parameters))
        return cls(tuple(faults))


def shrink(plan: FaultPlan, fails: Callable[[FaultPlan], bool]) -> FaultPlan:
    """Remove every fault that `fails` does not need to be true. Print the result; `FaultPlan.parse` reads it."""
    for index in range(len(plan.faults)):
        smaller = FaultPlan(plan.faults[:index] + plan.faults[index + 1 :])
        if fails(smaller):
            return shrink(smaller, fails)
    return plan


class RequestFaults(Struct, frozen=True):
    """The faults of one request: hooks around the reply, the answer, its JSON and its bytes."""

    faults: tuple[Fault, ...]
    is_streaming: bool

    def replace_reply(self) -> Reply | None:
        """Return the reply that is sent instead of the answer; None if there is an answer."""
        for fault in self.faults:
            if fault.kind == "rate_limit":
                retry = {"@type": f"{DETAIL_TYPE}RetryInfo", "retryDelay": f"{fault.seconds:g}s"}
                quota = _quota("GenerateRequestsPerMinutePerProjectPerModel")
                return ApiError(429, f"{_QUOTA} Please retry in {fault.seconds:g}s.", [quota, retry]).reply()
            # Without a stream there is no answer in which the error could occur.
            is_error = fault.kind in ("error_event", "error_bare") and not self.is_streaming
            if is_error or fault.kind in _REPLIES:
                return _REPLIES["status_503" if is_error else fault.kind]
        return None

    def change_answer(self, answer: Answer) -> Answer:
        """Return what the model answers under these faults."""
        for fault in self.faults:
            match fault.kind:
                case "malformed_function_call":
                    names = [part["functionCall"].get("name") for part in answer.parts if "functionCall" in part]
                    message = f"Malformed function call: print(default_api.{names[0] if names else 'tool'}(city='x'"
                    answer = Answer(finish_reason="MALFORMED_FUNCTION_CALL", finish_message=message)
                case "unexpected_tool_call":
                    answer = Answer(finish_reason="UNEXPECTED_TOOL_CALL", finish_message="Unexpected tool call.")
                case "empty_stop":
                    answer = Answer()
                case "no_finish":
                    answer = replace(answer, finish_reason=None, finish_message=None)
                case "slow_first_byte":
                    answer = replace(answer, delay_seconds=answer.delay_seconds + fault.seconds)
                case "continuation":
                    answer = _first_half(answer)
        return answer

    def change_documents(self, documents: list[Document]) -> list[Document]:
        """Return the JSON documents that are sent under these faults."""
        documents = list(documents)
        for fault in self.faults:
            index = min(fault.chunk, len(documents) - 1)
            if fault.kind == "doubled_chunk":
                documents.insert(index, documents[index])
            elif fault.kind == "huge_event":
                status = {"modelStage": "STABLE", "message": "x" * fault.size}
                documents[index] = documents[index] | {"modelStatus": status}
        return documents

    def change_frames(self, frames: Sequence[bytes]) -> list[Step]:
        """Return the steps that send the frames of the documents under these faults."""
        steps: list[Step] = list(frames)
        for fault in self.faults:
            if Reset() in steps:
                break
            places = [(index, step) for index, step in enumerate(steps) if isinstance(step, bytes)]
            index, frame = places[min(fault.chunk, len(places) - 1)]
            half = len(frame) // 2
            match fault.kind:
                case "malformed_json":
                    steps[index] = frame.replace(b'":', b'" ', 1)
                case "stall" if self.is_streaming:
                    steps.insert(index or min(1, len(steps) - 1), Wait(fault.seconds))  # not before all of several
                case "stall":
                    steps[index : index + 1] = [frame[:half], Wait(fault.seconds), frame[half:]]
                case "reset_in_event":
                    steps[index:] = [frame[:half], Wait(0), Reset()]
                case "reset_in_character":
                    complete = frame[:half].decode(errors="ignore").encode()
                    steps[index:] = [complete + "€".encode()[:2], Wait(0), Reset()]
                case "error_event" | "error_bare":
                    steps[index:] = [_error_frame(fault, frame, is_first=index == places[0][0])]
        return steps


def _error_frame(fault: Fault, frame: bytes, *, is_first: bool) -> bytes:
    body = _OVERLOADED.body()
    if frame[:1] in (b"[", b","):
        return (b"[" if is_first else b",") + body + b"]"
    if fault.kind == "error_bare":
        return body.replace(b"\n", b"\r\n") + b"\r\n"
    return b"data: " + body.replace(b"\n", b"") + b"\r\n\r\n"


def _first_half(answer: Answer) -> Answer:
    """Return an answer up to the middle of its first text, with the rest in its continuation token."""
    texts = (index for index, part in enumerate(answer.parts) if part.get("text") and not part.get("thought"))
    index = next(texts, None)
    sent, rest = answer.parts[: index or 0], answer.parts[index or 0 :]
    if index is not None:
        text = rest[0]["text"]
        half = len(text) // 2
        sent, rest = (*sent, {**rest[0], "text": text[:half]}), ({**rest[0], "text": text[half:]}, *rest[1:])
    token = b64encode(msgspec.json.encode(replace(answer, parts=rest))).decode()
    extra = {**answer.extra, "continuationToken": token}
    return replace(answer, parts=sent, finish_reason="CONTINUATION", extra=extra)
