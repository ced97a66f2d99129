"""Calls written as JSON or as Python: `{"name": "f", "arguments": {"a": 1}}`, `[f(a=1)]`, `print(default_api.f(a=1))`.

Members beside the name and the arguments make a call unreadable: with one brace too many they are lost arguments.
"""

import re
from typing import Any

from midspan.providers.prompted.arguments import check_rest, parse_object, read_parentheses
from midspan.providers.prompted.scanner import (
    Incomplete,
    Scanner,
    Unreadable,
    WrittenCall,
    properties_of,
    skip,
)

Calls = list[WrittenCall] | None

NAME_KEYS = ("name", "tool_name", "function_name", "tool", "function", "action")
ARGUMENT_KEYS = ("arguments", "parameters", "args", "input", "action_input", "tool_input", "kwargs")
_OTHER_KEYS = frozenset(["id", "type", "index", "tool_call_id"])
_LIST_KEYS = frozenset(["tool_calls", "role", "content"])

_KEYS = "|".join([*NAME_KEYS, *ARGUMENT_KEYS, "tool_calls", "type", "id", "index"])
_QUOTE = "[\"'“”]"
_OBJECT = re.compile(rf"(?=(?:\[\s{{0,16}})?\{{\s{{0,16}}{_QUOTE}(?:{_KEYS}){_QUOTE}\s{{0,4}}:)")
_MAX_OBJECT_START = 64
_MAX_NAME_AT = 600
_NAMED = re.compile(
    rf"{_QUOTE}?(?:{'|'.join(NAME_KEYS)}){_QUOTE}?\s{{0,4}}:\s{{0,4}}{_QUOTE}([^\"'“”]{{1,200}}){_QUOTE}"
)
_ARGUMENTS_FIRST = re.compile(
    rf"(?:\[\s{{0,16}})?\{{\s{{0,16}}{_QUOTE}?(?:{'|'.join(ARGUMENT_KEYS)}|tool_calls){_QUOTE}?\s{{0,4}}:\s{{0,4}}[\[{{]"
)


def read_json_calls(scanner: Scanner, *, is_certain: bool) -> Calls:
    """Read an object or a list of objects. `is_certain` says that only calls stand here, and no other data."""
    begin = scanner.at
    try:
        value = scanner.parse(lambda parser: parser.value())
    except (Incomplete, Unreadable) as error:
        scanner.look(begin + _MAX_NAME_AT)  # the name may come after the error
        scanner.tool = _named_tool(scanner, begin, is_certain=is_certain)
        if isinstance(error, Unreadable) and scanner.tool is None:
            return None
        raise
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list) and value.keys() <= _LIST_KEYS:
        value = value["tool_calls"]
    items = value if isinstance(value, list) else [value]
    calls = [_json_call(scanner, item, is_certain=is_certain) for item in items]
    found = [call for call in calls if call is not None]
    if len(found) < len(calls) and (found or is_certain):
        scanner.tool = found[0].name if found else ""
        raise Unreadable("it is not an object with a name and arguments")
    return found or None


def _named_tool(scanner: Scanner, begin: int, *, is_certain: bool) -> str | None:
    """Return the tool that unreadable JSON names; empty if a call is certain and its tool is not known."""
    named = _NAMED.search(scanner.text, begin, begin + _MAX_NAME_AT)
    tool = scanner.tools.resolve(named[1]) if named else None
    is_meant = is_certain or (named is None and _ARGUMENTS_FIRST.match(scanner.text, begin))
    return tool if tool is not None or not is_meant else ""


def _json_call(scanner: Scanner, item: Any, *, is_certain: bool) -> WrittenCall | None:
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
        raise Unreadable(f"{min(others)!r} stands beside its name and its arguments")
    if not argument_keys:
        raise Unreadable('it needs its arguments as an object under "arguments"')
    arguments = item[argument_keys[0]]
    if isinstance(arguments, str):
        arguments = parse_object(arguments)
    elif arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        raise Unreadable(f"its {argument_keys[0]} are not an object")
    return WrittenCall(tool or name, arguments)


def _is_call(scanner: Scanner, name: str, arguments: list[Any], others: set[str]) -> bool:
    """Whether an object in plain text is a call: the declaration of a tool has a name, too, and so has other data."""
    if len(arguments) != 1 or (isinstance(arguments[0], dict) and arguments[0].keys() >= {"type", "properties"}):
        return False
    tool = scanner.tools.resolve(name)
    if tool is None:
        return not others and isinstance(arguments[0], dict) and bool(scanner.tools.similar(name))
    return not others or not others.isdisjoint(properties_of(scanner.tools.schema(tool)))


def read_bare_json(scanner: Scanner) -> Calls:
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


