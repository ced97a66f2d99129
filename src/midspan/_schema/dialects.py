"""JSON Schema → what one family of providers accepts, with every loss listed."""

from collections.abc import Iterable
from typing import Any

from midspan._schema.lowering.dialect import Dialect, Loss, Lowered
from midspan._schema.lowering.names import legal
from midspan._schema.lowering.walk import lowered

__all__ = ["Dialect", "Loss", "Lowered", "legal_names", "lower"]


def lower(schema: Any, dialect: Dialect, *, arguments: bool = True) -> Lowered:
    """The schema as the dialect says it, wider where it cannot say it, never narrower.

    It takes schemas as people write them, see `normal`. With `arguments` the root is an object, as every
    provider demands of parameters; without, it is whatever the schema says (a response, a structured answer).
    """
    return lowered(schema, dialect, arguments)


def legal_names(names: Iterable[str], dialect: Dialect) -> dict[str, str]:
    """Original → legal name of each function, the same one for no two of them."""
    return legal(names, dialect.functions)
