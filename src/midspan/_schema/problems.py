"""What is wrong with a value and where, in messages that help a model to correct it."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from msgspec import Struct

from midspan._schema.tree import ANYTHING, TYPES, SchemaNode, SchemaTree, find_pointer, format_pointer, type_of

Steps = tuple[str | int, ...]
"""The path from a value to a part of it: keys of objects and indexes of arrays."""

MAX_QUOTED_CHARS = 120
MAX_PROBLEMS = 20
_MAX_LISTED = 12
_MAX_COMPARED = 500
CONSTRAINTS = {
    "const": "{}",
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "pattern": "text that matches the pattern {}",
    "format": "format {}",
    "contentEncoding": "encoded as {}",
    "contentMediaType": "of media type {}",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "additionalItems": "at most {} items",
    "uniqueItems": "no item twice",
    "contains": "an item that fits {}",
    "unevaluatedItems": "no other items",
    "minProperties": "at least {} properties",
    "maxProperties": "at most {} properties",
    "propertyNames": "names of properties that fit {}",
    "dependentRequired": "if the first is given the others must be: {}",
    "unevaluatedProperties": "no other properties",
    "falseSchema": "no value",
    "not": "nothing that fits {}",
    "if": "conditions apply",
    "dependentSchemas": "conditions apply",
}
"""What a keyword asks for, in problems and in the descriptions of adapted schemas."""


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
    except (ValueError, TypeError, RecursionError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= MAX_QUOTED_CHARS else text[: MAX_QUOTED_CHARS - 1] + "…"


def format_errors(errors: Iterable[Any], tree: SchemaTree) -> list[Problem]:
    """Return the errors of a value as problems without repetitions: the first twenty, and whether there are more."""
    problems = (problem for error in errors for problem in _format_error(error, tree))
    first = list(islice(problems, MAX_PROBLEMS))
    return [*dict.fromkeys(first), *[Problem((), "and more") for _ in islice(problems, 1)]]


def schema_error_text(error: ValueError) -> str:
    """Say where the schema is wrong, if that is known, and what is wrong with it: ` at /type: 5 is not a type`."""
    import jsonschema_rs

    if not isinstance(error, jsonschema_rs.ValidationError):
        return f": {(str(error).strip().splitlines() or ['it cannot be read'])[0][:300]}"
    pointer = format_pointer(*error.instance_path)
    if pointer.endswith("/type") or "/type/" in pointer:
        return f" at {pointer}: {quoted(error.instance)} is not a type; the types are {', '.join(TYPES)}"
    return f"{' at ' if pointer else ''}{pointer}: {error.message[:300]}"


def _format_error(error: Any, tree: SchemaTree) -> Iterator[Problem]:
    """Yield an error of the validator, a `jsonschema_rs.ValidationError`, as one problem or several.

    It is not annotated, because the stubs of the validator leave open which fields each kind of error has.
    """
    keyword = error.kind.name
    steps = tuple(error.instance_path)
    # The schema that the keyword is in.
    node = tree.node(find_pointer(tree.root.schema, error.schema_path[:-1]))
    if keyword == "required":
        name = error.kind.property
        expected = describe(node.properties.get(name, ANYTHING))
        yield Problem((*steps, name), "is required but missing" + (f"; expected {expected}" if expected else ""))
    elif keyword in ("additionalProperties", "unevaluatedProperties"):
        known = [str(name) for name in node.properties]
        choices = f"known properties: {_listed(known)}" if known else "no properties are allowed"
        for name in error.kind.unexpected:
            close = nearest(str(name), known)
            hint = f"did you mean {_listed([close])}? " if close else ""
            yield Problem((*steps, name), f"is not a property of this object; {hint}{choices}")
    elif keyword in ("anyOf", "oneOf"):
        yield from _format_union(error, node, tree)
    elif keyword == "propertyNames":
        reasons = " and ".join(problem.message for problem in _format_error(error.kind.error, tree))
        yield Problem(steps, f"has a property whose name is not allowed: {reasons}")
    else:
        # Only errors of `contains` have no value. The path of the others may lead through an `$id` and find nothing.
        limit = node.schema.get(keyword, "the schema") if keyword == "contains" else error.kind.value
        yield Problem(steps, _value_message(error, limit))


def _format_union(error: Any, node: SchemaNode, tree: SchemaTree) -> Iterator[Problem]:
    """Yield the errors of the branch that was meant, if there is only one; else what the branches expect."""
    from jsonschema_rs import ValidationErrorKind  # slow to import, but the error comes from it

    steps = tuple(error.instance_path)
    if isinstance(error.kind, ValidationErrorKind.OneOfMultipleValid):
        yield Problem(steps, "fits more than one of the alternatives, must fit exactly one")
        return
    meant = [branch for branch in error.kind.context if not _is_of_another_type(branch, len(steps))]
    if len(meant) == 1:
        for inner in meant[0]:
            yield from _format_error(inner, tree)
        return
    choices = _alternatives(node.subschemas.get(error.kind.name, [])) or "one of the alternatives"
    yield Problem(steps, f"expected {choices}, got {quoted(error.instance)}")


def describe(node: SchemaNode, depth: int = 0) -> str:
    """Return what a schema expects in a word or two; an empty text if it expects nothing in particular."""
    for _ in range(8):  # references may form a circle
        node = node.ref_target or node
    if depth > 2:
        return ""
    if "const" in node.schema:
        return quoted(node.schema["const"])
    if "enum" in node.schema:
        return f"one of {_listed([*map(quoted, node.schema['enum'])])}"
    types = node.schema.get("type", "")
    if types == "array":
        items = describe(node.items, depth + 1)
        return f"array of {items}" if items else "array"
    if types == "object" and node.schema.get("required"):
        return f"object with {_listed(node.schema['required'])}"
    if not types:
        return _alternatives([variant for union in node.unions[:1] for variant in union[:_MAX_LISTED]], depth + 1)
    return types if isinstance(types, str) else " or ".join(types)


def _alternatives(nodes: list[SchemaNode], depth: int = 0) -> str:
    return " or ".join(dict.fromkeys(filter(None, (describe(node, depth) for node in nodes))))


def _is_of_another_type(branch: list[Any], depth: int) -> bool:
    """Return whether a branch failed because the value has another type or tag than the branch expects."""
    return any(
        error.kind.name in ("type", "const", "enum") and len(error.instance_path) <= depth + (error.kind.name != "type")
        for error in branch
    )


def _value_message(error: Any, limit: Any) -> str:
    """Return the message about a value that is not of the right type, not one of the options, or beyond a limit."""
    from jsonschema_rs import ValidationErrorKind  # slow to import, but the error comes from it

    keyword, value = error.kind.name, error.instance
    if keyword == "type":
        got = "null" if value is None else f"{type_of(value)} {quoted(value)}"
        return f"expected {' or '.join(error.kind.types)}, got {got}"
    if keyword == "enum":
        close = nearest(str(value), list(map(str, limit)), 0.5)
        hint = next((f"; did you mean {quoted(option)}?" for option in limit if str(option) == close), "")
        return f"must be one of {_listed([*map(quoted, limit)])}, got {quoted(value)}{hint}"
    if isinstance(error.kind, ValidationErrorKind.BacktrackLimitExceeded):
        return "takes too long to match against its pattern"
    return f"expected {describe_constraint(keyword, limit)}, got {quoted(value)}"


def describe_constraint(keyword: str, limit: Any) -> str:
    """Return what a keyword asks for: `at least 1 item`."""
    template = CONSTRAINTS.get(keyword, f"a value that fits {quoted(keyword)}")
    if limit == 1:
        template = template.replace("properties", "property").removesuffix("s")
    return template.format(quoted(limit))


def nearest(word: str, options: list[str], cutoff: float = 0.6) -> str | None:
    """Return the option most like the word. Long words and long lists are not compared, to bound the time."""
    if len(word) > MAX_QUOTED_CHARS:
        return None
    from difflib import get_close_matches  # loaded with the first error

    candidates = [option for option in options[:_MAX_COMPARED] if len(option) <= MAX_QUOTED_CHARS]
    return next(iter(get_close_matches(word, candidates, cutoff=cutoff)), None)


def _listed(words: list[str]) -> str:
    shown = ", ".join(word if word.isprintable() else quoted(word) for word in words[:_MAX_LISTED])
    return shown if len(words) <= _MAX_LISTED else f"{shown} and {len(words) - _MAX_LISTED} more"
