"""Reads text while it streams and separates calls from text. Nothing is lost, and no mark is shown before it is read.

The reader knows nothing of models and runs. However the text is cut into pieces, the result is the same. The time is
linear in the length of the text, and the memory is limited by the longest call that is read.

There are two states: in text the reader looks for the next place where a call may begin; in a call it waits until the
text so far tells what the call is.
"""

import re
from collections.abc import Callable, Iterable
from itertools import count

import msgspec
from msgspec import Raw, Struct

from midspan._types.parts import Opaque, ProviderData, Text, ToolCall
from midspan._types.specs import AnyTool
from midspan.providers.prompted.forms import (
    END_MARKS,
    MARKER,
    OBSERVATIONS,
    RESULTS,
    THOUGHTS,
    read_between_marks,
)
from midspan.providers.prompted.patterns import call_patterns
from midspan.providers.prompted.scanner import (
    MAX_CALL_CHARS,
    MAX_CALLS,
    Incomplete,
    Scanner,
    ToolIndex,
    Unreadable,
    WrittenCall,
)

DEFAULT_MARKER = "TOOL_CALL"
REJECTED_PART = "rejected_call"
MAX_REJECTIONS = 64
_MAX_PLACES = 20_000
"""How often something may look like a call and be none, before the rest is taken as text."""
_WINDOW = 1 << 16
_CONTEXT = 64
"""Characters before the position that patterns may look back at."""
_MAX_BUFFER = MAX_CALL_CHARS + _CONTEXT
_CUT = "the text ends before the call does"
_TOO_LONG = f"it is longer than {MAX_CALL_CHARS:,} characters"

_CLOSING = re.compile(r"[)}\]>\n`;]")
_NONCE = re.compile(r"\[([^\]\n]{0,64})\]")


class RejectedCall(Struct, frozen=True, omit_defaults=True):
    """A call that is not made, and why, in words that the model can act on. Nothing can run it."""

    text: str
    error: str
    name: str | None = None

    def part(self) -> Opaque:
        """Return the part for a message. A run keeps it, and other providers ignore it."""
        return Opaque(REJECTED_PART, ProviderData("prompted", Raw(msgspec.json.encode(self))))


def rejected_call(part: Opaque) -> RejectedCall | None:
    """Return what a part of a message says, if it is a rejected call."""
    return msgspec.json.decode(part.provider_data.raw, type=RejectedCall) if part.name == REJECTED_PART else None


class RetractedCalls(Struct, frozen=True):
    """The calls before this one stood in a thought whose start was not part of the text."""


Piece = Text | ToolCall | RejectedCall | RetractedCalls


def numbered(first: int = 0) -> Callable[[], str]:
    """Return a function that makes the ids gemini_call_0, gemini_call_1, …"""
    numbers = count(first)
    return lambda: f"gemini_call_{next(numbers)}"


