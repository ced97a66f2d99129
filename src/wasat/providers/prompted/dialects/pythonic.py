"""Calls as Python: Llama's `[f(a=1), g(b="x")]`, Gemini's `print(default_api.f(a=1))` and its `tool_code` fences."""

import re

from wasat.providers.prompted.arguments import in_braces, in_parentheses
from wasat.providers.prompted.cursor import Cursor
from wasat.providers.prompted.findings import Broken, Declared, Found, Written
from wasat.schema.repair import Unfinished

_FENCE = re.compile(r"```(?:tool_code|tool_call)[ \t]*\r?\n")
_FENCE_BEGUN = re.compile(r"```(?:tool_code|tool_call)[ \t]*\r?\Z")
_ASSIGNED = re.compile(r"[^\W\d]\w{0,99} = ")
_PRINTED_NAME = re.compile(r"print\(\s{0,4}[^\W\d]\w{0,99}\s{0,4}\)|#[^\n]*(?=\n)")


def call_list(cursor: Cursor, tools: Declared) -> Found | None:
    """Calls in brackets, with commas between."""
    cursor.take("[")
    calls: list[Written] = []
    while True:
        cursor.space()
        call = _call(cursor, tools)
        if call is None:
            if calls:
                raise Broken("only calls of the tools may stand in the list", cursor.at, calls[-1].name)
            return None
        calls.append(call)
        cursor.space()
        if cursor.take("]"):
            return Found(cursor.at, tuple(calls))
        if not cursor.take(","):
            if cursor.at == len(cursor.text):
                raise Unfinished(name=call.name)
            raise Broken("a comma or ] is missing after the call", cursor.at, call.name)


def printed(cursor: Cursor, tools: Declared) -> Found | None:
    """One statement of Gemini's: the call, in `print` or by itself."""
    call = _statement(cursor, tools)
    return None if call is None else Found(cursor.at, (call,))


def code_fence(cursor: Cursor, tools: Declared) -> Found | None:
    """A fence of such statements; code that does more than call cannot be run."""
    head = _FENCE.match(cursor.text, cursor.at)
    if head is None:
        if not cursor.over and _FENCE_BEGUN.match(cursor.text, cursor.at):
            raise Unfinished
        return None
    cursor.at = head.end()
    calls: list[Written] = []
    while not cursor.after_space("```"):
        cursor.space()
        if cursor.at == len(cursor.text):
            break
        skipped = _PRINTED_NAME.match(cursor.text, cursor.at)
        if skipped:
            cursor.at = skipped.end()
            continue
        call = _statement(cursor, tools)
        if call is None:
            if calls:
                raise Broken("code cannot be run; only write calls", cursor.at, calls[-1].name)
            return None
        calls.append(call)
        cursor.after_space(";")
    return Found(cursor.at, tuple(calls)) if calls else None


def leaked(cursor: Cursor, tools: Declared) -> Found | None:
    """`call:default_api:f{city:"Oslo"}`, which Gemini uses inside and sometimes lets out."""
    cursor.take("call:")
    name = tools.resolve(cursor.name().rstrip(":"))
    if name is None or not cursor.sees("{"):
        return None
    arguments, cursor.at = in_braces(cursor.text, cursor.at, name)
    return Found(cursor.at, (Written(name, arguments),))


def _statement(cursor: Cursor, tools: Declared) -> Written | None:
    assigned = _ASSIGNED.match(cursor.text, cursor.at)
    if assigned:
        cursor.at = assigned.end()
    opened = cursor.take("print(", "python(")
    call = _call(cursor, tools)
    if call is not None and opened:
        cursor.space()
        if not cursor.take(")"):
            raise Broken(f") is missing after the call in {opened[:-1]}", cursor.at, call.name)
    return call


def _call(cursor: Cursor, tools: Declared) -> Written | None:
    name = tools.resolve(cursor.name())
    if name is None or not cursor.sees("("):
        return None
    arguments, cursor.at = in_parentheses(cursor.text, cursor.at, name, python=True)
    return Written(name, arguments)
