"""A request as its provider sees it, in JSON: what it would send, or else our own values."""

from msgspec import Raw, Struct

from midspan._types.exchange import ModelRequest
from midspan.providers.provider import Provider, WireProvider
from midspan.providers.recording.written import written_messages, written_value


class Question(Struct, frozen=True):
    """What is compared of a request."""

    model: str
    request: Raw
    path: str | None = None
    """Where it goes, if the provider shows its requests."""


def question_of(provider: Provider, request: ModelRequest, *, stream: bool) -> Question:
    if isinstance(provider, WireProvider):
        wire = provider.wire_request(request, stream=stream)
        return Question(provider.model, Raw(wire.body), wire.path)
    fields = {"config": request.config, "messages": written_messages(request.history.messages)}
    return Question(provider.model, Raw(written_value(fields)))
