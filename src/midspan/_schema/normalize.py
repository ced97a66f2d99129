"""Read a schema as people write it, and return the JSON Schema (2020-12) that it means, which is what we enforce."""

import functools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from midspan._schema.dialects.dialect import DroppedConstraint
from midspan._schema.paths import format_pointer
from midspan._schema.tree import LISTS, MAPS, SINGLE, SchemaTree, check_size, find_pointer, has_type, pointer_steps
from midspan._schema.type_aliases import schema_for_alias
from midspan.errors import SchemaError

if TYPE_CHECKING:
    import jsonschema_rs

Path = tuple[str, ...]
Schema = dict[str, Any]


def normalize(schema: Any) -> Schema:
    """Return the schema in plain JSON Schema, as a new dict.

    Type names of Python and Java, older drafts, OpenAPI's `nullable` and malformed keywords are read for what they
    mean. Only what is not a schema at all is an error, with its location.
    """
    return normalize_tree(schema)[0].root.schema


def normalize_tree(schema: Any) -> tuple[SchemaTree, list[DroppedConstraint]]:
    """Return the normalized schema as a tree, and the keywords that could not be read or lead out of the document."""
    check_size(schema)
    normalizer = _Normalizer(schema)
    root = normalizer.schema(schema, ())
    if isinstance(root, bool):
        root = {} if root else {"not": {}}
    for number, pointer in enumerate(normalizer.external_defs):  # grows while it is read
        name = f"external-{number}"
        definition = normalizer.schema(find_pointer(schema, pointer), ("$defs", name))
        root.setdefault("$defs", {})[name] = definition
    dropped = [*normalizer.dropped, *_drop_malformed(root)]
    tree = SchemaTree(root)
    return tree, [*dropped, *_drop_unresolved(tree)]


