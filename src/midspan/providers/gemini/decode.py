"""What Gemini sent, as our values: pure functions and one machine that is fed bytes.

Above is the client, which has the bytes; below are `framing`, which cuts them into documents, `reading`, which says
what a document means, and `assembly`, which makes one answer of many. Nothing here knows of connections, deadlines or
retries.
"""

from collections.abc import Iterable, Iterator

from msgspec import Raw
from msgspec.structs import replace

from midspan.errors import MalformedResponse, ProviderError
from midspan.providers.gemini import lean, wire
from midspan.providers.gemini.assembly import Assembly
from midspan.providers.gemini.capabilities import Api
from midspan.providers.gemini.framing import Framing
from midspan.providers.gemini.proto import dump, load
from midspan.providers.gemini.reading import (
    DIALECT,
    MakeId,
    answer,
    encode_json,
    fields_of,
    linked,
    no_candidate,
    parts_of,
    read,
)
from midspan.types.exchange import ModelResponse
from midspan.types.messages import Message
from midspan.types.parts import Part, ToolCall, local_id


def response(body: bytes, api: Api = Api.DEVELOPER, *, make_id: MakeId = local_id) -> ModelResponse:
    """The answer in the body of a plain, unstreamed response."""
    found = read(body)
    candidate = no_candidate(found.chunk.prompt_feedback) if found.candidate is None else found.candidate
    message = Message("model", tuple(parts_of(found.parts, found.content, make_id)), DIALECT, found.content)
    return answer(message, found.chunk, candidate, (found.raw,), api)


class ResponseStream:
    """A streamed answer: feed it bytes as they come, take the parts that they complete, at the end the whole.

    A part of text is a delta. An error that the server sends within the stream is raised after the parts before it.
    """

    def __init__(self, api: Api = Api.DEVELOPER, *, make_id: MakeId = local_id) -> None:
        self._framing = Framing()
        self._assembly = Assembly(api, make_id)

    # What is fed is read at once, whether or not the caller takes the parts.

    def feed(self, piece: bytes) -> Iterable[Part]:
        parts: list[Part] = []
        try:
            for document in self._framing.feed(piece):
                parts += self._assembly.add(document)
        except ProviderError as error:
            return _then(parts, error)
        return parts

    def end(self) -> Iterable[Part]:
        """The bytes are over."""
        parts: list[Part] = []
        try:
            for document in self._framing.end():
                parts += self._assembly.add(document)
        except ProviderError as error:
            # If the last document of a stream was cut, nobody said why the model stopped, and so it will be told.
            if not isinstance(error, MalformedResponse) or not self._framing.streams:
                return _then(parts, error)
        return parts + self._assembly.end()

    @property
    def is_empty(self) -> bool:
        """Nothing has come yet that says anything."""
        return self._assembly.is_empty

    def response(self) -> ModelResponse:
        """The whole answer; one that nobody finished has `FinishReason.CUT`."""
        return self._assembly.response()


def _then(parts: list[Part], error: ProviderError) -> Iterator[Part]:
    yield from parts
    raise error


def message(content: bytes, *, make_id: MakeId = local_id) -> Message:
    """A content of a conversation, also one that we did not see being made, as a message that keeps its bytes."""
    found, raw = _read_content(Raw(content))
    if lean.Part() in (found.parts or ()):
        # Nothing that we know, so perhaps in the other casing: https://protobuf.dev/programming-guides/json
        cased, cased_raw = _read_content(Raw(dump(load(wire.Content, raw))))
        if cased.parts != found.parts:
            found, raw = cased, cased_raw
    role = _ROLES.get(found.role or "user", "user")
    if found.role != role:
        raw = Raw(encode_json({**fields_of(raw), "role": role}))
    parts = tuple(parts_of(found.parts or [], raw, make_id))
    return Message("model" if role == "model" else "user", parts, DIALECT, raw)


def _read_content(raw: Raw) -> tuple[lean.Content, Raw]:
    try:
        return lean.read_content(raw), raw
    except lean.READ_FAILURES:
        return lean.recover(lean.Content, raw)


def conversation(contents: Iterable[bytes], *, make_id: MakeId = local_id) -> tuple[Message, ...]:
    """The contents of a request as messages; results without an id get the id of the call that they answer."""
    messages: list[Message] = []
    waiting: tuple[ToolCall, ...] = ()
    for content in contents:
        made = message(content, make_id=make_id)
        if made.role == "model":
            waiting = made.calls
        elif made.results:
            made = replace(made, parts=linked(made.parts, waiting))
            answered = {result.id for result in made.results}
            waiting = tuple(call for call in waiting if call.id not in answered)
        messages.append(made)
    return tuple(messages)


# The tools of older clients speak as `function` or `tool`; the API of today wants `user`.
_ROLES = {"user": "user", "model": "model", "assistant": "model", "function": "user", "tool": "user"}
