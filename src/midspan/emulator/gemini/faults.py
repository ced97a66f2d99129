"""Injects the faults of a plan, by hooks around an answer: instead of it, into it, into its JSON and into its bytes."""

from collections import UserDict
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from midspan.emulator.gemini.conversation import Answer
from midspan.emulator.gemini.documents import Document
from midspan.emulator.gemini.errors import DETAIL_TYPE, ApiError
from midspan.emulator.gemini.fault_plan import Fault, FaultKind, FaultPlan, PlanLike
from midspan.emulator.http import HTML, Disconnect, Reply, Step, Wait, reply

_MESSAGES = {
    FaultKind.STATUS_500: (
        500,
        "An internal error has occurred. Please retry or report in https://developers.generativeai.google/guide",
    ),
    FaultKind.STATUS_502: (502, "The server received an invalid response."),
    FaultKind.STATUS_503: (503, "The model is overloaded. Please try again later."),
    FaultKind.STATUS_504: (504, "The request timed out. Please try again."),
    FaultKind.RATE_LIMIT_BARE: (429, "Resource exhausted. Please try again later."),
}
_OVERLOADED = ApiError(*_MESSAGES[FaultKind.STATUS_503])
_PAGE = (
    b"<!DOCTYPE html>\n<html lang=en>\n  <title>Error 502 (Server Error)!!1</title>\n"
    b"  <style>body{font-family:sans-serif}</style>\n  <p><b>502.</b> <ins>That is an error.</ins>\n"
    b"  <p>The server encountered a temporary error and could not complete your request."
    b"<p>Please try again in 30 seconds.  <ins>That is all we know.</ins>\n"
)
_RATE_LIMITS = "https://ai.google.dev/gemini-api/docs/rate-limits"
_QUOTA = (
    "You exceeded your current quota, please check your plan and billing details. For more information on this error, "
    f"head to: {_RATE_LIMITS}."
)
_LINK = {"description": "Learn more about Gemini API quotas", "url": _RATE_LIMITS}
_HELP = {"@type": f"{DETAIL_TYPE}Help", "links": [_LINK]}


class PlanProgress:
    """A plan, the number of its next request, and the faults that were injected."""

    def __init__(self, plan: FaultPlan) -> None:
        self.plan = plan
        self.injected: list[Fault] = []
        self._requests = 0

    def next(self, *, is_streaming: bool) -> "RequestFaults":
        """Return the faults of the next request."""
        self._requests += 1
        return RequestFaults(self.plan.at(self._requests - 1), is_streaming)


class Plans(UserDict[str, Any]):
    """The named fault plans of a server."""

    def __getitem__(self, name: str) -> FaultPlan:
        return self.progress(name).plan

    def __setitem__(self, name: str, plan: PlanLike) -> None:
        self.data[name] = PlanProgress(FaultPlan.of(plan))

    def injected(self, name: str) -> tuple[Fault, ...]:
        """Return the faults of this plan that have been injected."""
        return tuple(self.progress(name).injected)

    def progress(self, name: str) -> PlanProgress:
        progress: PlanProgress = self.data[name]
        return progress


class RequestFaults(Struct, frozen=True):
    """The faults of one request."""

    faults: tuple[Fault, ...]
    is_streaming: bool

    def has(self, kind: FaultKind) -> bool:
        return any(fault.kind is kind for fault in self.faults)

    def replace_reply(self) -> tuple[Fault, Reply] | None:
        """Return the fault that replaces the whole reply, and that reply; None if there is no such fault."""
        for fault in self.faults:
            replacement = _reply(fault, is_streaming=self.is_streaming)
            if replacement is not None:
                return fault, replacement
        return None

    def change_answer(self, answer: Answer) -> Answer:
        """Return what the model answers under these faults."""
        for fault in self.faults:
            match fault.kind:
                case FaultKind.MALFORMED_CALL:
                    names = [part["functionCall"].get("name") for part in answer.parts if "functionCall" in part]
                    message = f"Malformed function call: print(default_api.{names[0] if names else 'tool'}(city='x'"
                    answer = Answer(finish="MALFORMED_FUNCTION_CALL", finish_message=message)
                case FaultKind.UNEXPECTED_CALL:
                    answer = Answer(finish="UNEXPECTED_TOOL_CALL", finish_message="Unexpected tool call.")
                case FaultKind.EMPTY_STOP:
                    answer = Answer()
                case FaultKind.SLOW_FIRST_BYTE:
                    answer = replace(answer, delay_seconds=answer.delay_seconds + fault.seconds)
        return answer

    def change_documents(self, documents: list[Document]) -> list[Document]:
        """Return the JSON documents that are sent under these faults."""
        documents = list(documents)
        for fault in self.faults:
            at = min(fault.chunk, len(documents) - 1)
            match fault.kind:
                case FaultKind.DOUBLED_CHUNK:
                    documents.insert(at, documents[at])
                case FaultKind.HUGE_EVENT:
                    documents[at] = documents[at] | {
                        "modelStatus": {"modelStage": "STABLE", "message": "x" * fault.size}
                    }
                case FaultKind.NO_FINISH:
                    candidates = map(_without_finish, documents[-1].get("candidates", ()))
                    documents[-1] = documents[-1] | {"candidates": list(candidates)}
        return documents

    def change_frames(self, frames: Sequence[bytes]) -> list[Step]:
        """Return the steps that send the frames of the documents under these faults."""
        steps: list[Step] = list(frames)
        for fault in self.faults:
            places = [(at, step) for at, step in enumerate(steps) if isinstance(step, bytes)]
            at, frame = places[min(fault.chunk, len(places) - 1)]
            half = len(frame) // 2
            if Disconnect.RESET in steps:
                break
            match fault.kind:
                case FaultKind.MALFORMED_JSON:
                    steps[at] = frame.replace(b'":', b'" ', 1)
                case FaultKind.STALL if self.is_streaming:
                    steps.insert(at or min(1, len(steps) - 1), Wait(fault.seconds))  # not before the first of several
                case FaultKind.STALL:
                    steps[at : at + 1] = [frame[:half], Wait(fault.seconds), frame[half:]]
                case FaultKind.RESET_IN_EVENT:
                    steps[at:] = [frame[:half], Wait(0), Disconnect.RESET]
                case FaultKind.RESET_IN_CHARACTER:
                    start = next((index for index, byte in enumerate(frame) if byte >= 0xC0), None)
                    # In a frame of ASCII a character begins where the rest, which is never sent, would be.
                    sent = frame[: start + 1] if start is not None else frame[:half] + "€".encode()[:2]
                    steps[at:] = [sent, Wait(0), Disconnect.RESET]
                case FaultKind.ERROR_EVENT | FaultKind.ERROR_BARE:
                    steps[at:] = [_error_frame(fault, is_first=at == places[0][0], is_array=frame[:1] in (b"[", b","))]
        return steps


