"""OpenAI's Responses API as a provider."""

from typing import Any

from midspan._types.exchange import ModelRequest
from midspan.providers.openai.client import OpenAI
from midspan.providers.openai.profile import STRICT
from midspan.providers.openai_responses.decode import StreamDecoder, decode_response
from midspan.providers.openai_responses.encode import request_body
from midspan.providers.provider import ModelProfile, WireRequest


class OpenAIResponses(OpenAI):
    """A model of OpenAI by the Responses API, which keeps the reasoning of a model from turn to turn."""

    def __init__(self, model: str | None = None, **options: Any) -> None:
        """The options are those of `OpenAI`."""
        super().__init__(model, **options)
        self.profile = ModelProfile(service="OpenAI", schema=STRICT, output_is_object=True)
        self._decode = decode_response
        self._make_decoder = StreamDecoder

    def wire_request(self, request: ModelRequest, *, stream: bool) -> WireRequest:
        """Return what is sent for this request."""
        return WireRequest("responses", request_body(request, stream=stream))
