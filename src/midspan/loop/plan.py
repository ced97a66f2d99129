"""What stays the same while a run goes on: the model, and its tools in the model's own words."""

from collections.abc import Iterable, Sequence
from operator import is_
from typing import TYPE_CHECKING, Any, Optional

from msgspec import Struct
from msgspec.structs import replace

from midspan.errors import ConfigError, MidspanError
from midspan.providers.provider import ModelProfile, Provider
from midspan.tools.failure import described
from midspan.tools.source import ToolSource
from midspan.types.exchange import RequestConfig
from midspan.types.parts import ToolCall, ToolResult
from midspan.types.specs import BuiltinTool, Limits, ModelSettings, ToolChoice, ToolSpec

if TYPE_CHECKING:
    from midspan.loop.output import TypedOutput


class Wishes(Struct, frozen=True, eq=False):
    """What the caller wants of a run, as he said it."""

    provider: Provider
    tools: Sequence[Any] = ()
    system: str | None = None
    settings: ModelSettings = ModelSettings()
    output: Any = None
    tool_choice: ToolChoice | None = None
    calls_only: bool = False
    """The model never answers in words; a tool that is final ends the run."""
    prompt_mode: bool | None = None
    """Tools are told in the prompt and calls read from the text; None does so for models that know no other way."""


class Plan(Struct, frozen=True, eq=False):
    """The same, ready to be run; `source` has the calls done, under the names that the model uses."""

    provider: Provider
    source: ToolSource
    config: RequestConfig
    output: Optional["TypedOutput"]
    aliases: dict[str, str]
    """By the names that the caller gave them, how tools are called that the model cannot call so."""
    repeatable: frozenset[str]
    changing: dict[str, bool]
    """Whether tools change anything, of those that say so."""
    finals: frozenset[str]
    """Tools whose result may end the run."""
    names: frozenset[str]
    """Of all tools that are run here."""
    free: frozenset[str]
    """Tools that are ours, and that no limit of the caller counts."""
    calls_only: bool
    first: RequestConfig
    """For the first request, where a call is forced; after that the model may answer."""
    last: RequestConfig
    """For a request that asks for an answer: the tools stay declared, because the history speaks of them."""
    given: ToolSource
    """The tools as the caller gave them."""
    specs: Sequence[ToolSpec]
    """What they were when the plan was made."""

    @property
    def calls_in_order(self) -> bool:
        return self.provider.profile.calls_in_order

    def spoken(self, limits: Limits) -> Limits:
        """The limits of the caller, under the names that the model uses."""
        each = limits.max_calls_per_tool
        if not self.aliases or not isinstance(each, dict):
            return limits
        return replace(limits, max_calls_per_tool={self.aliases.get(name, name): most for name, most in each.items()})

    async def still_holds(self) -> bool:
        """Whether the tools are still the same."""
        specs = await listed(self.given)
        return specs is self.specs or (len(specs) == len(self.specs) and all(map(is_, specs, self.specs)))


async def plan_of(wishes: Wishes) -> Plan:
    """Ask the tools what there is, and put all into the words of the model."""
    from midspan.tools.merge import source_of  # loaded with the first run, not with the agent
    from midspan.tools.spoken import Spoken

    builtins, given = split(wishes.tools)
    specs = await listed(given)
    source = given
    provider = _provider(wishes, has_functions=bool(specs))
    profile = provider.profile
    output = _output(wishes, profile, has_tools=bool(specs or builtins))
    if output is not None and output.by_tool:
        source = source_of([source, output.tool()])
    offered = specs if source is given else await listed(source)
    spoken = None if profile.schema is None else Spoken(source, profile.schema)
    declared = offered if spoken is None else spoken.say(offered)
    aliases = {own.name: said.name for own, said in zip(offered, declared, strict=True) if own.name != said.name}
    choice = _choice(wishes, declared, builtins, aliases)
    answering = _answering(declared, output, calls_only=wishes.calls_only)
    if choice is not None and choice.mode == "none" and output is not None and output.by_tool:
        choice = answering
    is_used_up = choice is not None and choice.mode == "any" and choice is not answering and not wishes.calls_only
    config = RequestConfig(
        model=provider.model,
        system=wishes.system,
        tools=(*builtins, *declared),
        tool_choice=None if is_used_up else choice,
        settings=wishes.settings,
        output=None if output is None else output.asked,
    )
    return Plan(
        provider=provider,
        source=spoken or source,
        config=config,
        output=output,
        aliases=aliases,
        repeatable=frozenset(spec.name for spec in declared if spec.repeatable),
        changing={spec.name: spec.changes for spec in declared if spec.changes is not None},
        finals=frozenset(spec.name for spec in declared if spec.final),
        names=frozenset(spec.name for spec in declared),
        free=frozenset(spec.name for spec in declared if output is not None and output.by_tool and _is_ours(spec)),
        calls_only=wishes.calls_only,
        first=config if config.tool_choice == choice else replace(config, tool_choice=choice),
        last=replace(config, tool_choice=answering) if config.tools else config,
        given=given,
        specs=specs,
    )


