"""Scripts written in TOML: a list of `[[answers]]`, each with an optional `when`."""

import math
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from midspan.emulator.answering.answer import Answer
from midspan.emulator.sources.script import Rule, Script, When
from midspan.errors import ConfigError
from midspan.providers.gemini.capabilities import FINISH_NUMBERS

_MORE_FINISHES = ("CONTINUATION", "MALFORMED_RESPONSE", "MISSING_THOUGHT_SIGNATURE", "")
_FINISHES = frozenset(word for words in (*FINISH_NUMBERS.values(), _MORE_FINISHES) for word in words)
_Seconds = Annotated[float, Meta(ge=0, le=31_536_000)]


class _Call(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    args: dict[str, Any] = {}
    id: str | None = None


class _Entry(Struct, frozen=True, forbid_unknown_fields=True):
    when: When | None = None
    thought: str | None = None
    text: str | None = None
    calls: tuple[_Call, ...] = ()
    parts: tuple[dict[str, Any], ...] = ()
    finish: str = "STOP"
    finish_message: str | None = None
    usage: dict[str, Annotated[int, Meta(ge=0)]] = {}
    chunks: Annotated[int, Meta(ge=1)] = 3
    delay_seconds: _Seconds = 0.0
    gap_seconds: _Seconds = 0.0
    blocked: str | None = None
    extra: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if self.finish not in _FINISHES:
            known = ", ".join(sorted(_FINISHES - {""}))
            raise ConfigError(f"no answer ends with {self.finish!r}; known: {known}")
        for seconds in (self.delay_seconds, self.gap_seconds):
            if math.isnan(seconds):
                raise ConfigError("an answer waits for some seconds, not for nan")
        for value in _values([self.extra, *self.parts, *(call.args for call in self.calls)]):
            if not isinstance(value, str | int | float | None) or (
                isinstance(value, float) and not math.isfinite(value)
            ):
                raise ConfigError(f"an answer is sent as JSON, which has no {value}; write it as a text")

    def answer(self) -> Answer:
        parts: list[dict[str, Any]] = [] if self.thought is None else [{"text": self.thought, "thought": True}]
        if self.text is not None:
            parts.append({"text": self.text})
        parts += self.parts
        for call in self.calls:
            given = {"id": call.id} if call.id is not None else {}
            parts.append({"functionCall": {**given, "name": call.name, "args": call.args}})
        return Answer(
            parts=tuple(parts),
            finish=self.finish or None,
            finish_message=self.finish_message,
            usage=self.usage,
            chunks=self.chunks,
            delay_seconds=self.delay_seconds,
            gap_seconds=self.gap_seconds,
            blocked=self.blocked,
            extra=self.extra,
        )


def _values(inside: Any) -> Iterator[Any]:
    """All that is no list and no table."""
    if isinstance(inside, dict | list):
        for inner in inside.values() if isinstance(inside, dict) else inside:
            yield from _values(inner)
    else:
        yield inside


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    answers: tuple[_Entry, ...]


def load_script(path: Path) -> Script:
    """The script in this file."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"the script {str(path)!r} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"the script {str(path)!r} is no UTF-8: {error.reason} at byte {error.start}") from error
    except ValueError as error:
        raise ConfigError(f"the script {str(path)!r} cannot be read: {error}") from error
    try:
        return read_script(text)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def read_script(text: str) -> Script:
    try:
        found = msgspec.convert(tomllib.loads(text), _File)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"a script is written in TOML, and this is not: {error}") from error
    except msgspec.ValidationError as error:
        raise ConfigError(f"not a script: {error}; each entry is an [[answers]] with text, calls, when, …") from error
    return Script([Rule(one.when, one.answer()) if one.when is not None else one.answer() for one in found.answers])
