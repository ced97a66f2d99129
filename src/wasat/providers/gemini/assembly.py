"""The documents of a stream, put together to one answer."""

from itertools import groupby

from msgspec import Raw

from wasat.providers.gemini import lean
from wasat.providers.gemini.capabilities import Api
from wasat.providers.gemini.partial import OpenCall
from wasat.providers.gemini.reading import (
    DIALECT,
    MakeId,
    answer,
    encode_json,
    fields_of,
    finish_word,
    linked,
    no_candidate,
    opaque_of,
    part_of,
    raw_parts,
    read,
)
from wasat.types.exchange import ModelResponse
from wasat.types.messages import Message
from wasat.types.parts import Part, Text, Thought


class Assembly:
    """The documents of a stream in, one answer out."""

    def __init__(self, api: Api, make_id: MakeId) -> None:
        self._api = api
        self._make_id = make_id
        self._documents: list[Raw] = []
        self._contents: list[Raw] = []
        self._parts: list[tuple[Part | None, Raw]] = []
        """What came so far; None keeps the place of a call that is still coming."""
        self._open: OpenCall | None = None
        self._opened_at = 0
        self._verbatim = True
        """Whether a single content can go back as it came, because nothing in it had to be put together."""
        self._chunk = lean.Chunk()
        self._candidate = lean.Candidate()

    @property
    def is_empty(self) -> bool:
        return not self._documents

    def add(self, document: bytes) -> list[Part]:
        """What a document adds: deltas of text, and whatever else is whole."""
        found = read(document)
        self._documents.append(found.raw)
        self._chunk = _later(self._chunk, found.chunk)
        if found.candidate is not None:
            self._candidate = _later_candidate(self._candidate, found.candidate)
        made: list[Part] = []
        if found.parts:
            self._contents.append(found.content)
            for part, raw in zip(found.parts, raw_parts(found.content), strict=True):
                self._add_part(part, raw, made)
        return made

    def _add_part(self, part: lean.Part, raw: Raw, made: list[Part]) -> None:
        call = part.function_call
        if call is not None and (self._open or call.will_continue or call.partial_args is not None):
            self._add_streamed(call, raw, made)
        elif call is not None and call.name is None and fields_of(raw).keys() == {"functionCall"}:
            self._verbatim = False  # the end of a call that had said its end already
        else:
            self._keep(part_of(part, self._make_id) or opaque_of(raw), raw, made)

    def _keep(self, part: Part, raw: Raw, made: list[Part]) -> None:
        self._parts.append((part, raw))
        made.append(part)

    def _add_streamed(self, call: lean.Call, raw: Raw, made: list[Part]) -> None:
        self._verbatim = False
        if call.name or self._open is None:
            self._close_call(made)
            self._open, self._opened_at = OpenCall(call, raw), len(self._parts)
            self._parts.append((None, raw))
        else:
            self._open.add(call, raw)
        if not call.will_continue:
            self._close_call(made)

    def _close_call(self, made: list[Part]) -> None:
        if self._open is None:
            return
        whole = Raw(self._open.whole())
        self._open = None
        try:
            part = lean.read_part(whole)
        except lean.READ_FAILURES:
            part, whole = lean.recover(lean.Part, whole)
        call = part_of(part, self._make_id) or opaque_of(whole)
        self._parts[self._opened_at] = (call, whole)
        made.append(call)

    def end(self) -> list[Part]:
        """The bytes are over; a call left open is whole only if the model itself said that it was done."""
        made: list[Part] = []
        if finish_word(self._candidate.finish_reason, self._api) == "STOP":
            self._close_call(made)
        return made

    def response(self) -> ModelResponse:
        if self._candidate.finish_reason is None and not self._parts:
            no_candidate(self._chunk.prompt_feedback)
        return answer(self._message(), self._chunk, self._candidate, tuple(self._documents), self._api)

    def _message(self) -> Message:
        pieces = [(part, raw) for part, raw in self._parts if part is not None]
        if self._verbatim and len(self._contents) == 1:
            return Message("model", linked([part for part, _ in pieces], ()), DIALECT, self._contents[0])
        joined = _joined(pieces)
        if not joined:
            return Message("model", (), DIALECT)
        # Whatever else the contents of the stream held beside their parts stays too; of two the later counts.
        content = {name: value for one in self._contents for name, value in fields_of(one).items()}
        parts = b",".join([raw for _, raw in joined])
        content |= {"role": Raw(b'"model"'), "parts": Raw(b"[%b]" % parts)}
        return Message("model", linked([part for part, _ in joined], ()), DIALECT, Raw(encode_json(content)))


def _later(before: lean.Chunk, now: lean.Chunk) -> lean.Chunk:
    """Both as one: what is said later in a stream counts, what is not said again stays."""
    now.usage_metadata = now.usage_metadata or before.usage_metadata
    now.model_version = now.model_version or before.model_version
    now.response_id = now.response_id or before.response_id
    now.prompt_feedback = now.prompt_feedback or before.prompt_feedback
    return now


def _later_candidate(before: lean.Candidate, now: lean.Candidate) -> lean.Candidate:
    now.finish_reason = now.finish_reason or before.finish_reason
    now.finish_message = now.finish_message or before.finish_message
    now.continuation_token = now.continuation_token or before.continuation_token
    return now


def _joined(pieces: list[tuple[Part, Raw]]) -> list[tuple[Part, bytes | Raw]]:
    """Text that only the stream cut into deltas, as one part again; what says more than its text stays apart.

    A signed part is never merged and never dropped, even when its text is empty: the server wants it back.
    """
    joined: list[tuple[Part, bytes | Raw]] = []
    for kind, group in groupby(pieces, _plain_kind):
        if kind is None:
            joined += group
            continue
        run = [(part.text, raw) for part, raw in group if isinstance(part, kind) and part.text]
        if len(run) == 1:
            joined.append((kind(run[0][0]), run[0][1]))
        elif run:
            text = "".join([text for text, _ in run])
            joined.append((kind(text), encode_json({"text": text, **({"thought": True} if kind is Thought else {})})))
    return joined


def _plain_kind(piece: tuple[Part, Raw]) -> type[Text] | type[Thought] | None:
    part, raw = piece
    if not isinstance(part, Text | Thought) or part.signature is not None:
        return None
    return type(part) if fields_of(raw).keys() <= {"text", "thought"} else None
