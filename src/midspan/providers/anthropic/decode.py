"""Responses of the Messages API as model events and messages."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
from msgspec import Raw

from midspan import errors
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
from midspan.providers import errors as service_errors
from midspan.providers.anthropic.encode import ORIGIN
from midspan.providers.encoding import encode_json
from midspan.providers.event_decoder import EventDecoder
from midspan.providers.reading import count_at, objects_at, read_json, text_at
from midspan.providers.stream import with_arguments

_FINISH_REASONS = {
    "end_turn": FinishReason.END,
    "stop_sequence": FinishReason.END,
    "tool_use": FinishReason.END,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.CONTEXT_FULL,
    "refusal": FinishReason.REFUSED,
    "pause_turn": FinishReason.CONTINUES,
}
_CODES: service_errors.Codes = {
    "invalid_request_error": errors.InvalidRequestError,
    "request_too_large": errors.InvalidRequestError,
    "authentication_error": errors.AuthenticationError,
    "permission_error": errors.PermissionDeniedError,
    "billing_error": errors.QuotaExhaustedError,
    "rate_limit_error": errors.RateLimitError,
    "overloaded_error": errors.ServerError,
    "timeout_error": errors.ServerError,
    "api_error": errors.ServerError,
}
parse_error = partial(service_errors.parse_error, "Anthropic", _CODES)
event_error = partial(service_errors.event_error, "Anthropic", _CODES)
_PLAIN_FIELDS = {"text": {"type", "text"}, "tool_use": {"type", "id", "name", "input"}}
"""The fields that our own parts have too. Blocks with others keep their original form as provider data."""


def decode_response(body: bytes) -> ModelResponse:
    """Return a whole response."""
    response, body = read_json(body)
    if error := event_error("", response):
        raise error
    raws = msgspec.json.decode(msgspec.json.decode(body, type=dict[str, Raw])["content"], type=list[Raw])
    blocks = [(raw, msgspec.json.decode(raw, type=dict[str, Any])) for raw in raws]
    reason = text_at(response, "stop_reason")
    parts = tuple(part_of(block, raw) for raw, block in blocks)
    is_sendable = all(_has_valid_input(block) for _, block in blocks)
    raws = [raw for raw, block in blocks if not _is_blank(block)]
    return ModelResponse(
        _message(parts, raws if is_sendable else []),
        _FINISH_REASONS.get(reason or "", FinishReason.OTHER),
        raw_finish_reason=reason,
        finish_message=text_at(response, "stop_details", "explanation"),
        usage=_usage(response.get("usage")),
        model=text_at(response, "model"),
        id=text_at(response, "id"),
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
        case {"type": "tool_use", "name": str(name)}:
            call = ToolCall(str(block.get("id") or local_id()), name, provider_data=extra)
            return with_arguments(call, block.get("input"))
    return Opaque(str(block_type), data)


class StreamDecoder(EventDecoder):
    """Reads the server-sent events of a response."""

    def __init__(self, *, first_index: int = 0) -> None:
        super().__init__(event_error, first_index=first_index)
        self._first_index = first_index
        self._blocks: dict[int, dict[str, Any]] = {}
        self._pieces: dict[int, list[str]] = {}
        self._fields: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}

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
                delta = item.get("delta")
                self._fields |= delta if isinstance(delta, dict) else {}
                self._add_usage(item)
                self.is_complete = text_at(self._fields, "stop_reason") is not None

    def _add_usage(self, item: dict[str, Any]) -> None:
        if isinstance(usage := item.get("usage"), dict):
            self._usage |= {name: value for name, value in usage.items() if value is not None}  # later ones are totals

    def _start(self, index: int, block: dict[str, Any]) -> Iterator[PartEvent]:
        # Some gateways send null or an empty list where the pieces follow.
        match block:
            case {"type": "tool_use"} if not block.get("input"):
                block = {**block, "input": {}}
            case {"type": "text" | "thinking" as name} if not block.get(name):
                block = {**block, name: ""}
        self._blocks[index], self._pieces[index] = block, []
        part = part_of(block, Raw(encode_json(block)))
        yield self.accumulator.add(PartStart(self._first_index + index, part))

    def _append(self, index: int, delta: dict[str, Any]) -> Iterator[PartEvent]:
        block = self._blocks.get(index)
        if block is None:
            raise errors.MalformedResponseError(f"the stream continues content block {index}, which it has not started")
        event: TextPartDelta | ThoughtPartDelta | ArgumentsPartDelta | None = None
        match delta:
            case {"type": "text_delta", "text": str(text)}:
                self._pieces[index].append(text)
                event = TextPartDelta(text)
            case {"type": "thinking_delta", "thinking": str(text)}:
                self._pieces[index].append(text)
                event = ThoughtPartDelta(text)
            case {"type": "signature_delta", "signature": str(signature)}:
                block["signature"] = (block.get("signature") or "") + signature
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
        reason = text_at(fields, "stop_reason")
        finish_reason = FinishReason.CUT if reason is None else _FINISH_REASONS.get(reason, FinishReason.OTHER)
        parts = self.accumulator.parts(is_complete=finish_reason is FinishReason.END)
        blocks = [self._finished(index) for index in sorted(self._blocks)]
        is_whole = all(part.arguments_error is None for part in parts if isinstance(part, ToolCall))
        raws = [Raw(encode_json(block)) for block in blocks if not _is_blank(block)]
        return ModelResponse(
            _message(parts, raws) if is_whole and reason is not None else Message("model", parts, ProviderData(ORIGIN)),
            finish_reason,
            raw_finish_reason=reason,
            finish_message=text_at(fields, "stop_details", "explanation"),
            usage=_usage(self._usage),
            model=text_at(fields, "model"),
            id=text_at(fields, "id"),
            raw=tuple(self.raw_items),
            citations=tuple(_citations(blocks)),
        )


def _message(parts: tuple[Part, ...], blocks: list[Raw]) -> Message:
    raw = Raw(b'{"role":"assistant","content":[%b]}' % b",".join(blocks)) if blocks else Raw(b"")
    return Message("model", parts, ProviderData(ORIGIN, raw) if blocks else ProviderData(ORIGIN))


def _has_valid_input(block: dict[str, Any]) -> bool:
    """Whether the arguments of a call, which the API demands, are an object; other blocks may have none."""
    return isinstance(block.get("input", None if block.get("type") == "tool_use" else {}), dict)


def _is_blank(block: dict[str, Any]) -> bool:
    """Whether it is a text that the API sends, but rejects in a request."""
    return block.get("type") == "text" and not str(block.get("text") or "").strip()


def _usage(usage: Any) -> Usage:
    cached, written = count_at(usage, "cache_read_input_tokens"), count_at(usage, "cache_creation_input_tokens")
    thoughts = count_at(usage, "output_tokens_details", "thinking_tokens")
    return Usage(
        input=count_at(usage, "input_tokens") + cached + written,
        output=max(0, count_at(usage, "output_tokens") - thoughts),
        thoughts=thoughts,
        cached=cached,
        cache_write=written,
    )


def _citations(blocks: list[dict[str, Any]]) -> Iterator[Citation]:
    """Yield the sources of the answer, each with the place in the text that is based on it."""
    start = 0
    for block in blocks:
        text = text_at(block, "text") if block.get("type") == "text" else None
        end = start + len(text or "")
        for citation in objects_at(block, "citations"):
            document = f"document:{citation.get('document_index', 0)}"
            url = text_at(citation, "url") or text_at(citation, "source") or document
            title = text_at(citation, "title") or text_at(citation, "document_title") or ""
            yield Citation(url, title, start, end, text_at(citation, "cited_text"))
        start = end
