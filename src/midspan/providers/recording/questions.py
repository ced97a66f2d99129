"""A request as its provider sees it, in JSON: what goes out to Gemini, or else our own values."""

import sys
from typing import TYPE_CHECKING, Optional

from msgspec import Raw, Struct

from midspan.providers.provider import Provider
from midspan.providers.recording.written import written_messages, written_value
from midspan.types.exchange import ModelRequest

if TYPE_CHECKING:
    from midspan.providers.gemini.client import Gemini


class Question(Struct, frozen=True):
    """What is compared of a request."""

    model: str
    request: Raw
    path: str | None = None
    """Where it goes, of a service whose paths we know."""


def question_of(provider: Provider, request: ModelRequest, *, whole: bool) -> Question:
    gemini = _gemini(provider)
    if gemini is None:
        fields = {"setup": request.setup, "messages": written_messages(request.history.messages)}
        more = {} if request.continuation is None else {"continuation": request.continuation}
        return Question(provider.model, Raw(written_value(fields | more)))
    from midspan.providers.gemini.encode import request_body

    mode = "generateContent" if whole else "streamGenerateContent?alt=sse"
    path = f"{gemini.api.endpoint.model(gemini.model)}:{mode}"
    return Question(gemini.model, Raw(request_body(request, gemini.capabilities)), path)


def _gemini(provider: Provider) -> Optional["Gemini"]:
    """The provider, if it is Gemini; where that was never loaded it cannot be."""
    loaded = sys.modules.get("midspan.providers.gemini.client")
    return provider if loaded is not None and isinstance(provider, loaded.Gemini) else None
