"""Answers from a script: by how far the conversation is, or by what was said in it.

A script has no memory. What it answers follows from the conversation that it is shown, so that a request that is sent
again gets the same answer again, and a thousand conversations can go on at once.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from msgspec import Struct

from wasat.emulator.answering.answer import Answer, Given, answers
from wasat.emulator.sources.conversation import Conversation
from wasat.errors import ConfigError


class When(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Conditions on a conversation, all of which must hold."""

    says: str | None = None
    """A regular expression that is found in what the user said last."""
    system: str | None = None
    """A regular expression that is found in the system instruction."""
    step: int | None = None
    """How many turns the model has had."""
    results: tuple[str, ...] | None = None
    """The functions whose results came last, in their order; none for `()`."""
    functions: tuple[str, ...] = ()
    """Functions that are declared."""
    model: str | None = None
    """The model's name, with `*` for anything."""

    def __post_init__(self) -> None:
        for pattern in (self.says, self.system):
            try:
                re.compile(pattern or "")
            except re.error as error:
                raise ConfigError(f"{pattern!r} is no regular expression: {error}") from error

    def holds(self, conversation: Conversation) -> bool:
        return (
            (self.step is None or conversation.step == self.step)
            and (self.results is None or conversation.results == self.results)
            and (self.model is None or fnmatchcase(conversation.model, self.model))
            and set(self.functions) <= set(conversation.functions)
            and (self.says is None or re.search(self.says, conversation.last_text) is not None)
            and (self.system is None or re.search(self.system, conversation.system_text) is not None)
        )


class Rule(Struct, frozen=True):
    """If this holds, that is answered."""

    when: When
    answer: Answer


Scripted = Callable[[Conversation], "Answer | Given | Sequence[Given] | Awaitable[Answer]"]


class Script:
    """Rules, tried in order; answers without a rule are for the turns of the model, one after another.

    The last of those answers every turn after it, too.
    """

    def __init__(self, entries: Sequence["Rule | Answer | Given | Sequence[Given]"]) -> None:
        self.rules = tuple(entry for entry in entries if isinstance(entry, Rule))
        self.answers = tuple(answers(entry) for entry in entries if not isinstance(entry, Rule))
        if not entries:
            raise ConfigError("a script without any answers says nothing; leave it out or give it one")

    def answer(self, conversation: Conversation) -> Answer:
        for rule in self.rules:
            if rule.when.holds(conversation):
                return rule.answer
        if not self.answers:
            raise ConfigError(
                f"no rule of the script is for step {conversation.step}, where the user said "
                f"{conversation.last_text[:80]!r}"
            )
        return self.answers[min(conversation.step, len(self.answers) - 1)]


class Function:
    """Answers from a function of the conversation."""

    def __init__(self, function: Scripted) -> None:
        self._function = function

    def answer(self, conversation: Conversation) -> Answer | Awaitable[Answer]:
        found = self._function(conversation)
        return _awaited(found) if inspect.isawaitable(found) else answers(found)


async def _awaited(found: Awaitable[Any]) -> Answer:
    return answers(await found)


def script_of(given: Any) -> "Script | Function | Any":
    """A script from a list, a function, the path of a TOML file, or one that is ready."""
    if isinstance(given, str | Path):
        from wasat.emulator.sources.script_file import load_script

        return load_script(Path(given))
    if callable(getattr(given, "answer", None)):
        return given
    if callable(given):
        return Function(given)
    if isinstance(given, Sequence):
        return Script(given)
    raise ConfigError(
        f"a script is a list of answers, a function of the conversation or the path of a TOML file, not {given!r}"
    )
