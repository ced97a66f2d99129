"""Reads calls as models write them: as JSON, as Python, in tags, or after the name of the tool.

Members other than the name and the arguments make a call unreadable: an extra brace may have cut off the arguments.
"""

import re
from typing import Any

from midspan._schema.lenient_json import CUT, InvalidJson, parse_lenient_json
from midspan._types.parts import ToolCall
from midspan.providers.prompted.arguments import (
    TAGS,
    check_names,
    read_object,
    read_parameters,
    read_parentheses,
    read_tag_call,
    reject_more_arguments,
    reject_more_parameters,
)
from midspan.providers.prompted.scanner import ReadCalls, Scanner, Unreadable

# Marks around each call of a section: DeepSeek and Kimi K2.
CALL_MARKS = {
    "<\uff5ctool\u2581call\u2581begin\uff5c>": "<\uff5ctool\u2581call\u2581end\uff5c>",
    "<|tool_call_begin|>": "<|tool_call_end|>",
}
_SEPARATORS = ("<\uff5ctool\u2581sep\uff5c>", "<|tool_call_argument_begin|>")
_NO_CALL = re.compile(r"(?:\s*+(?:print\(\s{0,4}[^\W\d]\w{0,99}\s{0,4}\)|#[^\n]*(?=\n)))*")
"""Code between calls that changes nothing: comments, and a result that is printed."""


def read_calls(scanner: Scanner) -> ReadCalls:
    """Read calls up to the end mark of the form; without one, as long as commas or semicolons follow."""
    form, begin, end = scanner.form, scanner.at, scanner.at
    calls: list[ToolCall] = []
    has_more = True
    while has_more:
        scanner.match(_NO_CALL)
        mark = scanner.accept(*CALL_MARKS)
        scanner.skip_space()
        more = _read_any(scanner)
        if more is None:
            break
        if mark:
            scanner.expect(CALL_MARKS[mark])
        calls += more
        end = scanner.at
        has_more = bool(scanner.accept(",", ";")) or form.needs_end_mark
        scanner.match(_NO_CALL)
        if scanner.accept(*form.end_marks):
            return calls
    if not calls:
        check_unrecognised(scanner, begin)
        return None
    if form.needs_end_mark:
        raise Unreadable(f"expected {form.end_marks[0]} after it")
    scanner.at = end
    reject_more_arguments(scanner)
    return calls


NAME_KEYS = ("name", "tool_name", "function_name", "tool", "function", "action")
ARGUMENT_KEYS = ("arguments", "parameters", "args", "input", "action_input", "tool_input", "kwargs")
_CALL_MEMBER = re.compile(rf"[\"'“]?(?:{'|'.join([*NAME_KEYS, *ARGUMENT_KEYS])})[\"'”]?\s{{0,4}}[:=]")
_MAX_UNRECOGNISED_CHARS = 2_000


def check_unrecognised(scanner: Scanner, begin: int) -> None:
    """Raise `Unreadable` if the text between the marks was meant as a call. Otherwise it only mentions the mark."""
    window = scanner.text[begin : begin + _MAX_UNRECOGNISED_CHARS]
    has_end = any(mark in window for mark in scanner.form.end_marks)
    is_cut = len(window) < _MAX_UNRECOGNISED_CHARS and len(window.split()) == 1
    is_meant = ((has_end or is_cut) and scanner.form.needs_end_mark) or _CALL_MEMBER.match(window.lstrip())
    if is_meant and scanner.form.is_unambiguous:
        scanner.is_call, scanner.tool = True, ""
        raise Unreadable("it is not one of the known forms of a call")


_JSON_START = re.compile(r"(?:\[\s*)?[{\]]")


def _read_any(scanner: Scanner) -> ReadCalls:
    """Read one call, or a list of calls, in any form."""
    if _JSON_START.match(scanner.text, scanner.at):
        return read_json_calls(scanner)
    if scanner.peek("["):
        return _read_call_list(scanner)
    if tag := scanner.accept(*TAGS):
        call = read_tag_call(scanner, tag)
    else:
        call = _read_named(scanner, is_unambiguous=scanner.form.is_unambiguous)
    return None if call is None else [call]


def _read_call_list(scanner: Scanner) -> ReadCalls:
    """Read Python calls in brackets. In plain text the first one must be a call of a declared tool."""
    scanner.accept("[")
    calls: list[ToolCall] = []
    while not calls or scanner.accept(","):
        scanner.skip_space()
        call = _read_named(scanner, is_unambiguous=scanner.form.is_unambiguous or bool(calls))
        if call is not None:
            calls.append(call)
        elif calls:
            raise Unreadable("the list contains something other than calls")
        else:
            return None
    scanner.expect("]")
    return calls


