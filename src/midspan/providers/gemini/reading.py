"""One document of a response, as our values: what it says, and each of its parts."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from midspan.providers.gemini import response_structs as structs
from midspan.providers.gemini.capabilities import FINISH_NUMBERS, Api
from midspan.providers.gemini.errors import blocked, refusal
from midspan.providers.gemini.streamed_arguments import OpenCall
from midspan.types.exchange import FinishReason, ModelResponse, Usage
from midspan.types.messages import Message
from midspan.types.parts import (
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
)

DIALECT = "gemini"

MakeId = Callable[[], str]


Document = tuple[Raw, structs.Chunk, structs.Candidate | None]
"""The bytes of one document of a response, what it says, and the candidate in it that is ours."""


def read(document: bytes) -> Document:
    """Read a document; an error that it holds is raised."""
    raw = Raw(document)
    try:
        chunk = structs.read_chunk(document)
    except structs.READ_FAILURES:
        chunk, raw = structs.recover(structs.Chunk, raw)
    if chunk.error is not structs.ABSENT and chunk.error != _NULL:
        raise refusal(500, raw)
    for candidate in chunk.candidates or ():
        if not candidate.index:  # of several candidates the first is ours; its index may be left out
            return raw, chunk, candidate
    return raw, chunk, None


def read_content(candidate: structs.Candidate | None) -> tuple[Raw, list[Raw]]:
    """The content of a candidate, and the bytes of each of its parts."""
    raw = NO_BYTES if candidate is None else candidate.content
    if not raw or raw == _NULL:
        return NO_BYTES, []
    content, raw = content_of(raw)
    if not content.parts:
        return NO_BYTES, []
    if content.role is None:  # sent back like this, it would pass for the user's
        raw = Raw(encode_json({**fields_of(raw), "role": "model"}))
    return raw, content.parts


def content_of(raw: Raw) -> tuple[structs.Content, Raw]:
    """A content, and its bytes, repaired where only their characters were broken."""
    try:
        content = structs.read_content(raw)
    except structs.READ_FAILURES:
        content, raw = structs.recover(structs.Content, raw)
    if all(map(_is_sound, content.parts or ())):
        return content, raw
    parts = [read_part(part)[1] for part in content.parts or ()]
    return structs.Content(parts, content.role), Raw(encode_json({**fields_of(raw), "parts": parts}))


def _is_sound(raw: Raw) -> bool:
    try:
        structs.read_known_part(raw)
    except structs.READ_FAILURES:
        return read_part(raw)[1] == raw
    return True


def message_of(candidate: structs.Candidate | None, make_id: MakeId) -> Message:
    """The model's turn, where one document is the whole response."""
    raw = NO_BYTES if candidate is None else candidate.content
    try:
        known = structs.read_known_content(raw).parts
    except structs.READ_FAILURES:
        known = []
    if not known:
        raw, all_raws = read_content(candidate)
        return Message("model", parts_of(all_raws, make_id), ProviderData(DIALECT, raw))
    parts: list[Part] = []
    raws: list[Raw] | None = None
    for part in known:
        call, text = part.function_call, part.text
        if part.thought_signature is not None or (call is None) is (text is None):
            raws = raws or structs.read_content(raw).parts or []
            parts.append(part_of_known(part, raws[len(parts)], make_id))
        elif call is None:
            parts.append((Thought if part.thought else Text)(text))  # type: ignore[arg-type]  # one of them is there
        else:
            parts.append(ToolCall(call.id or make_id(), call.name, call.args or {}))
    return Message("model", tuple(parts), ProviderData(DIALECT, raw))


def no_candidate(feedback: dict[str, Any] | None) -> structs.Candidate:
    """A candidate for a response without one: the prompt was blocked, or the server says nothing."""
    if feedback and "blockReason" in feedback:
        raise blocked(feedback)
    return structs.Candidate()


def response_of(
    message: Message, chunk: structs.Chunk, candidate: structs.Candidate, documents: tuple[Raw, ...], api: Api
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
        NO_USAGE if tokens is None else tokens.usage(),
        chunk.model_version,
        chunk.response_id,
        documents,
    )


NO_USAGE = Usage()


def finish_word(reason: str | int | None, api: Api) -> str | None:
    """Why the model stopped, in the API's own word, also where it sent a number."""
    if isinstance(reason, int):
        words = FINISH_NUMBERS[api]
        reason = words[reason] if 0 <= reason < len(words) else str(reason)
    return None if reason == "FINISH_REASON_UNSPECIFIED" else reason


def parts_of(raws: Sequence[Raw], make_id: MakeId) -> tuple[Part, ...]:
    """Our values for the parts of one whole content."""
    parts = [part_of(raw, make_id) for raw in raws]
    return linked(parts, ()) if ToolResult in map(type, parts) else tuple(parts)


