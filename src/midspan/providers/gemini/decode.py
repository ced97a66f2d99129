"""What Gemini sends, as values of a run: pure functions from bytes to parts, messages and responses.

The structs have the fields that a run needs; everything else stays in the bytes, which go back unchanged. `stream`
turns the documents of a streamed response into events and one response. Nothing here knows connections or retries.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from midspan._types.exchange import FinishReason, ModelResponse, Usage
from midspan._types.messages import ROLES, Message, Role
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
from midspan.providers.gemini.capabilities import FINISH_NUMBERS, FINISH_REASONS, Api
from midspan.providers.gemini.errors import blocked_error, parse_error
from midspan.providers.gemini.lenient import READ_ERRORS, fields_of, items_of, recover
from midspan.providers.gemini.partial_args import OpenCall, is_open

ORIGIN = "gemini"
MakeId = Callable[[], str]


class WireCall(Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    name: str | None = None
    args: dict[str, Any] | None = None
    id: str | None = None
    partial_args: list[dict[str, Any]] | None = None
    will_continue: bool | None = None


class _Result(Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    name: str = ""
    response: dict[str, Any] | None = None
    id: str | None = None
    parts: list[Raw] | None = None


class _Inline(Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    mime_type: str = ""
    data: str | None = None
    display_name: str | None = None

    def blob(self) -> Blob:
        return Blob(self.mime_type, self.data, None, self.display_name)


class _File(Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    file_uri: str | None = None
    mime_type: str = ""
    display_name: str | None = None

    def blob(self) -> Blob | None:
        return Blob(self.mime_type, None, self.file_uri, self.display_name) if self.file_uri else None


class WirePart(Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    """A part, read strictly: if it can be read, its bytes say nothing beyond these fields."""

    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: WireCall | None = None
    function_response: _Result | None = None
    inline_data: _Inline | None = None
    file_data: _File | None = None


class _Content(Struct, gc=False):
    parts: list[Raw] | None = None
    role: str | None = None


class Candidate(Struct, rename="camel", gc=False):
    content: Raw = NO_BYTES
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
    error: Raw = NO_BYTES


_read_chunk = msgspec.json.Decoder(Chunk).decode
_read_content = msgspec.json.Decoder(_Content).decode
_read_part = msgspec.json.Decoder(WirePart).decode
encode_json = msgspec.json.Encoder().encode
_NULL = Raw(b"null")
_NO_USAGE = Usage()


def response(body: bytes, api: Api = Api.DEVELOPER, *, make_id: MakeId = local_id) -> ModelResponse:
    """Return the response in the body of an answer that was not streamed."""
    return response_and_token(body, api, make_id)[0]


def response_and_token(body: bytes, api: Api, make_id: MakeId = local_id) -> tuple[ModelResponse, str | None]:
    """Return the same, and the token with which a response that is not complete can be continued."""
    raw, chunk, candidate = read(body)
    if candidate is None:
        candidate = no_candidate(chunk.prompt_feedback)
    message = _message_of(candidate.content, make_id)
    return response_of(message, chunk, candidate, (raw,), api), candidate.continuation_token


def _message_of(raw: Raw, make_id: MakeId) -> Message:
    try:
        content = _read_content(raw)
        if content.role == "model" and content.parts:  # as nearly always: known parts, read strictly
            parts = [to_part(_read_part(part), part, True, make_id) for part in content.parts]
            return Message("model", linked(parts), ProviderData(ORIGIN, raw))
    except READ_ERRORS:
        pass
    raw, _, read_parts = read_content(raw)
    return Message("model", to_parts(read_parts, make_id), ProviderData(ORIGIN, raw))


def read(document: bytes) -> tuple[Raw, Chunk, Candidate | None]:
    """Return the bytes of a document, its fields, and the first candidate. Raise the error that the document holds."""
    raw = Raw(document)
    try:
        chunk = _read_chunk(document)
    except READ_ERRORS:
        chunk, raw = recover(Chunk, raw)
    if chunk.error is not NO_BYTES and chunk.error != _NULL:
        raise parse_error(500, raw)
    for candidate in chunk.candidates or ():
        if not candidate.index:  # 0, or left out
            return raw, chunk, candidate
    return raw, chunk, None


def no_candidate(feedback: dict[str, Any] | None) -> Candidate:
    """Return a candidate for a response without one; raise an error if the prompt was blocked."""
    if feedback and "blockReason" in feedback:
        raise blocked_error(feedback)
    return Candidate()


ReadPart = tuple[WirePart, Raw, bool]
"""The fields of a part, its bytes, and whether the bytes say nothing beyond these fields."""


def read_content(raw: Raw, *, is_foreign: bool = False) -> tuple[Raw, Role, list[ReadPart]]:
    """Return the bytes of a content, its role and its parts; no bytes if it has no parts.

    A foreign content may be in snake_case, and its role may be one of another API. Its bytes are changed accordingly.
    """
    if not raw or raw == _NULL:
        return NO_BYTES, "model", []
    try:
        content = _read_content(raw)
    except READ_ERRORS:
        content, raw = recover(_Content, raw)
    role = ROLES.get(content.role or "user", "user") if is_foreign else "model"
    parts = [_read_any_part(part, is_foreign) for part in content.parts or ()]
    raws = [part[1] for part in parts]
    changes: dict[str, Any] = {} if raws == content.parts else {"parts": raws}
    if content.role is None or (is_foreign and content.role != role):
        changes["role"] = role  # without a role, the model's words would count as the user's
    if changes and parts:
        raw = Raw(encode_json({**fields_of(raw), **changes}))
    return raw if parts else NO_BYTES, role, parts


def _read_any_part(raw: Raw, is_foreign: bool = False) -> ReadPart:
    """Read a part strictly, or else what can be read of it. Bytes with invalid characters are repaired."""
    try:
        return _read_part(raw), raw, True
    except READ_ERRORS:
        if bytes(raw)[:1] != b"{":
            return WirePart(), raw, False
    part, raw = recover(WirePart, raw)
    if is_foreign and part == WirePart():
        # Perhaps it is in the other casing, which the API reads too: https://protobuf.dev/programming-guides/json
        from midspan.providers.gemini import wire  # all messages of the API, which a plain run does not need
        from midspan.providers.gemini.proto import dump, load

        recased, recased_raw = recover(WirePart, Raw(dump(load(wire.Part, raw))))
        if recased != part:
            return recased, recased_raw, False
    return part, raw, False


def to_parts(parts: list[ReadPart], make_id: MakeId) -> tuple[Part, ...]:
    """Return our values for the parts of one whole content."""
    return linked([to_part(*part, make_id) for part in parts])


def part_of(raw: Raw, make_id: MakeId) -> Part:
    """Return our value for the bytes of a part."""
    return to_part(*_read_any_part(raw), make_id)


def to_part(part: WirePart, raw: Raw, is_exact: bool, make_id: MakeId) -> Part:
    """Return our value for a part. It keeps the bytes as provider data if they say more than the value does."""
    call, text = part.function_call, part.text
    data = None if is_exact and part.thought_signature is None else ProviderData(ORIGIN, raw)
    if call is not None and call.name:
        arguments = call.args or {}
        if call.partial_args is not None or call.will_continue is not None:
            if is_open(call):
                return _opaque_of(raw)  # a call without its end is not a call
            arguments, data = OpenCall(call, raw).arguments(), ProviderData(ORIGIN, raw)
        if text is not None or part.thought is not None:
            data = ProviderData(ORIGIN, raw)
        return ToolCall(call.id or make_id(), call.name, arguments, None, None, data)
    if text is not None:
        if call or part.function_response or part.inline_data or part.file_data:
            data = ProviderData(ORIGIN, raw)
        return (Thought if part.thought else Text)(text, data)
    media = part.inline_data or part.file_data
    if media is not None and (blob := media.blob()) is not None:
        is_plain = data is None and blob.name is None and part.thought is None
        return blob if is_plain else replace(blob, provider_data=ProviderData(ORIGIN, raw))
    if part.function_response is not None:
        return _result_of(part.function_response, raw, make_id)
    return _opaque_of(raw)


def response_of(
    message: Message, chunk: Chunk, candidate: Candidate, documents: tuple[Raw, ...], api: Api
) -> ModelResponse:
    """Return the whole response; without a finish reason it counts as cut."""
    reason = candidate.finish_reason
    finish = FINISH_REASONS.get(reason)  # type: ignore[arg-type]  # a number is in no table of words
    if finish is None:
        reason = raw_finish_reason(reason, api)
        finish = FinishReason.CUT if reason is None else FINISH_REASONS.get(reason, FinishReason.OTHER)
    tokens = chunk.usage_metadata
    return ModelResponse(
        message,
        finish,
        reason,  # type: ignore[arg-type]  # it is no number any more
        candidate.finish_message,
        _NO_USAGE if tokens is None else tokens.usage(),
        chunk.model_version,
        chunk.response_id,
        documents,
    )


def raw_finish_reason(reason: str | int | None, api: Api) -> str | None:
    """Return the API's own word for why the model stopped, also where it sent a number."""
    if isinstance(reason, int):
        names = FINISH_NUMBERS[api]
        reason = names[reason] if 0 <= reason < len(names) else str(reason)
    return None if reason == "FINISH_REASON_UNSPECIFIED" else reason


