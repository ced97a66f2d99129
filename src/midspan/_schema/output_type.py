"""The type that an answer must have, from a Python type or a JSON Schema."""

import re
from typing import Any

import msgspec

from midspan._schema.arguments import SchemaValidator
from midspan._schema.conversion import argument_error, convert_arguments
from midspan._schema.hints import SchemaBuilder, hint_name
from midspan._schema.problems import Problem
from midspan.errors import ArgumentError, SchemaError

_VALUE = "value"


class OutputType:
    """A schema for answers, and how JSON becomes a value. With a JSON Schema, values stay as they are in JSON."""

    def __init__(self, output: Any) -> None:
        self._convert = None
        if isinstance(output, dict):
            self.schema = output
            self._validator = SchemaValidator(output, label="output")
            return
        builder = SchemaBuilder("in")
        try:
            built = builder.build(output)
        except (SchemaError, TypeError) as error:
            raise SchemaError(f"output cannot be {hint_name(output)}: {error}") from error
        self._convert = built.convert
        self.schema = builder.resolve(built.schema)
        # As the only property of an object, so that answers are coerced like arguments.
        outer = {"type": "object", "properties": {_VALUE: built.schema}, "required": [_VALUE]}
        self._validator = SchemaValidator(builder.resolve(outer), label="output")

    def parse(self, value: Any) -> Any:
        """Return the value of the type for JSON data. Raises ArgumentError, with a message that a model can act on."""
        if self._convert is None:
            if problems := self._validator.problems(value):
                raise argument_error(problems)
            return value
        validated = self._validator.validate({_VALUE: value})
        if validated.problems:
            raise argument_error([Problem(problem.steps[1:], problem.message) for problem in validated.problems])
        return convert_arguments(validated.arguments[_VALUE], self._convert)


def parse_json(text: str) -> Any:
    """Return the JSON data of a text; an ArgumentError if it is not JSON."""
    try:
        # Models put JSON in a code block even if they are not asked to.
        fenced = re.fullmatch(r"```.*?\n(.*)```", text.strip(), re.DOTALL)
        return msgspec.json.decode(fenced[1] if fenced else text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise ArgumentError("", f"it is not JSON: {error}") from error
