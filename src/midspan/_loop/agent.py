"""What a user holds: `Agent`, a model with tools and limits, and `Chat`, a conversation with an agent."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from os import urandom
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, Optional, Self, TypedDict, TypeVar, Unpack, overload

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from midspan._loop.blocking import run_blocking
from midspan._loop.policies import out_of_time
from midspan._loop.prepare import PreparedRun, RunConfig, ToolSet, prepare_run
from midspan._loop.prompt import Messages, Prompt, check_messages, conversation, to_message, to_turn
from midspan._loop.result import Output, RunResult, RunStream, result_of
from midspan._types.context import AskUser
from midspan._types.messages import History
from midspan._types.run_state import CALL_NOT_RUN, RunState
from midspan._types.specs import Limits, ModelSettings, ToolChoice
from midspan._types.texts import check_text
from midspan.errors import ConfigError, MidspanError
from midspan.providers.provider import Provider
from midspan.tools.source import ToolSource
from midspan.tools.tasks import Expired, with_timeout

if TYPE_CHECKING:
    from midspan._loop.run import Run
    from midspan._schema.output_type import OutputType

T = TypeVar("T")
Model = Provider | str | Sequence[Provider | str]
"""A provider, a name, or a chain of both: if one model fails, the next one is asked."""

_EXAMPLE_MODEL = "gemini:gemini-3.8-flash"


class AgentOptions(TypedDict, total=False):
    """The options of an agent beside its model, its tools and the type of its answers."""

    system: str | None
    limits: Limits | None
    settings: ModelSettings | dict[str, Any] | None
    tool_choice: ToolChoice | str | dict[str, Any] | None
    calls_only: bool
    prompt_mode: bool | None


class RunOptions(AgentOptions, total=False):
    """The options of a single run beside the type of its answer; see `Agent.run`."""

    messages: Messages | None
    context: Any
    ask_user: AskUser | None
    run_id: str | None
    model: Model | None
    tools: Any


class TypedRunOptions(RunOptions, total=False):
    """All options of a single run."""

    output: Any


class Agent(Generic[Output]):
    """A model, its tools and its limits. One agent serves any number of runs at once; it keeps nothing of them."""

    @overload
    def __init__(
        self: "Agent[str]", model: Model | None = None, tools: Any = (), **options: Unpack[AgentOptions]
    ) -> None: ...

    @overload
    def __init__(
        self: "Agent[T]",
        model: Model | None = None,
        tools: Any = (),
        *,
        output: type[T],
        **options: Unpack[AgentOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: "Agent[Any]",
        model: Model | None = None,
        tools: Any = (),
        *,
        output: Any,
        **options: Unpack[AgentOptions],
    ) -> None: ...

    def __init__(
        self,
        model: Model | None = None,
        tools: Any = (),
        *,
        system: str | None = None,
        limits: Limits | None = None,
        settings: ModelSettings | dict[str, Any] | None = None,
        output: Any = None,
        tool_choice: ToolChoice | str | dict[str, Any] | None = None,
        calls_only: bool = False,
        prompt_mode: bool | None = None,
    ) -> None:
        """`model` is a provider or a name like `"gemini:gemini-3.8-flash"`; `tools` are functions, tools or sources.

        A list of models is a chain: if a request to one fails for good, the next one gets it.

        Without a model it is Gemini if a key is set; otherwise the first request raises ConfigError.

        `output` is the type of the answer, or its JSON Schema. With `calls_only` the model never answers in text: a
        tool that is final ends the run. `prompt_mode` describes the tools in the prompt and reads calls from the text;
        models without function calling get it automatically.
        """
        self._owned_providers: dict[str, Provider] = {}
        self._owned_sources: list[ToolSource] = []
        self._limits = _check_limits(Limits() if limits is None else limits)
        all_tools = as_list(tools)
        self._config = replace(
            RunConfig(self._provider(model), ToolSet(all_tools)),
            system=_check_system(system),
            settings=ModelSettings.of(settings),
            output=output_type(output),
            tool_choice=_tool_choice(tool_choice),
            calls_only=calls_only,
            prompt_mode=prompt_mode,
        )
        self._own(all_tools)
        self._prepared: PreparedRun | None = None

    @property
    def model(self) -> Provider:
        return self._config.provider

    @property
    def tools(self) -> Sequence[Any]:
        """The tools as they were given."""
        return self._config.tools.given

    def replace(self, *, limits: Limits | None = None, **options: Any) -> "Agent[Any]":
        """Return an agent like this one with other options; they are those of `run`.

        It shares the models and tool sources of this agent. Closing it closes only what `options` added.
        """
        for name in options:
            if name in _PER_RUN_OPTIONS:
                raise ConfigError(f"{name} belongs to a single run; pass it to run or stream")
        from copy import copy  # slow to import

        agent = copy(self)
        agent._owned_providers, agent._owned_sources = {}, []
        if "tools" in options:
            options["tools"] = as_list(options["tools"])
            agent._own(options["tools"])
        agent._config = agent._with_overrides(options)
        agent._prepared, agent._limits = None, self._limits if limits is None else _check_limits(limits)
        return agent

    def _own(self, tools: Sequence[Any]) -> None:
        """Close the sources among these tools together with the agent."""
        self._owned_sources += [tool for tool in tools if isinstance(tool, ToolSource)]

    def __repr__(self) -> str:
        config = getattr(self, "_config", None)
        return "Agent()" if config is None else f"Agent({config.provider!r}, {len(config.tools.given)} tools)"

    @overload
    async def run(self, prompt: Prompt | None = None, **options: Unpack[RunOptions]) -> RunResult[Output]: ...

    @overload
    async def run(
        self, prompt: Prompt | None = None, *, output: Any, **options: Unpack[RunOptions]
    ) -> RunResult[Any]: ...

    async def run(self, prompt: Prompt | None = None, **options: Any) -> RunResult[Any]:
        """Ask the model, run the tools that it calls, and return the answer.

        `messages` is the conversation so far, `context` is an object for tools that the model does not see, `ask_user`
        is a function with which tools ask the user, and `run_id` is the id of the run. `model`, `tools`, `system`,
        `settings`, `limits`, `output`, `tool_choice`, `calls_only` and `prompt_mode` replace those of the agent for
        this run. A string among the tools is the name of one of the agent's tools.
        """
        start, _, earlier_messages = self._begin(prompt, **options)
        run = await start(streams=False)
        async for _ in run.events():
            pass  # nobody reads them
        return result_of(run, earlier_messages)

    @overload
    def run_sync(self, prompt: Prompt | None = None, **options: Unpack[RunOptions]) -> RunResult[Output]: ...

    @overload
    def run_sync(
        self, prompt: Prompt | None = None, *, output: Any, **options: Unpack[RunOptions]
    ) -> RunResult[Any]: ...

    def run_sync(self, prompt: Prompt | None = None, **options: Any) -> RunResult[Any]:
        """Like `run`, for plain code, also where an event loop is running."""
        # Files are read here and not in the event loop, which all blocking calls share.
        return run_blocking(self.run(None if prompt is None else to_message(prompt), **options))

    @overload
    def stream(self, prompt: Prompt | None = None, **options: Unpack[RunOptions]) -> RunStream[Output]: ...

    @overload
    def stream(self, prompt: Prompt | None = None, *, output: Any, **options: Unpack[RunOptions]) -> RunStream[Any]: ...

    def stream(self, prompt: Prompt | None = None, **options: Any) -> RunStream[Any]:
        """Return the events of a run as they come; the options are those of `run`."""
        start, history, earlier_messages = self._begin(prompt, **options)
        return RunStream(lambda: start(streams=True), history, earlier_messages)

    def _begin(
        self,
        prompt: Any,
        *,
        messages: Messages | None = None,
        context: Any = None,
        ask_user: AskUser | None = None,
        limits: Limits | None = None,
        run_id: str | None = None,
        **other: Any,
    ) -> "tuple[Callable[..., Awaitable[Run]], History, int]":
        """Check the options of a run. Return how to start it, its conversation, and the number of earlier messages."""
        if run_id is not None and (not isinstance(run_id, str) or not run_id):
            raise ConfigError(f"run_id must be a non-empty string, got {run_id!r}")
        history, earlier_messages = conversation(prompt, messages)
        run_limits = self._limits if limits is None else _check_limits(limits)
        config = self._with_overrides(other) if other else None

        async def start(*, streams: bool) -> "Run":
            from midspan._loop.run import Run  # loaded with the first run

            started = monotonic()
            try:
                preparing = self._prepare() if config is None else prepare_run(config)
                prepared = await with_timeout(preparing, run_limits.max_seconds)
            except Expired:
                raise _with_transcript(out_of_time(run_limits), history) from None
            except MidspanError as error:
                _with_transcript(error, history)
                raise
            tracker = prepared.track(run_limits, started)
            id = run_id or new_run_id()
            return Run(id, prepared, history, tracker, streams=streams, context=context, ask_user=ask_user)

        return start, history, earlier_messages

    async def _prepare(self) -> PreparedRun:
        """Return the prepared run; it is built again only if the tools have changed."""
        prepared = self._prepared
        if prepared is None or not (await self._config.tools.list_tools()).is_same_as(prepared.listing):
            prepared = self._prepared = await prepare_run(self._config)
        return prepared

    def _with_overrides(self, options: dict[str, Any]) -> RunConfig:
        changes: dict[str, Any] = {}
        for name, value in options.items():
            if name == "model":
                changes["provider"] = self._config.provider if value is None else self._provider(value)
            elif name == "tools":
                changes["tools"] = ToolSet(self._with_named_tools(as_list(value)))
            elif name in _CONVERTERS:
                changes[name] = _CONVERTERS[name](value)
            else:
                known = ", ".join(sorted(TypedRunOptions.__annotations__))
                raise ConfigError(f"unknown run option {name!r}; known options: {known}")
        return replace(self._config, **changes)

    def _with_named_tools(self, tools: Sequence[Any]) -> list[Any]:
        """Return the tools of one run; a name among them is one of the agent's tools."""
        names = [tool for tool in tools if isinstance(tool, str)]
        others = [tool for tool in tools if not isinstance(tool, str)]
        if not names:
            return others
        from midspan.tools.wrap import ToolSubset  # loaded with the first tool

        return [*others, ToolSubset(self._config.tools.source, names)]

    def _provider(self, model: Model | None) -> Provider:
        if isinstance(model, Provider) and not isinstance(model, type):
            return model
        if isinstance(model, list | tuple):
            from midspan.providers.fallback import Fallback  # loaded for chains of models

            return Fallback([self._provider(item) for item in model])
        from midspan.providers.registry import default_provider, provider_of  # loaded for models that are named

        if model is None:
            return self._owned_providers.setdefault("", default_provider())
        if not isinstance(model, str):
            raise ConfigError(f"model must be a provider or a name like {_EXAMPLE_MODEL!r}, got {model!r}")
        if model not in self._owned_providers:
            self._owned_providers[model] = provider_of(model)
        return self._owned_providers[model]

    async def close(self) -> None:
        """Close the models that the agent created from names, and the tool sources it was given.

        A provider that was passed as an object belongs to the caller.
        """
        closing = [provider.aclose() for provider in self._owned_providers.values()]
        closing += [source.aclose() for source in self._owned_sources]
        errors = await asyncio.gather(*closing, return_exceptions=True)
        for error in errors:
            if isinstance(error, BaseException):
                raise error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


