"""A response that takes several requests: the model pauses, and is asked to continue with the token it gave.

https://ai.google.dev/gemini-api/docs/long-decode
"""

from msgspec import Raw
from msgspec.structs import replace

from midspan.providers.gemini.reading import DIALECT, encode_json, fields_of, raw_parts
from midspan.types.exchange import Budget, FinishReason, ModelResponse, Usage
from midspan.types.messages import Message
from midspan.types.parts import ProviderData

_MAX_REQUESTS = 100


class LongDecode:
    """The responses to the requests so far, which together are one."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._responses: list[ModelResponse] = []
        self._tokens: list[str | None] = []

    def add(self, response: ModelResponse, token: str | None) -> None:
        self._responses.append(response)
        self._tokens.append(token)

    @property
    def next_token(self) -> str | None:
        """The token to continue with; None if the response is complete, over budget, or makes no progress."""
        if not self._responses or self._responses[-1].finish_reason is not FinishReason.CONTINUES:
            return None
        if len(self._responses) >= _MAX_REQUESTS or self._is_over_budget():
            return None
        is_stuck = len(self._tokens) > 1 and self._tokens[-2] == self._tokens[-1]
        return None if is_stuck else self._tokens[-1]

    def _is_over_budget(self) -> bool:
        requests, tokens = self._budget.requests, self._budget.tokens
        if requests is not None and len(self._responses) >= requests:
            return True
        return tokens is not None and sum(response.usage.total for response in self._responses) >= tokens

    def partial_response(self) -> ModelResponse | None:
        """What is complete so far."""
        return self.response() if self._responses else None

    def response(self) -> ModelResponse:
        """All responses as one: all parts in one message, all tokens counted."""
        last = self._responses[-1]
        if len(self._responses) == 1:
            return last
        finish = last.finish_reason
        if not last.message.parts and finish is FinishReason.END:
            finish = FinishReason.CUT  # a model that paused and then says nothing did not come to its end
        return replace(
            last,
            message=self._message(),
            finish_reason=finish,
            usage=sum((response.usage for response in self._responses), Usage()),
            raw=tuple(raw for response in self._responses for raw in response.raw),
            requests=len(self._responses),
        )

    def _message(self) -> Message:
        messages = [response.message for response in self._responses if response.message.parts]
        if not messages:
            return self._responses[-1].message
        contents = [message.provider_data.raw for message in messages if message.provider_data is not None]
        content = {name: value for raw in contents for name, value in fields_of(raw).items()}
        content["parts"] = Raw(b"[%b]" % b",".join(part for raw in contents for part in raw_parts(raw)))
        parts = tuple(part for message in messages for part in message.parts)
        return Message("model", parts, ProviderData(DIALECT, Raw(encode_json(content))))
