"""How large and how deep a value is."""

from typing import Any

MOST_PARTS = 2_000_000


def measured(value: Any, deepest: int) -> tuple[int, int]:
    """The number of parts and of levels; it stops counting beyond `deepest` levels, or at two million parts.

    Level by level: neither a value nested without end nor one that holds itself can exhaust the stack.
    """
    level, size = [value], 1
    for depth in range(deepest + 1):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner.extend(one.values())
            elif isinstance(one, list | tuple):
                inner.extend(one)
            if len(inner) > MOST_PARTS:
                return size + len(inner), deepest + 1
        if not inner:
            return size, depth
        size += len(inner)
        level = inner
    return size, deepest + 1