_PER_RUN_OPTIONS = ("messages", "context", "ask_user", "run_id")


def _with_transcript(error: MidspanError, history: History) -> MidspanError:
    """Add the conversation to the error of a run that could not start; calls at its end were not run."""
    error.transcript = RunState.of(history).settled(CALL_NOT_RUN).history
    return error


def new_run_id() -> str:
    return f"run_{urandom(8).hex()}"


def as_list(tools: Any) -> Sequence[Any]:
    """Return the tools as a sequence, also if there is only one or none."""
    if tools is None:
        return ()
    is_single = isinstance(tools, str | bytes | Mapping | ToolSource) or callable(tools)
    return (tools,) if is_single or not isinstance(tools, Iterable) else tuple(tools)


def output_type(output: Any) -> Optional["OutputType"]:
    """Return the type of the answer; None if it is text."""
    if output is None or output is str:
        return None
    from midspan._schema.output_type import OutputType  # loaded for typed answers

    return OutputType(output)


def _check_system(system: Any) -> str | None:
    if system is not None:
        check_text(system, "system")
    return system  # type: ignore[no-any-return]  # a string, as checked


def _check_limits(limits: Any) -> Limits:
    if not isinstance(limits, Limits):
        raise ConfigError(f"limits must be Limits(…), got {limits!r}")
    return limits


