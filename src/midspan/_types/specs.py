"""What a caller says about tools and models: declarations, choices, settings."""

from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

from msgspec import Struct
from msgspec.structs import force_setattr

from midspan.errors import ConfigError


class Effects(Struct, frozen=True, omit_defaults=True):
    """What a tool does to the world, as names of things with holes for its arguments: `account:{id}`."""

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    idempotent: bool = False


class ToolSpec(Struct, frozen=True, omit_defaults=True, tag="function"):
    """A tool as a model sees it: its name, what it is for, and the JSON Schemas of what goes in and out."""

    name: str
    description: str = ""
    parameters: dict[str, Any] | None = None
    response: dict[str, Any] | None = None
    effects: Effects | None = None
    """None means that nothing is declared, which is not the same as no effects."""
    examples: tuple[dict[str, Any], ...] = ()
    """Arguments as a good call has them."""
    final: bool = False
    """Its result may end the run."""
    repeatable: bool = False
    """The same call with the same result, again and again, is no sign of a model that goes in circles."""
    title: str | None = None
    """The name for people."""
    strict: bool | None = None
    """Whether the provider shall enforce the schema while the model writes the call; None leaves it to the provider."""
    read_only: bool | None = None
    """Whether it declares to change nothing; None if it declares nothing. The same for the next two."""
    destructive: bool | None = None
    """Whether it may delete or overwrite something."""
    open_world: bool | None = None
    """Whether it deals with things outside of a closed system, as a web search does."""
    needs_approval: bool = False
    """A person has to approve each call."""

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
        """Whether it changes anything, as it declares; None if it does not say: being idempotent tells nothing."""
        if self.read_only is not None:
            return not self.read_only
        if self.destructive:
            return True
        effects = self.effects
        if effects is None or (effects.idempotent and not effects.reads and not effects.writes):
            return None
        return bool(effects.writes)


_PARAMETERS = ("parameters", "inputSchema", "input_schema", "parametersJsonSchema", "parameters_json_schema")
_RESPONSE = ("response", "outputSchema", "output_schema", "responseJsonSchema", "response_json_schema")
_DECLARATION = frozenset(("type", "name", "description", "title", "strict", "annotations", *_PARAMETERS, *_RESPONSE))
"""The keys under which APIs write the declaration of a tool."""


class BuiltinTool(Struct, frozen=True, omit_defaults=True, tag="builtin"):
    """A tool that the provider runs itself, in the provider's own words: `BuiltinTool("googleSearch")`."""

    name: str
    config: dict[str, Any] = {}


AnyTool = ToolSpec | BuiltinTool


class ToolChoice(Struct, frozen=True, omit_defaults=True):
    """Whether the model may, must or must not call tools, and which ones."""

    mode: Literal["auto", "any", "none"]
    names: tuple[str, ...] = ()
    parallel: bool | None = None
    """Whether the model may make several calls in one turn; None leaves it to the provider."""
    strict: bool | None = None
    """Whether the provider forces calls to match their schemas; None leaves it to the provider."""

    @classmethod
    def of(cls, choice: "ToolChoice | str | dict[str, Any]") -> "ToolChoice":
        """The choice in any spelling that users know: optional, required, required_any, AUTO, FUNCTION, …"""
        if isinstance(choice, ToolChoice):
            return choice
        if not isinstance(choice, str | dict):
            raise ConfigError(f"unknown tool choice {choice!r}; known: {', '.join(_MODES)}")
        given: dict[str, Any] = choice if isinstance(choice, dict) else {"type": choice}
        word = str(given.get("type", given.get("mode", ""))).lower()
        names = _names(given)
        mode = _MODES.get(word)
        if mode is None:
            raise ConfigError(f"unknown tool choice {choice!r}; known: {', '.join(_MODES)}")
        if word in _NAME_NEEDED and not names:
            raise ConfigError(f"tool choice {word!r} needs the name of a tool: {{'type': {word!r}, 'tool': …}}")
        strict = given.get("strict", True if word == "validated" else None)
        if word in _NAMES_USELESS and names and not strict:
            raise ConfigError(f"tool choice {word!r} takes no tool, got {', '.join(names)}")
        parallel = given.get("parallel")
        if not all(value is None or isinstance(value, bool) for value in (parallel, strict)):
            raise ConfigError(f"parallel and strict of a tool choice must be True or False, got {choice!r}")
        return cls(mode, names, parallel, strict)