def linked(parts: Sequence[Part], calls: Sequence[ToolCall] = ()) -> tuple[Part, ...]:
    """Return the parts, with each result that came without an id under the id of its call: by name, in order."""
    for part in parts:
        if type(part) is ToolResult:
            break
    else:
        return tuple(parts)
    unanswered: dict[str, deque[str]] = {}
    for call in calls:
        unanswered.setdefault(call.name, deque()).append(call.id)
    linked_parts: list[Part] = []
    for part in parts:
        if isinstance(part, ToolCall):
            unanswered.setdefault(part.name, deque()).append(part.id)
        elif isinstance(part, ToolResult) and (ids := unanswered.get(part.name)):
            if is_local_id(part.id):
                part = replace(part, id=ids.popleft())  # noqa: PLW2901 - still the same part
            elif part.id in ids:
                ids.remove(part.id)
        linked_parts.append(part)
    return tuple(linked_parts)


_ENVELOPES = ("error", "result", "content", "output")
"""The names under which clients put a result, because the API accepts only objects."""


def _result_of(result: _Result, raw: Raw, make_id: MakeId) -> ToolResult:
    value: Any = result.response or {}
    error = value.get("error")
    # A result of several fields may have one called `error` that says that there was none.
    is_error = error is not None and (len(value) == 1 or bool(error))
    if len(value) == 1:
        value = next((value[key] for key in _ENVELOPES if key in value and (is_error or key != "error")), value)
    media = tuple([blob for item in result.parts or () if isinstance(blob := part_of(item, make_id), Blob)])
    return ToolResult(
        result.id or make_id(), result.name, value, is_error, media, provider_data=ProviderData(ORIGIN, raw)
    )


