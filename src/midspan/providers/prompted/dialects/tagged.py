"""Calls between special tokens: Hermes and Qwen, Llama, Mistral, DeepSeek.

https://github.com/NousResearch/Hermes-Function-Calling · https://www.llama.com/docs/model-cards-and-prompt-formats ·
https://docs.mistral.ai/capabilities/function_calling · https://api-docs.deepseek.com/guides/function_calling
"""

from midspan.providers.prompted.arguments import in_braces, in_parentheses
from midspan.providers.prompted.cursor import Cursor
from midspan.providers.prompted.dialects.pythonic import call_list
from midspan.providers.prompted.dialects.tags import function_tag
from midspan.providers.prompted.findings import Broken, Declared, Found, Written, refuse_too_many
from midspan.providers.prompted.objects import calls_at


def hermes(cursor: Cursor, tools: Declared) -> Found | None:
    """`<tool_call>{"name": …, "arguments": {…}}</tool_call>`, in Qwen also with `<function=…>` inside."""
    cursor.take("<tool_call>")
    calls: list[Written] = []
    while cursor.after_space("{", "<function="):
        is_tag = cursor.text[cursor.at - 1] == "="
        cursor.at -= len("<function=") if is_tag else 1
        found = function_tag(cursor, tools) if is_tag else calls_at(cursor, tools, strict=False, alone=False)
        if found is None:
            return None
        calls += found.calls
        if not found.calls:
            return Found(cursor.at, ())
        refuse_too_many(calls, cursor.at, calls[-1].name)
    cursor.after_space("</tool_call>")
    return _found(cursor, calls, tools) if calls else None


def llama(cursor: Cursor, tools: Declared) -> Found | None:
    """`<|python_tag|>{"name": …, "parameters": {…}}`, several with semicolons between, or calls as in Python."""
    cursor.take("<|python_tag|>", "<|python_start|>")
    calls: list[Written] = []
    while True:
        cursor.space()
        if cursor.sees("["):
            found = call_list(cursor, tools)
        elif cursor.sees("{"):
            found = calls_at(cursor, tools, strict=False, alone=False)
        else:
            found = _dotted_call(cursor, tools)
        if found is None:
            return None
        calls += found.calls
        if not found.calls:
            return Found(cursor.at, ())
        refuse_too_many(calls, cursor.at, calls[-1].name)
        if not cursor.after_space(";"):
            cursor.after_space("<|eom_id|>", "<|eot_id|>", "<|python_end|>")
            return _found(cursor, calls, tools)


def _found(cursor: Cursor, calls: list[Written], tools: Declared) -> Found:
    """These calls, if one of them is of a tool that is there: the model hears of the others."""
    is_known = any(call.name in tools.specs for call in calls)
    return Found(cursor.at, tuple(calls) if is_known else ())


def _dotted_call(cursor: Cursor, tools: Declared) -> Found | None:
    """`search.call(query="…")`, the form of the tools that Llama was taught."""
    name = cursor.name()
    resolved = tools.resolve(name) or tools.resolve(name.removesuffix(".call"))
    if resolved is None or not cursor.sees("("):
        return None
    arguments, cursor.at = in_parentheses(cursor.text, cursor.at, resolved, python=True)
    return Found(cursor.at, (Written(resolved, arguments),))


def mistral(cursor: Cursor, tools: Declared) -> Found | None:
    """`[TOOL_CALLS][{"name": …, "arguments": {…}}]`, or newer `[TOOL_CALLS]name[ARGS]{…}`."""
    cursor.take("[TOOL_CALLS]")
    cursor.space()
    is_json = cursor.sees("[") or cursor.sees("{")
    found = calls_at(cursor, tools, strict=False) if is_json else _named(cursor, tools)
    if found is not None:
        cursor.take("</s>")
    return None if found is None else Found(cursor.at, found.calls)


def _named(cursor: Cursor, tools: Declared) -> Found | None:
    name = cursor.name()
    resolved = tools.resolve(name)
    if resolved is None:
        return None
    if cursor.take("[CALL_ID]"):
        cursor.name()
    cursor.take("[ARGS]")
    cursor.space()
    if not cursor.sees("{"):
        raise Broken("its arguments are no object in braces", cursor.at, resolved)
    arguments, cursor.at = in_braces(cursor.text, cursor.at, resolved)
    return Found(cursor.at, (Written(resolved, arguments),))


_CALLS = "<\uff5ctool\u2581calls\u2581begin\uff5c>", "<\uff5ctool\u2581calls\u2581end\uff5c>"
_CALL = "<\uff5ctool\u2581call\u2581begin\uff5c>", "<\uff5ctool\u2581call\u2581end\uff5c>"
_SEPARATOR = "<\uff5ctool\u2581sep\uff5c>"


def deepseek(cursor: Cursor, tools: Declared) -> Found | None:
    """The kind, a separator, the name, and the arguments in a fence; newer ones give name, separator and arguments."""
    cursor.take(_CALLS[0])
    calls: list[Written] = []
    while cursor.after_space(_CALL[0]):
        name = cursor.name()
        if cursor.take(_SEPARATOR) and name == "function":
            name = cursor.name()
        resolved = tools.resolve(name) or name
        if not resolved:
            return None
        fenced = cursor.after_space("```json", "```")
        cursor.space()
        if not cursor.sees("{"):
            raise Broken("its arguments are no object in braces", cursor.at, resolved)
        arguments, cursor.at = in_braces(cursor.text, cursor.at, resolved)
        if fenced:
            cursor.after_space("```")
        cursor.after_space(_CALL[1])
        calls.append(Written(resolved, arguments))
        refuse_too_many(calls, cursor.at, resolved)
    cursor.after_space(_CALLS[1])
    return _found(cursor, calls, tools) if calls else None
