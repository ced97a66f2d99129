"""The least value that a schema takes, for calls that the caller forces and nobody has scripted."""

from typing import Any

_DEEPEST = 16


def sample(schema: Any, definitions: dict[str, Any] | None = None, depth: int = 0) -> Any:
    """A value of this schema, in either of the two languages that declarations use."""
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return "text"
    known = definitions if definitions is not None else schema.get("$defs") or schema.get("defs") or {}
    reference = schema.get("$ref") or schema.get("ref")
    if isinstance(reference, str):
        return sample(known.get(reference.rsplit("/", 1)[-1], {}), known, depth + 1)
    for keyword in ("const", "default"):
        if keyword in schema:
            return schema[keyword]
    if schema.get("enum"):
        return schema["enum"][0]
    for keyword in ("anyOf", "oneOf", "allOf"):
        if schema.get(keyword):
            return sample(schema[keyword][0], known, depth + 1)
    return _of_type(schema, known, depth)


def _of_type(schema: dict[str, Any], known: dict[str, Any], depth: int) -> Any:
    words = schema.get("type", "object" if "properties" in schema else "string")
    word = str(words[0] if isinstance(words, list) and words else words).lower()
    if word == "object":
        properties = schema.get("properties") or {}
        return {name: sample(properties.get(name), known, depth + 1) for name in schema.get("required") or ()}
    if word == "array":
        return [sample(schema.get("items"), known, depth + 1)] * int(schema.get("minItems") or 0)
    if word in ("integer", "number"):
        least = schema.get("minimum", schema.get("exclusiveMinimum", 0) or 0)
        return max(int(least) + ("exclusiveMinimum" in schema), 1 if schema.get("maximum", 1) >= 1 else int(least))
    if word == "boolean":
        return True
    return None if word == "null" else "text".ljust(int(schema.get("minLength") or 0), "t")
