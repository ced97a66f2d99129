"""Calls written as JSON: `{"name": "f", "arguments": {"a": 1}}`, in a list, in a code fence or on lines of their own.

Members beside the name and the arguments make a call unreadable: with one brace too many they are lost arguments.
"""

import re
from typing import Any

from midspan.providers.prompted.arguments import check_rest, parse_object
from midspan.providers.prompted.scanner import Incomplete, Scanner, Unreadable, WrittenCall

NAME_KEYS = ("name", "tool_name", "function_name", "tool", "function", "action")
ARGUMENT_KEYS = ("arguments", "parameters", "args", "input", "action_input", "tool_input", "kwargs")
_OTHER_KEYS = frozenset(["id", "type", "index", "tool_call_id"])
_LIST_KEYS = frozenset(["tool_calls", "role", "content"])

_KEYS = "|".join([*NAME_KEYS, *ARGUMENT_KEYS, "tool_calls", "type", "id", "index"])
_QUOTE = "[\"'“”]"
_OBJECT = re.compile(rf"(?:\[\s{{0,16}})?\{{\s{{0,16}}{_QUOTE}(?:{_KEYS}){_QUOTE}\s{{0,4}}:")
_OBJECT_START = re.compile(rf"(?:\[\s{{0,16}})?(?:\{{\s{{0,16}}(?:{_QUOTE}\w{{0,14}}(?:{_QUOTE}\s{{0,4}})?)?)?\Z")
_FENCE = re.compile(r"```(?:json|JSON|tool_call|tool_calls|tool|function_call)?[ \t]{0,8}\r?\n\s{0,16}(?=[\[{])")
_FENCE_START = re.compile(r"`{1,3}[a-zA-Z_]{0,13}[ \t]{0,8}\r?(?:\n\s{0,16})?\Z")

_MAX_NAME_AT = 600
_NAMED = re.compile(
    rf"{_QUOTE}?(?:{'|'.join(NAME_KEYS)}){_QUOTE}?\s{{0,4}}:\s{{0,4}}{_QUOTE}([^\"'“”]{{1,200}}){_QUOTE}"
)
_ARGUMENTS_FIRST = re.compile(
    rf"(?:\[\s{{0,16}})?\{{\s{{0,16}}{_QUOTE}?(?:{'|'.join(ARGUMENT_KEYS)}|tool_calls){_QUOTE}?\s{{0,4}}:\s{{0,4}}[\[{{]"
)


def read_fence(scanner: Scanner) -> list[WrittenCall] | None:
    """Read a code fence that contains nothing but the JSON of calls."""
    head = _FENCE.match(scanner.text, scanner.at)
    if head is None:
        if not scanner.is_final and _FENCE_START.match(scanner.text, scanner.at):
            raise Incomplete
        return None
    scanner.at = head.end()
    calls: list[WrittenCall] = []
    while not calls or not scanner.take("```"):
        found = _read_object(scanner)
        if found is None and not calls:
            return None
        if found is None:
            _fail_in_fence(scanner)
        calls += found or []
        scanner.check_count(calls)
        scanner.take_after_space(",")
        scanner.space()
        if scanner.is_final and scanner.text[scanner.at :] in ("", "`", "``"):
            scanner.at = len(scanner.text)
            break
    return calls


def _fail_in_fence(scanner: Scanner) -> None:
    end = scanner.text.find("```", scanner.at)
    if end < 0 and not scanner.is_final:
        raise Incomplete
    raise scanner.error("there is something else than calls in its code fence", end=end + 3 if end >= 0 else None)


def read_bare(scanner: Scanner) -> list[WrittenCall] | None:
    """Read objects that cannot be anything but calls, on lines of their own."""
    calls: list[WrittenCall] = []
    while (found := _read_object(scanner)) is not None:
        calls += found
        scanner.check_count(calls)
        before = scanner.at
        if not scanner.take_after_space(",", ";"):
            break
        scanner.space()
        if not scanner.sees("{"):
            scanner.at = before
            break
    if calls:
        check_rest(scanner)
    return calls or None


