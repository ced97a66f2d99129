"""Types of pydantic, by its own schemas and validators. Whoever has one has imported pydantic already."""

import sys
from typing import Any

from midspan._schema.paths import Problem
from midspan._schema.signatures.conversion import ConversionError, Convert, Schema, call_foreign
from midspan._schema.signatures.definitions import without_titles
from midspan._schema.signatures.records import Direction
from midspan.errors import SchemaError


def is_pydantic(cls: Any) -> bool:
    """Return whether this is a model, a dataclass of pydantic, or a type such as `HttpUrl`."""
    return hasattr(cls, "__pydantic_validator__") or hasattr(cls, "__get_pydantic_core_schema__")


def pydantic_type(hint: Any, direction: Direction) -> tuple[Schema, Convert]:
    """Return the schema of a hint and the conversion to its values, both by pydantic."""
    pydantic = sys.modules["pydantic"]
    mode = "validation" if direction == "in" else "serialization"
    try:
        adapter = pydantic.TypeAdapter(hint)
        schema = adapter.json_schema(mode=mode, ref_template="#/$defs/{model}")
    except Exception as error:  # hooks of user classes may run here
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise SchemaError(f"pydantic has no JSON Schema for it: {reason}") from error

    def convert(value: Any) -> Any:
        try:
            return call_foreign(adapter.validate_python, value)
        except ConversionError as error:
            if isinstance(error.__cause__, pydantic.ValidationError):
                raise ConversionError(*map(_problem, error.__cause__.errors(include_url=False))) from error
            raise

    return without_titles(schema), convert


def _problem(error: dict[str, Any]) -> Problem:
    # For errors of validators, pydantic puts the kind of the error before the message.
    cause = error.get("ctx", {}).get("error")
    return Problem(tuple(error["loc"]), str(cause) if isinstance(cause, Exception) and str(cause) else error["msg"])


def pydantic_value(value: Any) -> Any:
    """Return the JSON value of an instance, under the names that its schema has."""
    if callable(dump := getattr(value, "model_dump", None)):
        return dump(mode="json", by_alias=True)
    return sys.modules["pydantic_core"].to_jsonable_python(value, by_alias=True)
