"""What the server does with a request: who asks, what for, and who answers that."""

from collections.abc import Awaitable
from typing import Any

from midspan.emulator.answering.caches import Caches
from midspan.emulator.answering.credentials import check_credentials
from midspan.emulator.answering.framing import encode
from midspan.emulator.answering.generate import Generation
from midspan.emulator.answering.models import Models
from midspan.emulator.answering.options import Options
from midspan.emulator.answering.route import Route, route_of
from midspan.emulator.answering.seen import Seen
from midspan.emulator.answering.tokens import count_tokens
from midspan.emulator.refusal import Refusal, invalid
from midspan.emulator.serving.replies import HTML, Reply, refused, whole
from midspan.emulator.serving.requests import Request
from midspan.emulator.sources.source import Source

_NO_PAGE = b"<!DOCTYPE html>\n<title>Error 404 (Not Found)!!1</title>\n<p><b>404.</b> <ins>That is an error.</ins>\n"


class Service:
    """One emulated API: its models, caches and answers. It knows requests and replies, no connections."""

    def __init__(self, source: Source, options: Options) -> None:
        self._options = options
        self._models = Models(options.models)
        self._caches = Caches(options.clock, self._models, least_tokens=options.least_cache_tokens)
        self.seen = Seen()
        self.generation = Generation(source, options, self._models, self._caches, self.seen)

    def handle(self, request: Request) -> Reply | Awaitable[Reply]:
        """The reply to a request; one that must be waited for only where the answer must."""
        self.seen.request(request)
        try:
            reply = self._reply(request)
        except Refusal as refusal:
            return self._refused(refusal)
        except Exception as error:  # noqa: BLE001 - scripts are foreign code, and a server goes on
            return self._failed(error)
        return reply if isinstance(reply, list) else self._awaited(reply)

    async def _awaited(self, reply: Awaitable[Reply]) -> Reply:
        try:
            return await reply
        except Refusal as refusal:
            return self._refused(refusal)
        except Exception as error:  # noqa: BLE001 - models are foreign code, and a server goes on
            return self._failed(error)

    def _refused(self, refusal: Refusal) -> Reply:
        self.seen.refusal(refusal)
        return refused(refusal)

    def _failed(self, error: Exception) -> Reply:
        return self._refused(Refusal(500, f"{type(error).__name__}: {error}"))

    def _reply(self, request: Request) -> Reply | Awaitable[Reply]:
        route = route_of(request.method, request.target)
        if route is None:
            return whole(_NO_PAGE, 404, HTML)
        check_credentials(request, route, self._options.api_key)
        if route.method in ("generateContent", "streamGenerateContent") and request.method == "POST":
            return self.generation.reply(request, route)
        found = self._looked_up(request, route)
        return whole(_NO_PAGE, 404, HTML) if found is None else whole(encode(found))

    def _looked_up(self, request: Request, route: Route) -> dict[str, Any] | None:
        """What needs nobody to answer; None where there is nothing."""
        match request.method, route.collection, route.name, route.method:
            case "POST", "models", str(), "countTokens":
                self._models.check(route, "countTokens")
                return count_tokens(request.body, route)
            case "POST", "models" | "tunedModels", str(), str(method):
                self._models.check(route, method)
                raise invalid(f"{method} is not supported by the emulator")
            case "GET", "models", None, None:
                return self._models.page(route)
            case "GET", "models", str(name), None:
                self._models.check(route, "getModel")
                return self._models.described(name, route)
            case _, "cachedContents", _, None:
                return self._cached(request, route)
        return None

    def _cached(self, request: Request, route: Route) -> dict[str, Any] | None:
        match request.method, route.name:
            case "POST", None:
                return self._caches.create(route, request.body)
            case "GET", None:
                return self._caches.page(route)
            case "GET", str():
                return self._caches.get(route)
            case "PATCH", str():
                return self._caches.patch(route, request.body)
            case "DELETE", str():
                return self._caches.delete(route)
        return None
