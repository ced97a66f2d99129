"""What Gemini sends, as values of a run: pure functions from bytes to parts, messages and responses.

Values keep the bytes that they were made of, so that these go back unchanged. `stream` turns the documents of a
streamed response into events and one response. Nothing here knows connections or retries.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Raw
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
from midspan.errors import MalformedResponse
from midspan.providers.gemini.capabilities import FINISH_NUMBERS, FINISH_REASONS, Api
from midspan.providers.gemini.errors import blocked_error, parse_error
from midspan.providers.gemini.partial_args import OpenCall
from midspan.providers.gemini.structs import (
    READ_ERRORS,
    Candidate,
    Chunk,
    Tokens,
    WireCall,
    WireContent,
    WirePart,
    WireResult,
    encode_json,
    fields_of,
    items_of,
    read_chunk,
    read_exact_part,
    read_signature,
    read_wire_content,
    read_wire_part,
)

ORIGIN = "gemini"
MakeId = Callable[[], str]
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
        content = read_wire_content(raw)
        if content.role == "model" and content.parts:  # as nearly always, and of parts that are known
            parts = [to_part(read_exact_part(part), part, True, make_id) for part in content.parts]
            return Message("model", linked(parts), ProviderData(ORIGIN, raw))
    except READ_ERRORS:
        pass
    raw, _, read_parts = read_content(raw)
    return Message("model", to_parts(read_parts, make_id), ProviderData(ORIGIN, raw))


def read(document: bytes) -> tuple[Raw, Chunk, Candidate | None]:
    """Return the bytes of a document, its fields, and the first candidate. Raise the error that the document holds."""
    try:
        chunk = read_chunk(document)
    except READ_ERRORS:
        chunk, document = _read_leniently(document)
    raw = Raw(document)
    if chunk.error is not NO_BYTES and chunk.error != _NULL:
        raise parse_error(500, raw)
    for candidate in chunk.candidates or ():
        if candidate is not None and not candidate.index:  # 0, or left out
            return raw, chunk, candidate
    return raw, chunk, None


def _read_leniently(document: bytes) -> tuple[Chunk, bytes]:
    """Read the fields without which there is no response; the others may be malformed, and so may characters."""
    for read_object in (bytes, _repaired):
        document = read_object(document)
        try:
            fields = fields_of(document)
            essentials = {name: fields[name] for name in _ESSENTIALS if name in fields}
            return msgspec.json.decode(encode_json(essentials), type=Chunk, strict=False), document
        except READ_ERRORS:
            continue
    raise _malformed(document)


_ESSENTIALS = ("candidates", "promptFeedback", "error")
_SURROGATE = re.compile("[\ud800-\udfff]")


def _repaired(data: bytes) -> bytes:
    """Return a JSON object without invalid characters, and without a list of one around it, as front ends add it."""
    import json  # accepts unpaired surrogates; loaded for malformed documents only

    try:
        document = json.loads(data.decode("utf-8-sig", "replace"), parse_constant=_reject_constant)
        if isinstance(document, list) and len(document) == 1:
            document = document[0]
        return _SURROGATE.sub("\ufffd", json.dumps(document, ensure_ascii=False)).encode()
    except (ValueError, RecursionError) as error:
        raise _malformed(data) from error


def _reject_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _malformed(data: bytes) -> MalformedResponse:
    shown = repr(data[:120].decode("utf-8", "replace")) + ("…" if len(data) > 120 else "")
    return MalformedResponse(f"Gemini sent {shown}, which is not the JSON of a response")


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
        content = read_wire_content(raw)
    except READ_ERRORS:
        content = WireContent(raw_parts(raw))  # a single part without its list
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
    """Read the fields of a part; one that cannot be read has none. Bytes with invalid characters are repaired."""
    try:
        return read_exact_part(raw), raw, True
    except READ_ERRORS:
        part = _fields_of_part(raw)
    if part is None:
        raw = Raw(_repaired(bytes(raw)))
        part = _fields_of_part(raw) or WirePart()
    if is_foreign and part == WirePart() and bytes(raw)[:1] == b"{":
        # Perhaps it is in the other casing, which the API reads too: https://protobuf.dev/programming-guides/json
        from midspan.providers.gemini import wire  # all messages of the API, which a plain run does not need
        from midspan.providers.gemini.proto import dump, load

        recased = Raw(dump(load(wire.Part, raw)))
        fields = _fields_of_part(recased)
        if fields is not None and fields != part:
            return fields, recased, False
    return part, raw, False


def _fields_of_part(raw: Raw) -> WirePart | None:
    try:
        return read_wire_part(raw)
    except READ_ERRORS:
        return None


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
        if type(arguments) is not dict:
            return _call_with_text(call, raw, make_id)
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
        _NO_USAGE if tokens is None else _usage_of(tokens),
        chunk.model_version,
        chunk.response_id,
        documents,
    )


def _usage_of(tokens: Tokens) -> Usage:
    prompt, output, tools = tokens.prompt_token_count, tokens.candidates_token_count, tokens.tool_use_prompt_token_count
    thoughts = tokens.thoughts_token_count
    unexplained = tokens.total_token_count - (prompt + output + tools + thoughts)
    if unexplained > 0:
        thoughts += unexplained  # some models count their thoughts only in the total
    return Usage(prompt, output, thoughts, tokens.cached_content_token_count, tools)


def is_open(call: WireCall) -> bool:
    """Whether more of the call follows: it says so itself, or the last piece of its arguments does."""
    return bool(call.will_continue or (call.partial_args and call.partial_args[-1].get("willContinue")))


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


def _call_with_text(call: WireCall, raw: Raw, make_id: MakeId) -> ToolCall:
    """Return a call whose arguments are not an object. It is executed only if they are the JSON text of one."""
    text = call.args if isinstance(call.args, str) else encode_json(call.args).decode()
    arguments, problem = {}, None
    try:
        arguments = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        problem = f"the arguments must be a JSON object: {error}"
    raw_arguments = None if problem is None else text
    return ToolCall(call.id or make_id(), call.name or "", arguments, raw_arguments, problem, ProviderData(ORIGIN, raw))


_ENVELOPES = ("error", "result", "content", "output")
"""The names under which clients put a result, because the API accepts only objects."""


def _result_of(result: WireResult, raw: Raw, make_id: MakeId) -> ToolResult:
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
    try:
        signature = read_signature(data.raw).thought_signature
    except READ_ERRORS:
        return None
    return signature if isinstance(signature, str) else None


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
