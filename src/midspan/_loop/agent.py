"""`Agent`, a model with tools and limits, and `Chat`, a conversation with it."""

from __future__ import annotations  # signatures name types that are imported with the first run

from collections.abc import Iterable, Sequence
from functools import cache
from os import urandom
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from midspan._loop.blocking import ClosableFromSyncCode, run_blocking
from midspan._loop.options import (
    AgentChanges,
    AgentOptions,
    AgentTools,
    Model,
    OutputT,
    RunConfig,
    RunOptions,
    as_list,
    convert_option,
)
from midspan._loop.prompt import Messages, Prompt, check_messages, message_of_role, to_message
from midspan._types.closing import close_all
from midspan._types.messages import History
from midspan._types.specs import Limits
from midspan._types.texts import check_text, count_noun
from midspan.errors import ConfigError
from midspan.providers.provider import Provider
from midspan.tools.source import ToolSource

if TYPE_CHECKING:
    from midspan._loop.prepare import PendingRun, PreparedRun
    from midspan._loop.result import RunResult
    from midspan._loop.run_stream import RunStream

T = TypeVar("T")


class Agent(ClosableFromSyncCode, Generic[OutputT]):
    """A model, its tools and its limits. One agent serves any number of runs at once; it keeps nothing of them."""

    _lacks_model = False
    """Whether no model was named and no key was found."""

    @overload
    def __init__(self: Agent[str], model: Model = None, tools: Any = (), **options: Unpack[AgentOptions]) -> None: ...

    @overload
    def __init__(
        self: Agent[T], model: Model = None, tools: Any = (), *, output: type[T], **options: Unpack[AgentOptions]
    ) -> None: ...

    @overload
    def __init__(
        self: Agent[Any], model: Model = None, tools: Any = (), *, output: Any, **options: Unpack[AgentOptions]
    ) -> None: ...

    def __init__(self, model: Model = None, tools: Any = (), **options: Any) -> None:
        """`model` is a provider or a name like `"gemini:gemini-3.8-flash"`; `tools` are functions, tools or sources.

        A list of models is a fallback chain: if a request to one fails, even after retries, it is sent to the next.
        Without `model`, the provider whose API key is set is used. Keys are read when the first request is made.

        `system` is the system prompt, `limits` limits each run, `settings` are model settings, and `tool_choice`
        says whether the model may or must call tools. `output` is the type of the answer, or its JSON Schema.
        With `calls_only` the model never answers in text: a tool that is final ends the run. `prompt_mode` describes
        the tools in the prompt and reads calls from the text; models without function calling get it automatically.
        With `raise_tool_errors` an exception of a tool, other than ToolError, is raised by the run instead of being
        reported to the model. `on_question` is an async function with which tools ask the user: it gets a question and
        a JSON Schema for the answer, or None, and returns the answer. `cache` says how the provider caches the part of
        the prompt that stays the same. `telemetry` records runs with OpenTelemetry.
        """
        self._owned_providers: dict[str, Provider] = {}
        self._prepared: PreparedRun | None = None
        all_tools = as_list(tools)
        self._config = RunConfig(self._provider(model), AgentTools(all_tools))
        self._config = self._with_overrides(options)
        self._owned_sources = [tool for tool in all_tools if isinstance(tool, ToolSource)]

    @property
    def model(self) -> str:
        """The name of the model."""
        return self._config.provider.model

    @property
    def provider(self) -> Provider:
        """The provider of the model, which sends the requests."""
        return self._config.provider

    @property
    def tools(self) -> Sequence[Any]:
        """The tools as the caller passed them."""
        return self._config.tools.as_passed

    @property
    def system(self) -> str | None:
        """The system prompt."""
        return self._config.system

    @property
    def limits(self) -> Limits:
        return self._config.limits

    @overload
    def replace(self, **options: Unpack[AgentChanges]) -> Agent[OutputT]: ...

    @overload
    def replace(self, *, output: type[T], **options: Unpack[AgentChanges]) -> Agent[T]: ...

    @overload
    def replace(self, *, output: Any, **options: Unpack[AgentChanges]) -> Agent[Any]: ...

    def replace(self, **options: Any) -> Agent[Any]:
        """Return an agent like this one with other options; they are those of `run`.

        It shares the models and tool sources of this agent. Closing it closes only what `options` added.
        """
        from copy import copy  # slow to import

        agent = copy(self)
        agent._owned_providers, agent._owned_sources, agent._prepared = {}, [], None
        if "tools" in options:
            options["tools"] = as_list(options["tools"])
            agent._owned_sources = [tool for tool in options["tools"] if isinstance(tool, ToolSource)]
        agent._config = agent._with_overrides(options)
        agent._lacks_model = self._lacks_model and options.get("model") is None
        return agent

    def __repr__(self) -> str:
        return f"Agent({self.provider!r}, {count_noun(len(self.tools), 'tool')})"

    @overload
    async def run(self, prompt: Prompt = None, **options: Unpack[RunOptions]) -> RunResult[OutputT]: ...

    @overload
    async def run(self, prompt: Prompt = None, *, output: type[T], **options: Unpack[RunOptions]) -> RunResult[T]: ...

    @overload
    async def run(self, prompt: Prompt = None, *, output: Any, **options: Unpack[RunOptions]) -> RunResult[Any]: ...

    async def run(self, prompt: Prompt = None, **options: Any) -> RunResult[Any]:
        """Ask the model, run the tools that it calls, and return the answer.

        `messages` is the conversation so far, `context` is an object for tools that the model does not see, and
        `run_id` is the id of the run. `model`, `tools`, `system`, `settings`, `limits`, `output`, `tool_choice`,
        `calls_only`, `prompt_mode`, `raise_tool_errors`, `on_question`, `cache` and `telemetry` replace those of the
        agent for this run. A string among the tools is the name of one of the agent's tools.
        """
        pending = self._begin(prompt, **options)
        run = await pending.start(None)
        await run.execute()
        return pending.result_of(run)

    @overload
    def run_sync(self, prompt: Prompt = None, **options: Unpack[RunOptions]) -> RunResult[OutputT]: ...

    @overload
    def run_sync(self, prompt: Prompt = None, *, output: type[T], **options: Unpack[RunOptions]) -> RunResult[T]: ...

    @overload
    def run_sync(self, prompt: Prompt = None, *, output: Any, **options: Unpack[RunOptions]) -> RunResult[Any]: ...

    def run_sync(self, prompt: Prompt = None, **options: Any) -> RunResult[Any]:
        """Like `run`, for sync code, even where an event loop is running."""
        # Files are read here and not in the event loop, which all blocking calls share.
        return run_blocking(self.run(None if prompt is None else to_message(prompt), **options))

    @overload
    def stream(
        self, prompt: Prompt = None, *, deltas: bool = True, **options: Unpack[RunOptions]
    ) -> RunStream[OutputT]: ...

    @overload
    def stream(
        self, prompt: Prompt = None, *, deltas: bool = True, output: type[T], **options: Unpack[RunOptions]
    ) -> RunStream[T]: ...

    @overload
    def stream(
        self, prompt: Prompt = None, *, deltas: bool = True, output: Any, **options: Unpack[RunOptions]
    ) -> RunStream[Any]: ...

    def stream(self, prompt: Prompt = None, *, deltas: bool = True, **options: Any) -> RunStream[Any]:
        """Return the events of a run as they come; the options are those of `run`.

        With `deltas=False` each response of the model is requested as a whole, so there are no events for its pieces.
        """
        from midspan._loop.run_stream import RunStream  # loaded with the first run

        return RunStream(self._begin(prompt, **options), deltas=deltas)

    def _begin(
        self,
        prompt: Prompt,
        *,
        messages: Messages | None = None,
        context: Any = None,
        run_id: str | None = None,
        **options: Any,
    ) -> PendingRun:
        """Check the options of a run, and return the run, which has not started."""
        if run_id is not None:
            check_text(run_id, "run_id")
        if self._lacks_model and options.get("model") is None:  # a key may have been set since
            self._config, self._prepared = replace(self._config, provider=self._provider(None)), None
        config = self._with_overrides(options) if options else self._config
        prepare = None if options.keys() - _NOT_PREPARED else self._prepare
        return _pending_run_class()(run_id or new_run_id(), config, prompt, messages, context, prepare)

    async def _prepare(self) -> PreparedRun:
        """Return the prepared run; it is built again only if the tools have changed."""
        if self._prepared is None or not self._config.tools.is_local:
            from midspan._loop.prepare import prepare_run  # loaded with the first run

            self._prepared = await prepare_run(self._config, self._prepared)
        return self._prepared

    def _with_overrides(self, options: dict[str, Any]) -> RunConfig:
        changes: dict[str, Any] = {}
        for name, value in options.items():
            if value is None and name in _NONE_CHANGES_NOTHING:
                continue
            if name == "model":
                changes["provider"] = self._provider(value)
            elif name == "tools":
                changes["tools"] = AgentTools(self._with_named_tools(as_list(value)))
            else:
                changes[name] = convert_option(name, value)
        return replace(self._config, **changes)

    def _with_named_tools(self, tools: Sequence[Any]) -> list[Any]:
        """Return the tools of one run; a name among them is one of the agent's tools."""
        names = [tool for tool in tools if isinstance(tool, str)]
        others = [tool for tool in tools if not isinstance(tool, str)]
        if not names:
            return others
        from midspan.tools.wrap import ToolSubset  # loaded with the first tool

        return [*others, ToolSubset(self._config.tools.source, names)]

    def _provider(self, model: Model) -> Provider:
        if isinstance(model, Provider) and not isinstance(model, type):
            return model
        if isinstance(model, list | tuple):
            from midspan.providers.fallback import Fallback  # loaded for chains of models

            return Fallback([self._provider(item) for item in model])
        from midspan.providers.registry import MissingModel, default_provider, provider_of  # loaded for names

        if model is None:
            provider = self._owned_providers.get("") or default_provider()
            self._lacks_model = isinstance(provider, MissingModel)
            if not self._lacks_model:
                self._owned_providers[""] = provider
            return provider
        if not isinstance(model, str):
            raise ConfigError(f"model must be a provider or a name like 'gemini:gemini-3.8-flash', got {model!r}")
        if model not in self._owned_providers:
            self._owned_providers[model] = provider_of(model)
        return self._owned_providers[model]

    async def aclose(self) -> None:
        """Close the models that the agent created from names, and the tool sources it was given.

        A provider that was passed as an object belongs to the caller.
        """
        closing = [provider.aclose() for provider in self._owned_providers.values()]
        closing += [source.aclose() for source in self._owned_sources]
        await close_all(closing)


