"""Responses of the Responses API as model events and messages."""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Raw

from midspan._types.exchange import (
    ArgumentsPartDelta,
    Citation,
    FinishReason,
    ModelResponse,
    PartDelta,
    PartEnd,
    PartEvent,
    PartStart,
    Usage,
)
from midspan._types.messages import Message
from midspan._types.parts import Opaque, Part, ProviderData, Text, Thought, ToolCall, local_id
from midspan.errors import ProviderError
from midspan.providers.encoding import arguments_text, encode_json
from midspan.providers.errors import event_error
from midspan.providers.event_decoder import EventDecoder
from midspan.providers.openai.decode import OPENAI_CODES, url_citation
from midspan.providers.openai_responses.encode import ORIGIN
from midspan.providers.reading import count_at, objects_at, read_json, text_at
from midspan.providers.stream import with_arguments

_FINISH_REASONS = {
    "completed": FinishReason.END,
    "cancelled": FinishReason.INTERRUPTED,
    "max_output_tokens": FinishReason.LENGTH,
    "content_filter": FinishReason.BLOCKED,
}
_BETWEEN_SUMMARIES = "\n\n"


def decode_response(body: bytes) -> ModelResponse:
    """Return a whole response."""
    document, body = read_json(body)
    if error := response_error("", document):
        raise error
    raw_items = msgspec.json.decode(msgspec.json.decode(body, type=dict[str, Raw])["output"], type=list[Raw])
    return _response(document, raw_items, (Raw(body),))


def response_error(name: str, item: Any) -> ProviderError | None:
    """Return the error that a response or an event reports."""
    response = item.get("response") if isinstance(item, dict) and isinstance(item.get("response"), dict) else item
    if isinstance(response, dict) and response.get("status") == "failed":
        return event_error("OpenAI", OPENAI_CODES, "error", {"error": response.get("error") or {}})
    if isinstance(item, dict) and item.get("object") == "response":
        return None  # `error` is null, or part of a response that is complete all the same
    return event_error("OpenAI", OPENAI_CODES, name, item)


def _response(document: dict[str, Any], raw_items: list[Raw], raw: tuple[Raw, ...]) -> ModelResponse:
    parts = tuple(part for raw_item in raw_items for part in _parts(raw_item))
    status = text_at(document, "status")
    reason = text_at(document, "incomplete_details", "reason") if status == "incomplete" else status
    finish_reason = _FINISH_REASONS.get(reason or "", FinishReason.OTHER)
    contents = [content for item in document["output"] for content in objects_at(item, "content")]
    refusal = next((text_at(content, "refusal") for content in contents if content.get("type") == "refusal"), None)
    if refusal and finish_reason is FinishReason.END:
        finish_reason = FinishReason.REFUSED
    if finish_reason is not FinishReason.END and parts and isinstance(parts[-1], ToolCall):
        parts = (*parts[:-1], with_arguments(parts[-1], arguments_text(parts[-1]), is_complete=False))
    return ModelResponse(
        Message("model", parts, ProviderData(ORIGIN, Raw(b"[%b]" % b",".join(raw_items)))),
        finish_reason,
        raw_finish_reason=reason,
        finish_message=refusal,
        usage=_usage(document.get("usage")),
        model=text_at(document, "model"),
        id=text_at(document, "id"),
        raw=raw,
        citations=tuple(_citations(contents)),
    )


def _parts(raw: Raw) -> Iterator[Part]:
    """Yield the parts of an output item, each with the item itself, which goes back to the API."""
    item = msgspec.json.decode(raw)
    data = ProviderData(ORIGIN, raw)
    match item:
        case {"type": "message", "content": [{"type": "output_text", "text": str(text)}]}:
            yield Text(text, data)
        case {"type": "message", "content": list()}:
            for content in objects_at(item, "content"):
                yield Text(str(content.get("text") or content.get("refusal") or ""))
        case {"type": "function_call", "name": str(name)}:
            call = ToolCall(str(item.get("call_id") or local_id()), name, provider_data=data)
            yield with_arguments(call, item.get("arguments"))
        case {"type": "reasoning"} if text := reasoning_text(item):
            yield Thought(text, data)
        case _:
            yield Opaque(str(item.get("type")), data)