class _Normalizer:
    def __init__(self, document: Any) -> None:
        self.dropped: list[DroppedConstraint] = []
        self.external_defs: list[str] = []
        """Pointers to schemas that references lead to and no keyword holds, such as `/components/schemas/A`."""
        self._document = document
        declared = document.get("$schema") if isinstance(document, dict) else None
        draft = re.search(r"draft-0(\d)", declared) if isinstance(declared, str) else None
        self._draft = int(draft[1]) if draft else 20

    def schema(self, schema: Any, path: Path) -> Schema | bool:
        if isinstance(schema, bool):
            return schema
        if isinstance(schema, str):
            schema = {"type": schema}
        if not isinstance(schema, dict):
            raise SchemaError(f"no schema at {_place(path)}: {_shown(schema)} is neither an object nor a boolean")
        if (wrong := next((key for key in schema if not isinstance(key, str)), None)) is not None:
            raise SchemaError(f"no schema at {_place(path)}: its key {wrong!r} is not a string")
        return self._keywords(self._modernize(schema), path)

    def _modernize(self, schema: Schema) -> Schema:
        """Return the schema with the keywords of older drafts in today's spelling."""
        node = {key: value for key, value in schema.items() if key not in ("$schema", "$vocabulary")}
        if self._draft <= 4 and isinstance(node.get("id"), str):
            node.setdefault("$id", node.pop("id"))
        if str(node.get("$id", "")).startswith("#"):
            node["$anchor"] = node.pop("$id")[1:]  # how draft 7 wrote anchors; generators put pointers there
        if self._draft <= 7 and isinstance(node.get("$ref"), str):
            # Up to draft 7 a reference is alone in its schema, whatever is beside it.
            node = {key: value for key, value in node.items() if key in _ANNOTATIONS or key == "$ref"}
        if isinstance(node.get("items"), list):
            node["prefixItems"] = node.pop("items")
            if "additionalItems" in node:
                node["items"] = node.pop("additionalItems")
        node.pop("additionalItems", None)
        for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
            if isinstance(node.get(exclusive), bool) and node.pop(exclusive) and bound in node:
                node[exclusive] = node.pop(bound)
        if isinstance(node.get("required"), bool):
            del node["required"]  # draft 3 has it in the property
        if "dependencies" in node:
            _split_dependencies(node)
        return node

    def _keywords(self, schema: Schema, path: Path) -> Schema:
        node: Schema = {}
        for keyword, value in schema.items():
            if keyword in ("type", "nullable") or (value is None and keyword not in ("default", "const")):
                continue
            if keyword in SINGLE:
                is_text = isinstance(value, str) and value.lower() in ("true", "false")
                node[keyword] = self.schema(value.lower() == "true" if is_text else value, (*path, keyword))
            elif keyword in LISTS and isinstance(value, dict | list | tuple):
                schemas = [value] if isinstance(value, dict) else value
                items = [self.schema(item, (*path, keyword, str(index))) for index, item in enumerate(schemas)]
                node |= {keyword: items} if items else {}
            elif keyword in MAPS:
                node[keyword] = self._map(value or {}, (*path, keyword))  # the [] of a PHP program is empty, too
            elif keyword == "$ref" and isinstance(value, str):
                node[keyword] = self._local_reference(value)
            elif type(value) is float and value.is_integer() and keyword.startswith(("min", "max")):
                node[keyword] = int(value)
            elif keyword not in ("enum", "examples") or value:
                node[keyword] = list(value) if isinstance(value, tuple) else value
        self._type(node, schema.get("type"), path)
        _hoist_required(node, schema.get("properties"))
        _fix_enum(node)
        return _with_null(node) if schema.get("nullable") is True else node

    def _map(self, schemas: Any, path: Path) -> dict[str, Schema | bool]:
        if not isinstance(schemas, dict):
            raise SchemaError(f"no schema at {_place(path)}: {_shown(schemas)} is not an object")
        return {name: self.schema(item, (*path, name)) for name, item in schemas.items()}

    def _local_reference(self, reference: str) -> str:
        """Return the reference, or one to the `$defs` that get a copy of its target."""
        from urllib.parse import unquote  # slow to import

        pointer = unquote(reference.removeprefix("#"))
        if not reference.startswith("#/") or _is_schema_pointer(pointer):
            return reference
        if not isinstance(find_pointer(self._document, pointer), dict | bool):
            return reference
        if pointer not in self.external_defs:
            self.external_defs.append(pointer)
        return f"#/$defs/external-{self.external_defs.index(pointer)}"

    def _type(self, node: Schema, declared: Any, path: Path) -> None:
        if declared is None:
            return
        names = declared if isinstance(declared, list | tuple) else [declared]
        meanings = [self._meaning(name, path) for name in names]
        if not all(meanings) or not meanings:
            return
        if all("type" in meaning for meaning in meanings):
            types = [name for meaning in meanings for name in _as_list(meaning["type"])]
            node["type"] = types[0] if len(set(types)) == 1 else list(dict.fromkeys(types))
            if len(meanings) == 1:
                for keyword, value in meanings[0].items():
                    node.setdefault(keyword, value)
        else:
            node.setdefault("allOf", []).append(meanings[0] if len(meanings) == 1 else {"anyOf": meanings})

    def _meaning(self, name: Any, path: Path) -> Schema:
        if isinstance(name, dict):
            inner = self.schema(name, (*path, "type"))
            return inner if isinstance(inner, dict) else {}
        if name is None:
            return {"type": "null"}
        if type(name) is int and 0 <= name < len(_TYPE_NUMBERS):
            name = _TYPE_NUMBERS[name]
        meaning = schema_for_alias(name) if isinstance(name, str) else None
        if meaning is None:
            raise SchemaError(f"unknown type {_shown(name)} at {_place(path)}")
        return meaning


_TYPE_NUMBERS = ("any", "string", "number", "integer", "boolean", "array", "object", "null")
"""`google.ai.generativelanguage.Type`, by number."""
_ANNOTATIONS = frozenset(("$defs", "definitions", "title", "description", "default", "examples", "nullable"))
"""Keywords that constrain nothing."""


def _is_schema_pointer(pointer: str) -> bool:
    """Return whether a JSON Pointer passes only through keywords that hold schemas."""
    steps = iter(pointer_steps(pointer))
    for keyword in steps:
        if keyword in LISTS or keyword in MAPS:
            if next(steps, None) is None:
                return False
        elif keyword not in SINGLE:
            return False
    return True


