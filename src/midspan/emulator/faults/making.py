"""Faults that happen to an answer: to what it says, to its documents, and to its bytes on the wire."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from midspan.emulator.answering.answer import Answer
from midspan.emulator.answering.documents import Document
from midspan.emulator.faults.plan import Fault, Kind
from midspan.emulator.faults.refusals import ERROR_IN_STREAM
from midspan.emulator.serving.replies import Break, Reply, Step, Wait, chunk

_PADDING = "x"


def answer_under(answer: Answer, faults: Sequence[Fault]) -> Answer:
    """What the model says, where the fault is the model's own."""
    for fault in faults:
        change = _ANSWERS.get(fault.kind)
        answer = change(answer) if change is not None else answer
    return answer


def documents_under(documents: list[Document], faults: Sequence[Fault]) -> list[Document]:
    """The documents of an answer, some of them not as they should be."""
    for fault in faults:
        change = _DOCUMENTS.get(fault.kind)
        documents = change(documents, fault) if change is not None else documents
    return documents


def frames_under(frames: list[bytes], faults: Sequence[Fault], *, streaming: bool) -> list[Step]:
    """The frames of the documents, with what happens between and within them."""
    steps: list[Step] = list(frames)
    for fault in faults:
        change = _FRAMES.get(fault.kind)
        if change is not None and not any(isinstance(step, Break) for step in steps):
            if not streaming and fault.kind is Kind.STALL:
                steps = _halved(steps)
            steps = change(steps, _place(steps, fault.chunk), fault)
    return steps


def _place(steps: list[Step], number: int) -> int:
    """Where the n-th frame is, or the last one if there are fewer."""
    frames = [at for at, step in enumerate(steps) if isinstance(step, bytes)]
    return frames[min(number, len(frames) - 1)]