def linked(parts: Sequence[Part], calls: Sequence[ToolCall]) -> tuple[Part, ...]:
    """The parts, each result that came without an id under the id of the call that it answers: by name, in order."""
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
    """Our value for a part. It keeps the bytes as provider data if they say more than the value does."""
    try:
        known = structs.read_known_part(raw)
    except structs.READ_FAILURES:
        return part_of_any(raw, make_id)
    return part_of_known(known, raw, make_id)


def part_of_known(known: structs.KnownPart, raw: Raw, make_id: MakeId) -> Part:
    """The same for a part that was read already."""
    call, signature = known.function_call, known.thought_signature
    if call is not None and call.name:
        is_plain = signature is None and known.text is None and known.thought is None
        data = None if is_plain else ProviderData(DIALECT, raw)
        return ToolCall(call.id or make_id(), call.name, call.args or {}, None, None, data)
    if known.text is not None:
        data = None if signature is None and call is None else ProviderData(DIALECT, raw)
        return (Thought if known.thought else Text)(known.text, data)
    return opaque_of(raw)


def part_of_any(raw: Raw, make_id: MakeId) -> Part:
    """The same for a part with fields that `KnownPart` does not have."""
    found, raw = read_part(raw)
    call = found.function_call
    if call is not None and call.name:
        if call.will_continue:
            return opaque_of(raw)  # a call without its end is not a call
        arguments = (call.args or {}) if call.partial_args is None else OpenCall(call, raw).arguments()
        return ToolCall(call.id or make_id(), call.name, arguments, None, None, ProviderData(DIALECT, raw))
    if found.text is not None:
        return (Thought if found.thought else Text)(found.text, ProviderData(DIALECT, raw))
    return _blob_of(found, raw) or _result_of(found, raw, make_id) or opaque_of(raw)


def read_part(raw: Raw) -> tuple[structs.Part, Raw]:
    """The fields of any part, and its bytes, repaired where only their characters were broken."""
    try:
        return structs.read_part(raw), raw
    except structs.READ_FAILURES:
        return structs.recover(structs.Part, raw) if bytes(raw)[:1] == b"{" else (structs.Part(), raw)


def _blob_of(part: structs.Part, raw: Raw) -> Blob | None:
    inline, file = part.inline_data, part.file_data
    if inline is not None:
        is_plain = _is_plain(raw, "inlineData", ("mimeType", "data"))
        data = None if is_plain else ProviderData(DIALECT, raw)
        return Blob(inline.mime_type, inline.data, None, inline.display_name, data)
    if file is not None and file.file_uri:
        is_plain = _is_plain(raw, "fileData", ("mimeType", "fileUri"))
        data = None if is_plain else ProviderData(DIALECT, raw)
        return Blob(file.mime_type, None, file.file_uri, file.display_name, data)
    return None


def _is_plain(raw: Raw, kind: str, names: Sequence[str]) -> bool:
    """Whether a part has this one field, and that no others than these."""
    fields = fields_of(raw)
    return fields.keys() == {kind} and fields_of(fields[kind]).keys() <= {*names}


def opaque_of(raw: Raw) -> Opaque:
    data = bytes(raw)
    names = [name for name in fields_of(raw) if not name.startswith("thought")] if data[:1] == b"{" else []
    return Opaque(names[0] if names else "", ProviderData(DIALECT, raw))


def signature_of(part: Part) -> str | None:
    """The thought signature of a part that Gemini sent."""
    data = part.provider_data
    if data is None or data.origin != DIALECT or not data.raw:
        return None
    try:
        return structs.read_signature(data.raw).thought_signature
    except structs.READ_FAILURES:
        return None


def _result_of(part: structs.Part, raw: Raw, make_id: MakeId) -> ToolResult | None:
    """The result in any of the envelopes that clients use."""
    result = part.function_response
    if result is None:
        return None
    value: Any = result.response or {}
    is_error = "error" in value
    if len(value) == 1:
        value = next((value[key] for key in ("error", "result", "content", "output") if key in value), value)
    media = tuple([blob for raw_blob in result.parts or () if (blob := _blob_of(*read_part(raw_blob))) is not None])
    data = ProviderData(DIALECT, raw)
    return ToolResult(result.id or make_id(), result.name, value, is_error, media, provider_data=data)


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


_NULL = Raw(b"null")


encode_json = msgspec.json.Encoder().encode
fields_of = msgspec.json.Decoder(dict[str, Raw]).decode
_items_of = msgspec.json.Decoder(list[Raw]).decode


def raw_parts(content: Raw) -> list[Raw]:
    """The bytes of each part of a content; a lone part may stand there without its list."""
    parts = fields_of(content)["parts"]
    return _items_of(parts) if bytes(parts)[:1] == b"[" else [parts]
