"""A chain of models: when the next one is asked, and what a run says about it."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from midspan import Agent, tool
from midspan.errors import ConfigError, PromptBlockedError, ServerError, UnknownModelError
from midspan.events import RequestRetry
from midspan.messages import History, Message, Text
from midspan.providers import Anthropic, Fallback, ModelRequest, OpenAI, RequestConfig, RetryPolicy, ScriptedProvider
from tests.gemini.recorder import recorder
from tests.providers.services import AnthropicService, ChatService, Turn

ONCE = RetryPolicy(max_attempts=1)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@tool(name="math.add")
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


def failing(error: Exception) -> ScriptedProvider:
    def fail(_: Any) -> Any:
        raise error

    return ScriptedProvider(fail)


def test_next_model_gets_the_request_and_the_run_says_so(stack: ExitStack) -> None:
    claude = stack.enter_context(recorder(AnthropicService(Turn("never"))))
    claude.answers.append(claude.error(529, "overloaded_error", "Overloaded"))  # type: ignore[attr-defined]
    call = ("call_a", "math_add", '{"a": 1, "b": null}')
    gpt = stack.enter_context(recorder(ChatService(Turn("", (call,)), Turn("It is 2."))))
    chain = [
        Anthropic("claude-sonnet-5-5", api_key="k", base_url=claude.url, retry=ONCE),
        OpenAI("gpt-5.5", api_key="k", base_url=gpt.url),
    ]
    agent = Agent(chain, tools=[add])

    async def main() -> tuple[str, list[RequestRetry]]:
        async with agent.stream("1 + 1?") as stream:
            events = [event async for event in stream]
            return stream.result.text, [event for event in events if isinstance(event, RequestRetry)]

    text, retries = asyncio.run(main())
    assert text == "It is 2."
    assert [(retry.model, retry.status) for retry in retries] == [("gpt-5.5", 529)]
    assert len(claude.seen) == 1, "the failed model is not asked again for a while"
    assert gpt.refused == []  # type: ignore[attr-defined]
    declared = gpt.last.body["tools"][0]["function"]
    assert (declared["name"], declared["strict"]) == ("math_add", True)
    assert json.loads(gpt.last.body["messages"][-1]["content"]) == 2


@pytest.mark.parametrize("streamed", [False, True])
def test_error_of_the_last_model_is_raised(streamed: bool) -> None:
    agent = Agent([failing(ServerError("first")), failing(UnknownModelError("second"))])
    with pytest.raises(UnknownModelError, match="second"):
        asyncio.run(_ask(agent, streamed))


async def _ask(agent: Agent, streamed: bool) -> None:
    if not streamed:
        await agent.run("Hi")
    async for _ in agent.stream("Hi"):
        pass


def test_answer_that_has_begun_is_not_repeated_by_another_model() -> None:
    class Breaking(ScriptedProvider):
        async def stream(self, request: Any) -> Any:
            async for event in super().stream(request):
                yield event
                raise ServerError("broken")

    chain = Fallback([Breaking([[Text("Hel"), Text("lo")]]), ScriptedProvider(["never"])])

    async def main() -> None:
        async for _ in chain.stream(ModelRequest(RequestConfig("m"), History([Message.user("Hi")]))):
            pass

    with pytest.raises(ServerError, match="broken"):
        asyncio.run(main())


def test_blocked_prompt_is_not_tried_with_another_model() -> None:
    with pytest.raises(PromptBlockedError):
        Agent([failing(PromptBlockedError("no")), ScriptedProvider(["never"])]).run_sync("Hi")


def test_failed_model_is_asked_again_after_its_pause() -> None:
    answers = iter([ServerError("down"), "back"])

    def first(_: Any) -> Any:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    agent = Agent(Fallback([ScriptedProvider(first), ScriptedProvider(["second"])], pause_seconds=0))
    assert agent.run_sync("Hi").text == "second"
    assert agent.run_sync("Hi").text == "back"


def test_chain_needs_a_model() -> None:
    with pytest.raises(ConfigError, match="at least one model"):
        Agent([])
