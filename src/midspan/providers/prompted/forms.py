"""The forms in which models write calls, as a table: the form that the prompt asks for, and those of other models.

Most models write calls between two marks. What stands between the marks is read in the same way for all of them, so a
model that mixes two forms is read, too. Sources: the chat templates of the models, and
https://github.com/vllm-project/vllm/tree/main/vllm/tool_parsers.
"""

import re

from midspan.providers.prompted.arguments import (
    check_names,
    check_rest,
    read_gemma_object,
    read_object,
    read_parentheses,
)
from midspan.providers.prompted.json_calls import ARGUMENT_KEYS, NAME_KEYS, read_bare, read_fence, read_json_calls
from midspan.providers.prompted.python_calls import read_call_list, read_code_fence, read_statements
from midspan.providers.prompted.scanner import Form, Incomplete, Scanner, WrittenCall
from midspan.providers.prompted.tag_calls import STYLES, read_glm_arguments, read_tag_call

Calls = list[WrittenCall] | None

# Marks around each call of a section: DeepSeek, Step-3, Kimi K2.
_CALL_MARKS = {
    "<\uff5ctool\u2581call\u2581begin\uff5c>": "<\uff5ctool\u2581call\u2581end\uff5c>",
    "<\uff5ctool_call_begin\uff5c>": "<\uff5ctool_call_end\uff5c>",
    "<|tool_call_begin|>": "<|tool_call_end|>",
}
_SEPARATORS = ("<\uff5ctool\u2581sep\uff5c>", "<\uff5ctool_sep\uff5c>", "<|tool_call_argument_begin|>")


def read_between_marks(scanner: Scanner) -> Calls:
    """Read the calls between the marks of a form."""
    form, begin, end = scanner.form, scanner.at, scanner.at
    calls: list[WrittenCall] = []
    is_list = False
    while True:
        scanner.space()
        if calls and (scanner.take(*form.ends) or (is_list and scanner.at == len(scanner.text))):
            return calls
        is_list = not form.list_needs_end and bool(scanner.sees("["))
        call_mark = scanner.take(*_CALL_MARKS)
        if call_mark:
            scanner.space()
        found = _read_calls(scanner)
        if found is None and not calls:
            _check_unrecognised(scanner, begin)
            return None
        if found is None and form.needs_end:
            raise scanner.error(f"expected {form.ends[0]} after it")
        calls += found or []
        scanner.check_count(calls)
        if call_mark:
            scanner.expect(_CALL_MARKS[call_mark])
            scanner.take_after_space(*_SEPARATORS)
        if found is None:
            scanner.at = end
        end = scanner.at
        has_more = found is not None and scanner.take_after_space(",", ";")
        if not form.needs_end and not has_more:
            if not scanner.take_after_space(*form.ends):
                check_rest(scanner)
            return calls


_MEMBER = re.compile(rf"[\"'“]?(?:{'|'.join([*NAME_KEYS, *ARGUMENT_KEYS])})[\"'”]?\s{{0,4}}[:=]")
_MAX_UNRECOGNISED_CHARS = 2_000


def _check_unrecognised(scanner: Scanner, begin: int) -> None:
    """Raise `Unreadable` if something between the marks was meant as a call. Otherwise the text is about the mark."""
    window = scanner.text[begin : begin + _MAX_UNRECOGNISED_CHARS]
    end = next((window.index(mark) + len(mark) for mark in scanner.form.ends if mark in window), None)
    if end is None and len(window) < _MAX_UNRECOGNISED_CHARS and not scanner.is_final:
        raise Incomplete
    is_cut = scanner.is_final and scanner.form.needs_end and len(window.split()) == 1
    if (end is not None and scanner.form.needs_end) or is_cut or _MEMBER.match(window.lstrip()):
        scanner.tool, scanner.at = "", begin
        raise scanner.error("it is not one of the known forms of a call", end=None if end is None else begin + end)


def _read_calls(scanner: Scanner) -> Calls:
    """Read one call, or a list of calls, in any form."""
    if scanner.sees("{"):
        return read_json_calls(scanner, is_certain=True)
    begin = scanner.at
    if scanner.take("["):
        scanner.space()
        is_json = scanner.sees("{", "]")
        scanner.at = begin
        return read_json_calls(scanner, is_certain=True) if is_json else read_call_list(scanner, is_certain=True)
    if tag := scanner.take(*STYLES):
        call = read_tag_call(scanner, tag)
        return None if call is None else [call]
    return _read_named(scanner)


