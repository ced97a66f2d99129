"""Locations in values and in schemas, what is wrong there, and values as messages show them."""

from typing import Any

from msgspec import Struct

Steps = tuple[str | int, ...]
"""The way from a value to a part of it: keys of objects and indexes of arrays."""

MAX_QUOTED_CHARS = 80
_MAX_VALUES = 2_000_000


class Problem(Struct, frozen=True):
    """One thing that is wrong, and where. The location of the whole value has no steps."""

    steps: Steps
    message: str

    @property
    def path(self) -> str:
        return format_path(self.steps)

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.steps else self.message


def format_path(steps: Steps | list[str | int]) -> str:
    """Return the location as people write it: `stops[0].day`."""
    path = ""
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        elif step.isidentifier() or step.replace("-", "_").isidentifier():
            path += f".{step}" if path else step
        else:
            path += f"[{quoted(step)}]"
    return path


def format_pointer(steps: tuple[str, ...]) -> str:
    """Return the location of a schema as a JSON Pointer: `/properties/place/items`."""
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)


def quoted(value: Any) -> str:
    """Return the value as JSON, cut to a length that a message can hold."""
    try:
        import json  # loaded with the first error

        text = json.dumps(value, ensure_ascii=False, default=repr)
    except (ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= MAX_QUOTED_CHARS else text[: MAX_QUOTED_CHARS - 1] + "…"


def measure(value: Any, max_depth: int, max_values: int = _MAX_VALUES) -> tuple[int, int]:
    """Return the number of values in a value, and its depth: `max_depth + 1` if it is deeper or has too many values.

    It goes level by level, so neither a deeply nested value nor one that contains itself can exhaust the stack.
    """
    level, size = [value], 1
    for depth in range(max_depth + 1):
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.values())
            elif isinstance(item, list | tuple):
                inner.extend(item)
            if size + len(inner) > max_values:
                return size + len(inner), max_depth + 1
        if not inner:
            return size, depth
        size += len(inner)
        level = inner
    return size, max_depth + 1
