"""Text as it streams → text and calls: nothing lost, nothing shown twice, no marker that flickers through.

It knows nothing of models and runs. Fed whole or in pieces cut anywhere, it finds the same. Its time grows with the
text and no faster, its memory not beyond the longest call that it will read.
"""

import re
from collections.abc import Callable, Iterable
from itertools import count

from wasat.providers.prompted.cursor import Cursor
from wasat.providers.prompted.findings import Broken, Declared, Found, Refused, Written
from wasat.providers.prompted.marker import MARKER
from wasat.providers.prompted.triggers import triggers
from wasat.schema.repair import Unfinished
from wasat.types.parts import Text, ToolCall
from wasat.types.specs import AnyTool

Piece = Text | ToolCall | Refused

LONGEST_CALL = 1 << 20
"""Characters; beyond that it is no call but a way to fill the memory."""
MOST_CALLS = 1_000
MOST_REFUSALS = 64
_MOST_PLACES = 20_000
"""So often something may look like the beginning of a call and be none, before the rest is taken as text."""
_WINDOW = 1 << 16
_CONTEXT = 32
_REST_OF_LINE = 200
_ENDS = "the text ends before the call does; a value that is cut off is never completed"

_LINE_START = re.compile(r"\n[ \t>*`\[+\-]{0,16}(?:\d{1,3}[.)][ \t]{0,4})?[*`\[<]{0,4}\Z")
_BLANK_LINE = re.compile(r"\r?\n[ \t]*\r?\n")
_CLOSING = re.compile(r"[)}\]>\n`;]")


def numbered(first: int = 0) -> Callable[[], str]:
    """Ids for calls in text: gemini_call_0, gemini_call_1, …"""
    numbers = count(first)
    return lambda: f"gemini_call_{next(numbers)}"


