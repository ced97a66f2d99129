"""Responses of the Interactions API as model events and messages."""

from collections.abc import Iterator
from functools import partial
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
    TextPartDelta,
    ThoughtPartDelta,
    Usage,
)
from midspan._types.messages import Message
from midspan._types.parts import Blob, Opaque, Part, ProviderData, Text, Thought, ToolCall, local_id
from midspan.errors import InvalidRequestError, MalformedResponseError, RateLimitError, ServerError
from midspan.providers import errors
from midspan.providers.encoding import encode_json
from midspan.providers.event_decoder import EventDecoder
from midspan.providers.interactions.encode import ORIGIN
from midspan.providers.reading import count_at, objects_at, read_json, text_at
from midspan.providers.stream import with_arguments

_FINISH_REASONS = {
    "completed": FinishReason.END,
    "requires_action": FinishReason.END,
    "incomplete": FinishReason.LENGTH,
    "budget_exceeded": FinishReason.LENGTH,
    "cancelled": FinishReason.INTERRUPTED,
    "requires_continuation": FinishReason.CONTINUES,
}
_CODES: errors.Codes = {
    "RESOURCE_EXHAUSTED": RateLimitError,
    "rate_limit_exceeded": RateLimitError,
    "INVALID_ARGUMENT": InvalidRequestError,
    "invalid_argument": InvalidRequestError,
    "invalid_request": InvalidRequestError,
}
event_error = partial(errors.event_error, "Gemini", _CODES)
_MEDIA = ("image", "audio", "video", "document")


def decode_response(body: bytes) -> ModelResponse:
    """Return a whole response."""
    document, body = read_json(body)
    if "status" not in document:
        raise event_error("", document) or MalformedResponseError(
            "the response is not an interaction: it has no status"
        )
    steps = msgspec.json.decode(body, type=dict[str, Raw])["steps"] if document.get("steps") else b"[]"
    return _response(document, msgspec.json.decode(steps, type=list[Raw]), (Raw(body),))


def _response(document: dict[str, Any], steps: list[Raw], raw: tuple[Raw, ...]) -> ModelResponse:
    status = text_at(document, "status")
    if status == "failed":
        messages = [text_at(error, "message") for error in (*objects_at(document, "errors"), document.get("error"))]
        raise ServerError(f"Gemini: {next(filter(None, messages), 'the interaction failed')}")
    decoded = [(msgspec.json.decode(raw_step), raw_step) for raw_step in steps]
    parts = tuple(part for step, raw_step in decoded for part in parts_of(step, raw_step))
    return ModelResponse(
        Message("model", parts, ProviderData(ORIGIN, Raw(b"[%b]" % b",".join(steps)))),
        _FINISH_REASONS.get(status or "", FinishReason.OTHER),
        raw_finish_reason=status,
        usage=_usage(document.get("usage")),
        model=text_at(document, "model"),
        id=text_at(document, "id") or None,
        raw=raw,
        citations=tuple(_citations([step for step, _ in decoded])),
    )


def parts_of(step: dict[str, Any], raw: Raw) -> Iterator[Part]:
    """Yield the parts of a step. `raw` is the step as it came."""
    data = ProviderData(ORIGIN, raw)
    match step:
        case {"type": "model_output"}:
            for content in objects_at(step, "content"):
                yield _content_part(content)
        case {"type": "function_call", "name": str(name)}:
            yield with_arguments(ToolCall(str(step.get("id") or local_id()), name), step.get("arguments"))
        case {"type": "thought"} if text := "".join(
            str(item.get("text") or "") for item in objects_at(step, "summary")
        ):
            yield Thought(text, data)
        case _:
            yield Opaque(str(step.get("type")), data)


def _content_part(content: dict[str, Any]) -> Part:
    content_type = content.get("type")
    if content_type == "text":
        return Text(str(content.get("text") or ""))
    if content_type in _MEDIA:
        media_type = str(content.get("mime_type") or f"{content_type}/*")
        return Blob(media_type, base64=text_at(content, "data"), url=text_at(content, "uri"))
    raw = Raw(encode_json({"type": "model_output", "content": [content]}))
    return Opaque(str(content_type), ProviderData(ORIGIN, raw))


def _usage(usage: Any) -> Usage:
    names = ("input", "output", "thought", "cached", "tool_use")
    return Usage(*(count_at(usage, f"total_{name}_tokens") for name in names))


def _citations(steps: list[dict[str, Any]]) -> Iterator[Citation]:
    contents = [
        content for step in steps if step.get("type") == "model_output" for content in objects_at(step, "content")
    ]
    for annotation in (annotation for content in contents for annotation in objects_at(content, "annotations")):
        if url := text_at(annotation, "url") or text_at(annotation, "source"):
            yield Citation(url, text_at(annotation, "title") or "")


