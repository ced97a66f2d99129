"""generateContent in both forms: the request is checked, somebody answers, faults happen, bytes go out."""

from collections.abc import Awaitable, Sequence
from inspect import isawaitable

from msgspec import Struct
from msgspec.structs import replace

from midspan.emulator.answering.answer import Answer, answers
from midspan.emulator.answering.caches import Caches
from midspan.emulator.answering.choosing import obeying
from midspan.emulator.answering.documents import Document, Numbering, Shape, documents_of
from midspan.emulator.answering.framing import content_type_of, frames_of
from midspan.emulator.answering.models import Models
from midspan.emulator.answering.options import Options
from midspan.emulator.answering.route import Route
from midspan.emulator.answering.seen import Seen
from midspan.emulator.checking import Checker, Target
from midspan.emulator.faults.making import (
    answer_under,
    as_whole,
    documents_under,
    frames_under,
    on_the_wire,
    split_for_continuation,
    until_closed,
)
from midspan.emulator.faults.plan import Fault, FaultPlan, Kind
from midspan.emulator.faults.refusals import reply_instead
from midspan.emulator.faults.runs import PlanRun
from midspan.emulator.refusal import invalid
from midspan.emulator.serving.replies import LAST_CHUNK, Break, Reply, Wait, sized, streamed, unsized, whole
from midspan.emulator.serving.requests import Request
from midspan.emulator.sources.conversation import Conversation
from midspan.emulator.sources.source import Source

_MOST_CONTINUATIONS = 1_000


class Asked(Struct, frozen=True):
    """A request that was accepted, and what shall go wrong with its answer."""

    route: Route
    conversation: Conversation
    faults: tuple[Fault, ...]
    cached_tokens: int = 0
    takes_chunks: bool = True


class Generation:
    """Answers of models, with the faults of the plans that they are under."""

    def __init__(self, source: Source, options: Options, models: Models, caches: Caches, seen: Seen) -> None:
        self._source = source
        self._checker = Checker(strict_signatures=options.strict_signatures)
        self._models = models
        self._caches = caches
        self._seen = seen
        self._targets: dict[Route, Target] = {}
        self._numbering = Numbering()
        self._continuations: dict[str, Answer] = {}
        self.run = PlanRun(FaultPlan())
        """The plan of all requests that name none."""
        self.runs: dict[str, PlanRun] = {}

    def reply(self, request: Request, route: Route) -> Reply | Awaitable[Reply]:
        run = self._run(request, route)
        faults = run.next(streaming=route.streaming)
        if faults:
            instead = self._instead(faults, run, streaming=route.streaming)
            if instead is not None:
                return instead
        asked = self._asked(request, route, faults)
        self._made(faults, run)
        answer = self._answer(asked.conversation)
        if isinstance(answer, Answer):
            return self._framed(answer, asked)
        return self._later(answer, asked) if isawaitable(answer) else self._framed(answers(answer), asked)

    def _instead(self, faults: Sequence[Fault], run: PlanRun, *, streaming: bool) -> Reply | None:
        for fault in faults:
            is_reset = fault.kind is Kind.RESET_BEFORE_HEADERS
            reply = [Break.RESET] if is_reset else reply_instead(fault, streaming=streaming)
            if reply is not None:
                self._made((fault,), run)
                return list(reply)
        return None

    def _run(self, request: Request, route: Route) -> PlanRun:
        name = route.plan
        if name is None and self.runs:
            name = request.header("x-midspan-plan")
        if name is None:
            return self.run
        found = self.runs.get(name)
        if found is None:
            raise invalid(f"There is no plan of faults called {name!r}; set it in server.plans")
        return found

    def _made(self, faults: Sequence[Fault], run: PlanRun) -> None:
        if faults:
            run.made.extend(faults)
            self._seen.faults(faults)

    def _asked(self, request: Request, route: Route, faults: tuple[Fault, ...]) -> Asked:
        target = self._targets.get(route)
        if target is None:
            model = self._models.check(route, route.method or "")
            target = self._targets[route] = Target(model, route.api, route.version, streaming=route.streaming)
        question = self._checker.check(request.body, target)
        name = question.setup.cached_content
        if name is None:
            conversation = Conversation(question, setup=question.setup)
            return Asked(route, conversation, faults, 0, request.takes_chunks)
        cache = self._caches.for_request(name, target)
        conversation = Conversation(question, setup=cache.setup, cached=tuple(cache.content.contents or ()))
        return Asked(route, conversation, faults, cache.tokens, request.takes_chunks)

    def _answer(self, conversation: Conversation) -> Answer | Awaitable[Answer]:
        token = conversation.question.setup.continuation_token
        if token is None:
            return self._source.answer(conversation)
        answer = self._continuations.get(_standard_base64(token))
        if answer is None:
            raise invalid("Invalid continuation token.")
        return answer

    async def _later(self, answer: Awaitable[Answer], asked: Asked) -> Reply:
        return self._framed(answers(await answer), asked)

    def _framed(self, answer: Answer, asked: Asked) -> Reply:
        route, question, faults = asked.route, asked.conversation.question, asked.faults
        answer = obeying(answer, question, asked.conversation.setup)
        if faults:
            answer = answer_under(answer, faults)
            if any(fault.kind is Kind.CONTINUATION for fault in faults):
                answer = self._continued(answer)
        shape = Shape(route.streaming, route.numbered_enums, asked.cached_tokens)
        documents = documents_of(answer, question, shape, self._numbering)
        reply = _on_the_wire(documents, answer, asked)
        self._seen.answered += 1
        slow = answer.delay_seconds
        if faults:
            slow += sum(fault.seconds for fault in faults if fault.kind is Kind.SLOW_FIRST_BYTE)
        return [Wait(slow), *reply] if slow else reply

    def _continued(self, answer: Answer) -> Answer:
        """The first part of an answer; the rest waits under the token that goes with it."""
        now, rest = split_for_continuation(answer)
        token = self._numbering.signature("continuation")
        self._continuations[_standard_base64(token)] = rest
        if len(self._continuations) > _MOST_CONTINUATIONS:
            del self._continuations[next(iter(self._continuations))]
        return replace(now, extra={**now.extra, "continuationToken": token})


def _standard_base64(token: str) -> str:
    """A token in one spelling: clients return it as standard or as URL-safe base64, padded or not."""
    return token.translate(_FROM_URLSAFE).rstrip("=")


_FROM_URLSAFE = str.maketrans("-_", "+/")


def _on_the_wire(documents: list[Document], answer: Answer, asked: Asked) -> Reply:
    route, faults = asked.route, asked.faults
    if faults:
        documents = documents_under(documents, faults)
    frames = frames_of(documents, route)
    if not route.streaming and not faults:
        return whole(frames[0])
    if not route.streaming:
        return as_whole(sized(sum(map(len, frames))), frames_under(frames, faults, streaming=False))
    steps = frames_under(frames, faults, streaming=True)
    if answer.gap_seconds:
        steps = [one for step in steps for one in (step, Wait(answer.gap_seconds))][:-1]
    if not asked.takes_chunks:
        return until_closed(unsized(content_type_of(route)), steps)
    return on_the_wire(streamed(content_type_of(route)), steps, LAST_CHUNK)
