"""A schema as people write it → the JSON Schema (2020-12) that they mean, which is the one we enforce."""

import re
from typing import Any

from midspan._schema.dialects.dialect import DroppedConstraint
from midspan._schema.dialects.keywords import PLAIN, fit_enum
from midspan._schema.positions import LISTS, MAPS, SINGLE, check_size, pointer, subschemas
from midspan._schema.references import Document
from midspan._schema.type_aliases import schema_for_alias
from midspan.errors import SchemaError

Way = tuple[str, ...]

_ROUNDS = 20


def normalize(schema: Any) -> dict[str, Any]:
    """The schema in plain JSON Schema, as a new tree: Python's and Java's type words, older drafts, OpenAPI's
    `nullable` and malformed keywords are read for what they mean.

    Only what is no schema at all is refused, with the place.
    """
    return read(schema)[0]


def read(schema: Any) -> tuple[dict[str, Any], list[DroppedConstraint]]:
    """The same, and what could not be read or leads out of the document."""
    check_size(schema)
    reader = _Reader(schema)
    root = reader.schema(schema, ())
    if isinstance(root, bool):
        root = {} if root else {"not": {}}
    for _ in range(_ROUNDS):
        if not _adopt_strays(root, reader):
            break
    _cut_loose_references(root, reader)
    return root, reader.dropped


class _Reader:
    def __init__(self, document: Any) -> None:
        self.dropped: list[DroppedConstraint] = []
        self.made: dict[int, dict[str, Any]] = {}
        """By identity, every schema that was read."""
        declared = document.get("$schema") if isinstance(document, dict) else None
        draft = re.search(r"draft-0(\d)", declared) if isinstance(declared, str) else None
        self._draft = int(draft[1]) if draft else 20

    def schema(self, given: Any, way: Way) -> dict[str, Any] | bool:
        if isinstance(given, bool):
            return given
        if isinstance(given, str):
            given = {"type": given}
        if not isinstance(given, dict):
            raise SchemaError(f"no schema at {_place(way)}: {_shown(given)} is neither an object nor a boolean")
        if (wrong := next((key for key in given if not isinstance(key, str)), None)) is not None:
            raise SchemaError(f"no schema at {_place(way)}: its key {wrong!r} is no string")
        node = self._object(self._modern(given), way)
        self.made[id(node)] = node
        return node

    def _modern(self, given: dict[str, Any]) -> dict[str, Any]:
        """Spellings of older drafts in today's."""
        node = {key: value for key, value in given.items() if key not in ("$schema", "$vocabulary")}
        if self._draft <= 4 and isinstance(node.get("id"), str):
            node.setdefault("$id", node.pop("id"))
        if str(node.get("$id", "")).startswith("#"):
            node["$anchor"] = node.pop("$id")[1:]  # how draft 7 wrote anchors; generators put pointers there
        if self._draft <= 7 and isinstance(node.get("$ref"), str):
            # Up to draft 7 a reference is alone in its schema, whatever stands beside it.
            node = {key: value for key, value in node.items() if key in _BESIDE_OLD_REFERENCES}
        if isinstance(node.get("items"), list):
            node["prefixItems"] = node.pop("items")
            if "additionalItems" in node:
                node["items"] = node.pop("additionalItems")
        node.pop("additionalItems", None)
        for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
            if isinstance(node.get(exclusive), bool) and node.pop(exclusive) and bound in node:
                node[exclusive] = node.pop(bound)
        if "dependencies" in node:
            _split_dependencies(node)
        return node

    def _object(self, given: dict[str, Any], way: Way) -> dict[str, Any]:
        node: dict[str, Any] = {}
        for keyword, value in given.items():
            if keyword in SINGLE:
                self._single(node, keyword, value, way)
            elif keyword in LISTS:
                self._list(node, keyword, value, way)
            elif keyword in MAPS:
                self._map(node, keyword, value, way)
            elif keyword not in ("type", "nullable"):
                self._plain(node, keyword, value, way)
        self._type(node, given.get("type"), way)
        _hoist_required(node, given.get("properties"))
        fit_enum(node)
        return _with_null(node) if given.get("nullable") is True else node

    def _single(self, node: dict[str, Any], keyword: str, value: Any, way: Way) -> None:
        if isinstance(value, str) and value.lower() in ("true", "false"):
            value = value.lower() == "true"
        if value is None:
            self._lose(way, keyword, "is null, read as absent")
        else:
            node[keyword] = self.schema(value, (*way, keyword))

    def _list(self, node: dict[str, Any], keyword: str, value: Any, way: Way) -> None:
        schemas = [value] if isinstance(value, dict) else value
        if not isinstance(schemas, list | tuple):
            self._lose(way, keyword, f"is {_shown(value)}, not a list of schemas")
        elif schemas:
            node[keyword] = [self.schema(one, (*way, keyword, str(at))) for at, one in enumerate(schemas)]

    def _map(self, node: dict[str, Any], keyword: str, value: Any, way: Way) -> None:
        if not value:
            node[keyword] = {}  # null, and the [] of a PHP program that has none
        elif not isinstance(value, dict):
            raise SchemaError(f"no schema at {_place((*way, keyword))}: {_shown(value)} is not an object")
        else:
            node[keyword] = {name: self.schema(inner, (*way, keyword, name)) for name, inner in value.items()}

    def _plain(self, node: dict[str, Any], keyword: str, value: Any, way: Way) -> None:
        read_value = PLAIN.get(keyword)
        if read_value is None:
            node[keyword] = value
            return
        understood = read_value(value)
        if understood is not None:
            node[keyword] = understood
        elif value is not None and not (keyword == "required" and isinstance(value, bool)):
            self._lose(way, keyword, f"is {_shown(value)}, which says nothing")

    def _type(self, node: dict[str, Any], given: Any, way: Way) -> None:
        if given is None:
            return
        words = given if isinstance(given, list | tuple) else [given]
        meanings = [self._meaning(word, way) for word in words]
        if not all(meanings) or not meanings:
            return
        if all("type" in one for one in meanings):
            types = [name for one in meanings for name in _listed(one["type"])]
            node["type"] = types[0] if len(set(types)) == 1 else list(dict.fromkeys(types))
            if len(meanings) == 1:
                for keyword, value in meanings[0].items():
                    node.setdefault(keyword, value)
        else:
            node.setdefault("allOf", []).append(meanings[0] if len(meanings) == 1 else {"anyOf": meanings})

    def _meaning(self, word: Any, way: Way) -> dict[str, Any]:
        if isinstance(word, dict):
            inner = self.schema(word, (*way, "type"))
            return inner if isinstance(inner, dict) else {}
        known = schema_for_alias(word) if isinstance(word, str) else _unworded(word)
        if known is None:
            raise SchemaError(f"unknown type {_shown(word)} at {_place(way)}")
        return known

    def _lose(self, way: Way, keyword: str, what: str) -> None:
        self.dropped.append(DroppedConstraint(pointer(way), keyword, what))


