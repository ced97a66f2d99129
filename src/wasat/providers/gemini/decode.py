"""What Gemini sent, as our values: pure functions and one machine that is fed bytes.

Above is the client, which has the bytes; below are `framing`, which cuts them into documents, `reading`, which says
what a document means, and `assembly`, which makes one answer of many. Nothing here knows of connections, deadlines or
retries.
"""

from collections.abc import Iterable, Iterator

from msgspec import Raw
from msgspec.structs import replace

from wasat.errors import MalformedResponse
from wasat.providers.gemini import lean
from wasat.providers.gemini.assembly import Assembly
from wasat.providers.gemini.capabilities import Api
from wasat.providers.gemini.framing import Framing
from wasat.providers.gemini.reading import (
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
from wasat.types.exchange import ModelResponse
from wasat.types.messages import Message
from wasat.types.parts import Part, local_id


def response(body: bytes, api: Api = Api.DEVELOPER, *, make_id: MakeId = local_id) -> ModelResponse:
    """The answer in the body of a plain, unstreamed response."""
    document, chunk, candidate, content, parts = read(body)
    if candidate is None:
        candidate = no_candidate(chunk.prompt_feedback)
    message = Message("model", tuple(parts_of(parts, content, make_id)), DIALECT, content)
    return answer(message, chunk, candidate, (document,), api)


class ResponseStream:
    """A streamed answer: feed it bytes as they come, take the parts that they complete, at the end the whole.

    A part of text is a delta. An error that the server sends within the stream is raised after the parts before it.
    """

    def __init__(self, api: Api = Api.DEVELOPER, *, make_id: MakeId = local_id) -> None:
        self._framing = Framing()
        self._assembly = Assembly(api, make_id)

    def feed(self, piece: bytes) -> Iterator[Part]:
        for document in self._framing.feed(piece):
            yield from self._assembly.add(document)

    def end(self) -> Iterator[Part]:
        """The bytes are over."""
        for document in self._framing.end():
            try:
                yield from self._assembly.add(document)
            except MalformedResponse:
                if not self._framing.streams:
                    raise
                return  # the last document was cut; nobody said why the model stopped, and so it will be told
        yield from self._assembly.end()

    def response(self) -> ModelResponse:
        """The whole answer; one that nobody finished has `FinishReason.CUT`."""
        return self._assembly.response()


def message(content: bytes, *, make_id: MakeId = local_id) -> Message:
    """A content of a conversation, also one that we did not see being made, as a message that keeps its bytes."""
    raw = Raw(content)
    try:
        found = lean.read_content(raw)
    except lean.READ_FAILURES:
        found, raw = lean.recover(lean.Content, raw)
    role = _ROLES.get(found.role or "user", "user")
    if found.role != role:
        raw = Raw(encode_json({**fields_of(raw), "role": role}))
    parts = tuple(parts_of(found.parts or [], raw, make_id))
    return Message("model" if role == "model" else "user", parts, DIALECT, raw)


def conversation(contents: Iterable[bytes], *, make_id: MakeId = local_id) -> tuple[Message, ...]:
    """The contents of a request as messages; results without an id get the id of the call that they answer."""
    messages: list[Message] = []
    for content in contents:
        made = message(content, make_id=make_id)
        calls = messages[-1].calls if messages and made.results else ()
        messages.append(replace(made, parts=linked(made.parts, calls)) if calls else made)
    return tuple(messages)


# The tools of older clients speak as `function` or `tool`; the API of today wants `user`.
_ROLES = {"user": "user", "model": "model", "assistant": "model", "function": "user", "tool": "user"}
