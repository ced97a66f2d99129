"""Answers from a script: by the number of the turn, or by rules about the conversation.

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
from msgspec.structs import force_setattr

from midspan.emulator.gemini.conversation import Answer, AnswerLike, Conversation, call, to_answer
from midspan.emulator.validate import Validated
from midspan.errors import ConfigError
from midspan.providers.gemini.capabilities import FINISH_NUMBERS, FINISH_REASONS


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
        self.answers = tuple(_answer(entry, at) for at, entry in enumerate(entries) if not isinstance(entry, Rule))

    def answer(self, conversation: Conversation) -> Answer:
        for rule in self.rules:
            if rule.when.holds(conversation):
                return to_answer(rule.answer)
        if not self.answers:
            raise ConfigError(
                f"no rule of the script matches step {conversation.step}, text {conversation.last_text[:80]!r}"
            )
        return self.answers[min(conversation.step, len(self.answers) - 1)]


def _answer(entry: AnswerLike, at: int) -> Answer:
    try:
        return to_answer(entry)
    except ConfigError as error:
        raise ConfigError(f"entry {at + 1} of the script: {error}") from error


class _Call(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    args: dict[str, Any] = {}
    id: str | None = None

    def to_part(self) -> dict[str, Any]:
        fields = call(self.name, **self.args)["functionCall"]
        return {"functionCall": fields if self.id is None else {"id": self.id, **fields}}


class _Entry(Answer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An `[[answers]]` entry of a TOML file."""

    when: When | None = None
    thought: str | None = None
    text: str | None = None
    calls: tuple[_Call, ...] = ()

    def to_entry(self) -> Rule | Answer:
        if self.finish not in _FINISH_REASONS:
            raise ConfigError(f"unknown finish {self.finish!r}; known: {', '.join(sorted(_FINISH_REASONS - {''}))}")
        thoughts = () if self.thought is None else ({"text": self.thought, "thought": True},)
        texts = () if self.text is None else ({"text": self.text},)
        options = {name: getattr(self, name) for name in Answer.__struct_fields__}
        options["parts"] = (*thoughts, *texts, *self.parts, *(item.to_part() for item in self.calls))
        options["finish"] = self.finish or None
        answer = Answer(**options)
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