def _read_named(scanner: Scanner) -> Calls:
    """Read a call that begins with the name of its tool."""
    name = scanner.name()
    if name == "function" and scanner.take(*_SEPARATORS):  # DeepSeek 3 and Step-3 write the kind of the call first
        scanner.space()
        return _read_calls(scanner)
    if name.startswith("call:"):
        scanner.at += len("call:") - len(name)
        return read_gemma_call(scanner)
    if not name:
        return None
    tool = scanner.tools.resolve(name) or scanner.tools.resolve(name.removesuffix(".call"))
    begin, scanner.tool = scanner.at, tool or ""
    if scanner.sees("("):
        return [WrittenCall(tool or name, read_parentheses(scanner, python=True))]
    if scanner.take("[CALL_ID]"):
        scanner.at = _skip_call_id(scanner)
    if scanner.take_after_space("[ARGS]", *_SEPARATORS) or scanner.sees("{"):
        return [WrittenCall(tool or name, read_object(scanner))]
    scanner.space()
    if scanner.take("```json", "```"):
        arguments = read_object(scanner)
        scanner.expect("```")
        return [WrittenCall(tool or name, arguments)]
    if scanner.sees("<arg_key>") or (scanner.form.ends and scanner.form.needs_end and scanner.sees(*scanner.form.ends)):
        return [WrittenCall(tool or name, read_glm_arguments(scanner))]
    if tool is None:
        scanner.tool = None
        return None
    scanner.at = begin
    raise scanner.error("its arguments cannot be recognised")


_CALL_ID = re.compile(r"[\w-]{0,64}")


def _skip_call_id(scanner: Scanner) -> int:
    match = _CALL_ID.match(scanner.text, scanner.at)
    end = match.end() if match else scanner.at
    if end == len(scanner.text) and not scanner.is_final:
        raise Incomplete
    return end


def read_gemma_call(scanner: Scanner) -> Calls:
    """Read `f{city:"Oslo"}` after `call:`. Outside of its marks it counts only for declared tools."""
    name = scanner.name().rstrip(":")
    tool = scanner.tools.resolve(name)
    is_alone = not scanner.form.ends
    if not name or (tool is None and is_alone) or not scanner.sees("{"):
        return None
    scanner.tool = tool or ""
    arguments = read_gemma_object(scanner)
    check_names(scanner, arguments)
    if is_alone:
        check_rest(scanner)
    return [WrittenCall(tool or name, arguments)]


def _read_function_tag(scanner: Scanner) -> Calls:
    begin = scanner.at
    call = read_tag_call(scanner, scanner.form.starts[0])
    if call is None:
        _check_unrecognised(scanner, begin)
        return None
    scanner.take_after_space(*_END_MARKS)  # Qwen sometimes leaves out the start mark
    return [call]


_HARMONY = re.compile(
    r"(?:\s{0,4}to=([\w.:-]{1,200}))?\s{0,4}(?:<\|channel\|>)?\s{0,4}(?:\w{1,32})?(?:\s{1,4}to=([\w.:-]{1,200}))?"
    r"\s{0,4}(?:<\|constrain\|>)?\s{0,4}\w{0,16}\s{0,4}<\|message\|>"
)
_MAX_HARMONY_CHARS = 600


def _read_harmony(scanner: Scanner) -> Calls:
    """Read a message of gpt-oss. Only a message with a recipient is a call."""
    head = _HARMONY.match(scanner.text, scanner.at)
    if head is None:
        is_short = len(scanner.text) - scanner.at < _MAX_HARMONY_CHARS
        if is_short and not scanner.is_final and "<|message|>" not in scanner.text[scanner.at :]:
            raise Incomplete
        return None
    name = head[1] or head[2]
    if not name:
        return None
    tool = scanner.tools.resolve(name)
    scanner.tool, scanner.at = tool or "", head.end()
    arguments = read_object(scanner)
    if not scanner.take_after_space(*scanner.form.ends):
        check_rest(scanner)
    return [WrittenCall(tool or name, arguments)]


def _read_action(scanner: Scanner) -> Calls:
    """Read `Action: name` with `Action Input: {…}` on the next line."""
    scanner.take_after_space("**")
    scanner.space()
    name = scanner.name().rstrip(".")
    tool = scanner.tools.resolve(name) or (name if scanner.tools.similar(name) else None)
    if tool is None:
        return None
    if scanner.sees("("):
        scanner.tool = tool
        arguments = read_parentheses(scanner, python=True)
        check_rest(scanner, python=True, in_parentheses=True)
        return [WrittenCall(tool, arguments)]
    scanner.take_after_space("**")
    scanner.space()
    if scanner.is_final and "Action Input:".startswith(scanner.text[scanner.at : scanner.at + 20]):
        scanner.tool = tool
        raise Incomplete
    if not scanner.take("Action Input:", "**Action Input:**", "**Action Input**:"):
        return None
    scanner.tool = tool
    fence = scanner.take_after_space("```json", "```")
    arguments = read_object(scanner)
    if fence:
        scanner.expect("```")
    check_rest(scanner)
    return [WrittenCall(tool, arguments)]


