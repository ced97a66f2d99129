"""Answers from a recording: exchanges with the real API, found again by what was asked."""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from midspan._http.sse import EventStream
from midspan.emulator.answering.answer import Answer
from midspan.emulator.refusal import STATUS_WORDS, Refusal
from midspan.emulator.sources.conversation import Conversation
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
    """Answers each request as it was answered then; the same one asked again gets the same answer."""

    def __init__(self, exchanges: Iterable[Exchange]) -> None:
        self._exchanges: dict[tuple[bytes, bool], Exchange] = {}
        if not isinstance(exchanges, Iterable):
            raise ConfigError(
                f"a recording is made of exchanges, not of {exchanges!r:.80}; Recording.load reads a file"
            )
        for one in exchanges:
            if not isinstance(one, Exchange):
                raise ConfigError(f"a recording is made of exchanges, not of {one!r:.80}; Recording.load reads a file")
            if one.request_json is not None and "contents" in one.request_json:
                self._exchanges.setdefault((_key(one.request_json), one.streaming), one)
        if not self._exchanges:
            raise ConfigError("the recording holds no request together with its answer")

    @classmethod
    def load(cls, path: str | Path) -> "Recording":
        """The recording in a file of JSON lines with `request_json`, `response`, `status` and `streaming`."""
        if not isinstance(path, str | Path):
            raise ConfigError(f"a recording is loaded from the path of a file, not from {path!r:.80}")
        return cls(_lines(Path(path)))

    def answer(self, conversation: Conversation) -> Answer:
        question = conversation.question
        key = _key(msgspec.json.decode(question.body))
        streaming = question.target.streaming
        found = self._exchanges.get((key, streaming)) or self._exchanges.get((key, not streaming))
        if found is None:
            raise Refusal(500, "Nothing like this request was recorded.")
        documents = list(documents_of(found.response))
        if found.status >= 400:
            error = documents[0].get("error") if documents else None
            words = error.get("message") if isinstance(error, dict) else None
            raise Refusal(found.status if found.status in STATUS_WORDS else 500, words or "Refused, as recorded.")
        return Answer(documents=tuple(documents) if streaming else (_joined(documents),))


def documents_of(response: Any) -> Iterator[dict[str, Any]]:
    """The documents of a recorded response: one, a list of chunks, or the text of server-sent events."""
    if isinstance(response, str):
        stream = EventStream()
        for event in (*stream.feed(response.encode()), *stream.end()):
            yield msgspec.json.decode(event.data)
    elif isinstance(response, list):
        yield from response
    else:
        yield response


def _joined(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """A recorded stream as the one document that the same answer is without streaming."""
    if len(documents) == 1:
        return documents[0]
    candidates = [one for document in documents for one in (document.get("candidates") or ())[:1]]
    parts = [part for one in candidates for part in (one.get("content") or {}).get("parts") or ()]
    candidate: dict[str, Any] = {}
    for one in candidates:
        candidate |= one
    return {**documents[-1], "candidates": [{**candidate, "content": {"role": "model", "parts": parts}}]}


def _key(request: dict[str, Any]) -> bytes:
    """What makes two requests the same: all that they say, in any casing and order."""
    plain = to_plain(from_plain(GenerateContentRequest, request))
    plain.pop("model", None)
    return hashlib.blake2b(msgspec.json.encode(plain, order="deterministic")).digest()


def _lines(path: Path) -> Iterator[Exchange]:
    try:
        lines = path.read_bytes().splitlines()
    except (OSError, ValueError) as error:  # the second is for a name that no file can have
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"the recording {str(path)!r} cannot be read: {why}") from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                yield msgspec.json.decode(line, type=Exchange)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise ConfigError(f"{path}:{number}: not a line of a recording: {error}") from error