_NUMBERED = ("any", "string", "number", "integer", "boolean", "array", "object", "null")
"""`google.ai.generativelanguage.Type`: a Gemini schema that lost its words still has their numbers."""


def _unworded(given: Any) -> dict[str, Any] | None:
    if given is None:
        return {"type": "null"}
    return schema_for_alias(_NUMBERED[given]) if type(given) is int and 0 <= given < len(_NUMBERED) else None


_BESIDE_OLD_REFERENCES = frozenset(
    {"$ref", "$defs", "definitions", "title", "description", "default", "examples", "nullable"}
)


def _split_dependencies(node: dict[str, Any]) -> None:
    given = node.pop("dependencies")
    dependencies = given if isinstance(given, dict) else {}
    for keyword, of_names in (("dependentRequired", True), ("dependentSchemas", False)):
        split = {name: one for name, one in dependencies.items() if isinstance(one, list) == of_names}
        if split:
            known = node.get(keyword)
            node[keyword] = {**split, **known} if isinstance(known, dict) else split


def _hoist_required(node: dict[str, Any], properties: Any) -> None:
    """`required: true` inside a property, as draft 3 had it, says it of the object."""
    if not isinstance(properties, dict):
        return
    named = [name for name, one in properties.items() if isinstance(one, dict) and one.get("required") is True]
    if named:
        node["required"] = list(dict.fromkeys([*node.get("required", ()), *named]))


def _with_null(node: dict[str, Any]) -> dict[str, Any]:
    if "const" in node:
        node["enum"] = [node.pop("const")]
    if "enum" in node and None not in node["enum"]:
        node["enum"] = [*node["enum"], None]
    if "type" in node:
        node["type"] = list(dict.fromkeys([*_listed(node["type"]), "null"]))
        return node
    outside = {key: value for key, value in node.items() if key in _BESIDE_OLD_REFERENCES - {"$ref"}}
    constraints = {key: value for key, value in node.items() if key not in outside}
    return {**outside, "anyOf": [constraints, {"type": "null"}]} if constraints else node


def _adopt_strays(root: dict[str, Any], reader: _Reader) -> bool:
    """Read what references lead to where no keyword puts a schema (`#/components/…`), and keep it in `$defs`."""
    document = Document(root)
    strays = {
        id(target): target
        for target in document.targets.values()
        if isinstance(target, dict) and id(target) not in reader.made
    }
    if not strays or not document.is_single:
        return False
    places = {}
    for key, target in strays.items():
        way = ("$defs", f"stray-{len(reader.made)}")
        root.setdefault("$defs", {})[way[1]] = reader.schema(target, way)
        places[key] = f"#{pointer(way)}"
    for node in reader.made.values():
        place = places.get(id(document.targets.get(id(node))))
        if place is not None:
            node["$ref"] = place
    return True


def _cut_loose_references(root: dict[str, Any], reader: _Reader) -> None:
    """What leads out of the document, or nowhere, says nothing to us: it is never fetched."""
    known = Document(root)
    waiting: list[tuple[Any, Way]] = [(root, ())]
    while waiting:
        node, way = waiting.pop()
        if not isinstance(node, dict):
            continue
        target = known.targets.get(id(node))
        if "$ref" in node and not isinstance(target, bool) and id(target) not in reader.made:
            reader.dropped.append(
                DroppedConstraint(pointer(way), "$ref", f"{_shown(node.pop('$ref'))} is not in the schema")
            )
        if "$dynamicRef" in node and id(node) not in known.dynamic:
            reader.dropped.append(
                DroppedConstraint(pointer(way), "$dynamicRef", f"{_shown(node.pop('$dynamicRef'))} is unknown")
            )
        waiting.extend((inner, way + step) for _, step, inner in subschemas(node))


def _listed(words: Any) -> list[Any]:
    return words if isinstance(words, list) else [words]


def _place(way: Way) -> str:
    return pointer(way) or "the root"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
