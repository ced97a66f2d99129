"""Functions that decoders share: JSON as a service sent it, and the values in it.

Values are not always of the documented types. A wrong type must not cost the rest of the response.
"""

from typing import Any

import msgspec

from midspan._types.texts import replace_surrogates

READ_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a decoder raises for JSON that does not fit."""


def read_json(data: bytes) -> tuple[Any, bytes]:
    """Return a JSON document, and its bytes, in which invalid characters are replaced."""
    try:
        return msgspec.json.decode(data), data
    except READ_ERRORS:
        data = repair_json(data)
        return msgspec.json.decode(data), data


def repair_json(data: bytes) -> bytes:
    """Return a JSON document without invalid characters, such as unpaired surrogates, which some servers send."""
    import json  # accepts unpaired surrogates; loaded for malformed documents only

    try:
        document = json.loads(data.decode("utf-8-sig", "replace"))
        return replace_surrogates(json.dumps(document, ensure_ascii=False, allow_nan=False)).encode()
    except ValueError as error:
        raise msgspec.DecodeError(str(error)) from error


def value_at(document: Any, *path: str) -> Any:
    """Return the value at a path of names; None if there is none, or if a value on the way is not an object."""
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    return document


def text_at(document: Any, *path: str) -> str | None:
    """Return the text at a path of names; None if it is missing or not a text."""
    value = value_at(document, *path)
    return value if isinstance(value, str) else None


def objects_at(document: Any, *path: str) -> list[dict[str, Any]]:
    """Return the objects in the list at a path of names."""
    value = value_at(document, *path)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def count_at(document: Any, *path: str) -> int:
    """Return the count at a path of names, a number or the text of one; 0 if there is none."""
    try:
        number = int(value_at(document, *path))
    except (TypeError, ValueError, OverflowError):
        return 0
    return number if 0 <= number < 2**53 else 0  # many JSON parsers round larger ones
