"""Streams whose connection breaks, after the event that ends the response and before it."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from midspan import Agent, Gemini
from midspan._types.exchange import FinishReason
from midspan.errors import IncompleteResponseError, MalformedResponseError
from midspan.providers import Anthropic, OpenAI, OpenAIResponses, Provider
from midspan.providers.anthropic.decode import StreamDecoder as AnthropicDecoder
from midspan.providers.gemini.stream import StreamDecoder as GeminiDecoder
from midspan.providers.interactions.decode import StreamDecoder as InteractionsDecoder
from midspan.providers.openai.decode import StreamDecoder as OpenAIDecoder
from midspan.providers.openai.profile import PRESETS
from midspan.providers.openai_responses.decode import StreamDecoder as ResponsesDecoder
from tests.http.misbehaving import CHUNKED_HEAD, Exchange, Server, chunk
from tests.http.test_errors import run

KEY = "a-key-for-tests"
GEMINI = [
    {"candidates": [{"content": {"role": "model", "parts": [{"text": "hi"}]}}]},
    {"candidates": [{"finishReason": "STOP"}]},
]
INTERACTIONS = [
    {"event_type": "interaction.created", "interaction": {"id": "i", "status": "in_progress"}},
    {"event_type": "step.start", "index": 0, "step": {"type": "model_output"}},
    {"event_type": "step.delta", "index": 0, "delta": {"type": "text", "text": "hi"}},
    {"event_type": "step.stop", "index": 0},
    {"event_type": "interaction.completed", "interaction": {"id": "i", "status": "completed"}},
]
OPENAI = [
    {"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": None}]},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
]
MESSAGE = {"type": "message", "content": [{"type": "output_text", "text": "hi"}]}
RESPONSES = [
    {"type": "response.output_text.delta", "output_index": 0, "delta": "hi"},
    {"type": "response.completed", "response": {"status": "completed", "output": [MESSAGE]}},
]
ANTHROPIC = [
    {"type": "message_start", "message": {"id": "m", "content": [], "usage": {"input_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
]


@pytest.mark.parametrize(
    ("make_provider", "events"),
    [
        (lambda url: Gemini(api_key=KEY, base_url=url), GEMINI),
        (lambda url: Gemini(api_key=KEY, base_url=url, api="interactions"), INTERACTIONS),
        (lambda url: OpenAI("m", api_key=KEY, base_url=url), OPENAI),
        (lambda url: OpenAIResponses("m", api_key=KEY, base_url=url), RESPONSES),
        (lambda url: Anthropic("m", api_key=KEY, base_url=url), ANTHROPIC),
    ],
    ids=["gemini", "interactions", "openai", "responses", "anthropic"],
)
def test_response_that_has_ended_is_not_requested_again(
    make_provider: Callable[[str], Provider], events: list[dict[str, Any]]
) -> None:
    async def requests_for(events: list[dict[str, Any]]) -> tuple[str, int]:
        async def send_and_break(exchange: Exchange) -> None:
            lines = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
            await exchange.send(CHUNKED_HEAD + chunk(lines.encode()))
            exchange.close()

        async with Server(send_and_break) as server, Agent(make_provider(server.url)) as agent:
            async with agent.stream("Hello") as stream:
                try:
                    async for _ in stream:
                        pass
                    text = stream.result.text
                except IncompleteResponseError:
                    text = "incomplete"
            return text, len(server.requests)

    async def main() -> None:
        async with asyncio.timeout(30):
            assert await requests_for(events) == ("hi", 1)
            assert await requests_for(events[:-1]) == ("incomplete", 4)

    run(main())


@pytest.mark.parametrize(
    ("make_decoder", "events"),
    [
        (GeminiDecoder, GEMINI),
        (InteractionsDecoder, INTERACTIONS),
        (lambda: OpenAIDecoder(PRESETS["openai"]), OPENAI),
        (ResponsesDecoder, RESPONSES),
        (AnthropicDecoder, ANTHROPIC),
    ],
    ids=["gemini", "interactions", "openai", "responses", "anthropic"],
)
def test_stream_that_ends_within_an_event_is_cut(make_decoder: Callable[[], Any], events: list[dict[str, Any]]) -> None:
    data = "\n\n".join(f"data: {json.dumps(event)}" for event in events).encode()
    ends = {}
    for size in (len(data), len(data) - 1, len(data) - 9):
        decoder = make_decoder()
        list(decoder.feed(data[:size]))
        list(decoder.end())
        response = decoder.response()
        ends[len(data) - size] = (response.message.text, response.finish_reason)
    assert ends == {0: ("hi", FinishReason.END), 1: ("hi", FinishReason.CUT), 9: ("hi", FinishReason.CUT)}


def test_last_event_that_is_not_json_at_all_is_malformed() -> None:
    decoder = AnthropicDecoder()
    list(decoder.feed(b"data: Internal error"))
    with pytest.raises(MalformedResponseError, match="Internal error"):
        decoder.end()