class Reader:
    """Feed it text, take what is certain; at the end take the rest."""

    def __init__(
        self,
        tools: Iterable[AnyTool] | Declared,
        *,
        marker: str = MARKER,
        mark: str | None = None,
        dialects: bool = True,
        make_id: Callable[[], str] | None = None,
    ) -> None:
        self._tools = tools if isinstance(tools, Declared) else Declared(tools)
        self._triggers = triggers(marker, mark, dialects and mark is None)
        self._make_id = make_id or numbered()
        # Before `_at` stands what was given out already: context for looking back, at first as if after a line.
        self._text, self._at, self._offset = "\n", 1, -1
        self._waiting: list[str] = []
        self._waiting_size = 0
        self._held = False
        self._read_size = self._last_size = 0
        self._careful_until = -1
        """After a broken call, up to the first line break from here on, only the beginning of a line begins a call."""
        self._reread = 0
        self._calls = self._refusals = self._places = 0
        self._made: list[Piece] = []

    def feed(self, text: str) -> list[Piece]:
        """What this text completes."""
        for begin in range(0, len(text), _WINDOW):
            self._add(text[begin : begin + _WINDOW])
        return self._taken()

    def end(self) -> list[Piece]:
        """The text is over."""
        self._join()
        self._read(over=True)
        return self._taken()

    def _taken(self) -> list[Piece]:
        made, self._made = self._made, []
        return made

    def _add(self, piece: str) -> None:
        self._waiting.append(piece)
        self._waiting_size += len(piece)
        if not self._held or self._is_due(piece):
            self._join()
            self._read(over=False)

    def _is_due(self, piece: str) -> bool:
        """Whether to try an open call again: often while it is short, then only as often as the whole stays linear."""
        size = len(self._text) - self._at + self._waiting_size
        if size < 128 or size >= 1.5 * self._last_size:
            return True
        return _CLOSING.search(piece) is not None and self._read_size + size <= 100_000 + 8 * size

    def _join(self) -> None:
        cut = max(0, self._at - _CONTEXT)
        self._text = "".join([self._text[cut:], *self._waiting])
        self._offset += cut
        self._at -= cut
        self._waiting, self._waiting_size = [], 0

    def _read(self, *, over: bool) -> None:
        """Give out all that is certain in the text."""
        search_at, self._held = self._at, False
        while True:
            place = None if self._is_exhausted() else self._triggers.place.search(self._text, search_at)
            if place is None:
                waits = over or self._is_exhausted()
                self._say(len(self._text) if waits else self._triggers.held(self._text, search_at))
                return
            search_at = place.end()
            if not self._may_begin(place.start()):
                self._places += 1
                continue
            try:
                found = self._found(place, over)
            except Unfinished:
                self._hold(place.start())
                return
            if found is None:
                self._places += 1
                search_at = place.start() + 1
            else:
                self._say(place.start())
                self._at = search_at = found.end
                self._read_size = 0
                for call in found.calls:
                    self._take(call, self._text[place.start() : found.end])

    def _is_exhausted(self) -> bool:
        return self._calls >= MOST_CALLS or self._refusals >= MOST_REFUSALS or self._places >= _MOST_PLACES

    def _may_begin(self, at: int) -> bool:
        if self._careful_until < 0:
            return True
        line_break = self._text.find("\n", max(0, self._careful_until - self._offset), at)
        if line_break >= 0:
            self._careful_until = -1
            return True
        self._careful_until = max(self._careful_until, self._offset + at)  # up to here there was none
        return _LINE_START.search(self._text, max(0, at - _CONTEXT), at) is not None

    def _found(self, place: re.Match[str], over: bool) -> Found | None:
        """What begins at a place, None if it is text; what is broken is taken out with as much as belongs to it."""
        begin = place.start()
        size = len(self._text) - begin
        try:
            found = self._tried(place, over)
            end = 0 if found is None else found.end
        except Unfinished as error:
            if size < LONGEST_CALL + _CONTEXT and not over:
                raise
            if error.name is None:
                self._read_in_vain(min(size, LONGEST_CALL), begin)
                return None
            return self._broken(place, Broken(_ENDS, None, error.name), over)
        except Broken as error:
            return self._broken(place, error, over)
        if end - begin > LONGEST_CALL:
            return self._broken(place, Broken(_TOO_LONG, None, found.calls[0].name if found else None), over)
        return found

    def _tried(self, place: re.Match[str], over: bool) -> Found | None:
        at = place.end() if self._triggers.is_marker(place) else place.start()
        for read in self._triggers.readers(place):
            found = read(Cursor(self._text, at, over), self._tools)
            if found is not None:
                return found
        return None

    def _broken(self, place: re.Match[str], error: Broken, over: bool) -> Found:
        """A broken call goes to the end of its line, or to what surely is no part of it."""
        begin, text = place.start(), self._text
        shows_at = len(text) if error.at is None else error.at
        if shows_at - begin > LONGEST_CALL:
            shows_at, error = begin + LONGEST_CALL, Broken(_TOO_LONG, None, error.name)
        end = self._next_thing(place.end(), shows_at)
        if end is None:
            line_break = text.find("\n", shows_at, shows_at + _REST_OF_LINE)
            end = line_break if line_break >= 0 else min(shows_at + _REST_OF_LINE, len(text))
            if line_break < 0 and len(text) < shows_at + _REST_OF_LINE and not over:
                raise Unfinished
        if not self._read_in_vain(max(0, shows_at - end), shows_at):
            end = max(end, shows_at)  # whatever is in between stays part of the broken call
        self._careful_until = self._offset + max(shows_at, end)
        self._say(begin)
        self._at = end
        self._refuse(text[begin:end], f"{_call_of(error.name)} cannot be read: {error.problem}", error.name)
        return Found(end, ())

    def _read_in_vain(self, size: int, at: int) -> bool:
        """Whether so much may be read once more; the whole stays linear."""
        self._reread += size
        if self._reread <= 4 * (self._offset + at) + 100_000 + LONGEST_CALL:
            return True
        self._places += _MOST_PLACES // 64
        return False

    def _next_thing(self, begin: int, end: int) -> int | None:
        """Where before `end` another call begins a line, or a paragraph ends."""
        blank = _BLANK_LINE.search(self._text, begin, end)
        limit = blank.start() if blank else end
        for place in self._triggers.place.finditer(self._text, begin, limit):
            if _LINE_START.search(self._text, max(0, place.start() - _CONTEXT), place.start()):
                return self._text.rfind("\n", begin, place.start())
        return blank.start() if blank else None

    def _take(self, call: Written, text: str) -> None:
        if call.name not in self._tools.specs:
            self._refuse(text, self._tools.unknown(call.name), call.name)
            return
        if self._calls >= MOST_CALLS:
            return
        self._calls += 1
        self._made.append(ToolCall(self._make_id(), call.name, call.arguments))
        if self._calls == MOST_CALLS:
            self._refuse("", f"more than {MOST_CALLS} calls in one answer; those after are not read")

    def _refuse(self, text: str, problem: str, name: str | None = None) -> None:
        self._refusals += 1
        self._made.append(Refused(text, problem, name or None))
        if self._refusals == MOST_REFUSALS:
            self._made.append(Refused("", "too many broken calls in one answer; the rest is not read"))

    def _hold(self, at: int) -> None:
        self._say(at)
        self._held = True
        self._last_size = len(self._text) - at
        self._read_size = self._read_size + self._last_size

    def _say(self, end: int) -> None:
        """Give out the text up to here."""
        if end <= self._at:
            return
        self._read_size = 0
        words = self._text[self._at : end]
        self._at = end
        last = self._made[-1] if self._made else None
        if isinstance(last, Text):
            self._made[-1] = Text(last.text + words)
        else:
            self._made.append(Text(words))


def _call_of(name: str | None) -> str:
    return f"the call of {name}" if name else "a call"


_TOO_LONG = f"it is longer than {LONGEST_CALL:,} characters"
