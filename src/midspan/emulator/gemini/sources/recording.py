"""Answers from a recording: exchanges with the real API, looked up by the request."""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from midspan._http.sse import EventStream
from midspan.emulator.gemini.errors import STATUS_NAMES, ApiError
from midspan.emulator.gemini.sources.source import Answer, Conversation
from midspan.errors import ConfigError
from midspan.providers.gemini.proto import from_plain, to_plain
from midspan.providers.gemini.wire import GenerateContentRequest


class Exchange(Struct, frozen=True):
    """One line of a recording."""

    request_json: dict[str, Any] | None
    response: Any
    status: int = 200
    streaming: bool = False


class Recording:
    """Answers each request like the recorded server did. A repeated request gets the same answer."""

    def __init__(self, exchanges: Iterable[Exchange]) -> None:
        self._exchanges: dict[tuple[bytes, bool], Exchange] = {}
        for exchange in exchanges:
            if not isinstance(exchange, Exchange):
                raise ConfigError(f"a recording needs exchanges, got {exchange!r:.80}; use Recording.load for a file")
            if exchange.request_json is not None and "contents" in exchange.request_json:
                self._exchanges.setdefault((_key(exchange.request_json), exchange.streaming), exchange)
        if not self._exchanges:
            raise ConfigError("the recording contains no request with its response")

    @classmethod
    def load(cls, path: str | Path) -> "Recording":
        """Read a file of JSON lines with `request_json`, `response`, `status` and `streaming`."""
        return cls(_read_lines(Path(path)))

    def answer(self, conversation: Conversation) -> Answer:
        key = _key(msgspec.json.decode(conversation.body))
        is_streaming = conversation.target.is_streaming
        exchange = self._exchanges.get((key, is_streaming)) or self._exchanges.get((key, not is_streaming))
        if exchange is None:
            raise ApiError(500, "The recording does not contain this request.")
        documents = list(_documents_in(exchange.response))
        if exchange.status >= 400:
            error = documents[0].get("error") if documents else None
            message = error.get("message") if isinstance(error, dict) else None
            code = exchange.status if exchange.status in STATUS_NAMES else 500
            raise ApiError(code, message or "The recorded response is an error without a message.")
        return Answer(documents=tuple(documents) if is_streaming else (_join(documents),))


def _documents_in(response: Any) -> Iterator[dict[str, Any]]:
    """Yield the documents of a recorded response: a single one, a list of chunks, or the text of an event stream."""
    if isinstance(response, str):
        stream = EventStream()
        for event in (*stream.feed(response.encode()), *stream.end()):
            yield msgspec.json.decode(event.data)
    elif isinstance(response, list):
        yield from response
    else:
        yield response


def _join(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """Join the chunks of a stream to the document of the same answer without streaming."""
    if len(documents) == 1:
        return documents[0]
    chunks = [candidate for document in documents for candidate in (document.get("candidates") or ())[:1]]
    parts = [part for chunk in chunks for part in (chunk.get("content") or {}).get("parts") or ()]
    candidate: dict[str, Any] = {}
    for chunk in chunks:
        candidate |= chunk
    return {**documents[-1], "candidates": [{**candidate, "content": {"role": "model", "parts": parts}}]}


def _key(request: dict[str, Any]) -> bytes:
    """Return a digest that is equal for equal requests, whatever their casing and the order of their fields."""
    plain = to_plain(from_plain(GenerateContentRequest, request))
    plain.pop("model", None)
    return hashlib.blake2b(msgspec.json.encode(plain, order="deterministic")).digest()


def _read_lines(path: Path) -> Iterator[Exchange]:
    try:
        lines = path.read_bytes().splitlines()
    except (OSError, ValueError) as error:  # ValueError: not a valid path
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot read the recording {str(path)!r}: {reason}") from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                yield msgspec.json.decode(line, type=Exchange)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise ConfigError(f"{path}:{number}: not a line of a recording: {error}") from error