def _without_finish(candidate: Document) -> Document:
    return {key: value for key, value in candidate.items() if key not in ("finishReason", "finishMessage")}


def _error_frame(fault: Fault, *, is_first: bool, is_array: bool) -> bytes:
    body = _OVERLOADED.body()
    if is_array:
        return (b"[" if is_first else b",") + body + b"]"
    if fault.kind is FaultKind.ERROR_BARE:
        return body.replace(b"\n", b"\r\n") + b"\r\n"
    return b"data: " + body.replace(b"\n", b"") + b"\r\n\r\n"


def _reply(fault: Fault, *, is_streaming: bool) -> Reply | None:
    """Return the reply that a fault sends instead of the answer; None if there is an answer."""
    error: ApiError | None = None
    match fault.kind:
        case FaultKind.RESET_BEFORE_HEADERS:
            return [Disconnect.RESET]
        case FaultKind.HTML_PAGE:
            return reply(_PAGE, 502, HTML)
        case FaultKind.ERROR_LIST:
            return reply(b"[%b]" % _OVERLOADED.body(), _OVERLOADED.code)
        case FaultKind.ERROR_EVENT | FaultKind.ERROR_BARE if not is_streaming:
            error = _OVERLOADED  # without a stream there is no answer in which the error could occur
        case FaultKind.RATE_LIMIT:
            retry = {"@type": f"{DETAIL_TYPE}RetryInfo", "retryDelay": f"{fault.seconds:g}s"}
            details = [_quota("GenerateRequestsPerMinutePerProjectPerModel"), _HELP, retry]
            error = ApiError(429, f"{_QUOTA} Please retry in {fault.seconds:g}s.", details=details)
        case FaultKind.DAILY_QUOTA:
            details = [_quota("GenerateRequestsPerDayPerProjectPerModel-FreeTier"), _HELP]
            error = ApiError(429, _QUOTA, details=details)
        case kind if kind in _MESSAGES:
            error = ApiError(*_MESSAGES[kind])
    return None if error is None else reply(error.body(), error.code)


def _quota(quota_id: str) -> dict[str, Any]:
    violation = {
        "quotaMetric": "generativelanguage.googleapis.com/generate_content_free_tier_requests",
        "quotaId": quota_id,
        "quotaDimensions": {"location": "global"},
        "quotaValue": "50",
    }
    return {"@type": f"{DETAIL_TYPE}QuotaFailure", "violations": [violation]}


def split_for_continuation(answer: Answer) -> tuple[Answer, Answer]:
    """Split an answer into what is sent now and what is sent for the continuation token."""
    texts = (at for at, part in enumerate(answer.parts) if part.get("text") and not part.get("thought"))
    at = next(texts, None)
    if at is None:
        return replace(answer, parts=(), finish="CONTINUATION"), answer
    part = answer.parts[at]
    half = len(part["text"]) // 2
    first, second = {**part, "text": part["text"][:half]}, {**part, "text": part["text"][half:]}
    return (
        replace(answer, parts=(*answer.parts[:at], first), finish="CONTINUATION"),
        replace(answer, parts=(second, *answer.parts[at + 1 :])),
    )
