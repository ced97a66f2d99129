"""Arguments that Vertex streams in pieces.

The first part of a call has its name. Each further part has paths into the arguments, with a value each; a repeated
path appends to its string. A part without `willContinue` ends the call; it may be missing.
"""

import re
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

if TYPE_CHECKING:
    from midspan.providers.gemini import wire

Path = tuple[str | int, ...]

_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d{1,6})\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))")
_MAX_DEPTH = 64
_MAX_GAP = 100
"""Arrays are streamed in order. A path that skips more items than this would only use up memory."""


class OpenCall:
    """A call whose arguments are still arriving, its position among the parts, and the index of its events."""

    def __init__(self, position: int, index: int) -> None:
        self.position = position
        self.index = index
        self._part: dict[str, Any] = {}
        self._call: dict[str, Any] = {}
        self._arguments: dict[str, Any] = {}
        self._values: dict[Path, Any] = {}
        """The values by path, in the order of their first pieces; a string is a list of its pieces."""

    def add(self, call: "wire.FunctionCall", raw: Raw) -> None:
        """Add a part of the call. Its other fields, such as the signature, are kept."""
        fields = msgspec.json.decode(raw)
        self._call |= fields.pop("functionCall", None) or {}
        self._part |= fields
        self._arguments |= call.args or {}
        for piece in call.partial_args or ():
            path, value = _parse_path(str(piece.get("jsonPath", ""))), _value(piece)
            if not path:
                continue
            if not isinstance(value, str):
                self._values[path] = value
            elif isinstance(self._values.get(path), list):
                self._values[path].append(value)
            else:
                self._values[path] = [value]

    def complete(self) -> Raw:
        """Return the part as it would have come unstreamed."""
        for path, value in self._values.items():
            _assign(self._arguments, path, "".join(value) if isinstance(value, list) else value)
        call = {name: value for name, value in self._call.items() if name not in ("partialArgs", "willContinue")}
        return Raw(msgspec.json.encode({**self._part, "functionCall": {**call, "args": self._arguments}}))


def _parse_path(path: str) -> Path:
    """Return the steps of a path such as `$.ops[0].name`; none if it cannot be read."""
    steps: list[str | int] = []
    position = 1
    while step := _STEP.match(path, position):
        name, index, single, double = step.groups()
        steps.append(int(index) if index else name or _ESCAPE.sub(_unescape, single or double or ""))
        position = step.end()
    is_complete = path[:1] == "$" and position == len(path) and len(steps) <= _MAX_DEPTH
    return tuple(steps) if is_complete else ()


def _unescape(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16)) if escape[1] else escape[2]


def _value(piece: dict[str, Any]) -> Any:
    values = (piece.get(name) for name in ("stringValue", "numberValue", "boolValue"))
    return next((value for value in values if value is not None), None)


def _assign(tree: Any, path: Path, value: Any) -> None:
    """Set the value at a path; lists and objects on the way are created."""
    for step, next_step in zip_longest(path, path[1:]):
        if isinstance(tree, dict):
            key: Any = str(step)
            tree.setdefault(key, None)
        elif isinstance(step, int) and step <= len(tree) + _MAX_GAP:
            key = step
            tree.extend([None] * (step + 1 - len(tree)))
        else:
            return
        if next_step is None:
            tree[key] = value
        elif not isinstance(tree[key], dict | list):
            tree[key] = [] if isinstance(next_step, int) else {}
        tree = tree[key]
