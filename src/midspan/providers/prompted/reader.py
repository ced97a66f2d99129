"""Reads text while it streams and separates calls from text. Nothing is lost, and no mark is shown before it is read.

The reader knows nothing of models and runs. However the text is cut into pieces, the result is the same. The time is
linear in the length of the text.

Text is given out up to the first place where a call may begin. It waits there until it shows that it is no call; a
call is held with all the text after it until the end, when the calls are read. Calls run after the response anyway.
"""

import re
from collections.abc import Callable, Iterable
from itertools import count, groupby
from math import inf

import msgspec
from msgspec import Raw, Struct

from midspan._types.parts import Opaque, ProviderData, Text, ToolCall, local_id
from midspan._types.specs import AnyTool, unknown_tool
from midspan.providers.prompted.forms import MARKER, NONCE, OBSERVATION, RESULTS, call_patterns, read_between_marks
from midspan.providers.prompted.scanner import (
    MAX_HEAD_CHARS,
    THOUGHTS,
    Form,
    Scanner,
    ToolIndex,
    Unreadable,
    WrittenCall,
)

DEFAULT_MARKER = "TOOL_CALL"
REJECTED_PART = "rejected_call"
MAX_CALLS = 1_000
"""In one answer."""
_MAX_FALSE_STARTS = 20_000
"""After this many false starts the rest is treated as text."""
_CONTEXT = 64
"""Characters before the position that patterns may look back at."""
_NONCE = re.compile(NONCE)


class RejectedCall(Struct, frozen=True, omit_defaults=True):
    """A call that is not made, and why, in words that the model can act on. Nothing can run it."""

    text: str
    error: str
    name: str | None = None
    is_unreadable: bool = False
    """Its arguments cannot be read. A call that can be read is rejected for another reason."""

    def part(self) -> Opaque:
        """Return the part for a message. A run keeps it, and other providers ignore it."""
        return Opaque(REJECTED_PART, ProviderData("prompted", Raw(msgspec.json.encode(self))))


def rejected_call(part: object) -> RejectedCall | None:
    """Return what a part of a message says, if it is a rejected call."""
    if not isinstance(part, Opaque) or part.name != REJECTED_PART:
        return None
    return msgspec.json.decode(part.provider_data.raw, type=RejectedCall)


Piece = Text | ToolCall | RejectedCall


def numbered(first: int = 0) -> Callable[[], str]:
    """Return a function that makes the ids gemini_call_0, gemini_call_1, …"""
    numbers = count(first)
    return lambda: f"gemini_call_{next(numbers)}"


