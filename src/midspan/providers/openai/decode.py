"""Responses of the Chat Completions API as model events and messages."""

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
    Usage,
)
from midspan._types.messages import Message
from midspan._types.parts import Opaque, Part, ProviderData, Text, Thought, ToolCall, local_id
from midspan.providers.encoding import encode_json
from midspan.providers.errors import Codes, event_error
from midspan.providers.event_decoder import EventDecoder
from midspan.providers.openai.profile import Preset
from midspan.providers.reading import count_at, objects_at, read_json, text_at, value_at
from midspan.providers.stream import read_arguments, with_arguments

_FINISH_REASONS = {
    "stop": FinishReason.END,
    "": FinishReason.END,
    "eos": FinishReason.END,
    "tool_calls": FinishReason.END,
    "function_call": FinishReason.END,
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "model_length": FinishReason.CONTEXT_FULL,
    "content_filter": FinishReason.BLOCKED,
    "refusal": FinishReason.REFUSED,
    "abort": FinishReason.INTERRUPTED,  # vLLM and SGLang
    "error": FinishReason.INTERRUPTED,  # Mistral and OpenRouter
    "insufficient_system_resource": FinishReason.INTERRUPTED,  # DeepSeek
}
OPENAI_CODES: Codes = {
    "invalid_api_key": errors.AuthenticationError,
    "authentication_error": errors.AuthenticationError,
    "model_not_found": errors.UnknownModelError,
    "insufficient_quota": errors.QuotaExhaustedError,
    "billing_hard_limit_reached": errors.QuotaExhaustedError,
    "rate_limit_exceeded": errors.RateLimitError,
    "server_error": errors.ServerError,
    "overloaded_error": errors.ServerError,
    "context_length_exceeded": errors.InvalidRequestError,
}
REASONING_FIELDS = ("reasoning_content", "reasoning")
"""Where services write what the model thinks. Those that write it twice write the same."""


def decode_response(body: bytes, preset: Preset) -> ModelResponse:
    """Return a whole response."""
    document, body = read_json(body)
    if error := event_error(preset.service, OPENAI_CODES, "", document):
        raise error  # some services answer 200 and report the error in the body
    choice = document["choices"][0]
    message = choice["message"]
    raw = msgspec.json.decode(body, type=dict[str, Raw])["choices"]
    raw_message = msgspec.json.decode(raw, type=list[dict[str, Raw]])[0]["message"]
    parts = tuple(_parts(message, preset))
    reason = choice.get("finish_reason") or "stop"  # some services leave it empty
    return _response(message, parts, raw_message, reason, document, (Raw(body),), preset)


def _response(
    message: dict[str, Any],
    parts: tuple[Part, ...],
    raw_message: Raw,
    reason: Any,
    document: dict[str, Any],
    raw: tuple[Raw, ...],
    preset: Preset,
) -> ModelResponse:
    finish_reason = _finish_reason(reason)
    refusal = text_at(message, "refusal")
    if refusal and finish_reason is FinishReason.END:
        finish_reason = FinishReason.REFUSED
    data = ProviderData(preset.name, raw_message) if _can_be_sent_back(message) else ProviderData(preset.name)
    return ModelResponse(
        Message("model", parts, data),
        finish_reason,
        raw_finish_reason=str(reason) if reason else None,
        finish_message=refusal or None,
        usage=usage_of(document.get("usage")),
        model=text_at(document, "model"),
        id=text_at(document, "id"),
        raw=raw,
        citations=tuple(_citations(message)),
    )


def _can_be_sent_back(message: dict[str, Any]) -> bool:
    """Whether the calls of a message have ids, as requests need them, and the documented form."""
    calls = message.get("tool_calls")
    return calls is None or (
        isinstance(calls, list)
        and all(text_at(call, "id") and isinstance(call.get("function", {}), dict) for call in calls)
    )


def _parts(message: dict[str, Any], preset: Preset) -> Iterator[Part]:
    yield from _thoughts(message, preset)
    yield from _content_parts(message.get("content") or message.get("refusal"), preset)
    for call in message.get("tool_calls") or []:
        yield _call(call, preset)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise errors.MalformedResponseError(f"the text of the response is not a string: {value!r:.80}")
    return value


def _thoughts(message: dict[str, Any], preset: Preset) -> Iterator[Part]:
    """Yield the reasoning, with the fields that the service wants back."""
    fields = {name: message[name] for name in (*REASONING_FIELDS, "reasoning_details") if message.get(name)}
    if not fields:
        return
    sent_back = {name: value for name, value in fields.items() if name in preset.message_fields}
    data = ProviderData(preset.name, Raw(encode_json(sent_back))) if sent_back else None
    text = next((fields[name] for name in REASONING_FIELDS if isinstance(fields.get(name), str)), "")
    if text:
        yield Thought(text, data)
    elif data is not None:
        yield Opaque("reasoning_details", data)


