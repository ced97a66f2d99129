"""Gemini as a provider: requests out, answers in."""

import logging
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Self

from msgspec.structs import replace

from midspan.errors import ConfigError, InvalidRequest, ProviderError
from midspan.http.clock import Clock, check_clock
from midspan.http.messages import origin_of
from midspan.http.retry import RetryPolicy
from midspan.http.transport import Transport
from midspan.providers.gemini import decode
from midspan.providers.gemini.api import GeminiApi
from midspan.providers.gemini.capabilities import DEFAULT_MODEL, Api, Capabilities, capabilities_of, successor_of
from midspan.providers.gemini.continuation import joined, next_token
from midspan.providers.gemini.credentials import (
    GiveToken,
    Hidden,
    HiddenArguments,
    developer_credentials,
    vertex_credentials,
)
from midspan.providers.gemini.encode import request_body
from midspan.providers.gemini.endpoint import endpoint
from midspan.providers.gemini.loosening import loosened, served
from midspan.providers.gemini.sources import sources_of
from midspan.providers.provider import Traits
from midspan.types.exchange import ModelRequest, ModelResponse
from midspan.types.parts import Part

_log = logging.getLogger("midspan.providers.gemini")


def connect(
    *,
    api_key: str | None = None,
    vertex: bool | None = None,
    token: GiveToken | None = None,
    project: str | None = None,
    location: str | None = None,
    base_url: str | None = None,
    version: str | None = None,
    headers: Mapping[str, str] | None = None,
    transport: Transport | None = None,
    retry: RetryPolicy | None = None,
    clock: Clock | None = None,
) -> GeminiApi:
    """The API that the caller means, by what he says and by the environment; nothing is sent yet."""
    api_key = Hidden(api_key) if isinstance(api_key, str) else api_key
    _check(token=token, retry=retry, transport=transport)
    check_clock(clock)
    _check_headers(headers)
    if token is not None:
        if vertex is False:
            raise ConfigError("a token is for Vertex; give api_key=… for the Developer API")
        vertex = True
    where = endpoint(vertex=vertex, base_url=base_url, version=version, project=project, location=location)
    on_vertex = where.api is Api.VERTEX
    credentials = vertex_credentials(api_key, token) if on_vertex else developer_credentials(api_key)
    return GeminiApi(where, credentials, transport=transport, retry=retry, clock=clock, headers=headers)


def connected(connection: dict[str, Any]) -> GeminiApi:
    """The same from arguments that were passed on; one that is not known is told by its name."""
    for name in connection:
        if name not in _CONNECTION:
            raise ConfigError(f"there is no argument called {name!r}; {_instead_of(name)}")
    return connect(**connection)


_CONNECTION = tuple(connect.__annotations__)[:-1]
_TIMES = "times are limited with transport=Transport(Timeouts(total=…)), both of midspan.gemini"
_TRIES = "how often it is tried is said with retry=RetryPolicy(max_attempts=…), of midspan.gemini"
_INSTEAD = {
    "timeout": _TIMES,
    "timeout_seconds": _TIMES,
    "deadlines": _TIMES,
    "retries": _TRIES,
    "max_retries": _TRIES,
    "credentials": "give token=…, a function that returns an access token",
    "proxy": "set HTTPS_PROXY in the environment",
    "verify": "name your certificates with SSL_CERT_FILE in the environment",
}
"""What other libraries call it, and how it is said here."""
_HEADERS_OF_HTTP = ("content-length", "transfer-encoding", "host", "connection")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A token: https://www.rfc-editor.org/rfc/rfc9110#section-5.6.2"""
_NO_HEADER_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")


def _instead_of(name: str) -> str:
    if name in _INSTEAD:
        return _INSTEAD[name]
    near = get_close_matches(name, _CONNECTION, 1)
    return f"did you mean {near[0]}?" if near else f"known: {', '.join(_CONNECTION)}"


def _check(*, token: Any, retry: Any, transport: Any) -> None:
    if token is not None and not callable(token):
        raise ConfigError("token is a function that returns a token, so that it can be renewed; give lambda: token")
    if retry is not None and not isinstance(retry, RetryPolicy):
        raise ConfigError(f"retry is a RetryPolicy, not {retry!r}")
    if transport is not None and not isinstance(transport, Transport):
        raise ConfigError(f"transport is a Transport, as Transport(Timeouts(total=60)), not {transport!r}")