def _read_object(scanner: Scanner) -> Calls:
    is_object = scanner.match(_OBJECT, _MAX_OBJECT_START)
    return read_json_calls(scanner, is_certain=False) if is_object else None


_NO_CODE = "code is not run; write only calls, each on a line of its own"
_LINE_START = re.compile(r"\n(?:[^\W\d]\w{0,20} = )?\Z")
_MAX_LINE_START_CHARS = 40
_SAME_LINE = re.compile(r"[ \t]*")
_LINE_END = re.compile(r"\r|\n|```|#|\Z")
_ASSIGNMENT = re.compile(r"[^\W\d]\w{0,99} = ")
_NO_CALL = re.compile(r"print\(\s{0,4}[^\W\d]\w{0,99}\s{0,4}\)|#[^\n]*(?=\n)")
_FENCE = re.compile(r"```(json|JSON|tool_calls?|tool_code|tool|function_call)?[ \t]{0,8}\r?\n")
_MAX_FENCE_START = 32


def read_fence(scanner: Scanner) -> Calls:
    """Read a code fence of nothing but calls. Other code in it could decide whether a call is made, so none is."""
    head = scanner.match(_FENCE, _MAX_FENCE_START)
    if head is None:
        return None
    begin, is_code = scanner.at, head[1] in ("tool_code", "tool_call")
    calls: list[WrittenCall] = []
    while True:
        scanner.space()
        scanner.look(scanner.at + 3)
        is_cut = scanner.text[scanner.at : scanner.at + 3] in ("", "`", "``")
        if is_cut:
            scanner.at = len(scanner.text)
        if is_cut or scanner.take("```"):
            return calls or None
        if is_code and (skipped := _NO_CALL.match(scanner.text, scanner.at)):
            scanner.at = skipped.end()
            continue
        found = _read_object(scanner)
        if found is None and is_code:
            statement = _read_statement(scanner)
            found = None if statement is None else [statement]
        if found is None:
            _reject_other_code(scanner, begin, calls, is_code=is_code)
            return None
        calls += found
        scanner.check_count(calls)
        scanner.take_after_space(",", ";")


def _reject_other_code(scanner: Scanner, begin: int, calls: list[WrittenCall], *, is_code: bool) -> None:
    end = scanner.text.find("```", scanner.at)
    if end < 0 and is_code:
        scanner.look(len(scanner.text) + 1)
    if calls or (is_code and "default_api." in scanner.text[begin : end if end >= 0 else None]):
        scanner.tool = scanner.tool or ""
        raise Unreadable(_NO_CODE)


def read_statements(scanner: Scanner) -> Calls:
    """Read Gemini's statements on a line of their own: calls, in `print` or not, with semicolons between them."""
    if not _LINE_START.search(scanner.text, max(0, scanner.at - _MAX_LINE_START_CHARS), scanner.at):
        return None
    calls: list[WrittenCall] = []
    while (call := _read_statement(scanner)) is not None:
        calls.append(call)
        scanner.check_count(calls)
        scanner.at = skip(_SAME_LINE, scanner.text, scanner.at)
        if not scanner.take(";"):
            break
        scanner.at = skip(_SAME_LINE, scanner.text, scanner.at)
    if not calls:
        return None
    scanner.look(scanner.at + 3)
    if not _LINE_END.match(scanner.text, scanner.at):
        raise Unreadable(_NO_CODE)
    check_rest(scanner, in_parentheses=True)
    return calls


def _read_statement(scanner: Scanner) -> WrittenCall | None:
    scanner.at = skip(_ASSIGNMENT, scanner.text, scanner.at)
    opening = scanner.take("print(", "python(")
    call = _read_call(scanner)
    if call is not None and opening:
        scanner.expect(")")
    return call


def read_call_list(scanner: Scanner, *, is_certain: bool = False) -> Calls:
    """Read Python calls in brackets. In plain text the first one must be a call of a declared tool."""
    scanner.take("[")
    calls: list[WrittenCall] = []
    while True:
        scanner.space()
        call = _read_call(scanner, is_certain=is_certain or bool(calls))
        if call is None and not calls:
            return None
        if call is None:
            raise Unreadable("there is something else than calls in the list")
        calls.append(call)
        scanner.check_count(calls)
        if not scanner.take_after_space(","):
            scanner.expect("]")
            return calls


def _read_call(scanner: Scanner, *, is_certain: bool = False) -> WrittenCall | None:
    """Read a call of a declared tool, or of any tool where only calls stand."""
    name = scanner.name()
    tool = scanner.tools.resolve(name)
    if not name or (tool is None and not is_certain) or not scanner.sees("("):
        return None
    scanner.tool = tool or ""
    return WrittenCall(tool or name, read_parentheses(scanner, python=True))
