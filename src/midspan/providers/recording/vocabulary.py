"""The words of the form itself: names of fields, kinds and reasons, which stay even where one of them is a secret."""

from collections.abc import Iterator
from enum import Enum
from functools import cache
from typing import Any

from msgspec import inspect

from midspan.providers.recording.lines import Line


@cache
def own_words() -> frozenset[str]:
    """Every word that a line must hold unchanged to be read again."""
    return frozenset(_words(inspect.type_info(Line), set()))


def _words(form: Any, seen: set[type]) -> Iterator[str]:
    if isinstance(form, inspect.StructType):
        if form.cls in seen:
            return
        seen.add(form.cls)
        yield from (word for word in (form.tag_field, form.tag) if isinstance(word, str))
        for field in form.fields:
            yield field.encode_name
            yield from _words(field.type, seen)
    elif isinstance(form, inspect.UnionType):
        for one in form.types:
            yield from _words(one, seen)
    elif isinstance(form, inspect.VarTupleType):
        yield from _words(form.item_type, seen)
    elif isinstance(form, inspect.EnumType):
        yield from (one.value for one in form.cls if isinstance(one, Enum) and isinstance(one.value, str))
    elif isinstance(form, inspect.LiteralType):
        yield from (word for word in form.values if isinstance(word, str))
