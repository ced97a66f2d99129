"""Reads text while it streams and separates calls from text.

Text is returned up to the first mark with which a call may begin. The rest is held back until the response ends; then
the calls are read. However the text is cut into pieces, the result is the same. The time is linear in its length.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import count

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from midspan._types.parts import Opaque, ProviderData, Text, ToolCall, local_id
from midspan._types.specs import AnyTool, unknown_tool
from midspan.providers.prompted.calls import read_calls
from midspan.providers.prompted.forms import (
    COMMENTS,
    CONDITIONAL,
    MARK_PATTERN,
    OBSERVATION,
    PROMPT_FORM,
    PROMPT_MARKER,
    RESULTS,
    THOUGHTS,
    WITHIN_LINE,
    form_of,
    has_call,
    held_from,
)
from midspan.providers.prompted.scanner import MAX_HEAD_CHARS, CallForm, Scanner, ToolIndex, Unreadable

REJECTED_PART = "rejected_call"
MAX_CALLS = 1_000
"""In one answer."""
_MAX_FALSE_STARTS = 20_000
_MAX_REREAD_CHARS = 50_000
"""How much text may be read after marks that do not begin a call, in addition to four times the whole text."""
_LOOKBEHIND_CHARS = 500
"""How far before a position a pattern may look."""
_MAX_PLACE_CHARS = 64
"""How far before a marker its place is looked at: less, because there may be thousands of markers."""
_MARKER_PLACE = re.compile(
    rf"(?:[\n\r]|<\|message\|>|{'|'.join(map(re.escape, THOUGHTS.values()))})[ \t\xa0\u200b\ufeff]*"
    r"(?:```(?:\w+[ \t]+)?|(?:[-*+•→]|\d{1,3}[.)])[ \t]+)?[*_\[ \t]*\Z|[A-Za-z0-9]\Z|[.!?…。][ \t]*\Z"
)
"""Where models write the marker: at the start of a line, perhaps after a list mark or in bold, or after a sentence.

A marker within a sentence, a quotation or a comment is probably only mentioned.
"""
_QUOTED = re.compile(
    r"(?:[“\u2018«„]|(?<![A-Za-z0-9.!?>|\uff5c)}\]])[\"']|(?<![A-Za-z0-9.!?>|\uff5c)}\]`])``?)\Z"
    r"|[\n\r][^\S\n\r]*(?:[>#|]|//)[ \t][^\n\r]*\Z"
)
"""Where a call in another form is a quotation: after an opening quotation mark, or in a quoted line, table or comment.

Models write the marks of these forms anywhere else, even within a sentence.
"""
_APPROVAL = r"(?:approval|confirmation)\b"
_WORDS = r"if|unless|until|except|when|once|after|before|provided|assuming|as (?:soon|long) as|in case|pending"
"""In lower or upper case: with a capital they begin another sentence."""
_CONDITION = re.compile(
    r"[^\S\r\n]*+(?:(?:[#/(\[<!,;\u2013\u2014-]++[^\S\r\n]*+)?(?:but )?(?:only )?"
    rf"(?:(?:{_WORDS}|{_WORDS.upper()})\b|(?:[\w']{{1,20}}+ ){{0,3}}(?i:{_APPROVAL}))"
    r"|(?:(?:#|//|-[- ]|<!--|[(\u2013\u2014])[^\r\n]{0,100}?|\[[^\]\r\n]{0,100}?)"
    rf"(?i:\b(?:not|never|only|example)\b|n['\u2019]t\b|\b{_APPROVAL}))"
)
"""Words on the line of a call because of which it is not made: a condition, or a comment that forbids it.

