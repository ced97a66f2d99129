"""The `$defs` of one schema: named types, kept apart only where they are used more than once."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from midspan._schema.tree import LISTS, MAPS, SINGLE

Schema = dict[str, Any]


class Definitions:
    """Named types while a schema is built. Every use is a `$ref` until `resolve` inlines most of them."""

    def __init__(self) -> None:
        self._schemas: dict[str, Schema] = {}

    def reserve(self, name: str) -> str:
        """Return a name that is not taken. The definition follows later, because it may refer to itself."""
        unique, number = name, 2
        while unique in self._schemas:
            unique, number = f"{name}{number}", number + 1
        self._schemas[unique] = {}
        return unique

    def define(self, name: str, schema: Schema) -> None:
        self._schemas[name] = schema

    def target(self, schema: Schema) -> Schema:
        """Return what a schema refers to, or the schema itself."""
        name = referenced_name(schema)
        return schema if name is None else self._schemas[name]

    def adopt(self, schema: Schema) -> Schema:
        """Return a schema from elsewhere after adding its `$defs`, under names that are free here."""
        definitions = schema.get("$defs", {})
        names = {name: self.reserve(name) for name in definitions}

        def rename(node: Schema) -> Schema:
            name = referenced_name(node)
            node = map_subschemas(node, rename)
            return node if name is None else {**node, **reference(names[name])}

        for name, definition in definitions.items():
            self.define(names[name], rename(definition))
        return rename({key: value for key, value in schema.items() if key != "$defs"})

    def resolve(self, schema: Schema) -> Schema:
        """Return the schema with `$defs` for what is recursive or used more than once, and everything else inlined."""
        uses = self._count_uses(schema)
        kept = {name for name, count in uses.items() if count > 1 or name in self._count_uses(self._schemas[name])}

        def inline(node: Schema) -> Schema:
            name = referenced_name(node)
            if name is None or name in kept:
                return map_subschemas(node, inline)
            siblings = {key: value for key, value in node.items() if key != "$ref"}
            return {**inline(self._schemas[name]), **siblings}

        result = inline(schema)
        if kept:
            result["$defs"] = {name: inline(self._schemas[name]) for name in self._schemas if name in kept}
        return result

    def _count_uses(self, schema: Schema) -> Counter[str]:
        uses: Counter[str] = Counter()

        def visit(node: Schema) -> Schema:
            name = referenced_name(node)
            if name is not None:
                uses[name] += 1
                if uses[name] == 1:
                    visit(self._schemas[name])
            return map_subschemas(node, visit)

        visit(schema)
        return uses


def reference(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def referenced_name(schema: Schema) -> str | None:
    target = schema.get("$ref")
    return target.removeprefix("#/$defs/") if isinstance(target, str) else None


def without_titles(schema: Schema) -> Schema:
    """Return the schema without `title`: it repeats the names, and makes Gemini worse at filling in arguments."""
    # https://github.com/googleapis/python-genai/issues/1732
    return map_subschemas({key: value for key, value in schema.items() if key != "title"}, without_titles)


def map_subschemas(schema: Schema, change: Callable[[Schema], Schema]) -> Schema:
    """Return a copy with every direct subschema changed. Data that looks like a schema, as in `default`, stays."""

    def changed(key: str, value: Any) -> Any:
        if key in MAPS and isinstance(value, dict):
            return {name: change(item) if isinstance(item, dict) else item for name, item in value.items()}
        if isinstance(value, list) and (key in LISTS or key in SINGLE):
            return [change(item) if isinstance(item, dict) else item for item in value]
        return change(value) if key in SINGLE and isinstance(value, dict) else value

    return {key: changed(key, value) for key, value in schema.items()}
