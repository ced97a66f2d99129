"""The little of a response that a run needs, read in one pass; everything else stays in the bytes.

Where a server writes a known field in an unknown way, that field is as good as absent and the rest is still read.
"""

import json
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import fields

from wasat.errors import MalformedResponse
from wasat.types.exchange import Usage


class Call(Struct, rename="camel", gc=False):
    name: str | None = None
    args: dict[str, Any] | None = None
    id: str | None = None
    partial_args: list[dict[str, Any]] | None = None
    will_continue: bool | None = None


class Result(Struct, rename="camel", gc=False):
    name: str = ""
    response: dict[str, Any] | None = None
    id: str | None = None
    parts: list["Part"] | None = None


class Inline(Struct, rename="camel", gc=False):
    mime_type: str = ""
    data: str | None = None
    display_name: str | None = None


class File(Struct, rename="camel", gc=False):
    file_uri: str | None = None
    mime_type: str = ""
    display_name: str | None = None


class Part(Struct, rename="camel", gc=False):
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: Call | None = None
    function_response: Result | None = None
    inline_data: Inline | None = None
    file_data: File | None = None


class Content(Struct, gc=False):
    parts: list[Part] | None = None
    role: str | None = None


class Candidate(Struct, rename="camel", gc=False):
    content: Raw = Raw(b"")
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
        return Usage(
            self.prompt_token_count,
            self.candidates_token_count,
            self.thoughts_token_count,
            self.cached_content_token_count,
            self.tool_use_prompt_token_count,
            self.total_token_count,
        )


class Chunk(Struct, rename="camel", gc=False):
    candidates: list[Candidate] | None = None
    usage_metadata: Tokens | None = None
    model_version: str | None = None
    response_id: str | None = None
    prompt_feedback: dict[str, Any] | None = None
    error: Raw = Raw(b"")


read_chunk = msgspec.json.Decoder(Chunk).decode
read_content = msgspec.json.Decoder(Content).decode
read_part = msgspec.json.Decoder(Part).decode
READ_FAILURES = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What these three raise; `recover` is for then. They are apart because the way without failure is the hot one."""

_Form = TypeVar("_Form", Chunk, Content, Part)


def recover(form: type[_Form], data: bytes | Raw) -> tuple[_Form, Raw]:
    """What can be read of `data`, and `data` itself, mended where it was broken in its characters only."""
    try:
        return _read_leniently(form, msgspec.json.decode(data)), Raw(data)
    except READ_FAILURES as error:
        mended = _mended(bytes(data))
        if mended is None:
            raise MalformedResponse(f"Gemini sent no JSON: {_quoted(bytes(data))}") from error
    return recover(form, mended)


def _read_leniently(form: type[Any], plain: Any) -> Any:
    if not isinstance(plain, dict):
        raise MalformedResponse(f"Gemini sent {_quoted(repr(plain).encode())} where an object belongs")
    known = {}
    for field in fields(form):
        if field.encode_name in plain:
            try:
                known[field.name] = _convert(field.type, plain[field.encode_name])
            except (msgspec.ValidationError, MalformedResponse):
                continue
    return form(**known)


_LISTS: dict[Any, type[Struct]] = {list[Candidate] | None: Candidate, list[Part] | None: Part}
_STRUCTS: dict[Any, type[Struct]] = {
    Tokens | None: Tokens,
    Call | None: Call,
    Result | None: Result,
    Inline | None: Inline,
    File | None: File,
}


def _convert(hint: Any, plain: Any) -> Any:
    if hint is Raw:
        return Raw(msgspec.json.encode(plain))
    if hint in _LISTS and isinstance(plain, list):
        return [_read_leniently(_LISTS[hint], item) for item in plain]
    if hint in _STRUCTS and plain is not None:
        return _read_leniently(_STRUCTS[hint], plain)
    return msgspec.convert(plain, hint)


def _mended(data: bytes) -> bytes | None:
    """The same JSON without half characters, which Python's own parser forgives; None if it is no JSON at all."""
    try:
        plain = json.loads(data.decode("utf-8", "replace"), parse_constant=_refuse)
        mended = json.dumps(plain, ensure_ascii=False).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        return None
    return mended if mended != data else None


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _quoted(data: bytes) -> str:
    return repr(data[:120].decode("utf-8", "replace")) + ("…" if len(data) > 120 else "")
