"""What a value shall look like, by a Python type or a JSON Schema: its schema, and how JSON becomes the value."""

from typing import Any

import msgspec

from wasat.errors import ArgumentError, SchemaError
from wasat.schema.arguments import Checker
from wasat.schema.checking.wording import Problem
from wasat.schema.signatures.conversion import argument_error, converted
from wasat.schema.signatures.hints import Forms

_MOST_TOLD = 5


class Shape:
    """The shape of values of one type; of a JSON Schema, values stay as JSON has them."""

    def __init__(self, form: Any) -> None:
        self._hint: Any = Any
        if isinstance(form, dict):
            self.schema = form
        else:
            self.schema, self._hint = _form(form)
        self._checker = Checker(self.schema, word="output")

    def made(self, value: Any) -> Any:
        """The value that JSON says; an ArgumentError in words that a model can act on, if it says none."""
        problems = self._checker.problems(value)
        if problems:
            raise ArgumentError("", _listed(problems))
        try:
            return converted(value, self._hint)
        except (ValueError, RecursionError) as error:
            raise argument_error([(value, self._hint)]) from error


def json_in(text: str) -> Any:
    """The JSON that a text is; an ArgumentError if it is none."""
    try:
        return msgspec.json.decode(_without_fence(text))
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise ArgumentError("", f"it is not JSON: {error}") from error


def _form(hint: Any) -> tuple[dict[str, Any], Any]:
    forms = Forms("in")
    try:
        form = forms.form(hint)
    except (SchemaError, TypeError) as error:
        raise SchemaError(f"an answer cannot have the form {hint!r}: {error}") from error
    return forms.definitions.resolved(form.schema), form.hint


def _listed(problems: tuple[Problem, ...]) -> str:
    return "; ".join(map(str, problems[:_MOST_TOLD]))


def _without_fence(text: str) -> str:
    """The text without the marks of a code block, which models put around JSON even where nobody wants them."""
    bare = text.strip()
    if bare.startswith("```") and bare.endswith("```") and "\n" in bare:
        return bare[bare.index("\n") : -3]
    return bare
