"""The forms in which models write calls, as a table: the form that the prompt asks for, and those of other models.

Most models write calls between two marks. What stands between the marks is read in the same way for all of them, so a
model that mixes two forms is read, too. Sources: the chat templates of the models, and
https://github.com/vllm-project/vllm/tree/main/vllm/tool_parsers.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache

from msgspec.structs import replace

from midspan.providers.prompted.arguments import (
    GLM_STYLE,
    TAG_STYLES,
    check_names,
    check_rest,
    read_gemma_object,
    read_object,
    read_parameters,
    read_parentheses,
    read_tag_call,
)
from midspan.providers.prompted.calls import (
    ARGUMENT_KEYS,
    NAME_KEYS,
    Calls,
    read_bare_json,
    read_call_list,
    read_fence,
    read_json_calls,
    read_statements,
)
from midspan.providers.prompted.scanner import Form, Incomplete, Scanner, Unreadable, WrittenCall

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
            raise Unreadable(f"expected {form.ends[0]} after it")
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
    has_end = any(mark in window for mark in scanner.form.ends)
    if not has_end:
        scanner.look(begin + _MAX_UNRECOGNISED_CHARS)
    is_cut = len(window) < _MAX_UNRECOGNISED_CHARS and scanner.form.needs_end and len(window.split()) == 1
    if (has_end and scanner.form.needs_end) or is_cut or _MEMBER.match(window.lstrip()):
        scanner.tool = ""
        raise Unreadable("it is not one of the known forms of a call")


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
    if tag := scanner.take(*TAG_STYLES):
        call = read_tag_call(scanner, tag)
        return None if call is None else [call]
    return _read_named(scanner)


_CALL_ID = re.compile(r"[\w-]{0,64}")


def _read_named(scanner: Scanner) -> Calls:
    """Read a call that begins with the name of its tool."""
    name = scanner.name()
    if name == "function" and scanner.take(*_SEPARATORS):  # DeepSeek 3 and Step-3 write the kind of the call first
        scanner.space()
        return _read_calls(scanner)
    if name.startswith("call:"):
        scanner.at += len("call:") - len(name)
        return _read_gemma_call(scanner)
    if not name:
        return None
    tool = scanner.tools.resolve(name) or scanner.tools.resolve(name.removesuffix(".call"))
    scanner.tool = tool or ""
    if scanner.sees("("):
        return [WrittenCall(tool or name, read_parentheses(scanner, python=True))]
    if scanner.take("[CALL_ID]"):
        scanner.match(_CALL_ID)
    if scanner.take_after_space("[ARGS]", *_SEPARATORS) or scanner.sees("{"):
        return [WrittenCall(tool or name, read_object(scanner))]
    scanner.space()
    if scanner.sees("```"):
        return [WrittenCall(tool or name, _read_fenced_object(scanner))]
    if scanner.sees("<arg_key>") or (scanner.form.ends and scanner.form.needs_end and scanner.sees(*scanner.form.ends)):
        return [WrittenCall(tool or name, read_parameters(scanner, GLM_STYLE))]
    if tool is None:
        scanner.tool = None
        return None
    raise Unreadable("its arguments cannot be recognised")


def _read_fenced_object(scanner: Scanner) -> dict[str, object]:
    fence = scanner.take_after_space("```json", "```")
    arguments = read_object(scanner)
    if fence:
        scanner.expect("```")
    return arguments


def _read_gemma_call(scanner: Scanner) -> Calls:
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
    head = scanner.match(_HARMONY, _MAX_HARMONY_CHARS)
    name = head and (head[1] or head[2])
    if not name:
        return None
    tool = scanner.tools.resolve(name)
    scanner.tool = tool or ""
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
        check_rest(scanner, in_parentheses=True)
        return [WrittenCall(tool, arguments)]
    scanner.take_after_space("**")
    scanner.space()
    if "Action Input:".startswith(scanner.text[scanner.at : scanner.at + 20]):
        scanner.tool = tool
        raise Incomplete
    if not scanner.take("Action Input:", "**Action Input:**", "**Action Input**:"):
        return None
    scanner.tool = tool
    arguments = _read_fenced_object(scanner)
    check_rest(scanner)
    return [WrittenCall(tool, arguments)]


# After the marker, a name may follow on the next line, in bold, in backticks, in quotes or after a bracket.
_NAME = r"[^\W\d][\w./-]{0,127}+(?::[\w./-]{1,127}+)?+"
_BEFORE_NAME = re.compile(r"[ \t]{0,32}(?:\r?\n[ \t]{0,32})?(?:[*`\"'\[<][ \t]{0,4}){0,6}")
_NAMED = re.compile(rf"({_NAME})[*`\"']{{0,3}}[ \t]{{0,32}}([({{])")
_NAME_ONLY = re.compile(rf"({_NAME})(?:[*`\"']{{0,3}}[ \t]{{1,32}}(\w))?")
_MAX_MARKER_CHARS = 400


def _read_marker_line(scanner: Scanner) -> Calls:
    """Read the call after the marker that the prompt asks for: `TOOL_CALL: name({…})`, and what models make of it."""
    scanner.match(_BEFORE_NAME)
    if scanner.sees("{"):
        calls = read_json_calls(scanner, is_certain=True)
        check_rest(scanner)
        return calls
    head = scanner.match(_NAMED, _MAX_MARKER_CHARS)
    if head is None:
        _check_name_only(scanner)
        return None
    tool = scanner.tools.resolve(head[1])
    in_parentheses = head[2] == "("
    if not in_parentheses and tool is None:
        return None
    scanner.tool, scanner.at = tool or head[1], head.end() - 1
    arguments = read_parentheses(scanner) if in_parentheses else read_object(scanner)
    check_rest(scanner, in_parentheses=in_parentheses)
    return [WrittenCall(tool or head[1], arguments)]


def _check_name_only(scanner: Scanner) -> None:
    """Raise if a marker is followed by nothing but a tool. With more words the text is about the tool."""
    named = _NAME_ONLY.match(scanner.text, scanner.at)
    name = named[1] if named else ""
    if scanner.tools.resolve(name) and not (named and named[2]):
        scanner.tool = name
        raise Unreadable("it has no arguments; write them in parentheses after the name")
    if scanner.at + len(name) == len(scanner.text) and any(tool.startswith(name) for tool in scanner.tools.names):
        scanner.tool = name
        raise Incomplete


_INLINE_OBJECTS = tuple(f"{{{quote}{key}{quote}:" for key in (*NAME_KEYS, "tool_calls") for quote in ('"', "'"))
_LINE_INDENT = re.compile(r"\n[ \t]{0,4}\Z")


def _read_brackets(scanner: Scanner) -> Calls:
    """Read a list of calls in Python, or JSON. JSON within a line may be an example, so the model is asked about it."""
    begin = scanner.at
    calls = read_call_list(scanner) if scanner.sees("[") else None
    if calls is None:
        scanner.at = begin
        calls = read_bare_json(scanner)
    if calls is None:
        return None
    scanner.take_after_space(*_END_MARKS)  # the start mark was not recognised
    if not _LINE_INDENT.search(scanner.text, max(0, begin - 8), begin):
        error = "it stands within a line; write the call on a line of its own"
        return [replace(call, error=f"the call of {call.name} is not made: {error}") for call in calls]
    return calls


def _read_functools(scanner: Scanner) -> Calls:
    scanner.take("functools")
    return read_between_marks(scanner)


def _reject_end_mark(scanner: Scanner) -> Calls:
    """Reject an end mark without a start mark: the beginning of the call was not recognised."""
    scanner.tool = ""
    raise Unreadable("its beginning cannot be recognised")


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
MARKER = Form("marker", (), parse=_read_marker_line)
FORMS = (
    *_SECTIONS,
    Form("end marks", _END_MARKS, _END_MARKS, _reject_end_mark, is_content=True),
    Form("Granite, Phi-4", ("<|tool_call|>",), ("<|/tool_call|>",), needs_end=False),
    Form("Granite 20B", ("<function_call>",), ("</function_call>",), needs_end=False),
    Form("Llama", ("<|python_tag|>",), ("<|eom_id|>", "<|eot_id|>"), needs_end=False),
    Form("Llama 4", ("<|python_start|>",), ("<|python_end|>", "<|eom_id|>", "<|eot_id|>"), needs_end=False),
    Form("Mistral", ("[TOOL_CALLS]",), ("</s>",), needs_end=False),
    Form("Phi-4", ("functools[",), parse=_read_functools, needs_end=False, is_content=True),
    Form("gpt-oss", ("<|start|>assistant", "<|channel|>"), ("<|call|>", "<|end|>", "<|return|>"), _read_harmony),
    *(Form("tags", (start,), (style.end,), _read_function_tag) for start, style in TAG_STYLES.items()),
    Form("Gemini", ("call:",), parse=_read_gemma_call),
    Form("Gemini code", ("print(default_api.", "default_api."), parse=read_statements, is_content=True),
    Form("fences", ("```",), parse=read_fence, at_line_start=True, is_content=True),
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
THOUGHT_ENDS = tuple(mark for mark in THOUGHTS.values() if mark.startswith("</"))
"""Those of models whose prompt already contains the start mark."""
RESULTS = ("TOOL_RESULT ", "TOOL_ERROR ", "<tool_response>")
"""What a model writes after a result that it made up itself is not a call."""
OBSERVATIONS = ("Observation:", "**Observation:")
"""The same after a call. Before a call these are words of the model."""


# A lookbehind has a fixed width, so each indentation of a line is an alternative of its own.
_INDENTS = ("", " ", "  ", "   ", "    ", "\t")
# A nonce in brackets, bold marks and spaces may stand between the marker and its colon.
_NONCE = r"\[[^\]\n]{0,64}\]"
_NEAR_CHARS = 300
_COLON = r"[*`_]{0,3}[ \t]{0,3}[:\uff1a]"


class CallPatterns:
    """The start marks of all forms as one expression."""

    def __init__(self, marker: str, *, other_forms: bool) -> None:
        self._forms = {mark: form for form in FORMS if other_forms for mark in form.starts}
        anywhere = [mark for mark, form in self._forms.items() if not form.at_line_start]
        at_line_start = [mark for mark, form in self._forms.items() if form.at_line_start]
        thoughts = [*THOUGHTS, *THOUGHT_ENDS]
        results = [*RESULTS, *OBSERVATIONS]
        self._starts = re.compile(f"(?=({_alternatives(marker, anywhere, at_line_start)}))(.)", re.DOTALL)
        self._places = re.compile(_alternatives(marker, [*anywhere, *thoughts], [*at_line_start, *results]))
        marks = [marker, *anywhere, *at_line_start, *THOUGHTS, *THOUGHTS.values(), *results]
        self._beginnings = frozenset(mark[:size].casefold() for mark in marks for size in range(1, len(mark)))
        self._longest = max(map(len, marks))
        self._open_marker = re.compile(
            rf"(?i:{re.escape(marker)})(?:\[[^\]\n]{{0,64}}|(?:{_NONCE})?[*`_]{{0,3}}[ \t]{{0,3}})\Z"
        )

    def find(self, text: str, at: int) -> re.Match[str] | None:
        """Return the next place where a call, a thought or a result may begin."""
        return self._places.search(text, at)

    def forms_in(self, text: str, begin: int, end: int) -> Iterator[Form]:
        """Yield the forms of calls that begin in this part of the text, by marks that do not occur in plain text."""
        forms = (self.form_of(place[1]) for place in self._starts.finditer(text, begin, end))
        return (form for form in forms if not form.at_line_start)

    def form_of(self, mark: str) -> Form:
        return self._forms.get(mark, MARKER)

    def escape(self, text: str, escape: Callable[[str], str], names: Collection[str]) -> str:
        """Replace the first character of each start mark. Marks that also occur in plain text need a tool nearby."""

        def replace(place: re.Match[str]) -> str:
            near = text[place.start() : place.start() + _NEAR_CHARS]
            is_start = not self.form_of(place[1]).at_line_start or any(name in near for name in names)
            return escape(place[2]) if is_start else place[2]

        return self._starts.sub(replace, text)

    def held_from(self, text: str, at: int) -> int:
        """Return from where on the text must wait, because its end may be the beginning of a mark."""
        marker = self._open_marker.search(text, max(at, len(text) - self._longest - 80))
        held = len(text) if marker is None else marker.start()
        for size in range(min(self._longest, len(text) - at), 0, -1):
            if text[-size:].casefold() in self._beginnings:
                return min(held, len(text) - size)
        return held


@lru_cache(maxsize=256)
def call_patterns(marker: str, *, other_forms: bool) -> CallPatterns:
    return CallPatterns(marker, other_forms=other_forms)


def _alternatives(marker: str, anywhere: Iterable[str], at_line_start: Iterable[str]) -> str:
    """Return one expression. Each alternative begins with another character, so text without marks is skipped fast."""
    tails: dict[str, list[str]] = {}
    first, rest = marker[0], re.escape(marker[1:])
    # The marker as the prompt has it counts anywhere, even glued to a word; in other letters only where a word begins.
    tails[first] = [rf"(?<![_\\].){rest}(?:{_NONCE})?{_COLON}"]
    for letter in dict.fromkeys([first.upper(), first.lower()]):
        tails.setdefault(letter, []).append(rf"(?<![\w\\].)(?i:{rest})(?:{_NONCE})?{_COLON}")
    for mark in sorted(anywhere, key=len, reverse=True):
        before = r"(?<![\w\\.].)" if mark[0].isalpha() else r"(?<!\\.)"
        tails.setdefault(mark[0], []).append(before + re.escape(mark[1:]))
    for mark in sorted(at_line_start, key=len, reverse=True):
        line_start = "|".join(rf"(?<=\n{indent}{re.escape(mark[0])})" for indent in _INDENTS)
        tails.setdefault(mark[0], []).append(f"(?:{line_start}){re.escape(mark[1:])}")
    return "|".join(f"{re.escape(first)}(?:{'|'.join(branches)})" for first, branches in tails.items())
