"""The form of a value of one type in a dialect."""

from collections.abc import Callable
from math import floor
from typing import Any

from midspan._schema.dialects.dialect import SchemaDialect
from midspan._schema.dialects.merge import Flat, Flattener, shortened
from midspan._schema.dialects.unions import anything

Way = tuple[str, ...]
Schema = dict[str, Any]

_NODES_OF_ANYTHING = 20
_BOUNDS = {
    "string": {"minLength": "at least {} characters", "maxLength": "at most {} characters", "pattern": "matches {}"},
    "number": {"minimum": "at least {}", "maximum": "at most {}"},
    "array": {"minItems": "at least {} items", "maxItems": "at most {} items"},
    "object": {"minProperties": "at least {} properties", "maxProperties": "at most {} properties"},
}
_BOUNDS["integer"] = _BOUNDS["number"]


class Typed:
    """Makes schemas of one type; `node` lowers the schemas inside them."""

    def __init__(
        self,
        dialect: SchemaDialect,
        flattener: Flattener,
        names: dict[str, str],
        node: Callable[[Any, Way, tuple[int, ...], int], Schema],
    ) -> None:
        self._dialect = dialect
        self._flattener = flattener
        self._names = names
        self._node = node

    def anything(self, way: Way) -> Schema:
        """The schema of any value, counted as the union that it may be."""
        self._flattener.spend(1 if self._dialect.untyped else _NODES_OF_ANYTHING)
        if not self._dialect.untyped:
            self._flattener.lose(way, "items", "anything, but no more than three lists in one another")
        return anything(self._dialect)

    def schema(self, flat: Flat, word: str, way: Way, level: int) -> Schema:
        """The constraints that concern values of this type."""
        schema: Schema = {"type": self._dialect.types[word]}
        if word == "object":
            self._object(schema, flat, way, level)
        elif word == "array":
            self._array(schema, flat, way, level)
        bounds = self._closed(flat, word, way) if word in ("integer", "number") else flat.bounds
        for keyword, wording in _BOUNDS.get(word, {}).items():
            if keyword in bounds:
                self._bound(schema, flat, way, keyword, bounds[keyword], wording)
        self._format(schema, flat, word, way)
        return schema

    def lose_bounds(self, flat: Flat, word: str, way: Way) -> None:
        """Bounds that are not said beside a list of values."""
        about = (*_BOUNDS.get(word, ()), "exclusiveMinimum", "exclusiveMaximum", "format")
        for keyword in about:
            if keyword in flat.bounds:
                self._flattener.lose(way, keyword, "not said beside the list of values")

    def _object(self, schema: Schema, flat: Flat, way: Way, level: int) -> None:
        properties = {}
        for name, inner in flat.properties.items():
            if self._flattener.exhausted and name not in flat.required:
                self._flattener.lose(way, "properties", "the schema is too large: some are not shown")
                flat.others = True
            elif inner is not False:
                inner_way = (*way, "properties", name)
                properties[self._names[name]] = self._node(inner, inner_way, flat.trail, level + 1)
        for name in flat.required:
            if name not in flat.properties:
                properties[self._names[name]] = self._node(
                    flat.others, (*way, "properties", name), flat.trail, level + 1
                )
        required = [self._names[name] for name in flat.required if self._names[name] in properties]
        if properties:
            schema["properties"] = properties
        if required:
            schema["required"] = required
        self._others(schema, flat, way, level)

    def _others(self, schema: Schema, flat: Flat, way: Way, level: int) -> None:
        if flat.others is True:
            return
        if "additionalProperties" in self._dialect.keywords:
            inner = flat.others
            inner_way = (*way, "additionalProperties")
            schema["additionalProperties"] = inner and self._node(inner, inner_way, flat.trail, level + 1)
            return
        self._flattener.lose(way, "additionalProperties", "other properties may be anything")
        if flat.others:
            flat.notes.append("other properties fit " + shortened(flat.others))

    def _array(self, schema: Schema, flat: Flat, way: Way, level: int) -> None:
        closed = flat.items is False or flat.bounds.get("maxItems", len(flat.prefix) + 1) <= len(flat.prefix)
        if closed and flat.bounds.get("maxItems", len(flat.prefix)) >= len(flat.prefix):
            flat.bounds = {**flat.bounds, "maxItems": len(flat.prefix)}
        rest: Any = True if flat.items is False else flat.items
        if flat.prefix and "prefixItems" in self._dialect.keywords:
            schema["prefixItems"] = [
                self._node(one, (*way, "prefixItems", str(at)), flat.trail, level + 1)
                for at, one in enumerate(flat.prefix)
            ]
        elif flat.prefix:
            self._flattener.lose(way, "prefixItems", "which item is of which type")
            rest = {"anyOf": flat.prefix if closed else [*flat.prefix, rest]}
        if rest is True:
            schema["items"] = self.anything((*way, "items"))
        else:
            schema["items"] = self._node(rest, (*way, "items"), flat.trail, level + 1)

    def _bound(self, schema: Schema, flat: Flat, way: Way, keyword: str, value: Any, wording: str) -> None:
        if keyword in self._dialect.keywords:
            schema[keyword] = value
        else:
            self._in_words(flat, way, keyword, wording.format(value))

    def _format(self, schema: Schema, flat: Flat, word: str, way: Way) -> None:
        name = flat.bounds.get("format")
        if name is None or word not in ("string", "integer", "number"):
            return
        known = self._dialect.formats
        if known is None or name in known.get(word, ()):
            schema["format"] = name
        else:
            self._in_words(flat, way, "format", f"format {name}")

    def _in_words(self, flat: Flat, way: Way, keyword: str, words: str) -> None:
        words = words if len(words) <= 200 else words[:199] + "…"
        self._flattener.lose(way, keyword, "only said in the description")
        if words not in flat.notes:
            flat.notes.append(words)

    def _closed(self, flat: Flat, word: str, way: Way) -> dict[str, Any]:
        """Bounds of numbers without exclusive ones: exact for integers, a little wider for others."""
        bounds = flat.bounds.copy()
        over, under = bounds.pop("exclusiveMinimum", None), bounds.pop("exclusiveMaximum", None)
        if over is not None:
            least = floor(over) + 1 if word == "integer" else over
            bounds["minimum"] = max(bounds.get("minimum", least), least)
        if under is not None:
            most = -floor(-under) - 1 if word == "integer" else under
            bounds["maximum"] = min(bounds.get("maximum", most), most)
        if word == "number":
            if over is not None:
                self._in_words(flat, way, "exclusiveMinimum", f"greater than {over}")
            if under is not None:
                self._in_words(flat, way, "exclusiveMaximum", f"less than {under}")
        return bounds
