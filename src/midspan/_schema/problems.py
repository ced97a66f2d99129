"""What is wrong with a value and where, in messages that help a model to correct it."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import Struct

from midspan._schema.tree import ANYTHING, SchemaNode, SchemaTree, type_of

Steps = tuple[str | int, ...]
"""The way from a value to a part of it: keys of objects and indexes of arrays."""

MAX_QUOTED_CHARS = 120
MAX_PROBLEMS = 20
_MAX_LISTED = 12
_MAX_COMPARED = 500
_UNKNOWN_NAMES = ("additionalProperties", "unevaluatedProperties")


class Problem(Struct, frozen=True):
    """One thing that is wrong, and where. The location of the whole value has no steps."""

    steps: Steps
    message: str

    @property
    def path(self) -> str:
        return format_path(self.steps)

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.steps else self.message


def format_path(steps: Steps | list[str | int]) -> str:
    """Return the location as people write it: `stops[0].day`."""
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
    """Return the value as JSON, cut to a length that a message can hold."""
    try:
        import json  # loaded with the first error

        text = json.dumps(value, ensure_ascii=False, default=repr)
    except (ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= MAX_QUOTED_CHARS else text[: MAX_QUOTED_CHARS - 1] + "…"


def format_errors(errors: Iterable[Any], tree: SchemaTree) -> list[Problem]:
    """Return the errors of a value as problems without repetitions: the first twenty, and how many more there are."""
    found: dict[Problem, None] = {}
    more = 0
    for error in errors:
        if len(found) < MAX_PROBLEMS:
            found.update(dict.fromkeys(format_error(error, tree)))
        else:  # formatting costs more than finding, and nobody reads these
            more += len(error.kind.unexpected) if error.kind.name in _UNKNOWN_NAMES else 1
    more += len(list(found)[MAX_PROBLEMS:])
    problems = list(found)[:MAX_PROBLEMS]
    return [*problems, Problem((), f"and {more} more")] if more else problems


def format_error(error: Any, tree: SchemaTree) -> Iterator[Problem]:
    """Yield an error of the validator, a `jsonschema_rs.ValidationError`, as one problem or several.

    It is not annotated, because the stubs of the validator leave open which fields each kind of error has.
    """
    keyword = error.kind.name
    steps = tuple(error.instance_path)
    if keyword == "required":
        name = error.kind.property
        expected = describe(_parent(error, tree).properties.get(name, ANYTHING))
        yield Problem((*steps, name), "is required but missing" + (f"; expected {expected}" if expected else ""))
    elif keyword in _UNKNOWN_NAMES:
        known = [str(name) for name in _parent(error, tree).properties]
        for index, name in enumerate(error.kind.unexpected):
            nearest = _nearest(str(name), known) if index < MAX_PROBLEMS else None
            yield Problem((*steps, name), _unknown_property(known, nearest))
    elif keyword in ("anyOf", "oneOf"):
        yield from _format_union(error, tree)
    elif keyword == "propertyNames":
        reasons = " and ".join(problem.message for problem in format_error(error.kind.error, tree))
        yield Problem(steps, f"has a property whose name is not allowed: {reasons}")
    else:
        message = _MESSAGES.get(type(error.kind).__name__)
        yield Problem(steps, message(error) if message else f"does not fit {quoted(keyword)}")


def _format_union(error: Any, tree: SchemaTree) -> Iterator[Problem]:
    """Yield the errors of the branch that was meant, if there is only one; else what the branches expect."""
    steps = tuple(error.instance_path)
    if type(error.kind).__name__ == "OneOfMultipleValid":
        yield Problem(steps, "fits more than one of the alternatives, must fit exactly one")
        return
    meant = [branch for branch in error.kind.context if not _is_of_another_type(branch, len(steps))]
    if len(meant) == 1:
        for inner in meant[0]:
            yield from format_error(inner, tree)
        return
    expected = [describe(branch) for branch in _parent(error, tree).subschemas.get(error.kind.name, [])]
    choices = " or ".join(dict.fromkeys(filter(None, expected))) or "one of the alternatives"
    yield Problem(steps, f"expected {choices}, got {quoted(error.instance)}")


def _parent(error: Any, tree: SchemaTree) -> SchemaNode:
    """Return the schema that the keyword of an error is in."""
    schema: Any = tree.root.schema
    for step in error.schema_path[:-1]:
        try:
            schema = schema[step]
        except (KeyError, IndexError, TypeError):
            return ANYTHING
    return tree.node(schema)


def describe(node: SchemaNode, depth: int = 0) -> str:
    """Return what a schema expects in a word or two; an empty text if it expects nothing in particular."""
    for _ in range(8):
        node = node.target or node
    if depth > 2:
        return ""
    if "const" in node.schema:
        return quoted(node.schema["const"])
    if "enum" in node.schema:
        return f"one of {_quoted_list(node.schema['enum'])}"
    types = node.schema.get("type", "")
    if types == "array":
        items = describe(node.items, depth + 1)
        return f"array of {items}" if items else "array"
    if types == "object" and node.schema.get("required"):
        return f"object with {_listed(node.schema['required'])}"
    if not types and node.variants:
        expected = [describe(variant, depth + 1) for variant in node.variants[:_MAX_LISTED]]
        return " or ".join(dict.fromkeys(filter(None, expected)))
    return types if isinstance(types, str) else " or ".join(types)


def _is_of_another_type(branch: list[Any], depth: int) -> bool:
    """Return whether a branch failed because the value has another type or tag than the branch expects."""
    return any(
        error.kind.name in ("type", "const", "enum") and len(error.instance_path) <= depth + (error.kind.name != "type")
        for error in branch
    )


def _unknown_property(known: list[str], nearest: str | None) -> str:
    hint = f"did you mean {_listed([nearest])}? " if nearest else ""
    choices = f"known properties: {_listed(known)}" if known else "no properties are allowed"
    return f"is not a property of this object; {hint}{choices}"


def _wrong_type(error: Any) -> str:
    value = error.instance
    got = "null" if value is None else f"{type_of(value)} {quoted(value)}"
    return f"expected {' or '.join(error.kind.types)}, got {got}"


def _wrong_option(error: Any) -> str:
    options = error.kind.options
    nearest = _nearest(str(error.instance), list(map(str, options)), 0.5)
    hint = f"; did you mean {next(quoted(option) for option in options if str(option) == nearest)}?" if nearest else ""
    return f"must be one of {_quoted_list(options)}, got {quoted(error.instance)}{hint}"


def _nearest(word: str, options: list[str], cutoff: float = 0.6) -> str | None:
    """Return the option most like the word. Long words and long lists are not searched, to bound the time."""
    if len(word) > MAX_QUOTED_CHARS:
        return None
    from difflib import get_close_matches  # loaded with the first error

    candidates = [option for option in options[:_MAX_COMPARED] if len(option) <= MAX_QUOTED_CHARS]
    return next(iter(get_close_matches(word, candidates, 1, cutoff)), None)


def _quoted_list(values: list[Any]) -> str:
    return _listed([quoted(value) for value in values])


def _listed(words: list[str]) -> str:
    shown = ", ".join(word if word.isprintable() else quoted(word) for word in words[:_MAX_LISTED])
    return shown if len(words) <= _MAX_LISTED else f"{shown} and {len(words) - _MAX_LISTED} more"


def _message(template: str, attribute: str, show: Callable[[Any], str] = str) -> Callable[[Any], str]:
    return lambda error: f"{template.format(show(getattr(error.kind, attribute)))}, got {quoted(error.instance)}"


_MESSAGES: dict[str, Callable[[Any], str]] = {
    "Type": _wrong_type,
    "Enum": _wrong_option,
    "Constant": _message("must be {}", "expected_value", quoted),
    "Minimum": _message("must be at least {}", "limit"),
    "Maximum": _message("must be at most {}", "limit"),
    "ExclusiveMinimum": _message("must be greater than {}", "limit"),
    "ExclusiveMaximum": _message("must be less than {}", "limit"),
    "MinLength": _message("must have at least {} characters", "limit"),
    "MaxLength": _message("must have at most {} characters", "limit"),
    "MinItems": _message("must have at least {} items", "limit"),
    "MaxItems": _message("must have at most {} items", "limit"),
    "MinProperties": _message("must have at least {} properties", "limit"),
    "MaxProperties": _message("must have at most {} properties", "limit"),
    "AdditionalItems": _message("must have at most {} items", "limit"),
    "MultipleOf": _message("must be a multiple of {}", "multiple_of"),
    "Pattern": _message("must match the pattern {}", "pattern", quoted),
    "Format": _message("must have the format {}", "format"),
    "ContentEncoding": _message("must be encoded as {}", "content_encoding"),
    "ContentMediaType": _message("must be {}", "content_media_type"),
    "Not": _message("must not fit {}", "schema", quoted),
    "UniqueItems": lambda error: f"must not contain the same item twice, got {quoted(error.instance)}",
    "Contains": lambda error: f"contains none of the items that it must contain, got {quoted(error.instance)}",
    "UnevaluatedItems": lambda _: "has too many items, or items that are not allowed",
    "FalseSchema": lambda _: "is not allowed here",
    "BacktrackLimitExceeded": lambda _: "takes too long to match against its pattern",
}
