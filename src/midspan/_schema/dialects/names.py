"""Names that a provider accepts, and the way back to the original names."""

import re
from collections.abc import Iterable
from typing import Any

from msgspec import Struct


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
        return valid if len(valid) <= self.max_chars else f"{valid[: self.max_chars - 9]}_{_digest(name)}"


def valid_names(names: Iterable[str], rule: NameRule) -> dict[str, str]:
    """Return a valid name for each name: itself where possible, and never the same for two."""
    originals = list(dict.fromkeys(names))
    result = {name: name for name in originals if rule.allows(name)}
    taken = set(result)
    for name in originals:
        if name not in result:
            result[name] = _unique_name(name, rule, taken)
            taken.add(result[name])
    return result


def _unique_name(name: str, rule: NameRule, taken: set[str]) -> str:
    valid = candidate = rule.replace_invalid(name)
    attempt = 0
    while candidate in taken:
        attempt += 1
        candidate = f"{valid[: rule.max_chars - 9]}_{_digest(f'{name}{attempt}')}"
    return candidate


def _digest(name: str) -> str:
    from hashlib import blake2b  # two names rarely collide

    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


class Renaming(Struct, frozen=True):
    """The original names of the properties of a value, at every depth."""

    names: dict[str, str] = {}
    """Only those that differ: valid → original."""
    properties: "dict[str, Renaming]" = {}
    """By original name, for properties with something to rename inside."""
    additional: "Renaming | None" = None
    """For the values of properties that the schema does not name."""
    items: "Renaming | None" = None

    def restore(self, value: Any) -> Any:
        """Return the value with its original names. A name that is taken already stays as it is."""
        if isinstance(value, dict):
            result = {}
            for name, item in value.items():
                original: Any = self.names.get(name, name)
                if original in value:
                    original = name  # the model gave both names: both stay, and validation decides
                renaming = self.properties.get(original, self.additional)
                result[original] = item if renaming is None else renaming.restore(item)
            return result
        if isinstance(value, list) and self.items is not None:
            return [self.items.restore(item) for item in value]
        return value


def find_renaming(schema: Any, originals: dict[str, str]) -> Renaming | None:
    """Return the way back for values of an adapted schema. `originals` maps valid names to those they replace."""
    if not isinstance(schema, dict):
        return None
    properties = schema.get("properties", {})
    inner = {originals.get(name, name): find_renaming(prop, originals) for name, prop in properties.items()}
    own = Renaming(
        {name: originals[name] for name in properties if name in originals},
        {name: renaming for name, renaming in inner.items() if renaming is not None},
        find_renaming(schema.get("additionalProperties"), originals),
        _merge(find_renaming(item, originals) for item in (schema.get("items"), *schema.get("prefixItems", ()))),
    )
    return _merge([own, *(find_renaming(variant, originals) for variant in schema.get("anyOf", ()))])


def _merge(renamings: Iterable[Renaming | None]) -> Renaming | None:
    """Return all of them as one. They never disagree, because a name replaces the same one everywhere."""
    present = [renaming for renaming in renamings if renaming is not None and renaming != Renaming()]
    if len(present) < 2:
        return present[0] if present else None
    names = {name for renaming in present for name in renaming.properties}
    inner = {name: _merge(renaming.properties.get(name) for renaming in present) for name in names}
    return Renaming(
        {valid: original for renaming in present for valid, original in renaming.names.items()},
        {name: renaming for name, renaming in inner.items() if renaming is not None},
        _merge(renaming.additional for renaming in present),
        _merge(renaming.items for renaming in present),
    )
