"""What Gemini sent, as our values: pure functions from bytes to parts, messages and responses.

Above are the client, which has the bytes, and `stream`, which makes events and one response of many documents. Structs
have the few fields that a run needs; everything else stays in the bytes. Nothing here knows of connections or retries.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.structs import replace

from midspan._types.exchange import FinishReason, ModelResponse, Usage
from midspan._types.messages import Message
from midspan._types.parts import (
    NO_BYTES,
    Blob,
    Opaque,
    Part,
    ProviderData,
    Text,
    Thought,
    ToolCall,
    ToolResult,
    is_local_id,
    local_id,
)
from midspan.providers.gemini.capabilities import FINISH_NUMBERS, Api
from midspan.providers.gemini.errors import blocked, refusal
from midspan.providers.gemini.lenient import READ_ERRORS, fields_of, items_of, recover
from midspan.providers.gemini.streamed_arguments import OpenCall, is_open

ORIGIN = "gemini"
MakeId = Callable[[], str]


class WireCall(Struct, rename="camel", gc=False):
    name: str | None = None
    args: dict[str, Any] | None = None
    id: str | None = None
    partial_args: list[dict[str, Any]] | None = None
    will_continue: bool | None = None


class _Result(Struct, rename="camel", gc=False):
    name: str = ""
    response: dict[str, Any] | None = None
    id: str | None = None
    parts: list[Raw] | None = None


class _Inline(Struct, rename="camel", gc=False):
    mime_type: str = ""
    data: str | None = None
    display_name: str | None = None


class _File(Struct, rename="camel", gc=False):
    file_uri: str | None = None
    mime_type: str = ""
    display_name: str | None = None


class WirePart(Struct, rename="camel", gc=False):
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: WireCall | None = None
    function_response: _Result | None = None
    inline_data: _Inline | None = None
    file_data: _File | None = None


class _KnownCall(Struct, forbid_unknown_fields=True, gc=False):
    name: Annotated[str, Meta(min_length=1)]
    args: dict[str, Any] | None = None
    id: str | None = None


class _KnownPart(Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    """A part of text or a complete call, read strictly: everything in it but the signature has a field of ours."""

    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: _KnownCall | None = None


class _KnownContent(Struct, gc=False):
    parts: list[_KnownPart]
    role: Literal["model"]


class _Content(Struct, gc=False):
    parts: list[Raw] | None = None
    role: str | None = None


_ABSENT = Raw(b"")


class Candidate(Struct, rename="camel", gc=False):
    content: Raw = _ABSENT
    finish_reason: str | int | None = None
    index: int | None = None
    finish_message: str | None = None
    continuation_token: str | None = None


class Tokens(Struct, rename="camel", gc=False):
    prompt_token_count: int = 0
    candidates_token_count: int = 0
    thoughts_token_count: int = 0
    cached_content_token_count: int = 0
    tool_use_prompt_token_count: int = 0
    total_token_count: int = 0

    def usage(self) -> Usage:
        prompt, output, tools = self.prompt_token_count, self.candidates_token_count, self.tool_use_prompt_token_count
        thoughts = self.thoughts_token_count
        unexplained = self.total_token_count - (prompt + output + tools + thoughts)
        if unexplained > 0:
            thoughts += unexplained  # some models count their thoughts only in the total
        return Usage(prompt, output, thoughts, self.cached_content_token_count, tools)


class Chunk(Struct, rename="camel", gc=False):
    """One document of a response: the whole, or one chunk of a stream."""

    candidates: list[Candidate] | None = None
    usage_metadata: Tokens | None = None
    model_version: str | None = None
    response_id: str | None = None
    prompt_feedback: dict[str, Any] | None = None
    error: Raw = _ABSENT


class _SignedPart(Struct, rename="camel", gc=False):
    thought_signature: str | None = None


_read_chunk = msgspec.json.Decoder(Chunk).decode
_read_content = msgspec.json.Decoder(_Content).decode
_read_part = msgspec.json.Decoder(WirePart).decode
_read_known_content = msgspec.json.Decoder(_KnownContent).decode
_read_known_part = msgspec.json.Decoder(_KnownPart).decode
_read_signature = msgspec.json.Decoder(_SignedPart).decode
encode_json = msgspec.json.Encoder().encode
_NULL = Raw(b"null")
_NO_USAGE = Usage()


def response(body: bytes, api: Api = Api.DEVELOPER, *, make_id: MakeId = local_id) -> ModelResponse:
    """Return the response in the body of a plain, unstreamed answer."""
    return response_and_token(body, api, make_id=make_id)[0]


def response_and_token(body: bytes, api: Api, *, make_id: MakeId = local_id) -> tuple[ModelResponse, str | None]:
    """Return the same, and the token with which a response that is not complete can be continued."""
    raw, chunk, candidate = read(body)
    if candidate is None:
        candidate = no_candidate(chunk.prompt_feedback)
    message = _message_of(candidate, make_id)
    return response_of(message, chunk, candidate, (raw,), api), candidate.continuation_token


def read(document: bytes) -> tuple[Raw, Chunk, Candidate | None]:
    """Return the bytes of a document, what it says, and the candidate that is ours. Raise an error that it holds."""
    raw = Raw(document)
    try:
        chunk = _read_chunk(document)
    except READ_ERRORS:
        chunk, raw = recover(Chunk, raw)
    if chunk.error is not _ABSENT and chunk.error != _NULL:
        raise refusal(500, raw)
    for candidate in chunk.candidates or ():
        if not candidate.index:  # of several candidates the first is ours; its index may be left out
            return raw, chunk, candidate
    return raw, chunk, None


def no_candidate(feedback: dict[str, Any] | None) -> Candidate:
    """Return a candidate for a response without one; raise an error if the prompt was blocked."""
    if feedback and "blockReason" in feedback:
        raise blocked(feedback)
    return Candidate()


def _message_of(candidate: Candidate, make_id: MakeId) -> Message:
    """Return the model's turn, where one document is the whole response."""
    raw = candidate.content
    try:
        known = _read_known_content(raw).parts
    except READ_ERRORS:
        known = []
    if not known:
        raw, all_raws = read_content(candidate)
        return Message("model", parts_of(all_raws, make_id), ProviderData(ORIGIN, raw))
    parts: list[Part] = []
    raws: list[Raw] | None = None
    for part in known:
        call, text = part.function_call, part.text
        if part.thought_signature is not None or (call is None) is (text is None):
            raws = raws or _read_content(raw).parts or []
            parts.append(_part_of_known(part, raws[len(parts)], make_id))
        elif call is None:
            parts.append((Thought if part.thought else Text)(text))  # type: ignore[arg-type]  # one of them is there
        else:
            parts.append(ToolCall(call.id or make_id(), call.name, call.args or {}))
    return Message("model", tuple(parts), ProviderData(ORIGIN, raw))


