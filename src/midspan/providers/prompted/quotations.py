"""The calls that stand in prompts and results: a model that repeats one of them may only quote it.

It finds more of them than a reader would, wherever they stand in a line, because a model that quotes moves things. Its
time grows with the text and no faster; where there is too much to look at, everything counts as quoted.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from midspan._schema.lenient_json import IncompleteJson
from midspan._types.messages import Message
from midspan._types.parts import Text, ToolResult
from midspan.providers.prompted.arguments import in_braces, in_parentheses
from midspan.providers.prompted.cursor import Cursor
from midspan.providers.prompted.findings import Broken, Declared, Found, Written
from midspan.providers.prompted.objects import calls_at, calls_in
from midspan.providers.prompted.triggers import triggers

_MOST_PLACES = 20_000
_MOST_BROKEN = 500
_MOST_READ = 2
"""So often a text may be read over again, all places together; a short one oftener."""
_ALWAYS_READ = 3_000_000
_LEAST_READ = 16
_OBJECT = re.compile(r"[\[{]\s{0,16}(?:[{\[\"'“”]|\w{1,20}\s{0,4}:)")


class Quotations:
    """What a conversation quotes, looked at when the first call is asked for."""

    def __init__(self, messages: Iterable[Message], tools: Declared, marker: str, mark: str | None = None) -> None:
        self._messages = tuple(messages)
        self._tools = tools
        self._triggers = triggers(marker, mark, mark is None)
        self._mark = mark
        self._named = re.compile("|".join(rf"{re.escape(name)}\s{{0,16}}[({{]" for name in tools.names) or r"(?!)")
        self._found: set[tuple[str, bytes]] | None = None
        self._is_everything = False
        self._places = self._broken = self._in_vain = 0

    def hold(self, call: Written) -> bool:
        """Whether this call, with just these arguments, is quoted."""
        if self._found is None:
            self._found = set()
            for message in self._messages:
                self._look(message)
        return self._is_everything or _key(call) in self._found

    def _look(self, message: Message) -> None:
        if message.role == "model":
            return
        self._look_at("".join(part.text for part in message.parts if type(part) is Text))
        open_values = [part.value for part in message.parts if type(part) is ToolResult]
        while open_values and not self._is_everything:
            value = open_values.pop()
            if isinstance(value, str):
                self._look_at(value)
            elif isinstance(value, dict):
                self._take(self._in_value, value)
                open_values += [*value, *value.values()]
            elif isinstance(value, (list, tuple)):
                open_values += value

    def _look_at(self, text: str) -> None:
        if self._mark is not None:
            if self._mark in text:
                self._scan("\n" + text, [(self._triggers.place, self._at_place)])
        elif "\\" in text or any(name in text for name in self._tools.names):
            scans: list[tuple[re.Pattern[str], _Look]] = [
                (self._triggers.place, self._at_place),
                (_OBJECT, self._at_object),
                (self._named, self._at_name),
            ]
            self._scan("\n" + text, scans)

    def _scan(self, text: str, scans: "list[tuple[re.Pattern[str], _Look]]") -> None:
        budget = _MOST_READ * len(text) + _ALWAYS_READ
        for pattern, look in scans:
            at = 0
            while (place := pattern.search(text, at)) is not None:
                self._places += 1
                end = self._take(look, place)
                budget -= max(_LEAST_READ, (len(text) if end is None else end) - place.start()) + self._in_vain
                self._in_vain = 0
                if budget < 0 or self._places > _MOST_PLACES or self._broken > _MOST_BROKEN:
                    self._is_everything = True
                    return
                at = place.start() + 1

    def _take(self, look: Callable[[Any], Found | None], where: Any) -> int | None:
        """Add what is found; how far one had to look for it, None if to the end."""
        assert self._found is not None, "the search has begun"
        try:
            found = look(where)
        except Broken as error:
            self._broken += 1
            return error.at
        except IncompleteJson:
            self._broken += 1
            return None
        if found is None:
            return 0
        self._found.update(_key(call) for call in found.calls if call.name in self._tools.specs)
        return found.end

    def _in_value(self, value: dict[str, Any]) -> Found:
        return Found(0, calls_in(value, self._tools, 0, strict=False) or ())

    def _at_place(self, place: re.Match[str]) -> Found | None:
        if self._triggers.is_result(place):
            return None
        at = place.end() if self._triggers.is_marker(place) else place.start()
        for read in self._triggers.readers(place):
            cursor = Cursor(place.string, at, over=True)
            found = read(cursor, self._tools)
            if found is not None:
                return found
            self._in_vain += cursor.in_vain
        return None

    def _at_object(self, place: re.Match[str]) -> Found | None:
        cursor = Cursor(place.string, place.start(), over=True)
        found = calls_at(cursor, self._tools, strict=False)
        self._in_vain += cursor.in_vain
        return found

    def _at_name(self, place: re.Match[str]) -> Found | None:
        name, at = place[0][:-1].rstrip(), place.end() - 1
        arguments, end = (
            in_braces(place.string, at, name) if place[0][-1] == "{" else in_parentheses(place.string, at, name)
        )
        return Found(end, (Written(name, arguments),))


_Look = Callable[[re.Match[str]], Found | None]


def _key(call: Written) -> tuple[str, bytes]:
    return call.name, msgspec.json.encode(call.arguments, order="sorted")