def _tool_choice(choice: Any) -> ToolChoice | None:
    return None if choice is None else ToolChoice.of(choice)


_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "system": _check_system,
    "settings": ModelSettings.of,
    "output": output_type,
    "tool_choice": _tool_choice,
    "calls_only": bool,
    "prompt_mode": lambda value: value,
}
"""By name, how the value of an option becomes a field of RunConfig. Raises ConfigError if it is not valid."""


class Chat(Struct, frozen=True, eq=False):
    """An immutable conversation with an agent: `chat = await chat.ask("…")`, then `chat.text`."""

    agent: Agent
    messages: History = History()
    result: RunResult | None = None
    """The result of the last question."""

    def __post_init__(self) -> None:
        if not isinstance(self.agent, Agent):
            raise ConfigError(f"expected an Agent, got {type(self.agent).__name__}")
        if not isinstance(self.messages, History):  # a list, as saved conversations are read
            force_setattr(self, "messages", History(check_messages(self.messages)))

    @property
    def text(self) -> str:
        """The last answer; empty if nothing was asked yet."""
        return "" if self.result is None else self.result.text

    def add_turn(self, role: str, content: Prompt | Iterable[Any]) -> "Chat":
        """Return the conversation with one more turn: text, parts, the calls of a model, or the results of tools."""
        return replace(self, messages=self.messages.append(to_turn(role, content)), result=None)

    async def ask(self, prompt: Prompt | None = None, **options: Unpack[TypedRunOptions]) -> "Chat":
        """Return the conversation with this question and its answer; `options` are those of `Agent.run`."""
        if "messages" in options:
            raise ConfigError("a chat has its own messages; create another one with Chat(agent, messages)")
        options["messages"] = self.messages
        result = await self.agent.run(prompt, **options)
        return replace(self, messages=result.messages, result=result)

    def ask_sync(self, prompt: Prompt | None = None, **options: Unpack[TypedRunOptions]) -> "Chat":
        """Like `ask`, for plain code."""
        return run_blocking(self.ask(None if prompt is None else to_message(prompt), **options))
