"""The documents of a stream, put together to one answer."""

from itertools import groupby

from msgspec import Raw

from midspan.providers.gemini import lean
from midspan.providers.gemini.capabilities import Api
from midspan.providers.gemini.partial import OpenCall
from midspan.providers.gemini.reading import (
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
from midspan.types.exchange import ModelResponse
from midspan.types.messages import Message
from midspan.types.parts import Part, Text, Thought, ToolCall

Piece = tuple[Part | None, Raw, bool]
"""A part and its bytes; or, if the last says so, a delta of text and the bytes of the document that is no more."""


class Assembly:
    """The documents of a stream in, one answer out."""

    def __init__(self, api: Api, make_id: MakeId) -> None:
        self._api = api
        self._make_id = make_id
        self._documents: list[Raw] = []
        self._contents: list[Raw] = []
        """Those that held anything but a delta of text."""
        self._spoken = 0
        """How many documents had parts."""
        self._parts: list[Piece] = []
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
        try:
            delta = lean.read_delta(document)
        except lean.READ_FAILURES:
            return self._add_any(document)
        raw = Raw(document)
        self._documents.append(raw)
        candidate = delta.candidates[0]
        _note(self._chunk, delta)
        self._candidate.finish_reason = candidate.finish_reason or self._candidate.finish_reason
        (found,) = candidate.content.parts
        part = (Thought if found.thought else Text)(found.text)
        self._spoken += 1
        self._parts.append((part, raw, True))
        return [part]

    def _add_any(self, document: bytes) -> list[Part]:
        found = read(document)
        self._documents.append(found.raw)
        _note(self._chunk, found.chunk)
        self._chunk.prompt_feedback = found.chunk.prompt_feedback or self._chunk.prompt_feedback
        if found.candidate is not None:
            _note_candidate(self._candidate, found.candidate)
        made: list[Part] = []
        if found.parts:
            self._spoken += 1
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
        if type(part) is ToolCall:
            twin = next((place for place, (known, *_) in enumerate(self._parts) if _is_same(part, known)), None)
            if twin is not None:
                self._verbatim = False  # a chunk that came twice; the server wants back what is signed
                if part.signature is not None:
                    self._parts[twin] = (part, raw, False)
                return
        self._parts.append((part, raw, False))
        made.append(part)

    def _add_streamed(self, call: lean.Call, raw: Raw, made: list[Part]) -> None:
        self._verbatim = False
        if call.name or self._open is None:
            self._close_call(made)
            self._open, self._opened_at = OpenCall(call, raw), len(self._parts)
            self._parts.append((None, raw, False))
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
        self._parts[self._opened_at] = (call, whole, False)
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
        pieces = [piece for piece in self._parts if piece[0] is not None]
        if self._verbatim and self._spoken == 1:
            alone = self._contents[0] if self._contents else read(pieces[0][1]).content
            return Message("model", linked([part for part, *_ in pieces if part is not None], ()), DIALECT, alone)
        joined = _joined(pieces)
        if not joined:
            return Message("model", (), DIALECT)
        # Whatever else the contents of the stream held beside their parts stays too; of two the later counts.
        content = {name: value for one in self._contents for name, value in fields_of(one).items()}
        parts = b",".join([raw for _, raw in joined])
        content |= {"role": Raw(b'"model"'), "parts": Raw(b"[%b]" % parts)}
        return Message("model", linked([part for part, _ in joined], ()), DIALECT, Raw(encode_json(content)))


def _is_same(call: ToolCall, known: Part | None) -> bool:
    """Whether it is the call that is known; Python takes 1, 1.0 and True for equal, JSON does not."""
    if type(known) is not ToolCall or (known.id, known.name) != (call.id, call.name):
        return False
    return known.arguments == call.arguments and encode_json(known.arguments) == encode_json(call.arguments)


def _note(kept: lean.Chunk, now: lean.Chunk | lean.Delta) -> None:
    """What is said later in a stream counts, what is not said again stays."""
    kept.usage_metadata = now.usage_metadata or kept.usage_metadata
    kept.model_version = now.model_version or kept.model_version
    kept.response_id = now.response_id or kept.response_id


def _note_candidate(kept: lean.Candidate, now: lean.Candidate) -> None:
    kept.finish_reason = now.finish_reason or kept.finish_reason
    kept.finish_message = now.finish_message or kept.finish_message
    kept.continuation_token = now.continuation_token or kept.continuation_token


def _joined(pieces: list[Piece]) -> list[tuple[Part, bytes | Raw]]:
    """Text that only the stream cut into deltas, as one part again; what says more than its text stays apart.

    A signed part is never merged and never dropped, even when its text is empty: the server wants it back.
    """
    joined: list[tuple[Part, bytes | Raw]] = []
    for kind, group in groupby(pieces, _plain_kind):
        if kind is None:
            joined += [(part, raw) for part, raw, _ in group if part is not None]
            continue
        run = [(part.text, raw, is_delta) for part, raw, is_delta in group if isinstance(part, kind) and part.text]
        if len(run) == 1:
            text, raw, is_delta = run[0]
            joined.append((kind(text), raw_parts(read(raw).content)[0] if is_delta else raw))
        elif run:
            text = "".join([text for text, *_ in run])
            joined.append((kind(text), encode_json({"text": text, **({"thought": True} if kind is Thought else {})})))
    return joined


def _plain_kind(piece: Piece) -> type[Text] | type[Thought] | None:
    part, raw, is_delta = piece
    if not isinstance(part, Text | Thought) or part.signature is not None:
        return None
    return type(part) if is_delta or fields_of(raw).keys() <= {"text", "thought"} else None
