"""Structs for the few fields of a response that a run needs; everything else stays in the bytes.

Where a server writes a known field in an unknown way, that field is as good as absent and the rest is still read.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.structs import fields

from midspan.errors import MalformedResponse
from midspan.types.exchange import Usage

ABSENT = Raw(b"")


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
    parts: list[Raw] | None = None


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


class KnownCall(Struct, forbid_unknown_fields=True, gc=False):
    name: Annotated[str, Meta(min_length=1)]
    args: dict[str, Any] | None = None
    id: str | None = None


class KnownPart(Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    """A part of text or a complete call, read strictly: everything in it but the signature has a field of ours."""

    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: KnownCall | None = None


class KnownContent(Struct, gc=False):
    parts: list[KnownPart]
    role: Literal["model"]


class SignedPart(Struct, rename="camel", gc=False):
    thought_signature: str | None = None


class Content(Struct, gc=False):
    parts: list[Raw] | None = None
    role: str | None = None


class Candidate(Struct, rename="camel", gc=False):
    content: Raw = ABSENT
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
    candidates: list[Candidate] | None = None
    usage_metadata: Tokens | None = None
    model_version: str | None = None
    response_id: str | None = None
    prompt_feedback: dict[str, Any] | None = None
    error: Raw = ABSENT


class DeltaPart(Struct, forbid_unknown_fields=True, gc=False):
    text: str
    thought: bool | None = None


class DeltaContent(Struct, forbid_unknown_fields=True, gc=False):
    parts: tuple[DeltaPart]
    role: Literal["model"]


class DeltaCandidate(Struct, rename="camel", gc=False):
    content: DeltaContent
    finish_reason: str | int | None = None
    index: Literal[0] | None = None
    finish_message: None = None
    continuation_token: None = None


class Delta(Struct, rename="camel", gc=False):
    """A chunk that adds one piece of text, as most of a stream do, read in one pass and strictly.

    What can be read as one says nothing more that counts; what cannot is read as a `Chunk`.
    """

    candidates: tuple[DeltaCandidate]
    usage_metadata: Tokens | None = None
    model_version: str | None = None
    response_id: str | None = None
    prompt_feedback: None = None
    error: None = None


read_delta = msgspec.json.Decoder(Delta).decode
read_chunk = msgspec.json.Decoder(Chunk).decode
read_content = msgspec.json.Decoder(Content).decode
read_part = msgspec.json.Decoder(Part).decode
read_known_content = msgspec.json.Decoder(KnownContent).decode
read_known_part = msgspec.json.Decoder(KnownPart).decode
read_signature = msgspec.json.Decoder(SignedPart).decode
READ_FAILURES = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What these raise; `recover` is for then. They are apart because the way without failure is the hot one."""

_Form = TypeVar("_Form", Chunk, Content, Part)


def recover(form: type[_Form], data: bytes | Raw) -> tuple[_Form, Raw]:
    """What can be read of `data`, and `data` itself, mended where it was broken in its characters only."""
    raw = Raw(data)
    try:
        return _read_leniently(form, raw), raw
    except READ_FAILURES as error:
        mended = _mended(bytes(raw))
        if mended is None:
            raise MalformedResponse(f"Gemini sent no JSON: {_quoted(bytes(raw))}") from error
    return recover(form, mended)


def _read_leniently(form: type[Any], raw: Raw) -> Any:
    """Every field that can be read; the others are as good as absent, and the bytes stay what they are."""
    plain = _raw_object(raw)
    known = {}
    for field in fields(form):
        value = plain.get(field.encode_name)
        if value is not None:
            try:
                known[field.name] = _convert(field.type, value)
            except msgspec.ValidationError:
                continue
    return form(**known)


def _raw_object(raw: Raw) -> dict[str, Raw]:
    try:
        return _raw_fields(raw)
    except msgspec.ValidationError:
        pass
    items = _raw_items(raw) if bytes(raw).lstrip()[:1] == b"[" else []
    if len(items) == 1:  # front-ends wrap an answer in a list of one
        return _raw_object(items[0])
    raise MalformedResponse(f"Gemini sent {_quoted(bytes(raw))} where an object belongs")


_raw_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_raw_items = msgspec.json.Decoder(list[Raw]).decode

_LISTS: dict[Any, type[Struct]] = {list[Candidate] | None: Candidate}
_RAW_LIST = list[Raw] | None
_STRUCTS: dict[Any, type[Struct]] = {
    Tokens | None: Tokens,
    Call | None: Call,
    Result | None: Result,
    Inline | None: Inline,
    File | None: File,
}


def _convert(hint: Any, raw: Raw) -> Any:
    first = bytes(raw)[:1]
    if hint is Raw:
        return raw
    if hint == _RAW_LIST:
        return _raw_items(raw) if first == b"[" else [raw]
    if hint in _LISTS:
        items = _raw_items(raw) if first == b"[" else [raw]
        return list(_read_items(_LISTS[hint], items))
    if hint in _STRUCTS and first == b"{":
        return _read_leniently(_STRUCTS[hint], raw)
    if hint == dict[str, Any] | None and first not in (b"{", b"n"):
        return _arguments(raw)
    return msgspec.json.decode(raw, type=hint, strict=False)


def _read_items(form: type[Struct], items: list[Raw]) -> Iterator[Any]:
    for item in items:
        if bytes(item)[:1] == b"{":
            yield _read_leniently(form, item)


def _arguments(raw: Raw) -> Any:
    """Arguments that came as text. What is no object in any way must not pass for «no arguments»."""
    try:
        return msgspec.json.decode(msgspec.json.decode(raw, type=str), type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise MalformedResponse(f"Gemini sent {_quoted(bytes(raw))} where an object belongs") from error


_HALF = re.compile("[\ud800-\udfff]")


def _mended(data: bytes) -> bytes | None:
    """The same JSON without half characters, which Python's own parser forgives; None if it is no JSON at all."""
    try:
        import json  # loaded for broken documents only

        plain = json.loads(data.decode("utf-8-sig", "replace"), parse_constant=_refuse)
        mended = _HALF.sub("\ufffd", json.dumps(plain, ensure_ascii=False)).encode()
    except (ValueError, RecursionError):
        return None
    return mended if mended != data else None


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _quoted(data: bytes) -> str:
    return repr(data[:120].decode("utf-8", "replace")) + ("…" if len(data) > 120 else "")
