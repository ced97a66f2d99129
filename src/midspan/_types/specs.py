"""What a caller declares about tools and models: specs, tool choice, limits, settings."""

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any, Literal, get_args

from msgspec import Struct, ValidationError, convert
from msgspec.structs import asdict

from midspan.errors import ConfigError


class Effects(Struct, frozen=True, omit_defaults=True):
    """What a tool reads and writes, as names with placeholders for its arguments: `account:{id}`."""

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    idempotent: bool = False


class ToolSpec(Struct, frozen=True, omit_defaults=True, tag="function"):
    """A tool as a model sees it: its name, its description, and the JSON Schemas of parameters and response."""

    name: str
    description: str = ""
    parameters: dict[str, Any] | None = None
    response: dict[str, Any] | None = None
    effects: Effects | None = None
    """None means that nothing is declared, which is not the same as no effects."""
    examples: tuple[dict[str, Any], ...] = ()
    """Arguments of example calls."""
    final: bool = False
    """Its result may end the run."""
    repeatable: bool = False
    """Loop detection ignores the tool."""
    title: str | None = None
    """The name for people."""
    strict: bool | None = None
    """Whether the provider enforces the schema while the model writes the call; None leaves it to the provider."""
    read_only: bool | None = None
    """Whether it changes nothing. None, here and in the next two fields, means that it is not declared."""
    destructive: bool | None = None
    """Whether it may delete or overwrite something."""
    open_world: bool | None = None
    """Whether it deals with things outside of a closed system, as a web search does."""
    needs_approval: bool = False
    """A person has to approve each call."""
    needs_context: bool = False
    """It uses the object that the caller passes to a run as `context=`."""

    @classmethod
    def of(cls, declaration: "ToolSpec | Mapping[str, Any]") -> "ToolSpec":
        """Return a spec from a dict as OpenAI, Anthropic, Gemini or MCP write a tool."""
        if isinstance(declaration, ToolSpec):
            return declaration
        function = declaration.get("function")
        fields: Mapping[str, Any] = function if isinstance(function, Mapping) else declaration
        name, description = fields.get("name"), fields.get("description") or ""
        if not isinstance(name, str) or not name or not isinstance(description, str):
            raise ConfigError(f"a declaration needs a name and a description as text, got {dict(declaration)!r:.200}")
        parameters, response = _first(fields, _PARAMETERS), _first(fields, _RESPONSE)
        unknown = [key for key in fields if key not in _DECLARATION]
        if unknown and parameters is None:
            raise ConfigError(f"{name}: the declaration has {unknown[0]!r}, but none of: {', '.join(_PARAMETERS)}")
        try:
            hints = convert(fields.get("annotations") or {}, _Annotations)
        except ValidationError as error:
            raise ConfigError(f"{name}: annotations: {error}") from error
        return cls(
            name,
            description,
            parameters,
            response,
            Effects(idempotent=True) if hints.idempotent_hint else None,
            title=fields.get("title") or hints.title,
            strict=fields.get("strict"),
            read_only=hints.read_only_hint,
            destructive=hints.destructive_hint,
            open_world=hints.open_world_hint,
        )

    @property
    def changes(self) -> bool | None:
        """Whether the tool is declared to change something; None if nothing is declared about that."""
        if self.read_only is not None:
            return not self.read_only
        if self.destructive:
            return True
        effects = self.effects
        if effects is None or (effects.idempotent and not effects.reads and not effects.writes):
            return None
        return bool(effects.writes)

    @property
    def safe_to_retry(self) -> bool:
        """Whether a call can be made again if its outcome is unknown: the tool is read-only or idempotent."""
        return self.changes is False or (self.effects is not None and self.effects.idempotent)


class _Annotations(Struct, rename="camel"):
    """What MCP declares about a tool."""

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


_PARAMETERS = ("parameters", "inputSchema", "input_schema", "parametersJsonSchema", "parameters_json_schema")
_RESPONSE = ("response", "outputSchema", "output_schema", "responseJsonSchema", "response_json_schema")
_DECLARATION = frozenset(("type", "name", "description", "title", "strict", "annotations", *_PARAMETERS, *_RESPONSE))
"""The keys under which APIs write the declaration of a tool."""


