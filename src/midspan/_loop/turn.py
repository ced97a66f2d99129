"""One response of the model, as events of the run."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from midspan._loop.limits import LimitTracker
from midspan._loop.policy import broken_response, recover_malformed_call
from midspan._types.events import RunEvent, TextDelta, ThoughtDelta, ToolCallDelta, TurnStart
from midspan._types.exchange import (
    ArgumentsPartDelta,
    ModelEvent,
    ModelRequest,
    ModelResponse,
    PartDelta,
    PartEnd,
    PartStart,
    TextPartDelta,
    ThoughtPartDelta,
)
from midspan._types.messages import Message
from midspan._types.parts import Part, Text, Thought, ToolCall
from midspan.errors import MidspanError, ProviderError
from midspan.providers.provider import Provider, ensure_aclose
from midspan.tools.source import describe_error
from midspan.tools.tasks import Expired, is_cancelling, with_timeout


class TurnStream:
    """Reads one response. Afterwards `response` or `error` is set; neither if the time of the run is over.

    `error` is set if the response broke off and may be requested again. Other errors are raised.
    """

    response: ModelResponse | None = None
    error: ProviderError | None = None
    _has_started = False

    def __init__(self, provider: Provider, request: ModelRequest, start: TurnStart, limits: LimitTracker) -> None:
        self.request = request
        self.start = start
        self._provider = provider
        self._turn = start.turn
        self._limits = limits

    async def generate(self) -> None:
        """Read the whole response at once."""
        try:
            response = await with_timeout(self._provider.generate(self.request), self._limits.seconds_left)
        except Expired as expired:
            self._limits.note_expiry(expired)
            if expired.late_result:
                self._set_response(expired.late_result[0])
        except BaseException as error:  # noqa: BLE001 - providers are user code
            self._handle(error)
        else:
            self._set_response(response)

    async def stream(self) -> AsyncGenerator[RunEvent, None]:
        """Yield the deltas of the response."""
        self._calls: dict[int, tuple[int, ToolCall]] = {}
        """Calls with their positions in the turn, by the indices of their parts."""
        self._announced: set[int] = set()
        """Calls whose id and name were in a delta already."""
        try:
            events = ensure_aclose(self._provider.stream(self.request))
        except Exception as error:  # noqa: BLE001 - providers are user code
            self._handle(error)
            return
        async with aclosing(events):
            while True:
                try:
                    model_event = await with_timeout(anext(events), self._limits.seconds_left)
                except StopAsyncIteration:
                    return
                except Expired as expired:
                    self._limits.note_expiry(expired)
                    return
                except BaseException as error:  # noqa: BLE001 - providers are user code
                    self._handle(error)
                    return
                event = self._run_event(model_event)
                if event is not None:
                    yield event

    def result(self) -> ModelResponse:
        """Return the response; one that broke off counts as cut, and calls that were written as text are read."""
        if self.response is None or self.error is not None:
            return broken_response(self.error)
        return recover_malformed_call(self.response, self.request.config.tools)

    def _handle(self, error: BaseException) -> None:
        """Note an error after which the response may be requested again, and raise any other."""
        is_own = isinstance(error, asyncio.CancelledError) and not is_cancelling()
        if not isinstance(error, Exception) and not is_own:
            raise error
        if isinstance(error, ProviderError) and error.retryable:
            has_started = self._has_started or error.partial_response is not None
            if has_started or self._limits.out_of_time() is not None:
                self.error = error
                return
        if isinstance(error, MidspanError):
            raise error
        raise ProviderError(f"the model failed: {describe_error(error)}") from error

    def _set_response(self, response: ModelResponse) -> None:
        if not isinstance(response, ModelResponse) or not isinstance(response.message, Message):
            raise ProviderError(f"the model failed: expected a ModelResponse with a Message, got {response!r:.80}")
        self.response = response

    def _run_event(self, event: ModelEvent) -> RunEvent | None:
        self._has_started = True
        kind = type(event)
        if kind is PartDelta:
            return self._delta(event)  # type: ignore[arg-type]  # a PartDelta
        if kind is PartStart:
            return self._start(event.index, event.part)  # type: ignore[union-attr, arg-type]  # a PartStart
        if kind is not PartEnd:
            self._set_response(event)  # type: ignore[arg-type]  # or it is no event at all
        return None

    def _start(self, index: int, part: Part) -> RunEvent | None:
        if isinstance(part, Text):
            return TextDelta(self._turn, part.text) if part.text else None
        if isinstance(part, Thought):
            return ThoughtDelta(self._turn, part.text) if part.text else None
        if isinstance(part, ToolCall):
            self._calls[index] = len(self._calls), part
        return None

    def _delta(self, event: PartDelta) -> RunEvent | None:
        delta = event.delta
        if type(delta) is TextPartDelta:
            return TextDelta(self._turn, delta.text) if delta.text else None
        if type(delta) is ThoughtPartDelta:
            return ThoughtDelta(self._turn, delta.text) if delta.text else None
        if type(delta) is ArgumentsPartDelta and event.index in self._calls:
            position, call = self._calls[event.index]
            if event.index in self._announced:
                return ToolCallDelta(self._turn, position, delta.json)
            self._announced.add(event.index)
            return ToolCallDelta(self._turn, position, delta.json, call.id, call.name)
        return None