_NONE_CHANGES_NOTHING = ("model", "limits", "on_question")
"""Options for which None means the value of the agent."""
_NOT_PREPARED = frozenset(("limits", "on_question", "raise_tool_errors"))
"""Options that PreparedRun does not contain: a run that overrides only these uses the PreparedRun of the agent."""


@cache
def _pending_run_class() -> type[PendingRun]:
    """Return `PendingRun`. Cached, because an import statement is slow even if its module is loaded."""
    from midspan._loop.prepare import PendingRun  # loaded with the first run

    return PendingRun


def new_run_id() -> str:
    return f"run_{urandom(8).hex()}"


class Chat(Struct, Generic[OutputT], frozen=True, eq=False):
    """An immutable conversation with an agent: `chat = await chat.ask("…")`, then `chat.text`."""

    agent: Agent[OutputT]
    messages: History = History()
    result: RunResult[OutputT] | None = None
    """The result of the last question."""

    def __post_init__(self) -> None:
        if not isinstance(self.messages, History):  # a list, as saved conversations are read
            force_setattr(self, "messages", History(check_messages(self.messages)))

    @property
    def text(self) -> str:
        """The last answer; empty if nothing was asked yet."""
        return "" if self.result is None else self.result.text

    @property
    def output(self) -> OutputT:
        """The last answer as the requested type."""
        if self.result is None:
            raise ConfigError("nothing was asked yet")
        return self.result.output

    def add_turn(self, role: str, content: Prompt | Iterable[Any]) -> Chat[OutputT]:
        """Return the conversation with one more turn: text, parts, the calls of a model, or the results of tools."""
        return replace(self, messages=self.messages.append(message_of_role(role, content)), result=None)

    async def ask(self, prompt: Prompt = None, **options: Unpack[RunOptions]) -> Chat[OutputT]:
        """Return the conversation with this question and its answer; `options` are those of `Agent.run`."""
        options["messages"] = self.messages
        result = await self.agent.run(prompt, **options)
        return replace(self, messages=result.messages, result=result)

    def ask_sync(self, prompt: Prompt = None, **options: Unpack[RunOptions]) -> Chat[OutputT]:
        """Like `ask`, for sync code."""
        return run_blocking(self.ask(None if prompt is None else to_message(prompt), **options))
