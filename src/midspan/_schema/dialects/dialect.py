"""What a model family accepts of JSON Schema, and a schema as the family accepts it."""

from typing import Any

from msgspec import Struct

from midspan._schema.dialects.names import NameRule, Renaming


class DroppedConstraint(Struct, frozen=True):
    """A constraint that was widened or left out. Values are still validated against the original schema."""

    path: str
    """Where in the original schema, as a JSON Pointer that follows references: `/properties/place/items`."""
    keyword: str
    reason: str


class SchemaDialect(Struct, frozen=True):
    """What a family accepts. Everything else is widened and listed."""

    name: str
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
    """Whether no other keyword may be beside `anyOf`."""
    empty_strings: bool = True
    """Whether `enum` may contain an empty string."""
    functions: NameRule = NameRule()
    properties: NameRule = NameRule()


class AdaptedSchema(Struct, frozen=True):
    """A schema in a dialect. Every value of the original schema fits it, under the names that it uses."""

    schema: dict[str, Any]
    dropped: tuple[DroppedConstraint, ...] = ()
    renaming: Renaming | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it declares nothing but an object; Gemini wants such parameters to be left out."""
        return not self.schema.keys() - {"type", "properties"} and not self.schema.get("properties")

    def restore_names(self, value: Any) -> Any:
        """Return a value from the model with the property names of the original schema."""
        return value if self.renaming is None else self.renaming.restore(value)
