"""The official SDKs of Anthropic and OpenAI read the streams that we read, and find the same in them."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from midspan._types.exchange import ModelRequest, ModelResponse, RequestConfig
from midspan._types.messages import History, Message
from midspan._types.parts import ToolCall
from midspan.providers.anthropic.client import Anthropic
from midspan.providers.openai.client import OpenAI
from midspan.providers.openai_responses.client import OpenAIResponses
from midspan.providers.provider import Provider
from tests.gemini.recorder import Recorder, recorder
from tests.providers.services import AnthropicService, ChatService, ResponsesService, Turn

TURN = Turn("Let me look that up.", (("call_a", "f", '{"a": [1, 2.5, "x"]}'), ("call_b", "g", "{}")), "Two calls.")
RECORDINGS = Path(__file__).parents[3] / "shared" / "data" / "provider_traffic.jsonl"
Reading = tuple[str, list[tuple[str, str, Any]]]


@pytest.fixture
def service() -> Iterator[Recorder]:
    with recorder() as service:
        yield service


# The SDKs are imported here because that takes seconds, which every process of the tests would need.
def anthropic_client(url: str) -> Any:
    from anthropic import AsyncAnthropic

    return AsyncAnthropic(api_key="k", base_url=url, max_retries=0)


def openai_client(url: str) -> Any:
    from openai import AsyncOpenAI

    return AsyncOpenAI(api_key="k", base_url=url, max_retries=0)


async def anthropic_reading(client: Any) -> Reading:
    async with client.messages.stream(model="m", max_tokens=9, messages=[{"role": "user", "content": "?"}]) as stream:
        message = await stream.get_final_message()
    text = "".join(block.text for block in message.content if block.type == "text")
    return text, [(block.id, block.name, block.input) for block in message.content if block.type == "tool_use"]


async def chat_reading(client: Any) -> Reading:
    async with client.chat.completions.stream(model="m", messages=[{"role": "user", "content": "?"}]) as stream:
        completion = await stream.get_final_completion()
    message = completion.choices[0].message
    calls = [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or []]
    return message.content or "", [(id, name, json.loads(arguments or "{}")) for id, name, arguments in calls]


async def responses_reading(client: Any) -> Reading:
    async with client.responses.stream(model="m", input="?") as stream:
        response = await stream.get_final_response()
    calls = [item for item in response.output if item.type == "function_call"]
    return response.output_text, [(call.call_id, call.name, json.loads(call.arguments or "{}")) for call in calls]


CLIENTS = {"anthropic": anthropic_client, "openai-chat": openai_client, "openai-responses": openai_client}
READINGS = {"anthropic": anthropic_reading, "openai-chat": chat_reading, "openai-responses": responses_reading}
SERVICES = {"anthropic": AnthropicService, "openai-chat": ChatService, "openai-responses": ResponsesService}


def provider_of(wire: str, url: str) -> Provider:
    if wire == "anthropic":
        return Anthropic("m", api_key="k", base_url=url)
    return (OpenAI if wire == "openai-chat" else OpenAIResponses)("m", api_key="k", base_url=url)


async def our_reading(provider: Provider) -> Reading:
    request = ModelRequest(RequestConfig("m"), History([Message.user("?")]))
    *_, response = [event async for event in provider.stream(request)]
    assert isinstance(response, ModelResponse)
    calls = [part for part in response.message.parts if isinstance(part, ToolCall)]
    return response.message.text, [(call.id, call.name, call.arguments) for call in calls]


@pytest.mark.parametrize("wire", READINGS)
def test_sdk_reads_our_service_as_we_do(wire: str) -> None:
    async def main(url: str) -> None:
        expected = (TURN.text, [(id, name, json.loads(arguments)) for id, name, arguments in TURN.calls])
        async with CLIENTS[wire](url) as client, aclosing(provider_of(wire, url)) as provider:
            assert await READINGS[wire](client) == expected
            assert await our_reading(provider) == expected

    with recorder(SERVICES[wire](TURN)) as service:
        asyncio.run(main(service.url))


@pytest.mark.skipif(not RECORDINGS.is_file(), reason="the recorded traffic of ../shared/data is not here")
@pytest.mark.parametrize("wire", READINGS)
def test_sdk_reads_recorded_streams_as_we_do(wire: str, service: Recorder) -> None:
    rows = [row for line in RECORDINGS.read_text("utf-8").splitlines() if (row := json.loads(line))["provider"] == wire]
    streams = [row["response"] for row in rows if row["response_kind"] == "sse" and row["status"] == 200]
    assert len(streams) > 20

    async def main() -> None:
        async with CLIENTS[wire](service.url) as client, aclosing(provider_of(wire, service.url)) as provider:
            for stream in streams:
                service.answers = [(200, stream.encode(), {"content-type": "text/event-stream"})]
                assert await our_reading(provider) == await READINGS[wire](client)

    asyncio.run(main())
