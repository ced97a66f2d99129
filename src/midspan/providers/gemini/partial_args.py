"""Arguments that Vertex streams piece by piece, put together again.

A call opens with its name; parts without a name go on with it, each a path into the arguments and a value, the same
path again appending to its string; a part that promises nothing more closes it. The closing part may be missing.
"""

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

if TYPE_CHECKING:
    from midspan.providers.gemini.decode import WireCall

_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d{1,6})\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""")
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_DEEPEST = 64
_WIDEST_GAP = 100
"""Arrays are streamed in order; a path that leaves out more than this is nonsense, and would only eat memory."""

Path = tuple[str | int, ...]


def is_open(call: "WireCall") -> bool:
    """Whether more of a call follows: it says so itself, or the last piece of its arguments does."""
    return bool(call.will_continue or (call.partial_args and call.partial_args[-1].get("willContinue")))


class OpenCall:
    """A call whose arguments are still coming."""

    def __init__(self, call: "WireCall", part: Raw) -> None:
        self._part: dict[str, Any] = {}
        self._call: dict[str, Any] = {}
        self._arguments: dict[str, Any] = {}
        self._texts: dict[Path, list[str]] = {}
        self.add(call, part)

    def add(self, call: "WireCall", part: Raw) -> None:
        """Go on with the call; whatever else stands on the part is kept, wherever in the stream it comes."""
        plain = msgspec.json.decode(part)
        said = plain.pop("functionCall", None)
        self._part |= plain
        self._call |= {
            name: value for name, value in (said or {}).items() if name not in ("args", "partialArgs", "willContinue")
        }
        self._arguments |= call.args or {}
        for piece in call.partial_args or ():
            self._put(piece)

    def complete(self) -> bytes:
        """Return the part as it would have come unstreamed."""
        return msgspec.json.encode({**self._part, "functionCall": {**self._call, "args": self.arguments()}})

    def arguments(self) -> dict[str, Any]:
        for path, texts in self._texts.items():
            _put(self._arguments, path, "".join(texts))
        return self._arguments

    def _put(self, piece: dict[str, Any]) -> None:
        path = _steps(str(piece.get("jsonPath", "")))
        if not path:
            return
        value = _value(piece)
        if isinstance(value, str):
            if path not in self._texts:
                _put(self._arguments, path, "")  # now, so that arguments keep the order in which they come
            self._texts.setdefault(path, []).append(value)  # and joined once, at the end
        else:
            self._texts.pop(path, None)
            _put(self._arguments, path, value)


def _steps(path: str) -> Path:
    """`$.ops[0].name` as its steps; none where the path cannot be read."""
    steps: list[str | int] = []
    position = 1
    while (found := _STEP.match(path, position)) and len(steps) <= _DEEPEST:
        name, index, single, double = found.groups()
        quoted = single if single is not None else double
        steps.append(int(index) if index else name or _ESCAPED.sub(_unescaped, quoted or ""))
        position = found.end()
    return tuple(steps) if position == len(path) and path[:1] == "$" and len(steps) <= _DEEPEST else ()


def _unescaped(found: re.Match[str]) -> str:
    sign = found[1]
    return chr(int(sign[1:], 16)) if len(sign) > 1 else _ESCAPES.get(sign, sign)


def _value(piece: dict[str, Any]) -> Any:
    values = (piece.get(name) for name in ("stringValue", "numberValue", "boolValue"))
    return next((value for value in values if value is not None), None)


def _put(tree: Any, path: Path, value: Any) -> None:
    for step, after in pairwise(path):
        child = _get(tree, step)
        if not isinstance(child, dict | list):
            child = [] if isinstance(after, int) else {}
            _set(tree, step, child)
        tree = child
    _set(tree, path[-1], value)


def _get(tree: Any, step: str | int) -> Any:
    if isinstance(tree, dict):
        return tree.get(str(step))
    return tree[step] if isinstance(step, int) and step < len(tree) else None


def _set(tree: Any, step: str | int, value: Any) -> None:
    if isinstance(tree, dict):
        tree[str(step)] = value
    elif isinstance(step, int) and step <= len(tree) + _WIDEST_GAP:
        tree.extend([None] * (step + 1 - len(tree)))
        tree[step] = value
