"""Text as it streams → text and calls: nothing lost, nothing shown twice, no marker that flickers through.

It knows nothing of models and runs. Fed whole or in pieces cut anywhere, it finds the same. Its time grows with the
text and no faster, its memory not beyond the longest call that it will read.
"""

import re
from collections.abc import Callable, Iterable
from itertools import count

from midspan._schema.lenient_json import IncompleteJson
from midspan._types.parts import Text, ToolCall
from midspan._types.specs import AnyTool
from midspan.providers.prompted.cursor import Cursor
from midspan.providers.prompted.extent import is_closed
from midspan.providers.prompted.findings import MOST_CALLS, Broken, Declared, Found, Refused, Written
from midspan.providers.prompted.marker import MARKER
from midspan.providers.prompted.triggers import triggers

Piece = Text | ToolCall | Refused

LONGEST_CALL = 1 << 20
"""Characters; beyond that it is no call but a way to fill the memory."""
MOST_REFUSALS = 64
_MOST_PLACES = 20_000
"""So often something may look like the beginning of a call and be none, before the rest is taken as text."""
_WINDOW = 1 << 16
_CONTEXT = 32
_ENOUGH = LONGEST_CALL + _CONTEXT
"""With so many characters a call is whole, or too long."""
_ENDS = "the text ends before the call does; a value that is cut off is never completed"