def _provider(wishes: Wishes, *, has_functions: bool) -> Provider:
    """The model; where it cannot be given functions, in the guise of one that can."""
    wanted = wishes.prompt_mode if wishes.prompt_mode is not None else not wishes.provider.profile.supports_tools
    if not wanted or not has_functions:
        return wishes.provider
    if not wishes.provider.profile.supports_prompted_tools:
        raise ConfigError(f"the {wishes.provider.model} model does not read tools from a prompt; leave prompt mode out")
    from midspan.providers.prompted.client import Prompted  # loaded where a model only writes text

    return wishes.provider if isinstance(wishes.provider, Prompted) else Prompted(wishes.provider)


async def listed(source: ToolSource) -> Sequence[ToolSpec]:
    """What a source has; it is foreign code, and what goes wrong in it is told."""
    try:
        specs = await source.list_tools()
    except MidspanError:
        raise
    except Exception as error:
        raise ConfigError(f"the tools of {type(source).__name__} cannot be listed: {described(error)}") from error
    if not isinstance(specs, Sequence) or not all(isinstance(spec, ToolSpec) for spec in specs):
        raise ConfigError(f"{type(source).__name__} lists {specs!r:.80}, which are no tools")
    return specs


class Chosen:
    """Tools of a source, by their names."""

    def __init__(self, source: ToolSource, names: Sequence[str]) -> None:
        self._source = source
        self._names = names

    async def list_tools(self) -> list[ToolSpec]:
        specs = {spec.name: spec for spec in await self._source.list_tools()}
        missing = [name for name in self._names if name not in specs]
        if missing:
            raise ConfigError(f"the agent has no tool called {missing[0]!r}; it has: {', '.join(specs) or 'none'}")
        return [specs[name] for name in self._names]

    async def call(self, call: ToolCall, context: Any = None) -> ToolResult:
        from midspan.tools.local import unknown  # loaded with the first tool

        return await self._source.call(call, context) if call.name in self._names else unknown(call, self._names)


def split(tools: Sequence[Any]) -> tuple[tuple[BuiltinTool, ...], ToolSource]:
    """The tools that the provider runs itself, and the source of all others."""
    from midspan.tools.merge import source_of  # loaded with the first tool

    builtins = tuple(built for one in tools if (built := _builtin(one)) is not None)
    others = [one for one in tools if _builtin(one) is None]
    return builtins, source_of(others)


def _answering(declared: Sequence[ToolSpec], output: Optional["TypedOutput"], *, calls_only: bool) -> ToolChoice:
    """What is asked for where nothing is left to do but to answer: words, if the answer is no call."""
    by_call = output is not None and output.by_tool
    ends = tuple(spec.name for spec in declared if (by_call and _is_ours(spec)) or (calls_only and spec.final))
    return ToolChoice("any", ends) if ends else ToolChoice("none")


def _is_ours(spec: ToolSpec) -> bool:
    from midspan.loop.output import ANSWER_TOOL  # there already, where this is asked

    return spec.name == ANSWER_TOOL


def _output(wishes: Wishes, profile: ModelProfile, *, has_tools: bool) -> Optional["TypedOutput"]:
    if wishes.output is None:
        return None
    from midspan.loop.output import typed_output  # loaded where an answer shall be typed

    return typed_output(wishes.output, profile.schema, by_tool=has_tools and not profile.supports_json_with_tools)


def _builtin(tool: Any) -> BuiltinTool | None:
    """A built-in tool, also one that only knows how to become one."""
    if isinstance(tool, BuiltinTool):
        return tool
    convert = getattr(tool, "as_builtin", None)
    if callable(convert) and isinstance(tool, type):
        raise ConfigError(f"{tool.__name__} is the kind of a tool; the tool is {tool.__name__}()")
    return convert() if callable(convert) else None


def _choice(
    wishes: Wishes, declared: Iterable[ToolSpec], builtins: Sequence[BuiltinTool], aliases: dict[str, str]
) -> ToolChoice | None:
    choice = ToolChoice("any") if wishes.calls_only and wishes.tool_choice is None else wishes.tool_choice
    if choice is None:
        return None
    if aliases and choice.names:
        choice = replace(choice, names=tuple(aliases.get(name, name) for name in choice.names))
    names = [spec.name for spec in declared]
    if choice.mode == "any" and not names and not builtins:
        raise ConfigError("a call is demanded, but there are no tools")
    missing = [name for name in choice.names if name not in names]
    if missing:
        known = ", ".join(names) or "none"
        raise ConfigError(f"tool choice asks for {', '.join(missing)}, but the tools are: {known}")
    return choice
