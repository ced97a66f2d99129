"""The fields of a response that a run needs, as msgspec structs; everything else stays in the bytes.

The messages in `responses` have all fields. Reading these few takes a fraction of the time.
"""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from midspan._types.parts import NO_BYTES, Blob

READ_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a decoder raises for JSON that does not fit."""


class WireCall(Struct, rename="camel", gc=False):
    name: str | None = None
    args: Any = None
    id: str | None = None
    partial_args: list[dict[str, Any]] | None = None
    will_continue: bool | None = None


class WireResult(Struct, rename="camel", gc=False):
    name: str = ""
    response: dict[str, Any] | None = None
    id: str | None = None
    parts: list[Raw] | None = None


class _Inline(Struct, rename="camel", gc=False):
    mime_type: str = ""
    data: str | None = None
    display_name: str | None = None

    def blob(self) -> Blob:
        return Blob(self.mime_type, self.data, None, self.display_name)


class _File(Struct, rename="camel", gc=False):
    file_uri: str | None = None
    mime_type: str = ""
    display_name: str | None = None

    def blob(self) -> Blob | None:
        return Blob(self.mime_type, None, self.file_uri, self.display_name) if self.file_uri else None


class WirePart(Struct, rename="camel", gc=False):
    """The fields of a part that a run needs."""

    text: str | None = None
    thought: bool | None = None
    thought_signature: Any = None
    function_call: WireCall | None = None
    function_response: WireResult | None = None
    inline_data: _Inline | None = None
    file_data: _File | None = None


class _ExactCall(WireCall, forbid_unknown_fields=True, gc=False):
    args: dict[str, Any] | None = None


class _ExactInline(_Inline, forbid_unknown_fields=True, gc=False):
    pass


class _ExactFile(_File, forbid_unknown_fields=True, gc=False):
    pass


class _ExactPart(WirePart, forbid_unknown_fields=True, gc=False):
    """A part that is read strictly: its bytes say nothing beyond these fields, apart from those of a result."""

    thought_signature: str | None = None
    function_call: _ExactCall | None = None
    inline_data: _ExactInline | None = None
    file_data: _ExactFile | None = None


class _SignedPart(Struct, rename="camel", gc=False):
    thought_signature: Any = None


class WireContent(Struct, gc=False):
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


class Chunk(Struct, rename="camel", gc=False):
    """One document of a response: the whole, or one chunk of a stream."""

    candidates: list[Candidate | None] | None = None
    usage_metadata: Tokens | None = None
    model_version: str | None = None
    response_id: str | None = None
    prompt_feedback: dict[str, Any] | None = None
    error: Raw = NO_BYTES


read_chunk = msgspec.json.Decoder(Chunk).decode
read_wire_content = msgspec.json.Decoder(WireContent).decode
read_exact_part = msgspec.json.Decoder(_ExactPart).decode
read_signature = msgspec.json.Decoder(_SignedPart).decode
read_wire_part = msgspec.json.Decoder(WirePart).decode
encode_json = msgspec.json.Encoder().encode
fields_of = msgspec.json.Decoder(dict[str, Raw]).decode
"""The fields of a JSON object, each as its own bytes."""
items_of = msgspec.json.Decoder(list[Raw]).decode
