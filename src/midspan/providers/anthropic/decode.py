"""Responses of the Messages API as model events and messages."""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Raw, Struct

from midspan._types.exchange import (
    ArgumentsPartDelta,
    Citation,
    FinishReason,
    ModelResponse,
    PartDelta,
    PartEnd,
    PartEvent,
    PartStart,
    TextPartDelta,
    ThoughtPartDelta,
    Usage,
)
from midspan._types.messages import Message
from midspan._types.parts import Opaque, Part, ProviderData, Text, Thought, ToolCall, local_id
from midspan.errors import MalformedResponseError
from midspan.providers.anthropic.encode import ORIGIN
from midspan.providers.encoding import encode_json, token_count
from midspan.providers.event_decoder import EventDecoder, EventErrorParser

_FINISH_REASONS = {
    "end_turn": FinishReason.END,
    "stop_sequence": FinishReason.END,
    "tool_use": FinishReason.END,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.CONTEXT_FULL,
    "refusal": FinishReason.REFUSED,
    "pause_turn": FinishReason.CONTINUES,
}
_PLAIN_FIELDS = {"text": {"type", "text"}, "tool_use": {"type", "id", "name", "input"}}
"""The fields that our own parts have too. Blocks with others keep their original form as provider data."""


class _Response(Struct):
    content: list[Raw]
    id: str | None = None
    model: str | None = None
    stop_reason: str | None = None
    stop_details: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None


def decode_response(body: bytes) -> ModelResponse:
    """Return a whole response."""
    response = msgspec.json.decode(body, type=_Response)
    blocks = [(raw, msgspec.json.decode(raw, type=dict[str, Any])) for raw in response.content]
    parts = tuple(part_of(block, raw) for raw, block in blocks)
    return ModelResponse(
        _message(parts, [raw for raw, block in blocks if not _is_blank(block)]),
        _finish_reason(response.stop_reason),
        raw_finish_reason=response.stop_reason,
        finish_message=(response.stop_details or {}).get("explanation"),
        usage=_usage(response.usage or {}),
        model=response.model,
        id=response.id,
        raw=(Raw(body),),
        citations=tuple(_citations([block for _, block in blocks])),
    )


def part_of(block: dict[str, Any], raw: Raw) -> Part:
    """Return a content block as a part. `raw` is the block as it came."""
    block_type, data = block.get("type"), ProviderData(ORIGIN, raw)
    plain = _PLAIN_FIELDS.get(block_type) if isinstance(block_type, str) else None
    extra = None if plain is not None and block.keys() <= plain else data
    match block:
        case {"type": "text", "text": str(text)}:
            return Text(text, extra)
        case {"type": "thinking", "thinking": str(text)}:
            return Thought(text, data)
        case {"type": "tool_use", "name": str(name), "input": dict(arguments)}:
            return ToolCall(str(block.get("id") or local_id()), name, arguments, provider_data=extra)
    return Opaque(str(block_type), data)