def read_content(candidate: Candidate | None) -> tuple[Raw, list[Raw]]:
    """Return the content of a candidate, and the bytes of each of its parts."""
    raw = NO_BYTES if candidate is None else candidate.content
    if not raw or raw == _NULL:
        return NO_BYTES, []
    content, raw = _content_of(raw)
    if not content.parts:
        return NO_BYTES, []
    if content.role is None:  # sent back like this, it would pass for the user's
        raw = Raw(encode_json({**fields_of(raw), "role": "model"}))
    return raw, content.parts


def _content_of(raw: Raw) -> tuple[_Content, Raw]:
    """Return a content, and its bytes, repaired if only their characters were invalid."""
    try:
        content = _read_content(raw)
    except READ_ERRORS:
        content, raw = recover(_Content, raw)
    if all(map(_is_valid, content.parts or ())):
        return content, raw
    parts = [read_part(part)[1] for part in content.parts or ()]
    return _Content(parts, content.role), Raw(encode_json({**fields_of(raw), "parts": parts}))


def _is_valid(raw: Raw) -> bool:
    try:
        _read_known_part(raw)
    except READ_ERRORS:
        return read_part(raw)[1] == raw
    return True


def response_of(
    message: Message, chunk: Chunk, candidate: Candidate, documents: tuple[Raw, ...], api: Api
) -> ModelResponse:
    """Return the whole response; without a finish reason it counts as cut."""
    word = candidate.finish_reason
    finish = _FINISH.get(word)
    if finish is None:
        word = finish_word(word, api)
        finish = _FINISH.get(word, FinishReason.OTHER if word else FinishReason.CUT)
    tokens = chunk.usage_metadata
    return ModelResponse(
        message,
        finish,
        word,  # type: ignore[arg-type]  # numbers are words by now
        candidate.finish_message,
        _NO_USAGE if tokens is None else tokens.usage(),
        chunk.model_version,
        chunk.response_id,
        documents,
    )