_ASSIGNMENT = re.compile(r"[^\W\d]\w{0,99} = ")
_ID_AFTER_MARK = re.compile(r"[\w-]{0,64}")


def _read_named(scanner: Scanner, *, is_unambiguous: bool) -> ToolCall | None:
    """Read a call that begins with the name of its tool, or with `print(`. In plain text, the tool must be declared."""
    scanner.match(_ASSIGNMENT)
    opening = scanner.accept("print(", "python(")
    is_gemma = bool(scanner.accept("call:"))
    name = scanner.read_name()
    if name == "function" and scanner.accept(*_SEPARATORS):  # DeepSeek 3 writes the kind of the call first
        name = scanner.read_name()
    if not name or not (is_unambiguous or scanner.tools.resolve(name)):
        return None
    name = scanner.set_tool(name if scanner.tools.resolve(name) else name.removesuffix(".call"))
    arguments = _read_arguments(scanner, is_gemma=is_gemma)
    if arguments is None:
        return None
    if opening:
        scanner.expect(")")
    return ToolCall("", name, arguments)


def _read_arguments(scanner: Scanner, *, is_gemma: bool) -> dict[str, Any] | None:
    """Read the arguments after the name of a tool; None if there are none and the tool is not known."""
    if scanner.peek("("):
        return read_parentheses(scanner, keywords_only=True)
    if is_gemma and scanner.peek("{"):
        arguments = read_object(scanner, tokens=True)
        check_names(scanner, arguments)
        return arguments
    if scanner.accept("[CALL_ID]"):
        scanner.match(_ID_AFTER_MARK)
    if scanner.accept("[ARGS]", *_SEPARATORS) or scanner.peek("{"):
        return read_object(scanner)
    scanner.skip_space()
    if scanner.accept("```json", "```"):
        arguments = read_object(scanner)
        scanner.expect("```")
        return arguments
    if scanner.peek("<arg_key>") or (scanner.form.needs_end_mark and scanner.peek(*scanner.form.end_marks)):
        return read_parameters(scanner)
    if scanner.tool in scanner.tools.specs:
        raise Unreadable("its arguments cannot be recognised")
    return None


_OTHER_KEYS = frozenset(["id", "type", "index", "tool_call_id"])
_LIST_KEYS = frozenset(["tool_calls", "role", "content"])
QUOTE = "[\"'“”]"
_MAX_NAME_AT = 600
_NAMED = re.compile(rf"{QUOTE}?(?:{'|'.join(NAME_KEYS)}){QUOTE}?\s{{0,4}}:\s{{0,4}}{QUOTE}([^\"'“”]{{1,200}}){QUOTE}")
_ARGUMENTS_FIRST = re.compile(
    rf"(?:\[\s{{0,16}})?\{{\s{{0,16}}{QUOTE}?(?:{'|'.join(ARGUMENT_KEYS)}|tool_calls){QUOTE}?\s{{0,4}}:\s{{0,4}}[\[{{]"
)


def read_json_calls(scanner: Scanner) -> ReadCalls:
    """Read an object or a list of objects."""
    begin, is_unambiguous = scanner.at, scanner.form.is_unambiguous
    try:
        value = scanner.read_value()
    except Unreadable:
        named = _NAMED.search(scanner.text, begin, begin + _MAX_NAME_AT)
        tool = scanner.tools.resolve(named[1]) if named else ""
        if not tool and not is_unambiguous and (named or not _ARGUMENTS_FIRST.match(scanner.text, begin)):
            return None
        scanner.is_call, scanner.tool = True, tool
        raise
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list) and value.keys() <= _LIST_KEYS:
        value = value["tool_calls"]
    items = value if isinstance(value, list) else [value]
    calls = [call for item in items if (call := _json_call(scanner, item)) is not None]
    if len(calls) < len(items) and (calls or is_unambiguous):
        scanner.is_call, scanner.tool = True, calls[0].name if calls else ""
        raise Unreadable("it is not an object with a name and arguments")
    return calls or None


