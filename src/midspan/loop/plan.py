"""What stays the same while a run goes on: the model, and its tools in the model's own words."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Optional

from msgspec import Struct
from msgspec.structs import replace

from midspan.errors import ConfigError
from midspan.providers.provider import Provider, Traits, traits_of
from midspan.tools.source import ToolListing, ToolSource
from midspan.types.exchange import Setup
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
    setup: Setup
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
    first: Setup
    """For the first request, where a call is forced; after that the model may answer."""
    last: Setup
    """For a request that asks for an answer: the tools stay declared, because the history speaks of them."""
    in_task: bool
    """Whether the calls need tasks, because the source of the tools does not run user code in tasks itself."""
    given: ToolSource
    """The tools as the caller gave them."""
    listing: ToolListing
    """What they were when the plan was made."""

    @property
    def calls_in_order(self) -> bool:
        return traits_of(self.provider).calls_in_order

    def spoken(self, limits: Limits) -> Limits:
        """The limits of the caller, under the names that the model uses."""
        each = limits.max_calls_per_tool
        if not self.aliases or not isinstance(each, dict):
            return limits
        return replace(limits, max_calls_per_tool={self.aliases.get(name, name): most for name, most in each.items()})

    async def still_holds(self) -> bool:
        """Whether the tools are still the same."""
        from midspan.tools.merge import list_source  # loaded with the first run

        return (await list_source(self.given)).is_same_as(self.listing)


async def plan_of(wishes: Wishes) -> Plan:
    """Ask the tools what there is, and put all into the words of the model."""
    from midspan.tools.adapted import AdaptedTools  # loaded with the first run, not with the agent
    from midspan.tools.local import LocalTools
    from midspan.tools.merge import list_source, source_of

    builtins, given = split(wishes.tools)
    listing = await list_source(given)
    specs = listing.tools
    source = given
    provider = _provider(wishes, has_functions=bool(specs))
    traits = traits_of(provider)
    output = _output(wishes, traits, has_tools=bool(specs or builtins))
    if output is not None and output.by_tool:
        source = source_of([source, output.tool()])
    adapted = source if traits.dialect is None else AdaptedTools(source, traits.dialect)
    offered = specs if source is given else (await list_source(source)).tools
    declared = offered if adapted is source else (await adapted.list_tools()).tools
    aliases = {own.name: said.name for own, said in zip(offered, declared, strict=True) if own.name != said.name}
    choice = _choice(wishes, declared, builtins, aliases)
    answering = _answering(declared, output, calls_only=wishes.calls_only)
    if choice is not None and choice.mode == "none" and output is not None and output.by_tool:
        choice = answering
    is_used_up = choice is not None and choice.mode == "any" and choice is not answering and not wishes.calls_only
    setup = Setup(
        model=provider.model,
        system=wishes.system,
        tools=(*builtins, *declared),
        tool_choice=None if is_used_up else choice,
        settings=wishes.settings,
        output=None if output is None else output.asked,
    )
    return Plan(
        provider=provider,
        source=adapted,
        setup=setup,
        output=output,
        aliases=aliases,
        repeatable=frozenset(spec.name for spec in declared if spec.repeatable),
        changing={spec.name: spec.changes for spec in declared if spec.changes is not None},
        finals=frozenset(spec.name for spec in declared if spec.final),
        names=frozenset(spec.name for spec in declared),
        free=frozenset(spec.name for spec in declared if output is not None and output.by_tool and _is_ours(spec)),
        calls_only=wishes.calls_only,
        first=setup if setup.tool_choice == choice else replace(setup, tool_choice=choice),
        last=replace(setup, tool_choice=answering) if setup.tools else setup,
        in_task=type(given) is not LocalTools,
        given=given,
        listing=listing,
    )


def _provider(wishes: Wishes, *, has_functions: bool) -> Provider:
    """The model; where it cannot be given functions, in the guise of one that can."""
    wanted = wishes.prompt_mode if wishes.prompt_mode is not None else not traits_of(wishes.provider).functions
    if not wanted or not has_functions:
        return wishes.provider
    if not traits_of(wishes.provider).prompts:
        raise ConfigError(f"the {wishes.provider.model} model does not read tools from a prompt; leave prompt mode out")
    from midspan.providers.prompted.client import Prompted  # loaded where a model only writes text

    return wishes.provider if isinstance(wishes.provider, Prompted) else Prompted(wishes.provider)


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


def _output(wishes: Wishes, traits: Traits, *, has_tools: bool) -> Optional["TypedOutput"]:
    if wishes.output is None:
        return None
    from midspan.loop.output import typed_output  # loaded where an answer shall be typed

    return typed_output(wishes.output, traits.dialect, by_tool=has_tools and not traits.json_with_functions)


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
