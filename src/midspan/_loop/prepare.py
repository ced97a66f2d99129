"""Prepares a run (its tools as the model sees them, its request configurations, its policies) and reads its result."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from midspan._loop.options import AgentTools, RunConfig
from midspan._loop.policies import LimitTracker, Policy, ResponsePolicy, ToolChoicePolicy, time_limit_error
from midspan._loop.prompt import Messages, Prompt, conversation
from midspan._loop.result import RunResult
from midspan._loop.run import Run
from midspan._loop.typed_output import ANSWER_TOOL, TypedOutput, typed_output
from midspan._types.exchange import RequestConfig
from midspan._types.run_state import CALL_NOT_RUN, RunState
from midspan._types.specs import BuiltinTool, Limits, ToolChoice, ToolSpec
from midspan.errors import ArgumentError, ConfigError, MidspanError
from midspan.providers.provider import ModelProfile, Provider
from midspan.tools.source import ToolListing, ToolSource
from midspan.tools.tasks import Expired, with_timeout
from midspan.tools.wrap import list_source

if TYPE_CHECKING:
    from midspan._loop.run_stream import EventQueue

_log = logging.getLogger("midspan._loop")


class PreparedRun(Struct, frozen=True, eq=False):
    """A RunConfig, ready to run. The names of tools are those that the model uses."""

    provider: Provider
    source: ToolSource
    request_config: RequestConfig
    forced_config: RequestConfig
    """For requests that force a call; the same as `request_config` if none is forced."""
    answer_config: RequestConfig
    """For requests that allow only an answer. The tools stay declared, because the history refers to them."""
    output: TypedOutput | None
    listing: ToolListing
    """The tools as the caller's source listed them."""
    specs: dict[str, ToolSpec]
    """The declared tools by name."""
    routes: Mapping[int, Any]
    """Where wrapper sources send the calls of these tools."""
    aliases: dict[str, str]
    """From the caller's name of a tool to the name that the model knows it by, for tools that are renamed."""
    final_tools: frozenset[str]
    """Tools whose result may end the run."""
    answers_in_text: bool
    """Whether text without a call is an answer: no output type is set, and no call is required."""
    in_task: bool
    """Whether calls need tasks, because the source does not run user code in tasks itself."""
    policies: tuple[Policy, ...]
    """The rules that depend on nothing but the state of a run."""

    def track(self, limits: Limits, started: float) -> LimitTracker:
        """Return the tracker for a run with these limits of the caller; it uses the names that the model uses."""
        per_tool = limits.max_calls_per_tool
        if isinstance(per_tool, dict):
            names = {self.aliases.get(name, name): maximum for name, maximum in per_tool.items()}
            for name in names.keys() - self.specs.keys():
                _log.warning("max_calls_per_tool has %r, but the tools of the run are: %s", name, ", ".join(self.specs))
            limits = replace(limits, max_calls_per_tool=names)
        answers_by_tool = self.output is not None and self.output.by_tool
        return LimitTracker(limits, started, self.final_tools, (ANSWER_TOOL,) if answers_by_tool else ())


class PendingRun:
    """A run whose options are checked. `start` starts it; `result_of` returns its result when it has ended."""

    def __init__(
        self, id: str, config: RunConfig, prompt: Prompt, messages: Messages | None, context: Any,
        prepare: Callable[[], Awaitable[PreparedRun]] | None,
    ) -> None:  # fmt: skip
        """`prepare` returns the prepared run of the agent; without it, `config` is prepared for this run only."""
        self.id, self.config, self.context = id, config, context
        self.history, self.earlier_messages = conversation(prompt, messages)
        """The conversation with the prompt, and the number of messages before the prompt."""
        self._prepare = prepare

    async def start(self, queue: "EventQueue | None") -> Run:
        started, limits = monotonic(), self.config.limits
        try:
            preparing = prepare_run(self.config) if self._prepare is None else self._prepare()
            prepared = await with_timeout(preparing, limits.max_seconds)
            for spec in prepared.listing.tools if self.context is None else ():
                if spec.needs_context:
                    hint = "pass context=… or give its parameter a default"
                    raise ConfigError(f"the tool {spec.name!r} needs the context of the run; {hint}")
        except (Expired, MidspanError) as raised:
            error = time_limit_error(limits) if isinstance(raised, Expired) else raised
            error.transcript = RunState.of(self.history).settled(CALL_NOT_RUN).history  # calls at the end were not run
            raise error from error.__cause__
        tracker = prepared.track(limits, started)
        if self.config.telemetry is None:
            return Run(self, prepared, tracker, queue)
        from midspan._loop.telemetry import TracedRun  # loaded where runs are traced

        run = TracedRun(self, prepared, tracker, queue)
        run.telemetry = self.config.telemetry
        return run

    def result_of(self, run: Run) -> RunResult[Any]:
        """Return the result of `run`, which `start` returned and which has ended."""
        state, output, end = run.state, run.prepared.output, run.end
        assert end is not None, "a run ends with RunEnd or raises"
        value: Any = end.text
        if state.final_result is not None:
            value = state.final_result.value
            with suppress(ArgumentError):  # the tool may return something else
                value = value if output is None else output.type.parse(value)
        elif output is not None and not run.limit_tracker.ended_with_message:
            value = output.read(end.text)
        return RunResult(
            text=end.text,
            output=value,
            messages=state.history,
            new_messages=state.history[self.earlier_messages :],
            tool_calls=state.tool_runs,
            usage=state.usage,
            turns=state.turn,
            run_id=run.id,
            finish_reason=run.response.finish_reason,
            citations=tuple(dict.fromkeys(state.citations)) if state.citations else (),
            response=run.response,
            limit=end.limit,
        )


