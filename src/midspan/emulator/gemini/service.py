"""The endpoints of the API: finds the handler of a request and turns errors into replies."""

from typing import Any

from midspan.emulator.gemini.caches import Caches
from midspan.emulator.gemini.checks.check import Target
from midspan.emulator.gemini.checks.contents import check_each, check_size, count_tokens
from midspan.emulator.gemini.checks.reading import Dialect, read
from midspan.emulator.gemini.checks.tools import check_declarations
from midspan.emulator.gemini.documents import encode
from midspan.emulator.gemini.errors import ApiError, invalid
from midspan.emulator.gemini.generate import Generation
from midspan.emulator.gemini.models import Models
from midspan.emulator.gemini.request_log import RequestLog
from midspan.emulator.gemini.route import Route, check_credentials, route_of
from midspan.emulator.http.messages import HTML, Reply, Request, reply
from midspan.providers.gemini.capabilities import Api
from midspan.providers.gemini.proto import to_plain
from midspan.providers.gemini.wire import CountTokensRequest

_NOT_FOUND = b"<!DOCTYPE html>\n<title>Error 404 (Not Found)!!1</title>\n<p><b>404.</b> <ins>That is an error.</ins>\n"


class Service:
    """Handles the requests of one server."""

    def __init__(
        self, generation: Generation, models: Models, caches: Caches, log: RequestLog, *, api_key: str | None
    ) -> None:
        self._generation = generation
        self._models = models
        self._caches = caches
        self._log = log
        self._api_key = api_key

    async def handle(self, request: Request) -> Reply:
        self._log.add_request(request)
        try:
            return await self._reply(request)
        except ApiError as error:
            return self._error(error)
        except Exception as error:  # noqa: BLE001 - scripts and providers are user code
            return self._error(ApiError(500, f"{type(error).__name__}: {error}"))

    def _error(self, error: ApiError) -> Reply:
        self._log.add_error(error)
        return reply(error.body(), error.code)

    async def _reply(self, request: Request) -> Reply:
        route = route_of(request.target)
        if route is None:
            return reply(_NOT_FOUND, 404, HTML)
        check_credentials(request, route, self._api_key)
        if request.method == "POST" and route.method in ("generateContent", "streamGenerateContent"):
            return await self._generation.reply(request, route)
        document = self._document(request, route)
        return reply(_NOT_FOUND, 404, HTML) if document is None else reply(encode(document))

    def _document(self, request: Request, route: Route) -> dict[str, Any] | None:
        """Answer a request without a model; None if the API has no such method."""
        match request.method, route.collection, route.name, route.method:
            case "POST", "models", str(), "countTokens":
                return _count_tokens(request.body, self._models.require(route, "countTokens"), route)
            case "POST", "models" | "tunedModels", str(), str(method):
                self._models.require(route, method)
                raise invalid(f"{method} is not supported by the emulator")
            case "GET", "models", None, None:
                return self._models.page(route)
            case "GET", "models", str(), None:
                return self._models.describe(self._models.require(route, "getModel"), route)
            case _, "cachedContents", _, None:
                return self._caches.handle(request.method, route, request.body)
        return None


def _count_tokens(body: bytes, model: str, route: Route) -> dict[str, Any]:
    request = read(CountTokensRequest, body, Dialect(route.api, route.version))
    counted = request.generate_content_request or request
    contents = counted.contents or []
    check_each(contents, route.api)
    check_size(contents, route.api)
    check_declarations(counted.tools or (), Target(model, route.api, route.version).family)
    tokens = count_tokens([*contents, *([counted.system_instruction] if counted.system_instruction else [])])
    if counted.tools:
        tokens += len(encode(to_plain(counted.tools))) // 4
    details = [{"modality": "TEXT", "tokenCount": tokens}]
    if route.api is Api.DEVELOPER:
        return {"totalTokens": tokens, "promptTokensDetails": details}
    characters = sum(len(part.text or "") for content in contents for part in content.parts or ())
    return {"totalTokens": tokens, "totalBillableCharacters": characters, "promptTokensDetails": details}