def _first(fields: Mapping[str, Any], keys: Iterable[str]) -> Any:
    """Return the first of these fields that is there."""
    return next((fields[key] for key in keys if fields.get(key) is not None), None)


class BuiltinTool(Struct, frozen=True, omit_defaults=True, tag="builtin"):
    """A tool that the provider runs itself, under the provider's name for it: `BuiltinTool("googleSearch")`."""

    name: str
    config: dict[str, Any] = {}


AnyTool = ToolSpec | BuiltinTool


ToolChoiceMode = Literal["auto", "required", "none"]


class ToolChoice(Struct, frozen=True, omit_defaults=True):
    """Whether the model may, must or must not call tools, and which ones."""

    mode: ToolChoiceMode
    """`required`: the model has to call a tool, one of `names` if they are given."""
    names: tuple[str, ...] = ()
    parallel: bool | None = None
    """Whether the model may make several calls in one turn; None leaves it to the provider."""
    strict: bool | None = None
    """Whether the provider forces calls to match their schemas; None leaves it to the provider."""

    @classmethod
    def of(cls, choice: "ToolChoice | str | dict[str, Any]") -> "ToolChoice":
        """Return the choice for a mode, the name of a tool, or a dict as one of the known APIs writes it.

        In a dict, `{"type": "required"}` without the name of a tool is the default choice.
        """
        if isinstance(choice, ToolChoice):
            return choice
        if isinstance(choice, str):
            mode_name = choice.lower()
            if mode_name not in _MODES:
                return cls("required", (choice,))
            return cls(_MODES[mode_name], strict=True if mode_name == "validated" else None)
        fields: dict[str, Any] = choice if isinstance(choice, dict) else {}
        mode_name = str(fields.get("type") or fields.get("mode") or "").lower()
        function = fields.get("function")
        name = fields.get("tool") or fields.get("name") or (isinstance(function, dict) and function.get("name"))
        names = [name] if name else _first(fields, _ALLOWED_NAMES) or []
        is_valid = isinstance(names, list | tuple) and all(isinstance(item, str) for item in names)
        if not is_valid or mode_name not in (*_MODES, *_NEEDS_NAME) or (mode_name in _NEEDS_NAME and not names):
            raise ConfigError(f"unknown tool choice {choice!r}; use 'auto', 'required', 'none' or a tool's name")
        mode = "auto" if mode_name == "required" and not names else _MODES.get(mode_name, "required")
        parallel = fields.get("parallel", False if fields.get("disable_parallel_tool_use") else None)
        return cls(mode, tuple(names), parallel, fields.get("strict", True if mode_name == "validated" else None))


_MODES: dict[str, ToolChoiceMode] = {
    "auto": "auto",
    "required": "required",
    "none": "none",
    "optional": "auto",
    "validated": "auto",
    "any": "required",
    "required_any": "required",
}
"""Our modes, by the names that we and other APIs use for them."""
_NEEDS_NAME = ("function", "tool")
_ALLOWED_NAMES = ("names", "allowedFunctionNames", "allowed_function_names")

OnLimit = Literal["error", "message", "answer"]