def _json_call(scanner: Scanner, item: Any) -> ToolCall | None:
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
    is_call = scanner.form.is_unambiguous or (
        len(argument_keys) == 1 and _is_call(scanner, item[name_key], item[argument_keys[0]], others)
    )
    if not is_call:
        return None
    name = scanner.set_tool(item[name_key])
    if others:
        raise Unreadable(f"it has {min(others)!r} in addition to its name and its arguments")
    if not argument_keys:
        raise Unreadable('it needs its arguments as an object under "arguments"')
    arguments = item[argument_keys[0]]
    if isinstance(arguments, str):
        try:
            arguments = parse_lenient_json(arguments)
        except InvalidJson as error:
            raise Unreadable(f"its {argument_keys[0]} are not an object: {error}") from None
    if not isinstance(arguments, dict | None):
        raise Unreadable(f"its {argument_keys[0]} are not an object")
    return ToolCall("", name, arguments or {})


def _is_call(scanner: Scanner, name: str, arguments: Any, others: set[str]) -> bool:
    """Whether an object in plain text is a call. Declarations of tools and other data may have a name, too."""
    if isinstance(arguments, dict) and arguments.keys() >= {"type", "properties"}:
        return False
    tool = scanner.tools.resolve(name)
    if not tool:
        return not others and isinstance(arguments, dict) and scanner.tools.has_similar(name)
    return not others or not others.isdisjoint(scanner.tools.schema(tool).all_properties)


def read_tags(scanner: Scanner) -> ReadCalls:
    """Read a call in tags that has no section around it."""
    begin = scanner.at
    call = read_tag_call(scanner, scanner.form.start_marks[0])
    if call is None:
        check_unrecognised(scanner, begin)
        return None
    scanner.accept("</tool_call>")  # Qwen sometimes leaves out the start mark
    reject_more_parameters(scanner)
    return [call]


def read_after_head(scanner: Scanner) -> ReadCalls:
    """Read an object of arguments after a head that names the tool, up to the end mark, which may be missing."""
    head = scanner.match(scanner.form.head) if scanner.form.head else None
    if head is None or not (scanner.form.is_unambiguous or scanner.tools.has_similar(head["name"])):
        return None
    call = ToolCall("", scanner.set_tool(head["name"]), read_object(scanner))
    if not scanner.accept(*scanner.form.end_marks):
        reject_more_arguments(scanner)
    return [call]


# After the marker, a name may follow on another line, in bold, in backticks, in quotes or after a bracket.
_NAME_AFTER_MARKER = r"[^\W\d][\w./-]{0,127}+(?::[\w./-]{1,127}+)?+"
_BEFORE_NAME = re.compile(r"[ \t\r\n]{0,64}(?:[*`\"'\[<][ \t]{0,4}){0,6}")
_NAME_AND_BRACKET = re.compile(rf"({_NAME_AFTER_MARKER})[*`\"']{{0,3}}[ \t]{{0,32}}([({{])")
_NAME_ONLY = re.compile(rf"({_NAME_AFTER_MARKER})(?:[*`\"']{{0,3}}[ \t]{{1,32}}(\w))?")


def read_marker_line(scanner: Scanner) -> ReadCalls:
    """Read the call after the marker that the prompt asks for: `TOOL_CALL: name({…})`, and what models make of it."""
    scanner.match(_BEFORE_NAME)
    if scanner.peek("{"):
        calls = read_json_calls(scanner)
        reject_more_arguments(scanner)
        return calls
    head = scanner.match(_NAME_AND_BRACKET)
    if head is None:
        _check_name_only(scanner)
        return None
    in_parentheses = head[2] == "("
    if not in_parentheses and not scanner.tools.resolve(head[1]):
        return None
    name = scanner.set_tool(head[1])
    scanner.at = head.end() - 1
    arguments = read_parentheses(scanner) if in_parentheses else read_object(scanner)
    reject_more_arguments(scanner, in_parentheses=in_parentheses)
    return [ToolCall("", name, arguments)]


def _check_name_only(scanner: Scanner) -> None:
    """Raise if only the name of a tool follows the marker, or the beginning of one. Other words are text."""
    named = _NAME_ONLY.match(scanner.text, scanner.at)
    name = named[1] if named else ""
    if scanner.tools.resolve(name) and not (named and named[2]):
        scanner.set_tool(name)
        raise Unreadable("it has no arguments; write them in parentheses after the name")
    if scanner.at + len(name) == len(scanner.text) and any(tool.startswith(name) for tool in scanner.tools.specs):
        scanner.set_tool(name)
        raise Unreadable(CUT)


def reject_end_mark(scanner: Scanner) -> ReadCalls:
    """Reject an end mark without a start mark: the beginning of the call was not recognised."""
    scanner.is_call = True
    raise Unreadable("its beginning cannot be recognised")