def _read_object(scanner: Scanner) -> list[WrittenCall] | None:
    if not _OBJECT.match(scanner.text, scanner.at):
        if not scanner.is_final and _OBJECT_START.match(scanner.text, scanner.at):
            raise Incomplete
        return None
    return read_json_calls(scanner, is_certain=False)


def read_json_calls(scanner: Scanner, *, is_certain: bool) -> list[WrittenCall] | None:
    """Read an object or a list of objects. `is_certain` says that only calls stand here, and no other data."""
    begin = scanner.at
    try:
        value = scanner.parse(lambda parser: parser.value())
    except Incomplete:
        scanner.tool = _named_tool(scanner, begin, is_certain=is_certain)
        raise
    except Unreadable:
        is_short = len(scanner.text) - begin < _MAX_NAME_AT
        if is_short and not scanner.is_final and not _find_name(scanner, begin):
            raise Incomplete from None  # the name may come after the error
        scanner.tool = _named_tool(scanner, begin, is_certain=is_certain)
        if scanner.tool is None:
            return None
        raise
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list) and value.keys() <= _LIST_KEYS:
        value = value["tool_calls"]
    items = value if isinstance(value, list) else [value]
    calls = [_call(scanner, item, is_certain=is_certain) for item in items]
    found = [call for call in calls if call is not None]
    if len(found) < len(calls) and (found or is_certain):
        scanner.tool = found[0].name if found else ""
        raise scanner.error("it is not an object with a name and arguments", end=scanner.at)
    return found or None


def _find_name(scanner: Scanner, begin: int) -> re.Match[str] | None:
    return _NAMED.search(scanner.text, begin, begin + _MAX_NAME_AT)


def _named_tool(scanner: Scanner, begin: int, *, is_certain: bool) -> str | None:
    """Return the tool that unreadable JSON names; empty if a call is certain and its tool is not known."""
    named = _find_name(scanner, begin)
    tool = scanner.tools.resolve(named[1]) if named else None
    is_meant = is_certain or (named is None and _ARGUMENTS_FIRST.match(scanner.text, begin))
    return tool if tool is not None or not is_meant else ""


def _call(scanner: Scanner, item: Any, *, is_certain: bool) -> WrittenCall | None:
    if not isinstance(item, dict):
        return None
    outer: set[str] = set()
    if isinstance(item.get("function"), dict):
        outer = item.keys() - {"function"}
        item = item["function"]
    name_key = next((key for key in NAME_KEYS if isinstance(item.get(key), str)), None)
    argument_keys = [key for key in ARGUMENT_KEYS if key in item]
    if name_key is None and is_certain and len(item) == 1:  # Apertus writes {"f": {"a": 1}}
        ((name_key, arguments),) = item.items()
        is_call = name_key in scanner.tools.specs and isinstance(arguments, dict)
        return WrittenCall(name_key, arguments) if is_call else None
    if name_key is None:
        return None
    name: str = item[name_key]
    tool = scanner.tools.resolve(name)
    others = (outer | item.keys()) - {name_key, *argument_keys[:1], *_OTHER_KEYS}
    if not is_certain and not _is_call(scanner, name, [item[key] for key in argument_keys], others):
        return None
    scanner.tool = tool or ""
    if others:
        raise scanner.error(f"{min(others)!r} stands beside its name and its arguments", end=scanner.at)
    if not argument_keys:
        raise scanner.error('it needs its arguments as an object under "arguments"', end=scanner.at)
    arguments = item[argument_keys[0]]
    if isinstance(arguments, str):
        arguments = parse_object(arguments)
    elif arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        raise scanner.error(f"its {argument_keys[0]} are not an object", end=scanner.at)
    return WrittenCall(tool or name, arguments)


def _is_call(scanner: Scanner, name: str, arguments: list[Any], others: set[str]) -> bool:
    """Whether an object in plain text is a call: the declaration of a tool has a name, too, and so has other data."""
    if len(arguments) != 1 or (isinstance(arguments[0], dict) and arguments[0].keys() >= {"type", "properties"}):
        return False
    tool = scanner.tools.resolve(name)
    if tool is None:
        return not others and isinstance(arguments[0], dict) and bool(scanner.tools.similar(name))
    return not others or not others.isdisjoint(scanner.tools.properties(tool))
