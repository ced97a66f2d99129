"""Texts that a hostile model could write to keep its reader busy, each of any length, for tests and benchmarks."""

from collections.abc import Callable, Mapping
from itertools import count, islice

from midspan._types.specs import ToolSpec

Form = Callable[[int], str]
"""A text of about so many characters."""

TOOLS = (
    ToolSpec("f", parameters={"type": "object", "properties": {"a": {"type": "integer"}, "s": {"type": "string"}}}),
    ToolSpec("get_weather", parameters={"type": "object", "properties": {"city": {"type": "string"}}}),
)
LONGEST_READ = 1_000_000
"""A little less than the longest call: what lies behind it would be cut off as too long, and not looked at."""


def repeated(words: str, *, head: str = "", tail: str = "") -> Form:
    """Repeats a text up to a length, whole if a tail follows that closes it."""

    def text(size: int) -> str:
        room = max(0, size - len(head) - len(tail))
        room -= room % len(words) if tail else 0
        return head + (words * (room // len(words) + 1))[:room] + tail

    return text


def numbered(words: str, *, head: str = "", tail: str = "") -> Form:
    """The same, with another number in place of each `#`."""
    each = len(words) + 5

    def text(size: int) -> str:
        return head + "".join(words.replace("#", str(100_000 + number)) for number in range(size // each)) + tail

    return text


def blocks(words: str, *, head: str, tail: str, most: int = LONGEST_READ) -> Form:
    """As many as fit of one text that just may be a call, each a little shorter than the longest."""

    def text(size: int) -> str:
        block = repeated(words, head=head, tail=tail)(min(size, most))
        return "\n".join([block] * max(1, size // len(block)))

    return text


def nested(opening: str, closing: str, *, depth: int, head: str = "TOOL_CALL: f({'a': ", tail: str = "})\n") -> Form:
    """Values within values, again and again."""
    return repeated(head + opening * depth + "1" + closing * depth + tail)


def lengthening(words: str) -> Form:
    """Words with ever more letters between them, so that no two places are alike."""

    def text(size: int) -> str:
        steps = islice(count(), int((2 * size) ** 0.5))
        return "".join(words + "x" * step for step in steps)[:size]

    return text


_CALLS, _CALL, _SEPARATOR = (
    f"<\uff5ctool\u2581{word}\uff5c>" for word in ("calls\u2581begin", "call\u2581begin", "sep")
)
_QUOTED_LIST = "TOOL_CALL: f({'a': ["

OPENED: Mapping[str, Form] = {
    "a quote never closed": repeated("x", head='TOOL_CALL: f({"s": "'),
    "a single quote never closed": repeated("x ", head="TOOL_CALL: f({'s': '"),
    "three quotes never closed": repeated('x" ', head='[f(s="""'),
    "typographic quotes opened": repeated("TOOL_CALL: f(“\n"),
    "a bracket never closed": repeated("1,", head="TOOL_CALL: f({'a': ["),
    "calls opened": repeated("TOOL_CALL: f("),
    "objects opened on lines": repeated('{"name": "f", "arguments": {\n'),
    "brackets opened on lines": repeated("[\n"),
    "a comment never closed": repeated('{"id": 1 /*\n'),
    "a fence never closed": repeated("x = 1\n", head="```tool_code\nf(a=1)\n"),
    "fences opened": repeated("```json\n{"),
    "spaces without end": repeated(" ", head="TOOL_CALL: f({"),
}
NESTED: Mapping[str, Form] = {
    "lists too deep": nested("[", "]", depth=5_000),
    "objects too deep": nested('{"a":', "}", depth=5_000),
    "lists as deep as can be": nested("[", "]", depth=96),
    "objects as deep as can be": nested("{'a':", "}", depth=96),
    "many places in one value": blocks("'a',", head='{"id":\n' * 95 + "[", tail="] x"),
    "many places in one open value": blocks("'a',", head='{"id":\n' * 12 + "[", tail=""),
    "many places before one comment": lambda size: blocks(
        "y ", head='{"id": 1 /*\n' * min(18_000, size // 48), tail="*/ x"
    )(size),
}
VALUES: Mapping[str, Form] = {
    "single-quoted list, open": repeated("'a',", head=_QUOTED_LIST),
    "single-quoted list, closed": blocks("'a',", head=_QUOTED_LIST, tail="]})"),
    "single-quoted lists in a list, open": repeated("['a','a'],", head=_QUOTED_LIST),
    "single-quoted lists in a list, closed": blocks("['a','a'],", head=_QUOTED_LIST, tail="]})"),
    "single-quoted list on lines": repeated("'a',\n", head=_QUOTED_LIST),
    "single-quoted list with line breaks": repeated("'a\n',", head=_QUOTED_LIST),
    "single-quoted objects in a list": repeated("{'a':'b'},", head=_QUOTED_LIST),
    "single-quoted object": numbered("'#':'a',", head="TOOL_CALL: f({"),
    "names without quotes": numbered("k#:1,", head="TOOL_CALL: f({"),
    "Python literals": repeated("True,None,", head=_QUOTED_LIST),
    "Python tuples": repeated("(1,'a',),", head="[f(a=["),
    "keyword arguments": numbered("k#='a',", head="[f("),
    "empty lists": repeated("[],", head=_QUOTED_LIST),
    "comments": repeated("#\n", head=_QUOTED_LIST),
    "numbers with many digits": repeated("9" * 4_000 + ",", head=_QUOTED_LIST),
    "escapes": repeated(r"\n", head="TOOL_CALL: f({'s': \"", tail='"})'),
    "escaped quotes in a list": repeated(r"'it\'s',", head=_QUOTED_LIST),
    "surrogates": repeated(r"\ud83d\ude00", head='TOOL_CALL: f({"s": "'),
    "half surrogates": blocks(r"\ud83d", head='TOOL_CALL: f({"s": "', tail='"})'),
    "a very long name": blocks("k", head='TOOL_CALL: f({"', tail='": 1})'),
    "very long names": repeated("TOOL_CALL: " + "k" * 500 + "({"),
}
REPEATED: Mapping[str, Form] = {
    "markers": repeated("TOOL_CALL:"),
    "hermes": repeated('<tool_call>{"name": "f"'),
    "hermes of another tool": repeated('<tool_call>{"name": "no", "arguments": {}}</tool_call>\n'),
    "llama": repeated("<|python_tag|>"),
    "llama calls": repeated("f(),", head="[", tail="f()]"),
    "llama calls of another tool": repeated("g(),", head="[f(),", tail="g()]"),
    "mistral": repeated("[TOOL_CALLS]"),
    "mistral of another tool": repeated('[TOOL_CALLS][{"name": "no", "arguments": {}}]'),
    "deepseek": repeated(_CALLS + _CALL + "function" + _SEPARATOR),
    "function tags": repeated("<function=f>"),
    "parameter tags": numbered("<parameter=k#>x</parameter>", head="<function=get_weather>", tail="</function>"),
    "parameter tags, open": numbered("<parameter=k#>x</parameter>", head="<function=get_weather>"),
    "glm": numbered("<arg_key>k#</arg_key><arg_value>x</arg_value>", head="<tool_call>no", tail="</tool_call>"),
    "glm, open": repeated("<arg_key>s</arg_key><arg_value>", head="<tool_call>f"),
    "kimi": repeated("<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"),
    "kimi of another tool": repeated("<|tool_call_begin|>no:0<|tool_call_argument_begin|>{}<|tool_call_end|>"),
    "gemma": repeated('<|tool_call>call:f{s:<|"|>'),
    "gemma strings": repeated('<|"|>x<|"|>,', head="<|tool_call>call:f{s:[", tail="]}<tool_call|>"),
    "gemma strings, open": repeated('<|"|>x<|"|>,', head="<|tool_call>call:f{s:["),
    "harmony": repeated("<|start|>assistant<|channel|>commentary to=functions.f <|message|>{"),
    "harmony without a call": repeated("<|start|>assistant<|channel|>final<|message|>x"),
    "minimax": repeated('<minimax:tool_call><invoke name="f"><parameter name="s">'),
    "invokes": repeated('<invoke name="no"></invoke>', head="<function_calls>"),
    "lfm": repeated("<|tool_call_start|>[f("),
    "thoughts": repeated("<think>TOOL_CALL: f({"),
    "thoughts that end": repeated("<think>x</think>\n"),
    "ends of thoughts": repeated("TOOL_CALL: f({})</think>"),
    "end marks": repeated("</tool_call>"),
    "marks without a call": repeated("<tool_call> is the mark of Hermes. "),
    "objects within lines": repeated('x {"name": "no", "arguments": {}} '),
    "calls with prose that looks like members": repeated('TOOL_CALL: f({})\nnote: "x", other: [1, 2]\n'),
    "a call with endless members after it": numbered("k#: 1, ", head="TOOL_CALL: f({})\n"),
    "actions": repeated("Action: f\n"),
    "action inputs": repeated("Action: f\nAction Input: {\n"),
    "printed": repeated("print(default_api.f(\n"),
    "code in fences": repeated("```tool_code\nx\n```\n"),
    "leaked": repeated("call:f{a:"),
    "bare objects of another tool": repeated('{"name": "no", "arguments": {}}\n'),
    "calls that are whole": repeated("TOOL_CALL: f({'a': 1})\n"),
    "calls that are broken": repeated("TOOL_CALL: f({'s': 'it's'})\n"),
    "calls in quotation marks": repeated('`<tool_call>{"name": "f", "arguments": {}}</tool_call>` '),
    "quoted marks": repeated("> `<tool_call>` "),
    "calls in comments": repeated("<!--\nTOOL_CALL: f({})\n-->\n"),
    "comments that begin": repeated("<!--\n/*\n"),
    "calls with conditions": repeated("TOOL_CALL: f({}) if # (\n"),
    "calls with long comments": repeated("TOOL_CALL: f({}) #" + " no" * 60 + "\n"),
    "markers and blank lines": repeated("TOOL_CALL:\n\n"),
    "calls of another tool": repeated('TOOL_CALL: no({"a": 1})\n'),
}
NEARLY: Mapping[str, Form] = {
    "nearly markers": repeated("TOOL_CALL "),
    "nearly marked": repeated("tool_call[" + "x" * 60 + " "),
    "nearly hermes": repeated("<tool_cal>"),
    "nearly llama": repeated("<|python_tag|"),
    "nearly mistral": repeated("[TOOL_CALLS}"),
    "nearly deepseek": repeated(_CALLS[:-1]),
    "nearly tags": repeated("<function "),
    "nearly actions": repeated("\n**Action :"),
    "nearly printed": repeated("\nprint(default_api,"),
    "nearly leaked": repeated("call;"),
    "nearly fences": repeated("\n``` "),
    "nearly objects": repeated('\n{"names":1}'),
    "nearly lists": repeated("\n[g(x)] "),
    "nearly results": repeated("\nTOOL_RESULTS "),
    "prose": repeated("It is four degrees in Oslo, said the model. "),
}
MIXED: Mapping[str, Form] = {
    "ever further apart": lengthening("\n[TOOL_CALLS] TOOL_CALL: f\n{'name':"),
    "all dialects": repeated(
        f"TOOL_CALL: <tool_call>{{<|python_tag|>[TOOL_CALLS]{_CALLS}<function=f\n```json\n[f(\nAction: f\ncall:f{{"
    ),
    "quotes of all kinds": repeated("\"'“”\u2018\u2019\\", head='TOOL_CALL: f({"s": '),
    "brackets of all kinds": repeated("({[<>]})\n"),
    "words about calls": repeated("A tool call: f(x) would do, [f](x) or {x}; TOOL_CALL: is the marker.\n"),
}
FORMS: Mapping[str, Form] = {**OPENED, **NESTED, **VALUES, **REPEATED, **NEARLY, **MIXED}