class Reader:
    """`feed` text, and take what is certain; at the `end` take the rest."""

    def __init__(
        self,
        tools: Iterable[AnyTool] | ToolIndex,
        *,
        marker: str = DEFAULT_MARKER,
        nonce: str | None = None,
        other_forms: bool = True,
        make_id: Callable[[], str] | None = None,
        rejection: Callable[[WrittenCall, bool], str | None] = lambda _call, _has_nonce: None,
    ) -> None:
        """`rejection` returns why a call, with or without the nonce, is not made; None if it is."""
        self._tools = tools if isinstance(tools, ToolIndex) else ToolIndex(tools)
        self._nonce = nonce
        self._patterns = call_patterns(marker, other_forms=other_forms)
        self._rejection = rejection
        self._make_id = make_id or numbered()
        # The text before `_at` was already given out and is kept as context, at first as if a line had ended.
        self._text, self._at, self._offset = "\n", 1, -1
        self._pending: list[str] = []
        self._pending_chars = 0
        self._call_chars: int | None = None
        """The length of the open call when it was last tried; None in text."""
        self._awaits_rest = False
        self._tried_chars = 0
        """How much was read in trying the open call."""
        self._thought_end: str | None = None
        self._has_call_in_thought = False
        self._is_deaf = False
        """What follows is text, whatever it looks like."""
        self._wasted_chars = 0
        self._calls = self._rejections = self._places = 0
        self._pieces: list[Piece] = []
        self._texts: list[str] = []

    def feed(self, text: str) -> list[Piece]:
        """Return what this text completes."""
        for begin in range(0, len(text), _WINDOW):
            piece = text[begin : begin + _WINDOW]
            self._pending.append(piece)
            self._pending_chars += len(piece)
            if self._call_chars is None or self._should_try(piece):
                self._read(is_final=False)
        return self._take_pieces()

    def end(self) -> list[Piece]:
        """Return the rest: no more text will come."""
        self._read(is_final=True)
        return self._take_pieces()

    def _take_pieces(self) -> list[Piece]:
        self._end_text()
        pieces, self._pieces = self._pieces, []
        return pieces

    def _should_try(self, piece: str) -> bool:
        """Whether to try the open call again: where it may be complete, and only as often as the time stays linear."""
        assert self._call_chars is not None, "a call is open"
        chars = len(self._text) - self._at + self._pending_chars
        if chars >= min(2 * self._call_chars, _MAX_BUFFER):
            return True
        may_be_complete = self._awaits_rest or chars < 128 or _CLOSING.search(piece)
        return bool(may_be_complete) and self._tried_chars <= 20_000 + 2 * chars

    def _read(self, *, is_final: bool) -> None:
        """Give out all that is certain."""
        begin = max(0, self._at - _CONTEXT)
        self._text = "".join([self._text[begin:], *self._pending])
        self._offset += begin
        self._at -= begin
        self._pending, self._pending_chars, self._call_chars = [], 0, None
        search_at = self._at
        while not self._is_exhausted():
            if self._thought_end is not None:
                if not self._skip_thought(is_final=is_final):
                    return
                search_at = self._at
            place = self._patterns.find(self._text, search_at)
            if place is None:
                self._add_text(len(self._text) if is_final else self._patterns.held_from(self._text, search_at))
                return
            after_mark = self._skip_mark(place)
            if after_mark is not None:
                search_at = after_mark
                continue
            form = self._patterns.form_of(place[0])
            begin = place.start() if form.is_content else place.end()
            scanner = Scanner(self._text, begin, self._tools, form, is_final=is_final)
            try:
                end = self._read_call(place, scanner)
            except Incomplete:
                self._add_text(place.start())
                self._call_chars = len(self._text) - self._at
                self._tried_chars += self._call_chars
                self._awaits_rest = scanner.awaits_rest
                return
            search_at = place.start() + 1 if end is None else end
        self._add_text(len(self._text))

    def _is_exhausted(self) -> bool:
        is_full = self._calls >= MAX_CALLS or self._rejections >= MAX_REJECTIONS or self._places >= _MAX_PLACES
        return is_full or self._is_deaf

    def _skip_mark(self, place: re.Match[str]) -> int | None:
        """Handle a mark of a thought or a result, and return where to go on; None if a call may begin there."""
        mark = place[0]
        if mark in RESULTS or mark in OBSERVATIONS:
            self._is_deaf = mark in RESULTS or self._calls + self._rejections > 0
            return place.end()
        if mark in THOUGHTS:
            self._thought_end = THOUGHTS[mark]
            self._add_text(place.end())
        elif mark in THOUGHTS.values():
            self._end_thought(place.end())
            if self._calls or self._rejections:
                self._end_text()
                self._pieces.append(RetractedCalls())
        else:
            return None
        return self._at

    def _skip_thought(self, *, is_final: bool) -> bool:
        """Give out the thought as text. Return whether it has ended."""
        assert self._thought_end is not None, "a thought is open"
        begin, end = self._at, self._text.find(self._thought_end, self._at)
        if end >= 0:
            self._end_thought(end + len(self._thought_end))
            return True
        self._add_text(len(self._text) if is_final else self._patterns.held_from(self._text, begin))
        self._has_call_in_thought |= self._patterns.has_mark(self._text, begin, self._at)
        if is_final and self._has_call_in_thought:
            self._reject("", "a call in a thought that has no end is not made; end the thought before the call")
        return False

    def _end_thought(self, end: int) -> None:
        """Give out the text up to the end of a thought. What follows counts as the beginning of a line."""
        self._add_text(end)
        self._text, self._at, self._offset = "\n" + self._text[end:], 1, self._offset + end - 1
        self._thought_end, self._has_call_in_thought = None, False

    def _read_call(self, place: re.Match[str], scanner: Scanner) -> int | None:
        """Read the call at a place and return where it ends; None if the text is not a call."""
        form, begin = scanner.form, place.start()
        if form is END_MARKS and self._rejections:
            return None  # it belongs to a call that was rejected
        is_over = scanner.is_final or len(self._text) - begin >= _MAX_BUFFER
        try:
            calls = (form.parse or read_between_marks)(scanner)
            if calls and scanner.at - begin > MAX_CALL_CHARS:
                raise Unreadable(_TOO_LONG, scanner.at)
        except Incomplete:
            if not is_over:
                raise
            if scanner.tool is None:
                self._waste(min(len(self._text) - begin, MAX_CALL_CHARS), begin)
                return None
            is_long = len(self._text) - begin > MAX_CALL_CHARS
            return self._reject_call(begin, scanner, Unreadable(_TOO_LONG if is_long else _CUT, len(self._text)))
        except Unreadable as error:
            return self._reject_call(begin, scanner, error)
        if not calls:
            self._places += 1
            self._waste(scanner.reach - begin, begin)
            return None
        self._add_text(begin)
        self._at, self._tried_chars = scanner.at, 0
        nonce = _NONCE.search(place[0]) if form is MARKER else None
        has_nonce = nonce is not None and nonce[1] == self._nonce
        for call in calls:
            if not self._is_exhausted():
                self._add_call(call, has_nonce, self._text[begin : scanner.at])
        return scanner.at

    def _reject_call(self, begin: int, scanner: Scanner, error: Unreadable) -> int:
        """Reject an unreadable call with everything that may be a part of it, such as a call that it quotes."""
        text, ends = self._text, scanner.form.ends
        limit = min(len(text), begin + MAX_CALL_CHARS)
        end = find_call_end(text, begin, limit, error, ends)
        if end is None and not scanner.is_final and len(text) - begin < _MAX_BUFFER:
            raise Incomplete
        if end is None:
            end, self._is_deaf = limit, True
        elif ends:
            scanner.at = end
            scanner.take_after_space(*ends)
            end = scanner.at
        self._add_text(begin)
        self._at, self._tried_chars = end, 0
        subject = f"the call of {scanner.tool}" if scanner.tool else "a call"
        self._reject(text[begin:end], f"{subject} cannot be read: {error.problem}", scanner.tool)
        return end

    def _waste(self, chars: int, at: int) -> None:
        """Note that text was read in vain and may be read again. Where that gets too much, the rest is text."""
        self._wasted_chars += max(0, chars)
        if self._wasted_chars > 4 * (self._offset + at + chars) + 50_000:
            self._places = _MAX_PLACES

    def _add_call(self, call: WrittenCall, has_nonce: bool, text: str) -> None:
        error = self._rejection(call, has_nonce) if call.name in self._tools.specs else self._tools.unknown(call.name)
        if error is not None:
            self._reject(text, error, call.name)
            return
        self._calls += 1
        self._end_text()
        self._pieces.append(ToolCall(self._make_id(), call.name, call.arguments))
        if self._calls == MAX_CALLS:
            self._reject("", f"an answer may have {MAX_CALLS:,} calls; those after them are not read")

    def _reject(self, text: str, error: str, name: str | None = None) -> None:
        self._rejections += 1
        self._end_text()
        self._pieces.append(RejectedCall(text, error, name or None))
        if self._rejections == MAX_REJECTIONS:
            self._pieces.append(RejectedCall("", "there are too many unreadable calls; the rest is not read"))

    def _add_text(self, end: int) -> None:
        """Give out the text up to this position."""
        if end > self._at:
            self._texts.append(self._text[self._at : end])
            self._at, self._tried_chars = end, 0

    def _end_text(self) -> None:
        if self._texts:
            self._pieces.append(Text("".join(self._texts)))
            self._texts = []