def _opaque_of(raw: Raw) -> Opaque:
    names = [name for name in fields_of(raw) if not name.startswith("thought")] if bytes(raw)[:1] == b"{" else []
    return Opaque(names[0] if names else "", ProviderData(ORIGIN, raw))


def signature_of(part: Part) -> str | None:
    """Return the thought signature of a part that Gemini sent."""
    data = part.provider_data
    if data is None or data.origin != ORIGIN or not data.raw:
        return None
    return _read_any_part(data.raw)[0].thought_signature


def raw_parts(content: Raw) -> list[Raw]:
    """Return the bytes of each part of a content; a single part may stand there without its list."""
    parts = fields_of(content)["parts"]
    return items_of(parts) if bytes(parts)[:1] == b"[" else [parts]


def message(content: bytes, *, make_id: MakeId = local_id) -> Message:
    """Return a content of a conversation, also one that we did not receive, as a message that keeps its bytes."""
    raw, role, parts = read_content(Raw(content), is_foreign=True)
    return Message(role, to_parts(parts, make_id), ProviderData(ORIGIN, raw))


def conversation(contents: Iterable[bytes], *, make_id: MakeId = local_id) -> tuple[Message, ...]:
    """Return the contents of a request as messages; results without an id get the id of the call that they answer."""
    messages: list[Message] = []
    unanswered: tuple[ToolCall, ...] = ()
    for content in contents:
        turn = message(content, make_id=make_id)
        if turn.role == "model":
            unanswered = turn.calls
        elif turn.results:
            turn = replace(turn, parts=linked(turn.parts, unanswered))
            answered = {result.id for result in turn.results}
            unanswered = tuple(call for call in unanswered if call.id not in answered)
        messages.append(turn)
    return tuple(messages)
