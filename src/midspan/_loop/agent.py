"""What a user holds: a model with its tools and limits, ready to be asked any number of times at once."""

import asyncio
from collections.abc import Sequence
from os import urandom
from time import monotonic
from typing import Any, Generic, Self, TypeVar, Unpack, overload

from msgspec import Struct
from msgspec.structs import replace

from midspan._loop.blocking import run_blocking
from midspan._loop.limits import LimitTracker, out_of_time
from midspan._loop.options import (
    AgentOptions,
    AllRunOptions,
    RunOptions,
    check_limits,
    check_system,
    form_of,
    settings_of,
    several,
    switch,
)
from midspan._loop.prepare import PreparedRun, RunConfig, ToolSet, prepare_run
from midspan._loop.prompt import Messages, Prompt, conversation, message_of
from midspan._loop.result import Output, RunResult, RunStream, result_of
from midspan._loop.run import Run
from midspan._types.context import AskUser
from midspan._types.messages import History
from midspan._types.run_state import CALL_NOT_RUN, RunState
from midspan._types.specs import Limits, ModelSettings, ToolChoice
from midspan.errors import ConfigError, MidspanError
from midspan.providers.provider import Provider
from midspan.providers.registry import default_provider, provider_of
from midspan.tools.source import ToolSource
from midspan.tools.tasks import Expired, with_timeout

T = TypeVar("T")


class _RunInput(Struct, frozen=True, eq=False):
    """The arguments of one run."""

    history: History
    given: int
    """The number of messages before the prompt."""
    context: Any
    ask_user: AskUser | None
    limits: Limits
    run_id: str
    config: RunConfig | None
    """The configuration of this run, if it differs from the agent's."""


