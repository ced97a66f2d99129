"""Arguments that are nearly right → right ones, only where the schema says how."""

import re
from decimal import Decimal
from math import isfinite
from typing import Any

import msgspec

from midspan._schema.checking.validators import Compiled
from midspan._schema.paths import Steps, format_path, quoted
from midspan._schema.positions import array_schemas
from midspan._schema.type_aliases import type_of

_INTEGER = re.compile(r"[+-]?\d{1,300}")
_NUMBER = re.compile(r"[+-]?(\d{1,300}(\.\d{0,300})?|\.\d{1,300})([eE][+-]?\d{1,3})?")
_MOST_DIGITS = 300
_DEEPEST = 100
_MOST_ATTEMPTS = 20_000
"""Unions in unions multiply; a value that takes more attempts than this is left as it is."""
_KEEP = object()


class Mending:
    """One attempt to make a value fit; what it changed is in `changes`, the given value stays as it was."""

    def __init__(self, compiled: Compiled, attempts: "list[int] | None" = None, *, wraps: bool = True) -> None:
        self._compiled = compiled
        self._wraps = wraps
        """Whether a lone value may become a list of one."""
        self._attempts = [_MOST_ATTEMPTS] if attempts is None else attempts
        self.changes: list[str] = []

    def mended(self, value: Any, schema: Any, steps: Steps = (), depth: int = 0) -> Any:
        """The value, changed where it does not fit and the schema leaves no doubt what was meant."""
        self._attempts[0] -= 1
        if not isinstance(schema, dict) or depth > _DEEPEST or self._attempts[0] < 0 or self._fits(value, schema):
            return value
        target = self._compiled.document.targets.get(id(schema))
        for part in (target, *schema.get("allOf", ())):
            value = self.mended(value, part, steps, depth + 1)
        union = schema.get("anyOf") or schema.get("oneOf")
        if union:
            value = self._branch(value, union, steps, depth)
        value = self._retyped(value, schema, steps, depth)
        if isinstance(value, dict):
            return self._object(value, schema, steps, depth)
        if isinstance(value, list):
            return self._array(value, schema, steps, depth)
        return value

    def _fits(self, value: Any, schema: Any) -> bool:
        if isinstance(schema, bool):
            return schema
        validator = self._compiled.part(schema)
        return validator is not None and validator.is_valid(value)

    def _branch(self, value: Any, union: list[Any], steps: Steps, depth: int) -> Any:
        """As the first branch that it can be made to fit, sooner as it is than as a list of one."""
        for wraps in (False, True) if self._wraps else (False,):
            for branch in union:
                attempt = Mending(self._compiled, self._attempts, wraps=wraps)
                candidate = attempt.mended(value, branch, steps, depth + 1)
                if self._fits(candidate, branch):
                    self.changes += attempt.changes
                    return candidate
        others = [one for one in union if not (isinstance(one, dict) and one.get("type") == "null")]
        return self.mended(value, others[0], steps, depth + 1) if len(others) == 1 else value

    def _object(self, value: dict[str, Any], schema: dict[str, Any], steps: Steps, depth: int) -> dict[str, Any]:
        properties = schema.get("properties", {})
        required = schema.get("required", ())
        result = {}
        for name, inner in value.items():
            mended = inner
            for part in self._schemas(name, schema):
                mended = self.mended(mended, part, (*steps, name), depth + 1)
            may_be_left_out = name in properties and name not in required
            if may_be_left_out and self._stands_for_nothing(mended, properties[name]):
                self._note((*steps, name), f"{quoted(mended)} dropped, it may be left out")
                continue
            result[name] = mended
        return result

    def _schemas(self, name: str, schema: dict[str, Any]) -> list[Any]:
        """All that hold for a property of this name."""
        own = [schema["properties"][name]] if name in schema.get("properties", ()) else []
        patterns = schema.get("patternProperties", {})
        own += [part for pattern, part in patterns.items() if self._compiled.matches(pattern, name)]
        return own or [schema.get("additionalProperties", True)]

    def _stands_for_nothing(self, value: Any, schema: Any) -> bool:
        """Null, or a default that its own schema forbids: both say «not given»."""
        default = schema.get("default") if isinstance(schema, dict) else None
        # Python takes False for 0, JSON does not.
        is_default = type(value) is type(default) and value == default
        return (value is None or is_default) and not self._fits(value, schema)

    def _array(self, value: list[Any], schema: dict[str, Any], steps: Steps, depth: int) -> list[Any]:
        prefix, items = array_schemas(schema)
        return [
            self.mended(inner, prefix[at] if at < len(prefix) else items, (*steps, at), depth + 1)
            for at, inner in enumerate(value)
        ]

    def _retyped(self, value: Any, schema: dict[str, Any], steps: Steps, depth: int) -> Any:
        """A value of another type made one of a type that is asked for, an `enum` value found in any case."""
        options = [schema["const"]] if "const" in schema else schema.get("enum")
        types = _types(schema, options)
        if types and not _is_of(value, types):
            made = _made(value, types)
            if made is _KEEP and "array" in types and self._is_lone(value, steps):
                made = self._wrapped(value, schema, steps, depth)
            if made is not _KEEP:
                self._note(steps, f"{quoted(value)} → {quoted(made)}")
                value = made
        if isinstance(value, str) and options and value not in options:
            value = self._chosen(value, options, steps)
        return value

    def _is_lone(self, value: Any, steps: Steps) -> bool:
        """Whether it can be meant as the only item of a list.

        In a list there are no lone values: a row for a table is no table of one column. And text that opens as a list
        is one that got broken on the way.
        """
        if not self._wraps or value is None or (steps and isinstance(steps[-1], int)):
            return False
        return not (isinstance(value, str) and _opens(value) and not isinstance(_parsed(value), dict))

    def _wrapped(self, value: Any, schema: dict[str, Any], steps: Steps, depth: int) -> Any:
        candidate = Mending(self._compiled, self._attempts).mended([value], schema, steps, depth + 1)
        return candidate if self._fits(candidate, schema) else _KEEP

    def _chosen(self, value: str, options: list[Any], steps: Steps) -> str:
        wanted = value.strip().casefold()
        same = [one for one in options if isinstance(one, str) and one.strip().casefold() == wanted]
        if len(same) != 1:
            return value
        self._note(steps, f"{quoted(value)} → {quoted(same[0])}")
        return same[0]

    def _note(self, steps: Steps, what: str) -> None:
        self.changes.append(f"{format_path(steps)}: {what}" if steps else what)


