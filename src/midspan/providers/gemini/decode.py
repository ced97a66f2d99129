"""Gemini's responses as parts, messages and responses, which keep the bytes of the server to send them back unchanged.

Only the fields that a run needs are decoded; `wire` has all of them, and is loaded for parts that are not plain.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

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
from midspan.errors import MalformedResponseError
from midspan.providers.encoding import encode_json
from midspan.providers.gemini.capabilities import FINISH_NUMBERS, FINISH_REASONS, Api
from midspan.providers.gemini.errors import blocked_error, parse_error
from midspan.providers.gemini.proto import dump, known_fields, load
from midspan.providers.reading import READ_ERRORS, count_at, repair_json, text_at

if TYPE_CHECKING:
    from midspan.providers.gemini import wire

ORIGIN = "gemini"
MakeId = Callable[[], str]
_NO_CONTENT = (NO_BYTES, Raw(b"null"), Raw(b"[]"))
"""A missing or empty content. Proxies written in PHP send an empty object as `[]`."""
_NO_USAGE = Usage()
_known_finish_reason = FINISH_REASONS.get


class _PlainCall(Struct, forbid_unknown_fields=True, gc=False):
    name: str
    args: dict[str, Any] | None = None
    id: str | None = None


class PlainPart(Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    """A part without any other fields, as most parts are: text or a call, perhaps signed."""

    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: _PlainCall | None = None


class PlainContent(Struct, forbid_unknown_fields=True, gc=False):
    parts: list[PlainPart]
    role: Literal["model"]


class _WireContent(Struct, gc=False):
    parts: list[Raw] | None = None
    role: str | None = None


class CandidateFields(Struct, rename="camel", gc=False):
    content: Raw = NO_BYTES
    finish_reason: str | int | None = None
    index: int | None = None
    finish_message: str | None = None
    continuation_token: str | None = None


class TokenCounts(Struct, rename="camel", gc=False):
    prompt_token_count: int = 0
    candidates_token_count: int = 0
    thoughts_token_count: int = 0
    cached_content_token_count: int = 0
    tool_use_prompt_token_count: int = 0
    total_token_count: int = 0


class Chunk(Struct, rename="camel", gc=False):
    """One document of a response: the whole, or one chunk of a stream."""

    candidates: list[CandidateFields | None] | None = None
    usage_metadata: TokenCounts | None = None
    model_version: str | None = None
    response_id: str | None = None
    prompt_feedback: dict[str, Any] | None = None
    error: Any = None


class Signed(Struct, rename="camel", omit_defaults=True, gc=False):
    """The signature of a part."""

    thought_signature: str | None = None


_read_chunk = msgspec.json.Decoder(Chunk).decode
_read_plain_content = msgspec.json.Decoder(PlainContent).decode
_read_content = msgspec.json.Decoder(_WireContent).decode
_read_plain_part = msgspec.json.Decoder(PlainPart).decode
fields_of = msgspec.json.Decoder(dict[str, Raw]).decode
"""The fields of a JSON object, each as its own bytes."""
_items_of = msgspec.json.Decoder(list[Raw]).decode


def response(body: bytes, api: Api = Api.DEVELOPER, *, make_id: MakeId = local_id) -> ModelResponse:
    """Return the response in the body of an answer that was not streamed."""
    return response_and_token(body, api, make_id)[0]


def response_and_token(body: bytes, api: Api, make_id: MakeId = local_id) -> tuple[ModelResponse, str | None]:
    """Return the response, and the token with which it can be continued if it is not complete."""
    document, chunk, candidate = read(body)
    if candidate is None:
        candidate = no_candidate(chunk.prompt_feedback)
    raw = candidate.content
    try:
        parts = tuple([_plain_to_part(part, make_id) for part in _read_plain_content(raw).parts])
    except READ_ERRORS:
        parts = ()
    if not parts:
        raw, _, read_parts = read_content(raw, make_id)
        parts = linked([part for part, _ in read_parts])
    message = Message("model", parts, ProviderData(ORIGIN, raw))
    return response_of(message, chunk, candidate, (document,), api), candidate.continuation_token


def read(document: bytes) -> tuple[Raw, Chunk, CandidateFields | None]:
    """Return the bytes of a document, its fields, and the first candidate. Raise the error that the document holds."""
    try:
        chunk = _read_chunk(document)
    except READ_ERRORS:
        try:
            chunk = _read_essentials(document)
        except MalformedResponseError:
            document = _repaired(document)
            chunk = _read_essentials(document)
    raw = Raw(document)
    if chunk.error is not None:
        raise parse_error(500, raw)
    for candidate in chunk.candidates or ():
        if candidate is not None and not candidate.index:  # 0, or left out
            return raw, chunk, candidate
    return raw, chunk, None


def _read_essentials(document: bytes) -> Chunk:
    """Read the fields that a response needs; the other fields are read if they are well formed."""
    try:
        fields = fields_of(document)
        essentials = {name: fields[name] for name in ("candidates", "promptFeedback", "error") if name in fields}
        chunk = msgspec.json.decode(encode_json(essentials), type=Chunk, strict=False)
        others = msgspec.json.decode(document)
    except READ_ERRORS as error:
        raise _malformed(document) from error
    counts = [count_at(others, "usageMetadata", name) for name in TokenCounts.__struct_encode_fields__]
    chunk.usage_metadata = TokenCounts(*counts) if any(counts) else None
    chunk.model_version, chunk.response_id = text_at(others, "modelVersion"), text_at(others, "responseId")
    return chunk


def _repaired(data: bytes) -> bytes:
    """Return a JSON object without invalid characters. Some proxies send it in a list of one, which is removed."""
    try:
        repaired = repair_json(data)
    except READ_ERRORS as error:
        raise _malformed(data) from error
    items = _items_of(repaired) if repaired.startswith(b"[") else ()
    return bytes(items[0]) if len(items) == 1 else repaired


def _malformed(data: bytes) -> MalformedResponseError:
    return MalformedResponseError(f"Gemini sent {data[:120]!r}, which is not the JSON of a response")


def no_candidate(feedback: dict[str, Any] | None) -> CandidateFields:
    """Return a candidate for a response without one; raise an error if the prompt was blocked."""
    if feedback and "blockReason" in feedback:
        raise blocked_error(feedback)
    return CandidateFields()


def read_content(raw: Raw, make_id: MakeId, *, is_foreign: bool = False) -> tuple[Raw, Role, list[tuple[Part, Raw]]]:
    """Return the bytes of a content, its role, and its parts with their bytes; no bytes if it has no parts.

    A foreign content may be in snake_case, and its role may be one of another API. Its bytes are changed accordingly.
    """
    if raw in _NO_CONTENT:
        return NO_BYTES, "model", []
    try:
        content = _read_content(raw)
    except READ_ERRORS as error:
        raise _malformed(bytes(raw)) from error
    role = ROLES.get(content.role or "user", "user") if is_foreign else "model"
    parts = [read_part(part, make_id, is_foreign=is_foreign) for part in content.parts or ()]
    raws = [part_raw for _, part_raw in parts]
    changes: dict[str, Any] = {} if raws == content.parts else {"parts": raws}
    if content.role is None or (is_foreign and content.role != role):
        changes["role"] = role  # without a role, the model's text would count as the user's
    if changes and parts:
        raw = Raw(encode_json({**fields_of(raw), **changes}))
    return raw if parts else NO_BYTES, role, parts


def read_part(raw: Raw, make_id: MakeId, *, is_foreign: bool = False) -> tuple[Part, Raw]:
    """Decode a part, and return it with its bytes, in which invalid characters are replaced."""
    try:
        return _plain_to_part(_read_plain_part(raw), make_id), raw
    except READ_ERRORS:
        pass
    try:
        part = read_any_part(raw)
    except MalformedResponseError:
        raw = Raw(_repaired(bytes(raw)))
        part = read_any_part(raw)
    if is_foreign and _is_object(raw) and any("_" in name for name in fields_of(raw).keys() - part.extra.keys()):
        raw = Raw(dump(part))  # the API reads both casings: https://protobuf.dev/programming-guides/json
    return _to_part(part, raw, make_id), raw


def read_any_part(raw: Raw) -> "wire.Part":
    """Read the fields of any part; one that is not an object has none."""
    from midspan.providers.gemini import wire  # all messages of the API, which most responses do not need

    return load(wire.Part, raw) if _is_object(raw) else wire.Part()


def _is_object(raw: Raw) -> bool:
    return bytes(raw)[:1] == b"{"


def _to_part(part: "wire.Part", raw: Raw, make_id: MakeId) -> Part:
    """Convert a part. Fields without a counterpart are kept as provider data."""
    data = ProviderData(ORIGIN, raw)
    call, result, blob = part.function_call, part.function_response, _blob_of(part)
    if call is not None and call.name:
        # A call that comes in pieces, or one of whose fields cannot be read, is not a call.
        unread = known_fields(type(call)).keys() & (call.extra.keys() - {"args"})
        if call.partial_args or call.will_continue or unread:
            return _opaque(raw)
        from midspan.providers.stream import with_arguments  # a run without streaming does not need it otherwise

        # If the arguments are not an object, the call is executed only if they are the JSON text of one.
        decoded = ToolCall(call.id or make_id(), call.name, provider_data=data)
        return with_arguments(decoded, call.args or call.extra.get("args"))
    if part.text is not None:
        return (Thought if part.thought else Text)(part.text, data)
    if blob is not None:
        fields = fields_of(raw)
        is_plain = len(fields) == 1 and fields_of(*fields.values()).keys() <= {"mimeType", "data", "fileUri"}
        return blob if is_plain else replace(blob, provider_data=data)
    return _opaque(raw) if result is None else _result_of(result, data, make_id)


def _plain_to_part(part: PlainPart, make_id: MakeId) -> Part:
    """Convert a part that is either text or a call; raise an error for all others."""
    call, text, signature = part.function_call, part.text, part.thought_signature
    data = None if signature is None else ProviderData(ORIGIN, Raw(encode_json(Signed(signature))))
    if call is None and text is not None:
        return Thought(text, data) if part.thought else Text(text, data)
    if call is None or text is not None or part.thought is not None or not call.name:
        raise msgspec.ValidationError("a part is neither text nor a call, or both")
    return ToolCall(call.id or make_id(), call.name, call.args or {}, None, None, data)


def _blob_of(part: "wire.Part | wire.FunctionResponsePart") -> Blob | None:
    if (inline := part.inline_data) is not None:
        return Blob(inline.mime_type or "", inline.data, None, inline.display_name)
    if (file := part.file_data) is not None and file.file_uri:
        return Blob(file.mime_type or "", None, file.file_uri, file.display_name)
    return None


_ENVELOPES = ("error", "result", "content", "output")
"""The names under which clients put a result, because the API accepts only objects."""


def _result_of(result: "wire.FunctionResponse", data: ProviderData, make_id: MakeId) -> ToolResult:
    value: Any = result.response or {}
    error = value.get("error")
    # A result of several fields may have one called `error` that says that there was none.
    is_error = error is not None and (len(value) == 1 or bool(error))
    if len(value) == 1:
        value = next((value[key] for key in _ENVELOPES if key in value and (is_error or key != "error")), value)
    media = tuple([blob for item in result.parts or () if (blob := _blob_of(item)) is not None])
    return ToolResult(result.id or make_id(), result.name or "", value, is_error, media, provider_data=data)


def _opaque(raw: Raw) -> Opaque:
    names = [name for name in fields_of(raw) if not name.startswith("thought")] if _is_object(raw) else []
    return Opaque(names[0] if names else "", ProviderData(ORIGIN, raw))


def response_of(
    message: Message, chunk: Chunk, candidate: CandidateFields, documents: tuple[Raw, ...], api: Api
) -> ModelResponse:
    """Return the whole response; without a finish reason it counts as cut."""
    reason, tokens, usage = candidate.finish_reason, chunk.usage_metadata, _NO_USAGE
    finish = _known_finish_reason(reason)  # type: ignore[arg-type]  # a number is in no table of names
    if finish is None:
        finish, reason = finish_reason_of(reason, api)
    if tokens is not None:
        prompt, output = tokens.prompt_token_count, tokens.candidates_token_count
        tools, total = tokens.tool_use_prompt_token_count, tokens.total_token_count
        # Some models count their thoughts only in the total.
        thoughts = max(tokens.thoughts_token_count, total - (prompt + output + tools))
        usage = Usage(prompt, output, thoughts, tokens.cached_content_token_count, tools)
    return ModelResponse(
        message, finish, reason, candidate.finish_message, usage, chunk.model_version, chunk.response_id, documents  # type: ignore[arg-type]  # finish_reason_of returns a string
    )  # fmt: skip


def finish_reason_of(reason: str | int | None, api: Api) -> tuple[FinishReason, str | None]:
    """Return what a finish reason means, and the API's name for it, even if it sent a number."""
    if isinstance(reason, int):
        names = FINISH_NUMBERS[api]
        reason = names[reason] if 0 <= reason < len(names) else str(reason)
    if reason is None or reason == "FINISH_REASON_UNSPECIFIED":
        return FinishReason.CUT, None
    return FINISH_REASONS.get(reason, FinishReason.OTHER), reason