def _halved(steps: list[Step]) -> list[Step]:
    body = steps[-1]
    assert isinstance(body, bytes), "what is not streamed ends with its body"
    return [*steps[:-1], body[: len(body) // 2], body[len(body) // 2 :]]


def as_whole(head: bytes, steps: list[Step]) -> Reply:
    """A reply that is not streamed, of these steps; its head promises the length of all of them."""
    return _together([head, *steps])


def on_the_wire(head: bytes, steps: list[Step], end: bytes) -> Reply:
    """A chunked reply of these steps; it has no end if it was broken off."""
    written: Reply = [head]
    for step in steps:
        written.append(chunk(step) if isinstance(step, bytes) else step)
        if isinstance(step, Break):
            return _together(written)
    return _together([*written, end])


def until_closed(head: bytes, steps: list[Step]) -> Reply:
    """The same for those who know no chunks: all has come when the connection closes."""
    return _together([head, *steps, Break.CLOSE])


def _together(steps: Reply) -> Reply:
    """The same with fewer writes: bytes that follow each other go out as one."""
    joined: Reply = []
    for step in steps:
        if joined and isinstance(step, bytes) and isinstance(joined[-1], bytes):
            joined[-1] += step
        else:
            joined.append(step)
    return joined


def _malformed_call(answer: Answer) -> Answer:
    called = [part["functionCall"] for part in answer.parts if "functionCall" in part]
    name = called[0].get("name", "tool") if called else "tool"
    words = f"Malformed function call: print(default_api.{name}(city='x'"
    return Answer(finish="MALFORMED_FUNCTION_CALL", finish_message=words)


def _unexpected_call(answer: Answer) -> Answer:  # noqa: ARG001 - whatever would have been said is not
    return Answer(finish="UNEXPECTED_TOOL_CALL", finish_message="Unexpected tool call.")


def _empty(answer: Answer) -> Answer:  # noqa: ARG001 - whatever would have been said is not
    return Answer()


_ANSWERS: dict[Kind, Callable[[Answer], Answer]] = {
    Kind.MALFORMED_CALL: _malformed_call,
    Kind.UNEXPECTED_CALL: _unexpected_call,
    Kind.EMPTY_STOP: _empty,
}


def _huge(documents: list[Document], fault: Fault) -> list[Document]:
    """One document made huge by words that say nothing about the answer."""
    at = min(fault.chunk, len(documents) - 1)
    changed = list(documents)
    changed[at] = {**documents[at], "modelStatus": {"modelStage": "STABLE", "message": _PADDING * fault.size}}
    return changed


def _doubled(documents: list[Document], fault: Fault) -> list[Document]:
    at = min(fault.chunk, len(documents) - 1)
    return [*documents[: at + 1], *documents[at:]]


def _unfinished(documents: list[Document], fault: Fault) -> list[Document]:  # noqa: ARG001 - like the others
    """All that is said, but not that this is all."""
    last: Any = documents[-1]
    candidates = [
        {key: value for key, value in one.items() if key not in ("finishReason", "finishMessage")}
        for one in last.get("candidates", ())
    ]
    return [*documents[:-1], {**last, "candidates": candidates}]


_DOCUMENTS: dict[Kind, Callable[[list[Document], Fault], list[Document]]] = {
    Kind.HUGE_EVENT: _huge,
    Kind.DOUBLED_CHUNK: _doubled,
    Kind.NO_FINISH: _unfinished,
}


def _error_event(steps: list[Step], at: int, fault: Fault) -> list[Step]:  # noqa: ARG001 - like the others
    body = ERROR_IN_STREAM.body().replace(b"\n", b"")
    if _is_array(steps):
        return [*steps[:at], (b"," if at else b"[") + body + b"]"]
    return [*steps[:at], b"data: " + body + b"\r\n\r\n"]


def _error_bare(steps: list[Step], at: int, fault: Fault) -> list[Step]:
    if _is_array(steps):
        return _error_event(steps, at, fault)
    return [*steps[:at], ERROR_IN_STREAM.body().replace(b"\n", b"\r\n") + b"\r\n"]


def _is_array(steps: list[Step]) -> bool:
    return isinstance(steps[0], bytes) and steps[0].startswith(b"[")


def _reset_in_event(steps: list[Step], at: int, fault: Fault) -> list[Step]:  # noqa: ARG001 - like the others
    frame = steps[at]
    assert isinstance(frame, bytes), "a fault is made on a frame"
    return [*steps[:at], frame[: len(frame) // 2], Wait(0), Break.RESET]


def _reset_in_character(steps: list[Step], at: int, fault: Fault) -> list[Step]:  # noqa: ARG001 - like the others
    frame = steps[at]
    assert isinstance(frame, bytes), "a fault is made on a frame"
    place = next((index for index, byte in enumerate(frame) if byte >= 0xC0), None)
    if place is not None:
        return [*steps[:at], frame[: place + 1], Wait(0), Break.RESET]
    # It holds no character of several bytes; what is cut never arrives, so one may have begun there.
    return [*steps[:at], frame[: len(frame) // 2] + "€".encode()[:2], Wait(0), Break.RESET]


def _stalled(steps: list[Step], at: int, fault: Fault) -> list[Step]:
    """Nothing before this frame; where there is only one more, its first half has come."""
    place = at if at or len(steps) == 1 else 1
    return [*steps[:place], Wait(fault.seconds), *steps[place:]]


def _malformed(steps: list[Step], at: int, fault: Fault) -> list[Step]:  # noqa: ARG001 - like the others
    frame = steps[at]
    assert isinstance(frame, bytes), "a fault is made on a frame"
    return [*steps[:at], frame.replace(b'":', b'" ', 1), *steps[at + 1 :]]


_FRAMES: dict[Kind, Callable[[list[Step], int, Fault], list[Step]]] = {
    Kind.ERROR_EVENT: _error_event,
    Kind.ERROR_BARE: _error_bare,
    Kind.RESET_IN_EVENT: _reset_in_event,
    Kind.RESET_IN_CHARACTER: _reset_in_character,
    Kind.STALL: _stalled,
    Kind.MALFORMED_JSON: _malformed,
}


def split_for_continuation(answer: Answer) -> tuple[Answer, Answer]:
    """What is said now, and what is said when asked to go on."""
    at = next((index for index, part in enumerate(answer.parts) if part.get("text") and not part.get("thought")), None)
    if at is None:
        return replace(answer, parts=(), finish="CONTINUATION"), answer
    part = answer.parts[at]
    half = len(part["text"]) // 2
    first = {**part, "text": part["text"][:half]}
    rest = {**part, "text": part["text"][half:]}
    return (
        replace(answer, parts=(*answer.parts[:at], first), finish="CONTINUATION"),
        replace(answer, parts=(rest, *answer.parts[at + 1 :])),
    )
