"""What can be said of an agent and of a single run, and what is wrong with it told at once."""

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, Optional, TypedDict

from midspan._loop.prompt import Messages
from midspan._types.context import AskUser
from midspan._types.specs import Limits, ModelSettings, ToolChoice
from midspan._types.texts import check_text
from midspan.errors import ConfigError
from midspan.providers.provider import Provider

if TYPE_CHECKING:
    from midspan._schema.output_type import OutputType


class RunOptions(TypedDict, total=False):
    """What can be said of a single run; see `Agent.run`."""

    messages: Messages | None
    context: Any
    ask_user: AskUser | None
    run_id: str | None
    model: Provider | str | None
    tools: Any
    system: str | None
    settings: ModelSettings | dict[str, Any] | None
    limits: Limits | None
    tool_choice: ToolChoice | str | dict[str, Any] | None
    calls_only: bool
    prompt_mode: bool | None


class AllRunOptions(RunOptions, total=False):
    """The same, and the form that the answer of this run shall have."""

    output: Any


class AgentOptions(TypedDict, total=False):
    """What can be said of an agent beside its model, its tools and the form of its answers."""

    system: str | None
    limits: Limits | None
    settings: ModelSettings | dict[str, Any] | None
    tool_choice: ToolChoice | str | dict[str, Any] | None
    calls_only: bool
    prompt_mode: bool | None


def switch(name: str, value: Any) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise ConfigError(f"{name} is True or False, not {value!r}")
    return value


def check_system(system: Any) -> None:
    if system is not None:
        check_text(system, "system")


def check_limits(limits: Any) -> None:
    if not isinstance(limits, Limits):
        raise ConfigError(f"limits are of the type Limits, not {limits!r}")


def form_of(output: Any) -> Optional["OutputType"]:
    """The form that an answer shall have; None where it is text."""
    if output is None or output is str:
        return None
    from midspan._schema.output_type import OutputType  # loaded where an answer shall be typed

    return OutputType(output)


def several(tools: Any) -> Sequence[Any]:
    if tools is None:
        return ()
    return tuple(tools) if isinstance(tools, list | tuple | set | frozenset) else (tools,)


def settings_of(given: ModelSettings | dict[str, Any] | None) -> ModelSettings:
    if given is None:
        return ModelSettings()
    settings = given if isinstance(given, ModelSettings) else _read(given)
    for name in settings.__struct_fields__:
        _check_finite(getattr(settings, name), name)
    return settings


def _read(given: Any) -> ModelSettings:
    if not isinstance(given, dict):
        raise ConfigError(f"settings are ModelSettings(…) or a dict of them, not {given!r:.80}")
    unknown = [name for name in given if name not in ModelSettings.__struct_fields__]
    if unknown:
        known = ", ".join(ModelSettings.__struct_fields__)
        raise ConfigError(f"there is no setting called {unknown[0]!r}; known: {known}")
    return ModelSettings(**given)


def _check_finite(value: Any, name: str) -> None:
    """JSON has no word for a number that is none, and would say null."""
    if isinstance(value, float) and not isfinite(value):
        raise ConfigError(f"settings: {name} is {value!r}, which is no number that can be sent")
    if isinstance(value, dict):
        for key, one in value.items():
            _check_finite(one, f"{name}.{key}")
    elif isinstance(value, list | tuple):
        for one in value:
            _check_finite(one, name)
