"""Calls written as JSON or as Python: `{"name": "f", "arguments": {"a": 1}}`, `[f(a=1)]`, `print(default_api.f(a=1))`.

Members beside the name and the arguments make a call unreadable: with one brace too many they are lost arguments.
"""

import re
from typing import Any

from midspan._schema.lenient_json import InvalidJson, loads
from midspan.providers.prompted.arguments import check_rest, read_parentheses
from midspan.providers.prompted.scanner import (
    LINE_START,
    MAX_HEAD_CHARS,
    SAME_LINE,
    Calls,
    Scanner,
    Unreadable,
    WrittenCall,
    properties_of,
    skip,
)

NAME_KEYS = ("name", "tool_name", "function_name", "tool", "function", "action")
ARGUMENT_KEYS = ("arguments", "parameters", "args", "input", "action_input", "tool_input", "kwargs")
_OTHER_KEYS = frozenset(["id", "type", "index", "tool_call_id"])
_LIST_KEYS = frozenset(["tool_calls", "role", "content"])

_QUOTE = "[\"'“”]"
_KEYS = "|".join([*NAME_KEYS, *ARGUMENT_KEYS, "tool_calls", "type", "id", "index"])
_OBJECT = rf"(?=(?:\[\s{{0,16}})?\{{\s{{0,16}}{_QUOTE}(?:{_KEYS}){_QUOTE}\s{{0,4}}:)"
_OBJECT_START = re.compile(_OBJECT)
_LIST = r"\[\s{0,16}([^\W\d][\w./:-]{0,99})\("
_LIST_START = re.compile(_LIST)
BRACKETS = re.compile(f"{_OBJECT}|{_LIST}")
"""The beginning of JSON that may be a call, or of a list of calls in Python."""
_MAX_NAME_AT = 600
_NAMED = re.compile(
    rf"{_QUOTE}?(?:{'|'.join(NAME_KEYS)}){_QUOTE}?\s{{0,4}}:\s{{0,4}}{_QUOTE}([^\"'“”]{{1,200}}){_QUOTE}"
)
_ARGUMENTS_FIRST = re.compile(
    rf"(?:\[\s{{0,16}})?\{{\s{{0,16}}{_QUOTE}?(?:{'|'.join(ARGUMENT_KEYS)}|tool_calls){_QUOTE}?\s{{0,4}}:\s{{0,4}}[\[{{]"
)


def read_json_calls(scanner: Scanner, *, is_certain: bool) -> Calls:
    """Read an object or a list of objects. `is_certain` says that it can only be calls, and no other data."""
    begin = scanner.at
    try:
        value = scanner.parse(lambda parser: parser.value())
    except Unreadable:
        tool = _named_tool(scanner, begin, is_certain=is_certain)
        if tool is None:
            return None
        scanner.tool = tool
        raise
    return _calls_in(scanner, value, is_certain=is_certain)


def _calls_in(scanner: Scanner, value: Any, *, is_certain: bool) -> Calls:
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
    if name_key is None:
        return None
    argument_keys = [key for key in ARGUMENT_KEYS if key in item]
    others = (outer | item.keys()) - {name_key, *argument_keys[:1], *_OTHER_KEYS}
    if not is_certain and not _is_call(scanner, item[name_key], [item[key] for key in argument_keys], others):
        return None
    name = scanner.call_of(item[name_key])
    if others:
        raise Unreadable(f"{min(others)!r} stands beside its name and its arguments")
    if not argument_keys:
        raise Unreadable('it needs its arguments as an object under "arguments"')
    arguments = item[argument_keys[0]]
    if isinstance(arguments, str):
        try:
            arguments = loads(arguments)
        except InvalidJson as error:
            raise Unreadable(f"its {argument_keys[0]} are not an object: {error}") from None
    if not isinstance(arguments, dict | None):
        raise Unreadable(f"its {argument_keys[0]} are not an object")
    return WrittenCall(name, arguments or {})


def _is_call(scanner: Scanner, name: str, arguments: list[Any], others: set[str]) -> bool:
    """Whether an object in plain text is a call: the declaration of a tool has a name, too, and so has other data."""
    if len(arguments) != 1 or (isinstance(arguments[0], dict) and arguments[0].keys() >= {"type", "properties"}):
        return False
    tool = scanner.tools.resolve(name)
    if tool is None:
        return not others and isinstance(arguments[0], dict) and bool(scanner.tools.similar(name))
    return not others or not others.isdisjoint(properties_of(scanner.tools.schema(tool)))


_ARGUMENT_KEY = re.compile(rf"(?:{'|'.join(ARGUMENT_KEYS)}|tool_calls){_QUOTE}?\s{{0,4}}:")


