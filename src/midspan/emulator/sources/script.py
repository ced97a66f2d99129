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
from msgspec.structs import force_setattr

from midspan.emulator.answering.answer import Answer, Given, answers
from midspan.emulator.sources.conversation import Conversation
from midspan.errors import ConfigError


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
        for name in ("says", "system", "model"):
            word = getattr(self, name)
            if word is not None and not isinstance(word, str):
                raise ConfigError(f"{name} of a When is a text, not {word!r:.80}")
        for pattern in (self.says, self.system):
            try:
                re.compile(pattern or "")
            except (re.error, OverflowError, RecursionError) as error:
                raise ConfigError(f"{pattern!r} is no regular expression: {error}") from error
        if self.step is not None and (type(self.step) is not int or self.step < 0):
            raise ConfigError(f"step of a When is how many turns the model has had, 0 or more, not {self.step!r:.80}")
        for name in ("results", "functions"):
            force_setattr(self, name, _names(name, getattr(self, name)))

    def holds(self, conversation: Conversation) -> bool:
        return (
            (self.step is None or conversation.step == self.step)
            and (self.results is None or conversation.results == self.results)
            and (self.model is None or fnmatchcase(conversation.model, self.model))
            and set(self.functions) <= set(conversation.functions)
            and (self.says is None or re.search(self.says, conversation.last_text) is not None)
            and (self.system is None or re.search(self.system, conversation.system_text) is not None)
        )


def _names(name: str, given: Any) -> tuple[str, ...] | None:
    if given is None and name == "results":
        return None
    if not isinstance(given, tuple | list) or not all(isinstance(one, str) for one in given):
        raise ConfigError(f"{name} of a When is a tuple of names of functions, as ('search',), not {given!r:.80}")
    return tuple(given)


class Rule(Struct, frozen=True):
    """If this holds, that is answered: `Rule(When(says="weather"), "It is cold.")`."""

    when: When
    answer: Answer | Given | Sequence[Given]
    """Whatever reads like an answer; it is one from the beginning on."""

    def __post_init__(self) -> None:
        if not isinstance(self.when, When):
            raise ConfigError(f"a rule begins with its conditions, as When(says='weather'), not with {self.when!r:.80}")
        force_setattr(self, "answer", answers(self.answer))


Scripted = Callable[[Conversation], "Answer | Given | Sequence[Given] | Awaitable[Answer]"]


class Script:
    """Rules, tried in order; answers without a rule are for the turns of the model, one after another.

    The last of those answers every turn after it, too.
    """

    def __init__(self, entries: Sequence["Rule | Answer | Given | Sequence[Given]"]) -> None:
        if isinstance(entries, str):
            raise ConfigError(f"a script is a list of answers and rules; for this one answer give [{entries!r:.80}]")
        if not isinstance(entries, Sequence) or isinstance(entries, bytes | bytearray):
            raise ConfigError(f"a script is a list of answers and rules, not {entries!r:.80}")
        if not entries:
            raise ConfigError("a script without any answers says nothing; leave it out or give it one")
        self.rules = tuple(entry for entry in entries if isinstance(entry, Rule))
        self.answers = tuple(_entry(entry, at) for at, entry in enumerate(entries) if not isinstance(entry, Rule))

    def answer(self, conversation: Conversation) -> Answer:
        for rule in self.rules:
            if rule.when.holds(conversation):
                return answers(rule.answer)
        if not self.answers:
            raise ConfigError(
                f"no rule of the script is for step {conversation.step}, where the user said "
                f"{conversation.last_text[:80]!r}"
            )
        return self.answers[min(conversation.step, len(self.answers) - 1)]


def _entry(entry: Any, at: int) -> Answer:
    try:
        return answers(entry)
    except ConfigError as error:
        raise ConfigError(f"entry {at + 1} of the script: {error}") from error


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
    if isinstance(given, type):
        raise ConfigError(f"a script is no class; give one that is made, as {given.__name__}(…)")
    if isinstance(given, str | Path):
        from midspan.emulator.sources.script_file import load_script

        return load_script(Path(given))
    if callable(getattr(given, "answer", None)):
        return given
    if callable(given):
        return Function(given)
    if isinstance(given, Sequence) and not isinstance(given, bytes | bytearray):
        return Script(given)
    raise ConfigError(
        f"a script is a list of answers, a function of the conversation or the path of a TOML file, not {given!r:.80}"
    )
