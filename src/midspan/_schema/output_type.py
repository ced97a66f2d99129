"""What a value shall look like, by a Python type or a JSON Schema: its schema, and how JSON becomes the value."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

import msgspec

from midspan._schema.arguments import SchemaValidator
from midspan._schema.signature import Signature, signature_of
from midspan.errors import ArgumentError, SchemaError

_VALUE = "value"
_MOST_TOLD = 5


class OutputType:
    """The shape of values of one type; of a JSON Schema, values stay as JSON has them."""

    def __init__(self, form: Any) -> None:
        if isinstance(form, dict):
            self._signature, self.schema = None, form
            self._checker = SchemaValidator(form, label="output")
        else:
            self._signature = _signature(form)
            parameters = self._signature.parameters
            self.schema = {**parameters["properties"][_VALUE]}
            if "$defs" in parameters:
                self.schema["$defs"] = parameters["$defs"]
            self._checker = SchemaValidator(parameters, label="output")

    def parse(self, value: Any) -> Any:
        """The value that JSON says; an ArgumentError in words that a model can act on, if it says none."""
        if self._signature is None:
            problems = self._checker.problems(value)
            if problems:
                raise _told(map(str, problems))
            return value
        prepared = self._checker.validate({_VALUE: value})
        if prepared.problems:
            raise _told(str(problem).removeprefix(_VALUE).lstrip(".: ") for problem in prepared.problems)
        try:
            positional, keywords = self._signature.bind(prepared.arguments)
        except ArgumentError as error:
            raise _told(line.removeprefix(_VALUE).lstrip(".: ") for line in str(error).splitlines()) from error
        return next(iter((*positional, *keywords.values())))


def parse_json(text: str) -> Any:
    """The JSON that a text is; an ArgumentError if it is none."""
    try:
        return msgspec.json.decode(_without_fence(text))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise ArgumentError("", f"it is not JSON: {error}") from error


def _signature(form: Any) -> Signature:
    """A type read as the only parameter of a function, so that answers and arguments follow the same rules."""

    def answer(value: Any) -> None: ...

    answer.__annotations__ = {_VALUE: form}
    try:
        return signature_of(answer)
    except (SchemaError, TypeError) as error:
        words = str(error).removeprefix(f"parameter {_VALUE!r} of answer: ")
        raise SchemaError(f"an answer cannot have the form {form!r}: {words}") from error


def _told(problems: Iterable[str]) -> ArgumentError:
    return ArgumentError("", "; ".join(islice(problems, _MOST_TOLD)))


def _without_fence(text: str) -> str:
    """The text without the marks of a code block, which models put around JSON even where nobody wants them."""
    bare = text.strip()
    if bare.startswith("```") and bare.endswith("```") and "\n" in bare:
        return bare[bare.index("\n") : -3]
    return bare
