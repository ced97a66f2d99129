"""A call that is written as one JSON object, in the many words that there are for its name and its arguments."""

import re
from collections.abc import Mapping
from typing import Any

from wasat.providers.prompted.arguments import object_in
from wasat.providers.prompted.cursor import Cursor
from wasat.providers.prompted.findings import Broken, Declared, Found, Written
from wasat.schema.repair import Nearly, Unfinished, Unreadable

NAME_WORDS = ("name", "tool_name", "function_name", "tool", "function", "action")
ARGUMENT_WORDS = ("arguments", "parameters", "args", "input", "action_input", "tool_input", "kwargs")
_BESIDE = frozenset([*NAME_WORDS, *ARGUMENT_WORDS, "id", "type", "call_id", "tool_call_id", "index"])

# The tool that broken JSON begins to speak of; an id or a type may come first.
_BEGUN = re.compile(
    r"(?:\[\s{0,16})?\{\s{0,16}(?:[\"'“”]?(?:id|type)[\"'“”]?\s{0,4}:\s{0,4}[\"'“”][\w-]{0,64}[\"'“”]\s{0,4},\s{0,16})?"
    rf"[\"'“”]?(?:{'|'.join(NAME_WORDS)})[\"'“”]?\s{{0,4}}:\s{{0,4}}[\"'“”]([^\"'“”]{{1,200}})[\"'“”]"
)


def calls_in(value: Any, tools: Declared, end: int, *, strict: bool) -> tuple[Written, ...] | None:
    """The calls that an object or a list of objects says; None if it is about something else.

    With `strict` only what can be nothing but a call is one: a declaration of a tool, quoted, has a name too.
    """
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
        value = value["tool_calls"]
    items = value if isinstance(value, list) else [value]
    found = [_call(item, tools, end, strict) for item in items]
    calls = tuple(call for call in found if call is not None)
    return calls if calls and len(calls) == len(found) else None


def _call(item: Any, tools: Declared, end: int, strict: bool) -> Written | None:
    if isinstance(item, dict) and isinstance(item.get("function"), dict):
        item = item["function"]
    if not isinstance(item, dict):
        return None
    name = next((item[key] for key in NAME_WORDS if isinstance(item.get(key), str)), None)
    resolved = tools.resolve(name) if name is not None else None
    if resolved is None or (strict and not item.keys() <= _BESIDE):
        return None
    given = [key for key in ARGUMENT_WORDS if key in item]
    if strict and (len(given) != 1 or _is_schema(item[given[0]])):
        return None
    if len(given) != 1:
        raise Broken('it needs its arguments as an object under "arguments"', end, resolved)
    arguments = item[given[0]]
    if isinstance(arguments, str):
        arguments = object_in(arguments)
    if not isinstance(arguments, dict):
        raise Broken(f"its {given[0]} are not an object", end, resolved)
    return Written(resolved, arguments)


def _is_schema(arguments: Any) -> bool:
    return isinstance(arguments, Mapping) and isinstance(arguments.get("properties"), dict) and "type" in arguments


def calls_at(cursor: Cursor, tools: Declared, *, strict: bool) -> Found | None:
    """The calls that the JSON at this place says."""
    begin = cursor.at
    nearly = Nearly(cursor.text, begin)
    try:
        value = nearly.value()
    except Unreadable as error:
        name = _named(cursor.text, begin, tools)
        if name is None:
            return None
        raise Broken(error.problem, error.at, name) from None
    except Unfinished:
        raise Unfinished(name=_named(cursor.text, begin, tools)) from None
    cursor.at = nearly.at
    calls = calls_in(value, tools, cursor.at, strict=strict)
    return None if calls is None else Found(cursor.at, calls)


def _named(text: str, at: int, tools: Declared) -> str | None:
    found = _BEGUN.match(text, at)
    return tools.resolve(found[1]) if found else None
