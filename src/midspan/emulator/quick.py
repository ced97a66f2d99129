"""A quick look at requests: what is written as almost all are, and was seen before, is known by its bytes.

A conversation sends its setup and its earlier turns again with every request. A quick look only ever says what a
request holds, or that it does not know; then somebody must read it field by field.
"""

from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct

from midspan.emulator.reading.read import is_base64
from midspan.emulator.turns import Call, Count, Result, Turn, called, made
from midspan.providers.gemini.wire import GenerateContentRequest

_LARGEST_KEPT = 32_768
_MOST_KEPT = 1_024
_MOST_KEPT_BYTES = 32 * 1024 * 1024
_KEY_SIZE = 192
_FIRST = b'{"contents":['
_NOTHING = Raw(b"[]")


class _FunctionCall(Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    name: str
    args: dict[str, Any] | None = None
    id: str | None = None


class _FunctionResponse(Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    name: str
    response: dict[str, Any] | None = None
    id: str | None = None


class _Part(Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    """A part of the ordinary kinds, and of one of them only."""

    text: str | None = None
    function_call: _FunctionCall | None = None
    function_response: _FunctionResponse | None = None
    thought: bool | None = None
    thought_signature: str | None = None


class _Content(Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    role: str
    parts: list[_Part]


_read_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_read_list = msgspec.json.Decoder(list[Raw]).decode
_read_content = msgspec.json.Decoder(_Content).decode
_read_contents = msgspec.json.Decoder(list[_Content]).decode
_FAILURES = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Beginning(Struct, frozen=True, gc=False):
    """A request that was accepted, as the beginning of the next one: how its bytes start and end, and its turns."""

    start: bytes = b""
    """Up to the end of the last content."""
    tail: bytes = b""
    """From there on."""
    turns: tuple[Turn, ...] = ()
    count: Count = Count()
    setup: GenerateContentRequest = GenerateContentRequest()
    functions: tuple[str, ...] = ()


class Glance(Struct, frozen=True, gc=False):
    """What a quick look has shown."""

    turns: list[Turn]
    """Those that are not in the beginning."""
    start: bytes
    tail: bytes
    """What this request is the beginning of; nothing if it is not written as it must be for that."""
    setup: bytes | None
    """The JSON of everything but the contents; None if it is that of the beginning."""


def glance(body: bytes, beginning: Beginning | None) -> Glance | None:
    """The turns of a request and what else is in it; None where that is not so easy."""
    try:
        if beginning is not None and body.endswith(beginning.tail):
            return _going_on(body, beginning)
        return _whole(body)
    except _FAILURES:
        return None


def _going_on(body: bytes, beginning: Beginning) -> Glance | None:
    """What stands between the start and the tail that are known: a comma and more contents, or nothing."""
    if len(body) < len(beginning.start) + len(beginning.tail):
        return None  # a body that was cut off, in which the two would share bytes
    start = body[: len(body) - len(beginning.tail)]
    middle = start[len(beginning.start) :]
    if middle and not middle.startswith(b","):
        return None
    turns = [_turn_of(content) for content in _read_contents(b"[%b]" % middle[1:])]
    return None if None in turns else Glance(cast("list[Turn]", turns), start, beginning.tail, None)


def _whole(body: bytes) -> Glance | None:
    fields = _read_fields(body)
    pieces = [bytes(raw) for raw in _read_list(fields.pop("contents", _NOTHING))]
    turns = [_turn(piece) if len(piece) <= _LARGEST_KEPT else _uncached_turn(piece) for piece in pieces]
    others = [b'"%b":%b' % (name.encode(), bytes(raw)) for name, raw in fields.items() if name.isidentifier()]
    if None in turns or len(others) < len(fields):
        return None
    start = _FIRST + b",".join(pieces)
    tail = body[len(start) :] if pieces and body.startswith(start + b"]") else b""
    if b'"contents"' in tail:
        start, tail = b"", b""  # perhaps said twice, and then the second counts
    return Glance(cast("list[Turn]", turns), start if tail else b"", tail, b"{%b}" % b",".join(others))


Key = tuple[object, bytes]
"""Who was asked, and the first bytes of what."""


def key_of(body: bytes, asked: object) -> Key:
    return asked, body[:_KEY_SIZE]


class Memory:
    """Beginnings of conversations; those that nobody goes on with are lost."""

    def __init__(self) -> None:
        self._beginnings: OrderedDict[Key, Beginning] = OrderedDict()
        self._size = 0

    def recall(self, body: bytes, key: Key) -> Beginning | None:
        found = self._beginnings.get(key)
        return found if found is not None and body.startswith(found.start) else None

    def keep(self, key: Key, beginning: Beginning) -> None:
        if not beginning.tail:
            return
        before = self._beginnings.pop(key, None)
        self._beginnings[key] = beginning
        self._size += len(beginning.start) - (len(before.start) if before is not None else 0)
        while self._size > _MOST_KEPT_BYTES or len(self._beginnings) > _MOST_KEPT:
            self._size -= len(self._beginnings.popitem(last=False)[1].start)


@lru_cache(maxsize=16_384)
def _turn(content: bytes) -> Turn | None:
    try:
        return _turn_of(_read_content(content))
    except _FAILURES:
        return None


_uncached_turn: Callable[[bytes], Turn | None] = _turn.__wrapped__
forget_turns = _turn.cache_clear


def _turn_of(found: _Content) -> Turn | None:
    """The facts of a content of the ordinary kind; None if something about it must be looked at more closely."""
    if not found.parts or found.role not in ("user", "model"):
        return None
    calls: list[Call] = []
    results: list[Result] = []
    speaks = False
    tokens = 0
    for part in found.parts:
        signature = part.thought_signature
        if signature is not None and not is_base64(signature):
            return None
        call, result, text = part.function_call, part.function_response, part.text
        if (call is not None) + (result is not None) + (text is not None) != 1:
            return None
        if (call is not None and not call.name) or (result is not None and not result.name):
            return None
        if call is not None:
            calls.append(called(call.name, call.id, signature, call.args, len(calls)))
            tokens += 8
        elif result is not None:
            results.append(Result(result.name, result.id))
            tokens += 16
        elif text is not None:
            speaks = True
            tokens += len(text) // 4 + 1
    return made(found.role, calls, results, speaks=speaks, tokens=tokens)
