"""A chain of models: when the next one is asked, and what a run says about it."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Annotated, Any

import pytest
from msgspec import Meta, Struct

from midspan import Agent, tool
from midspan.errors import (
    AuthenticationError,
    ConfigError,
    InvalidRequestError,
    PromptBlockedError,
    ProviderError,
    QuotaExhaustedError,
    ServerError,
    UnknownModelError,
)
from midspan.events import RequestRetry
from midspan.messages import History, Message, Text
from midspan.providers import (
    Anthropic,
    Fallback,
    ModelProfile,
    ModelRequest,
    OpenAI,
    RequestConfig,
    RetryPolicy,
    ScriptedProvider,
    WrapperProvider,
)
from midspan.providers.gemini.capabilities import GEMINI_JSON_SCHEMA
from tests.gemini.recorder import recorder
from tests.providers.services import AnthropicService, ChatService, Turn

ONCE = RetryPolicy(max_attempts=1)


class Answer(Struct, frozen=True):
    n: Annotated[int, Meta(gt=0)]


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


def test_retry_is_reported_as_the_first_without_a_delay() -> None:
    reported: list[Any] = []
    chain = Fallback([failing(ServerError("down")), ScriptedProvider(["second"], model="other")])
    request = ModelRequest(
        RequestConfig("m"), History([Message.user("Hi")]), on_retry=lambda *details: reported.append(details)
    )
    assert asyncio.run(chain.generate(request)).message.text == "second"
    [(attempt, delay, error, model)] = reported
    assert (attempt, delay, str(error), model) == (1, 0.0, "down", "other")


@pytest.mark.parametrize("error", [ServerError("overloaded"), QuotaExhaustedError("empty"), AuthenticationError("no")])
def test_model_that_would_fail_again_is_asked_last(error: ProviderError) -> None:
    answers = iter([error, "first"])
    chain = Fallback([ScriptedProvider(lambda _: next(answers)), ScriptedProvider(["second", "second"])])
    request = ModelRequest(RequestConfig("m"), History([Message.user("Hi")]))
    assert [asyncio.run(chain.generate(request)).message.text for _ in range(2)] == ["second", "second"]


def test_closing_a_wrapper_closes_the_provider() -> None:
    closed = []

    class Wrapped(ScriptedProvider):
        async def aclose(self) -> None:
            closed.append(self)

    asyncio.run(WrapperProvider(Wrapped([])).aclose())
    assert len(closed) == 1


def test_model_that_only_rejected_one_request_is_asked_first_again() -> None:
    answers = iter([InvalidRequestError("too long"), "first"])
    chain = Fallback([ScriptedProvider(lambda _: next(answers)), ScriptedProvider(["second"])])
    agent = Agent(chain)
    assert [agent.run_sync("Hi").text, agent.run_sync("Hi").text] == ["second", "first"]


def test_typed_answer_gets_the_schema_of_the_model_that_is_asked() -> None:
    first = ScriptedProvider([ServerError("down")], profile=ModelProfile(schema=GEMINI_JSON_SCHEMA))
    second = ScriptedProvider(['{"n": 1}'])
    assert Agent([first, second], output=Answer).run_sync("Hi").output == Answer(1)
    sent = [provider.requests[0].config.output.json_schema for provider in (first, second)]  # type: ignore[union-attr]
    assert ["exclusiveMinimum" in schema["properties"]["n"] for schema in sent] == [False, True]


def test_schema_of_a_typed_answer_need_not_be_an_object() -> None:
    first = ScriptedProvider(["[1, 2]"], profile=ModelProfile(schema=GEMINI_JSON_SCHEMA))
    assert Agent([first, ScriptedProvider([])], output=list[int]).run_sync("Hi").output == [1, 2]
    assert first.requests[0].config.output.json_schema["type"] == "array"  # type: ignore[union-attr, index]


def test_closing_a_chain_closes_all_its_models() -> None:
    closed: list[str] = []

    class Closing(ScriptedProvider):
        async def aclose(self) -> None:
            closed.append(self.model)

    asyncio.run(Fallback([Closing([], model="a"), Closing([], model="b")]).aclose())
    assert sorted(closed) == ["a", "b"]