def _check_headers(headers: Any) -> None:
    if headers is not None and not isinstance(headers, Mapping):
        raise ConfigError("headers is a dict of texts")
    for name, value in (headers or {}).items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise ConfigError(f"the header {name!r} is not a text with a text for its value")
        if not _HEADER_NAME.fullmatch(name):
            raise ConfigError(f"{name!r} is no name of a header; one has letters, digits and signs like - and _ only")
        if _NO_HEADER_VALUE.search(value):  # which may be a secret
            raise ConfigError(f"the value of the header {name!r} holds a control character, or half a character")
        if name.lower() in _HEADERS_OF_HTTP:
            raise ConfigError(f"the header {name!r} belongs to HTTP itself and cannot be set")


class Gemini:
    """A Gemini model, by the Developer API or by Vertex."""

    def __init__(
        self, model: str = DEFAULT_MODEL, *, capabilities: Capabilities | None = None, api: GeminiApi | None = None,
        **connection: Any,
    ) -> None:  # fmt: skip
        """`connection` is what `connect` takes: api_key, base_url, vertex, project, token, headers, retry, …"""
        connection = HiddenArguments(connection)
        warn_if_retired(model)
        if capabilities is not None and not isinstance(capabilities, Capabilities):
            raise ConfigError(f"capabilities is a Capabilities, as capabilities_of(…) gives, not {capabilities!r}")
        if api is not None and not isinstance(api, GeminiApi):
            raise ConfigError(f"api is a GeminiApi, as connect(…) gives, not {api!r}")
        self._model = model
        self.api = api or connected(connection)
        where = self.api.endpoint
        self.capabilities = capabilities or capabilities_of(model, where.api, where.version)
        self._path = where.model(model)

    @property
    def model(self) -> str:
        return self._model

    @cached_property
    def traits(self) -> Traits:
        """What a run must know of the model; see `Traits`."""
        from midspan.schema.dialects import GEMINI_JSON_SCHEMA  # loaded with the first run, not with the client

        can = self.capabilities
        return Traits("Gemini", can.functions, GEMINI_JSON_SCHEMA, can.json_with_functions)

    def __repr__(self) -> str:
        return f"Gemini({self._model!r}, {origin_of(self.api.endpoint.base_url)!r})"

    async def stream(self, request: ModelRequest, *, whole: bool = False) -> AsyncIterator[Part | ModelResponse]:
        """The parts of the answer as they come, then the answer; see `Provider`."""
        if whole:
            yield await self.respond(request)
            return
        request = served(request)
        answers: list[ModelResponse] = []
        while True:
            body = request_body(_going_on(request, answers), self.capabilities)
            pieces = self.api.stream(f"{self._path}:streamGenerateContent?alt=sse", body, self._reader)
            try:
                async with aclosing(pieces):
                    async for reader, parts in pieces:
                        answer = reader
                        for part in parts:
                            yield part  # type: ignore[misc]  # the reader's items are parts; its type cannot say so
            except ProviderError as error:
                request = _asked_again(request, error, answers)
                continue
            answers.append(answer.response())
            if next_token(answers, request.room) is None:
                break
        yield self._sourced(joined(answers), request)

    async def respond(self, request: ModelRequest) -> ModelResponse:
        """The answer at once."""
        request = served(request)
        answers: list[ModelResponse] = []
        while True:
            body = request_body(_going_on(request, answers), self.capabilities)
            try:
                answers.append(await self.api.call("POST", f"{self._path}:generateContent", body, read=self._read))
            except ProviderError as error:
                request = _asked_again(request, error, answers)
                continue
            if next_token(answers, request.room) is None:
                return self._sourced(joined(answers), request)

    def _sourced(self, answer: ModelResponse, request: ModelRequest) -> ModelResponse:
        return replace(answer, sources=sources_of(answer)) if request.setup.has_builtins else answer

    def _read(self, body: bytes) -> ModelResponse:
        return decode.response(body, self.capabilities.api)

    def _reader(self) -> decode.ResponseStream:
        return decode.ResponseStream(self.capabilities.api)

    async def close(self) -> None:
        await self.api.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _asked_again(request: ModelRequest, error: ProviderError, answers: list[ModelResponse]) -> ModelRequest:
    """The request in another form, if that may help; else the error is raised, with what came before it."""
    error.portions = joined(answers) if answers else None
    if isinstance(error, InvalidRequest):
        return loosened(request, error)
    raise error


def _going_on(request: ModelRequest, answers: list[ModelResponse]) -> ModelRequest:
    """The same question, with the token of the answer that is to be gone on with."""
    return replace(request, continuation=next_token(answers, request.room)) if answers else request


def warn_if_retired(model: str) -> None:
    """A word in the log about a model that was shut down."""
    if not isinstance(model, str) or not model.strip() or not model.isprintable():
        raise ConfigError(f"{model!r} is no name of a model")
    successor = successor_of(model)
    if successor is not None:
        _log.warning("%s was shut down; use %s", model, successor)