class Reader:
    """`feed` text, and take the text before the first call; at the `end` take the rest."""

    def __init__(
        self,
        tools: Iterable[AnyTool] | ToolIndex,
        *,
        marker: str = DEFAULT_MARKER,
        nonce: str | None = None,
        make_id: Callable[[], str] | None = None,
        rejection: Callable[[WrittenCall, bool], str | None] = lambda _call, _has_nonce: None,
    ) -> None:
        """`rejection` returns why a call, with or without the nonce, is not made; None if it is."""
        self._tools = tools if isinstance(tools, ToolIndex) else ToolIndex(tools)
        self._nonce = nonce
        self._patterns = call_patterns(marker)
        self._rejection = rejection
        self._make_id = make_id or numbered()
        # The text before `_at` was already given out and is kept as context, at first as if a line had ended.
        self._text, self._at = "\n", 1
        self._pending: list[str] = []
        self._fed_chars = 0
        self._wait_chars: float = 0
        """How many characters must come before the text at `_at`, which may begin a call, is looked at again."""
        self._thought_end: str | None = None
        self._has_call_in_thought = False
        self._rest_is_text = False
        """What follows is text, whatever it looks like."""
        self._false_starts = self._reparsed_chars = 0
        """Places that looked like a call and were none, and how much text was read there."""
        self._calls = 0
        """Calls that will be made or rejected."""
        self._found: list[tuple[WrittenCall | RejectedCall | None, str]] = []
        """Calls, or None for text, each with the text that it stands for."""
        self._settled = 0
        """How many items of `_found` stay text."""

    def feed(self, text: str) -> list[Piece]:
        """Return the text that cannot be part of a call."""
        self._pending.append(text)
        self._fed_chars += len(text)
        self._wait_chars -= len(text)
        if self._wait_chars <= 0:
            self._read(is_final=False)
        return self._take_pieces()

    def end(self) -> list[Piece]:
        """Return the rest: no more text will come."""
        self._read(is_final=True)
        return self._take_pieces()

    def _take_pieces(self) -> list[Piece]:
        pieces: list[Piece] = []
        for is_text, group in groupby(self._found, lambda item: item[0] is None):
            if is_text:
                pieces.append(Text("".join(text for _, text in group)))
                continue
            for call, _ in group:
                if isinstance(call, WrittenCall):
                    pieces.append(ToolCall(self._make_id(), call.name, call.arguments))
                elif call is not None:
                    pieces.append(call)
        self._found, self._settled = [], 0
        return pieces

    def _read(self, *, is_final: bool) -> None:
        """Read as far as the text is known to be text or a call."""
        self._text = "".join([self._text[max(0, self._at - _CONTEXT) :], *self._pending])
        self._at = min(self._at, _CONTEXT)
        self._pending = []
        search_at = self._at
        while not self._rest_is_text and self._calls < MAX_CALLS:
            if self._thought_end is not None:
                if not self._skip_thought(is_final=is_final):
                    return
                search_at = self._at
            text, place = self._text, self._patterns.find(self._text, search_at)
            if place is None:
                self._add_text(len(text) if is_final else self._patterns.held_from(text, search_at))
                return
            begin, form = place.start(), self._patterns.form_of(place[0])
            if form is None:
                search_at = self._skip_mark(place)
                continue
            may_be_call = self._may_be_call(place, form, is_final=is_final)
            if may_be_call is False:
                search_at = begin + 1
            elif is_final:
                search_at = self._read_call(place, form)
            else:
                self._add_text(begin)
                # Long JSON is not parsed again for every character.
                self._wait_chars = inf if may_be_call else (len(text) - begin) // 8
                return
        self._add_text(len(self._text))

    def _may_be_call(self, place: re.Match[str], form: Form, *, is_final: bool) -> bool | None:
        """Whether a call may begin at a place; None as long as that depends on text to come."""
        begin, text = place.start(), self._text
        if form.head is not None and form.head.match(text, begin) is None:
            return False if is_final or len(text) - begin >= MAX_HEAD_CHARS else None
        if form.may_be_call is None:
            return True
        scanner = self._scanner(place, form)
        may_be_call = form.may_be_call(scanner)
        if may_be_call is False:
            # Short values do not count, because how much of them is read depends on how the text is cut.
            parsed_chars = scanner.parsed_chars if scanner.parsed_chars > MAX_HEAD_CHARS else 0
            if not is_final and self._reparsed_chars + parsed_chars > self._max_reparsed_chars:
                return True  # whether the limit is reached depends on text to come
            self._add_false_start(parsed_chars)
        return may_be_call

    def _scanner(self, place: re.Match[str], form: Form) -> Scanner:
        return Scanner(self._text, place.start() if form.is_content else place.end(), self._tools, form)

    @property
    def _max_reparsed_chars(self) -> int:
        return 4 * self._fed_chars + 50_000

    def _add_false_start(self, parsed_chars: int) -> None:
        """Count a place that is no call. Text after it is scanned again; the limits keep that linear."""
        self._false_starts += 1
        self._reparsed_chars += parsed_chars
        self._rest_is_text = self._false_starts >= _MAX_FALSE_STARTS or self._reparsed_chars > self._max_reparsed_chars

    def _skip_mark(self, place: re.Match[str]) -> int:
        """Handle a mark of a thought or a result, and return where to go on."""
        mark = place[0]
        if mark in RESULTS:
            self._rest_is_text = mark != OBSERVATION or self._calls > 0
            return place.end()
        if mark in THOUGHTS:
            self._thought_end = THOUGHTS[mark]
            self._add_text(place.end())
            return self._at
        # The thought began in the prompt, so all calls so far stood in it.
        self._add_text(place.end())
        self._found[self._settled :] = [(None, text) for _, text in self._found[self._settled :]]
        self._settled, self._calls = len(self._found), 0
        return self._at

    def _skip_thought(self, *, is_final: bool) -> bool:
        """Give out the thought as text. Return whether it has ended."""
        assert self._thought_end is not None, "a thought is open"
        begin, end = self._at, self._text.find(self._thought_end, self._at)
        if end >= 0:
            self._add_text(end + len(self._thought_end))
            self._thought_end, self._has_call_in_thought = None, False
            return True
        self._add_text(len(self._text) if is_final else self._patterns.held_from(self._text, begin))
        self._has_call_in_thought |= self._patterns.has_call(self._text, begin, self._at)
        if is_final and self._has_call_in_thought:
            error = "a call in a thought that has no end is not made; end the thought before the call"
            self._add_call(RejectedCall("", error), "")
        return False

    def _read_call(self, place: re.Match[str], form: Form) -> int:
        """Read the call at a place, and return where to go on."""
        begin, text = place.start(), self._text
        scanner = self._scanner(place, form)
        try:
            calls = (form.parse or read_between_marks)(scanner)
        except Unreadable as error:
            if scanner.tool is not None:
                return self._reject_unreadable(begin, scanner.tool, str(error))
            calls = None
        if not calls:
            self._add_false_start(scanner.parsed_chars)
            return begin + 1
        self._add_text(begin)
        self._at = scanner.at
        nonce = _NONCE.search(place[0]) if form is MARKER else None
        has_nonce = nonce is not None and nonce[0][1:-1] == self._nonce
        for number, call in enumerate(calls[: MAX_CALLS - self._calls]):
            raw, reason = "" if number else text[begin : scanner.at], call.error
            if reason is None:
                is_known = call.name in self._tools.specs
                reason = self._rejection(call, has_nonce) if is_known else unknown_tool(call.name, self._tools.names)
            self._add_call(call if reason is None else RejectedCall(raw, reason, call.name), raw)
        return scanner.at

    def _reject_unreadable(self, begin: int, tool: str, problem: str) -> int:
        """Reject an unreadable call with all the text after it, which may be a part of it, such as a call it quotes."""
        text = self._text
        more = "; calls after it are not made" if self._patterns.has_call(text, begin + 1, len(text)) else ""
        subject = f"the call of {tool}" if tool else "a call"
        error = f"{subject} cannot be read: {problem}{more}"
        self._add_text(begin)
        self._add_call(RejectedCall(text[begin:], error, tool or None, True), text[begin:])
        self._rest_is_text, self._at = True, len(text)
        return self._at

    def _add_call(self, call: WrittenCall | RejectedCall, text: str) -> None:
        self._found.append((call, text))
        self._calls += 1
        if self._calls == MAX_CALLS:
            more = RejectedCall("", f"an answer may have {MAX_CALLS:,} calls; more are not read")
            self._found.append((more, ""))

    def _add_text(self, end: int) -> None:
        """Give out the text up to this position."""
        if end > self._at:
            self._found.append((None, self._text[self._at : end]))
            self._at = end


_HEAD = re.compile(r"\s*(?:Malformed function call:)?\s*", re.IGNORECASE)


def recover_calls(text: str, tools: Iterable[AnyTool]) -> tuple[ToolCall, ...]:
    """Return the calls that a text consists of, such as `Malformed function call: print(default_api.f(a=1))`.

    There are none if there is anything else in it, or anything to guess.
    """
    index = ToolIndex(tools)
    text = _HEAD.sub("", text, count=1).strip()
    if not text or not index.names:
        return ()
    code = text if text.startswith("```") else f"```tool_code\n{text}\n```"
    for candidate in (code, f"{DEFAULT_MARKER}: {text}", text):
        reader = Reader(index, make_id=local_id)
        pieces = [*reader.feed(candidate), *reader.end()]
        pieces = [piece for piece in pieces if not (isinstance(piece, Text) and not piece.text.strip())]
        calls = tuple(piece for piece in pieces if isinstance(piece, ToolCall))
        if calls and len(calls) == len(pieces):
            return calls
    return ()
