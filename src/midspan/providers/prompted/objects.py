"""A call that is written as one JSON object, in the many words that there are for its name and its arguments."""

import re
from collections.abc import Mapping
from typing import Any

from midspan._schema.lenient_json import IncompleteJson, InvalidJson, LenientJsonParser
from midspan.providers.prompted.arguments import object_in
from midspan.providers.prompted.cursor import Cursor
from midspan.providers.prompted.findings import Broken, Declared, Found, Written

NAME_WORDS = ("name", "tool_name", "function_name", "tool", "function", "action")
ARGUMENT_WORDS = ("arguments", "parameters", "args", "input", "action_input", "tool_input", "kwargs")
_BESIDE = frozenset([*NAME_WORDS, *ARGUMENT_WORDS, "id", "type", "call_id", "tool_call_id", "index"])

# The tool that broken JSON begins to speak of; an id or a type may come first.
_BEGUN = re.compile(
    r"(?:\[\s{0,16})?\{\s{0,16}(?:[\"'“”]?tool_calls[\"'“”]?\s{0,4}:\s{0,4}\[\s{0,16}\{\s{0,16})?"
    r"(?:[\"'“”]?(?:id|type)[\"'“”]?\s{0,4}:\s{0,4}[\"'“”][\w-]{0,64}[\"'“”]\s{0,4},\s{0,16}){0,2}"
    r"(?:[\"'“”]?function[\"'“”]?\s{0,4}:\s{0,4}\{\s{0,16})?"
    rf"[\"'“”]?(?:{'|'.join(NAME_WORDS)})[\"'“”]?\s{{0,4}}:\s{{0,4}}[\"'“”]([^\"'“”]{{1,200}})[\"'“”]"
)
_LONGEST_BEGUN = 600
# Its arguments come first, so nobody knows yet of which tool.
_ARGUMENTS_BEGUN = re.compile(
    rf"(?:\[\s{{0,16}})?\{{\s{{0,16}}[\"'“”]?(?:{'|'.join(ARGUMENT_WORDS)}|tool_calls)[\"'“”]?\s{{0,4}}:\s{{0,4}}[\[{{]"
)


def calls_in(value: Any, tools: Declared, end: int, *, strict: bool, alone: bool = True) -> tuple[Written, ...] | None:
    """The calls that an object or a list of objects says; None if it is about something else.

    Beside a call of a tool there may be one of a tool that is not there, but not `alone`. With `strict` only what can
    be nothing but a call is one: a declaration of a tool, quoted, has a name too.
    """
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
        value = value["tool_calls"]
    items = value if isinstance(value, list) else [value]
    found = [_call(item, tools, end, strict) for item in items]
    calls = tuple(call for call in found if call is not None)
    is_known = not alone or any(call.name in tools.specs for call in calls)
    return calls if calls and len(calls) == len(found) and is_known else None


def _call(item: Any, tools: Declared, end: int, strict: bool) -> Written | None:
    if isinstance(item, dict) and isinstance(item.get("function"), dict):
        item = item["function"]
    if not isinstance(item, dict):
        return None
    name = next((item[key] for key in NAME_WORDS if isinstance(item.get(key), str)), None)
    if name is None or (strict and not item.keys() <= _BESIDE):
        return None
    resolved = tools.resolve(name)
    given = [key for key in ARGUMENT_WORDS if key in item]
    if resolved is None:
        return Written(name, {}) if len(given) == 1 else None  # whoever takes it looks at the name first
    if strict and (len(given) != 1 or _is_schema(item[given[0]])):
        return None
    if len(given) != 1:
        raise Broken('it needs its arguments as an object under "arguments"', end, resolved, over_at=end)
    arguments = item[given[0]]
    if isinstance(arguments, str):
        arguments = object_in(arguments)
    if not isinstance(arguments, dict):
        raise Broken(f"its {given[0]} are not an object", end, resolved, over_at=end)
    return Written(resolved, arguments)


def _is_schema(arguments: Any) -> bool:
    return isinstance(arguments, Mapping) and isinstance(arguments.get("properties"), dict) and "type" in arguments


def calls_at(cursor: Cursor, tools: Declared, *, strict: bool, alone: bool = True) -> Found | None:
    """The calls that the JSON at this place says; none if it is about something else, and whatever it quotes is text.

    JSON that cannot be read is no call if it speaks of no tool. Without `strict` it stands where only calls do.
    """
    begin = cursor.at
    nearly = LenientJsonParser(cursor.text, begin)
    try:
        value = nearly.value()
    except InvalidJson as error:
        if not cursor.over and len(cursor.text) - begin < _LONGEST_BEGUN and not _BEGUN.match(cursor.text, begin):
            raise IncompleteJson from None  # of which tool it speaks may come after what is wrong with it
        name = _named(cursor.text, begin, tools, strict)
        if name is None:
            cursor.in_vain += error.at - begin
            return None
        raise Broken(error.problem, error.at, name) from None
    except IncompleteJson as error:
        raise IncompleteJson(name=_named(cursor.text, begin, tools, strict), depth=error.depth) from None
    cursor.at = nearly.at
    return Found(cursor.at, calls_in(value, tools, cursor.at, strict=strict, alone=alone) or ())


def _named(text: str, at: int, tools: Declared, strict: bool) -> str | None:
    """The tool that broken JSON speaks of; an empty name if that cannot be seen, but a call is meant."""
    found = _BEGUN.match(text, at)
    name = tools.resolve(found[1]) if found else None
    is_meant = not strict or (found is None and _ARGUMENTS_BEGUN.match(text, at))
    return name if name is not None or not is_meant else ""
