"""Answers from a script: by the number of the turn, or by rules about the conversation.

A script has no state. Its answer depends only on the conversation, so a repeated request gets the same answer, and many
conversations can use one script at the same time.
"""

import inspect
import re
import tomllib
from collections.abc import Awaitable, Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from midspan.emulator.gemini.sources.source import Answer, Conversation, PartLike, call, to_answer
from midspan.emulator.validate import Validated
from midspan.errors import ConfigError
from midspan.providers.gemini.capabilities import FINISH_NUMBERS, FINISH_REASONS

AnswerLike = Answer | PartLike | Sequence[PartLike]
ScriptFunction = Callable[[Conversation], AnswerLike | Awaitable[AnswerLike]]


class When(Validated, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Conditions on a conversation; all must hold."""

    says: str | None = None
    """A regular expression that is found in the last text of the user."""
    system: str | None = None
    """A regular expression that is found in the system instruction."""
    step: Annotated[int, Meta(ge=0)] | None = None
    """How many turns the model has had."""
    results: tuple[str, ...] | None = None
    """The functions whose results are in the last content, in their order; `()` if there are none."""
    functions: tuple[str, ...] = ()
    """Functions that are declared."""
    model: str | None = None
    """The name of the model, with `*` as a wildcard."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for pattern in (self.says, self.system):
            try:
                re.compile(pattern or "")
            except (re.error, OverflowError, RecursionError) as error:
                raise ConfigError(f"{pattern!r} is not a valid regular expression: {error}") from error

    def holds(self, conversation: Conversation) -> bool:
        return (
            (self.step is None or conversation.step == self.step)
            and (self.results is None or conversation.results == self.results)
            and (self.model is None or fnmatchcase(conversation.model, self.model))
            and set(self.functions) <= set(conversation.functions)
            and (self.says is None or re.search(self.says, conversation.last_text) is not None)
            and (self.system is None or re.search(self.system, conversation.system_text) is not None)
        )


class Rule(Validated, frozen=True):
    """An answer and its conditions: `Rule(When(says="weather"), "It is cold.")`."""

    when: When
    answer: Any
    """An Answer; the constructor converts text, parts and lists of parts."""

    def __post_init__(self) -> None:
        super().__post_init__()
        force_setattr(self, "answer", to_answer(self.answer))


class Script:
    """Rules, tried in order, and answers for the turns of the model; the last answer is for all later turns."""

    def __init__(self, entries: Sequence[Rule | AnswerLike]) -> None:
        if not isinstance(entries, Sequence) or isinstance(entries, str | bytes | bytearray):
            raise ConfigError(f"a script must be a list of answers and rules, got {entries!r:.80}")
        if not entries:
            raise ConfigError("a script needs at least one answer or rule")
        self.rules = tuple(entry for entry in entries if isinstance(entry, Rule))
        self.answers = tuple(_entry(entry, at) for at, entry in enumerate(entries) if not isinstance(entry, Rule))

    def answer(self, conversation: Conversation) -> Answer:
        for rule in self.rules:
            if rule.when.holds(conversation):
                answer: Answer = rule.answer
                return answer
        if not self.answers:
            raise ConfigError(
                f"no rule of the script matches step {conversation.step}, text {conversation.last_text[:80]!r}"
            )
        return self.answers[min(conversation.step, len(self.answers) - 1)]


def _entry(entry: AnswerLike, at: int) -> Answer:
    try:
        return to_answer(entry)
    except ConfigError as error:
        raise ConfigError(f"entry {at + 1} of the script: {error}") from error


class FunctionSource:
    """Answers from a function of the conversation, plain or async."""

    def __init__(self, function: ScriptFunction) -> None:
        self._function = function

    async def answer(self, conversation: Conversation) -> Answer:
        result = self._function(conversation)
        return to_answer(await result if inspect.isawaitable(result) else result)


def to_source(script: Any) -> Any:
    """Convert a list, a function or the path of a TOML file to a source; a source is returned as it is."""
    if isinstance(script, str | Path):
        return load_script(Path(script))
    if callable(getattr(script, "answer", None)) and not isinstance(script, type):
        return script
    if isinstance(script, Sequence):
        return Script(script)
    if callable(script) and not isinstance(script, type):
        return FunctionSource(script)
    raise ConfigError(
        f"a script must be a list of answers, a function of the conversation or the path of a TOML file, got "
        f"{script!r:.80}"
    )


class _Call(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    args: dict[str, Any] = {}
    id: str | None = None


class _Entry(Answer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An `[[answers]]` entry of a TOML file."""

    when: When | None = None
    thought: str | None = None
    text: str | None = None
    calls: tuple[_Call, ...] = ()

    def to_entry(self) -> Rule | Answer:
        parts: list[dict[str, Any]] = [] if self.thought is None else [{"text": self.thought, "thought": True}]
        if self.text is not None:
            parts.append({"text": self.text})
        parts += self.parts
        for item in self.calls:
            part = call(item.name, **item.args)
            parts.append({"functionCall": {**({"id": item.id} if item.id is not None else {}), **part["functionCall"]}})
        if self.finish not in _FINISH_REASONS:
            raise ConfigError(f"unknown finish {self.finish!r}; known: {', '.join(sorted(_FINISH_REASONS - {''}))}")
        options = {name: getattr(self, name) for name in Answer.__struct_fields__}
        answer = Answer(**{**options, "parts": tuple(parts), "finish": self.finish or None})
        return answer if self.when is None else Rule(self.when, answer)


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    answers: tuple[_Entry, ...]


_FINISH_REASONS = {*FINISH_REASONS, "MALFORMED_RESPONSE", "MISSING_THOUGHT_SIGNATURE", ""}.union(
    *FINISH_NUMBERS.values()
)


def load_script(path: Path) -> Script:
    """Read a script from a TOML file with a list of `[[answers]]`."""
    try:
        file = msgspec.convert(tomllib.loads(path.read_text("utf-8")), _File)
        return Script([entry.to_entry() for entry in file.answers])
    except OSError as error:
        raise ConfigError(f"cannot read the script {str(path)!r}: {error.strerror}") from error
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: not a script: {error}") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    except ValueError as error:  # not UTF-8, not TOML, or not a valid path
        raise ConfigError(f"cannot read the script {str(path)!r}: {error}") from error