def finish_word(reason: str | int | None, api: Api) -> str | None:
    """Return why the model stopped in the API's own word, also where it sent a number."""
    if isinstance(reason, int):
        words = FINISH_NUMBERS[api]
        reason = words[reason] if 0 <= reason < len(words) else str(reason)
    return None if reason == "FINISH_REASON_UNSPECIFIED" else reason


_FINISH: dict[str | int | None, FinishReason] = {
    "STOP": FinishReason.END,
    "MAX_TOKENS": FinishReason.LENGTH,
    "MALFORMED_FUNCTION_CALL": FinishReason.MALFORMED_CALL,
    "UNEXPECTED_TOOL_CALL": FinishReason.UNEXPECTED_CALL,
    "CONTINUATION": FinishReason.CONTINUES,
    **dict.fromkeys(
        (
            "SAFETY",
            "RECITATION",
            "LANGUAGE",
            "BLOCKLIST",
            "PROHIBITED_CONTENT",
            "SPII",
            "MODEL_ARMOR",
            "IMAGE_SAFETY",
            "IMAGE_PROHIBITED_CONTENT",
            "IMAGE_RECITATION",
        ),
        FinishReason.BLOCKED,
    ),
}


def parts_of(raws: Sequence[Raw], make_id: MakeId) -> tuple[Part, ...]:
    """Return our values for the parts of one whole content."""
    return linked([part_of(raw, make_id) for raw in raws], ())


def linked(parts: Sequence[Part], calls: Sequence[ToolCall]) -> tuple[Part, ...]:
    """Return the parts, with each result that came without an id under the id of its call: by name, in order."""
    if not any(isinstance(part, ToolResult) for part in parts):
        return tuple(parts)
    waiting: dict[str, deque[str]] = {}
    for call in calls:
        waiting.setdefault(call.name, deque()).append(call.id)
    made: list[Part] = []
    for part in parts:
        if isinstance(part, ToolCall):
            waiting.setdefault(part.name, deque()).append(part.id)
        ids = waiting.get(part.name) if isinstance(part, ToolResult) else None
        if not ids or not isinstance(part, ToolResult):
            made.append(part)
        elif is_local_id(part.id):
            made.append(replace(part, id=ids.popleft()))
        else:
            made.append(part)
            if part.id in ids:
                ids.remove(part.id)
    return tuple(made)


def part_of(raw: Raw, make_id: MakeId) -> Part:
    """Return our value for a part. It keeps the bytes as provider data if they say more than the value does."""
    return known_part_of(raw, make_id) or part_of_any(*read_part(raw), make_id)


def known_part_of(raw: Raw, make_id: MakeId) -> Part | None:
    """Return the value of a part of text or a complete call; None if it has other fields."""
    try:
        known = _read_known_part(raw)
    except READ_ERRORS:
        return None
    return _part_of_known(known, raw, make_id)


def _part_of_known(known: _KnownPart, raw: Raw, make_id: MakeId) -> Part:
    call, signature = known.function_call, known.thought_signature
    if call is not None:
        is_plain = signature is None and known.text is None and known.thought is None
        data = None if is_plain else ProviderData(ORIGIN, raw)
        return ToolCall(call.id or make_id(), call.name, call.args or {}, None, None, data)
    if known.text is not None:
        data = None if signature is None else ProviderData(ORIGIN, raw)
        return (Thought if known.thought else Text)(known.text, data)
    return _opaque_of(raw)


def part_of_any(part: WirePart, raw: Raw, make_id: MakeId) -> Part:
    """Return the value of a part with fields that a known one does not have."""
    call = part.function_call
    if call is not None and call.name:
        if is_open(call):
            return _opaque_of(raw)  # a call without its end is not a call
        arguments = (call.args or {}) if call.partial_args is None else OpenCall(call, raw).arguments()
        return ToolCall(call.id or make_id(), call.name, arguments, None, None, ProviderData(ORIGIN, raw))
    if part.text is not None:
        return (Thought if part.thought else Text)(part.text, ProviderData(ORIGIN, raw))
    return _blob_of(part, raw) or _result_of(part, raw, make_id) or _opaque_of(raw)


def read_part(raw: Raw) -> tuple[WirePart, Raw]:
    """Return the fields of any part, and its bytes, repaired if only their characters were invalid."""
    try:
        return _read_part(raw), raw
    except READ_ERRORS:
        return recover(WirePart, raw) if bytes(raw)[:1] == b"{" else (WirePart(), raw)


