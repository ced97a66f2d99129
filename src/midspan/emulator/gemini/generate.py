"""generateContent and streamGenerateContent: check the request, ask the source, inject faults, frame the answer."""

from collections.abc import Sequence
from inspect import isawaitable

from msgspec.structs import replace

from midspan.emulator.gemini.caches import Caches
from midspan.emulator.gemini.checks.check import Target, check
from midspan.emulator.gemini.checks.contents import count_tokens
from midspan.emulator.gemini.documents import Document, Numbering, documents_of, frames_of
from midspan.emulator.gemini.errors import invalid
from midspan.emulator.gemini.fault_plan import Fault, FaultKind, FaultPlan
from midspan.emulator.gemini.faults import PlanProgress, Plans, RequestFaults, split_for_continuation
from midspan.emulator.gemini.models import Models
from midspan.emulator.gemini.request_log import RequestLog
from midspan.emulator.gemini.route import Route
from midspan.emulator.gemini.sources.source import Answer, Conversation, Source, to_answer
from midspan.emulator.gemini.tool_choice import apply_tool_choice
from midspan.emulator.http.messages import (
    EVENT_STREAM,
    JSON,
    LAST_CHUNK,
    Disconnect,
    Reply,
    Request,
    Step,
    Wait,
    chunk,
    head,
)

_MAX_CONTINUATIONS = 1_000


class Generation:
    """Answers requests to models, under the fault plans of the server."""

    def __init__(
        self, source: Source, models: Models, caches: Caches, log: RequestLog, *, strict_signatures: bool
    ) -> None:
        self._source = source
        self._models = models
        self._caches = caches
        self._log = log
        self._strict_signatures = strict_signatures
        self._numbering = Numbering()
        self._continuations: dict[str, Answer] = {}
        self.default_plan = PlanProgress(FaultPlan())
        """For requests that name no plan."""
        self.plans = Plans()

    async def reply(self, request: Request, route: Route) -> Reply:
        progress = self._plan(request, route)
        faults = progress.next(is_streaming=route.is_streaming)
        instead = faults.instead()
        if instead is not None:
            fault, reply = instead
            self._record((fault,), progress)
            return reply
        conversation = self._conversation(request, route)
        self._record(faults.faults, progress)
        answer = await self._answer(conversation)
        answer = self._change(apply_tool_choice(answer, conversation), faults)
        documents = documents_of(answer, conversation, route, self._numbering)
        self._log.answered += 1
        return _frame(documents, answer, faults, request, route)

    def _plan(self, request: Request, route: Route) -> PlanProgress:
        name = route.plan or request.header("x-midspan-plan")
        if name is None:
            return self.default_plan
        if name not in self.plans:
            raise invalid(f"There is no fault plan {name!r}; set it in server.plans")
        return self.plans.progress(name)

    def _record(self, faults: Sequence[Fault], progress: PlanProgress) -> None:
        progress.injected.extend(faults)
        self._log.add_faults(faults)

    def _conversation(self, request: Request, route: Route) -> Conversation:
        model = self._models.require(route, route.method or "")
        target = Target(model, route.api, route.version, route.is_streaming)
        checked = check(request.body, target, strict_signatures=self._strict_signatures)
        tokens = count_tokens(checked.contents or ())
        if checked.cached_content is None:
            return Conversation(target, checked, request.body, tokens)
        cache = self._caches.for_request(checked.cached_content, target)
        merged = replace(
            checked,
            contents=[*(cache.content.contents or ()), *(checked.contents or ())],
            system_instruction=cache.content.system_instruction,
            tools=cache.content.tools,
            tool_config=cache.content.tool_config,
        )
        return Conversation(target, merged, request.body, tokens + cache.tokens, cache.tokens)

    async def _answer(self, conversation: Conversation) -> Answer:
        token = conversation.request.continuation_token
        if token is not None:
            if (key := _token_key(token)) not in self._continuations:
                raise invalid("Invalid continuation token.")
            return self._continuations[key]
        answer = self._source.answer(conversation)
        return to_answer(await answer if isawaitable(answer) else answer)

    def _change(self, answer: Answer, faults: RequestFaults) -> Answer:
        answer = faults.change_answer(answer)
        if not faults.has(FaultKind.CONTINUATION):
            return answer
        now, rest = split_for_continuation(answer)
        token = self._numbering.signature("continuation")
        self._continuations[_token_key(token)] = rest
        if len(self._continuations) > _MAX_CONTINUATIONS:
            del self._continuations[next(iter(self._continuations))]
        return replace(now, extra={**now.extra, "continuationToken": token})


def _token_key(token: str) -> str:
    """Return a token in one form: clients send it in either base64 alphabet, with or without padding."""
    return token.replace("-", "+").replace("_", "/").rstrip("=")


def _frame(documents: list[Document], answer: Answer, faults: RequestFaults, request: Request, route: Route) -> Reply:
    frames = frames_of(faults.change_documents(documents), route)
    steps = faults.change_frames(frames)
    delay: Reply = [Wait(answer.delay_seconds)] if answer.delay_seconds else []
    if not route.is_streaming:
        return [*delay, head(200, JSON, f"Content-Length: {len(frames[0])}"), *steps]
    if answer.gap_seconds:
        steps = [item for step in steps for item in (step, Wait(answer.gap_seconds))][:-1]
    content_type = EVENT_STREAM if route.is_sse else JSON
    if not request.accepts_chunks:
        return [*delay, head(200, content_type, "Connection: close"), *steps, Disconnect.CLOSE]
    chunks: list[Step] = [chunk(step) if isinstance(step, bytes) else step for step in steps]
    return [*delay, head(200, content_type, "Transfer-Encoding: chunked"), *chunks, LAST_CHUNK]
