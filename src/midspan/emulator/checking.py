"""Requests checked as the real server checks them: bytes in, what is asked out, or a refusal."""

from collections.abc import Sequence
from functools import cached_property, lru_cache

from msgspec import Struct

from midspan.emulator.families import Family, family_of
from midspan.emulator.quick import Beginning, Glance, Memory, glance, key_of
from midspan.emulator.reading.read import Dialect, read
from midspan.emulator.refusal import Refusal
from midspan.emulator.rules.caching import check_caching
from midspan.emulator.rules.contents import check_content, check_contents, check_instruction, check_server_calls
from midspan.emulator.rules.declarations import check_declarations, names_of
from midspan.emulator.rules.generation import check_generation, check_output_beside_calls
from midspan.emulator.rules.media import check_media
from midspan.emulator.rules.signatures import check_signatures
from midspan.emulator.rules.tools import check_tools
from midspan.emulator.rules.turns import check_turns
from midspan.emulator.turns import Count, Turn, count_of, turn_of
from midspan.providers.gemini.capabilities import Api
from midspan.providers.gemini.wire import GenerateContentRequest


class Target(Struct, frozen=True, cache_hash=True, dict=True):
    """The model that is asked, by which API in which version, and whether for a stream."""

    model: str
    api: Api = Api.DEVELOPER
    version: str = "v1beta"
    streaming: bool = False

    @cached_property
    def family(self) -> Family:
        return family_of(self.model, self.api, self.version)

    @property
    def dialect(self) -> Dialect:
        return Dialect(self.api, self.version, self.family.capabilities.call_ids)


class Question(Struct, frozen=True):
    """A request that the API accepts."""

    target: Target
    family: Family
    turns: Sequence[Turn]
    count: Count
    setup: GenerateContentRequest
    """Everything but the contents."""
    functions: tuple[str, ...]
    body: bytes
    since: int = 0
    """Turns before this one were accepted in an earlier request, and are right in what goes on from it."""

    def request(self) -> GenerateContentRequest:
        """The whole message; read only for those who want it."""
        return read(GenerateContentRequest, self.body, self.target.dialect)


def check(body: bytes, target: Target, *, strict_signatures: bool = False) -> Question:
    """What is asked; whatever the API would refuse is raised as a Refusal in its words."""
    return Checker(strict_signatures=strict_signatures).check(body, target)


class Checker:
    """Checks requests, and remembers how conversations began: what was right once need not be looked at again."""

    def __init__(self, *, strict_signatures: bool = False) -> None:
        self._strict = strict_signatures
        self._memory = Memory()

    def check(self, body: bytes, target: Target) -> Question:
        """What is asked, or a Refusal in the API's words."""
        try:
            return self._checked(body, target, target.family)
        except RecursionError as error:
            words = "A FunctionDeclaration in the request exceeds the maximum allowed nesting depth."
            raise Refusal(400, words) from error

    def _checked(self, body: bytes, target: Target, family: Family) -> Question:
        key = key_of(body, target)
        beginning = self._memory.recall(body, key)
        glanced = glance(body, beginning)
        question = _quick(body, target, family, glanced, beginning) if glanced is not None else None
        if question is None:
            glanced, question = None, _thorough(body, target, family)
        self._check_together(question, family)
        if glanced is not None:
            turns, count = tuple(question.turns), question.count
            kept = Beginning(glanced.start, glanced.tail, turns, count, question.setup, question.functions)
            self._memory.keep(key, kept)
        return question

    def _check_together(self, question: Question, family: Family) -> None:
        """What contents and setup must be together, where each is right by itself."""
        count = question.count
        check_contents(question.turns, count.tokens, family)
        if count.calls or question.functions:
            check_output_beside_calls(question.setup.generation_config, family)
        if count.calls or count.results or not family.prefill:
            check_turns(question.turns, count, family, question.since)
        if count.calls:
            check_signatures(question.turns, count, family, since=question.since, strict=self._strict)
        if count.media:
            check_media(question.request().contents or (), family)


def _quick(
    body: bytes, target: Target, family: Family, glanced: Glance, beginning: Beginning | None
) -> Question | None:
    new = glanced.turns
    if not family.capabilities.call_ids and any(map(_has_ids, new)):
        return None
    if glanced.setup is None:
        assert beginning is not None, "what a glance leaves out is in the beginning"
        turns = (*beginning.turns, *new)
        count = count_of(new, beginning.count)
        since = len(beginning.turns)
        return Question(target, family, turns, count, beginning.setup, beginning.functions, body, since)
    setup = _known_setup(glanced.setup, target)
    if setup is None:
        return None
    return Question(target, family, new, count_of(new, Count()), setup[0], setup[1], body)


def _thorough(body: bytes, target: Target, family: Family) -> Question:
    """Everything read field by field; here the words for what is wrong are found."""
    request = read(GenerateContentRequest, body, target.dialect)
    turns = [turn_of(content) for content in request.contents or ()]
    for at, turn in enumerate(turns):
        check_content(at, turn, family)
    check_server_calls(request.contents or ())
    _check_setup(request, target, family)
    return Question(target, family, turns, count_of(turns, Count()), request, names_of(request.tools or ()), body)


def _check_setup(setup: GenerateContentRequest, target: Target, family: Family) -> None:
    """What a setup must be, whatever is said."""
    if setup.system_instruction is not None and not family.capabilities.system_instruction:
        raise Refusal(400, f"Developer instruction is not enabled for models/{family.name}")
    check_instruction(setup.system_instruction, family)
    if setup.generation_config is not None:
        check_generation(setup.generation_config, family)
    check_caching(setup, family)
    check_declarations(setup.tools or (), family)
    check_tools(setup.tools or (), setup.tool_config, family, streaming=target.streaming)


@lru_cache(maxsize=1_024)
def _known_setup(body: bytes, target: Target) -> tuple[GenerateContentRequest, tuple[str, ...]] | None:
    """All but the contents, if nothing is wrong with it."""
    try:
        setup = read(GenerateContentRequest, body, target.dialect)
        _check_setup(setup, target, target.family)
    except Refusal:
        return None
    return setup, names_of(setup.tools or ())


def _has_ids(turn: Turn) -> bool:
    return any(call.id is not None for call in turn.calls) or any(result.id is not None for result in turn.results)