def _blob_of(part: WirePart, raw: Raw) -> Blob | None:
    inline, file = part.inline_data, part.file_data
    if inline is not None:
        is_plain = _has_only(raw, "inlineData", ("mimeType", "data"))
        data = None if is_plain else ProviderData(ORIGIN, raw)
        return Blob(inline.mime_type, inline.data, None, inline.display_name, data)
    if file is not None and file.file_uri:
        is_plain = _has_only(raw, "fileData", ("mimeType", "fileUri"))
        data = None if is_plain else ProviderData(ORIGIN, raw)
        return Blob(file.mime_type, None, file.file_uri, file.display_name, data)
    return None


def _has_only(raw: Raw, kind: str, names: Sequence[str]) -> bool:
    """Whether a part has this one field, and that no others than these."""
    fields = fields_of(raw)
    return fields.keys() == {kind} and fields_of(fields[kind]).keys() <= {*names}


def _result_of(part: WirePart, raw: Raw, make_id: MakeId) -> ToolResult | None:
    """Return the result in any of the envelopes that clients use."""
    result = part.function_response
    if result is None:
        return None
    value: Any = result.response or {}
    is_error = "error" in value
    if len(value) == 1:
        value = next((value[key] for key in ("error", "result", "content", "output") if key in value), value)
    media = tuple([blob for raw_blob in result.parts or () if (blob := _blob_of(*read_part(raw_blob))) is not None])
    data = ProviderData(ORIGIN, raw)
    return ToolResult(result.id or make_id(), result.name, value, is_error, media, provider_data=data)


def _opaque_of(raw: Raw) -> Opaque:
    names = [name for name in fields_of(raw) if not name.startswith("thought")] if bytes(raw)[:1] == b"{" else []
    return Opaque(names[0] if names else "", ProviderData(ORIGIN, raw))


def signature_of(part: Part) -> str | None:
    """Return the thought signature of a part that Gemini sent."""
    data = part.provider_data
    if data is None or data.origin != ORIGIN or not data.raw:
        return None
    try:
        return _read_signature(data.raw).thought_signature
    except READ_ERRORS:
        return None


def raw_parts(content: Raw) -> list[Raw]:
    """Return the bytes of each part of a content; a lone part may stand there without its list."""
    parts = fields_of(content)["parts"]
    return items_of(parts) if bytes(parts)[:1] == b"[" else [parts]


def message(content: bytes, *, make_id: MakeId = local_id) -> Message:
    """Return a content of a conversation, also one that we did not receive, as a message that keeps its bytes."""
    found, raw = _content_of(Raw(content))
    raws = found.parts or []
    if any(read_part(part)[0] == WirePart() for part in raws):
        # Nothing that we know, so perhaps in the other casing: https://protobuf.dev/programming-guides/json
        from midspan.providers.gemini import wire  # all messages of the API, which a plain run does not need
        from midspan.providers.gemini.proto import dump, load

        cased, cased_raw = _content_of(Raw(dump(load(wire.Content, raw))))
        if [read_part(part)[0] for part in cased.parts or ()] != [read_part(part)[0] for part in raws]:
            found, raw = cased, cased_raw
    role = _ROLES.get(found.role or "user", "user")
    if found.role != role:
        raw = Raw(encode_json({**fields_of(raw), "role": role}))
    parts = parts_of(raw_parts(raw) if found.parts else (), make_id)
    return Message("model" if role == "model" else "user", parts, ProviderData(ORIGIN, raw))


def conversation(contents: Iterable[bytes], *, make_id: MakeId = local_id) -> tuple[Message, ...]:
    """Return the contents of a request as messages; results without an id get the id of the call that they answer."""
    messages: list[Message] = []
    waiting: tuple[ToolCall, ...] = ()
    for content in contents:
        made = message(content, make_id=make_id)
        if made.role == "model":
            waiting = made.calls
        elif made.results:
            made = replace(made, parts=linked(made.parts, waiting))
            answered = {result.id for result in made.results}
            waiting = tuple(call for call in waiting if call.id not in answered)
        messages.append(made)
    return tuple(messages)


# The tools of older clients speak as `function` or `tool`; the API of today wants `user`.
_ROLES = {"user": "user", "model": "model", "assistant": "model", "function": "user", "tool": "user"}