def _types(schema: dict[str, Any], options: list[Any] | None) -> list[str]:
    words = schema.get("type")
    if words is None:
        return list(dict.fromkeys(type_of(option) for option in options or ()))
    return words if isinstance(words, list) else [words]


def _is_of(value: Any, types: list[str]) -> bool:
    word = type_of(value)
    return word in types or (word == "integer" and "number" in types)


def _made(value: Any, types: list[str]) -> Any:
    if isinstance(value, str):
        return _from_text(value.strip(), types)
    if "string" in types and isinstance(value, int | float):
        return str(value).lower() if isinstance(value, bool) else str(value)
    return _KEEP


def _from_text(text: str, types: list[str]) -> Any:
    if ("integer" in types or "number" in types) and _NUMBER.fullmatch(text):
        return _number(text, types)
    if "boolean" in types and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if "null" in types and text.lower() in ("null", "none"):
        return None
    for word, opening, kind in (("array", "[", list), ("object", "{", dict)):
        if word in types and text.startswith(opening):
            parsed = _parsed(text)
            return parsed if isinstance(parsed, kind) else _KEEP
    return _KEEP


def _number(text: str, types: list[str]) -> Any:
    exact = Decimal(text)
    is_whole = exact.adjusted() < _MOST_DIGITS and exact == exact.to_integral_value()
    if is_whole and ("integer" in types or _INTEGER.fullmatch(text)):
        return int(exact)
    if "number" in types and isfinite(number := float(text)):
        return number
    return _KEEP


def _opens(text: str) -> bool:
    return text.lstrip()[:1] in ("[", "{")


def _parsed(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None