class Limits(Struct, frozen=True, omit_defaults=True):
    """The limits of a run. None means no limit.

    - `max_turns`: requests to the model, 10 by default.
    - `max_tool_calls`: calls of all tools.
    - `max_calls_per_tool`: calls of each tool; a dict has a number for each name.
    - `max_seconds`: the duration of the run.
    - `max_tokens`: input and output tokens of all requests, compared after each of them.
    - `max_repeats`: how often in a row the same call may give the same result, 5 by default; then it is refused.
    - `on_limit`: `"error"` raises LimitReachedError, `"message"` ends the run with a fixed text, and `"answer"` asks
      the model for an answer without tools, in one more request.
    """

    max_turns: int | None = 10
    max_tool_calls: int | None = None
    max_calls_per_tool: int | dict[str, int] | None = None
    max_seconds: float | None = None
    max_tokens: int | None = None
    max_repeats: int | None = 5
    on_limit: OnLimit = "error"

    def __post_init__(self) -> None:
        numbers = {name: getattr(self, name) for name in self.__struct_fields__ if name != "on_limit"}
        if isinstance(self.max_calls_per_tool, dict):
            numbers |= {"max_calls_per_tool": None, **self.max_calls_per_tool}
        for name, value in numbers.items():
            number_type = float if name == "max_seconds" else int
            if value is not None and not (isinstance(value, int | number_type) and value > 0):
                raise ConfigError(f"{name} must be a positive {number_type.__name__} or None, got {value!r}")
        if self.on_limit not in get_args(OnLimit):
            raise ConfigError(f"on_limit must be 'error', 'message' or 'answer', got {self.on_limit!r}")

    @classmethod
    def of(cls, limits: "Limits | dict[str, Any] | None") -> "Limits":
        """Return the limits, which may be given as a dict. Raises ConfigError if a name or a value is not valid."""
        if limits is None or isinstance(limits, Limits):
            return limits or cls()
        return cls(**_known_fields(cls, limits, "limits"))


ThinkingLevel = Literal["minimal", "low", "medium", "high"]


class ModelSettings(Struct, frozen=True, omit_defaults=True):
    """Settings of the model, such as temperature. None leaves a setting to the provider."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    thinking: ThinkingLevel | int | None = None
    """A level, or a number of tokens: 0 turns it off, -1 lets the model decide."""
    show_thoughts: bool | None = None
    extra: dict[str, Any] = {}
    """Top-level fields of the provider's own request, which override the others."""

    def __post_init__(self) -> None:
        if self.max_tokens is not None and not (isinstance(self.max_tokens, int) and self.max_tokens > 0):
            raise ConfigError(f"max_tokens must be a positive int or None, got {self.max_tokens!r}")
        for name in ("temperature", "top_p", "presence_penalty", "frequency_penalty"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and isfinite(value)):  # JSON has no NaN
                raise ConfigError(f"{name} must be a finite number, got {value!r}")

    @classmethod
    def of(cls, settings: "ModelSettings | dict[str, Any] | None") -> "ModelSettings":
        """Return the settings, which may be given as a dict. Raises ConfigError if a name or a value is not valid."""
        if settings is None:
            return cls()
        try:
            if isinstance(settings, ModelSettings):
                convert(asdict(settings), cls)  # checks the types
                return settings
            return convert(_known_fields(cls, settings, "settings"), cls)
        except ValidationError as error:
            raise ConfigError(f"settings: {error}") from error


def _known_fields(cls: type[Struct], fields: Any, label: str) -> Mapping[str, Any]:
    if not isinstance(fields, Mapping):
        raise ConfigError(f"{label} must be {cls.__name__} or a dict, got {fields!r:.80}")
    for name in fields:
        if name not in cls.__struct_fields__:
            raise ConfigError(f"{label}: unknown name {name!r}; known names: {', '.join(cls.__struct_fields__)}")
    return fields


NAMESPACES = ("default_api.", "default_api:", "functions.", "tools.")
"""What some models write before the name of a tool."""
_MAX_NAME_CHARS = 200


def unknown_tool(name: str, names: Iterable[str]) -> str:
    """Return what to tell a model that called a tool which does not exist, with the name that it may have meant."""
    from difflib import get_close_matches  # loaded with the first unknown tool

    known, wanted = list(names), name
    for namespace in NAMESPACES:
        wanted = wanted.removeprefix(namespace)
    near = [wanted] if wanted in known else get_close_matches(wanted[:_MAX_NAME_CHARS], known, 1, 0.65)
    message = f"unknown tool: {name[:_MAX_NAME_CHARS]}; "
    if not known:
        return message + "there are no tools"
    hint = f"did you mean {near[0]}? The" if near else "the"
    return f"{message}{hint} tools are: {', '.join(known[:50])}"
