"""The options of agents and of runs: their types, their validation, and the values that they become."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, TypeVar, runtime_checkable

from msgspec import Struct

from midspan._types.context import OnQuestion
from midspan._types.exchange import CachePolicy
from midspan._types.specs import BuiltinTool, Limits, ModelSettings, ToolChoice
from midspan._types.texts import check_text
from midspan.errors import ConfigError
from midspan.providers.provider import Provider
from midspan.tools.source import ToolSource

if TYPE_CHECKING:
    import typing_extensions  # type checkers bundle it; `typing.TypeVar` has `default` from Python 3.13 on

    from midspan._loop.prompt import Messages
    from midspan._loop.telemetry import Telemetry
    from midspan._schema.dialect import SchemaDialect
    from midspan._schema.output_type import OutputType
    from midspan.tools.wrap import AdaptedTools

    OutputT = typing_extensions.TypeVar("OutputT", default=Any)
else:
    OutputT = TypeVar("OutputT")

Model = Provider | str | Sequence[Provider | str] | None
"""A provider, a name, or a fallback chain of both. None means the provider whose API key is set."""


class AgentOptions(TypedDict, total=False):
    """The options of an agent other than its model, its tools and the type of its answers."""

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

    model: Model
    tools: Any


class RunOptions(AgentChanges, total=False):
    """The options of a single run other than the type of its answer; see `Agent.run`."""

    messages: "Messages | None"
    context: Any
    run_id: str | None


KNOWN_OPTIONS = sorted((*AgentChanges.__annotations__, "output"))
_RUN_ONLY = sorted(RunOptions.__annotations__.keys() - AgentChanges.__annotations__.keys())
"""The options that a run has and an agent does not."""


class AgentTools:
    """The tools of an agent: built-in tools of the provider, and one source for all others.

    The adapted form of the tools is kept, so a run with other settings does not build it again.
    """

    def __init__(self, tools: Sequence[Any]) -> None:
        from midspan.tools.wrap import is_local, source_of  # loaded with the first agent

        self.as_passed = tuple(tools)
        """The tools as the caller passed them."""
        converted = [_as_builtin(tool) for tool in tools]
        self.builtins = tuple(tool for tool in converted if isinstance(tool, BuiltinTool))
        self.source = source_of([tool for tool in converted if not isinstance(tool, BuiltinTool)])
        self.is_local = is_local(self.source)
        """Whether the tools are functions only, which never change."""
        self._adapted: dict[int, tuple[SchemaDialect, AdaptedTools]] = {}
        """By the id of the dialect, which is kept here so that no other dialect gets its id."""

    def adapted(self, dialect: "SchemaDialect") -> "AdaptedTools":
        """Return the tools with the names and schemas that a dialect accepts."""
        if id(dialect) not in self._adapted:
            from midspan.tools.wrap import AdaptedTools  # loaded with the first run

            self._adapted[id(dialect)] = dialect, AdaptedTools(self.source, dialect)
        return self._adapted[id(dialect)][1]


@runtime_checkable
class _ProviderTool(Protocol):
    """A tool of a provider's own types, such as GoogleSearch of Gemini."""

    def as_builtin(self) -> BuiltinTool: ...


def _as_builtin(tool: Any) -> Any:
    """Return a tool of a provider's own types as a BuiltinTool, and every other tool as it is."""
    if not isinstance(tool, _ProviderTool):
        return tool
    if isinstance(tool, type):
        raise ConfigError(f"{tool.__name__} is a class; pass {tool.__name__}()")
    return tool.as_builtin()


def as_list(tools: Any) -> Sequence[Any]:
    """Return the tools, one or several or none, as a sequence."""
    if tools is None:
        return ()
    is_single = isinstance(tools, str | Mapping | ToolSource) or not isinstance(tools, Iterable)
    return (tools,) if is_single else tuple(tools)


class RunConfig(Struct, frozen=True, eq=False):
    """The options of a run after validation; `Agent` describes them."""

    provider: Provider
    tools: AgentTools
    system: str | None = None
    limits: Limits = Limits()
    settings: ModelSettings = ModelSettings()
    output: "OutputType | None" = None
    tool_choice: ToolChoice | None = None
    calls_only: bool = False
    prompt_mode: bool | None = None
    raise_tool_errors: bool = False
    on_question: OnQuestion | None = None
    cache: CachePolicy | None = None
    telemetry: "Telemetry | None" = None


def convert_option(name: str, value: Any) -> Any:
    """Return the value of an option as a field of RunConfig. Raises ConfigError if it is not valid."""
    match name:
        case "system" if value is not None:
            check_text(value, "system")
        case "limits":
            return Limits.of(value)
        case "settings":
            return ModelSettings.of(value)
        case "output":
            return None if value is None or value is str else _output_type(value)
        case "tool_choice" if value is not None:
            return ToolChoice.of(value)
        case "on_question" if value is not None:
            from midspan.tools.function import is_async  # few runs have it

            if not is_async(value):
                raise ConfigError(f"on_question must be an async function, got {value!r:.80}")
        case "calls_only" | "prompt_mode" | "raise_tool_errors" if not isinstance(value, bool | None):
            raise ConfigError(f"{name} must be True or False, got {value!r:.80}")
        case "cache" if not isinstance(value, CachePolicy | None):
            raise ConfigError(f"cache must be a CachePolicy, such as CachePolicy(), got {value!r:.80}")
        case "telemetry" if isinstance(value, bool):
            raise ConfigError(f"telemetry must be a Telemetry, such as Telemetry(), got {value!r}")
        case _ if name not in KNOWN_OPTIONS:
            known = f"{', '.join(KNOWN_OPTIONS)}; a single run also has {', '.join(_RUN_ONLY)}"
            raise ConfigError(f"unknown option {name!r}; known options: {known}")
    return value


def _output_type(value: Any) -> "OutputType":
    from midspan._schema.output_type import OutputType  # loaded for typed answers

    return OutputType(value)
