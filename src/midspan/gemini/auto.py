"""Automatic execution: a question goes in, tools are called as often as the model wants, the answer comes out.

The loop is the one that every agent runs; here it speaks the words of the Gemini API.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Self

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from midspan._loop.agent import Agent
from midspan._loop.background_runs import BackgroundRuns, final_text
from midspan._loop.result import RunResult, RunStream
from midspan._types.events import RunEvent, TextDelta, TurnRetry
from midspan._types.exchange import CachePolicy, FinishReason, ModelRequest, ModelResponse
from midspan._types.messages import History, Message
from midspan._types.parts import Text
from midspan._types.specs import Limits, ModelSettings
from midspan.errors import ConfigError
from midspan.gemini.checking import shown
from midspan.gemini.contents import Contents, encode_contents
from midspan.gemini.output import form_of
from midspan.gemini.registry import Tools
from midspan.gemini.request import cache_name, request_fields
from midspan.gemini.response import GenerateContentResponse
from midspan.providers.gemini import decode, wire
from midspan.providers.gemini.capabilities import Capabilities
from midspan.providers.gemini.client import Gemini
from midspan.providers.gemini.encode import encode_message
from midspan.providers.gemini.proto import load
from midspan.providers.provider import Provider, WrapperProvider

if TYPE_CHECKING:
    from midspan.gemini.client import AsyncClient


_LOSSLESS = Capabilities(signatures=False)
"""An API that takes everything back as it gave it."""


class AutoResponse(GenerateContentResponse):
    """The final answer; `result` is all that led to it."""

    def __init__(self, result: RunResult, form: Any) -> None:
        super().__init__(result.response, form=form)
        self.result = result

    @property
    def added(self) -> list[wire.Content]:
        """Every content that came after those that were given: the model's turns, and the results of its calls."""
        given = self.result.new_messages
        return [load(wire.Content, bytes(encode_message(one, _LOSSLESS))) for one in given if one.parts]


class Automatic:
    """The tool loop of one client."""

    def __init__(self, client: "AsyncClient") -> None:
        self._client = client
        self._runs: BackgroundRuns | None = None

    async def generate(self, contents: Contents, options: dict[str, Any]) -> AutoResponse:
        agent, form = self._agent(options)
        return AutoResponse(await agent.run(messages=self._history(contents, options)), form)

    def stream(self, contents: Contents, options: dict[str, Any]) -> "AutoStream":
        agent, form = self._agent(options)
        return AutoStream(agent.stream(messages=self._history(contents, options)), form)

    def start(self, contents: Contents, options: dict[str, Any]) -> str:
        """Begin in the background; returns the id."""
        agent, _ = self._agent(options)
        return self.runs.start(agent=agent, messages=self._history(contents, options))

    @property
    def runs(self) -> BackgroundRuns:
        if self._runs is None:
            self._runs = BackgroundRuns()
        return self._runs

    async def close(self) -> None:
        runs, self._runs = self._runs, None
        if runs is not None:
            await runs.close()

    def _agent(self, options: dict[str, Any]) -> tuple[Agent, Any]:
        """The agent that a request means, and the type of the answer."""
        request = dict(options)
        name, tools = request.pop("model", None), request.pop("tools", None)
        limits = _limits(request)
        cache, choice = request.pop("cached_content", None), request.pop("tool_choice", None)
        _, capabilities = self._client.known(name)
        provider: Provider = Gemini(name or self._client.model, api=self._client.api, capabilities=capabilities)
        if cache is not None:
            provider = _WithCache(provider, cache_name(cache, "cached_content"))
        said = msgspec.json.decode(b"{%b}" % request_fields(capabilities, **request)[1:])
        given = tools if isinstance(tools, list | tuple) else [] if tools is None else [tools]
        settings = ModelSettings(extra=said)
        agent = Agent(provider, Tools.executable(given), limits=limits, settings=settings, tool_choice=choice)
        return agent, form_of(request)

    def _history(self, contents: Contents, options: dict[str, Any]) -> History:
        if isinstance(contents, History):
            return contents
        _, capabilities = self._client.known(options.get("model"))
        written = b"[%b]" % bytes(encode_contents(contents, capabilities))
        return History(decode.conversation(map(bytes, msgspec.json.decode(written, type=list[Raw]))))


class AutoStream:
    """The final answer, piece by piece, to be taken once; when it is over, `response` is all of it."""

    def __init__(self, stream: RunStream, form: Any) -> None:
        self._stream = stream
        self._form = form
        self._taken = False

    @property
    def response(self) -> AutoResponse:
        return AutoResponse(self._stream.result, self._form)

    async def __aiter__(self) -> AsyncIterator[GenerateContentResponse]:
        if self._taken:
            raise ConfigError("a stream can be taken only once; ask again for another one")
        self._taken = True
        async with aclosing(final_text(_numbered(self._stream))) as deltas:
            async for _, delta in deltas:
                yield GenerateContentResponse(_chunk(delta), form=self._form)

    async def aclose(self) -> None:
        """Stop the run, wherever it is."""
        self._taken = True
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _chunk(delta: TextDelta | TurnRetry) -> ModelResponse:
    """A piece of the answer. One without text that was cut says that the text before it is discarded."""
    if isinstance(delta, TurnRetry):
        return ModelResponse(Message("model", ()), FinishReason.CUT)
    return ModelResponse(Message("model", (Text(delta.text),)), FinishReason.END)


async def _numbered(stream: RunStream) -> AsyncGenerator[tuple[int, RunEvent], None]:
    async with stream:
        number = 0
        async for event in stream:
            yield number, event
            number += 1


class _WithCache(WrapperProvider):
    """A model whose system prompt and declarations are in a cache already; the tools are still run here."""

    def __init__(self, provider: Provider, cache: str) -> None:
        super().__init__(provider)
        self._policy = CachePolicy(cache)

    def adapt(self, request: ModelRequest) -> ModelRequest:
        config = request.config
        return replace(request, config=config.derived(self._policy, lambda: replace(config, cache=self._policy)))


def _limits(request: dict[str, Any]) -> Limits:
    turns, limits = request.pop("turn_limit", None), request.pop("limits", None)
    if limits is None:
        if turns is not None and (type(turns) is not int or turns < 1):
            raise ConfigError(f"turn_limit is how often the model is asked at most, a number above 0; not {turns!r}")
        return Limits() if turns is None else Limits(max_turns=turns)
    if turns is not None:
        raise ConfigError("turn_limit and limits are both given; say it in limits=Limits(max_turns=…)")
    if not isinstance(limits, Limits):
        raise ConfigError(f"limits are of the type Limits, not {shown(limits)}")
    return limits


def extract_text(response: Any) -> str:
    """The words of an answer, without thoughts; an error if there are none."""
    answer = response if isinstance(response, GenerateContentResponse) else getattr(response, "message", response)
    text = getattr(answer, "text", None)
    if not isinstance(text, str) or not text:
        raise ConfigError("No text content found in response")
    return text
