"""The names and JSON Schema keywords that a model family accepts, and schemas adapted to them."""

import re
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from midspan._schema.tree import ANYTHING, SchemaNode


class NameRule(Struct, frozen=True):
    """Which names are valid: an ASCII letter or `_`, then letters, digits, `_` and the `extra` characters."""

    extra: str = ""
    max_chars: int = 64
    digit_first: bool = False

    def allows(self, name: str) -> bool:
        return self.replace_invalid(name) == name

    def replace_invalid(self, name: str) -> str:
        """Return a valid name that resembles the given one. Two names may become the same."""
        valid = re.sub(rf"[^A-Za-z0-9_{re.escape(self.extra)}]", "_", name)
        if not re.match("[A-Za-z0-9_]" if self.digit_first else "[A-Za-z_]", valid):
            valid = "_" + valid
        return valid if len(valid) <= self.max_chars else self.with_digest(valid, name)

    def with_digest(self, valid: str, name: str) -> str:
        """Return a valid name with a suffix that differs from name to name."""
        from hashlib import blake2b  # few names need it

        digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
        return f"{valid[: self.max_chars - 9]}_{digest}"


def valid_names(names: Iterable[str], rule: NameRule) -> dict[str, str]:
    """Return a valid name for each name: itself where possible, and never the same for two."""
    originals = list(dict.fromkeys(names))
    result = {name: name for name in originals if rule.allows(name)}
    taken = set(result)
    for name in originals:
        if name not in result:
            valid = rule.replace_invalid(name)
            while valid in taken:
                valid = rule.with_digest(valid, name + valid)
            result[name] = valid
            taken.add(valid)
    return result


class SchemaDialect(Struct, frozen=True):
    """What a family accepts. Other constraints are dropped, and added to the description where possible."""

    keywords: frozenset[str]
    types: dict[str, str]
    """The names that the family uses for the types of JSON Schema."""
    enum_types: frozenset[str]
    """Types whose values may be listed in `enum`."""
    formats: dict[str, frozenset[str]] | None = None
    """The formats that it knows, by type; None accepts any."""
    untyped: bool = True
    """Whether a schema without a type accepts any value; otherwise any value is a union of all types."""
    nullable: bool = False
    """Whether null is declared by `nullable: true`; otherwise by a list of two types."""
    union_alone: bool = False
    """Whether a schema with `anyOf` may have no other keyword."""
    empty_strings: bool = True
    """Whether `enum` may contain an empty string."""
    references: bool = False
    """Whether `$ref` and `$defs` are kept; otherwise references are inlined, and recursion ends after a few levels."""
    closed: bool = False
    """Whether every object with named properties must have `additionalProperties: false`."""
    all_required: bool = False
    """Whether all properties must be required. Optional ones accept null, which means that they are left out."""
    strict: bool = False
    """Whether the family guarantees arguments that fit, as long as all objects are closed and all values have a type.

    A schema that cannot be written that way is adapted without `strict`, `closed` and `all_required`.
    """
    functions: NameRule = NameRule()
    properties: NameRule = NameRule()


class AdaptedSchema(Struct, frozen=True):
    """A schema in a dialect, with the names that the dialect allows. See `adapt_schema` for how it may differ."""

    schema: dict[str, Any]
    renamed: dict[str, str] = {}
    """The original names of properties that have another one in this schema."""
    original: SchemaNode = ANYTHING
    strict: bool = False
    """Whether the family can guarantee that arguments fit this schema."""

    @property
    def is_empty(self) -> bool:
        """Whether it declares only an object without properties; Gemini wants such parameters to be left out."""
        return not any(value for keyword, value in self.schema.items() if keyword != "type")

    def restore_names(self, value: Any) -> Any:
        """Return a value from the model with the property names of the original schema."""
        return self._restore(value, [self.original]) if self.renamed else value

    def _restore(self, value: Any, schemas: list[SchemaNode]) -> Any:
        if not isinstance(value, dict | list):
            return value
        nodes = {id(node): node for schema in schemas for node in schema.with_alternatives}.values()
        if isinstance(value, list):
            return [self._restore(item, [node.item(index) for node in nodes]) for index, item in enumerate(value)]
        restored = {}
        for name, item in value.items():
            original: Any = self.renamed.get(name, name)
            # If the model gave both names, both stay, and validation decides.
            is_known = any(original in (*node.properties, *node.schema.get("required", ())) for node in nodes)
            if original in value or not is_known:
                original = name
            inner = [node.properties.get(original) or node.additional for node in nodes]
            patterns = [prop for node in nodes for prop in node.pattern_properties.values()]
            restored[original] = self._restore(item, inner + patterns)
        return restored
