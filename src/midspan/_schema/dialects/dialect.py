"""What a family of providers takes of JSON Schema, what becomes of a schema for it, and what is lost."""

from typing import Any

from msgspec import Struct

from midspan._schema.dialects.names import NameRule, Renaming


class DroppedConstraint(Struct, frozen=True):
    """One thing that was widened or left out; values are still checked against the original."""

    path: str
    """Where in the original schema, as a JSON Pointer that follows references: `/properties/place/items`."""
    keyword: str
    reason: str


class SchemaDialect(Struct, frozen=True):
    """What a family takes, as data; what it does not take is widened and listed."""

    name: str
    keywords: frozenset[str]
    types: dict[str, str]
    """The family's words for JSON Schema's types."""
    enum_types: frozenset[str]
    """Types whose values may stand in an `enum`."""
    formats: dict[str, frozenset[str]] | None = None
    """By type, the formats it knows; None takes any."""
    untyped: bool = True
    """Whether a schema without a type means anything; else anything is a union of all types."""
    nullable: bool = False
    """Whether null is said by `nullable: true`; else by a list of two types."""
    union_alone: bool = False
    """Whether nothing may stand beside `anyOf`."""
    empty_strings: bool = True
    """Whether "" may stand in an `enum`."""
    functions: NameRule = NameRule()
    properties: NameRule = NameRule()


class AdaptedSchema(Struct, frozen=True):
    """A schema in the words of a dialect. Every value of the original fits it, under the names it uses."""

    schema: dict[str, Any]
    dropped: tuple[DroppedConstraint, ...] = ()
    renaming: Renaming | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it says no more than «an object»; Gemini wants such parameters left out."""
        return not self.schema.keys() - {"type", "properties"} and not self.schema.get("properties")

    def restore_names(self, value: Any) -> Any:
        """What a model gave under legal names, under the names of the original schema."""
        return value if self.renaming is None else self.renaming.applied(value)
