"""Calls as Qwen Coder writes them: `<function=name><parameter=city>Oslo</parameter></function>`."""

from typing import Any

from midspan._schema.lenient_json import IncompleteJson, InvalidJson, loads
from midspan._schema.type_aliases import schema_for_alias
from midspan.providers.prompted.arguments import in_braces
from midspan.providers.prompted.cursor import Cursor
from midspan.providers.prompted.findings import Broken, Declared, Found, Written

_END = "</parameter>"


def function_tag(cursor: Cursor, tools: Declared) -> Found | None:
    """One call, its arguments in tags or as one object."""
    cursor.take("<function=")
    name = tools.resolve(cursor.name())
    if name is None or not cursor.take(">"):
        return None
    try:
        arguments = _arguments(cursor, tools, name)
    except IncompleteJson as error:
        raise IncompleteJson(name=name, depth=error.depth) from None
    if not cursor.after_space("</function>"):
        raise Broken("</function> is missing after the arguments", cursor.at, name)
    return Found(cursor.at, (Written(name, arguments),))


def _arguments(cursor: Cursor, tools: Declared, name: str) -> dict[str, Any]:
    cursor.space()
    if cursor.sees("{"):
        arguments, cursor.at = in_braces(cursor.text, cursor.at, name)
        return arguments
    arguments = {}
    closing = -1
    while cursor.after_space("<parameter="):
        key_end, end = cursor.text.find(">", cursor.at), cursor.text.find(_END, cursor.at)
        if key_end < 0 or end < 0:
            raise IncompleteJson
        key, text = cursor.text[cursor.at : key_end], cursor.text[key_end + 1 : end]
        if "<parameter=" in text or "</function>" in text or end < key_end or key in arguments:
            raise Broken(f"the parameter {key[:80]!r} has no end, or comes twice", cursor.at, name)
        if closing < end:  # looked for once, and not for each parameter
            closing = cursor.text.find("</function>", end)
        if closing < 0:
            raise IncompleteJson  # if the value turns out to have two meanings, the whole call is refused
        arguments[key] = _value(text, tools.properties(name).get(key), key, closing, name)
        cursor.at = end + len(_END)
    return arguments


def _value(text: str, schema: Any, key: str, at: int, name: str) -> Any:
    """What the text between the tags means by its schema: a text as it stands, or the JSON of anything else."""
    text = text.removeprefix("\n").removesuffix("\n") if "\n" in text else text
    types = types_of(schema)
    if types == {"string"} and text not in ("null", "None"):
        return text
    try:
        value = loads(text)
    except InvalidJson:
        return text  # if it should have been something else, the check of the arguments will say so
    if not isinstance(value, str) and (not types or "string" in types):
        raise Broken(f"{text[:80]!r} for {key[:80]!r} can be a text or a value; give the arguments as JSON", at, name)
    return text if isinstance(value, str) and types and "string" not in types else value if types else text


def types_of(schema: Any) -> set[str]:
    """The types that a schema allows; none if it does not say."""
    if not isinstance(schema, dict):
        return set()
    words = schema.get("type")
    found: set[str] = set()
    for word in words if isinstance(words, list) else [words]:
        known = schema_for_alias(word) if isinstance(word, str) else None
        types = (known or {}).get("type")
        if types is None:
            return set()
        found |= set(types) if isinstance(types, list) else {types}
    return found
