"""What is a call, what is text, and what the model learns about a call that cannot be read."""

import pytest

from midspan._types.specs import ToolSpec
from tests.providers.prompted.test_forms import OBJECT, calls, errors, read

TOOLS = [
    ToolSpec(
        "f",
        parameters={
            "type": "object",
            "properties": {
                "a": {"type": "integer"},
                "s": {"type": "string"},
                "m": {"type": ["string", "integer"]},
                "o": {"type": ["string", "object"]},
                "l": {"type": "array", "items": OBJECT},
                "n": {"type": ["string", "null"]},
            },
        },
    ),
    ToolSpec("g"),
]
LONG = "x" * 90


CALLS = {
    "<function=f><parameter=m>abc</parameter></function>": [("f", {"m": "abc"})],
    "<function=f><parameter=m>true</parameter></function>": [("f", {"m": "true"})],
    "<function=f><parameter=m>{oops</parameter></function>": [("f", {"m": "{oops"})],
    "<function=f><parameter=s>\nx\n</parameter></function>": [("f", {"s": "x"})],
    "<function=f><parameter=s>\n</parameter></function>": [("f", {"s": "\n"})],
    "<function=f><parameter=s>\n\n</parameter></function>": [("f", {"s": ""})],
    "TOOL_CALL: f(l=[{id: 2}])": [("f", {"l": [{"id": 2}]})],
    'TOOL_CALL: f({"s": "a"}\nb': [("f", {"s": "a"})],
    "TOOL_CALL: f()": [("f", {})],
    'TOOL_CALL: f{"a": 1}': [("f", {"a": 1})],
    "<tool_call>f</tool_call>": [("f", {})],
    '<tool_call>{"name": "f", "arguments": null}</tool_call>': [("f", {})],
    '<tool_call>{"id": "1", "name": "f", "arguments": {}}</tool_call>': [("f", {})],
    '<tool_call>{"tool_calls": [{"name": "f", "arguments": {}}], "role": "x"}</tool_call>': [("f", {})],
    "Observation: sunny\nTOOL_CALL: f()": [("f", {})],
    "TOOL_CALL: f()\nObservation: sunny\nTOOL_CALL: g()": [("f", {})],
    "<think>TOOL_CALL: f()</think>\nTOOL_CALL: g()": [("g", {})],
    "TOOL_CALL: f()\n<think>TOOL_CALL: f()</think>\nTOOL_CALL: g()": [("f", {}), ("g", {})],
    "TOOL_CALL: f(s='''a\\x41''', l=())": [("f", {"s": "aA", "l": []})],
    "[f(a=1), g()]": [("f", {"a": 1}), ("g", {})],
    'Action: f\nAction Input: {"a": 1}': [("f", {"a": 1})],
    '<function=f>{"a": 1}</function></tool_call>': [("f", {"a": 1})],
    '<function=f>{"a": 1}</function>\nok': [("f", {"a": 1})],
    "```tool_code\nx = default_api.f(a=1)\nprint(x)\n# done\n```": [("f", {"a": 1})],
    "```tool_code\nf(a=1); g()\n```": [("f", {"a": 1}), ("g", {})],
}


@pytest.mark.parametrize("text", CALLS)
def test_call_is_read(text: str) -> None:
    pieces = read(text, TOOLS)
    assert (calls(pieces), errors(pieces)) == (CALLS[text], [])


