"""Frames an answer: as the JSON documents of a response, with ids, signatures and token counts, and as bytes."""

from itertools import count
from typing import Any

import msgspec
from msgspec import Struct

from midspan.emulator.gemini.checks.contents import text_tokens
from midspan.emulator.gemini.route import Route
from midspan.emulator.gemini.signatures import sign
from midspan.emulator.gemini.sources.source import Answer, Conversation
from midspan.providers.gemini.capabilities import FINISH_NUMBERS
from midspan.providers.gemini.wire import ThinkingConfig

Document = dict[str, Any]
_PART_TOKENS = 8
_TOTAL = ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "toolUsePromptTokenCount")


class Numbering:
    """Creates ids and signatures that differ within a server and repeat with the next one."""

    def __init__(self) -> None:
        self._next = count(1).__next__

    def response_id(self) -> str:
        return f"midspan{self._next():015d}"

    def call_id(self) -> str:
        return f"{self._next() * 2_654_435_761 % 2**32:08x}"

    def signature(self, name: str, args: dict[str, Any] | None = None) -> str:
        return sign(name, self._next(), args)


def documents_of(answer: Answer, conversation: Conversation, route: Route, numbering: Numbering) -> list[Document]:
    """Return the response as one document, or as one per chunk if it is streamed."""
    if answer.documents:
        return list(answer.documents)
    rest = {"modelVersion": conversation.model, "responseId": numbering.response_id()}
    if answer.blocked is not None:
        usage = _usage(answer, conversation, 0)
        return [{"promptFeedback": {"blockReason": answer.blocked}, "usageMetadata": usage, **rest}]
    framing = _Framing(answer, conversation, wants_enum_numbers=route.wants_enum_numbers)
    if route.is_streaming:
        chunks = _chunks(framing.parts(numbering), answer.chunks)
        last = len(chunks) - 1
        candidates = [[framing.candidate(parts, 0, is_last=at == last)] for at, parts in enumerate(chunks)]
    else:
        amount = conversation.generation_config.candidate_count or 1
        candidates = [[framing.candidate(framing.parts(numbering), index) for index in range(amount)]]
    documents = []
    tokens = 0
    for group in candidates:
        tokens += sum(_tokens(part) for candidate in group for part in candidate["content"].get("parts", ()))
        documents.append({"candidates": group, "usageMetadata": _usage(answer, conversation, tokens), **rest})
    return documents


class _Framing(Struct, frozen=True):
    """Frames the candidates of one answer."""

    answer: Answer
    conversation: Conversation
    wants_enum_numbers: bool

    def parts(self, numbering: Numbering) -> list[Document]:
        """Return the parts with the ids and signatures that the model sends."""
        family = self.conversation.target.family
        signs = family.sends_signatures and (family.requires_signatures or self._thinks())
        parts: list[Document] = []
        for part in self.answer.parts:
            call = part.get("functionCall")
            framed = dict(part)
            if call is not None:
                if family.sends_ids and not call.get("id"):
                    framed["functionCall"] = {"id": numbering.call_id(), **call}
                if signs and "thoughtSignature" not in part:
                    framed["thoughtSignature"] = numbering.signature(str(call.get("name", "")), call.get("args"))
                signs = False  # only the first of parallel calls is signed
            parts.append(framed)
        if signs and family.requires_signatures and parts and "text" in parts[-1] and not parts[-1].get("thought"):
            parts[-1] = {"thoughtSignature": numbering.signature(""), **parts[-1]}
        return parts

    def _thinks(self) -> bool:
        thinking = self.conversation.generation_config.thinking_config or ThinkingConfig()
        return bool(self.conversation.functions) and thinking.thinking_budget != 0

    def candidate(self, parts: list[Document], index: int, *, is_last: bool = True) -> Document:
        content = {"parts": parts, "role": "model"} if parts else {"role": "model"}
        candidate: Document = {"content": content, "index": index}
        if is_last:
            if self.answer.finish is not None:
                candidate["finishReason"] = self._finish_reason(self.answer.finish)
            if self.answer.finish_message is not None:
                candidate["finishMessage"] = self.answer.finish_message
            candidate.update(self.answer.extra)
        return candidate

    def _finish_reason(self, reason: str) -> str | int:
        numbers = FINISH_NUMBERS[self.conversation.target.api]
        return numbers.index(reason) if self.wants_enum_numbers and reason in numbers else reason


def _chunks(parts: list[Document], text_chunks: int) -> list[list[Document]]:
    """Split texts; adjacent calls come in one chunk, which is the last one if nothing follows."""
    chunks: list[list[Document]] = []
    for part in parts:
        if "text" in part:
            chunks.extend([piece] for piece in _pieces(part, text_chunks))
        elif chunks and "functionCall" in part and "functionCall" in chunks[-1][-1]:
            chunks[-1].append(part)
        else:
            chunks.append([part])
    return chunks or [[]]


def _pieces(part: Document, amount: int) -> list[Document]:
    text = part["text"]
    size = max(1, -(-len(text) // amount))
    rest = {key: value for key, value in part.items() if key not in ("text", "thoughtSignature")}
    pieces = [{**rest, "text": text[at : at + size]} for at in range(0, len(text) or 1, size)]
    if "thoughtSignature" in part:
        # The signature comes after all text, on a part with empty text.
        pieces.append({**rest, "text": "", "thoughtSignature": part["thoughtSignature"]})
    return pieces


def _tokens(part: Document) -> int:
    return text_tokens(part["text"]) if "text" in part else _PART_TOKENS


def _usage(answer: Answer, conversation: Conversation, tokens: int) -> Document:
    prompt = conversation.prompt_tokens
    usage: Document = {"promptTokenCount": prompt, "candidatesTokenCount": tokens}
    if conversation.cached_tokens:
        usage["cachedContentTokenCount"] = conversation.cached_tokens
    usage |= answer.usage
    usage.setdefault("totalTokenCount", sum(usage.get(name, 0) for name in _TOTAL))
    usage["promptTokensDetails"] = [{"modality": "TEXT", "tokenCount": usage["promptTokenCount"]}]
    return usage


encode = msgspec.json.Encoder().encode


def frames_of(documents: list[Document], route: Route) -> list[bytes]:
    """Encode documents as the caller wants them: one alone, server-sent events, or pieces of one JSON array."""
    if not route.is_streaming:
        return [encode(documents[-1]) + b"\n"]
    if route.is_sse:
        return [b"data: %b\r\n\r\n" % encode(document) for document in documents]
    last = len(documents) - 1
    return [
        b"%b%b%b" % (b"," if at else b"[", encode(document), b"]" if at == last else b"\r\n")
        for at, document in enumerate(documents)
    ]
