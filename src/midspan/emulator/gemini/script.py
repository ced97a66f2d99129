"""Where answers come from: a script, a function, a provider, or what the user wrote.

A script has no state. Its answer depends only on the conversation, so a repeated request gets the same answer, and many
conversations can use one script at the same time.
"""

import re
import tomllib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from midspan._schema.normalize import normalize
from midspan._types.exchange import ModelRequest, Output, RequestConfig
from midspan._types.messages import History
from midspan._types.specs import ModelSettings, ToolChoice, ToolChoiceMode, ToolSpec
from midspan.emulator.gemini.check import declarations_in, parameters_of, schema_of
from midspan.emulator.gemini.conversation import (
    Answer,
    AnswerLike,
    Conversation,
    Source,
    answer,
    call,
    to_answer,
    to_part,
)
from midspan.emulator.gemini.errors import STATUS_NAMES, ApiError
from midspan.errors import ConfigError, ProviderError
from midspan.providers.gemini.capabilities import FINISH_REASONS
from midspan.providers.gemini.decode import conversation as decode_conversation
from midspan.providers.gemini.proto import dump
from midspan.providers.gemini.wire import FunctionCallingConfig, GenerationConfig
from midspan.providers.provider import Provider

_MODES: dict[str, ToolChoiceMode] = {"AUTO": "auto", "VALIDATED": "auto", "ANY": "required", "NONE": "none"}
_RAW_FINISH_REASONS = {reason: raw for raw, reason in FINISH_REASONS.items()}


def source_of(script: Any, model: Provider | None) -> Source:
    """Return what answers for these two arguments of `LocalGemini`."""
    if model is not None:
        if script is not None:
            raise ConfigError("pass either a script or a model, not both")
        return _provider_source(model)
    if isinstance(script, str | Path):
        return load_script(Path(script))
    if isinstance(script, Sequence):
        return Script(script)
    if script is None:
        return _echo
    source: Source = script if callable(script) else Script([script])
    return source


def _echo(conversation: Conversation) -> Answer:
    if conversation.results:
        return answer(f"Results came from {', '.join(conversation.results)}.")
    return answer(f"You said: {conversation.last_text}")


class When(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Conditions on a conversation; all must hold."""

    says: str | None = None
    """A regular expression that is found in the last text of the user. `{city}` in the answer stands for what its group
    `(?P<city>…)` matches."""
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
        says = re.search(self.says or "", conversation.last_text)
        holds = (
            (self.step is None or conversation.step == self.step)
            and (self.results is None or conversation.results == tuple(self.results))
            and (self.model is None or fnmatchcase(conversation.model, self.model))
        )
        if says is None or not holds:
            return None
        return {name: text for name, text in says.groupdict().items() if text is not None}


class Rule(Struct, frozen=True):
    """An answer and its conditions: `Rule(When(says="weather"), "It is cold.")`."""

    when: When
    answer: AnswerLike


class Script:
    """Rules, tried in order, and answers for the turns of the model; the last answer is for all later turns."""

    def __init__(self, entries: Sequence[Rule | AnswerLike]) -> None:
        self._rules = [(entry.when, to_answer(entry.answer)) for entry in entries if isinstance(entry, Rule)]
        self._answers = [to_answer(entry) for entry in entries if not isinstance(entry, Rule)]

    def __call__(self, conversation: Conversation) -> Answer:
        """Return the next answer."""
        for when, prepared in self._rules:
            groups = when.match(conversation)
            if groups is not None:
                return replace(prepared, parts=_fill(prepared.parts, groups))
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


class _Entry(Answer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An `[[answers]]` entry of a TOML file."""

    when: When | None = None
    text: str | None = None
    calls: tuple[_Call, ...] = ()

    def to_entry(self) -> Rule | Answer:
        texts = () if self.text is None else ({"text": self.text},)
        options = {name: getattr(self, name) for name in Answer.__struct_fields__}
        options["parts"] = (*texts, *self.parts, *(call(item.name, **item.args) for item in self.calls))
        options["finish_reason"] = self.finish_reason or None
        answer = Answer(**options)
        return answer if self.when is None else Rule(self.when, answer)


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    answers: tuple[_Entry, ...]


def load_script(path: Path) -> Script:
    """Read a script from a TOML file with a list of `[[answers]]`."""
    try:
        file = msgspec.convert(tomllib.loads(path.read_text("utf-8")), _File)
        return Script([entry.to_entry() for entry in file.answers])
    except (OSError, ValueError, ConfigError) as error:  # ValueError: not UTF-8, not TOML, or not a script
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot read the script {str(path)!r}: {reason}") from error


def _provider_source(provider: Provider) -> Source:
    async def ask(conversation: Conversation) -> Answer:
        try:
            response = await provider.generate(_to_model_request(conversation))
        except ProviderError as error:
            raise ApiError(error.status if error.status in STATUS_NAMES else 500, str(error)) from error
        usage = {"promptTokenCount": response.usage.input, "candidatesTokenCount": response.usage.output}
        return Answer(
            parts=tuple(map(to_part, response.message.parts)),
            finish_reason=response.raw_finish_reason or _RAW_FINISH_REASONS.get(response.finish_reason, "OTHER"),
            finish_message=response.finish_message,
            usage={name: count for name, count in usage.items() if count},
        )

    return ask


def _to_model_request(conversation: Conversation) -> ModelRequest:
    config = conversation.generation_config
    tools = [
        ToolSpec(declaration.name or "", declaration.description or "", normalize(schema) if schema else None)
        for declaration in declarations_in(conversation.request.tools)
        for schema in [parameters_of(declaration)]
    ]
    request = RequestConfig(
        model=conversation.model,
        system=conversation.system_text or None,
        tools=tuple(tools),
        tool_choice=_to_tool_choice(conversation.calling_config),
        settings=ModelSettings(
            max_tokens=config.max_output_tokens,
            temperature=config.temperature,
            top_p=config.top_p,
            stop=tuple(config.stop_sequences or ()),
            seed=config.seed,
        ),
        output=_to_output(config),
    )
    return ModelRequest(request, History(decode_conversation(dump(content) for content in conversation.contents)))


def _to_tool_choice(config: FunctionCallingConfig) -> ToolChoice | None:
    mode = _MODES.get(str(config.mode))
    names = tuple(config.allowed_function_names or ())
    return None if mode is None else ToolChoice(mode, names, strict=config.mode == "VALIDATED" or None)


def _to_output(config: GenerationConfig) -> Output | None:
    if config.response_mime_type != "application/json":
        return None
    schema = schema_of(config.response_schema, config.response_json_schema)
    return Output(normalize(schema) if isinstance(schema, dict) else None)