def _drop_malformed(root: Schema) -> Iterator[DroppedConstraint]:
    """Delete keywords with a value that the meta-schema rejects, such as `"minLength": "many"`."""
    meta = _meta_validator()
    try:
        paths = [] if meta.is_valid(root) else [error.instance_path for error in meta.iter_errors(root)]
    except ValueError:  # something in it that is not JSON, which compiling the schema reports
        return
    for path in paths:
        node, pointer = root, ""
        steps: Iterator[Any] = iter(path)
        for keyword in steps:
            step = next(steps, None) if keyword in LISTS or keyword in MAPS else None
            inner = node.get(keyword) if step is None else _item(node.get(keyword), step)
            if isinstance(inner, dict) and (step is not None or keyword in SINGLE):
                pointer += format_pointer((keyword,) if step is None else (keyword, str(step)))
                node = inner
            elif keyword in node:
                yield DroppedConstraint(pointer, keyword, f"is {_shown(node.pop(keyword))}, which has no meaning")
                break


@functools.cache
def _meta_validator() -> "jsonschema_rs.Validator":
    import jsonschema_rs  # slow to import

    return jsonschema_rs.validator_for({"$ref": "https://json-schema.org/draft/2020-12/schema"})


def _drop_unresolved(tree: SchemaTree) -> Iterator[DroppedConstraint]:
    """Delete references that lead out of the document, or nowhere: they are never fetched."""
    for node in tree.unresolved:
        yield DroppedConstraint(node.pointer, "$ref", f"{_shown(node.schema.pop('$ref'))} is not in the schema")
    for node in tree.unresolved_dynamic:
        yield DroppedConstraint(node.pointer, "$dynamicRef", f"{_shown(node.schema.pop('$dynamicRef'))} is unknown")


def _item(container: Any, step: str | int) -> Any:
    """Return an item. The validator reports a key "3" as the number 3."""
    if isinstance(container, list):
        return container[int(step)]
    return container.get(step, container.get(str(step))) if isinstance(container, dict) else None


def _split_dependencies(node: Schema) -> None:
    value = node.pop("dependencies")
    dependencies = value if isinstance(value, dict) else {}
    for keyword, of_names in (("dependentRequired", True), ("dependentSchemas", False)):
        split = {name: item for name, item in dependencies.items() if isinstance(item, list) == of_names}
        if split:
            known = node.get(keyword)
            node[keyword] = {**split, **known} if isinstance(known, dict) else split


def _hoist_required(node: Schema, properties: Any) -> None:
    """Move `required: true` of a property, as in draft 3, to the object."""
    if not isinstance(properties, dict):
        return
    required = [name for name, prop in properties.items() if isinstance(prop, dict) and prop.get("required") is True]
    if required:
        declared = node["required"] if isinstance(node.get("required"), list) else []
        node["required"] = list(dict.fromkeys([*declared, *required]))


def _with_null(node: Schema) -> Schema:
    if "const" in node:
        node["enum"] = [node.pop("const")]
    if isinstance(node.get("enum"), list) and None not in node["enum"]:
        node["enum"] = [*node["enum"], None]
    if "type" in node:
        node["type"] = list(dict.fromkeys([*_as_list(node["type"]), "null"]))
        return node
    outside = {key: value for key, value in node.items() if key in _ANNOTATIONS}
    constraints = {key: value for key, value in node.items() if key not in outside}
    return {**outside, "anyOf": [constraints, {"type": "null"}]} if constraints else node


def _fix_enum(node: Schema) -> None:
    """Convert or move enum values that all contradict the declared type: "1" for 1, "true" for true."""
    values, declared = node.get("enum"), node.get("type")
    if not isinstance(values, list) or not isinstance(declared, str):
        return
    if any(has_type(value, [declared]) for value in values):
        return
    if declared == "object":
        del node["enum"]
    elif declared == "array":
        # The values are those of the items, one level too high.
        items = node.setdefault("items", {})
        if isinstance(items, dict):
            items.setdefault("enum", node.pop("enum"))
    elif None in (converted := [_as_type(value, declared) for value in values]):
        del node["type"]
    else:
        node["enum"] = converted


def _as_type(value: Any, name: str) -> Any:
    """Return a value in another type, if it can be read as one; otherwise None."""
    if name == "string":
        return str(value) if type(value) in (int, float) else None
    try:
        converted = msgspec.json.decode(str(value).lower())
    except (msgspec.DecodeError, ValueError):
        return None
    return converted if has_type(converted, [name]) else None


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _place(path: Path) -> str:
    return format_pointer(path) or "the root"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
