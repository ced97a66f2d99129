"""An expression → its numbers, names and signs, each with its place."""

import re
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from midspan.errors import ToolError

Kind = Literal["number", "name", "sign", "end"]


class Token(Struct, frozen=True):
    kind: Kind
    text: str
    position: int
    """Counted from 1, as people count."""


_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number> (?:[0-9][0-9_]*(?:\.[0-9_]*)? | \.[0-9][0-9_]*) (?:[eE][+-]?[0-9]+)? )
    | (?P<name> [A-Za-z_][A-Za-z0-9_]* | π )
    | (?P<sign> \*\* | // | [-+*/%^!(),] | [\u00d7\u00b7\u00f7\u2212] )
    | (?P<end> \Z )
    )""",
    re.VERBOSE,
)
_PLAIN = {
    "^": "**",
    "\N{MULTIPLICATION SIGN}": "*",
    "\N{MIDDLE DOT}": "*",
    "\N{DIVISION SIGN}": "/",
    "\N{MINUS SIGN}": "-",
    "π": "pi",
}


def tokens(expression: str) -> Iterator[Token]:
    """What the expression is made of; the last one is its end."""
    place = 0
    while True:
        match = _TOKEN.match(expression, place)
        if match is None:
            raise _strange(expression, place)
        kind: Kind = match.lastgroup  # type: ignore[assignment]  # the groups are called after the kinds
        text = match[kind]
        yield Token(kind, _PLAIN.get(text, text), match.start(kind) + 1)
        if kind == "end":
            return
        place = match.end()


def _strange(expression: str, place: int) -> ToolError:
    while expression[place].isspace():
        place += 1
    character = expression[place]
    hint = "; write digits as 0-9" if character.isdigit() else ""
    return ToolError(f"{character!r} means nothing in an expression{hint}, at position {place + 1}")
