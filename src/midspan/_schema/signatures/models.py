"""pydantic's types by pydantic's own schema and validator; pydantic is never imported, whoever has a model did it."""

import sys
from collections.abc import Callable
from typing import Any

from midspan._schema.signatures.conversion import Several, placeholder
from midspan._schema.signatures.definitions import Schema, without_titles
from midspan._schema.signatures.records import Direction


def is_pydantic(kind: Any) -> bool:
    """Models, pydantic's dataclasses, and types such as `HttpUrl`."""
    return hasattr(kind, "__pydantic_validator__") or hasattr(kind, "__get_pydantic_core_schema__")


def pydantic_schema(hint: Any, direction: Direction) -> Schema:
    mode = "validation" if direction == "in" else "serialization"
    adapter = sys.modules["pydantic"].TypeAdapter(hint)
    return without_titles(adapter.json_schema(mode=mode, ref_template="#/$defs/{model}"))


def pydantic_hint(hint: Any, name: str) -> Any:
    return placeholder(name, _validator(sys.modules["pydantic"].TypeAdapter(hint)))


def pydantic_value(value: Any) -> Any:
    """The JSON value of an instance, under the names that its schema has."""
    if callable(dump := getattr(value, "model_dump", None)):
        return dump(mode="json", by_alias=True)
    return sys.modules["pydantic_core"].to_jsonable_python(value, by_alias=True)


def _validator(adapter: Any) -> Callable[[Any], Any]:
    def validate(value: Any) -> Any:
        try:
            return adapter.validate_python(value)
        except sys.modules["pydantic"].ValidationError as error:
            raise Several([(tuple(each["loc"]), each["msg"]) for each in error.errors(include_url=False)]) from error

    return validate
