"""Whether what a hint makes can stand in a set."""

import types
import typing
from collections import abc
from typing import Any

from msgspec import Struct

from midspan._schema.signatures.records import is_typed_dict, record_of

_MUTABLE = (list, dict, set, bytearray)
_READ_AS_MUTABLE = (abc.Sequence, abc.Collection, abc.Iterable, abc.Set, abc.Mapping)
"""Abstract types for which a list, a set or a dict is made."""


def is_hashable(hint: Any, seen: frozenset[Any] = frozenset()) -> bool:
    """Whether every value of this hint has a hash; «anything» may be a list, and lists have none."""
    if hint is Any or hint is object:
        return False
    if hasattr(hint, "__metadata__"):
        return is_hashable(hint.__origin__, seen)
    if (meant := _meant(hint)) is not None:
        return is_hashable(meant, seen)
    origin, arguments = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin is typing.Literal:
        return True
    if origin in (typing.Union, types.UnionType, frozenset) or (origin is tuple and hint is not tuple):
        return all(is_hashable(each, seen) for each in arguments if each is not Ellipsis)
    return isinstance(origin, type) and _has_hash(origin) and _have_hashes(hint, seen)


def _meant(hint: Any) -> Any:
    if isinstance(hint, typing.NewType):
        return hint.__supertype__
    if isinstance(hint, typing.TypeVar):
        return typing.Union[hint.__constraints__] if hint.__constraints__ else hint.__bound__ or Any  # noqa: UP007
    return hint.__value__ if type(hint).__name__ == "TypeAliasType" else None


def _has_hash(kind: type) -> bool:
    if kind in _READ_AS_MUTABLE or issubclass(kind, _MUTABLE) or is_typed_dict(kind) or kind in (tuple, frozenset):
        return False
    if issubclass(kind, Struct):
        config = kind.__struct_config__
        return config.frozen or not config.eq or "__hash__" in kind.__dict__
    return kind.__hash__ is not None


def _have_hashes(hint: Any, seen: frozenset[Any]) -> bool:
    """Of a record, all fields: the hash of a frozen one is made of theirs."""
    kind: Any = typing.get_origin(hint) or hint
    if kind in seen or ("__hash__" in kind.__dict__ and not getattr(kind, "__dataclass_params__", None)):
        return True
    record = record_of(hint, "in") if not issubclass(kind, Struct) or kind.__struct_config__.frozen else None
    return record is None or all(is_hashable(field.hint, seen | {kind}) for field in record.fields)
