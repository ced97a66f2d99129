"""What a schema said that its new form does not say."""

from msgspec import Struct


class Loss(Struct, frozen=True):
    """One thing that was widened or left out; values are still checked against the original."""

    path: str
    """Where in the original schema, as a JSON Pointer that follows references: `/properties/place/items`."""
    keyword: str
    what: str
