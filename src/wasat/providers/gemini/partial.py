"""Arguments that Vertex streams piece by piece, put together again.

A call opens with its name; parts without a name go on with it, each a path into the arguments and a value, the same
path again appending to its string; a part that promises nothing more closes it. The closing part may be missing.
"""

import re
from itertools import pairwise
from typing import Any

import msgspec

from wasat.providers.gemini.lean import Call

_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""")
_ESCAPED = re.compile(r"\\(.)")
_LONGEST_LIST = 10_000


class OpenCall:
    """A call whose arguments are still coming."""

    def __init__(self, call: Call, part: msgspec.Raw) -> None:
        self._part = part
        self._arguments: dict[str, Any] = dict(call.args or {})
        self.name = call.name or ""
        self.id = call.id
        self.add(call)

    def add(self, call: Call) -> None:
        self._arguments.update(call.args or {})
        for piece in call.partial_args or ():
            path = _steps(str(piece.get("jsonPath", "$")))
            if path:
                _put(self._arguments, path, _value(piece))

    @property
    def arguments(self) -> dict[str, Any]:
        return self._arguments

    def whole(self) -> bytes:
        """The part as it would have come unstreamed, with whatever else stood on the part that opened the call."""
        part = msgspec.json.decode(self._part)
        call = {**part["functionCall"], "args": self._arguments}
        call.pop("willContinue", None)
        call.pop("partialArgs", None)
        return msgspec.json.encode({**part, "functionCall": call})


def _steps(path: str) -> list[str | int]:
    """`$.ops[0].name` as its steps; none where the path cannot be read."""
    steps: list[str | int] = []
    position = 1
    while found := _STEP.match(path, position):
        name, index, single, double = found.groups()
        quoted = single if single is not None else double
        steps.append(int(index) if index else name or _ESCAPED.sub(r"\1", quoted or ""))
        position = found.end()
    return steps if position == len(path) and path[:1] == "$" else []


def _value(piece: dict[str, Any]) -> Any:
    for name in ("stringValue", "numberValue", "boolValue"):
        if name in piece:
            return piece[name]
    return None


def _put(tree: Any, path: list[str | int], value: Any) -> None:
    for step, after in pairwise(path):
        child = _get(tree, step)
        if not isinstance(child, dict | list):
            child = [] if isinstance(after, int) else {}
            _set(tree, step, child)
        tree = child
    before = _get(tree, path[-1])
    _set(tree, path[-1], before + value if isinstance(before, str) and isinstance(value, str) else value)


def _get(tree: Any, step: str | int) -> Any:
    if isinstance(tree, dict):
        return tree.get(str(step))
    return tree[step] if isinstance(step, int) and step < len(tree) else None


def _set(tree: Any, step: str | int, value: Any) -> None:
    if isinstance(tree, dict):
        tree[str(step)] = value
    elif isinstance(step, int) and step < _LONGEST_LIST:
        tree.extend([None] * (step + 1 - len(tree)))
        tree[step] = value