A condition follows the call directly, or after up to three other words if it is an approval or a confirmation.
"""
_BETWEEN_MARKERS = re.compile(r"[\s*_`\],;]*+")


class RejectedCall(Struct, frozen=True, omit_defaults=True):
    """A call that is not made, and why, in words that the model can act on. Nothing can run it."""

    text: str
    error: str
    name: str | None = None
    is_unreadable: bool = False
    """Only its arguments cannot be read; everything else about the call is right."""

    def part(self) -> Opaque:
        """Return the part for a message. A run keeps it, and other providers ignore it."""
        return Opaque(REJECTED_PART, ProviderData("prompted", Raw(msgspec.json.encode(self))))


def rejected_call(part: object) -> RejectedCall | None:
    """Return what a part of a message says, if it is a rejected call."""
    if not isinstance(part, Opaque) or part.name != REJECTED_PART:
        return None
    return msgspec.json.decode(part.provider_data.raw, type=RejectedCall)


Piece = Text | ToolCall | RejectedCall


class CallReader:
    """`feed` returns the text before the first call, and `end` everything else: calls, and text between them."""

    def __init__(
        self,
        tools: Iterable[AnyTool],
        *,
        first_number: int = 0,
        rejection: Callable[[ToolCall, str], str | None] = lambda _call, _mark: None,
    ) -> None:
        """Calls have the ids gemini_call_0, gemini_call_1 and so on, from `first_number` on.

        `rejection` returns why a call that began with this mark is not made; None if it is.
        """
        self.tools = ToolIndex(tools)
        self._rejection = rejection
        self._numbers = count(first_number)
        # The text before `_at` was already returned and is kept for lookbehinds; at first, a line break.
        self._text, self._at = "\n", 1
        self._held: list[str] | None = None
        """The text from the first possible call on; None before it."""
        self._thought_end: str | None = None
        self._has_call_in_thought = False
        self._comment_end: str | None = None
        self._rest_is_text = False
        """What follows is text, whatever it looks like."""
        self._false_starts = self._reread_chars = 0
        """How many marks did not begin a call, and how much text was read after them."""
        self._pieces: list[Piece] = []
        self._pieces_begin = 0
        """Where the text of the pieces begins."""
        self._call_count = 0
        self._next_marker = -1
        """Where another marker would directly follow the last call."""
        self._quoted_until = 0
        """Where the line of the last quoted call ends."""

    def feed(self, text: str) -> list[Piece]:
        """Return the text that cannot be part of a call."""
        if self._held is not None:
            self._held.append(text)
            return []
        self._read(text, is_final=False)
        return self._take_pieces()

    def end(self) -> list[Piece]:
        """Return the rest: no more text will come."""
        self._read("".join(self._held or ()), is_final=True)
        return self._take_pieces()

    def _take_pieces(self) -> list[Piece]:
        pieces, self._pieces = self._pieces, []
        return [replace(piece, id=self.next_id()) if isinstance(piece, ToolCall) else piece for piece in pieces]

    def next_id(self) -> str:
        return f"gemini_call_{next(self._numbers)}"

    def _read(self, text: str, *, is_final: bool) -> None:
        """Read as far as the text is known to be text; at the end, read the calls."""
        self._text = text = self._text[max(0, self._at - _LOOKBEHIND_CHARS) :] + text
        self._at = self._pieces_begin = search_at = min(self._at, _LOOKBEHIND_CHARS)
        while not self._rest_is_text:
            if self._thought_end is not None:
                if not self._skip_thought(self._thought_end, is_final=is_final):
                    return
                search_at = self._at
            mark = MARK_PATTERN.search(text, search_at)
            if mark is None:
                self._add_text(len(text) if is_final else held_from(text, search_at))
                return
            begin, form = mark.start(), form_of(mark[0])
            if form is None:
                search_at = self._skip_mark(mark)
                continue
            has_head = form.head is None or form.head.match(text, begin, begin + MAX_HEAD_CHARS)
            if not has_head and (is_final or len(text) - begin >= MAX_HEAD_CHARS):
                search_at = begin + 1
            elif is_final:
                search_at = self._read_call(mark, form)
            else:
                self._add_text(begin)
                self._held = [] if has_head else None
                return
        self._add_text(len(text))

    def _skip_mark(self, mark: re.Match[str]) -> int:
        """Handle a mark of a thought, a comment or a result, and return where to continue."""
        if mark[0] in COMMENTS or mark[0] in COMMENTS.values():
            if self._comment_end in (None, mark[0]):
                self._comment_end = COMMENTS.get(mark[0])
            return mark.end()
        if mark[0] in RESULTS:
            # Before the first call, an observation is text of the model and calls may follow it.
            self._rest_is_text = mark[0] != OBSERVATION or self._call_count > 0
            return mark.end()
        self._add_text(mark.end())
        if mark[0] in THOUGHTS:
            self._thought_end = THOUGHTS[mark[0]]
        else:  # the thought began in the prompt, so all calls so far were part of it
            self._pieces = [Text(self._text[self._pieces_begin : self._at])]
            self._call_count, self._comment_end = 0, None
        return self._at

    def _skip_thought(self, end_mark: str, *, is_final: bool) -> bool:
        """Add the thought as text. Return whether it has ended."""
        begin, end = self._at, self._text.find(end_mark, self._at)
        if end != -1:
            self._add_text(end + len(end_mark))
            self._thought_end, self._has_call_in_thought = None, False
            return True
        self._add_text(len(self._text) if is_final else held_from(self._text, begin))
        self._has_call_in_thought |= has_call(self._text, begin, self._at)
        if is_final and self._has_call_in_thought:
            error = "a call in a thought that has no end is not made; end the thought before the call"
            self._add_call(RejectedCall("", error))
        return False

    def _read_call(self, mark: re.Match[str], form: CallForm) -> int:
        """Read the call that begins with a mark, and return where to continue."""
        begin, text = mark.start(), self._text
        is_in_place = self._is_in_place(begin, form)
        is_meant = is_in_place and self._comment_end is None and form.place != "within a line"
        problem = "" if is_meant else WITHIN_LINE
        scanner = Scanner(text, begin if form.includes_start_mark else mark.end(), self.tools, form)
        try:
            calls = (form.read or read_calls)(scanner)
        except Unreadable as error:
            if scanner.is_call:
                reason = self._reason_to_reject(ToolCall("", scanner.tool, {}), problem, mark[0])
                return self._reject_unreadable(begin, scanner.tool, str(error), is_only_problem=reason is None)
            calls = None
        if not calls:
            # Text after a false start is read again. The limits keep the time linear.
            self._false_starts += 1
            self._reread_chars += scanner.parsed_chars
            is_reread_often = self._reread_chars > _MAX_REREAD_CHARS + 4 * len(text)
            self._rest_is_text = is_reread_often or self._false_starts == _MAX_FALSE_STARTS
            return begin + 1
        end = scanner.at
        if not problem and _CONDITION.match(text, end):
            problem = CONDITIONAL
        if form is PROMPT_FORM and not problem:
            scanner.match(_BETWEEN_MARKERS)
            self._next_marker = scanner.at
        if not is_in_place:
            line_end = text.find("\n", end)
            self._quoted_until = len(text) if line_end == -1 else line_end
        self._add_text(begin)
        self._at = end
        for number, call in enumerate(calls[: MAX_CALLS - self._call_count]):
            reason = self._reason_to_reject(call, problem, mark[0])
            raw = "" if number else text[begin:end]
            self._add_call(call if reason is None else RejectedCall(raw, reason, call.name))
        return end

    def _is_in_place(self, begin: int, form: CallForm) -> bool:
        """Whether a call is where a model makes one, and not in a sentence about calls or in a quotation."""
        if form is PROMPT_FORM:
            place = _MARKER_PLACE.search(self._text, max(0, begin - _MAX_PLACE_CHARS), begin)
            return begin == self._next_marker or place is not None
        quoted = _QUOTED.search(self._text, max(0, begin - _LOOKBEHIND_CHARS), begin)
        return begin >= self._quoted_until and quoted is None

    def _reason_to_reject(self, call: ToolCall, problem: str, mark: str) -> str | None:
        if problem:
            return f"the call of {call.name} is not made: {problem}"
        if call.name not in self.tools.specs:
            return unknown_tool(call.name, self.tools.specs)
        return self._rejection(call, mark)

    def _reject_unreadable(self, begin: int, tool: str, problem: str, *, is_only_problem: bool) -> int:
        """Reject an unreadable call with all the text after it, which may be a part of it, such as a call it quotes."""
        text = self._text
        suffix = "; calls after it are not made" if has_call(text, begin + 1, len(text)) else ""
        subject = f"the call of {tool}" if tool else "a call"
        error = f"{subject} cannot be read: {problem}{suffix}"
        self._add_text(begin)
        self._add_call(RejectedCall(text[begin:], error, tool or None, is_only_problem))
        self._at = len(text)
        return self._at

    def _add_call(self, call: ToolCall | RejectedCall) -> None:
        self._pieces.append(call)
        self._call_count += 1
        if self._call_count == MAX_CALLS:
            self._pieces.append(RejectedCall("", f"an answer may have {MAX_CALLS:,} calls; more are not read"))
            self._rest_is_text = True

    def _add_text(self, end: int) -> None:
        """Add the text up to this position."""
        if end > self._at:
            self._pieces.append(Text(self._text[self._at : end]))
            self._at = end


_HEAD = re.compile(r"\A\s*(?:Malformed function call:)?\s*", re.IGNORECASE)


def recover_calls(text: str, tools: Sequence[AnyTool]) -> tuple[ToolCall, ...]:
    """Return the calls that a text consists of, such as `Malformed function call: print(default_api.f(a=1))`.

    Returns none if the text contains anything else, or is ambiguous.
    """
    text = _HEAD.sub("", text).strip()
    code = text if text.startswith("```") else f"```tool_code\n{text}\n```"
    for candidate in (code, f"{PROMPT_MARKER}: {text}", text):
        reader = CallReader(tools)
        pieces = [*reader.feed(candidate), *reader.end()]
        pieces = [piece for piece in pieces if not (isinstance(piece, Text) and not piece.text.strip())]
        calls = tuple(replace(piece, id=local_id()) for piece in pieces if isinstance(piece, ToolCall))
        if calls and len(calls) == len(pieces):
            return calls
    return ()
