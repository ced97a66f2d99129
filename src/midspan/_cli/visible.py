"""Texts of models and tools, made harmless and short enough for a terminal."""

import json
from typing import Any, TextIO

# A terminal obeys these, and what it is told comes from a model or from the web; so they are shown, not sent.
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_DIRECTION = {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
_ON_A_LINE = _CONTROL | _DIRECTION | {ord("\n"): " ", ord("\t"): " ", ord("\r"): ""}
_ON_LINES = _CONTROL | _DIRECTION | {ord("\n"): "\n", ord("\t"): "\t", ord("\r"): ""}

_LONGEST = 2_000


def visible(text: str) -> str:
    """A text on one line."""
    return text.translate(_ON_A_LINE)


def visible_lines(text: str) -> str:
    """A text on as many lines as it has."""
    return text.translate(_ON_LINES)


def fitted(text: str, out: TextIO, indent: str = "  ") -> str:
    """One line; on a terminal as many as it takes, broken between words."""
    line = visible(text)
    if out.isatty():
        import shutil
        import textwrap

        line = textwrap.fill(line, max(20, shutil.get_terminal_size().columns - 1), subsequent_indent=indent)
    return f"{line}\n"


def shown_arguments(arguments: dict[str, Any], longest: int = _LONGEST) -> str:
    """The arguments of a call as Python would have them: `city="Oslo", days=2`."""
    return clipped(", ".join(f"{name}={_json(value)}" for name, value in arguments.items()), longest)


def shown_value(value: Any, longest: int = _LONGEST) -> str:
    """A result on one line; a text as it is, everything else as JSON."""
    return clipped(value if isinstance(value, str) else _json(value), longest)


def clipped(text: str, longest: int) -> str:
    # Cut before it is made visible, so that a result of a megabyte costs no more than what is shown of it.
    return visible(text if len(text) <= longest else f"{text[: longest - 1]}…")


def shown_seconds(seconds: float) -> str:
    if seconds < 0.0995:
        return f"{seconds * 1000:.1f} ms"
    return f"{seconds:.1f} s"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=repr)
