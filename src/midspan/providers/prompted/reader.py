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

from midspan._types.parts import Opaque, ProviderData, Text, ToolCall, local_id
from midspan._types.specs import AnyTool
from midspan.providers.prompted.forms import (
    MARKER,
    OBSERVATIONS,
    RESULTS,
    THOUGHT_ENDS,
    THOUGHTS,
    call_patterns,
    read_between_marks,
)
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
_MAX_PLACES = 20_000
"""How often something may look like a call and be none, before the rest is taken as text."""
_WINDOW = 1 << 16
_CONTEXT = 64
"""Characters before the position that patterns may look back at."""
_MAX_BUFFER = MAX_CALL_CHARS + _CONTEXT
_CUT = "the text ends before the call does"
_TOO_LONG = f"it is longer than {MAX_CALL_CHARS:,} characters"

_NONCE = re.compile(r"\[([^\]\n]{0,64})\]")
_SKETCH = re.compile(r"[^\n\"'“”()]*\([^\n\"'“”()]*\)[^\n\"'“”]*(?:\n|\Z)")


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
        self._next_try_chars = 0
        """How much text there must be before the open call is tried again; 0 in text."""
        self._thought_end: str | None = None
        self._has_call_in_thought = False
        self._rest_is_text = False
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
            if len(self._text) - self._at + self._pending_chars >= self._next_try_chars:
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

    def _read(self, *, is_final: bool) -> None:
        """Give out all that is certain."""
        begin = max(0, self._at - _CONTEXT)
        self._text = "".join([self._text[begin:], *self._pending])
        self._offset += begin
        self._at -= begin
        self._pending, self._pending_chars, self._next_try_chars = [], 0, 0
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
            scanner = Scanner(self._text, begin, self._tools, form)
            try:
                end = self._read_call(place, scanner, is_final=is_final)
            except Incomplete:
                self._add_text(place.start())
                # Each time twice as much, so that the time is linear in the length of the call.
                self._next_try_chars = min(2 * (len(self._text) - self._at), _MAX_BUFFER)
                return
            search_at = place.start() + 1 if end is None else end
        self._add_text(len(self._text))

    def _is_exhausted(self) -> bool:
        return self._rest_is_text or self._calls + self._rejections >= MAX_CALLS

    def _skip_mark(self, place: re.Match[str]) -> int | None:
        """Handle a mark of a thought or a result, and return where to go on; None if a call may begin there."""
        mark = place[0]
        if mark in RESULTS or mark in OBSERVATIONS:
            self._rest_is_text = mark in RESULTS or self._calls + self._rejections > 0
            return place.end()
        if mark in THOUGHTS:
            self._thought_end = THOUGHTS[mark]
            self._add_text(place.end())
        elif mark in THOUGHTS.values():
            self._end_thought(place.end())
            if self._calls or self._rejections:
                self._add_piece(RetractedCalls())
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
        self._has_call_in_thought |= any(self._patterns.forms_in(self._text, begin, self._at))
        if is_final and self._has_call_in_thought:
            error = "a call in a thought that has no end is not made; end the thought before the call"
            self._reject(RejectedCall("", error))
        return False

    def _end_thought(self, end: int) -> None:
        """Give out the text up to the end of a thought. What follows counts as the beginning of a line."""
        self._add_text(end)
        self._text, self._at, self._offset = "\n" + self._text[end:], 1, self._offset + end - 1
        self._thought_end, self._has_call_in_thought = None, False

    def _read_call(self, place: re.Match[str], scanner: Scanner, *, is_final: bool) -> int | None:
        """Read the call at a place and return where it ends; None if the text is not a call."""
        begin, text = place.start(), self._text
        may_grow = not is_final and len(text) - begin < _MAX_BUFFER
        try:
            calls = (scanner.form.parse or read_between_marks)(scanner)
            if calls and scanner.at - begin > MAX_CALL_CHARS:
                raise Unreadable(_TOO_LONG)
        except Incomplete:
            if may_grow:
                raise
            if scanner.tool is None:
                self._waste(begin, begin + MAX_CALL_CHARS)
                return None
            problem = _TOO_LONG if len(text) - begin > MAX_CALL_CHARS else _CUT
            return self._reject_unreadable(begin, scanner, problem, may_grow=False)
        except Unreadable as error:
            if may_grow and scanner.reach > len(text):
                raise Incomplete from None
            return self._reject_unreadable(begin, scanner, str(error), may_grow=may_grow)
        if may_grow and scanner.reach > len(text):
            raise Incomplete
        if not calls:
            self._waste(begin, scanner.reach)
            return None
        self._add_text(begin)
        self._at = scanner.at
        nonce = _NONCE.search(place[0]) if scanner.form is MARKER else None
        has_nonce = nonce is not None and nonce[1] == self._nonce
        for number, call in enumerate(calls):
            if not self._is_exhausted():
                self._add_call(call, has_nonce, "" if number else text[begin : scanner.at])
        return scanner.at

    def _reject_unreadable(self, begin: int, scanner: Scanner, problem: str, *, may_grow: bool) -> int:
        """Reject an unreadable call with all the text after it, which may be a part of it, such as a call it quotes.

        Only after a thought the reader goes on, if the call is a mere sketch without strings, such as `f(…)`.
        """
        text, tool = self._text, scanner.tool
        end = min((at for mark in THOUGHT_ENDS if (at := text.find(mark, begin)) >= 0), default=-1)
        is_in_thought = end >= 0 and scanner.form is MARKER and bool(_SKETCH.match(text, begin, end))
        if may_grow and not is_in_thought:
            raise Incomplete
        end = end if is_in_thought else len(text)
        self._rest_is_text = not is_in_thought
        self._add_text(begin)
        self._at = end
        forms = self._patterns.forms_in(text, begin + 1, end)
        more = "; calls after it are not made" if any(form is MARKER or form.parse is None for form in forms) else ""
        subject = f"the call of {tool}" if tool else "a call"
        self._reject(RejectedCall(text[begin:end], f"{subject} cannot be read: {problem}{more}", tool or None, True))
        return end

    def _waste(self, begin: int, end: int) -> None:
        """Note that text was read in vain and may be read again. Where that gets too much, the rest is text."""
        self._places += 1
        self._wasted_chars += min(end, len(self._text)) - begin
        is_too_much = self._wasted_chars > 4 * (self._offset + end) + 50_000
        self._rest_is_text |= is_too_much or self._places >= _MAX_PLACES

    def _add_call(self, call: WrittenCall, has_nonce: bool, text: str) -> None:
        error = call.error
        if error is None:
            is_known = call.name in self._tools.specs
            error = self._rejection(call, has_nonce) if is_known else self._tools.unknown(call.name)
        if error is not None:
            self._reject(RejectedCall(text, error, call.name))
        else:
            self._calls += 1
            self._add_piece(ToolCall(self._make_id(), call.name, call.arguments))

    def _reject(self, call: RejectedCall) -> None:
        self._rejections += 1
        self._add_piece(call)

    def _add_piece(self, piece: Piece) -> None:
        self._end_text()
        self._pieces.append(piece)
        if self._calls + self._rejections == MAX_CALLS and not isinstance(piece, RetractedCalls):
            self._pieces.append(RejectedCall("", f"an answer may have {MAX_CALLS:,} calls; more are not read"))

    def _add_text(self, end: int) -> None:
        """Give out the text up to this position."""
        if end > self._at:
            self._texts.append(self._text[self._at : end])
            self._at = end

    def _end_text(self) -> None:
        if self._texts:
            self._pieces.append(Text("".join(self._texts)))
            self._texts = []


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
