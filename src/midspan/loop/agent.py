"""What a user holds: a model with its tools and limits, ready to be asked any number of times at once."""

import sys
from collections.abc import Sequence
from copy import copy
from os import urandom
from time import monotonic
from typing import Any, Generic, Self, TypeVar, Unpack, overload

from msgspec import Struct
from msgspec.structs import replace

from midspan.errors import ConfigError, MidspanError
from midspan.loop.blocking import wait_for
from midspan.loop.options import (
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
from midspan.loop.plan import Chosen, Plan, Wishes, plan_of, split
from midspan.loop.prompt import Messages, Prompt, conversation, message_of
from midspan.loop.result import Output, RunResult, RunStream, result_of
from midspan.loop.run import Run
from midspan.loop.state import NOT_RUN, RunState
from midspan.loop.stop import Bounds, out_of_time
from midspan.providers.provider import Provider
from midspan.providers.registry import default_family, fallback_notice, provider_of
from midspan.tools.deadline import Expired, limited
from midspan.types.messages import History
from midspan.types.specs import Limits, ModelSettings, ToolChoice

T = TypeVar("T")


class _Question(Struct, frozen=True, eq=False):
    history: History
    given: int
    """How many of the messages were there before."""
    context: Any
    limits: Limits
    run_id: str
    wishes: Wishes | None
    """What is wanted of this run, where that is not what is wanted of all."""


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

        Without a model it is Gemini if there is a key for it, else the offline model, which says so on stderr.

        `output` is a type or a JSON Schema that the answer shall have. With `calls_only` the model never answers in
        words: a tool that is final ends the run. `prompt_mode` tells the tools in the prompt and reads calls from the
        text; models that know no other way get it by themselves.
        """
        self._own: dict[str, Provider] = {}
        check_system(system)
        self._limits = limits = Limits() if limits is None else limits
        check_limits(limits)
        self._wishes = Wishes(
            provider=self._provider(model),
            tools=several(tools),
            system=system,
            settings=settings_of(settings),
            output=form_of(output),
            tool_choice=None if tool_choice is None else ToolChoice.of(tool_choice),
            calls_only=bool(switch("calls_only", calls_only)),
            prompt_mode=switch("prompt_mode", prompt_mode),
        )
        if self._wishes.tools:
            split(self._wishes.tools)  # so that a wrong tool is told here, and not at the first question
        self._plan: Plan | None = None

    @property
    def model(self) -> Provider:
        return self._wishes.provider

    @property
    def tools(self) -> Sequence[Any]:
        """The tools as they were given."""
        return self._wishes.tools

    def but(self, *, limits: Limits | None = None, **other: Any) -> "Agent[Any]":
        """Another agent like this one, but with these options of `run` for all its runs."""
        for name in other:
            if name in _OF_ONE_RUN:
                raise ConfigError(f"{name} is of a single run; give it to run or stream, not to but")
        made = copy(self)
        made._wishes = self._differing(other)
        made._plan, made._limits = None, self._limits if limits is None else limits
        check_limits(made._limits)
        return made

    def __repr__(self) -> str:
        wishes = getattr(self, "_wishes", None)
        return "Agent()" if wishes is None else f"Agent({wishes.provider!r}, {len(wishes.tools)} tools)"

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
        question = self._question(prompt, **options)
        run = await self._run(question, whole=True)
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
        return wait_for(self.run(None if prompt is None else message_of(prompt), **options))

    @overload
    def stream(self, prompt: Prompt | None = None, **options: Unpack[RunOptions]) -> RunStream[Output]: ...

    @overload
    def stream(self, prompt: Prompt | None = None, *, output: Any, **options: Unpack[RunOptions]) -> RunStream[Any]: ...

    def stream(self, prompt: Prompt | None = None, **options: Any) -> RunStream[Any]:
        """Ask, and take the events of the run as they come; the options are those of `run`."""
        question = self._question(prompt, **options)
        return RunStream(lambda: self._run(question, whole=False), question.history, question.given)

    def _question(
        self,
        prompt: Any,
        *,
        messages: Messages | None = None,
        context: Any = None,
        limits: Limits | None = None,
        run_id: str | None = None,
        **other: Any,
    ) -> "_Question":
        """What a run is asked, with all that can be wrong in it told now."""
        if limits is not None:
            check_limits(limits)
        if run_id is not None and (not isinstance(run_id, str) or not run_id):
            raise ConfigError(f"run_id is a text that is not empty, not {run_id!r}")
        history, given = conversation(prompt, messages)
        return _Question(
            history=history,
            given=given,
            context=context,
            limits=limits or self._limits,
            run_id=run_id or new_run_id(),
            wishes=self._differing(other) if other else None,
        )

    async def _run(self, question: "_Question", *, whole: bool) -> Run:
        begun = monotonic()
        try:
            planning = self._planned() if question.wishes is None else plan_of(question.wishes)
            plan = await limited(planning, question.limits.max_seconds)
        except Expired:
            raise _with_transcript(out_of_time(question.limits), question.history) from None
        except MidspanError as error:
            _with_transcript(error, question.history)
            raise
        return Run(
            question.run_id,
            plan,
            question.history,
            bounds=Bounds(plan.spoken(question.limits), free=plan.free, begun=begun),
            context=question.context,
            whole=whole,
        )

    async def _planned(self) -> Plan:
        """The plan, made anew only where the tools are others than the last time."""
        plan = self._plan
        if plan is None or not await plan.still_holds():
            plan = self._plan = await plan_of(self._wishes)
        return plan

    def _differing(self, other: dict[str, Any]) -> Wishes:
        changes: dict[str, Any] = {}
        for name, value in other.items():
            match name:
                case "model" if value is None:
                    pass  # the agent's own
                case "model":
                    changes["provider"] = self._provider(value)
                case "tools":
                    changes["tools"] = self._chosen(several(value))
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
        return replace(self._wishes, **changes)

    def _chosen(self, tools: Sequence[Any]) -> list[Any]:
        """Tools for one run; a name among them is one of the agent's own."""
        names = [one for one in tools if isinstance(one, str)]
        others = [one for one in tools if not isinstance(one, str)]
        return [*others, Chosen(split(self._wishes.tools)[1], names)] if names else others

    def _provider(self, model: Provider | str | None) -> Provider:
        if isinstance(model, Agent | type):
            what = "an Agent" if isinstance(model, Agent) else f"the class {model.__name__}"
            raise ConfigError(f"a model is a provider or a name like 'gemini:gemini-3.8-flash', not {what}")
        if isinstance(model, Provider):
            return model
        if model is None:
            return self._own.setdefault("", _default())
        if not isinstance(model, str):
            raise ConfigError(f"a model is a provider or a name like 'gemini:gemini-3.8-flash', not {model!r}")
        if model not in self._own:
            self._own[model] = provider_of(model)
        return self._own[model]

    async def close(self) -> None:
        """Close the models that the agent made itself, of names; one that it was given belongs to the giver."""
        for provider in self._own.values():
            await provider.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


_OF_ONE_RUN = ("messages", "context", "run_id")


def _with_transcript(error: MidspanError, history: History) -> MidspanError:
    """The error of a run that could not begin; calls that it was given and did not run are told so."""
    error.transcript = RunState.of(history).settled(NOT_RUN).history
    return error


def _default() -> Provider:
    family = default_family()
    if not family.environment:
        sys.stderr.write(f"midspan: {fallback_notice(family)}\n")
    return family.make()


def new_run_id() -> str:
    return f"run_{urandom(8).hex()}"
