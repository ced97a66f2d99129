"""Names that a provider takes, and the way back to the names that people gave."""

import re
from collections.abc import Iterable
from typing import Any

from msgspec import Struct


class NameRule(Struct, frozen=True):
    """Which names are legal: an ASCII letter or `_`, then letters, digits, `_` and the `extra` characters."""

    extra: str = ""
    longest: int = 64
    digit_first: bool = False

    def allows(self, name: str) -> bool:
        return self.made_legal(name) == name

    def made_legal(self, name: str) -> str:
        """The name with what is illegal replaced; two names may become one."""
        legal = re.sub(rf"[^A-Za-z0-9_{re.escape(self.extra)}]", "_", name)
        first = "A-Za-z0-9_" if self.digit_first else "A-Za-z_"
        if not re.match(f"[{first}]", legal):
            legal = "_" + legal
        if len(legal) <= self.longest:
            return legal
        return f"{legal[: self.longest - 9]}_{_digest(name)}"


def valid_names(names: Iterable[str], rule: NameRule) -> dict[str, str]:
    """For every name the legal one that stands for it: itself where it can be, and never the same for two."""
    given = list(dict.fromkeys(names))
    taken = {name for name in given if rule.allows(name)}
    result = {}
    for name in given:
        stands_for = name
        if name not in taken or not rule.allows(name):
            stands_for = _free(name, rule, taken)
            taken.add(stands_for)
        result[name] = stands_for
    return result


def _free(name: str, rule: NameRule, taken: set[str]) -> str:
    wanted = rule.made_legal(name)
    attempt = 0
    while wanted in taken:
        attempt += 1
        wanted = f"{rule.made_legal(name)[: rule.longest - 9]}_{_digest(f'{name}{attempt}')}"
    return wanted


def _digest(name: str) -> str:
    from hashlib import blake2b  # two names rarely collide

    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


class Renaming(Struct, frozen=True):
    """What to call the properties of a value that came back under legal names, at every depth."""

    names: dict[str, str] = {}
    """Only those that differ: legal → original."""
    inside: "dict[str, Renaming]" = {}
    """By original name, for properties that have something to rename in them."""
    others: "Renaming | None" = None
    """For the values of properties that the schema does not name."""
    items: "Renaming | None" = None

    def applied(self, value: Any) -> Any:
        if isinstance(value, dict):
            named = [(self.names.get(name, name), inner) for name, inner in value.items()]
            return {name: self._at(name, inner) for name, inner in named}
        if isinstance(value, list) and self.items is not None:
            return [self.items.applied(inner) for inner in value]
        return value

    def _at(self, name: Any, value: Any) -> Any:
        renaming = self.inside.get(name, self.others)
        return value if renaming is None else renaming.applied(value)


def renaming_of(schema: Any, originals: dict[str, str]) -> Renaming | None:
    """The way back for values of this lowered schema; `originals` is legal → original, for names that differ."""
    if not isinstance(schema, dict):
        return None
    found = [renaming_of(one, originals) for one in schema.get("anyOf", ())]
    properties = schema.get("properties", {})
    inside = {
        originals.get(name, name): inner
        for name, one in properties.items()
        if (inner := renaming_of(one, originals)) is not None
    }
    names = {name: originals[name] for name in properties if name in originals}
    others = renaming_of(schema.get("additionalProperties"), originals)
    items = [renaming_of(one, originals) for one in (schema.get("items"), *schema.get("prefixItems", ()))]
    merged_items = _merged(items)
    if names or inside or others or merged_items:
        found.append(Renaming(names, inside, others, merged_items))
    return _merged(found)


def _merged(renamings: Iterable[Renaming | None]) -> Renaming | None:
    """All of them as one; they never disagree, because a name stands for the same one everywhere."""
    present = [one for one in renamings if one is not None]
    if len(present) < 2:
        return present[0] if present else None
    inside = {name: _merged(one.inside.get(name) for one in present) for one in present for name in one.inside}
    return Renaming(
        {legal: original for one in present for legal, original in one.names.items()},
        {name: inner for name, inner in inside.items() if inner is not None},
        _merged(one.others for one in present),
        _merged(one.items for one in present),
    )
