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
    """Arguments of good calls."""
    final: bool = False
    """Its result may end the run."""
    repeatable: bool = False
    """Loop detection ignores the tool."""
    title: str | None = None
    """The name for people."""
    strict: bool | None = None
    """Whether the provider enforces the schema while the model writes the call; None leaves it to the provider."""
    read_only: bool | None = None
    """Whether it declares to change nothing; None if it declares nothing. The same for the next two."""
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
        if not isinstance(declaration, Mapping):
            raise ConfigError(f"expected a ToolSpec or a dict that declares a tool, got {declaration!r:.80}")
        function = declaration.get("function")
        fields: Mapping[str, Any] = function if isinstance(function, Mapping) else declaration
        name, description = fields.get("name"), fields.get("description") or ""
        if not isinstance(name, str) or not name or not isinstance(description, str):
            raise ConfigError(f"a declaration needs a name and a description as text, got {dict(declaration)!r:.200}")
        parameters = [fields[key] for key in _PARAMETERS if fields.get(key) is not None]
        response = [fields[key] for key in _RESPONSE if fields.get(key) is not None]
        unknown = [key for key in fields if key not in _DECLARATION]
        if unknown and not parameters:
            raise ConfigError(f"{name}: the declaration has {unknown[0]!r}, but none of: {', '.join(_PARAMETERS)}")
        hints = fields.get("annotations") or {}
        return cls(
            name,
            description,
            parameters[0] if parameters else None,
            response[0] if response else None,
            Effects(idempotent=True) if hints.get("idempotentHint") else None,
            title=fields.get("title") or hints.get("title"),
            strict=fields.get("strict"),
            read_only=hints.get("readOnlyHint"),
            destructive=hints.get("destructiveHint"),
            open_world=hints.get("openWorldHint"),
        )

    @property
    def changes(self) -> bool | None:
        """Whether the tool declares to change something; None if it declares nothing about that."""
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


_PARAMETERS = ("parameters", "inputSchema", "input_schema", "parametersJsonSchema", "parameters_json_schema")
_RESPONSE = ("response", "outputSchema", "output_schema", "responseJsonSchema", "response_json_schema")
_DECLARATION = frozenset(("type", "name", "description", "title", "strict", "annotations", *_PARAMETERS, *_RESPONSE))
"""The keys under which APIs write the declaration of a tool."""


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
        """Return the choice that a word, the name of a tool or a dict of one of the known APIs stands for.

        In a dict, `{"type": "required"}` without the name of a tool is the default choice.
        """
        if isinstance(choice, ToolChoice):
            return choice
        if isinstance(choice, str) and choice and choice.lower() not in _MODES:
            return cls("required", (choice,))
        if not isinstance(choice, dict):
            mode = _MODES.get(choice.lower()) if isinstance(choice, str) else None
            if mode is None:
                raise ConfigError(f"unknown tool choice {choice!r}; use 'auto', 'required', 'none' or a tool's name")
            return cls(mode, strict=True if choice.lower() == "validated" else None)
        keyword = str(choice.get("type", choice.get("mode", ""))).lower()
        names = _names(choice)
        mode = "required" if keyword in ("function", "tool") else _MODES.get(keyword)
        if mode is None:
            raise ConfigError(f"unknown tool choice {choice!r}; known types: {', '.join(_MODES)}")
        if keyword == "required" and not names:
            mode = "auto"
        elif keyword in ("function", "tool") and not names:
            raise ConfigError(f"tool choice {choice!r} needs the name of a tool")
        strict = choice.get("strict", True if keyword == "validated" else None)
        if keyword in _NO_NAMES and names and not strict:
            raise ConfigError(f"tool choice {keyword!r} takes no tool, got {', '.join(names)}")
        parallel = choice.get("parallel")
        if not all(value is None or isinstance(value, bool) for value in (parallel, strict)):
            raise ConfigError(f"parallel and strict of a tool choice must be True or False, got {choice!r}")
        return cls(mode, names, parallel, strict)


def _names(fields: dict[str, Any]) -> tuple[str, ...]:
    """Return the tools that a choice names, in any of the places where APIs put them."""
    name = fields.get("tool") or fields.get("name") or (fields.get("function") or {}).get("name")
    allowed = fields.get("names") or fields.get("allowedFunctionNames") or fields.get("allowed_function_names") or ()
    names = (name,) if name else tuple(allowed)
    if not all(isinstance(name, str) for name in names):
        raise ConfigError(f"the names in tool choice {fields!r} must be strings")
    return names