class StreamDecoder(EventDecoder):
    """Reads the server-sent events of a response."""

    def __init__(self, parse_error: EventErrorParser | None = None, *, first_index: int = 0) -> None:
        super().__init__(parse_error, first_index=first_index)
        self._first_index = first_index
        self._blocks: dict[int, dict[str, Any]] = {}
        self._pieces: dict[int, list[str]] = {}
        self._fields: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}

    @property
    def next_index(self) -> int:
        return self.accumulator.next_index

    def decode(self, item: Any) -> Iterator[PartEvent]:
        match item:
            case {"type": "message_start", "message": dict(message)}:
                self._fields |= message
                self._add_usage(message)
            case {"type": "content_block_start", "index": int(index), "content_block": dict(block)}:
                yield from self._start(index, block)
            case {"type": "content_block_delta", "index": int(index), "delta": dict(delta)}:
                yield from self._append(index, delta)
            case {"type": "content_block_stop", "index": int(index)}:
                yield self.accumulator.add(PartEnd(self._first_index + index, self._part(index)))
            case {"type": "message_delta"}:
                self._fields |= item.get("delta") or {}
                self._add_usage(item)

    def _add_usage(self, item: dict[str, Any]) -> None:
        usage = item.get("usage") or {}
        self._usage |= {name: value for name, value in usage.items() if value is not None}  # later ones are totals

    def _start(self, index: int, block: dict[str, Any]) -> Iterator[PartEvent]:
        self._blocks[index], self._pieces[index] = block, []
        part = part_of(block, Raw(encode_json(block)))
        yield self.accumulator.add(PartStart(self._first_index + index, part))

    def _append(self, index: int, delta: dict[str, Any]) -> Iterator[PartEvent]:
        block = self._blocks.get(index)
        if block is None:
            raise MalformedResponseError(f"the stream continues content block {index}, which it has not started")
        event: TextPartDelta | ThoughtPartDelta | ArgumentsPartDelta | None = None
        match delta:
            case {"type": "text_delta", "text": str(text)}:
                self._pieces[index].append(text)
                event = TextPartDelta(text)
            case {"type": "thinking_delta", "thinking": str(text)}:
                self._pieces[index].append(text)
                event = ThoughtPartDelta(text)
            case {"type": "signature_delta", "signature": str(signature)}:
                block["signature"] = block.get("signature", "") + signature
            case {"type": "input_json_delta", "partial_json": str(text)}:
                self._pieces[index].append(text)
                event = ArgumentsPartDelta(text) if block.get("type") == "tool_use" else None
            case {"type": "citations_delta", "citation": citation}:
                block["citations"] = block.get("citations") or []
                block["citations"].append(citation)
        if event is not None:
            yield self.accumulator.add(PartDelta(self._first_index + index, event))

    def _part(self, index: int) -> Part | None:
        """Return the finished part; None for a call, whose arguments the accumulator reads."""
        block = self._finished(index)
        return None if block.get("type") == "tool_use" else part_of(block, Raw(encode_json(block)))

    def _finished(self, index: int) -> dict[str, Any]:
        """Return a content block with the pieces that have arrived."""
        block, more = self._blocks.get(index, {}), "".join(self._pieces.get(index, ()))
        self._pieces[index] = []
        if more and block.get("type") in ("text", "thinking"):
            block[block["type"]] = block.get(block["type"], "") + more
        elif more:
            try:
                msgspec.json.decode(more, type=dict[str, Raw])
                block["input"] = Raw(more.encode())
            except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
                block["input"] = {}  # the call gets an arguments_error
        return block

    def response(self) -> ModelResponse:
        """Return the whole response, at the end of the stream."""
        fields = self._fields
        reason = fields.get("stop_reason")
        finish_reason = FinishReason.CUT if reason is None else _finish_reason(reason)
        parts = self.accumulator.parts(is_complete=finish_reason is FinishReason.END)
        blocks = [self._finished(index) for index in sorted(self._blocks)]
        is_whole = all(part.arguments_error is None for part in parts if isinstance(part, ToolCall))
        raws = [Raw(encode_json(block)) for block in blocks if not _is_blank(block)]
        return ModelResponse(
            _message(parts, raws) if is_whole and reason is not None else Message("model", parts, ProviderData(ORIGIN)),
            finish_reason,
            raw_finish_reason=reason,
            finish_message=(fields.get("stop_details") or {}).get("explanation"),
            usage=_usage(self._usage),
            model=fields.get("model"),
            id=fields.get("id"),
            raw=tuple(self.raw_items),
            citations=tuple(_citations(blocks)),
        )


def _message(parts: tuple[Part, ...], blocks: list[Raw]) -> Message:
    raw = Raw(b'{"role":"assistant","content":[%b]}' % b",".join(blocks)) if blocks else Raw(b"")
    return Message("model", parts, ProviderData(ORIGIN, raw) if blocks else ProviderData(ORIGIN))


def _is_blank(block: dict[str, Any]) -> bool:
    """Whether it is a text that the API sends, but rejects in a request."""
    return block.get("type") == "text" and not str(block.get("text", "")).strip()


def _finish_reason(reason: str | None) -> FinishReason:
    return _FINISH_REASONS.get(reason or "", FinishReason.OTHER)


def _usage(usage: dict[str, Any]) -> Usage:
    cached, written = token_count(usage, "cache_read_input_tokens"), token_count(usage, "cache_creation_input_tokens")
    thoughts = token_count(usage.get("output_tokens_details"), "thinking_tokens")
    return Usage(
        input=token_count(usage, "input_tokens") + cached + written,
        output=max(0, token_count(usage, "output_tokens") - thoughts),
        thoughts=thoughts,
        cached=cached,
        cache_write=written,
    )


def _citations(blocks: list[dict[str, Any]]) -> Iterator[Citation]:
    """Yield the sources of the answer, each with the place in the text that is based on it."""
    start = 0
    for block in blocks:
        text = block.get("text") if block.get("type") == "text" else None
        end = start + len(text or "")
        for citation in block.get("citations") or []:
            if not isinstance(citation, dict):
                continue
            url = citation.get("url") or citation.get("source") or f"document:{citation.get('document_index', 0)}"
            title = citation.get("title") or citation.get("document_title") or ""
            yield Citation(url, title, start, end, citation.get("cited_text"))
        start = end
