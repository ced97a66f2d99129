"""Conversations and their answers: from a script, a function, a provider, or what the user wrote.

A script has no state. Its answer depends only on the conversation, so a repeated request gets the same answer, and many
conversations can use one script at the same time.
"""

import re
import tomllib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import asdict, replace

from midspan._schema.conversion import settings_of
from midspan._schema.normalize import normalize
from midspan._types.exchange import ModelRequest, Output, RequestConfig
from midspan._types.messages import History
from midspan._types.specs import ModelSettings, ToolChoice, ToolSpec
from midspan.emulator.gemini.api import STATUS_NAMES, ApiError
from midspan.emulator.gemini.check import declarations_in, parameters_of, schema_of
from midspan.emulator.gemini.models import ModelRules
from midspan.emulator.http import PauseSeconds
from midspan.errors import ConfigError, ProviderError
from midspan.providers.gemini import wire
from midspan.providers.gemini.capabilities import FINISH_REASONS
from midspan.providers.gemini.decode import conversation as decode_conversation
from midspan.providers.gemini.encode import encode_message
from midspan.providers.gemini.proto import dump
from midspan.providers.provider import Provider

_RAW_FINISH_REASONS = {reason: raw for raw, reason in FINISH_REASONS.items()}


class Conversation:
    """The conversation in an accepted request, as scripts see it."""

    def __init__(
        self, rules: ModelRules, request: wire.GenerateContentRequest, prompt_tokens: int, cached_tokens: int = 0
    ) -> None:
        self.rules = rules
        self.model = rules.name
        self.request = request
        """With the contents, tools and system instruction of the cache that it names."""
        self.prompt_tokens = prompt_tokens
        self.cached_tokens = cached_tokens
        self.contents = tuple(request.contents or ())
        roles = [None, *(content.role for content in self.contents)]
        self.step = sum(role == "model" != previous for previous, role in pairwise(roles))
        """How many turns the model has had; adjacent contents are one turn."""
        self.functions = tuple(declaration.name or "" for declaration in declarations_in(request.tools))
        """The names of the declared functions."""
        parts = (self.contents[-1].parts or ()) if self.contents else ()
        self.results = tuple(part.function_response.name or "" for part in parts if part.function_response is not None)
        """The names of the functions whose results are in the last content."""
        texts = (_text_of(content) for content in reversed(self.contents) if content.role != "model")
        self.last_text = next(filter(None, texts), "")
        """The last text of the user."""
        self.system_text = _text_of(request.system_instruction or wire.Content())
        self.generation_config = request.generation_config or wire.GenerationConfig()
        self.thinking_config = self.generation_config.thinking_config or wire.ThinkingConfig()
        tool_config = request.tool_config or wire.ToolConfig()
        self.calling_config = tool_config.function_calling_config or wire.FunctionCallingConfig()


def _text_of(content: wire.Content) -> str:
    return "".join(part.text or "" for part in content.parts or ())


class Answer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parts of an answer as the API writes them, and how they are sent."""

    parts: tuple[dict[str, Any], ...] = ()
    finish_reason: str | None = "STOP"
    """The finishReason; None or an empty text leaves it out."""
    finish_message: str | None = None
    usage: dict[str, Annotated[int, Meta(ge=0)]] = field(default_factory=dict)
    """Fields of usageMetadata. Missing counts are estimated."""
    chunks: Annotated[int, Meta(ge=1)] = 3
    """Into how many chunks each text is split when the answer is streamed."""
    delay_seconds: PauseSeconds = 0.0
    """Before the first byte."""
    gap_seconds: PauseSeconds = 0.0
    """Between chunks."""
    extra: dict[str, Any] = field(default_factory=dict)
    """More fields of the last candidate, such as groundingMetadata."""
    documents: tuple[dict[str, Any], ...] = ()
    """A complete response, one document per chunk. It is sent unchanged, and the parts are ignored."""


PartLike = str | Mapping[str, Any]
"""Text, or a part as the API writes it."""
AnswerLike = Answer | PartLike | Sequence[PartLike]
AnswerSource = Callable[[Conversation], AnswerLike | Awaitable[AnswerLike]]
"""Returns the next answer of a conversation. It does not know HTTP, faults or chunks."""


def answer(*parts: PartLike, **options: Any) -> Answer:
    """Make an answer of text, calls and other parts: `answer("Let me see.", call("search", query="x"), chunks=5)`."""
    documents = [{"text": part} if isinstance(part, str) else part for part in parts]
    return settings_of(Answer, {"parts": documents, **options}, "invalid answer")


def call(name: str, /, **arguments: Any) -> dict[str, Any]:
    """Make a part that calls a function. Like the real API, it has no `args` if there are no arguments."""
    return {"functionCall": {"name": name, **({"args": arguments} if arguments else {})}}


def to_answer(value: AnswerLike) -> Answer:
    """Convert an answer, a part or a list of parts."""
    if isinstance(value, Answer):
        return value
    return answer(*value) if isinstance(value, Sequence) and not isinstance(value, str) else answer(value)


def answer_source(script: Any, model: Provider | None) -> AnswerSource:
    """Return the source of answers for these arguments of `LocalGemini`."""
    if model is not None:
        if script is not None:
            raise ConfigError("pass either a script or a model, not both")
        return partial(_ask_provider, model)
    if script is None:
        return lambda conversation: answer(f"You said: {conversation.last_text}")
    if isinstance(script, str | Path):
        return load_script(Path(script))
    if isinstance(script, list | tuple):
        return Script(script)
    source: AnswerSource = script if callable(script) else Script([script])
    return source


class When(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Conditions on a conversation; all must hold."""

    says: str | None = None
    """A regular expression to search for in the last text of the user. `{city}` in the answer is replaced by what the
    group `(?P<city>…)` matches."""
    step: Annotated[int, Meta(ge=0)] | None = None
    """How many turns the model has had."""
    results: tuple[str, ...] | None = None
    """The functions whose results are in the last content, in their order; `()` if there are none."""
    model: str | None = None
    """The name of the model, with `*` as a wildcard."""

    def __post_init__(self) -> None:
        try:
            re.compile(self.says or "")
        except re.error as error:
            raise ConfigError(f"{self.says!r} is not a valid regular expression: {error}") from error

    def match(self, conversation: Conversation) -> dict[str, str] | None:
        """Return what the named groups of `says` match; None if a condition does not hold."""
        match = re.search(self.says or "", conversation.last_text)
        holds = (
            self.step in (None, conversation.step)
            and self.results in (None, conversation.results)
            and fnmatchcase(conversation.model, self.model or "*")
        )
        return match.groupdict("") if match is not None and holds else None