def _content_parts(content: Any, preset: Preset) -> Iterator[Part]:
    """Yield the parts of a content: a text or a list, in which Mistral writes reasoning too."""
    if content and not isinstance(content, list):
        yield Text(_text(content))
        return
    for item in content or []:
        match item:
            case {"type": "text"}:
                yield Text(_text(item.get("text")))
            case {"type": "thinking", "thinking": list(pieces)}:
                yield Thought("".join(piece.get("text", "") for piece in pieces))
            case {"type": "thinking", "thinking": str(text)}:
                yield Thought(text)
            case {"type": item_type}:
                yield Opaque(str(item_type), ProviderData(preset.name, Raw(encode_json(item))))


def _call(call: dict[str, Any], preset: Preset) -> ToolCall:
    function = call.get("function") or {}
    id, name = str(call.get("id") or local_id()), str(function.get("name") or "")
    return with_arguments(ToolCall(id, name, provider_data=_call_data(call, preset)), function.get("arguments"))


def _call_data(call: dict[str, Any], preset: Preset) -> ProviderData | None:
    extra = {name: call[name] for name in preset.call_fields if call.get(name) is not None}
    return ProviderData(preset.name, Raw(encode_json(extra))) if extra else None


def _finish_reason(reason: Any) -> FinishReason:
    if reason is None:
        return FinishReason.CUT
    return _FINISH_REASONS.get(str(reason), FinishReason.OTHER)


def usage_of(usage: Any) -> Usage:
    """Return the tokens of a response. Services differ in whether reasoning is part of the completion."""
    names = ("prompt_tokens", "completion_tokens", "total_tokens")
    prompt, completion, total = (count_at(usage, name) for name in names)
    thoughts = count_at(usage, "completion_tokens_details", "reasoning_tokens")
    excludes_reasoning = total == prompt + completion + thoughts
    details = value_at(usage, "prompt_tokens_details")
    cached = count_at(details, "cached_tokens") or count_at(usage, "prompt_cache_hit_tokens")
    written = count_at(details, "cache_write_tokens") or count_at(usage, "cache_creation_input_tokens")
    output = completion if excludes_reasoning else max(0, completion - thoughts)
    return Usage(prompt, output, thoughts, cached, cache_write=written)


def _citations(message: dict[str, Any]) -> Iterator[Citation]:
    for annotation in objects_at(message, "annotations"):
        yield from url_citation(annotation.get("url_citation"))


def url_citation(fields: Any, *, offset: int = 0) -> Iterator[Citation]:
    """Yield the citation of a URL, if there is one. `offset` is where the text that it is about starts."""
    if url := text_at(fields, "url"):
        positions = [fields.get(name) for name in ("start_index", "end_index")]
        start, end = [position + offset if isinstance(position, int) else None for position in positions]
        yield Citation(url, text_at(fields, "title") or "", start, end)


