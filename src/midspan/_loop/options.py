"""The options of agents and of runs: their types, their validation, and the values that they become."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Optional, TypedDict, TypeVar

from msgspec import Struct, ValidationError
from msgspec.structs import asdict

from midspan._types.context import OnQuestion
from midspan._types.exchange import CachePolicy
from midspan._types.specs import BuiltinTool, Limits, ModelSettings, ToolChoice
from midspan._types.texts import check_text
from midspan.errors import ConfigError
from midspan.providers.provider import Provider
from midspan.tools.source import ToolListing, ToolSource

if TYPE_CHECKING:
    import typing_extensions  # checkers know it; Python has such defaults from 3.13 on

    from midspan._loop.prompt import Messages
    from midspan._loop.telemetry import Telemetry
    from midspan._schema.dialect import SchemaDialect
    from midspan._schema.output_type import OutputType
    from midspan.tools.wrap import AdaptedTools

    Output = typing_extensions.TypeVar("Output", default=Any)
else:
    Output = TypeVar("Output")

Model = Provider | str | Sequence[Provider | str]
"""A provider, a name, or a chain of both: if one model fails, the next one is asked."""


class AgentOptions(TypedDict, total=False):
    """The options of an agent beside its model, its tools and the type of its answers."""

    system: str | None
    limits: Limits | dict[str, Any] | None
    settings: ModelSettings | dict[str, Any] | None
    tool_choice: ToolChoice | str | dict[str, Any] | None
    calls_only: bool
    prompt_mode: bool | None
    raise_tool_errors: bool
    on_question: OnQuestion | None
    cache: CachePolicy | None
    telemetry: "Telemetry | None"


class AgentChanges(AgentOptions, total=False):
    """The options of `Agent.replace`."""

    model: Model | None
    tools: Any


class RunOptions(AgentChanges, total=False):
    """The options of a single run beside the type of its answer; see `Agent.run`."""

    messages: "Messages | None"
    context: Any
    run_id: str | None


class TypedRunOptions(RunOptions, total=False):
    """All options of a single run."""

    output: Any


class ToolSet:
    """The tools of an agent: built-in tools of the provider, and one source for all others.

    The adapted form of the tools is kept, so a run with other settings does not build it again.
    """

    def __init__(self, tools: Sequence[Any]) -> None:
        from midspan.tools.wrap import is_local, source_of  # loaded with the first agent

        self.as_passed = tuple(tools)
        """The tools as the caller passed them."""
        self.builtins = tuple(builtin for tool in self.as_passed if (builtin := _builtin(tool)) is not None)
        self.source = source_of([tool for tool in self.as_passed if _builtin(tool) is None])
        self.is_local = is_local(self.source)
        """Whether the tools are functions only, which never change."""
        self._adapted: dict[int, tuple[SchemaDialect, AdaptedTools]] = {}

    async def list_tools(self) -> ToolListing:
        from midspan.tools.wrap import list_source  # as above

        return await list_source(self.source)

    def adapted(self, dialect: "SchemaDialect") -> "AdaptedTools":
        """Return the source whose tools the dialect can express."""
        known = self._adapted.get(id(dialect))
        if known is None:
            from midspan.tools.wrap import AdaptedTools  # as above

            known = self._adapted[id(dialect)] = dialect, AdaptedTools(self.source, dialect)
        return known[1]


class RunConfig(Struct, frozen=True, eq=False):
    """What the caller wants of a run."""

    provider: Provider
    tools: ToolSet
    system: str | None = None
    settings: ModelSettings = ModelSettings()
    output: Optional["OutputType"] = None
    tool_choice: ToolChoice | None = None
    calls_only: bool = False
    """The model never answers with text; a final tool ends the run."""
    prompt_mode: bool | None = None
    """Whether tools go into the prompt and calls are read from text; None does so for models that need it."""
    telemetry: Optional["Telemetry"] = None
    cache: CachePolicy | None = None
    raise_tool_errors: bool = False
    """Whether the exception of a tool ends the run."""


def _builtin(tool: Any) -> BuiltinTool | None:
    """Return a built-in tool, also if it is given in a form that can be converted to one."""
    if isinstance(tool, BuiltinTool):
        return tool
    convert = getattr(tool, "as_builtin", None)
    if callable(convert) and isinstance(tool, type):
        raise ConfigError(f"{tool.__name__} is a class; pass {tool.__name__}()")
    return convert() if callable(convert) else None


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


def check_system(system: Any) -> str | None:
    if system is not None:
        check_text(system, "system")
    return system  # type: ignore[no-any-return]  # a string, as checked


def check_on_question(on_question: Any) -> OnQuestion | None:
    if on_question is not None and not callable(on_question):
        raise ConfigError(f"on_question must be an async function of a question and a schema, got {on_question!r:.80}")
    return on_question  # type: ignore[no-any-return]  # a function, as checked


def check_cache(cache: Any) -> CachePolicy | None:
    if cache is not None and not isinstance(cache, CachePolicy):
        raise ConfigError(f"cache must be CachePolicy(…), got {cache!r:.80}")
    return cache


def settings_of(settings: Any) -> ModelSettings:
    try:
        return ModelSettings.of(settings)
    except ConfigError as error:
        if not isinstance(error.__cause__, ValidationError):
            raise
        values = settings if isinstance(settings, dict) else asdict(settings)
        raise ConfigError(f"settings: {_setting_problems(values) or error.__cause__}") from error.__cause__


def _setting_problems(values: dict[str, Any]) -> str:
    """Return which settings do not have their types, in the words that other schemas get."""
    from msgspec.json import schema

    from midspan._schema.arguments import SchemaValidator  # loaded with the first error

    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
    try:
        return "; ".join(map(str, SchemaValidator(schema(ModelSettings)).problems(plain)))
    except (TypeError, ValueError):  # a value that is not JSON
        return ""


def tool_choice_of(choice: Any) -> ToolChoice | None:
    return None if choice is None else ToolChoice.of(choice)


CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "system": check_system,
    "settings": settings_of,
    "output": output_type,
    "tool_choice": tool_choice_of,
    "calls_only": bool,
    "prompt_mode": lambda value: value,
    "cache": check_cache,
    "raise_tool_errors": bool,
    "telemetry": lambda value: value,
}
"""By name, how the value of an option becomes a field of RunConfig. Raises ConfigError if it is not valid."""