_CLOSING = re.compile(r"[)}\]>\n`;]")
_BRACKET = re.compile(r"[)}\]]")


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
        is_quoted: Callable[[Written], bool] = lambda _: False,
    ) -> None:
        """`is_quoted` says of a call that others wrote it before; with a marker that has no mark it is made even so."""
        self._tools = tools if isinstance(tools, Declared) else Declared(tools)
        self._marker, self._mark = marker, mark
        self._triggers = triggers(marker, mark, dialects and mark is None)
        self._is_quoted = is_quoted
        self._make_id = make_id or numbered()
        # Before `_at` stands what was given out already: context for looking back, at first as if after a line.
        self._text, self._at, self._offset = "\n", 1, -1
        self._waiting: list[str] = []
        self._waiting_size = 0
        self._held = False
        self._read_size = self._last_size = 0
        self._open_brackets = 0
        """So many must still be closed before the open call can be whole."""
        self._deaf = False
        """Whether what follows is text, whatever it looks like."""
        self._reread = 0
        self._calls = self._refusals = self._places = 0
        self._made: list[Piece] = []
        self._words: list[str] = []
        """The text that comes after what was made; joined once, however often something is added."""

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
        self._end_text()
        made, self._made = self._made, []
        return made

    def _add(self, piece: str) -> None:
        self._waiting.append(piece)
        self._waiting_size += len(piece)
        if not self._held or self._is_due(piece):
            self._join()
            self._read(over=False)

    def _is_due(self, piece: str) -> bool:
        """Whether to try an open call again: where it may be whole, and only as often as all stays linear."""
        size = len(self._text) - self._at + self._waiting_size
        if size >= min(2 * self._last_size, _ENOUGH) or (size < 128 and self._open_brackets <= 0):
            return True
        if self._open_brackets > 0:
            self._open_brackets -= len(_BRACKET.findall(piece))
        return self._open_brackets <= 0 and bool(_CLOSING.search(piece)) and self._read_size <= 20_000 + 2 * size

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
            if self._triggers.is_result(place):
                # What a model does with a result that it made up itself, nobody has asked for.
                self._deaf = self._triggers.is_surely_result(place) or self._calls + self._refusals > 0
                continue
            try:
                found = self._found(place, over)
            except IncompleteJson as error:
                self._hold(place.start(), error.depth)
                return
            if found is None:
                self._places += 1
                search_at = place.start() + 1
            else:
                self._say(place.start() if found.calls else found.end)
                self._at = search_at = found.end
                self._read_size = 0
                may_quote = self._mark is not None or not self._triggers.is_marker(place)
                words = self._text[place.start() : found.end]
                for call in found.calls:
                    if self._calls >= MOST_CALLS or self._refusals >= MOST_REFUSALS:
                        break
                    self._take(call, words, may_quote)

    def _is_exhausted(self) -> bool:
        most = self._calls >= MOST_CALLS or self._refusals >= MOST_REFUSALS or self._places >= _MOST_PLACES
        return most or self._deaf

    def _found(self, place: re.Match[str], over: bool) -> Found | None:
        """What begins at a place, None if it is text; what is broken is taken out with as much as belongs to it."""
        begin = place.start()
        size = len(self._text) - begin
        try:
            found = self._tried(place, over)
            end = 0 if found is None else found.end
        except IncompleteJson as error:
            if size < _ENOUGH and not over:
                raise
            if error.name is None:
                self._read_in_vain(min(size, LONGEST_CALL), begin)
                return None
            return self._broken(place, Broken(_ENDS, None, error.name), over)
        except Broken as error:
            return self._broken(place, error, over)
        if end - begin > LONGEST_CALL:
            return self._broken(
                place, Broken(_TOO_LONG, None, found.calls[0].name if found and found.calls else None), over
            )
        return found

    def _tried(self, place: re.Match[str], over: bool) -> Found | None:
        at = place.end() if self._triggers.is_marker(place) else place.start()
        for read in self._triggers.readers(place):
            cursor = Cursor(self._text, at, over)
            found = read(cursor, self._tools)
            if found is not None:
                return found
            self._read_in_vain(cursor.in_vain, at)
        return None

    def _broken(self, place: re.Match[str], error: Broken, over: bool) -> Found:
        """A broken call goes to the end of the line on which it surely is over, else to the end of the text.

        Whatever comes before may be a part of it: a call that it only quotes.
        """
        begin, text = place.start(), self._text
        limit = begin + LONGEST_CALL
        shows_at = len(text) if error.at is None else error.at
        if shows_at > limit:
            shows_at, error = limit, Broken(_TOO_LONG, None, error.name)
        line_break = -1 if error.at is None else text.find("\n", max(shows_at, error.over_at or 0), limit)
        end = line_break if line_break >= 0 else len(text)
        is_over = line_break >= 0 and (error.over_at is not None or is_closed(text, begin, shows_at, end))
        if not is_over and not over and len(text) - begin < _ENOUGH:
            raise IncompleteJson
        if not is_over:
            end, self._deaf = min(len(text), limit), True
        self._say(begin)
        self._at = end
        self._refuse(text[begin:end], f"{_call_of(error.name)} cannot be read: {error.problem}", error.name)
        return Found(end, ())

    def _read_in_vain(self, size: int, at: int) -> None:
        """So much may have to be read once more; where that is too much for the whole to stay linear, it is text."""
        self._reread += size
        if self._reread > 4 * (self._offset + at + size) + 50_000:
            self._places = _MOST_PLACES

    def _take(self, call: Written, text: str, may_quote: bool) -> None:
        if call.name not in self._tools.specs:
            self._refuse(text, self._tools.unknown(call.name), call.name)
            return
        if may_quote and self._is_quoted(call):
            self._refuse(text, f"the call of {call.name} {self._quoted()}", call.name)
            return
        self._calls += 1
        self._end_text()
        self._made.append(ToolCall(self._make_id(), call.name, call.arguments))
        if self._calls == MOST_CALLS:
            self._refuse("", f"more than {MOST_CALLS} calls in one answer; those after are not read")

    def _quoted(self) -> str:
        if self._mark is not None:
            return "is quoted from a prompt or a result, with the mark that only you should know; it is not made"
        return f"stands in a prompt or a result just so, and may be quoted; to make it, write it after {self._marker}:"

    def _refuse(self, text: str, problem: str, name: str | None = None) -> None:
        self._refusals += 1
        self._end_text()
        self._made.append(Refused(text, problem, name or None))
        if self._refusals == MOST_REFUSALS:
            self._made.append(Refused("", "too many broken calls in one answer; the rest is not read"))

    def _hold(self, at: int, open_brackets: int) -> None:
        self._say(at)
        self._held, self._open_brackets = True, open_brackets
        self._last_size = len(self._text) - at
        self._read_size = self._read_size + self._last_size

    def _say(self, end: int) -> None:
        """Give out the text up to here."""
        if end <= self._at:
            return
        self._read_size = 0
        self._words.append(self._text[self._at : end])
        self._at = end

    def _end_text(self) -> None:
        if self._words:
            self._made.append(Text("".join(self._words)))
            self._words = []


def _call_of(name: str | None) -> str:
    return f"the call of {name}" if name else "a call"


_TOO_LONG = f"it is longer than {LONGEST_CALL:,} characters"
