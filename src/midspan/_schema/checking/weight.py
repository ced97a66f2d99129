"""How large a value is, and how much work a schema can make of it, measured before anybody does it."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from midspan._schema.positions import IN_PLACE, subschemas
from midspan._schema.references import Document
from midspan.errors import SchemaError

MOST_PARTS = 2_000_000
MOST_CHECKS = 50_000
LONGEST_CHAIN = 500
DEEPEST_VALUE = 100
_STACK = 1_000
"""How deep the validator may recurse; it has no guard of its own and 512 KiB of stack on some systems."""
_CEILING = 10**12


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


class Weight(Struct, frozen=True):
    """What references, unions and `allOf` unfold to."""

    checks: int
    """At most so many schemas look at one and the same value."""
    ways: int
    """Through so many branches they come to it."""
    chain: int
    """So many of them stand in a row."""
    total: int
    """The size of the schema with every reference written out once."""
    recursive: bool
    compares: bool
    """Whether whole values are compared with each other."""

    @property
    def deepest_value(self) -> int:
        return max(8, min(DEEPEST_VALUE, _STACK // self.chain))

    def cost(self, size: int, depth: int) -> int:
        """About how many schemas meet how many parts of a value of this size and depth."""
        unfolded: int = self.ways ** min(depth, 40)
        return size * (unfolded if self.recursive else min(unfolded, self.total))


def weigh(document: Document) -> Weight:
    """The weight of a schema; one that would take for ever is refused here."""
    weight = _Weighing(document).weight()
    if weight.checks > MOST_CHECKS:
        raise SchemaError(f"its references unfold into more than {MOST_CHECKS:,} checks of one value")
    if weight.chain > LONGEST_CHAIN:
        raise SchemaError(f"it has a chain of more than {LONGEST_CHAIN} references")
    return weight


class _Weighing:
    """Depth first without recursion, because a chain of references may be longer than Python's stack."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._done: dict[int, tuple[int, int, int, int]] = {}
        self._open: set[int] = set()
        self._recursive = False
        self._compares = False

    def weight(self) -> Weight:
        root = self._document.root
        self._visit(root)
        figures = self._done.values()
        checks, ways, chain = (max(figure[at] for figure in figures) for at in range(3))
        return Weight(checks, ways, chain, self._done[id(root)][3], self._recursive, self._compares)

    def _visit(self, root: dict[str, Any]) -> None:
        waiting = [(root, False)]
        while waiting:
            node, left = waiting.pop()
            if left:
                self._open.discard(id(node))
                self._done[id(node)] = self._figures(node)
            elif id(node) in self._open:
                continue
            elif id(node) not in self._done:
                self._open.add(id(node))
                waiting.append((node, True))
                for inner, _ in self._children(node):
                    if id(inner) in self._open:
                        self._recursive = True
                    elif id(inner) not in self._done:
                        waiting.append((inner, False))

    def _children(self, node: dict[str, Any]) -> Iterator[tuple[dict[str, Any], bool]]:
        target = self._document.targets.get(id(node))
        if isinstance(target, dict):
            yield target, True
        for keyword, _, inner in subschemas(node):
            if isinstance(inner, dict) and keyword not in ("$defs", "definitions"):
                yield inner, keyword in IN_PLACE

    def _figures(self, node: dict[str, Any]) -> tuple[int, int, int, int]:
        self._recursive = self._recursive or "$dynamicRef" in node or "$recursiveRef" in node
        self._compares = self._compares or "uniqueItems" in node
        checks, ways, chain, total = 1, 0, 0, 1
        for inner, in_place in self._children(node):
            inner_checks, inner_ways, inner_chain, inner_total = self._done.get(id(inner), (1, 1, 1, 1))
            total += inner_total
            if in_place:
                checks, ways, chain = checks + inner_checks, ways + inner_ways, max(chain, inner_chain)
        return min(checks, _CEILING), min(max(ways, 1), _CEILING), chain + 1, min(total, _CEILING)