class StreamDecoder(EventDecoder):
    """Reads the server-sent events of a response."""

    def __init__(self, preset: Preset) -> None:
        super().__init__(partial(event_error, preset.service, OPENAI_CODES))
        self._preset = preset
        self._message: dict[str, Any] = {"role": "assistant", "content": None}
        self._texts: dict[str, list[str]] = {}
        self._calls: list[_StreamedCall] = []
        self._document: dict[str, Any] = {}
        self._reason: Any = None

    def end(self) -> list[PartEvent]:
        events = super().end()
        if self._reason is not None:
            events += [self.accumulator.add(PartEnd(call.part_index)) for call in self._calls if call.is_started]
        return events

    def decode(self, item: Any) -> Iterator[PartEvent]:
        if not isinstance(item, dict):
            raise errors.MalformedResponseError(f"an event of the stream is not an object: {item!r:.80}")
        self._document |= {name: value for name, value in item.items() if value is not None and name != "choices"}
        for choice in item.get("choices") or []:
            if choice.get("index") not in (0, None):
                continue
            yield from self._decode_delta(choice.get("delta") or choice.get("message") or {})
            if choice.get("finish_reason") is not None:
                self._reason = choice["finish_reason"]
                self.is_complete = True

    def _decode_delta(self, delta: dict[str, Any]) -> Iterator[PartEvent]:
        thought = next((delta[name] for name in REASONING_FIELDS if delta.get(name)), None)
        for name in (*REASONING_FIELDS, "refusal"):
            if isinstance(delta.get(name), str):
                self._texts.setdefault(name, []).append(delta[name])
        if isinstance(thought, str):
            yield from self.accumulator.add_thought(thought)
        _add_details(self._message, objects_at(delta, "reasoning_details"))
        content = delta.get("content")
        for part in _content_parts(content or delta.get("refusal"), self._preset):
            if isinstance(part, Text) and content:
                self._texts.setdefault("content", []).append(part.text)
            if not isinstance(part, Opaque):
                yield from self.accumulator.add_part(part)
        for call in delta.get("tool_calls") or []:
            yield from self._decode_call(call)
        for name, value in delta.items():
            if name not in _STREAMED_FIELDS and value is not None:
                self._message[name] = value

    def _decode_call(self, delta: dict[str, Any]) -> Iterator[PartEvent]:
        function = delta.get("function") or {}
        call = self._call_of(delta)
        if call is None:
            yield from self.accumulator.end_current()
            call = _StreamedCall(delta, self.accumulator.reserve())
            self._calls.append(call)
        else:
            call.fields |= {name: value for name, value in delta.items() if name not in ("function", "id") and value}
        call.name = call.name or str(function.get("name") or "")
        arguments = function.get("arguments")
        text = arguments if isinstance(arguments, str) else "" if arguments is None else encode_json(arguments).decode()
        call.pieces.append(text)
        if not call.is_started and call.name:
            call.is_started = True
            part = ToolCall(call.id, call.name, provider_data=_call_data(call.fields, self._preset))
            yield self.accumulator.add(PartStart(call.part_index, part))
            text = "".join(call.pieces)
        if text and call.is_started:
            yield self.accumulator.add(PartDelta(call.part_index, ArgumentsPartDelta(text)))

    def _call_of(self, delta: dict[str, Any]) -> "_StreamedCall | None":
        """Return the call that a delta continues; None if it starts one.

        Services differ: some repeat the id in each delta, some give every call the index 0, some give neither.
        """
        index, id, name = delta.get("index"), delta.get("id"), (delta.get("function") or {}).get("name")
        if id and (known := next((call for call in self._calls if call.given_id == id and call.index == index), None)):
            return known
        same_index = [call for call in self._calls if index is None or call.index == index]
        last = same_index[-1] if same_index else None
        if last is None or (id and last.given_id):
            return None
        if name and last.name and (name != last.name or last.is_complete):
            return None
        return last

    def response(self) -> ModelResponse:
        """Return the whole response, at the end of the stream."""
        if any(not call.is_started and "".join(call.pieces) for call in self._calls):
            raise errors.MalformedResponseError("the stream has the arguments of a call without a name")
        message = self._message
        for name, pieces in self._texts.items():
            message[name] = "".join(pieces)
        if self._calls:
            message["tool_calls"] = [call.as_json() for call in self._calls if call.is_started]
        is_complete = _finish_reason(self._reason) is FinishReason.END
        parts = self._with_reasoning(self.accumulator.parts(is_complete=is_complete))
        raw = Raw(encode_json(message))
        return _response(message, parts, raw, self._reason, self._document, tuple(self.raw_items), self._preset)

    def _with_reasoning(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """Return the parts with what the service wants back on the first thought, or as a part of its own."""
        thought = next(_thoughts(self._message, self._preset), None)
        if thought is None or thought.provider_data is None:
            return parts
        first = next((at for at, part in enumerate(parts) if isinstance(part, Thought)), None)
        if first is None:
            return (thought, *parts)
        text: Any = parts[first]
        return (*parts[:first], Thought(text.text, thought.provider_data), *parts[first + 1 :])


_STREAMED_FIELDS = frozenset((*REASONING_FIELDS, "role", "content", "refusal", "tool_calls", "reasoning_details"))


class _StreamedCall:
    """A call whose arguments arrive in pieces."""

    def __init__(self, delta: dict[str, Any], part_index: int) -> None:
        self.index = delta.get("index")
        self.given_id = delta.get("id")
        """The id of the service, if it comes with the first delta."""
        self.id = str(self.given_id or local_id())
        self.name = ""
        self.part_index = part_index
        self.pieces: list[str] = []
        self.is_started = False
        """Whether its name is known."""
        self.fields = {name: value for name, value in delta.items() if name not in ("index", "function")}

    @property
    def is_complete(self) -> bool:
        """Whether the arguments so far are a JSON object."""
        text = "".join(self.pieces)
        return bool(text) and read_arguments(text)[1] is None

    def as_json(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": "".join(self.pieces)}
        return {"type": "function", **self.fields, "id": self.id, "function": function}


def _add_details(message: dict[str, Any], details: list[dict[str, Any]]) -> None:
    """Append streamed reasoning details; pieces of the same detail are joined."""
    for detail in details:
        known = message.setdefault("reasoning_details", [])
        last = known[-1] if known else None
        if last is None or any(last.get(name) != detail.get(name) for name in ("type", "index")):
            known.append(dict(detail))
            continue
        for name, value in detail.items():
            is_piece = (
                name in ("text", "summary", "data") and isinstance(value, str) and isinstance(last.get(name), str)
            )
            last[name] = last[name] + value if is_piece else value if value is not None else last.get(name)