class Rule(Struct, frozen=True):
    """An answer and its conditions: `Rule(When(says="weather"), "It is cold.")`."""

    when: When
    answer: AnswerLike


class Script:
    """Rules, tried in order, and answers for the turns of the model; the last answer is for all later turns."""

    def __init__(self, entries: Sequence[Rule | AnswerLike]) -> None:
        if not entries:
            raise ConfigError("a script needs at least one answer")
        rules = [entry for entry in entries if isinstance(entry, Rule)]
        conditions = [settings_of(When, asdict(rule.when), "invalid condition") for rule in rules]
        self._rules = [(when, to_answer(rule.answer)) for when, rule in zip(conditions, rules, strict=True)]
        self._answers = [to_answer(entry) for entry in entries if not isinstance(entry, Rule)]

    def __call__(self, conversation: Conversation) -> Answer:
        """Return the next answer."""
        for when, answer in self._rules:
            groups = when.match(conversation)
            if groups is not None:
                return replace(answer, parts=_fill(answer.parts, groups))
        if not self._answers:
            raise ConfigError(
                f"no rule of the script matches step {conversation.step}, text {conversation.last_text[:80]!r}"
            )
        return self._answers[min(conversation.step, len(self._answers) - 1)]


def _fill(value: Any, groups: dict[str, str]) -> Any:
    """Return a value with the text of each group in place of its name in braces."""
    if isinstance(value, str):
        return re.sub(r"\{(\w+)\}", lambda match: groups.get(match[1], match[0]), value)
    if isinstance(value, dict):
        return {key: _fill(item, groups) for key, item in value.items()}
    return type(value)(_fill(item, groups) for item in value) if isinstance(value, list | tuple) else value


class _Call(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    args: dict[str, Any] = {}


class _ScriptEntry(Answer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    text: str | None = None
    calls: tuple[_Call, ...] = ()
    when: When | None = None

    def rule(self) -> Rule | Answer:
        texts = [] if self.text is None else [self.text]
        calls = [call(item.name, **item.args) for item in self.calls]
        options = {name: getattr(self, name) for name in Answer.__struct_fields__ if name != "parts"}
        result = answer(*texts, *self.parts, *calls, **options)
        return result if self.when is None else Rule(self.when, result)


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    answers: list[_ScriptEntry]


def load_script(path: Path) -> Script:
    """Read a script from a TOML file with a list of `[[answers]]`."""
    try:
        file = settings_of(_File, tomllib.loads(path.read_text("utf-8")), "invalid script")
        return Script([entry.rule() for entry in file.answers])
    except (OSError, ValueError) as error:  # not readable, not UTF-8, not TOML, not a script
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot read the script {str(path)!r}: {reason}") from error


async def _ask_provider(provider: Provider, conversation: Conversation) -> Answer:
    try:
        response = await provider.generate(_to_model_request(conversation))
    except ProviderError as error:
        raise ApiError(error.status if error.status in STATUS_NAMES else 500, str(error)) from error
    content = encode_message(response.message, replace(conversation.rules.capabilities, signatures=False))
    usage = {"promptTokenCount": response.usage.input, "candidatesTokenCount": response.usage.output}
    return Answer(
        parts=tuple(msgspec.json.decode(content)["parts"]) if content else (),
        finish_reason=response.raw_finish_reason or _RAW_FINISH_REASONS.get(response.finish_reason, "OTHER"),
        finish_message=response.finish_message,
        usage={name: count for name, count in usage.items() if count},
    )


def _to_model_request(conversation: Conversation) -> ModelRequest:
    generation, calling = conversation.generation_config, conversation.calling_config
    tool_choice = output = None
    if calling.mode in ("AUTO", "VALIDATED", "ANY", "NONE"):
        tool_choice = ToolChoice.of({"mode": calling.mode, "names": calling.allowed_function_names})
    if generation.response_mime_type == "application/json":
        schema = schema_of(generation.response_schema, generation.response_json_schema)
        output = Output(normalize(schema) if isinstance(schema, dict) else None)
    config = RequestConfig(
        model=conversation.model,
        system=conversation.system_text or None,
        tools=tuple(map(_to_spec, declarations_in(conversation.request.tools))),
        tool_choice=tool_choice,
        settings=ModelSettings(
            max_tokens=generation.max_output_tokens,
            temperature=generation.temperature,
            top_p=generation.top_p,
            stop=tuple(generation.stop_sequences or ()),
            seed=generation.seed,
        ),
        output=output,
    )
    return ModelRequest(config, History(decode_conversation(dump(content) for content in conversation.contents)))


def _to_spec(declaration: wire.FunctionDeclaration) -> ToolSpec:
    schema = parameters_of(declaration)
    return ToolSpec(declaration.name or "", declaration.description or "", normalize(schema) if schema else None)
