"""One document of a response, as our values: what it says, and each of its parts."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from midspan.providers.gemini import lean
from midspan.providers.gemini.capabilities import FINISH_NUMBERS, Api
from midspan.providers.gemini.refusals import blocked, refusal
from midspan.types.exchange import FinishReason, ModelResponse, Usage
from midspan.types.messages import NO_BYTES, Message
from midspan.types.parts import Blob, Opaque, Part, Text, Thought, ToolCall, ToolResult, is_local_id

DIALECT = "gemini"

MakeId = Callable[[], str]


class Document(Struct, gc=False):
    """What one document of a response says, and where the bytes of that are."""

    raw: Raw
    chunk: lean.Chunk
    candidate: lean.Candidate | None = None
    content: Raw = NO_BYTES
    parts: list[lean.Part] = []


def read(document: bytes) -> Document:
    """Read a document; an error that it holds is raised."""
    raw = Raw(document)
    try:
        chunk = lean.read_chunk(raw)
    except lean.READ_FAILURES:
        chunk, raw = lean.recover(lean.Chunk, raw)
    if chunk.error and chunk.error != _NULL:
        raise refusal(500, raw)
    for candidate in chunk.candidates or ():
        if not candidate.index:  # of several candidates the first is ours; its index may be left out
            return Document(raw, chunk, candidate, *_read_content(candidate.content))
    return Document(raw, chunk)


def _read_content(raw: Raw) -> tuple[Raw, list[lean.Part]]:
    if not raw or raw == _NULL:
        return NO_BYTES, []
    try:
        content = lean.read_content(raw)
    except lean.READ_FAILURES:
        content, raw = lean.recover(lean.Content, raw)
    if not content.parts:
        return NO_BYTES, []
    if content.role is None:  # sent back like this, it would pass for the user's
        raw = Raw(encode_json({**fields_of(raw), "role": "model"}))
    return raw, content.parts


def no_candidate(feedback: dict[str, Any] | None) -> lean.Candidate:
    """What stands for a candidate where there is none: the prompt was held back, or the server says no more."""
    if feedback and "blockReason" in feedback:
        raise blocked(feedback)
    return lean.Candidate()


def answer(
    message: Message, chunk: lean.Chunk, candidate: lean.Candidate, documents: tuple[Raw, ...], api: Api
) -> ModelResponse:
    """All that was said, as one value; without a reason it is said to be cut."""
    word = candidate.finish_reason
    finish = _FINISH.get(word)
    if finish is None:
        word = finish_word(word, api)
        finish = _FINISH.get(word, FinishReason.OTHER if word else FinishReason.CUT)
    tokens = chunk.usage_metadata
    return ModelResponse(
        message,
        finish,
        cast("str | None", word),
        candidate.finish_message,
        tokens.usage() if tokens is not None else Usage(),
        chunk.model_version,
        chunk.response_id,
        candidate.continuation_token,
        documents,
    )


def finish_word(reason: str | int | None, api: Api) -> str | None:
    """Why the model stopped, in the API's own word, also where it sent a number."""
    if isinstance(reason, int):
        words = FINISH_NUMBERS[api]
        reason = words[reason] if 0 <= reason < len(words) else str(reason)
    return None if reason == "FINISH_REASON_UNSPECIFIED" else reason


def parts_of(parts: list[lean.Part], content: Raw, make_id: MakeId) -> Sequence[Part]:
    """Our values for the parts of one whole content."""
    known: list[Part] = []
    raws: list[Raw] = []
    answered = False
    for index, part in enumerate(parts):
        made = part_of(part, make_id)
        if made is None:
            raws = raws or raw_parts(content)
            made = opaque_of(raws[index])
        answered = answered or part.function_response is not None
        known.append(made)
    return linked(known, ()) if answered else known


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


def part_of(part: lean.Part, make_id: MakeId) -> Part | None:
    """Our value for a part of Gemini's, if it is of a kind that we know."""
    call = part.function_call
    if call is not None and call.name:
        return ToolCall(call.id or make_id(), call.name, call.args or {}, part.thought_signature)
    if part.text is not None:
        return (Thought if part.thought else Text)(part.text, part.thought_signature)
    if part.inline_data is not None:
        found = part.inline_data
        return Blob(found.mime_type, found.data, None, found.display_name, part.thought_signature)
    if part.file_data is not None and part.file_data.file_uri:
        file = part.file_data
        return Blob(file.mime_type, None, file.file_uri, file.display_name, part.thought_signature)
    if part.function_response is not None:
        return _result(part.function_response, make_id)
    return None


def opaque_of(raw: Raw) -> Opaque:
    data = bytes(raw)
    names = [name for name in fields_of(raw) if not name.startswith("thought")] if data[:1] == b"{" else []
    return Opaque(names[0] if names else "", raw)


def _result(result: lean.Result, make_id: MakeId) -> ToolResult:
    """The result in any of the envelopes that clients use."""
    value: Any = result.response or {}
    is_error = "error" in value
    if len(value) == 1:
        value = next((value[key] for key in ("error", "result", "content", "output") if key in value), value)
    media = (part_of(part, make_id) for part in result.parts or ())
    return ToolResult(
        result.id or make_id(),
        result.name,
        value,
        is_error,
        tuple(one for one in media if isinstance(one, Blob)),
    )


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
