"""Where every `$ref` of a document leads; nothing is ever fetched."""

from typing import Any

from midspan._schema.positions import pointer, subschemas


class Document:
    """A schema with its references looked up, once, in time linear in its size.

    It knows nodes by identity, so it must be given a tree that nobody changes and that shares no node;
    `normal` makes such trees.
    """

    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root
        self.pointers: dict[int, str] = {}
        """By `id(node)`, where the node is."""
        self.targets: dict[int, Any] = {}
        """By `id(node)`, what the `$ref` of the node leads to; absent if it leads out of the document."""
        self.dynamic: set[int] = set()
        """The `id(node)` of those whose `$dynamicRef` leads to a place in the document, or may."""
        self._resources: dict[str, Any] = {"": root}
        self._anchors: dict[tuple[str, str], Any] = {}
        self._referring: list[tuple[dict[str, Any], str]] = []
        self._dynamic: list[tuple[dict[str, Any], str]] = []
        self._enter(root, (), "")
        while self._referring:
            self._resolve(*self._referring.pop())
        for node, base in self._dynamic:
            if isinstance(self._found(base, node["$dynamicRef"])[0], dict | bool):
                self.dynamic.add(id(node))

    @property
    def is_single(self) -> bool:
        """Whether all of it has one base, so that `#/…` means the same everywhere."""
        return len({id(resource) for resource in self._resources.values()}) == 1

    def _enter(self, node: Any, way: tuple[str, ...], base: str) -> None:
        waiting = [(node, way, base)]
        while waiting:
            node, way, base = waiting.pop()
            if not isinstance(node, dict) or id(node) in self.pointers:
                continue
            self.pointers[id(node)] = pointer(way)
            base = self._named(node, base)
            if isinstance(node.get("$ref"), str):
                self._referring.append((node, base))
            if isinstance(node.get("$dynamicRef"), str):
                self._dynamic.append((node, base))
            waiting.extend((inner, way + step, base) for _, step, inner in subschemas(node))

    def _named(self, node: dict[str, Any], base: str) -> str:
        identifier = node.get("$id")
        if isinstance(identifier, str):
            located, _, anchor = _joined(base, identifier).partition("#")
            if anchor:
                self._anchors[located, anchor] = node
            else:
                base = located
                self._resources.setdefault(base, node)
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(node.get(keyword), str):
                self._anchors[base, node[keyword]] = node
        return base

    def _resolve(self, node: dict[str, Any], base: str) -> None:
        target, resource, fragment = self._found(base, node["$ref"])
        if not isinstance(target, dict | bool):
            return
        self.targets[id(node)] = target
        if id(target) not in self.pointers and isinstance(target, dict):
            # It is where no keyword puts a schema, `#/components/…`: entered now, with this node's base.
            self._enter(target, tuple(_steps(fragment)), resource)

    def _found(self, base: str, reference: str) -> tuple[Any, str, str]:
        resource, _, fragment = _joined(base, reference).partition("#")
        from urllib.parse import unquote  # slow to import

        fragment = unquote(fragment)
        if fragment and not fragment.startswith("/"):
            return self._anchors.get((resource, fragment)), resource, fragment
        return _at(self._resources.get(resource), fragment), resource, fragment


def _joined(base: str, reference: str) -> str:
    if reference.startswith("#"):
        return base + reference
    try:
        from urllib.parse import urljoin  # slow to import

        return urljoin(base, reference)
    except ValueError:
        return reference


def _steps(fragment: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in fragment.split("/")[1:]]


def _at(node: Any, fragment: str) -> Any:
    for step in _steps(fragment):
        if isinstance(node, dict):
            node = node.get(step)
        elif isinstance(node, list) and step.isascii() and step.isdigit() and int(step[:9]) < len(node):
            node = node[int(step[:9])]
        else:
            return None
    return node