class Agent(Generic[Output]):
    """A model, its tools and its limits. One agent serves any number of runs at once; it keeps nothing of them."""

    @overload
    def __init__(
        self: "Agent[str]", model: Provider | str | None = None, tools: Any = (), **options: Unpack[AgentOptions]
    ) -> None: ...

    @overload
    def __init__(
        self: "Agent[T]",
        model: Provider | str | None = None,
        tools: Any = (),
        *,
        output: type[T],
        **options: Unpack[AgentOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: "Agent[Any]",
        model: Provider | str | None = None,
        tools: Any = (),
        *,
        output: Any,
        **options: Unpack[AgentOptions],
    ) -> None: ...

    def __init__(
        self,
        model: Provider | str | None = None,
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

        Without a model it is Gemini if a key is set; otherwise the first request raises ConfigError.

        `output` is a type or a JSON Schema that the answer shall have. With `calls_only` the model never answers in
        words: a tool that is final ends the run. `prompt_mode` tells the tools in the prompt and reads calls from the
        text; models that know no other way get it by themselves.
        """
        self._owned_providers: dict[str, Provider] = {}
        self._owned_sources: list[ToolSource] = []
        check_system(system)
        self._limits = limits = Limits() if limits is None else limits
        check_limits(limits)
        self._config = RunConfig(
            provider=self._provider(model),
            tools=ToolSet(several(tools)),
            system=system,
            settings=settings_of(settings),
            output=form_of(output),
            tool_choice=None if tool_choice is None else ToolChoice.of(tool_choice),
            calls_only=bool(switch("calls_only", calls_only)),
            prompt_mode=switch("prompt_mode", prompt_mode),
        )
        self._own(several(tools))
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

        made = copy(self)
        made._owned_providers, made._owned_sources = {}, []
        made._config = made._with_overrides(options)
        made._own(several(options.get("tools")))
        made._prepared, made._limits = None, self._limits if limits is None else limits
        check_limits(made._limits)
        return made

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
        """Ask, have the tools called, and wait for the answer.

        Of the options, `messages` is the conversation so far, `context` is what tools get past the model, and `run_id`
        is how the run shall be called. For this run alone, `model`, `tools`, `system`, `settings`, `limits`, `output`,
        `tool_choice`, `calls_only` and `prompt_mode` take the place of the agent's own; a name among the tools is one
        of the agent's.
        """
        question = self._run_input(prompt, **options)
        run = await self._run(question, streams=False)
        async for _ in run.events():
            pass  # nobody listens
        return result_of(run, question.given)

    @overload
    def run_sync(self, prompt: Prompt | None = None, **options: Unpack[RunOptions]) -> RunResult[Output]: ...

    @overload
    def run_sync(
        self, prompt: Prompt | None = None, *, output: Any, **options: Unpack[RunOptions]
    ) -> RunResult[Any]: ...

    def run_sync(self, prompt: Prompt | None = None, **options: Any) -> RunResult[Any]:
        """The same for plain code, also where an event loop is running."""
        # Files are read here, not in the event loop that all who come from plain code share.
        return run_blocking(self.run(None if prompt is None else message_of(prompt), **options))

    @overload
    def stream(self, prompt: Prompt | None = None, **options: Unpack[RunOptions]) -> RunStream[Output]: ...

    @overload
    def stream(self, prompt: Prompt | None = None, *, output: Any, **options: Unpack[RunOptions]) -> RunStream[Any]: ...

    def stream(self, prompt: Prompt | None = None, **options: Any) -> RunStream[Any]:
        """Ask, and take the events of the run as they come; the options are those of `run`."""
        question = self._run_input(prompt, **options)
        return RunStream(lambda: self._run(question, streams=True), question.history, question.given)

    def _run_input(
        self,
        prompt: Any,
        *,
        messages: Messages | None = None,
        context: Any = None,
        ask_user: AskUser | None = None,
        limits: Limits | None = None,
        run_id: str | None = None,
        **other: Any,
    ) -> "_RunInput":
        """What a run is asked, with all that can be wrong in it told now."""
        if limits is not None:
            check_limits(limits)
        if run_id is not None and (not isinstance(run_id, str) or not run_id):
            raise ConfigError(f"run_id is a text that is not empty, not {run_id!r}")
        history, given = conversation(prompt, messages)
        return _RunInput(
            history=history,
            given=given,
            context=context,
            ask_user=ask_user,
            limits=limits or self._limits,
            run_id=run_id or new_run_id(),
            config=self._with_overrides(other) if other else None,
        )

    async def _run(self, run: "_RunInput", *, streams: bool) -> Run:
        started = monotonic()
        try:
            preparing = self._prepare() if run.config is None else prepare_run(run.config)
            prepared = await with_timeout(preparing, run.limits.max_seconds)
        except Expired:
            raise _with_transcript(out_of_time(run.limits), run.history) from None
        except MidspanError as error:
            _with_transcript(error, run.history)
            raise
        limits = LimitTracker(
            prepared.with_model_names(run.limits),
            started=started,
            uncounted=prepared.uncounted,
            finals=prepared.finals,
        )
        return Run(
            run.run_id, prepared, run.history, limits, streams=streams, context=run.context, ask_user=run.ask_user
        )

    async def _prepare(self) -> PreparedRun:
        """Return the prepared run; it is built again only if the tools have changed."""
        prepared = self._prepared
        if prepared is None or not (await self._config.tools.list_tools()).is_same_as(prepared.listing):
            prepared = self._prepared = await prepare_run(self._config)
        return prepared

    def _with_overrides(self, options: dict[str, Any]) -> RunConfig:
        changes: dict[str, Any] = {}
        for name, value in options.items():
            match name:
                case "model" if value is None:
                    pass  # the agent's own
                case "model":
                    changes["provider"] = self._provider(value)
                case "tools":
                    changes["tools"] = ToolSet(self._chosen(several(value)))
                case "settings":
                    changes["settings"] = settings_of(value)
                case "tool_choice":
                    changes["tool_choice"] = None if value is None else ToolChoice.of(value)
                case "system":
                    check_system(value)
                    changes["system"] = value
                case "calls_only" | "prompt_mode":
                    changes[name] = switch(name, value)
                case "output":
                    changes["output"] = form_of(value)
                case _:
                    known = ", ".join(AllRunOptions.__annotations__)
                    raise ConfigError(f"a run takes no {name!r}; it takes: {known}")
        return replace(self._config, **changes)

    def _chosen(self, tools: Sequence[Any]) -> list[Any]:
        """Tools for one run; a name among them is one of the agent's own."""
        from midspan.tools.wrap import ToolSubset  # loaded with the first tool

        names = [tool for tool in tools if isinstance(tool, str)]
        others = [tool for tool in tools if not isinstance(tool, str)]
        return [*others, ToolSubset(self._config.tools.source, names)] if names else others

    def _provider(self, model: Provider | str | None) -> Provider:
        if isinstance(model, Agent | type):
            what = "an Agent" if isinstance(model, Agent) else f"the class {model.__name__}"
            raise ConfigError(f"a model is a provider or a name like 'gemini:gemini-3.8-flash', not {what}")
        if isinstance(model, Provider):
            return model
        if model is None:
            return self._owned_providers.setdefault("", default_provider())
        if not isinstance(model, str):
            raise ConfigError(f"a model is a provider or a name like 'gemini:gemini-3.8-flash', not {model!r}")
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
    """The error of a run that could not begin; calls that it was given and did not run are told so."""
    error.transcript = RunState.of(history).settled(CALL_NOT_RUN).history
    return error


def new_run_id() -> str:
    return f"run_{urandom(8).hex()}"
