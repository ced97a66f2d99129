"""Automatic execution of calls: the loop of every agent, with the names and types of the Gemini API."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from midspan._loop.agent import Agent
from midspan._loop.background_runs import BackgroundRuns
from midspan._loop.result import RunResult, RunStream, final_text
from midspan._types.events import RunEvent, TextDelta, TurnRetry
from midspan._types.exchange import CachePolicy, FinishReason, ModelRequest, ModelResponse
from midspan._types.messages import History, Message
from midspan._types.parts import Text
from midspan._types.specs import Limits, ModelSettings
from midspan.errors import ConfigError
from midspan.gemini.checking import describe
from midspan.gemini.compat import Tools
from midspan.gemini.output import requested_type
from midspan.gemini.request import Contents, cache_name, encode_contents, request_fields
from midspan.gemini.response import GenerateContentResponse, ReadOnce
from midspan.providers.gemini import decode, wire
from midspan.providers.gemini.capabilities import Capabilities
from midspan.providers.gemini.client import Gemini
from midspan.providers.gemini.encode import encode_message
from midspan.providers.gemini.proto import load
from midspan.providers.provider import Provider, WrapperProvider

if TYPE_CHECKING:
    from midspan.gemini.client import AsyncClient

_LOSSLESS = Capabilities(signatures=False)
"""An API that accepts everything as it sent it."""


class AutoResponse(GenerateContentResponse):
    """The final answer; `result` has everything that led to it."""

    def __init__(self, result: RunResult, form: Any) -> None:
        super().__init__(result.response, result.text, form=form)
        self.result = result

    @property
    def added(self) -> list[wire.Content]:
        """Every content after those that were passed in: the turns of the model, and the results of its calls."""
        messages = [message for message in self.result.new_messages if message.parts]
        return [load(wire.Content, bytes(encode_message(message, _LOSSLESS))) for message in messages]


class AutoTools:
    """The tool loop of one client."""

    def __init__(self, client: "AsyncClient") -> None:
        self._client = client
        self._runs: BackgroundRuns | None = None

    async def generate(self, contents: Contents, options: dict[str, Any]) -> AutoResponse:
        agent, history, form = self._prepare(contents, options)
        return AutoResponse(await agent.run(messages=history), form)

    def stream(self, contents: Contents, options: dict[str, Any]) -> "AutoStream":
        agent, history, form = self._prepare(contents, options)
        return AutoStream(agent.stream(messages=history), form)

    def start(self, contents: Contents, options: dict[str, Any]) -> str:
        """Start a background run; return its id."""
        agent, history, _ = self._prepare(contents, options)
        return self.runs.start(agent=agent, messages=history)

    @property
    def runs(self) -> BackgroundRuns:
        if self._runs is None:
            self._runs = BackgroundRuns()
        return self._runs

    async def close(self) -> None:
        runs, self._runs = self._runs, None
        if runs is not None:
            await runs.close()

    def _prepare(self, contents: Contents, options: dict[str, Any]) -> tuple[Agent, History, Any]:
        """Return the agent for a request, its history, and the type of the answer."""
        request = dict(options)
        model, tools = request.pop("model", None), request.pop("tools", None)
        cache, choice = request.pop("cached_content", None), request.pop("tool_choice", None)
        limits = _limits(request)
        _, capabilities = self._client.resolve(model)
        provider: Provider = Gemini(model or self._client.model, api=self._client.api, capabilities=capabilities)
        if cache is not None:
            provider = _WithCache(provider, cache_name(cache, "cached_content"))
        fields = request_fields(capabilities, **request)
        extra = msgspec.json.decode(b"{%b}" % fields.tail[1:])
        tool_list = tools if isinstance(tools, list | tuple) else [] if tools is None else [tools]
        agent = Agent(
            provider,
            Tools.executable(tool_list),
            limits=limits,
            settings=ModelSettings(extra=extra),
            tool_choice=choice,
        )
        history = contents if isinstance(contents, History) else _history(encode_contents(contents, capabilities))
        return agent, _history(fields.first_content).append(*history), requested_type(request)


def _history(contents: bytes) -> History:
    raws = msgspec.json.decode(b"[%b]" % contents, type=list[Raw])
    return History(decode.conversation(map(bytes, raws)))


class _WithCache(WrapperProvider):
    """A model whose system prompt and declarations are in a cache; the calls are still executed here."""

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
            raise ConfigError(f"turn_limit must be a positive integer, got {turns!r}")
        return Limits() if turns is None else Limits(max_turns=turns)
    if turns is not None:
        raise ConfigError("turn_limit and limits are both given; use limits=Limits(max_turns=…)")
    if not isinstance(limits, Limits):
        raise ConfigError(f"limits must be a Limits, got {describe(limits)}")
    return limits


class AutoStream(ReadOnce):
    """The final answer in chunks, read once. After the last one, `response` is the whole answer."""

    def __init__(self, stream: RunStream, form: Any) -> None:
        self._stream = stream
        self._form = form

    @property
    def response(self) -> AutoResponse:
        return AutoResponse(self._stream.result, self._form)

    async def __aiter__(self) -> AsyncIterator[GenerateContentResponse]:
        self._take()
        async with aclosing(final_text(_numbered(self._stream))) as deltas:
            async for _, delta in deltas:
                yield GenerateContentResponse(_chunk(delta), form=self._form)

    async def aclose(self) -> None:
        """Cancel the run, wherever it is."""
        self._is_taken = True
        await self._stream.aclose()


def _chunk(delta: TextDelta | TurnRetry) -> ModelResponse:
    """Return a piece of the answer. A chunk without text that was cut says that the text before it is discarded."""
    if isinstance(delta, TurnRetry):
        return ModelResponse(Message("model", ()), FinishReason.CUT)
    return ModelResponse(Message("model", (Text(delta.text),)), FinishReason.END)


async def _numbered(stream: RunStream) -> AsyncGenerator[tuple[int, RunEvent], None]:
    async with stream:
        number = 0
        async for event in stream:
            yield number, event
            number += 1
