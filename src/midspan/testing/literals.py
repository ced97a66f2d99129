"""Plain values as Python source, laid out as ruff lays it out for lines of any usual length."""

from collections.abc import Iterable, Sequence
from typing import Any

LINE = 88
"""What fits into this fits into longer lines too; what does not is spread, and its last comma keeps it spread."""


def literal(value: Any, indent: int = 0, *, before: int = 0) -> str:
    """The source of a value in a line with this indent, with so much before it and a comma after it."""
    flat = _flat(value)
    if indent + before + width(flat) + 1 <= LINE or not isinstance(value, list | tuple | dict) or not value:
        return flat
    opening, closing = _BRACKETS[type(value)]
    return "\n".join([opening, *_items(value, indent + 4), " " * indent + closing])


def _items(value: Sequence[Any] | dict[str, Any], indent: int) -> Iterable[str]:
    margin = " " * indent
    if not isinstance(value, dict):
        return [f"{margin}{literal(item, indent)}," for item in value]
    keys = {name: quoted(name) for name in value}
    return [f"{margin}{key}: {literal(value[name], indent, before=width(key) + 2)}," for name, key in keys.items()]


_BRACKETS = {list: ("[", "]"), tuple: ("(", ")"), dict: ("{", "}")}


def _flat(value: Any) -> str:
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(key)}: {_flat(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_flat, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(_flat, value))}{',' if len(value) == 1 else ''})"
    return repr(value).replace("e+", "e")  # as ruff writes large numbers


def width(source: str) -> int:
    """How many columns a line takes at most: a letter beyond ASCII may be as wide as two."""
    return len(source) + sum(not letter.isascii() for letter in source)


def quoted(text: str) -> str:
    """The text in double quotes, or in single ones where that needs fewer backslashes."""
    body = repr('"' + text)[2:-1]  # with a double quote in it, repr takes single ones and escapes those
    if text.count('"') > text.count("'"):
        return f"'{body}'"
    plain = body.replace("\\'", "'").replace('"', '\\"')
    return f'"{plain}"'
