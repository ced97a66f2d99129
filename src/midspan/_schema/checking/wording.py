"""What is wrong with a value, in words with which a model can mend it."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from midspan._schema.paths import MAX_QUOTED_CHARS, Steps, format_path, quoted
from midspan._schema.positions import array_schemas
from midspan._schema.references import Document
from midspan._schema.type_aliases import type_of

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError

    from midspan._schema.checking.validators import Compiled

MOST = 20
_LONGEST_CHAIN = 16
_MOST_CHOICES = 12
_MOST_COMPARED = 500
_ABOUT_NAMES = ("additionalProperties", "unevaluatedProperties")


class Problem(Struct, frozen=True):
    """One thing that is wrong, and where: `location.lat`, `tags[2]`; the path of the whole value is empty."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def worded(errors: "Iterable[ValidationError]", document: Document, value: Any) -> list[Problem]:
    """The errors of a value as problems, each once, the first twenty and how many more."""
    wording = Wording(document, value)
    found: dict[Problem, None] = {}
    more = 0
    for error in errors:
        if len(found) >= MOST:
            more += _count(error)  # words cost more than errors, and nobody reads these
            continue
        for problem in wording.problems(error):
            found.setdefault(problem)
    known = list(found)
    more += len(known[MOST:])
    return [*known[:MOST], Problem("", f"and {more} more")] if more else known


def _count(error: "ValidationError") -> int:
    return len(_kind(error).unexpected) if error.kind.name in _ABOUT_NAMES else 1


def located(value: Any, compiled: "Compiled") -> tuple[Problem, ...]:
    """The innermost places that do not fit, as far as no union hides which branch was meant.

    It only asks yes or no: for values on which a list of errors would take too long.
    """
    found = list(islice(_Locating(compiled).problems(value, compiled.schema, (), 0), MOST + 1))
    return tuple(found) if len(found) <= MOST else (*found[:MOST], Problem("", "and more"))


class _Locating:
    def __init__(self, compiled: "Compiled") -> None:
        self._compiled = compiled
        self._wording = Wording(compiled.document, None)

    def problems(self, value: Any, schema: Any, steps: Steps, chain: int) -> Iterator[Problem]:
        inner = False
        for part, one, step in self._parts(value, schema, chain):
            if self._fails(one, part):
                inner = True
                yield from self.problems(one, part, (*steps, *step), 0 if step else chain + 1)
        if not inner:
            expected = self._wording.described(schema) or "something else"
            yield Problem(format_path(steps), f"does not fit: expected {expected}, got {quoted(value)}")

    def _parts(self, value: Any, schema: Any, chain: int) -> Iterator[tuple[Any, Any, Steps]]:
        if not isinstance(schema, dict):
            return
        if chain < _LONGEST_CHAIN:
            for same in (self._compiled.document.targets.get(id(schema)), *schema.get("allOf", ())):
                yield same, value, ()
        if isinstance(value, dict):
            properties, others = schema.get("properties", {}), schema.get("additionalProperties")
            for name, one in value.items():
                yield properties.get(name, others), one, (name,)
        elif isinstance(value, list):
            prefix, items = array_schemas(schema)
            for at, one in enumerate(value):
                yield prefix[at] if at < len(prefix) else items, one, (at,)

    def _fails(self, value: Any, schema: Any) -> bool:
        validator = self._compiled.part(schema) if isinstance(schema, dict) else None
        return validator is not None and not validator.is_valid(value)


