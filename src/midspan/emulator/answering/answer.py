"""What a model answers, before it is put on the wire."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from midspan._types.parts import Blob, Opaque, Part, Text, Thought, ToolCall
from midspan.emulator.answering.sendable import (
    check_chunks,
    check_documents,
    check_parts,
    check_seconds,
    check_sendable,
    check_usage,
    check_words,
)
from midspan.errors import ConfigError
from midspan.providers.gemini.decode import signature_of

Given = str | Mapping[str, Any] | Part


class Answer(Struct, frozen=True, kw_only=True):
    """Parts as the API writes them, and how they come."""

    parts: tuple[dict[str, Any], ...] = ()
    finish: str | None = "STOP"
    """None ends the answer without saying why, as a broken server does."""
    finish_message: str | None = None
    usage: dict[str, int] = {}
    """Counts in the API's own names; what is not given is estimated."""
    chunks: int = 3
    """Into how many pieces a stream cuts each text."""
    delay_seconds: float = 0.0
    """Before the first byte."""
    gap_seconds: float = 0.0
    """Between chunks."""
    blocked: str | None = None
    """The reason for which the prompt is held back; there is no candidate then."""
    extra: dict[str, Any] = {}
    """Fields of the last candidate in the API's own names, as groundingMetadata."""
    documents: tuple[dict[str, Any], ...] = ()
    """A recorded answer, one document for each chunk; it goes out as it is, and nothing else here counts."""

    def __post_init__(self) -> None:
        check_parts(self.parts)
        check_words(finish=self.finish, finish_message=self.finish_message, blocked=self.blocked)
        check_usage(self.usage)
        check_chunks(self.chunks)
        check_seconds(delay_seconds=self.delay_seconds, gap_seconds=self.gap_seconds)
        check_documents("extra", (self.extra,))
        check_documents("documents", self.documents)


def answer(*parts: Given, **how: Any) -> Answer:
    """An answer of words, calls and other parts: `answer("Let me see.", call("search", query="x"), chunks=5)`."""
    unknown = how.keys() - _HOW
    if unknown:
        raise ConfigError(f"answer(…) has no {', '.join(sorted(unknown))}; it has {', '.join(_HOW)}")
    made = Answer(parts=tuple(map(part_of, parts)), **how)
    check_sendable(made.extra, "extra")
    return made


_HOW = tuple(name for name in Answer.__struct_fields__ if name != "parts")


def call(name: str, /, **arguments: Any) -> dict[str, Any]:
    """A call of a function, as a part."""
    if not isinstance(name, str):
        raise ConfigError(f"call takes the name of a function, then its arguments, not {name!r:.80}")
    return {"functionCall": {"name": name, "args": arguments}}


def part_of(given: Given) -> dict[str, Any]:
    """A part as the API writes it, from words, from a part of ours or from itself."""
    part = {"text": given} if isinstance(given, str) else dict(given) if isinstance(given, Mapping) else written(given)
    check_sendable(part, "part")
    return part


def written(given: Part) -> dict[str, Any]:
    """A part of ours as the API writes it."""
    part = _unsigned(given)
    signature = signature_of(given)
    return {**part, "thoughtSignature": signature} if signature else part


def _unsigned(given: Part) -> dict[str, Any]:
    match given:
        case Text():
            return {"text": given.text}
        case Thought():
            return {"text": given.text, "thought": True}
        case ToolCall():
            return {"functionCall": {"name": given.name, "args": given.arguments}}
        case Blob(url=None):
            return {"inlineData": {"mimeType": given.media_type, "data": given.base64}}
        case Blob():
            return {"fileData": {"mimeType": given.media_type, "fileUri": given.url}}
        case Opaque():
            raise ConfigError(f"a part {given.name!r} of another provider cannot be an answer here; give it as a dict")
    raise ConfigError(f"a model answers with words and calls, not with {type(given).__name__}")


def answers(given: "Answer | Given | Sequence[Given]") -> Answer:
    """An answer from anything that reads like one."""
    if isinstance(given, Answer):
        return given
    if isinstance(given, str | Mapping | Text | Thought | ToolCall | Blob):
        return answer(given)
    if isinstance(given, Sequence) and not isinstance(given, bytes | bytearray):
        return answer(*given)
    raise ConfigError(f"an answer is made of words and parts, not of {type(given).__name__}")
