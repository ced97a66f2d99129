"""What to say of a hint that no schema can say, and what to use instead."""

import io
import types
import typing
from collections import abc
from typing import Any

from wasat.errors import SchemaError


def refusal(hint: Any) -> SchemaError:
    return SchemaError(f"{name_of(hint)} cannot be said in JSON; {_advice(hint)}")


def name_of(hint: Any) -> str:
    """A hint as its author wrote it, or nearly."""
    if isinstance(hint, type) and typing.get_origin(hint) is None:
        return hint.__name__
    return str(hint).removeprefix("typing.").removeprefix("collections.abc.")


def _advice(hint: Any) -> str:
    kind = typing.get_origin(hint) or hint
    if kind in (abc.Callable, types.FunctionType):
        return "let the model choose by name, with a Literal or an Enum"
    if isinstance(kind, type) and issubclass(kind, io.IOBase | typing.IO):
        return "take a path, or the content as str or bytes"
    if isinstance(kind, type) and issubclass(kind, abc.Iterator | abc.AsyncIterable | abc.Awaitable):
        return "use a list"
    return "use plain types, a dataclass or a TypedDict; what the model shall not see can be a Context[…]"