_SIGN = re.compile(r"""\\.|["'()\[\]{}]""", re.DOTALL)
_PAIRS = {")": "(", "]": "[", "}": "{"}
_MAX_CHECKED_CHARS = 20_000


def find_call_end(text: str, begin: int, limit: int, error: Unreadable, ends: tuple[str, ...]) -> int | None:
    """Return where an unreadable call ends; None if that is not certain.

    It ends where the error says, or at the end mark of its form, or at the end of the line on which the error shows.
    All its brackets and quotes must be closed there: otherwise the text after it may be a part of one of its strings.
    """
    shows_at = max(error.at, error.end or 0)
    marks = [at + len(mark) for mark in ends if (at := text.find(mark, shows_at, limit)) >= 0]
    line_end = text.find("\n", shows_at, limit)
    candidates = sorted([*marks, *([line_end] if line_end >= 0 else [])])
    if error.end is not None:
        return candidates[0] if candidates else None
    return next((end for end in candidates if _is_closed(text, begin, shows_at, end)), None)


def _is_closed(text: str, begin: int, shows_at: int, end: int) -> bool:
    if end - begin > _MAX_CHECKED_CHARS:
        return False
    opened: list[str] = []
    quotes = {'"': 0, "'": 0}
    brackets = 0
    for match in _SIGN.finditer(text, begin, end):
        sign = match[0]
        if sign in quotes:
            quotes[sign] += 1
        elif sign in _PAIRS.values():
            opened.append(sign)
            brackets += 1
        elif sign in _PAIRS and opened:
            if opened.pop() != _PAIRS[sign]:
                return False
            if not opened and match.start() >= shows_at:
                return _ends_a_value(text, begin, match.start(), quotes)
    return not opened and quotes['"'] % 2 == 0 and (not brackets or quotes["'"] % 2 == 0)


def _ends_a_value(text: str, begin: int, at: int, quotes: dict[str, int]) -> bool:
    """Whether the bracket at this position comes after a value, and not somewhere in a string."""
    if quotes['"'] % 2:
        return False
    last = text[begin : at + 1].rstrip(")]}")[-1:]
    return last in "\"'([{" or last.isdigit() or (last.isalnum() and not any(quotes.values()))
