"""The parameters of a tool, read from its schema however that is written: each place where a value may stand."""

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from msgspec import Struct

from midspan.providers.offline.declared.hints import default_of, suggested
from midspan.providers.offline.declared.roles import roles_of
from midspan.providers.offline.reading.meanings import stem
from midspan.providers.offline.reading.units import unit_word
from midspan.providers.offline.reading.words import STOP, name_words, words
from midspan.schema.type_words import meaning

MOST_PARAMETERS = 64
_DEEPEST = 3
_COMPOUND = re.compile(r"\w{3,}(?:name|date|time)")
"""A `username` is the name of a user."""
_LONGEST = 1500


class Parameter(Struct, frozen=True):
    """One place for a value; those inside an object have a longer path."""

    path: tuple[str, ...]
    type: str
    description: str
    items: str = "string"
    """The type of the items, where it is a list."""
    choices: tuple[Any, ...] = ()
    required: bool = False
    default: Any = None
    name_concepts: frozenset[str] = frozenset()
    concepts: frozenset[str] = frozenset()
    """Of its description."""
    roles: frozenset[str] = frozenset()
    maximum: float | None = None
    units: frozenset[str] = frozenset()
    """That its name or its description speaks of."""
    offered: tuple[str, ...] = ()
    """Values that the description offers."""

    @property
    def name(self) -> str:
        return self.path[-1]


def is_id(name: str) -> bool:
    """Whether what is so called is the id of a thing."""
    spoken = name_words(name)
    return bool(spoken) and spoken[-1].lower in ("id", "ids", "uuid", "guid")


def parameters_of(schema: Any) -> tuple[Parameter, ...]:
    root = schema if isinstance(schema, dict) else {}
    return tuple(islice(_inside(root, root, (), True), MOST_PARAMETERS))


def _inside(schema: dict[str, Any], root: dict[str, Any], path: tuple[str, ...], required: bool) -> Iterator[Parameter]:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return
    needed = schema.get("required")
    needed = set(map(str, needed)) if isinstance(needed, list | tuple) else set()
    for name, given in properties.items():
        inner = resolved(given, root)
        here = (*path, str(name))
        is_needed = required and (name in needed or inner.get("required") is True) and "default" not in inner
        if type_of(inner) == "object" and isinstance(inner.get("properties"), dict) and len(here) < _DEEPEST:
            yield from _inside(inner, root, here, is_needed)
        else:
            yield _parameter(inner, root, here, is_needed)


def _parameter(schema: dict[str, Any], root: dict[str, Any], path: tuple[str, ...], required: bool) -> Parameter:
    items = resolved(schema.get("items"), root)
    kind = type_of(schema)
    choices = schema.get("enum") or (items.get("enum") if kind == "array" else None)
    description = f"{schema.get('description') or ''} {items.get('description') or ''}".strip()[:_LONGEST]
    named, described, last = _concepts(name_words(" ".join(path))), words(description), name_words(path[-1])
    short = tuple(word.lower for word in last if 3 <= len(word.lower) <= 5)
    named |= {stem(one.lower[:-4]) for one in last if _COMPOUND.fullmatch(one.lower)}
    named |= {word.concepts[0] for word in described if word.lower.startswith(short) and word.lower not in short}
    maximum, form = schema.get("maximum"), _form(schema)
    roles = roles_of(path[-1], description)
    if form in _ROLES_BY_FORM:
        roles |= {_ROLES_BY_FORM[form]}
    return Parameter(
        path,
        kind,
        f"{description} {_FORMS[form]}".strip() if form in _FORMS else description,
        items=type_of(items) if items else "string",
        choices=tuple(choices[:200]) if isinstance(choices, list | tuple) else (),
        required=required,
        default=schema.get("default", default_of(description, kind)),
        name_concepts=named,
        concepts=_concepts(described),
        roles=roles,
        maximum=maximum if isinstance(maximum, int | float) else None,
        units=frozenset(unit_word(word.lower) for word in [*described, *last]) - {""},
        offered=tuple(suggested(description)),
    )


_FORMS = {"date": "(YYYY-MM-DD)", "time": "(HH:MM:SS)", "date-time": "(YYYY-MM-DDTHH:MM:SS)"}
_ROLES_BY_FORM = {"date": "date", "time": "time", "date-time": "date", "email": "email", "uri": "url"}


def _form(schema: dict[str, Any]) -> str:
    """The form that the schema asks for by `format`, or by a type such as `date`."""
    kind = schema.get("type")
    known = (meaning(kind) if isinstance(kind, str) else None) or {}
    form = schema.get("format", known.get("format"))
    return form if isinstance(form, str) else ""


def resolved(schema: Any, root: dict[str, Any]) -> dict[str, Any]:
    """The schema that is meant, through references and the first of several alternatives; {} where there is none."""
    for _ in range(8):
        if not isinstance(schema, dict):
            return {}
        reference = schema.get("$ref")
        alternatives = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
        if isinstance(reference, str):
            schema = _at(root, reference)
        elif isinstance(alternatives, list) and alternatives and "type" not in schema:
            true = [one for one in alternatives if isinstance(one, dict) and one.get("type") != "null"]
            beside = {key: value for key, value in schema.items() if key in ("description", "default")}
            schema = {**(true[0] if true else {}), **beside}
        else:
            return schema
    return {}


def _at(root: dict[str, Any], reference: str) -> Any:
    place: Any = root
    for step in reference.removeprefix("#").strip("/").split("/")[:20]:
        place = place.get(step) if isinstance(place, dict) else None
    return place


def type_of(schema: dict[str, Any]) -> str:
    given = schema.get("type")
    if isinstance(given, list | tuple):
        given = next((one for one in given if one != "null"), None)
    known = meaning(given) if isinstance(given, str) else None
    found = (known or {}).get("type")
    if isinstance(found, list):
        found = next((one for one in found if one != "null"), None)
    if isinstance(found, str):
        return found
    return "object" if "properties" in schema else "array" if "items" in schema else "any" if known == {} else "string"


def _concepts(spoken: list[Any]) -> frozenset[str]:
    return frozenset(one for word in spoken if word.lower not in STOP for one in word.concepts)
