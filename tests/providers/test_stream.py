"""From events to messages, and between a stream and a whole response."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from msgspec import Raw

from midspan._types.exchange import (
    ArgumentsPartDelta,
    DataPartDelta,
    FinishReason,
    ModelEvent,
    ModelResponse,
    PartDelta,
    PartEnd,
    PartStart,
    TextPartDelta,
    ThoughtPartDelta,
)
from midspan._types.messages import Message
from midspan._types.parts import Blob, ProviderData, Text, Thought, ToolCall
from midspan.errors import IncompleteResponseError, MalformedResponseError
from midspan.providers.provider import ensure_aclose
from midspan.providers.stream import StreamAccumulator, collect, events_of

DATA = ProviderData("x", Raw(b'"signature"'))


def accumulated(*events: Any) -> StreamAccumulator:
    accumulator = StreamAccumulator()
    for event in events:
        accumulator.add(event)
    return accumulator


def test_parts_are_built_from_deltas_in_the_order_of_their_indices() -> None:
    accumulator = accumulated(
        PartStart(1, Text("It ")),
        PartStart(0, Thought("")),
        PartDelta(1, TextPartDelta("is ")),
        PartDelta(0, ThoughtPartDelta("hm")),
        PartDelta(0, DataPartDelta(provider_data=DATA)),
        PartEnd(0),
        PartDelta(1, TextPartDelta("3.")),
        PartStart(2, Blob("audio/wav", "AA")),
        PartDelta(2, DataPartDelta("BB")),
        PartEnd(2),
        PartEnd(1, Text("It is 3!")),
    )
    assert accumulator.parts() == (Thought("hm", DATA), Text("It is 3!"), Blob("audio/wav", "AABB"))


def test_a_part_that_ends_without_a_start_stays_when_text_follows() -> None:
    accumulator = accumulated(PartEnd(0, Blob("image/png", "AA")))
    assert accumulator.add_text("An image.") == [PartStart(1, Text("An image."))]
    assert accumulator.parts() == (Blob("image/png", "AA"), Text("An image."))


@pytest.mark.parametrize(
    ("pieces", "arguments", "error"),
    [
        (['{"a":', " 1}"], {"a": 1}, None),
        ([], {}, None),
        ([" "], {}, None),
        (['{"a":'], {}, "the arguments are not valid JSON"),
        (['{"a": 1, "a": 2}'], {}, 'the arguments are not valid JSON: "a" is given twice'),
        (["5"], {}, "the arguments must be a JSON object, not int"),
    ],
)
def test_arguments_are_decoded_when_the_call_ends(pieces: list[str], arguments: Any, error: str | None) -> None:
    deltas = [PartDelta(0, ArgumentsPartDelta(piece)) for piece in pieces]
    [call] = accumulated(PartStart(0, ToolCall("1", "f")), *deltas, PartEnd(0)).parts()
    assert isinstance(call, ToolCall)
    assert call.arguments == arguments
    if error is None:
        assert (call.arguments_error, call.raw_arguments) == (None, None)
    else:
        assert (call.arguments_error or "").startswith(error)
        assert call.raw_arguments == "".join(pieces)


@pytest.mark.parametrize("reason", [FinishReason.LENGTH, FinishReason.CUT, FinishReason.INTERRUPTED])
def test_call_without_an_end_is_incomplete_even_if_its_arguments_can_be_decoded(reason: FinishReason) -> None:
    accumulator = accumulated(PartStart(0, ToolCall("1", "f")), PartDelta(0, ArgumentsPartDelta('{"a": 1}')))
    [call] = accumulator.response(reason).message.calls
    assert (call.arguments, call.raw_arguments) == ({}, '{"a": 1}')
    assert "incomplete" in (call.arguments_error or "")
    [ended] = accumulator.response(FinishReason.END).message.calls  # some services leave out the end of the last part
    assert ended.arguments == {"a": 1}


def test_event_for_a_part_that_is_not_open_is_an_error() -> None:
    for event in (PartDelta(0, TextPartDelta("x")), PartEnd(0)):
        with pytest.raises(MalformedResponseError, match="part 0, which is not open"):
            accumulated(event)
    with pytest.raises(MalformedResponseError):
        accumulated(PartStart(0, Text("")), PartEnd(0), PartDelta(0, TextPartDelta("x")))


def test_pieces_without_indices_become_events() -> None:
    accumulator = StreamAccumulator()
    events = [
        *accumulator.add_thought("hm"),
        *accumulator.add_text("a"),
        *accumulator.add_text("b"),
        *accumulator.add_part(ToolCall("1", "f")),
        *accumulator.add_part(Text("c", DATA)),
        *accumulator.add_part(Text("d")),
        *accumulator.end_current(),
    ]
    expected = (Thought("hm"), Text("ab"), ToolCall("1", "f"), Text("c", DATA), Text("d"))
    assert accumulator.parts() == accumulated(*events).parts() == expected
    assert [type(event).__name__ for event in events[:5]] == [
        "PartStart",
        "PartEnd",
        "PartStart",
        "PartDelta",
        "PartEnd",
    ]


def test_response_can_be_streamed_and_collected() -> None:
    response = ModelResponse(Message("model", (Text("a"), ToolCall("1", "f"))), FinishReason.END)

    async def stream() -> AsyncIterator[ModelEvent]:
        for event in events_of(response):
            yield event

    assert asyncio.run(collect(stream())) is response


def test_error_carries_the_partial_response_and_a_stream_without_a_response_is_cut() -> None:
    async def stream(error: Exception | None) -> AsyncIterator[ModelEvent]:
        yield PartStart(0, Text("a"))
        yield PartDelta(0, TextPartDelta("b"))
        if error is not None:
            raise error

    with pytest.raises(IncompleteResponseError) as raised:
        asyncio.run(collect(stream(IncompleteResponseError("gone"))))
    partial = raised.value.partial_response
    assert (partial.message.text, partial.requests) == ("ab", 0)
    cut = asyncio.run(collect(stream(None)))
    assert (cut.message.text, cut.finish_reason) == ("ab", FinishReason.CUT)


def test_error_before_the_first_event_has_no_partial_response() -> None:
    async def stream() -> AsyncIterator[ModelEvent]:
        raise IncompleteResponseError("gone")
        yield  # a generator

    with pytest.raises(IncompleteResponseError) as raised:
        asyncio.run(collect(stream()))
    assert raised.value.partial_response is None


def test_partial_response_of_the_provider_is_kept() -> None:
    own = ModelResponse(Message("model", (Text("own"),)), FinishReason.CUT)

    async def stream() -> AsyncIterator[ModelEvent]:
        yield PartStart(0, Text("a"))
        error = IncompleteResponseError("gone")
        error.partial_response = own
        raise error

    with pytest.raises(IncompleteResponseError) as raised:
        asyncio.run(collect(stream()))
    assert raised.value.partial_response is own


def test_iterator_that_is_not_a_generator_is_closed_if_it_can_be() -> None:
    closed: list[bool] = []

    class Plain:
        def __init__(self) -> None:
            self._numbers = iter((1, 2))

        def __aiter__(self) -> "Plain":
            return self

        async def __anext__(self) -> int:
            return next(self._numbers)

    class Closable(Plain):
        async def aclose(self) -> None:
            closed.append(True)

    async def main(items: AsyncIterator[int]) -> None:
        async with aclosing(ensure_aclose(items)) as numbers:
            assert await anext(numbers) == 1

    asyncio.run(main(Plain()))
    assert closed == []
    asyncio.run(main(Closable()))
    assert closed == [True]
