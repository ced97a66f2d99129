"""What is wrong with a value, in words with which a model can mend it."""

import json
from collections.abc import Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from wasat.schema.references import Document
from wasat.schema.unions import type_of

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError

MOST = 20
_LONGEST_VALUE = 80
_MOST_CHOICES = 12


class Problem(Struct, frozen=True):
    """One thing that is wrong, and where: `location.lat`, `tags[2]`; the path of the whole value is empty."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def worded(errors: "list[ValidationError]", document: Document) -> list[Problem]:
    """The errors as problems, each once, the first twenty and how many more."""
    wording = Wording(document)
    found = list(dict.fromkeys(problem for error in errors for problem in wording.problems(error)))
    if len(found) <= MOST:
        return found
    return [*found[:MOST], Problem("", f"and {len(found) - MOST} more")]


def path_of(steps: list[str | int] | tuple[str | int, ...]) -> str:
    """Where in a value, as people write it."""
    path = ""
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        elif step.isidentifier() or step.replace("-", "_").isidentifier():
            path += f".{step}" if path else step
        else:
            path += f"[{quoted(step)}]"
    return path


def quoted(value: Any) -> str:
    """The value as JSON, cut to a length that a message can hold."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=repr)
    except (ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"


class Wording:
    """How the errors of one schema are told."""

    def __init__(self, document: Document) -> None:
        self._document = document

    def problems(self, error: "ValidationError") -> Iterator[Problem]:
        """An error as one problem or several."""
        name = error.kind.name
        if name == "required":
            yield self._missing(error)
        elif name in ("additionalProperties", "unevaluatedProperties"):
            yield from self._unknown(error)
        elif name in ("anyOf", "oneOf"):
            yield from self._union(error)
        elif name == "propertyNames":
            yield Problem(path_of(error.instance_path), f"has a property name that is not allowed: {_short(error)}")
        else:
            words = _WORDS.get(type(error.kind).__name__)
            yield Problem(path_of(error.instance_path), words(error) if words else _short(error))

    def _missing(self, error: "ValidationError") -> Problem:
        name = _kind(error).property
        expected = self._expected(self._parent(error).get("properties", {}).get(name, True))
        return Problem(path_of([*error.instance_path, name]), f"is required but missing{expected}")

    def _unknown(self, error: "ValidationError") -> Iterator[Problem]:
        known = [str(name) for name in self._parent(error).get("properties", {})]
        for name in _kind(error).unexpected:
            nearest = get_close_matches(str(name), known, 1)
            hint = f"did you mean {nearest[0]}? " if nearest else ""
            choices = f"known are: {_listed(known)}" if known else "none are allowed"
            yield Problem(path_of([*error.instance_path, name]), f"is no property of this object; {hint}{choices}")

    def _union(self, error: "ValidationError") -> Iterator[Problem]:
        """The errors of the branch that was meant, if one can be told; else what the branches expect."""
        if type(error.kind).__name__ == "OneOfMultipleValid":
            yield Problem(path_of(error.instance_path), "fits more than one of the alternatives, must fit exactly one")
            return
        context = _kind(error).context
        meant = [branch for branch in context if not _of_another_kind(branch, len(error.instance_path))]
        if len(meant) == 1:
            for inner in meant[0]:
                yield from self.problems(inner)
            return
        branches = self._parent(error).get(error.kind.name, [])
        expected = [words for one in branches if (words := self.described(one))]
        choices = " or ".join(dict.fromkeys(expected)) or "one of the alternatives"
        yield Problem(path_of(error.instance_path), f"expected {choices}, got {quoted(error.instance)}")

    def _parent(self, error: "ValidationError") -> dict[str, Any]:
        node: Any = self._document.root
        for step in error.schema_path[:-1]:
            try:
                node = node[step]
            except (KeyError, IndexError, TypeError):
                return {}
        return node if isinstance(node, dict) else {}

    def _expected(self, schema: Any) -> str:
        words = self.described(schema)
        return f"; expected {words}" if words else ""

    def described(self, schema: Any, depth: int = 0) -> str:
        """What a schema wants, in a word or two; empty if it wants nothing in particular."""
        for _ in range(8):
            target = self._document.targets.get(id(schema))
            if target is None:
                break
            schema = target
        if not isinstance(schema, dict) or depth > 2:
            return ""
        if "const" in schema:
            return quoted(schema["const"])
        if "enum" in schema:
            return f"one of {_choices(schema['enum'])}"
        words = schema.get("type", "")
        if words == "array":
            items = self.described(schema.get("items", True), depth + 1)
            return f"array of {items}" if items else "array"
        if words == "object" and schema.get("required"):
            return f"object with {_listed(schema['required'])}"
        if not words and (union := schema.get("anyOf") or schema.get("oneOf")):
            words = [self.described(one, depth + 1) for one in union[:_MOST_CHOICES]]
            return " or ".join(dict.fromkeys(word for word in words if word))
        return words if isinstance(words, str) else " or ".join(words)


def _kind(error: "ValidationError") -> Any:
    """What the error says of itself; its stubs leave open which fields each kind has."""
    return error.kind


def _of_another_kind(branch: "list[ValidationError]", depth: int) -> bool:
    """Whether a branch failed because the value is of another type or tag than it wants."""
    return any(
        error.kind.name in ("type", "const", "enum") and len(error.instance_path) <= depth + (error.kind.name != "type")
        for error in branch
    )


def _type(error: "ValidationError") -> str:
    expected = " or ".join(_kind(error).types)
    return f"expected {expected}, got {type_of(error.instance)} {quoted(error.instance)}"


def _enum(error: "ValidationError") -> str:
    options = _kind(error).options
    nearest = get_close_matches(str(error.instance), [str(option) for option in options[:1000]], 1, 0.5)
    hint = f"; did you mean {next(quoted(one) for one in options if str(one) == nearest[0])}?" if nearest else ""
    return f"must be one of {_choices(options)}, got {quoted(error.instance)}{hint}"


def _choices(options: list[Any]) -> str:
    return _listed([quoted(option) for option in options])


def _listed(words: list[str]) -> str:
    shown = ", ".join(words[:_MOST_CHOICES])
    return shown if len(words) <= _MOST_CHOICES else f"{shown} and {len(words) - _MOST_CHOICES} more"


def _limit(template: str) -> Any:
    return lambda error: f"{template.format(error.kind.limit)}, got {quoted(error.instance)}"


_WORDS: dict[str, Any] = {
    "Type": _type,
    "Enum": _enum,
    "Constant": lambda error: f"must be {quoted(error.kind.expected_value)}, got {quoted(error.instance)}",
    "Minimum": _limit("must be at least {}"),
    "Maximum": _limit("must be at most {}"),
    "ExclusiveMinimum": _limit("must be greater than {}"),
    "ExclusiveMaximum": _limit("must be less than {}"),
    "MinLength": _limit("must have at least {} characters"),
    "MaxLength": _limit("must have at most {} characters"),
    "MinItems": _limit("must have at least {} items"),
    "MaxItems": _limit("must have at most {} items"),
    "MinProperties": _limit("must have at least {} properties"),
    "MaxProperties": _limit("must have at most {} properties"),
    "AdditionalItems": _limit("must have at most {} items"),
    "MultipleOf": lambda error: f"must be a multiple of {error.kind.multiple_of}, got {quoted(error.instance)}",
    "Pattern": lambda error: f"must match the pattern {quoted(error.kind.pattern)}, got {quoted(error.instance)}",
    "Format": lambda error: f"must be of format {error.kind.format}, got {quoted(error.instance)}",
    "UniqueItems": lambda error: f"must not hold the same item twice, got {quoted(error.instance)}",
    "Contains": lambda error: f"holds no item of the kind that is required, got {quoted(error.instance)}",
    "FalseSchema": lambda _: "must not be given",
    "Not": lambda error: f"must not fit {quoted(error.kind.schema)}, got {quoted(error.instance)}",
    "BacktrackLimitExceeded": lambda _: "takes too long to match against the pattern that it must have",
}


def _short(error: "ValidationError") -> str:
    return error.message if len(error.message) <= 300 else error.message[:299] + "…"