class StreamDecoder(EventDecoder):
    """Reads the server-sent events of a response."""

    def __init__(self) -> None:
        super().__init__(event_error)
        self._steps: dict[int, dict[str, Any]] = {}
        self._arguments: dict[int, list[str]] = {}
        self._open: dict[int, int] = {}
        """The index of the part that is being streamed, by the index of its step."""
        self._document: dict[str, Any] = {}

    def decode(self, item: Any) -> Iterator[PartEvent]:
        match item:
            case {"event_type": "interaction.created" | "interaction.completed", "interaction": dict(interaction)}:
                self._document |= {name: value for name, value in interaction.items() if value not in (None, "")}
                self.is_complete = item["event_type"] == "interaction.completed"
            case {"event_type": "interaction.status_update", "status": str(status)}:
                self._document["status"] = status
            case {"event_type": "step.start", "index": int(index), "step": dict(step)}:
                self._steps[index] = step
                if step.get("type") == "function_call":
                    call = ToolCall(str(step.get("id") or local_id()), str(step.get("name") or ""))
                    yield from self._start(index, with_arguments(call, step.get("arguments")))
            case {"event_type": "step.delta", "index": int(index), "delta": dict(delta)} if index in self._steps:
                yield from self._append(index, delta)
            case {"event_type": "step.stop", "index": int(index)} if index in self._steps:
                yield from self._stop(index)

    def _start(self, index: int, part: Part) -> Iterator[PartEvent]:
        self._open[index] = self.accumulator.reserve()
        yield self.accumulator.add(PartStart(self._open[index], part))

    def _append(self, index: int, delta: dict[str, Any]) -> Iterator[PartEvent]:
        step = self._steps[index]
        match delta:
            case {"type": "text", "text": str(text)}:
                contents = step.setdefault("content", [])
                if not contents or contents[-1].get("type") != "text":
                    contents.append({"type": "text", "text": ""})
                    yield from self._end(index)
                contents[-1]["text"] += text
                if index in self._open:
                    yield self.accumulator.add(PartDelta(self._open[index], TextPartDelta(text)))
                else:
                    yield from self._start(index, Text(text))
            case {"type": "thought_summary", "content": {"text": str(text)}}:
                step.setdefault("summary", []).append(delta["content"])
                if index in self._open:
                    yield self.accumulator.add(PartDelta(self._open[index], ThoughtPartDelta(text)))
                else:
                    yield from self._start(index, Thought(text))
            case {"type": "thought_signature", "signature": str(signature)}:
                step["signature"] = step.get("signature", "") + signature
            case {"type": "arguments_delta", "arguments": str(text)}:
                self._arguments.setdefault(index, []).append(text)
                if index in self._open:
                    yield self.accumulator.add(PartDelta(self._open[index], ArgumentsPartDelta(text)))
            case {"type": "text_annotation_delta", "annotations": list(annotations)} if step.get("content"):
                step["content"][-1].setdefault("annotations", []).extend(annotations)
            case {"type": content_type} if content_type in _MEDIA:
                step.setdefault("content", []).append(delta)
                yield from self._end(index)
                yield from self.accumulator.add_part(_content_part(delta))
            case _:
                step |= {name: value for name, value in delta.items() if name != "type"}

    def _end(self, index: int) -> Iterator[PartEvent]:
        if index in self._open:
            yield self.accumulator.add(PartEnd(self._open.pop(index)))

    def _stop(self, index: int) -> Iterator[PartEvent]:
        step = self._steps[index]
        if index in self._arguments:
            try:
                step["arguments"] = msgspec.json.decode("".join(self._arguments[index]))
            except msgspec.DecodeError:
                step["arguments"] = {}  # the call gets an arguments_error
        part = next(parts_of(step, Raw(encode_json(step))), None)
        if isinstance(part, Thought) and index in self._open:
            yield self.accumulator.add(PartEnd(self._open.pop(index), part))
        elif isinstance(part, Thought | Opaque) and step.get("type") != "model_output":
            yield from self.accumulator.add_part(part)
        yield from self._end(index)

    def response(self) -> ModelResponse:
        """Return the whole response, at the end of the stream."""
        document = self._document
        if document.get("status") in (None, "in_progress"):
            return self.accumulator.response(
                FinishReason.CUT,
                model=text_at(document, "model"),
                id=text_at(document, "id"),
                raw=tuple(self.raw_items),
            )
        steps = [Raw(encode_json(step)) for _, step in sorted(self._steps.items())]
        response = _response(document, steps, tuple(self.raw_items))
        parts = self.accumulator.parts(is_complete=response.finish_reason is FinishReason.END)
        calls = [part for part in parts if isinstance(part, ToolCall) and part.arguments_error is not None]
        return response if not calls else msgspec.structs.replace(response, message=Message("model", parts))
