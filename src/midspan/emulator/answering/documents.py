"""An answer as the documents of a response: in chunks, with the ids, signatures and counts that its family gives."""

from itertools import count
from typing import Any

from msgspec import Struct

from midspan.emulator.answering.answer import Answer
from midspan.emulator.checking import Question
from midspan.emulator.signing import sign
from midspan.providers.gemini.capabilities import FINISH_NUMBERS, Api

Document = dict[str, Any]


class Numbering:
    """What makes one answer of a server differ from the next: ids and signatures, in an order that repeats."""

    def __init__(self) -> None:
        self._next = count(1).__next__

    def response_id(self) -> str:
        return f"midspan{self._next():015d}"

    def call_id(self) -> str:
        return f"{self._next() * 2_654_435_761 % 2**32:08x}"

    def signature(self, name: str, args: Any = None, place: int = 0) -> str:
        return sign(name, self._next(), args, place)


class Shape(Struct, frozen=True):
    """How the caller wants the documents."""

    streaming: bool
    numbered_enums: bool = False
    cached_tokens: int = 0


def documents_of(answer: Answer, question: Question, shape: Shape, numbering: Numbering) -> list[Document]:
    """One document, or for a stream one for each chunk."""
    if answer.documents:
        return list(answer.documents)
    family = question.family
    rest: Document = {"modelVersion": family.name, "responseId": numbering.response_id()}
    prompt = question.count.tokens + shape.cached_tokens
    if answer.blocked is not None:
        usage = _usage(answer, prompt, 0, shape)
        return [{"promptFeedback": {"blockReason": answer.blocked}, "usageMetadata": usage, **rest}]
    parts = _finished(answer, question, numbering)
    groups = _chunks(parts, answer) if shape.streaming else [parts]
    documents = []
    said = 0
    for at, group in enumerate(groups):
        for part in group:
            said += _tokens(part)
        candidate = _candidate(group, answer, question.target.api, shape, last=at == len(groups) - 1)
        documents.append({"candidates": [candidate], "usageMetadata": _usage(answer, prompt, said, shape), **rest})
    return documents


def _finished(answer: Answer, question: Question, numbering: Numbering) -> list[Document]:
    """The parts with the ids and signatures that this family puts on them."""
    family = question.family
    signs = family.gives_signatures and (family.demands_signatures or _thinks(question))
    parts = []
    for part in answer.parts:
        call = part.get("functionCall")
        if call is None:
            parts.append(part)
            continue
        finished = dict(part)
        if family.gives_ids and not call.get("id"):
            finished["functionCall"] = {"id": numbering.call_id(), **call}
        if signs and "thoughtSignature" not in part:
            finished["thoughtSignature"] = numbering.signature(str(call.get("name", "")), call.get("args"))
        # Of parallel calls only the first is signed.
        signs = False
        parts.append(finished)
    if signs and parts and family.demands_signatures and "text" in parts[-1] and not parts[-1].get("thought"):
        parts[-1] = {"thoughtSignature": numbering.signature(""), **parts[-1]}
    return parts


def _thinks(question: Question) -> bool:
    config = question.setup.generation_config
    thinking = config.thinking_config if config is not None else None
    return bool(question.functions) and (thinking is None or thinking.thinking_budget != 0)


def _chunks(parts: list[Document], answer: Answer) -> list[list[Document]]:
    """Text in pieces, everything else whole; calls together in one chunk, which is the last one if nothing follows."""
    groups: list[list[Document]] = []
    for part in parts:
        if "text" in part:
            groups.extend([piece] for piece in _pieces(part, answer.chunks))
        elif groups and "functionCall" in part and "functionCall" in groups[-1][-1]:
            groups[-1].append(part)
        else:
            groups.append([part])
    return groups or [[]]


def _pieces(part: Document, count: int) -> list[Document]:
    text: str = part["text"]
    size = max(1, -(-len(text) // max(1, count)))
    bare = {key: value for key, value in part.items() if key not in ("text", "thoughtSignature")}
    pieces = [{**bare, "text": text[at : at + size]} for at in range(0, len(text), size)] or [{**bare, "text": ""}]
    if "thoughtSignature" in part:
        # After all of the text, on a part that says nothing more.
        pieces.append({**bare, "text": "", "thoughtSignature": part["thoughtSignature"]})
    return pieces


def _candidate(parts: list[Document], answer: Answer, api: Api, shape: Shape, *, last: bool) -> Document:
    content: Document = {"parts": parts, "role": "model"} if parts else {"role": "model"}
    candidate: Document = {"content": content, "index": 0}
    if last:
        if answer.finish is not None:
            candidate["finishReason"] = _finish(answer.finish, api) if shape.numbered_enums else answer.finish
        if answer.finish_message is not None:
            candidate["finishMessage"] = answer.finish_message
        candidate.update(answer.extra)
    return candidate


def _finish(word: str, api: Api) -> str | int:
    words = FINISH_NUMBERS[api]
    return words.index(word) if word in words else word


def _tokens(part: Document) -> int:
    text = part.get("text")
    return len(text) // 4 + 1 if isinstance(text, str) else 8


def _usage(answer: Answer, prompt: int, said: int, shape: Shape) -> Document:
    usage: Document = {"promptTokenCount": prompt, "candidatesTokenCount": said, "totalTokenCount": prompt + said}
    if shape.cached_tokens:
        usage["cachedContentTokenCount"] = shape.cached_tokens
    if answer.usage:
        usage.update(answer.usage)
        if "totalTokenCount" not in answer.usage:
            usage["totalTokenCount"] = sum(usage.get(name, 0) for name in _COUNTED)
    usage["promptTokensDetails"] = [{"modality": "TEXT", "tokenCount": usage["promptTokenCount"]}]
    return usage


_COUNTED = ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "toolUsePromptTokenCount")