class Wording:
    """How the errors of one schema are told."""

    def __init__(self, document: Document, value: Any) -> None:
        self._document = document
        self._value = value

    def problems(self, error: "ValidationError") -> Iterator[Problem]:
        """An error as one problem or several."""
        name = error.kind.name
        if name == "required":
            yield self._missing(error)
        elif name in _ABOUT_NAMES:
            yield from self._unknown(error)
        elif name in ("anyOf", "oneOf"):
            yield from self._union(error)
        elif name == "propertyNames":
            words = " and ".join(problem.message for problem in self.problems(_kind(error).error))
            yield Problem(self._path(error), f"has a property whose name is not allowed: {words}")
        else:
            told = _WORDS.get(type(error.kind).__name__)
            yield Problem(self._path(error), told(error) if told else f"does not fit {quoted(error.kind.name)}")

    def _path(self, error: "ValidationError", *further: str) -> str:
        """Where the error is; in the validator's path a key "3" is the number 3."""
        steps: list[str | int] = []
        value = self._value
        for step in error.instance_path:
            is_key = isinstance(value, dict) and isinstance(step, int)
            steps.append(_key(value, step) if is_key else step)
            try:
                value = value[steps[-1]]
            except (KeyError, IndexError, TypeError):
                value = None
        return format_path([*steps, *further])

    def _missing(self, error: "ValidationError") -> Problem:
        name = _kind(error).property
        expected = self._expected(self._parent(error).get("properties", {}).get(name, True))
        return Problem(self._path(error, name), f"is required but missing{expected}")

    def _unknown(self, error: "ValidationError") -> Iterator[Problem]:
        known = [str(name) for name in self._parent(error).get("properties", {})]
        unexpected = _kind(error).unexpected
        choices = f"known are: {_listed(known)}" if known else "none are allowed"
        for at, name in enumerate(unexpected):
            nearest = _nearest(str(name), known) if at < MOST else None
            hint = f"did you mean {_listed([nearest])}? " if nearest else ""
            yield Problem(self._path(error, name), f"is no property of this object; {hint}{choices}")

    def _union(self, error: "ValidationError") -> Iterator[Problem]:
        """The errors of the branch that was meant, if one can be told; else what the branches expect."""
        if type(error.kind).__name__ == "OneOfMultipleValid":
            yield Problem(self._path(error), "fits more than one of the alternatives, must fit exactly one")
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
        yield Problem(self._path(error), f"expected {choices}, got {quoted(error.instance)}")

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
    expected, value = " or ".join(_kind(error).types), error.instance
    return f"expected {expected}, got {'null' if value is None else f'{type_of(value)} {quoted(value)}'}"


def _enum(error: "ValidationError") -> str:
    options = _kind(error).options
    nearest = _nearest(str(error.instance), list(map(str, options)), 0.5)
    hint = f"; did you mean {next(quoted(one) for one in options if str(one) == nearest)}?" if nearest else ""
    return f"must be one of {_choices(options)}, got {quoted(error.instance)}{hint}"


def _nearest(word: str, options: list[str], least: float = 0.6) -> str | None:
    """The option most like the word; of so many and so long ones that looking takes no time worth speaking of."""
    if len(word) > MAX_QUOTED_CHARS:
        return None
    near = [one for one in options[:_MOST_COMPARED] if len(one) <= MAX_QUOTED_CHARS]
    from difflib import get_close_matches  # loaded with the first error

    return next(iter(get_close_matches(word, near, 1, least)), None)


def _key(value: dict[str, Any], step: Any) -> str:
    return str(step) if str(step) in value else next((key for key in value if key.isdigit() and int(key) == step), "")


def _choices(options: list[Any]) -> str:
    return _listed([quoted(option) for option in options])


def _listed(words: list[str]) -> str:
    shown = ", ".join(word if word.isprintable() else quoted(word) for word in words[:_MOST_CHOICES])
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
    "Format": lambda error: f"must be of format {_listed([error.kind.format])}, got {quoted(error.instance)}",
    "UniqueItems": lambda error: f"must not hold the same item twice, got {quoted(error.instance)}",
    "ContentEncoding": lambda error: f"must be encoded as {error.kind.content_encoding}, got {quoted(error.instance)}",
    "ContentMediaType": lambda error: f"must be {error.kind.content_media_type}, got {quoted(error.instance)}",
    "UnevaluatedItems": lambda _: "has more items than are allowed, or ones that are not",
    "Contains": lambda error: f"holds no item of the kind that is required, got {quoted(error.instance)}",
    "FalseSchema": lambda _: "must not be given",
    "Not": lambda error: f"must not fit {quoted(error.kind.schema)}, got {quoted(error.instance)}",
    "BacktrackLimitExceeded": lambda _: "takes too long to match against the pattern that it must have",
}
