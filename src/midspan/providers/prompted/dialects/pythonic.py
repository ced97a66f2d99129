"""Calls as Python: Llama's `[f(a=1), g(b="x")]`, Gemini's `print(default_api.f(a=1))` and its `tool_code` fences."""

import re

from midspan._schema.lenient_json import IncompleteJson
from midspan.providers.prompted.arguments import in_braces, in_parentheses
from midspan.providers.prompted.cursor import Cursor
from midspan.providers.prompted.findings import Broken, Declared, Found, Written, refuse_too_many

_FENCE = re.compile(r"```(?:tool_code|tool_call)[ \t]*\r?\n")
_FENCE_BEGUN = re.compile(r"```(?:tool_code|tool_call)[ \t]*\r?\Z")
_NO_CODE = "code cannot be run; only write calls, each on a line of its own"
_LONGEST_LINE_BEGUN = 30
_LINE_BEGUN = re.compile(r"\n(?:[^\W\d]\w{0,20} = )?\Z")
_BLANKS = re.compile(r"[ \t]*")
_LINE_ENDS = re.compile(r"\r|\n|```|#|\Z")
_ASSIGNED = re.compile(r"[^\W\d]\w{0,99} = ")
_PRINTED_NAME = re.compile(r"print\(\s{0,4}[^\W\d]\w{0,99}\s{0,4}\)|#[^\n]*(?=\n)")


def call_list(cursor: Cursor, tools: Declared) -> Found | None:
    """Calls in brackets, with commas between."""
    cursor.take("[")
    calls: list[Written] = []
    while True:
        cursor.space()
        call = _call(cursor, tools, alone=not calls)
        if call is None:
            if calls:
                raise Broken("only calls of the tools may stand in the list", cursor.at, calls[-1].name)
            return None
        calls.append(call)
        refuse_too_many(calls, cursor.at, call.name)
        cursor.space()
        if cursor.take("]"):
            return Found(cursor.at, tuple(calls))
        if not cursor.take(","):
            if cursor.at == len(cursor.text):
                raise IncompleteJson(name=call.name)
            raise Broken("a comma or ] is missing after the call", cursor.at, call.name)


def printed(cursor: Cursor, tools: Declared) -> Found | None:
    """Statements of Gemini's on a line of their own: the call, in `print` or by itself."""
    if not _LINE_BEGUN.search(cursor.text, max(0, cursor.at - _LONGEST_LINE_BEGUN), cursor.at):
        return None
    calls: list[Written] = []
    while (call := _statement(cursor, tools)) is not None:
        calls.append(call)
        refuse_too_many(calls, cursor.at, call.name)
        cursor.at = _BLANKS.match(cursor.text, cursor.at).end()  # type: ignore[union-attr]  # it matches everywhere
        if not cursor.take(";"):
            break
        cursor.at = _BLANKS.match(cursor.text, cursor.at).end()  # type: ignore[union-attr]  # it matches everywhere
    if not calls:
        return None
    if cursor.at == len(cursor.text) and not cursor.over:
        raise IncompleteJson(name=calls[-1].name)
    if not _LINE_ENDS.match(cursor.text, cursor.at):
        raise Broken(_NO_CODE, cursor.at, calls[-1].name)
    return Found(cursor.at, tuple(calls))


def code_fence(cursor: Cursor, tools: Declared) -> Found | None:
    """A fence of such statements; code that does more than call cannot be run."""
    head = _FENCE.match(cursor.text, cursor.at)
    if head is None:
        if not cursor.over and _FENCE_BEGUN.match(cursor.text, cursor.at):
            raise IncompleteJson
        return None
    cursor.at = head.end()
    calls: list[Written] = []
    while not cursor.after_space("```"):
        cursor.space()
        if cursor.is_cut("```"):
            cursor.at = len(cursor.text)
            break
        skipped = _PRINTED_NAME.match(cursor.text, cursor.at)
        if skipped:
            cursor.at = skipped.end()
            continue
        call = _statement(cursor, tools)
        if call is None:
            _refuse_code(cursor, head.end(), calls)
            return None
        calls.append(call)
        refuse_too_many(calls, cursor.at, call.name)
        cursor.after_space(";")
    return Found(cursor.at, tuple(calls)) if calls else None


def _refuse_code(cursor: Cursor, begin: int, calls: list[Written]) -> None:
    """Other code in the fence may decide whether a call in it is made, so none of them is."""
    name = calls[-1].name if calls else ""
    end = cursor.text.find("```", cursor.at)
    if end < 0 and not cursor.over:
        raise IncompleteJson(name=name)
    if calls or "default_api." in cursor.text[begin : end if end >= 0 else None]:
        raise Broken(_NO_CODE, cursor.at, name, over_at=end + 3 if end >= 0 else None)


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


def _call(cursor: Cursor, tools: Declared, *, alone: bool = True) -> Written | None:
    """A call of a tool; one of a tool that is not there counts where it does not stand alone."""
    said = cursor.name()
    name = tools.resolve(said) or (None if alone else said or None)
    if name is None or not cursor.sees("("):
        return None
    arguments, cursor.at = in_parentheses(cursor.text, cursor.at, name, python=True)
    return Written(name, arguments)
