"""Calls in forms that are also plain text: fenced and bare JSON, and ReAct's `Action:` with `Action Input:`."""

import re

from midspan._schema.lenient_json import IncompleteJson
from midspan.providers.prompted.arguments import in_braces, in_parentheses
from midspan.providers.prompted.cursor import Cursor
from midspan.providers.prompted.findings import Broken, Declared, Found, Written, refuse_too_many
from midspan.providers.prompted.objects import ARGUMENT_WORDS, NAME_WORDS, calls_at

_KEY = "|".join([*NAME_WORDS, *ARGUMENT_WORDS, "tool_calls", "type", "id"])
_FENCE = re.compile(r"```(?:json|JSON|tool_call|tool_calls|tool|function_call)?[ \t]{0,8}\r?\n[ \t]{0,8}(?=[\[{])")
_FENCE_BEGUN = re.compile(r"`{1,3}[a-zA-Z_]{0,13}[ \t]{0,8}\r?(?:\n[ \t]{0,8})?\Z")
_OBJECT = re.compile(rf"(?:\[\s{{0,16}})?\{{\s{{0,16}}[\"'“](?:{_KEY})[\"'”]\s{{0,4}}:")
_OBJECT_BEGUN = re.compile(r"(?:\[\s{0,16})?(?:\{\s{0,16}(?:[\"'“]\w{0,14}(?:[\"'”]\s{0,4})?)?)?\Z")


def fenced(cursor: Cursor, tools: Declared) -> Found | None:
    """A fence that holds nothing but the JSON of calls."""
    head = _FENCE.match(cursor.text, cursor.at)
    if head is None:
        if not cursor.over and _FENCE_BEGUN.match(cursor.text, cursor.at):
            cursor.wait()
        return None
    cursor.at = head.end()
    calls: list[Written] = []
    while True:
        found = bare(cursor, tools)
        if found is None or not found.calls:
            break
        calls += found.calls
        refuse_too_many(calls, cursor.at, calls[-1].name)
        if cursor.after_space("```") or cursor.is_cut("```"):
            return Found(cursor.at, tuple(calls))
        cursor.space()
    if not calls:
        return found
    end = cursor.text.find("```", cursor.at)
    if end < 0 and not cursor.over:
        raise IncompleteJson(name=calls[-1].name)
    over_at = end + 3 if end >= 0 else None
    raise Broken("only calls may stand in the fence with it", cursor.at, calls[-1].name, over_at=over_at)


def bare(cursor: Cursor, tools: Declared) -> Found | None:
    """An object that is a call and can be nothing else, on lines of its own."""
    if not _OBJECT.match(cursor.text, cursor.at):
        if not cursor.over and _OBJECT_BEGUN.match(cursor.text, cursor.at):
            cursor.wait()
        return None
    return calls_at(cursor, tools, strict=True)


def action(cursor: Cursor, tools: Declared) -> Found | None:
    """`Action: name`, and on the next line `Action Input: {…}`."""
    cursor.take("Action:")
    cursor.after_space("**")
    cursor.space()
    name = tools.resolve(cursor.name().rstrip("."))
    if name is None:
        return None
    if cursor.sees("("):
        arguments, cursor.at = in_parentheses(cursor.text, cursor.at, name, python=True)
        return Found(cursor.at, (Written(name, arguments),))
    cursor.after_space("**")
    if not cursor.after_space("Action Input:", "**Action Input:**", "**Action Input**:"):
        if cursor.over and "Action Input:".startswith(cursor.text[cursor.at :].strip()):
            raise IncompleteJson(name=name)
        return None
    fence = cursor.after_space("```json", "```")
    cursor.space()
    if not cursor.sees("{"):
        raise Broken("its Action Input is no object in braces", cursor.at, name)
    arguments, cursor.at = in_braces(cursor.text, cursor.at, name)
    if fence:
        cursor.after_space("```")
    return Found(cursor.at, (Written(name, arguments),))
