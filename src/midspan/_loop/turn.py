"""One response of the model, whole or as events of the run."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from msgspec.structs import replace

from midspan._loop.policies import LimitTracker
from midspan._types.events import RunEvent, TextDelta, ThoughtDelta, ToolCallDelta
from midspan._types.exchange import (
    ArgumentsPartDelta,
    FinishReason,
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
from midspan._types.specs import AnyTool, ToolSpec
from midspan.errors import MidspanError, ProviderError
from midspan.providers.provider import Provider, ensure_aclose
from midspan.tools.source import describe_error
from midspan.tools.tasks import Expired, is_cancelling, with_timeout

NO_RESPONSE = ModelResponse(Message("model", ()), FinishReason.CUT)
"""Stands for a response that broke off before its end."""


async def generate(
    provider: Provider, request: ModelRequest, limits: LimitTracker, *, can_retry: bool
) -> ModelResponse | None:
    """Return the whole response; see `_finish` and `_after_error` for responses that are not complete."""
    response: Any
    try:
        if limits.deadline is None:
            response = await provider.generate(request)
        else:
            response = await with_timeout(provider.generate(request), limits.seconds_left)
    except Expired as expired:
        limits.note_expiry(expired)
        if not expired.late_result:
            return _finish(None, request, limits)
        response = expired.late_result[0]
    except BaseException as error:  # noqa: BLE001 - providers are user code
        return _after_error(error, limits, has_started=False, can_retry=can_retry)
    return _finish(_check(response), request, limits)


class TurnStream:
    """One streamed response. `response` is set when `events` has ended; None if the time of the run is over."""

    response: ModelResponse | None = None
    _has_started = False

    def __init__(self, provider: Provider, request: ModelRequest, turn: int, limits: LimitTracker) -> None:
        self._provider = provider
        self._request = request
        self._turn = turn
        self._limits = limits
        self._calls: dict[int, tuple[int, ToolCall]] = {}
        """Calls with their positions in the turn, by the indices of their parts."""
        self._announced: set[int] = set()
        """Calls whose id and name were in a delta already."""

    async def events(self, *, can_retry: bool) -> AsyncGenerator[RunEvent, None]:
        """Yield the deltas of the response."""
        limits = self._limits
        try:
            events = ensure_aclose(self._provider.stream(self._request))
        except Exception as error:  # noqa: BLE001 - providers are user code
            self.response = _after_error(error, limits, has_started=False, can_retry=can_retry)
            return
        async with aclosing(events):
            while True:
                try:
                    model_event = await with_timeout(anext(events), limits.seconds_left)
                except StopAsyncIteration:
                    break
                except Expired as expired:
                    limits.note_expiry(expired)
                    break
                except BaseException as error:  # noqa: BLE001 - providers are user code
                    self.response = _after_error(error, limits, has_started=self._has_started, can_retry=can_retry)
                    return
                event = self._run_event(model_event)
                if event is not None:
                    yield event
        self.response = _finish(self.response, self._request, limits)

    def _run_event(self, event: ModelEvent) -> RunEvent | None:
        self._has_started = True
        kind = type(event)
        if kind is PartDelta:
            return self._delta(event)  # type: ignore[arg-type]  # a PartDelta
        if kind is PartStart:
            return self._start(event.index, event.part)  # type: ignore[union-attr, arg-type]  # a PartStart
        if kind is not PartEnd:
            self.response = _check(event)
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


def _check(response: Any) -> ModelResponse:
    if not isinstance(response, ModelResponse) or not isinstance(response.message, Message):
        raise ProviderError(f"the model failed: expected a ModelResponse with a Message, got {response!r:.80}")
    return response


def _finish(response: ModelResponse | None, request: ModelRequest, limits: LimitTracker) -> ModelResponse | None:
    """Return the response with calls that were written as text; one that broke off counts as cut.

    None means that there is no response and the time of the run is over.
    """
    if response is None:
        return None if limits.out_of_time() is not None else NO_RESPONSE
    if response.finish_reason is FinishReason.MALFORMED_CALL:
        return recover_malformed_call(response, request.config.tools)
    return response


def _after_error(
    error: BaseException, limits: LimitTracker, *, has_started: bool, can_retry: bool
) -> ModelResponse | None:
    """Return a cut response if it may be requested again, None if the time of the run is over; raise other errors."""
    is_own = isinstance(error, asyncio.CancelledError) and not is_cancelling()
    if not isinstance(error, Exception) and not is_own:
        raise error
    if isinstance(error, ProviderError) and error.retryable:
        if limits.out_of_time() is not None:
            limits.note_expiry(error)
            return None
        partial = error.partial_response
        if (has_started or partial is not None) and can_retry:
            # Requests that were completed before the error count, with their tokens.
            return (
                NO_RESPONSE
                if partial is None
                else replace(NO_RESPONSE, usage=partial.usage, requests=partial.requests + 1)
            )
    if isinstance(error, MidspanError):
        raise error
    raise ProviderError(f"the model failed: {describe_error(error)}") from error


def recover_malformed_call(response: ModelResponse, tools: Sequence[AnyTool]) -> ModelResponse:
    """Return the response with the calls that its `finish_message` quotes. Everything else of the turn stays."""
    if not response.finish_message or response.message.calls:
        return response
    from midspan.providers.prompted.reader import recover_calls  # most runs never need it

    calls = recover_calls(response.finish_message, tuple(tool for tool in tools if isinstance(tool, ToolSpec)))
    if not calls:
        return response
    message = response.message.with_parts((*response.message.parts, *calls))
    return replace(response, message=message, finish_reason=FinishReason.END)