_MODES: dict[str, ToolChoiceMode] = {
    "auto": "auto",
    "required": "required",
    "none": "none",
    "optional": "auto",
    "validated": "auto",
    "any": "required",
    "required_any": "required",
}
"""The words of this and of other APIs."""
_NO_NAMES = ("auto", "optional", "required_any", "none")

OnLimit = Literal["error", "message", "answer"]


class Limits(Struct, frozen=True, omit_defaults=True):
    """How far a run may go. None means no limit.

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
        for name in ("max_turns", "max_tool_calls", "max_seconds", "max_tokens", "max_repeats"):
            _check_limit(name, getattr(self, name))
        per_tool = self.max_calls_per_tool
        for name, maximum in (per_tool if isinstance(per_tool, dict) else {"": per_tool}).items():
            _check_limit(f"max_calls_per_tool {name}".strip(), maximum)
        if self.on_limit not in get_args(OnLimit):
            raise ConfigError(f"on_limit must be 'error', 'message' or 'answer', got {self.on_limit!r}")

    @classmethod
    def of(cls, limits: "Limits | dict[str, Any] | None") -> "Limits":
        """Return the limits, also from a dict. Raises ConfigError if a name or a value is not valid."""
        if isinstance(limits, Limits):
            return limits
        if not isinstance(limits, dict | None):
            raise ConfigError(f"limits must be Limits(…) or a dict, got {limits!r:.80}")
        for name in limits or ():
            if name not in cls.__struct_fields__:
                raise ConfigError(f"unknown limit {name!r}; known limits: {', '.join(cls.__struct_fields__)}")
        return cls(**(limits or {}))

    def calls_of(self, tool: str) -> int | None:
        """Return how often this tool may be called."""
        maximum = self.max_calls_per_tool
        return maximum.get(tool) if isinstance(maximum, dict) else maximum


def _check_limit(name: str, value: object) -> None:
    types = int | float if name == "max_seconds" else int
    if value is not None and (not isinstance(value, types) or isinstance(value, bool) or not value > 0):
        raise ConfigError(f"{name} must be a positive number or None, got {value!r}")


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

    @classmethod
    def of(cls, settings: "ModelSettings | dict[str, Any] | None") -> "ModelSettings":
        """Return the settings, also from a dict. Raises ConfigError if a name or a value is not valid."""
        if settings is None:
            return cls()
        if not isinstance(settings, ModelSettings | dict):
            raise ConfigError(f"settings must be ModelSettings(…) or a dict, got {settings!r:.80}")
        values = settings if isinstance(settings, dict) else asdict(settings)
        for name, value in values.items():
            if name not in cls.__struct_fields__:
                known = ", ".join(cls.__struct_fields__)
                raise ConfigError(f"unknown setting {name!r}; known settings: {known}")
            _check_finite(value, name)
        try:
            return convert(values, cls)
        except ValidationError as error:
            thinking, levels = values.get("thinking"), get_args(ThinkingLevel)
            if thinking is not None and type(thinking) is not int and thinking not in levels:
                known = ", ".join(map(repr, levels))
                raise ConfigError(
                    f"settings: thinking must be {known} or a number of tokens, got {thinking!r:.80}"
                ) from None
            raise ConfigError(f"settings: {error}") from error


def _check_finite(value: Any, name: str) -> None:
    """Raise ConfigError for NaN and infinity, which JSON cannot express."""
    if isinstance(value, float) and not isfinite(value):
        raise ConfigError(f"settings: {name} must be a finite number, got {value!r}")
    if isinstance(value, dict):
        for key, item in value.items():
            _check_finite(item, f"{name}.{key}")
    elif isinstance(value, list | tuple):
        for item in value:
            _check_finite(item, name)


NAMESPACES = ("default_api.", "default_api:", "functions.", "tools.")
"""What some models write before the name of a tool."""
_MAX_NAME_CHARS = 200


def unknown_tool(name: str, names: Iterable[str]) -> str:
    """Return what to tell a model that called a tool which does not exist, with the name that it may have meant."""
    from difflib import get_close_matches  # loaded with the first unknown tool

    known = list(names)
    namespace = next((namespace for namespace in NAMESPACES if name.startswith(namespace)), "")
    wanted = name.removeprefix(namespace)
    near = [wanted] if wanted in known else get_close_matches(wanted[:_MAX_NAME_CHARS], known, 1, 0.65)
    message = f"unknown tool: {name[:_MAX_NAME_CHARS]}; "
    if not known:
        return message + "there are no tools"
    return f"{message}{f'did you mean {near[0]}? The' if near else 'the'} tools are: {', '.join(known[:50])}"
