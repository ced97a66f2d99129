"""The `$defs` of one schema: types with names, kept apart only where they recur."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from midspan._schema.tree import LISTS, MAPS, SINGLE

Schema = dict[str, Any]


class Definitions:
    """Named types while a schema is being made. Every use is a `$ref` until `resolved` puts most of them in place."""

    def __init__(self) -> None:
        self._schemas: dict[str, Schema] = {}

    def reserve(self, name: str) -> str:
        """A name that is not taken; the definition follows, since it may speak of itself."""
        free, number = name, 2
        while free in self._schemas:
            free, number = f"{name}{number}", number + 1
        self._schemas[free] = {}
        return free

    def define(self, name: str, schema: Schema) -> None:
        self._schemas[name] = schema

    def target(self, schema: Schema) -> Schema:
        """What a schema refers to, or the schema itself."""
        name = referred(schema)
        return schema if name is None else self._schemas[name]

    def adopt(self, schema: Schema) -> Schema:
        """A schema that somebody else made, with its own `$defs` taken over."""
        theirs = schema.get("$defs", {})
        names = {name: self.reserve(name) for name in theirs}

        def renamed(node: Schema) -> Schema:
            name = referred(node)
            node = mapped(node, renamed)
            return node if name is None else {**node, **reference(names[name])}

        for name, definition in theirs.items():
            self.define(names[name], renamed(definition))
        return renamed({key: value for key, value in schema.items() if key != "$defs"})

    def resolved(self, schema: Schema) -> Schema:
        """The schema with `$defs` for what is recursive or used more than once, everything else in its place."""
        uses = self._uses(schema)
        kept = {name for name, count in uses.items() if count > 1 or self._is_recursive(name)}

        def inlined(node: Schema) -> Schema:
            name = referred(node)
            if name is None or name in kept:
                return mapped(node, inlined)
            around = {key: value for key, value in node.items() if key != "$ref"}
            return {**inlined(self._schemas[name]), **around}

        result = inlined(schema)
        if kept:
            result["$defs"] = {name: inlined(self._schemas[name]) for name in self._schemas if name in kept}
        return result

    def _uses(self, schema: Schema) -> Counter[str]:
        uses: Counter[str] = Counter()
        waiting = [schema]
        while waiting:
            for name in _references(waiting.pop()):
                uses[name] += 1
                if uses[name] == 1:
                    waiting.append(self._schemas[name])
        return uses

    def _is_recursive(self, name: str) -> bool:
        return name in self._uses(self._schemas[name])


def reference(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def referred(schema: Schema) -> str | None:
    """The name that a schema refers to, if it does."""
    target = schema.get("$ref")
    return target.removeprefix("#/$defs/") if isinstance(target, str) else None


def without_titles(schema: Schema) -> Schema:
    """The schema without `title`: they repeat the names, and they make Gemini worse at filling in arguments."""
    # https://github.com/googleapis/python-genai/issues/1732
    return mapped({key: value for key, value in schema.items() if key != "title"}, without_titles)


def mapped(schema: Schema, change: Callable[[Schema], Schema]) -> Schema:
    """A copy with every direct subschema changed. What only looks like one, in `default` or `enum`, stays."""
    return {key: _changed(key, value, change) for key, value in schema.items()}


def _changed(key: str, value: Any, change: Callable[[Schema], Schema]) -> Any:
    if key in MAPS and isinstance(value, dict):
        return {name: change(item) if isinstance(item, dict) else item for name, item in value.items()}
    if isinstance(value, list) and (key in LISTS or key in SINGLE):
        return [change(item) if isinstance(item, dict) else item for item in value]
    return change(value) if key in SINGLE and isinstance(value, dict) else value


def _references(schema: Schema) -> list[str]:
    found = [name] if (name := referred(schema)) else []

    def collect(node: Schema) -> Schema:
        found.extend(_references(node))
        return node

    mapped(schema, collect)
    return found
