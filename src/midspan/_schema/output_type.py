"""The type that an answer must have, from a Python type or a JSON Schema."""

import re
from typing import Any

from midspan._schema.arguments import SchemaValidator
from midspan._schema.conversion import argument_error, convert_arguments
from midspan._schema.hints import SchemaBuilder, hint_name
from midspan._schema.lenient_json import InvalidJson, parse_json
from midspan._schema.tree import LIST_KEYWORDS, MAP_KEYWORDS, SCHEMA_KEYWORDS
from midspan.errors import ArgumentError, SchemaError

_OTHER_KEYWORDS = """
    $ref $dynamicRef $recursiveRef $schema $id $comment title description default examples type nullable enum const
    required minProperties maxProperties dependentRequired dependencies minItems maxItems uniqueItems
    minLength maxLength pattern format minimum maximum exclusiveMinimum exclusiveMaximum multipleOf
"""
"""The keywords of JSON Schema that do not hold schemas."""


class OutputType:
    """A schema for answers, and how JSON becomes a value. With a JSON Schema, values stay as they are in JSON."""

    def __init__(self, output: Any) -> None:
        self._convert = None
        if isinstance(output, dict):
            keywords = {*LIST_KEYWORDS, *MAP_KEYWORDS, *SCHEMA_KEYWORDS, *_OTHER_KEYWORDS.split()}
            if output and keywords.isdisjoint(output):  # every answer would match it
                hint = "pass a type, or a JSON Schema such as {'type': 'object', 'properties': …}"
                raise SchemaError(f"output has no keyword of JSON Schema, got {output!r:.80}; {hint}")
            self.schema = output
        else:
            builder = SchemaBuilder("in")
            try:
                built = builder.build(output)
            except (SchemaError, TypeError) as error:
                raise SchemaError(f"output cannot be {hint_name(output)}: {error}") from error
            self._convert = built.convert
            self.schema = builder.resolve(built.schema)
        self._validator = SchemaValidator(self.schema, label="output")

    def parse(self, value: Any) -> Any:
        """Return the value of the type for JSON data. Raises ArgumentError, with a message that a model can act on."""
        if self._convert is None:
            if problems := self._validator.problems(value):
                raise argument_error(problems)
            return value
        validated = self._validator.repair(value)
        if validated.problems:
            raise argument_error(validated.problems)
        return convert_arguments(validated.arguments, self._convert)


def parse_json_answer(text: str) -> Any:
    """Return the JSON data of a text; an ArgumentError if it is not JSON, or if an object has a name twice."""
    # Models put JSON in a code block even if they are not asked to.
    fenced = re.fullmatch(r"```[^\n]*\n(.*)```", text.strip(), re.DOTALL)
    try:
        return parse_json(fenced[1] if fenced else text)
    except InvalidJson as error:
        raise ArgumentError("", f"it is not valid JSON: {error}") from error
