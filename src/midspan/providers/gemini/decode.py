"""What Gemini sent, as our values: pure functions and one state machine that is fed bytes.

Above is the client, which has the bytes; below are `framing`, which cuts them into documents, `reading`, which says
what a document means, and `stream`, which makes events and one response of many. Nothing here knows of connections,
deadlines or retries.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec import Raw
from msgspec.structs import replace

from midspan.errors import MalformedResponse, ProviderError
from midspan.providers.gemini import response_structs as structs
from midspan.providers.gemini.capabilities import Api
from midspan.providers.gemini.framing import Framing
from midspan.providers.gemini.proto import dump, load
from midspan.providers.gemini.reading import (
    DIALECT,
    MakeId,
    content_of,
    encode_json,
    fields_of,
    linked,
    message_of,
    no_candidate,
    parts_of,
    raw_parts,
    read,
    read_part,
    response_of,
)
from midspan.providers.gemini.stream import StreamDecoder
from midspan.types.exchange import Citation, ModelResponse, PartEvent
from midspan.types.messages import Message
from midspan.types.parts import ProviderData, ToolCall, local_id

if TYPE_CHECKING:
    from midspan.providers.gemini import wire


def response(body: bytes, api: Api = Api.DEVELOPER, *, make_id: MakeId = local_id) -> ModelResponse:
    """The response in the body of a plain, unstreamed answer."""
    raw, chunk, candidate = read(body)
    message = message_of(candidate, make_id)
    return response_of(message, chunk, candidate or no_candidate(chunk.prompt_feedback), (raw,), api)


def response_and_token(body: bytes, api: Api) -> tuple[ModelResponse, str | None]:
    """The same, and the token with which a response that is not complete can be continued."""
    raw, chunk, candidate = read(body)
    found = candidate or no_candidate(chunk.prompt_feedback)
    return response_of(message_of(candidate, local_id), chunk, found, (raw,), api), found.continuation_token


class ResponseStream:
    """A streamed response: feed it bytes as they come, take the events that they complete, at the end the whole.

    An error that the server sends within the stream is raised after the events before it.
    """

    def __init__(self, api: Api = Api.DEVELOPER, *, make_id: MakeId = local_id, first_index: int = 0) -> None:
        self._framing = Framing()
        self._decoder = StreamDecoder(api, make_id, first_index)

    # What is fed is read at once, whether or not the caller takes the events.

    def feed(self, piece: bytes) -> Iterable[PartEvent]:
        events: list[PartEvent] = []
        try:
            for document in self._framing.feed(piece):
                events += self._decoder.add(document)
        except ProviderError as error:
            return _then(events, error)
        return events

    def end(self) -> Iterable[PartEvent]:
        """The bytes are over."""
        events: list[PartEvent] = []
        try:
            for document in self._framing.end():
                events += self._decoder.add(document)
        except ProviderError as error:
            # If the last document of a stream was cut, it has no finish reason, and the response says so.
            if not isinstance(error, MalformedResponse) or not self._framing.streams:
                return _then(events, error)
        return events + self._decoder.end()

    @property
    def is_empty(self) -> bool:
        """Whether nothing has come yet that says anything."""
        return self._decoder.is_empty

    @property
    def next_index(self) -> int:
        return self._decoder.next_index

    @property
    def continuation_token(self) -> str | None:
        return self._decoder.continuation_token

    def response(self) -> ModelResponse:
        """The whole response; without a finish reason it has `FinishReason.CUT`."""
        return self._decoder.response()


def _then(events: list[PartEvent], error: ProviderError) -> Iterator[PartEvent]:
    yield from events
    raise error


def citations_of(response: ModelResponse) -> tuple[Citation, ...]:
    """The sources that Google searched or read for a response, each once, in the order in which it names them."""
    from midspan.providers.gemini import wire  # all messages of the API, which a plain run does not need

    found: dict[str, Citation] = {}
    for document in response.raw:
        for candidate in load(wire.GenerateContentResponse, document).candidates or []:
            for citation in _cited(candidate):
                found.setdefault(citation.url, citation)
    return tuple(found.values())


def _cited(candidate: "wire.Candidate") -> Iterator[Citation]:
    grounding = candidate.grounding_metadata
    for chunk in (grounding.grounding_chunks if grounding is not None else None) or []:
        for place in (chunk.web, chunk.retrieved_context, chunk.maps):
            if place is not None and place.uri:
                yield Citation(place.uri, place.title or "")
        if chunk.image is not None and chunk.image.source_uri:
            yield Citation(chunk.image.source_uri, chunk.image.title or "")
    pages = candidate.url_context_metadata
    for page in (pages.url_metadata if pages is not None else None) or []:
        if page.retrieved_url:
            yield Citation(page.retrieved_url)


def message(content: bytes, *, make_id: MakeId = local_id) -> Message:
    """A content of a conversation, also one that we did not receive ourselves, as a message that keeps its bytes."""
    found, raw = content_of(Raw(content))
    raws = found.parts or []
    if any(read_part(part)[0] == structs.Part() for part in raws):
        # Nothing that we know, so perhaps in the other casing: https://protobuf.dev/programming-guides/json
        from midspan.providers.gemini import wire  # as above

        cased, cased_raw = content_of(Raw(dump(load(wire.Content, raw))))
        if _known(cased.parts) != _known(raws):
            found, raw = cased, cased_raw
    role = _ROLES.get(found.role or "user", "user")
    if found.role != role:
        raw = Raw(encode_json({**fields_of(raw), "role": role}))
    parts = parts_of(raw_parts(raw) if found.parts else (), make_id)
    return Message("model" if role == "model" else "user", parts, ProviderData(DIALECT, raw))


def _known(raws: list[Raw] | None) -> list[structs.Part]:
    return [read_part(raw)[0] for raw in raws or ()]


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