def _names(given: dict[str, Any]) -> tuple[str, ...]:
    """The tools that a choice names, in any of the places where APIs put them."""
    one = given.get("tool") or given.get("name") or (given.get("function") or {}).get("name")
    several = given.get("names") or given.get("allowedFunctionNames") or given.get("allowed_function_names") or ()
    names = (one,) if one else tuple(several)
    if not all(isinstance(name, str) for name in names):
        raise ConfigError(f"tool choice {given!r} names something that is no name of a tool")
    return names


_MODES: dict[str, Literal["auto", "any", "none"]] = {
    "auto": "auto",
    "optional": "auto",
    "validated": "auto",
    "any": "any",
    "required": "any",
    "required_any": "any",
    "function": "any",
    "none": "none",
}
_NAME_NEEDED = ("required", "function")
_NAMES_USELESS = ("auto", "optional", "required_any", "none")

OnLimit = Literal["error", "message", "answer"]


class Limits(Struct, frozen=True, omit_defaults=True):
    """How far a run may go; None is no limit."""

    max_turns: int | None = 10
    """Requests to the model. With `on_limit="answer"` one more is made, to ask for the answer."""
    max_tool_calls: int | None = None
    max_calls_per_tool: int | dict[str, int] | None = None
    """For every tool, or for each by its name."""
    max_seconds: float | None = None
    max_tokens: int | None = None
    """In and out, over all requests; looked at after each of them."""
    max_repeats: int | None = 5
    """How often in a row the same call may give the same result; after that it is refused."""
    on_limit: OnLimit = "error"
    """Raise LimitReached; or end with a polite text; or ask the model for an answer without tools."""

    def __post_init__(self) -> None:
        for name in ("max_turns", "max_tool_calls", "max_seconds", "max_tokens", "max_repeats"):
            _check_limit(name, getattr(self, name), float if name == "max_seconds" else int)
        per_tool = self.max_calls_per_tool
        for name, most in (per_tool if isinstance(per_tool, dict) else {"": per_tool}).items():
            _check_limit(f"max_calls_per_tool {name}".strip(), most, int)
        if self.on_limit not in ("error", "message", "answer"):
            raise ConfigError(f"on_limit is 'error', 'message' or 'answer', not {self.on_limit!r}")

    def calls_of(self, tool: str) -> int | None:
        """How often this tool may be called."""
        most = self.max_calls_per_tool
        return most.get(tool) if isinstance(most, dict) else most


def _check_limit(name: str, value: object, kind: type[int] | type[float]) -> None:
    if value is None or (isinstance(value, int | kind) and not isinstance(value, bool) and value > 0):
        return
    raise ConfigError(f"{name} is a number above 0, or None for no limit; not {value!r}")


ThinkingLevel = Literal["minimal", "low", "medium", "high"]


class ModelSettings(Struct, frozen=True, omit_defaults=True):
    """How the model shall write. What is None is left to the provider."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    thinking: ThinkingLevel | int | None = None
    """A level, or a number of tokens: 0 is off, -1 lets the model decide."""
    show_thoughts: bool | None = None
    extra: dict[str, Any] = {}
    """Top-level fields of the provider's own request, laid over what we make of the rest."""

    def __post_init__(self) -> None:
        for name, (kinds, words) in _KINDS_OF_SETTINGS.items():
            value = getattr(self, name)
            if value is not None and (not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)):
                raise ConfigError(f"settings: {name} is {words}, not {value!r:.80}")
        if not all(isinstance(one, str) for one in self.stop):
            raise ConfigError(f"settings: stop is a list of texts, not {self.stop!r:.80}")
        if isinstance(self.stop, list):
            force_setattr(self, "stop", tuple(self.stop))
        if isinstance(self.thinking, str) and self.thinking not in get_args(ThinkingLevel):
            levels = ", ".join(get_args(ThinkingLevel))
            raise ConfigError(f"settings: thinking is {levels} or a number of tokens, not {self.thinking!r}")


_NUMBER: Final = ((int, float), "a number")
_WHOLE_NUMBER: Final = ((int,), "a whole number")
_KINDS_OF_SETTINGS: Final[dict[str, tuple[tuple[type, ...], str]]] = {
    "max_tokens": _WHOLE_NUMBER,
    "temperature": _NUMBER,
    "top_p": _NUMBER,
    "top_k": _WHOLE_NUMBER,
    "stop": ((tuple, list), "a list of texts"),
    "seed": _WHOLE_NUMBER,
    "presence_penalty": _NUMBER,
    "frequency_penalty": _NUMBER,
    "thinking": ((str, int), "a level or a number of tokens"),
    "show_thoughts": ((bool,), "True or False"),
    "extra": ((dict,), "a dict of fields of the provider's own request"),
}
