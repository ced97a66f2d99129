"""A streamed response: bytes in, model events out, and one response at the end.

Above is the client, which feeds the bytes; below are `framing`, which cuts them into documents, and `decode`, which
says what a document means.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec
from msgspec import Raw, Struct

from midspan._types.exchange import ModelResponse, PartEnd, PartEvent, PartStart
from midspan._types.messages import Message
from midspan._types.parts import NO_BYTES, Part, ProviderData, Text, Thought, ToolCall, local_id
from midspan.errors import MalformedResponse, ProviderError
from midspan.providers.gemini.capabilities import Api
from midspan.providers.gemini.decode import (
    ORIGIN,
    Candidate,
    Chunk,
    MakeId,
    Tokens,
    WireCall,
    encode_json,
    finish_word,
    known_part_of,
    linked,
    no_candidate,
    part_of,
    part_of_any,
    raw_parts,
    read,
    read_content,
    read_part,
    response_of,
)
from midspan.providers.gemini.framing import Framing
from midspan.providers.gemini.lenient import READ_ERRORS, fields_of
from midspan.providers.gemini.streamed_arguments import OpenCall, is_open
from midspan.providers.stream import StreamAccumulator


class _DeltaPart(Struct, forbid_unknown_fields=True, gc=False):
    text: str
    thought: bool | None = None


class _DeltaContent(Struct, forbid_unknown_fields=True, gc=False):
    parts: tuple[_DeltaPart]
    role: Literal["model"]


class _DeltaCandidate(Struct, rename="camel", gc=False):
    content: _DeltaContent
    finish_reason: str | int | None = None
    index: Literal[0] | None = None
    finish_message: None = None
    continuation_token: None = None


class _Delta(Struct, rename="camel", gc=False):
    """A chunk that adds one piece of text, as most of a stream do, read in one pass and strictly.

    What can be read as one says nothing more that counts; what cannot is read as a `Chunk`.
    """

    candidates: tuple[_DeltaCandidate]
    usage_metadata: Tokens | None = None
    model_version: str | None = None
    response_id: str | None = None
    prompt_feedback: None = None
    error: None = None


_read_delta = msgspec.json.Decoder(_Delta).decode


class StreamDecoder:
    """Feed it the bytes as they arrive, take the events that they complete, and at the end the whole response.

    An error that the server sends within the stream is raised after the events before it. The accumulator builds the
    values of the parts. Beside it this class keeps the bytes of each part, so that the message can go back as the
    server sent it.
    """

    def __init__(self, api: Api = Api.DEVELOPER, *, make_id: MakeId = local_id, first_index: int = 0) -> None:
        self._framing = Framing()
        self._api = api
        self._make_id = make_id
        self._accumulator = StreamAccumulator(first_index)
        self._documents: list[Raw] = []
        self._contents: list[Raw] = []
        """Contents that held anything but a delta of text."""
        self._content_count = 0
        self._last_delta = NO_BYTES
        self._bytes: dict[int, list[tuple[Raw, bool]]] = {}
        """By part, the bytes of its pieces. True: a document that holds nothing but one delta of text."""
        self._text_bytes: list[tuple[Raw, bool]] = []
        """Those of the text that is being streamed."""
        self._calls: dict[int, ToolCall] = {}
        self._open: OpenCall | None = None
        self._open_index = 0
        self._verbatim = True
        """Whether a single content can go back as it came, because nothing in it had to be put together."""
        self._chunk = Chunk()
        self._candidate = Candidate()

    # What is fed is read at once, whether or not the caller takes the events.

    def feed(self, piece: bytes) -> Iterable[PartEvent]:
        events: list[PartEvent] = []
        try:
            for document in self._framing.feed(piece):
                events += self.add(document)
        except ProviderError as error:
            return _then_raise(events, error)
        return events

    def end(self) -> Iterable[PartEvent]:
        """The bytes are over. A call that is still open is complete only if the model itself said that it was done."""
        events: list[PartEvent] = []
        try:
            for document in self._framing.end():
                events += self.add(document)
        except ProviderError as error:
            # If the last document of a stream was cut, it has no finish reason, and the response says so.
            if not isinstance(error, MalformedResponse) or not self._framing.streams:
                return _then_raise(events, error)
        events += self._accumulator.end_current()
        if finish_word(self._candidate.finish_reason, self._api) == "STOP":
            events += self._close_call()
        return events

    @property
    def is_empty(self) -> bool:
        """Whether nothing has come yet that says anything."""
        return not self._documents

    @property
    def next_index(self) -> int:
        """The index after those of all events so far."""
        return self._accumulator.next_index

    @property
    def continuation_token(self) -> str | None:
        return self._candidate.continuation_token

    def add(self, document: bytes) -> list[PartEvent]:
        """Return the events of one document, for callers that have cut the bytes themselves."""
        try:
            delta = _read_delta(document)
        except READ_ERRORS:
            return self._add_any(document)
        raw = Raw(document)
        self._documents.append(raw)
        self._last_delta = raw
        self._content_count += 1
        candidate = delta.candidates[0]
        _merge_chunk(self._chunk, delta)
        self._candidate.finish_reason = candidate.finish_reason or self._candidate.finish_reason
        (found,) = candidate.content.parts
        return self._add_words(Thought if found.thought else Text, found.text, (raw, True))

    def _add_words(self, kind: type[Text] | type[Thought], text: str, piece: tuple[Raw, bool]) -> list[PartEvent]:
        """Plain text: the stream cut it into deltas, so adjacent ones are one part."""
        accumulator = self._accumulator
        events = accumulator.add_text(text) if kind is Text else accumulator.add_thought(text)
        if len(events) > 1 or type(events[0]) is PartStart:
            self._text_bytes = self._bytes[events[-1].index] = []
        if text:
            self._text_bytes.append(piece)
        return events

    def _add_any(self, document: bytes) -> list[PartEvent]:
        document_raw, chunk, candidate = read(document)
        self._documents.append(document_raw)
        _merge_chunk(self._chunk, chunk)
        self._chunk.prompt_feedback = chunk.prompt_feedback or self._chunk.prompt_feedback
        if candidate is not None:
            _merge_candidate(self._candidate, candidate)
        events: list[PartEvent] = []
        content, raws = read_content(candidate)
        if raws:
            self._content_count += 1
            self._contents.append(content)
            for raw in raws:
                events += self._add_part(raw)
        return events

    def _add_part(self, raw: Raw) -> list[PartEvent]:
        value = known_part_of(raw, self._make_id)
        if value is None:
            part, raw = read_part(raw)
            call = part.function_call
            if call is not None and (self._open or call.will_continue or call.partial_args is not None):
                return self._add_streamed(call, raw)
            if call is not None and call.name is None and fields_of(raw).keys() == {"functionCall"}:
                self._verbatim = False  # the end of a call that had said its end already
                return []
            value = part_of_any(part, raw, self._make_id)
        if isinstance(value, Text | Thought) and value.provider_data is None:
            return self._add_words(type(value), value.text, (raw, False))
        events: list[PartEvent] = []
        if isinstance(value, ToolCall):
            if self._open is not None:
                events += self._close_call()
            twin = next((index for index, call in self._calls.items() if _is_same(value, call)), None)
            if twin is not None:
                return [*events, *self._replace(twin, value, raw)]
        return events + self._add_whole(value, raw)

    def _add_whole(self, part: Part, raw: Raw) -> list[PartEvent]:
        events = self._accumulator.add_part(part)
        self._keep(events[-1].index, part, raw)
        return events

    def _keep(self, index: int, part: Part, raw: Raw) -> None:
        self._bytes[index] = [(raw, False)]
        if isinstance(part, ToolCall):
            self._calls[index] = part

    def _replace(self, index: int, call: ToolCall, raw: Raw) -> list[PartEvent]:
        """A chunk that came twice. The server wants back the call that has more to it, which is the signed one."""
        self._verbatim = False
        if call.provider_data is None:
            return []
        self._keep(index, call, raw)
        return [self._accumulator.add(PartEnd(index, call))]

    def _add_streamed(self, call: WireCall, raw: Raw) -> list[PartEvent]:
        events: list[PartEvent] = []
        self._verbatim = False
        if call.name or self._open is None:
            events += self._close_call()
            events += self._accumulator.end_current()
            self._open, self._open_index = OpenCall(call, raw), self._accumulator.reserve()
        else:
            self._open.add(call, raw)
        return events if is_open(call) else events + self._close_call()

    def _close_call(self) -> list[PartEvent]:
        if self._open is None:
            return []
        whole, self._open = Raw(self._open.whole()), None
        part = part_of(whole, self._make_id)
        self._keep(self._open_index, part, whole)
        started = self._accumulator.add(PartStart(self._open_index, part))
        return [started, self._accumulator.add(PartEnd(self._open_index, part))]

    def response(self) -> ModelResponse:
        """Return the whole response; without a finish reason it has `FinishReason.CUT`."""
        if self._candidate.finish_reason is None and self._accumulator.is_empty:
            no_candidate(self._chunk.prompt_feedback)
        return response_of(self._message(), self._chunk, self._candidate, tuple(self._documents), self._api)

    def _message(self) -> Message:
        parts = self._accumulator.parts()
        if self._verbatim and self._content_count == 1:
            alone = self._contents[0] if self._contents else read_content(read(self._last_delta)[2])[0]
            return Message("model", self._as_sent(parts, alone), ProviderData(ORIGIN, alone))
        pairs = [
            (part, pieces)
            for part, pieces in zip(parts, [self._bytes[index] for index in sorted(self._bytes)], strict=True)
            if pieces
        ]
        if self._open is not None:
            pairs = _joined(pairs)
        kept = [(part, _bytes_of(part, pieces)) for part, pieces in pairs]
        if not kept:
            return Message("model", (), ProviderData(ORIGIN))
        # Whatever else the contents of the stream held beside their parts stays too; of two the later counts.
        content = {name: value for one in self._contents for name, value in fields_of(one).items()}
        joined = b",".join([raw for _, raw in kept])
        content |= {"role": Raw(b'"model"'), "parts": Raw(b"[%b]" % joined)}
        data = ProviderData(ORIGIN, Raw(encode_json(content)))
        return Message("model", linked([part for part, _ in kept], ()), data)

    def _as_sent(self, parts: Sequence[Part], content: Raw) -> tuple[Part, ...]:
        """The parts of a single content, where adjacent texts are as many parts as the server made of them."""
        raws = raw_parts(content)
        if len(raws) == len(parts):
            return linked(parts, ())
        others = iter([part for part in parts if not _is_plain_text(part)])
        again = [part_of(raw, lambda: "") for raw in raws]
        return linked([part if _is_plain_text(part) else next(others) for part in again], ())


def _then_raise(events: list[PartEvent], error: ProviderError) -> Iterator[PartEvent]:
    yield from events
    raise error


def _is_plain_text(part: Part) -> bool:
    return isinstance(part, Text | Thought) and part.provider_data is None


def _is_same(call: ToolCall, known: ToolCall) -> bool:
    """Whether it is the call that is known; Python takes 1, 1.0 and True for equal, JSON does not."""
    if (known.id, known.name) != (call.id, call.name):
        return False
    return known.arguments == call.arguments and encode_json(known.arguments) == encode_json(call.arguments)


def _merge_chunk(kept: Chunk, now: Chunk | _Delta) -> None:
    """What is said later in a stream counts, what is not said again stays."""
    kept.usage_metadata = now.usage_metadata or kept.usage_metadata
    kept.model_version = now.model_version or kept.model_version
    kept.response_id = now.response_id or kept.response_id


def _merge_candidate(kept: Candidate, now: Candidate) -> None:
    kept.finish_reason = now.finish_reason or kept.finish_reason
    kept.finish_message = now.finish_message or kept.finish_message
    kept.continuation_token = now.continuation_token or kept.continuation_token


def _joined(pairs: list[tuple[Part, list[tuple[Raw, bool]]]]) -> list[tuple[Part, list[tuple[Raw, bool]]]]:
    """Texts that only a call stood between which never ended, as one."""
    joined: list[tuple[Part, list[tuple[Raw, bool]]]] = []
    for part, pieces in pairs:
        last, before = joined[-1] if joined else (None, [])
        if isinstance(part, Text) and isinstance(last, Text) and _is_plain_text(part) and _is_plain_text(last):
            joined[-1] = (Text(last.text + part.text), before + pieces)
        else:
            joined.append((part, pieces))
    return joined


def _bytes_of(part: Part, pieces: list[tuple[Raw, bool]]) -> bytes | Raw:
    """The bytes of a part: as they came if it came whole, else written anew."""
    if len(pieces) == 1:
        raw, is_delta = pieces[0]
        return read_content(read(raw)[2])[1][0] if is_delta else raw
    text = {"text": part.text} if isinstance(part, Text | Thought) else {}
    return encode_json({**text, "thought": True} if isinstance(part, Thought) else text)