AMBIGUOUS = "may be text or JSON; write the arguments as JSON"
ERRORS = {
    f"TOOL_CALL: f(a{LONG}=1)": f"the tool has no parameter 'a{'x' * 79}'",
    f"<function=f><parameter={LONG}>1</parameter></function>": f"the parameter '{'x' * 80}' is unknown",
    "<function=f><parameter=a>1</parameter><parameter=a>1</parameter></function>": "the parameter 'a' is given twice",
    f"<function=f><parameter=a>{LONG}</parameter></function>": f"'{'x' * 80}' is not a valid value of 'a'",
    "<function=f><parameter=a><parameter=b>1</parameter></function>": "the value of 'a' contains a tag",
    "<function=f><parameter=m>5</parameter></function>": f"'5' for 'm' {AMBIGUOUS}",
    "<function=f><parameter=m>null</parameter></function>": f"'null' for 'm' {AMBIGUOUS}",
    '<function=f><parameter=m>"x"</parameter></function>': "'\"x\"' for 'm' " + AMBIGUOUS,
    "<function=f><parameter=o>{oops</parameter></function>": "'{oops' is not a valid value of 'o'",
    "<function=f><parameter=s>null</parameter></function>": f"'null' for 's' {AMBIGUOUS}",
    "<function=f><parameter=n>null</parameter></function>": f"'null' for 'n' {AMBIGUOUS}",
    "<function=f><parameter=s>x</function>": "the text ends too early",
    "<function=f><parameter=s>>x</parameter></function>": "the value of 's' contains a tag",
    "<function=f><parameter=s>x<</parameter></function>": "the value of 's' contains a tag",
    "TOOL_CALL: f(l=[{id1: 2}])": "the tool has no parameter 'id1'",
    "TOOL_CALL: f(l=[{id: 2},{id2: 2}])": "the tool has no parameter 'id2'",
    'TOOL_CALL: f({"s": "a"} b': "expected ) or the end of the line after the object of the arguments",
    "TOOL_CALL: f(1)": 'the arguments have no names; write them as an object: {"name": value}',
    "TOOL_CALL: f": "it has no arguments; write them in parentheses after the name",
    'TOOL_CALL: f"': "it has no arguments; write them in parentheses after the name",
    'TOOL_CALL: f{"a": 1} then': "the text after the call could belong to its arguments",
    "<function=></function>": "a call cannot be read: it is not one of the known forms of a call",
    "</tool_call>": "a call cannot be read: its beginning cannot be recognised",
    "<tool_call>f": "its arguments cannot be recognised",
    "<tool_call>oops oops</tool_call>": "a call cannot be read: it is not one of the known forms of a call",
    '<tool_call>{"name": "f"}</tool_call>': 'it needs its arguments as an object under "arguments"',
    '<tool_call>{"name": "f", "arguments": 1}</tool_call>': "its arguments are not an object",
    '<tool_call>{"name": "f", "arguments": "1"}</tool_call>': "its arguments are not an object",
    '<tool_call>{"name": "f", "args": "{oop"}</tool_call>': "its args are not an object: the text ends too early",
    '<tool_call>{"name": "f", "args": {}, "x": 1, "b": 2}</tool_call>': (
        "it has 'b' in addition to its name and its arguments"
    ),
    "<tool_call>[1]</tool_call>": "a call cannot be read: it is not one of the known forms of a call",
    '<tool_call>[{"name": "f", "arguments": {}}, 1]</tool_call>': "it is not an object with a name and arguments",
    '<tool_call>{"tool_calls": [], "x": 1}</tool_call>': (
        "a call cannot be read: it is not an object with a name and arguments"
    ),
    '{"name": "ff", "arguments": {"a": 1}}': "unknown tool: ff; did you mean f? The tools are: f, g",
    '{"name": "f", "arguments": {}, "s": 1}': "it has 's' in addition to its name and its arguments",
    '{"name": "f", "arguments": {': "the text ends too early",
    '{"arguments": {': "a call cannot be read: the text ends too early",
    "<think>hm\nTOOL_CALL: f()": "a call in a thought that has no end is not made; end the thought before the call",
    "[f(a=1), 5]": "the list contains something other than calls",
    "[f(a=1)": "the text ends too early",
    'Action: f\nAction Input: {"a": 1} b': "the text after the call could belong to its arguments",
    '<function=f>{"a": 1}</function><parameter=s>': "the tags of a parameter after it cannot be read",
    "```tool_code\nprint(f(a=1)\n```": "expected ) after it",
}


@pytest.mark.parametrize("text", ERRORS)
def test_error_says_why_a_call_cannot_be_read(text: str) -> None:
    pieces = read(text, TOOLS)
    assert calls(pieces) == []
    error = errors(pieces)[0].removesuffix("; calls after it are not made")
    assert error.removeprefix("the call of f cannot be read: ") == ERRORS[text]


@pytest.mark.parametrize(
    "text",
    [
        "TOOL_CALL: f word",
        "TOOL_CALL: get",
        'TOOL_CALL: h{"a": 1}',
        "<tool_call>oops oops",
        '{"name": "f", "arguments": {"a": 1}, "args": {}}',
        '{"name": "f", "arguments": {"type": 1, "properties": 1}}',
        '{"name": "ff", "arguments": 1}',
        '{"name": "ff", "arguments": {}, "s": 1}',
        '{"name": "f", "arguments": {}, "z": 1}',
        '{"name": "unlike", "arguments": {}}',
        '{"name": "zzz", "arguments": {',
        '{"x": {',
        '{"id": {',
        '{"arguments": {}, "name": "zzz", "x": {',
        "[5, f(a=1)]",
        "[h(a=1)]",
        'Action: zebra\nAction Input: {"a": 1}',
    ],
)
def test_text_that_resembles_a_call_stays_text(text: str) -> None:
    pieces = read(text, TOOLS)
    assert (calls(pieces), errors(pieces)) == ([], [])