# After the marker, a name may follow on the next line, in bold, in backticks, in quotes or after a bracket.
_BEFORE_NAME = r"[ \t]{0,32}(?:\r?\n[ \t]{0,32})?(?:[*`\"'\[<][ \t]{0,4}){0,6}"
_NAME = r"[^\W\d][\w./-]{0,127}+(?::[\w./-]{1,127}+)?+"
_AFTER_NAME = r"[*`\"']{0,3}[ \t]{0,32}"
_LINE = re.compile(rf"{_BEFORE_NAME}(?:({_NAME}){_AFTER_NAME}([({{])|(\{{))")
_LINE_START = re.compile(rf"[ \t]{{0,32}}\r?\Z|{_BEFORE_NAME}(?:({_NAME}):?{_AFTER_NAME})?\Z")
_NAME_ONLY = re.compile(rf"{_BEFORE_NAME}({_NAME})")
_WORDS_AFTER_NAME = re.compile(r"[*`\"']{0,3}[ \t]{1,32}\w")


def read_marker_line(scanner: Scanner) -> Calls:
    """Read the call after the marker that the prompt asks for: `TOOL_CALL: name({…})`, and what models make of it."""
    head = _LINE.match(scanner.text, scanner.at)
    if head is None:
        _check_name_only(scanner)
        return None
    if head[3]:
        scanner.at = head.start(3)
        calls = read_json_calls(scanner, is_certain=True)
        check_rest(scanner)
        return calls
    tool = scanner.tools.resolve(head[1])
    if head[2] == "{" and tool is None:
        return None
    scanner.tool, scanner.at = tool or head[1], head.end() - 1
    in_parentheses = head[2] == "("
    arguments = read_parentheses(scanner) if in_parentheses else read_object(scanner)
    check_rest(scanner, python=in_parentheses, in_parentheses=in_parentheses)
    return [WrittenCall(tool or head[1], arguments)]


def _check_name_only(scanner: Scanner) -> None:
    """Raise `Unreadable` if a marker is followed by nothing but a tool. With more words the text is about the tool."""
    start = _LINE_START.match(scanner.text, scanner.at)
    if start is not None and not scanner.is_final:
        raise Incomplete
    named = _NAME_ONLY.match(scanner.text, scanner.at)
    if named is not None and scanner.tools.resolve(named[1]) and not _WORDS_AFTER_NAME.match(scanner.text, named.end()):
        scanner.tool, scanner.at = named[1], named.end()
        raise scanner.error("it has no arguments; write them in parentheses after the name")
    if start is not None and any(name.startswith(start[1] or "") for name in scanner.tools.names):
        scanner.tool = start[1] or ""
        raise Incomplete


def _read_fences(scanner: Scanner) -> Calls:
    begin = scanner.at
    calls = read_code_fence(scanner)
    if calls is None:
        scanner.at = begin
        calls = read_fence(scanner)
    return calls


_INLINE_OBJECTS = tuple(f"{{{quote}{key}{quote}:" for key in (*NAME_KEYS, "tool_calls") for quote in ('"', "'"))
_LINE_INDENT = re.compile(r"\n[ \t]{0,4}\Z")


def _read_brackets(scanner: Scanner) -> Calls:
    """Read a list of calls in Python, or JSON. JSON within a line may be an example, so the model is asked about it."""
    begin = scanner.at
    calls = read_call_list(scanner) if scanner.sees("[") else None
    if calls is None:
        scanner.at = begin
        calls = read_bare(scanner)
    if calls and not _LINE_INDENT.search(scanner.text, max(0, begin - 8), begin):
        scanner.at = begin
        raise scanner.error("it stands within a line; write the call on a line of its own")
    if calls:
        scanner.take_after_space(*_END_MARKS)  # the start mark was not recognised
    return calls


def _read_functools(scanner: Scanner) -> Calls:
    scanner.take("functools")
    return read_between_marks(scanner)


def _reject_end_mark(scanner: Scanner) -> Calls:
    """Reject an end mark without a start mark: the beginning of the call was not recognised."""
    scanner.tool = ""
    raise scanner.error("its beginning cannot be recognised")