def may_be_json_call(scanner: Scanner) -> bool | None:
    """Whether JSON in plain text may be a call. Its beginning must name a tool or have a key of arguments."""
    head = scanner.text[scanner.at : scanner.at + MAX_HEAD_CHARS]
    has_sign = _ARGUMENT_KEY.search(head) or any(name in head for name in scanner.tools.names)
    if len(head) == MAX_HEAD_CHARS and not has_sign:
        return False
    try:
        value = scanner.parse(lambda parser: parser.value())
    except Unreadable:
        return None
    try:
        return _calls_in(scanner, value, is_certain=False) is not None
    except Unreadable:
        return True


def may_be_bracket_call(scanner: Scanner) -> bool | None:
    in_python = _LIST_START.match(scanner.text, scanner.at)
    return may_be_json_call(scanner) if in_python is None else scanner.tools.resolve(in_python[1]) is not None


_NEXT_OBJECT = re.compile(r"\s*[,;]\s*(?={)")


def read_bare_json(scanner: Scanner) -> Calls:
    """Read objects that cannot be anything but calls, on lines of their own."""
    calls: list[WrittenCall] = []
    while (found := _read_object(scanner)) is not None:
        calls += found
        if not scanner.match(_NEXT_OBJECT):
            break
    if calls:
        check_rest(scanner)
    return calls or None


def _read_object(scanner: Scanner) -> Calls:
    return read_json_calls(scanner, is_certain=False) if scanner.match(_OBJECT_START) else None


_NO_CODE = "code is not run; write only calls, each on a line of its own"
_STATEMENT_START = re.compile(rf"(?:{LINE_START})(?:[^\W\d]\w{{0,20}} = )?\Z")
_MAX_LINE_START_CHARS = 40
_LINE_END = re.compile(r"\r|\n|```|#|\Z")
_ASSIGNMENT = re.compile(r"[^\W\d]\w{0,99} = ")
_NO_CALL = re.compile(r"print\(\s{0,4}[^\W\d]\w{0,99}\s{0,4}\)|#[^\n]*(?=\n)")
FENCE = re.compile(
    r"```(?:(tool_code|tool_call)|json|JSON|tool_calls|tool|function_call|)[ \t]{0,8}\r?\n"
    rf"(?(1)|\s{{0,16}}{_OBJECT})"
)


def may_be_fence_call(scanner: Scanner) -> bool | None:
    head = scanner.match(FENCE)
    return True if head is None or head[1] is not None else may_be_json_call(scanner)


def read_fence(scanner: Scanner) -> Calls:
    """Read a code fence of nothing but calls. Other code in it could decide whether a call is made, so none is."""
    head = scanner.match(FENCE)
    begin, is_code = scanner.at, head is not None and head[1] is not None
    calls: list[WrittenCall] = []
    while True:
        scanner.space()
        if scanner.text[scanner.at : scanner.at + 3] in ("", "`", "``", "```"):  # the end of the fence may be cut
            scanner.at = min(scanner.at + 3, len(scanner.text))
            return calls or None
        if is_code and (skipped := _NO_CALL.match(scanner.text, scanner.at)):
            scanner.at = skipped.end()
            continue
        found = _read_object(scanner)
        if found is None and is_code and (statement := _read_statement(scanner)) is not None:
            found = [statement]
        if found is None:
            _reject_other_code(scanner, begin, calls, is_code=is_code)
            return None
        calls += found
        scanner.take_after_space(",", ";")


def _reject_other_code(scanner: Scanner, begin: int, calls: list[WrittenCall], *, is_code: bool) -> None:
    end = scanner.text.find("```", scanner.at)
    if calls or (is_code and "default_api." in scanner.text[begin : end if end >= 0 else None]):
        scanner.tool = scanner.tool or ""
        raise Unreadable(_NO_CODE)


def begins_statement(scanner: Scanner) -> bool:
    return bool(_STATEMENT_START.search(scanner.text, max(0, scanner.at - _MAX_LINE_START_CHARS), scanner.at))


def read_statements(scanner: Scanner) -> Calls:
    """Read Gemini's statements on a line of their own: calls, in `print` or not, with semicolons between them."""
    if not begins_statement(scanner):
        return None
    calls: list[WrittenCall] = []
    has_more = True
    while has_more and (call := _read_statement(scanner)) is not None:
        calls.append(call)
        scanner.match(SAME_LINE)
        has_more = bool(scanner.take(";"))
        scanner.match(SAME_LINE)
    if not calls:
        return None
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
        if not scanner.take_after_space(","):
            scanner.expect("]")
            return calls


def _read_call(scanner: Scanner, *, is_certain: bool = False) -> WrittenCall | None:
    """Read a call of a declared tool, or of any tool where only calls stand."""
    name = scanner.name()
    if not name or (not is_certain and scanner.tools.resolve(name) is None) or not scanner.sees("("):
        return None
    return WrittenCall(scanner.call_of(name), read_parentheses(scanner, python=True))