def reasoning_text(item: dict[str, Any]) -> str:
    """Return what a reasoning item shows: the summary, or the reasoning itself."""
    pieces = objects_at(item, "summary") or objects_at(item, "content")
    return _BETWEEN_SUMMARIES.join(str(piece.get("text") or "") for piece in pieces)


def _usage(usage: Any) -> Usage:
    thoughts = count_at(usage, "output_tokens_details", "reasoning_tokens")
    return Usage(
        input=count_at(usage, "input_tokens"),
        output=max(0, count_at(usage, "output_tokens") - thoughts),
        thoughts=thoughts,
        cached=count_at(usage, "input_tokens_details", "cached_tokens"),
        cache_write=count_at(usage, "input_tokens_details", "cache_write_tokens"),
    )


def _citations(contents: list[dict[str, Any]]) -> Iterator[Citation]:
    offset = 0
    for content in contents:
        for annotation in objects_at(content, "annotations"):
            if annotation.get("type") == "url_citation":
                yield from url_citation(annotation, offset=offset)
        offset += len(text_at(content, "text") or "")


class StreamDecoder(EventDecoder):
    """Reads the server-sent events of a response."""

    def __init__(self) -> None:
        super().__init__(response_error)
        self._calls: dict[int, int] = {}
        """The index of the part by the index of the output item."""
        self._streamed: set[int] = set()
        """Output items whose text was streamed."""
        self._document: dict[str, Any] = {}

    def decode(self, item: Any) -> Iterator[PartEvent]:
        match item:
            case {"type": "response.output_item.added", "output_index": int(index), "item": dict(added)}:
                if added.get("type") == "function_call":
                    yield from self._start_call(index, added)
            case {"type": "response.output_text.delta" | "response.refusal.delta", "delta": str(text)}:
                self._streamed.add(item.get("output_index", -1))
                yield from self.accumulator.add_text(text)
            case {
                "type": "response.reasoning_summary_text.delta" | "response.reasoning_text.delta",
                "delta": str(text),
            }:
                self._streamed.add(item.get("output_index", -1))
                yield from self.accumulator.add_thought(text)
            case {"type": "response.reasoning_summary_part.added", "summary_index": int(index)} if index > 0:
                yield from self.accumulator.add_thought(_BETWEEN_SUMMARIES)
            case {"type": "response.function_call_arguments.delta", "output_index": int(index), "delta": str(text)}:
                if index in self._calls:
                    yield self.accumulator.add(PartDelta(self._calls[index], ArgumentsPartDelta(text)))
            case {"type": "response.content_part.done"}:
                yield from self.accumulator.end_current()
            case {"type": "response.output_item.done", "output_index": int(index), "item": dict(done)}:
                yield from self._end_item(index, done)
            case {"type": "response.completed" | "response.incomplete", "response": dict(response)}:
                self._document, self.is_complete = response, True
            case {"type": "response.created" | "response.in_progress", "response": dict(response)}:
                self._document = response

    def _start_call(self, index: int, item: dict[str, Any]) -> Iterator[PartEvent]:
        yield from self.accumulator.end_current()
        self._calls[index] = self.accumulator.reserve()
        call = ToolCall(str(item.get("call_id") or local_id()), str(item.get("name") or ""))
        yield self.accumulator.add(PartStart(self._calls[index], call))

    def _end_item(self, index: int, item: dict[str, Any]) -> Iterator[PartEvent]:
        parts = list(_parts(Raw(encode_json(item))))
        if index in self._calls:
            yield self.accumulator.add(PartEnd(self._calls[index], parts[0]))
            return
        yield from self.accumulator.end_current()
        if index not in self._streamed:
            for part in parts:
                yield from self.accumulator.add_part(part)
            yield from self.accumulator.end_current()

    def response(self) -> ModelResponse:
        """Return the whole response, at the end of the stream."""
        document = self._document
        if self.is_complete and isinstance(document.get("output"), list):
            items = [Raw(encode_json(item)) for item in document["output"]]
            return _response(document, items, tuple(self.raw_items))
        return self.accumulator.response(
            FinishReason.CUT, model=text_at(document, "model"), id=text_at(document, "id"), raw=tuple(self.raw_items)
        )
