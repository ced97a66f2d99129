"""The typed Gemini client: options are named and typed."""

from dataclasses import dataclass
from typing import assert_type

from midspan import Toolbox
from midspan.gemini import AsyncClient, Client, GenerateContentResponse, GoogleSearch
from midspan.providers import RetryPolicy, Timeouts, Transport


@dataclass
class City:
    name: str


def add(a: int, b: int) -> int:
    """The sum."""
    return a + b


async def main() -> None:
    async with AsyncClient(api_key="x", retry=RetryPolicy(max_attempts=2)) as client:
        answer = await client.generate_content("hi", temperature=0.5, tools=[GoogleSearch(), add])
        assert_type(answer, GenerateContentResponse)
        assert_type(answer.text, str)
        assert_type(answer.parsed(City), City)
        async for chunk in client.stream_generate_content("hi", max_output_tokens=10):
            assert_type(chunk.text, str)
        await client.generate_content("hi", temprature=0.5)  # type: ignore
    with Client("gemini-3.8-flash", vertex=True, project="p", transport=Transport(Timeouts(connect=1))) as plain:
        assert_type(plain.generate_content("hi", model="gemini-3.8-pro", tool_choice="auto").text, str)
        plain.generate_content_with_auto_tools("hi", tools=[add], turn_limit=3, limits=None)
        plain.generate_content_with_auto_tools("hi", tools=[Toolbox().source()], limits={"max_turns": 3})
        plain.generate_content("hi", top_p="high")  # type: ignore
    Client(api_keys="x")  # type: ignore
