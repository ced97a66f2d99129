"""`LocalGemini`, the server: checks requests, gets answers from a script or model, and injects faults."""

import logging
from base64 import b64decode
from collections import deque
from collections.abc import Sequence
from inspect import isawaitable
from itertools import count
from typing import Any

import msgspec
from msgspec.structs import replace

from midspan._http.retry import Clock
from midspan.emulator.gemini.api import ApiError, ApiRoute, check_key, error_page, invalid, route_of
from midspan.emulator.gemini.caches import CacheStore
from midspan.emulator.gemini.check import check, count_request_tokens
from midspan.emulator.gemini.contents import count_tokens
from midspan.emulator.gemini.documents import apply_tool_choice, documents_of, encode, frames_of, reply_of
from midspan.emulator.gemini.faults import Fault, FaultPlan, RequestFaults
from midspan.emulator.gemini.models import Models
from midspan.emulator.gemini.reading import standard_base64
from midspan.emulator.gemini.script import Answer, Conversation, answer_source, to_answer
from midspan.emulator.http import HTML, HttpServer, Reply, Request, reply
from midspan.errors import ConfigError
from midspan.providers.provider import Provider

_MAX_LOG_ENTRIES = 256
_MAX_LOG_BYTES = 64_000_000

_log = logging.getLogger("midspan.emulator")


class LocalGemini(HttpServer):
    """A local server with the Gemini API, as strict as the real one.

    `with` runs it in a thread, `async with` in the running event loop.

    - `script`: answers, as a list, a function of the conversation, a Script or the path of a TOML file; `model`: a
      provider that answers instead. Without both, the server repeats what the user wrote.
    - `faults`: the fault plan, or its text.
    - `api_key`: the only valid key; by default any key is valid.
    - `models`: the only models; by default those of the real API, with `retired_models` also those that were shut down.
    - `strict_signatures`: reject thought signatures of other servers.
    - `clock`: for delays and expiry times.
    """

    def __init__(
        self,
        script: Any = None,
        *,
        model: Provider | None = None,
        faults: FaultPlan | str | None = None,
        api_key: str | None = None,
        models: Sequence[str] | None = None,
        retired_models: bool = False,
        strict_signatures: bool = False,
        clock: Clock | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        clock = Clock() if clock is None else clock
        super().__init__(self._handle, host=host, port=port, clock=clock)
        self.requests: deque[Request] = deque(maxlen=_MAX_LOG_ENTRIES)
        """The last requests: at most 256, with bodies of at most 64 MB in total."""
        self.errors: deque[ApiError] = deque(maxlen=_MAX_LOG_ENTRIES)
        """The last errors that were sent, without injected ones."""
        self.injected: list[Fault] = []
        """The faults that were injected."""
        self._source = answer_source(script, model)
        self._models = Models(models, retired=retired_models)
        self._caches = CacheStore(clock, self._models)
        self._api_key = api_key
        self._strict_signatures = strict_signatures
        self._next_id_number = count(1).__next__
        self._plan = FaultPlan.parse(faults) if isinstance(faults, str) else faults or FaultPlan()
        self._next_request_number = count().__next__

    async def _handle(self, request: Request) -> Reply:
        self.requests.append(request)
        while sum(len(entry.body) for entry in tuple(self.requests)) > _MAX_LOG_BYTES:
            self.requests.popleft()
        _log.info("%s %s, %s bytes", request.method, request.target.partition("?")[0], f"{len(request.body):,}")
        try:
            return await self._reply(request)
        except ApiError as error:
            api_error = error
        except RecursionError:
            api_error = invalid("The request exceeds the maximum allowed nesting depth.")
        except Exception as error:  # noqa: BLE001 - scripts and providers are user code
            # Clients do not repeat a request after a 501. The script would fail again.
            api_error = ApiError(501, f"{type(error).__name__}: {error}")
        self.errors.append(api_error)
        _log.info("answered %d: %s", api_error.code, api_error)
        return api_error.reply()

    async def _reply(self, request: Request) -> Reply:
        route = route_of(request.target)
        if route is not None:
            check_key(request, route, self._api_key)
            if request.method == "POST" and route.method in ("generateContent", "streamGenerateContent"):
                return await self._generate(request, route)
            if (document := self._document(request, route)) is not None:
                return reply(encode(document))
        return reply(error_page(404), 404, HTML)

    def _document(self, request: Request, route: ApiRoute) -> dict[str, Any] | None:
        """Answer a request without a model; None if the API has no such method."""
        match request.method, route.collection, route.name, route.method:
            case "POST", "models", str(name), "countTokens":
                return count_request_tokens(request.body, self._models.require(name, route))
            case "POST", "models", str(name), str(method):
                self._models.require(name, route)
                raise invalid(f"{method} is not supported by the emulator")
            case "GET", "models", None, None:
                return self._models.list(route)
            case "GET", "models", str(name), None:
                self._models.require(name, route)
                return self._models.describe(name, route)
            case _, "cachedContents", _, None:
                return self._caches.handle(request.method, route, request.body)
        return None

    async def _generate(self, request: Request, route: ApiRoute) -> Reply:
        conversation = self._conversation(request, route)
        number = self._next_request_number()
        faults = RequestFaults(tuple(fault for fault in self._plan.faults if fault.at == number), route.is_streaming)
        self.injected += faults.faults
        for fault in faults.faults:
            _log.info("injected %s", fault.kind)
        replacement = faults.replace_reply()
        if replacement is not None:
            return replacement
        answer = apply_tool_choice(await self._answer(conversation), conversation)
        answer = faults.change_answer(answer)
        documents = documents_of(answer, conversation, route, self._next_id_number)
        frames = frames_of(faults.change_documents(documents), route)
        return reply_of(faults.change_frames(frames), len(frames[0]), answer, route)

    def _conversation(self, request: Request, route: ApiRoute) -> Conversation:
        rules, strict = self._models.require(route.name or "", route), self._strict_signatures
        checked = check(request.body, rules, is_streaming=route.is_streaming, strict_signatures=strict)
        tokens = count_tokens(checked.contents)
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
            try:
                return msgspec.json.decode(b64decode(standard_base64(token)), type=Answer)
            except ValueError as error:
                raise invalid("Invalid continuation token.") from error
        answer = self._source(conversation)
        return to_answer(await answer if isawaitable(answer) else answer)


class ScaledClock(Clock):
    """The system clock with shorter sleeps: `ScaledClock(1000)` sleeps a second in a millisecond.

    The time itself is not scaled, so time limits do not depend on the speed of the machine.
    """

    def __init__(self, factor: float) -> None:
        if not factor > 0:
            raise ConfigError(f"the factor of a ScaledClock must be positive, got {factor!r}")
        self.factor = factor

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / self.factor)