_SECTIONS = (
    Form("Hermes, Qwen, GLM, Granite", ("<tool_call>",), ("</tool_call>",), list_needs_end=False),
    Form("MiniMax M1, Hunyuan, Jamba", ("<tool_calls>",), ("</tool_calls>",)),
    Form("MiniMax M2", ("<minimax:tool_call>",), ("</minimax:tool_call>",)),
    Form("DeepSeek 3", ("<\uff5ctool\u2581calls\u2581begin\uff5c>",), ("<\uff5ctool\u2581calls\u2581end\uff5c>",)),
    Form("DeepSeek 3.2", ("<\uff5cDSML\uff5cfunction_calls>",), ("</\uff5cDSML\uff5cfunction_calls>",)),
    Form("DeepSeek 4", ("<\uff5cDSML\uff5ctool_calls>",), ("</\uff5cDSML\uff5ctool_calls>",)),
    Form("Step-3", ("<\uff5ctool_calls_begin\uff5c>",), ("<\uff5ctool_calls_end\uff5c>",)),
    Form("Kimi K2", ("<|tool_calls_section_begin|>",), ("<|tool_calls_section_end|>",)),
    *(Form("a call without its section", (start,), (end,)) for start, end in _CALL_MARKS.items()),
    Form("Claude, Olmo 3", ("<function_calls>",), ("</function_calls>",)),
    Form("Seed", ("<seed:tool_call>",), ("</seed:tool_call>",)),
    Form("LFM2", ("<|tool_call_start|>",), ("<|tool_call_end|>",)),
    Form("Gemma 4", ("<|tool_call>",), ("<tool_call|>",)),
    Form("FunctionGemma", ("<start_function_call>",), ("<end_function_call>",)),
    Form("InternLM", ("<|action_start|><|plugin|>", "<|action_start|> <|plugin|>"), ("<|action_end|>",)),
    Form("Command", ("<|START_ACTION|>",), ("<|END_ACTION|>",)),
    Form("Qwen 2.5 Coder", ("<tools>",), ("</tools>",)),
    Form("Nemotron", ("<TOOLCALL>",), ("</TOOLCALL>",)),
    Form("LongCat", ("<longcat_tool_call>",), ("</longcat_tool_call>",)),
    Form("Apertus", ("<|tools_prefix|>",), ("<|tools_suffix|>",)),
)
_END_MARKS = tuple(dict.fromkeys(["<|call|>", *(mark for form in _SECTIONS for mark in form.ends)]))
END_MARKS = Form("end marks", _END_MARKS, _END_MARKS, _reject_end_mark, is_content=True)
MARKER = Form("marker", (), parse=read_marker_line)
FORMS = (
    *_SECTIONS,
    END_MARKS,
    Form("Granite, Phi-4", ("<|tool_call|>",), ("<|/tool_call|>",), needs_end=False),
    Form("Granite 20B", ("<function_call>",), ("</function_call>",), needs_end=False),
    Form("Llama", ("<|python_tag|>",), ("<|eom_id|>", "<|eot_id|>"), needs_end=False),
    Form("Llama 4", ("<|python_start|>",), ("<|python_end|>", "<|eom_id|>", "<|eot_id|>"), needs_end=False),
    Form("Mistral", ("[TOOL_CALLS]",), ("</s>",), needs_end=False),
    Form("Phi-4", ("functools[",), parse=_read_functools, needs_end=False, is_content=True),
    Form("gpt-oss", ("<|start|>assistant", "<|channel|>"), ("<|call|>", "<|end|>", "<|return|>"), _read_harmony),
    *(Form("tags", (start,), (style.end,), _read_function_tag) for start, style in STYLES.items()),
    Form("Gemini", ("call:",), parse=read_gemma_call),
    Form("Gemini code", ("print(default_api.", "default_api."), parse=read_statements, is_content=True),
    Form("fences", ("```",), parse=_read_fences, at_line_start=True, is_content=True),
    Form("lists and objects", ("[", "{"), parse=_read_brackets, at_line_start=True, is_content=True),
    Form("objects within a line", _INLINE_OBJECTS, parse=_read_brackets, is_content=True),
    Form("ReAct", ("Action:", "**Action:"), parse=_read_action, at_line_start=True),
)
THOUGHTS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<seed:think>": "</seed:think>",
    "[THINK]": "[/THINK]",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "<|channel>thought": "<channel|>",
    "<|channel|>analysis<|message|>": "<|end|>",
}
"""The marks around what a model thinks. A call among it is not made."""
RESULTS = ("TOOL_RESULT ", "TOOL_ERROR ", "<tool_response>")
"""What a model writes after a result that it made up itself is not a call."""
OBSERVATIONS = ("Observation:", "**Observation:")
"""The same after a call. Before a call these are words of the model."""