def linked(parts: Sequence[Part], calls: Sequence[ToolCall] = ()) -> tuple[Part, ...]:
    """Return the parts; a result without an id gets the id of its call, which is found by name and order."""
    answered = {part.id for part in parts if isinstance(part, ToolResult)}
    unanswered: dict[str, deque[str]] = defaultdict(deque)
    for call in (*calls, *parts):
        if isinstance(call, ToolCall) and call.id not in answered:
            unanswered[call.name].append(call.id)
    return tuple(
        replace(part, id=unanswered[part.name].popleft())
        if isinstance(part, ToolResult) and is_local_id(part.id) and unanswered[part.name]
        else part
        for part in parts
    )


def raw_parts(content: Raw) -> list[Raw]:
    """Return the bytes of each part of a content."""
    return _items_of(fields_of(content)["parts"])


def join_contents(contents: Sequence[Raw], parts: Sequence[Raw] | None = None) -> Raw:
    """Return contents in a row as one, perhaps with other parts. If a field occurs twice, the later value is used."""
    fields = {name: value for content in contents for name, value in fields_of(content).items()}
    if parts is None:
        parts = [part for content in contents for part in raw_parts(content)]
    return Raw(encode_json({**fields, "parts": parts}))


def message(content: bytes, *, make_id: MakeId = local_id) -> Message:
    """Return a content of a conversation, from any origin, as a message that keeps its bytes."""
    raw, role, parts = read_content(Raw(content), make_id, is_foreign=True)
    return Message(role, linked([part for part, _ in parts]), ProviderData(ORIGIN, raw))


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
