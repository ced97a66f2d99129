"""The endpoints of the API: checks requests, asks the source, injects faults and frames the answers."""

import logging
from collections import Counter, deque
from inspect import isawaitable
from typing import Any

from msgspec.structs import replace

from midspan._types.texts import CHARACTERS_PER_TOKEN
from midspan.emulator.gemini.caches import Caches
from midspan.emulator.gemini.check import check
from midspan.emulator.gemini.contents import check_each, check_size, count_tokens
from midspan.emulator.gemini.conversation import Answer, Conversation, Source, to_answer
from midspan.emulator.gemini.documents import Numbering, documents_of, encode, frames_of
from midspan.emulator.gemini.errors import ApiError, invalid
from midspan.emulator.gemini.faults import Fault, FaultKind, PlanProgress, split_for_continuation
from midspan.emulator.gemini.models import ModelRules, Models
from midspan.emulator.gemini.reading import read, standard_base64
from midspan.emulator.gemini.route import Route, check_credentials, route_of
from midspan.emulator.gemini.tool_choice import apply_tool_choice
from midspan.emulator.gemini.tools import check_declarations
from midspan.emulator.http import EVENT_STREAM, HTML, JSON, LAST_CHUNK, Reply, Request, Step, Wait, chunk, head, reply
from midspan.providers.gemini.capabilities import Api
from midspan.providers.gemini.proto import to_plain
from midspan.providers.gemini.wire import CountTokensRequest

_MAX_CONTINUATIONS = 1_000
_MAX_LOG_ENTRIES = 256
_MAX_LOGGED_BYTES = 65_536
_NOT_FOUND = b"<!DOCTYPE html>\n<title>Error 404 (Not Found)!!1</title>\n<p><b>404.</b> <ins>That is an error.</ins>\n"

_log = logging.getLogger("midspan.emulator")