async def prepare_run(config: RunConfig, previous: PreparedRun | None = None) -> PreparedRun:
    """List the tools and adapt everything to the model. Returns `previous` if the tools have not changed since."""
    listing = await list_source(config.tools.source)
    if previous is not None and listing.is_same_as(previous.listing):
        return previous
    provider = _provider(config, has_tools=bool(listing.tools))
    profile, builtins = provider.profile, config.tools.builtins
    output = typed_output(config.output, profile, has_tools=bool(listing.tools or builtins))
    source, adapted, aliases = await _declare(config.tools, listing, profile, output)
    declared = adapted.tools
    choice = _choice(config, declared, builtins, aliases)
    answer_tools = (ANSWER_TOOL,) if output is not None and output.by_tool else ()
    final_tools = tuple(spec.name for spec in declared if spec.final)
    # A request that allows only an answer forbids calls, unless the answer is a call.
    answers = final_tools if config.calls_only else answer_tools
    answering = ToolChoice("required", answers) if answers else ToolChoice("none")
    if choice is not None and choice.mode == "none" and answer_tools:
        choice = answering
    # A call that is forced once: afterwards the model may answer.
    is_forced = choice is not None and choice.mode == "required" and choice is not answering and not config.calls_only
    request_config = RequestConfig(
        model=provider.model,
        system=config.system,
        tools=(*builtins, *declared),
        tool_choice=None if is_forced else choice,
        settings=config.settings,
        output=None if output is None else output.requested,
        cache=config.cache,
    )
    output_policies = () if output is None else (output,)
    return PreparedRun(
        provider=provider,
        source=source,
        request_config=request_config,
        forced_config=replace(request_config, tool_choice=choice) if is_forced else request_config,
        answer_config=replace(request_config, tool_choice=answering) if request_config.tools else request_config,
        output=output,
        listing=listing,
        specs={spec.name: spec for spec in declared},
        routes=adapted.routes,
        aliases=aliases,
        final_tools=frozenset(final_tools),
        answers_in_text=output is None and not config.calls_only,
        in_task=not config.tools.is_local,
        # The model reads the first refusal: a call that is also forbidden must not be answered with "call again".
        policies=(ToolChoicePolicy(declared), ResponsePolicy(calls_only=config.calls_only), *output_policies),
    )


async def _declare(
    tools: AgentTools, listing: ToolListing, profile: ModelProfile, output: TypedOutput | None
) -> tuple[ToolSource, ToolListing, dict[str, str]]:
    """Return the source for the model, its listing, and the aliases of the tools that are renamed."""
    if output is not None and output.by_tool:
        if any(tool.name == ANSWER_TOOL for tool in listing.tools):
            raise ConfigError(
                f"this model answers with output=… by calling a tool that Midspan names {ANSWER_TOOL!r}, "
                "and the agent has a tool of that name; rename it"
            )
        tools = AgentTools([tools.source, output.tool()])
        listing = await list_source(tools.source)
    if profile.schema is None:
        return tools.source, listing, {}
    source = tools.adapted(profile.schema)
    declared = source.update(listing)
    if source.keeps_names and tools.is_local:
        return tools.source, declared, {}
    pairs = zip(listing, declared, strict=True)
    return source, declared, {spec.name: adapted.name for spec, adapted in pairs if spec.name != adapted.name}


def _provider(config: RunConfig, *, has_tools: bool) -> Provider:
    """Return the provider, wrapped in prompt mode if the model cannot be given tools."""
    profile = config.provider.profile
    is_prompted = config.prompt_mode if config.prompt_mode is not None else not profile.supports_tools
    if not is_prompted or not has_tools:
        return config.provider
    if not profile.supports_prompted_tools:
        raise ConfigError(f"the model {config.provider.model!r} does not support prompt mode")
    from midspan.providers.prompted.client import PromptedTools  # loaded for models that only write text

    return config.provider if isinstance(config.provider, PromptedTools) else PromptedTools(config.provider)


def _choice(
    config: RunConfig, declared: Sequence[ToolSpec], builtins: Sequence[BuiltinTool], aliases: dict[str, str]
) -> ToolChoice | None:
    choice = ToolChoice("required") if config.calls_only and config.tool_choice is None else config.tool_choice
    if choice is None:
        return None
    choice = replace(choice, names=tuple(aliases.get(name, name) for name in choice.names))
    names = [spec.name for spec in declared]
    if choice.mode == "required" and not names and not builtins:
        raise ConfigError("tool_choice requires a call, but the agent has no tools")
    missing = [name for name in choice.names if name not in names]
    if missing:
        known = ", ".join(names) or "none"
        raise ConfigError(f"tool_choice names {', '.join(missing)}, but the tools are: {known}")
    return choice
