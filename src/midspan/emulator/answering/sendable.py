"""What an answer may be made of: refused where it is given, since it would fail only when it is sent, or not at all."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from midspan.errors import ConfigError

_MOST_SECONDS = 31_536_000
"""A year."""


def check_documents(name: str, given: Any) -> None:
    if not isinstance(given, tuple | list):
        raise ConfigError(f"{name} is a tuple of dicts in the API's own names, not {given!r:.80}")
    for one in given:
        if not isinstance(one, dict):
            raise ConfigError(f"{name} is given as a dict in the API's own names, not as {one!r:.80}")


def check_parts(parts: Any) -> None:
    check_documents("parts", parts)
    for part in parts:
        if not isinstance(part.get("text", ""), str):
            raise ConfigError(f"the text of a part is a text, not {part['text']!r:.80}")
        if not isinstance(part.get("functionCall", part), Mapping):
            raise ConfigError(
                f"functionCall is a dict, as call('name', x=1) makes it, not {part['functionCall']!r:.80}"
            )


def check_words(**words: Any) -> None:
    for name, word in words.items():
        if word is not None and not isinstance(word, str):
            raise ConfigError(f"{name} of an answer is a text, not {word!r:.80}")


def check_usage(usage: Any) -> None:
    if not isinstance(usage, dict):
        raise ConfigError(f"usage is a dict of counts, as {{'promptTokenCount': 12}}, not {usage!r:.80}")
    for name, count in usage.items():
        if not isinstance(name, str) or type(count) is not int or count < 0:
            raise ConfigError(
                f"usage holds counts from 0 on, as {{'promptTokenCount': 12}}, not {name!r}: {count!r:.80}"
            )


def check_chunks(chunks: Any) -> None:
    if type(chunks) is not int or chunks < 1:
        raise ConfigError(f"chunks is into how many pieces a stream cuts a text, 1 or more, not {chunks!r:.80}")


def check_seconds(**times: Any) -> None:
    for name, seconds in times.items():
        if type(seconds) not in (int, float) or not 0 <= seconds <= _MOST_SECONDS:  # nor is NaN between them
            raise ConfigError(f"{name} is a number of seconds from 0 to {_MOST_SECONDS}, not {seconds!r:.80}")


def check_sendable(value: Mapping[str, Any], what: str) -> None:
    """Refuse what JSON has no word for; also NaN, which would go out as null."""
    try:
        data = _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ConfigError(f"an answer is sent as JSON, which cannot say this {what}: {error}") from error
    if b"null" in data:
        for number in _numbers(value):
            if not math.isfinite(number):
                raise ConfigError(
                    f"an answer is sent as JSON, which has no {number}; give a text or None in the {what}"
                )


_encode = msgspec.json.Encoder().encode


def _numbers(inside: Any) -> Iterator[float]:
    """The floats of a value."""
    match inside:
        case float():
            yield inside
        case Mapping():
            for inner in inside.values():
                yield from _numbers(inner)
        case list() | tuple() | set() | frozenset():
            for inner in inside:
                yield from _numbers(inner)