class Service:
    """Handles the requests of one server, under its fault plans, and counts them."""

    def __init__(
        self, source: Source, models: Models, caches: Caches, *, api_key: str | None, strict_signatures: bool
    ) -> None:
        self._source = source
        self._models = models
        self._caches = caches
        self._api_key = api_key
        self._strict_signatures = strict_signatures
        self._numbering = Numbering()
        self._continuations: dict[str, Answer] = {}
        self.plans: list[PlanProgress] = []
        """The plan of all requests, then those of single URLs."""
        self.clear()

    def clear(self) -> None:
        self.requests: deque[Request] = deque(maxlen=_MAX_LOG_ENTRIES)
        """The last requests; those with large bodies are only counted."""
        self.errors: deque[ApiError] = deque(maxlen=_MAX_LOG_ENTRIES)
        self.received = self.answered = 0
        self.error_counts: Counter[int] = Counter()
        self.fault_counts: Counter[str] = Counter()

    async def handle(self, request: Request) -> Reply:
        self.received += 1
        if len(request.body) <= _MAX_LOGGED_BYTES:
            self.requests.append(request)
        _log.info("%s %s, %s bytes", request.method, request.target.partition("?")[0], f"{len(request.body):,}")
        try:
            return await self._reply(request)
        except ApiError as error:
            return self._error(error)
        except Exception as error:  # noqa: BLE001 - scripts and providers are user code
            return self._error(ApiError(500, f"{type(error).__name__}: {error}"))

    def _error(self, error: ApiError) -> Reply:
        self.error_counts[error.code] += 1
        self.errors.append(error)
        _log.info("answered %d: %s", error.code, error)
        return reply(error.body(), error.code)

    async def _reply(self, request: Request) -> Reply:
        route = route_of(request.target)
        if route is None:
            return reply(_NOT_FOUND, 404, HTML)
        check_credentials(request, route, self._api_key)
        if request.method == "POST" and route.method in ("generateContent", "streamGenerateContent"):
            return await self._generate(request, route)
        document = self._document(request, route)
        return reply(_NOT_FOUND, 404, HTML) if document is None else reply(encode(document))

    def _document(self, request: Request, route: Route) -> dict[str, Any] | None:
        """Answer a request without a model; None if the API has no such method."""
        match request.method, route.collection, route.name, route.method:
            case "POST", "models", str(), "countTokens":
                return _count_tokens(request.body, self._models.require(route))
            case "POST", "models" | "tunedModels", str(), str(method):
                self._models.require(route)
                raise invalid(f"{method} is not supported by the emulator")
            case "GET", "models", None, None:
                return self._models.page(route)
            case "GET", "models", str(name), None:
                self._models.require(route)
                return self._models.describe(name, route)
            case _, "cachedContents", _, None:
                return self._caches.handle(request.method, route, request.body)
        return None

    async def _generate(self, request: Request, route: Route) -> Reply:
        if route.plan >= len(self.plans):
            raise invalid(f"There is no fault plan {route.plan}; use the URL that url_for returns")
        plan = self.plans[route.plan]
        faults = plan.next(is_streaming=route.is_streaming)
        replaced = faults.replace_reply()
        if replaced is not None:
            self._add_faults(plan, replaced[:1])
            return replaced[1]
        conversation = self._conversation(request, route)
        self._add_faults(plan, faults.faults)
        answer = apply_tool_choice(await self._answer(conversation), conversation)
        answer = faults.change_answer(answer)
        if faults.has(FaultKind.CONTINUATION):
            answer = self._first_half(answer)
        documents = documents_of(answer, conversation, route, self._numbering)
        self.answered += 1
        frames = frames_of(faults.change_documents(documents), route)
        return _frame(faults.change_frames(frames), len(frames[0]), answer, route)

    def _add_faults(self, plan: PlanProgress, faults: tuple[Fault, ...]) -> None:
        plan.injected.extend(faults)
        for fault in faults:
            self.fault_counts[fault.kind.value] += 1
            _log.info("injected %s", fault.kind.value)

    def _conversation(self, request: Request, route: Route) -> Conversation:
        rules, strict = self._models.require(route), self._strict_signatures
        checked = check(request.body, rules, is_streaming=route.is_streaming, strict_signatures=strict)
        tokens = count_tokens(checked.contents or ())
        if checked.cached_content is None:
            return Conversation(rules, checked, tokens)
        cache = self._caches.for_request(checked.cached_content, rules)
        merged = replace(
            checked,
            contents=[*(cache.content.contents or ()), *(checked.contents or ())],
            system_instruction=cache.content.system_instruction,
            tools=cache.content.tools,
            tool_config=cache.content.tool_config,
        )
        return Conversation(rules, merged, tokens + cache.tokens, cache.tokens)

    async def _answer(self, conversation: Conversation) -> Answer:
        token = conversation.request.continuation_token
        if token is not None:
            if (key := standard_base64(token)) not in self._continuations:
                raise invalid("Invalid continuation token.")
            return self._continuations[key]
        answer = self._source(conversation)
        return to_answer(await answer if isawaitable(answer) else answer)

    def _first_half(self, answer: Answer) -> Answer:
        """Return the first half of an answer, with a token for the second."""
        first, second = split_for_continuation(answer)
        token = self._numbering.signature("continuation")
        self._continuations[standard_base64(token)] = second
        if len(self._continuations) > _MAX_CONTINUATIONS:
            del self._continuations[next(iter(self._continuations))]
        return replace(first, extra={**first.extra, "continuationToken": token})


def _frame(steps: list[Step], size: int, answer: Answer, route: Route) -> Reply:
    delay: Reply = [Wait(answer.delay_seconds)] if answer.delay_seconds else []
    if not route.is_streaming:
        return [*delay, head(200, JSON, f"Content-Length: {size}"), *steps]
    if answer.gap_seconds:
        steps = [item for step in steps for item in (step, Wait(answer.gap_seconds))][:-1]
    chunks: list[Step] = [chunk(step) if isinstance(step, bytes) else step for step in steps]
    content_type = EVENT_STREAM if route.is_sse else JSON
    return [*delay, head(200, content_type, "Transfer-Encoding: chunked"), *chunks, LAST_CHUNK]


def _count_tokens(body: bytes, rules: ModelRules) -> dict[str, Any]:
    request = read(CountTokensRequest, body, rules)
    counted = request.generate_content_request or request
    contents = counted.contents or []
    check_each(contents, rules.api)
    check_size(contents, rules.api)
    check_declarations(counted.tools or (), rules)
    tokens = count_tokens([*contents, *([counted.system_instruction] if counted.system_instruction else [])])
    if counted.tools:
        tokens += len(encode(to_plain(counted.tools))) // CHARACTERS_PER_TOKEN
    document = {"totalTokens": tokens, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": tokens}]}
    if rules.api is Api.VERTEX:
        texts = [part.text or "" for content in contents for part in content.parts or ()]
        document["totalBillableCharacters"] = sum(map(len, texts))
    return document
