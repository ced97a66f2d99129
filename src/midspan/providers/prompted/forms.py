"""The forms in which models write calls, as a table: the form that the prompt asks for, and those of other models.

Most models write calls between two marks. What stands between the marks is read in the same way for all of them, so a
model that mixes two forms is read, too. Sources: the chat templates of the models, and
https://github.com/vllm-project/vllm/tree/main/vllm/tool_parsers.
"""

import re
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache

from msgspec.structs import replace

from midspan.providers.prompted.arguments import (
    GLM_TAGS,
    TAGS,
    check_names,
    check_rest,
    read_object,
    read_parameters,
    read_parentheses,
    read_tag_call,
)
from midspan.providers.prompted.calls import (
    ARGUMENT_KEYS,
    BRACKETS,
    FENCE,
    NAME_KEYS,
    begins_statement,
    may_be_bracket_call,
    may_be_fence_call,
    may_be_json_call,
    read_bare_json,
    read_call_list,
    read_fence,
    read_json_calls,
    read_statements,
)
from midspan.providers.prompted.scanner import CUT, LINE_START, THOUGHTS, Calls, Form, Scanner, Unreadable, WrittenCall

# Marks around each call of a section: DeepSeek and Kimi K2.
_CALL_MARKS = {
    "<\uff5ctool\u2581call\u2581begin\uff5c>": "<\uff5ctool\u2581call\u2581end\uff5c>",
    "<|tool_call_begin|>": "<|tool_call_end|>",
}
_SEPARATORS = ("<\uff5ctool\u2581sep\uff5c>", "<|tool_call_argument_begin|>")


def read_between_marks(scanner: Scanner) -> Calls:
    """Read the calls between the marks of a form."""
    form, begin, end = scanner.form, scanner.at, scanner.at
    calls: list[WrittenCall] = []
    has_more = True
    while has_more and (found := _read_marked_calls(scanner)) is not None:
        calls += found
        end = scanner.at
        has_more = bool(scanner.take_after_space(",", ";")) or form.needs_end
        if scanner.take_after_space(*form.ends):
            return calls
    if not calls:
        _check_unrecognised(scanner, begin)
        return None
    if form.needs_end:
        raise Unreadable(f"expected {form.ends[0]} after it")
    scanner.at = end
    check_rest(scanner)
    return calls


def _read_marked_calls(scanner: Scanner) -> Calls:
    scanner.space()
    mark = scanner.take(*_CALL_MARKS)
    scanner.space()
    calls = _read_calls(scanner)
    if calls is not None and mark:
        scanner.expect(_CALL_MARKS[mark])
    return calls


_MEMBER = re.compile(rf"[\"'“]?(?:{'|'.join([*NAME_KEYS, *ARGUMENT_KEYS])})[\"'”]?\s{{0,4}}[:=]")
_MAX_UNRECOGNISED_CHARS = 2_000


def _check_unrecognised(scanner: Scanner, begin: int) -> None:
    """Raise `Unreadable` if something between the marks was meant as a call. Otherwise the text is about the mark."""
    window = scanner.text[begin : begin + _MAX_UNRECOGNISED_CHARS]
    has_end = any(mark in window for mark in scanner.form.ends)
    is_cut = len(window) < _MAX_UNRECOGNISED_CHARS and len(window.split()) == 1
    if ((has_end or is_cut) and scanner.form.needs_end) or _MEMBER.match(window.lstrip()):
        scanner.tool = ""
        raise Unreadable("it is not one of the known forms of a call")


_JSON_START = re.compile(r"(?:\[\s*)?[{\]]")


def _read_calls(scanner: Scanner) -> Calls:
    """Read one call, or a list of calls, in any form."""
    if _JSON_START.match(scanner.text, scanner.at):
        return read_json_calls(scanner, is_certain=True)
    if scanner.sees("["):
        return read_call_list(scanner, is_certain=True)
    if tag := scanner.take(*TAGS):
        call = read_tag_call(scanner, tag)
        return None if call is None else [call]
    return _read_named(scanner)


_CALL_ID = re.compile(r"[\w-]{0,64}")


def _read_named(scanner: Scanner) -> Calls:
    """Read a call that begins with the name of its tool."""
    name = scanner.name()
    if name == "function" and scanner.take(*_SEPARATORS):  # DeepSeek 3 writes the kind of the call first
        scanner.space()
        return _read_calls(scanner)
    if name.startswith("call:"):
        scanner.at += len("call:") - len(name)
        return _read_gemma_call(scanner)
    if not name:
        return None
    name = scanner.call_of(name.removesuffix(".call") if scanner.tools.resolve(name) is None else name)
    if scanner.sees("("):
        return [WrittenCall(name, read_parentheses(scanner, python=True))]
    if scanner.take("[CALL_ID]"):
        scanner.match(_CALL_ID)
    if scanner.take_after_space("[ARGS]", *_SEPARATORS) or scanner.sees("{"):
        return [WrittenCall(name, read_object(scanner))]
    scanner.space()
    if scanner.take("```json", "```"):
        arguments = read_object(scanner)
        scanner.expect("```")
        return [WrittenCall(name, arguments)]
    if scanner.sees("<arg_key>") or (scanner.form.needs_end and scanner.sees(*scanner.form.ends)):
        return [WrittenCall(name, read_parameters(scanner, GLM_TAGS))]
    if scanner.tool:
        raise Unreadable("its arguments cannot be recognised")
    return None


def _read_gemma_call(scanner: Scanner) -> Calls:
    """Read `f{city:"Oslo"}` after `call:`. Outside of its marks it counts only for declared tools."""
    name = scanner.name().rstrip(":")
    is_alone = not scanner.form.ends
    if not name or (is_alone and scanner.tools.resolve(name) is None) or not scanner.sees("{"):
        return None
    name = scanner.call_of(name)
    arguments = read_object(scanner, tokens=True)
    check_names(scanner, arguments)
    if is_alone:
        check_rest(scanner)
    return [WrittenCall(name, arguments)]


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


def _may_be_harmony_call(scanner: Scanner) -> bool | None:
    head = _HARMONY.match(scanner.text, scanner.at)
    if head is None:
        return None if len(scanner.text) - scanner.at < _MAX_HARMONY_CHARS else False
    return bool(head[1] or head[2])


def _read_harmony(scanner: Scanner) -> Calls:
    """Read a message of gpt-oss. Only a message with a recipient is a call."""
    head = scanner.match(_HARMONY)
    name = head and (head[1] or head[2])
    if not name:
        return None
    return _read_object_call(scanner, name)


def _read_object_call(scanner: Scanner, name: str) -> Calls:
    """Read the arguments after the head of a call, up to the end mark of the form, which may be missing."""
    call = WrittenCall(scanner.call_of(name), read_object(scanner))
    if not scanner.take_after_space(*scanner.form.ends):
        check_rest(scanner)
    return [call]


_ACTION = re.compile(r"Action:\s{0,4}([^\W\d][\w./:-]{0,99})\s{1,8}Action Input:")


def _read_action(scanner: Scanner) -> Calls:
    """Read `Action: name` with `Action Input: {…}` on the next line."""
    head = scanner.match(_ACTION)
    if head is None or (scanner.tools.resolve(head[1]) is None and not scanner.tools.similar(head[1])):
        return None
    return _read_object_call(scanner, head[1])


# After the marker, a name may follow on the next line, in bold, in backticks, in quotes or after a bracket.
_NAME = r"[^\W\d][\w./-]{0,127}+(?::[\w./-]{1,127}+)?+"
_BEFORE_NAME = re.compile(r"[ \t]{0,32}(?:\r?\n[ \t]{0,32})?(?:[*`\"'\[<][ \t]{0,4}){0,6}")
_NAMED = re.compile(rf"({_NAME})[*`\"']{{0,3}}[ \t]{{0,32}}([({{])")
_NAME_ONLY = re.compile(rf"({_NAME})(?:[*`\"']{{0,3}}[ \t]{{1,32}}(\w))?")


_AFTER_NAME = re.compile(rf"({_NAME})[*`\"']{{0,3}}+[ \t]{{0,32}}+(?:[({{]|(\w|[^\w({{: \t]|:[^\w./-]))")


def _may_be_marker_call(scanner: Scanner) -> bool | None:
    """Whether a name and a bracket follow, or an object, or nothing but the name of a tool."""
    scanner.match(_BEFORE_NAME)
    next_chars = scanner.text[scanner.at : scanner.at + 2]
    if next_chars in ("", "\r") or next_chars[0] == "{":
        return True if next_chars[:1] == "{" else None
    if not re.match(r"[^\W\d]", next_chars):
        return False
    head = _AFTER_NAME.match(scanner.text, scanner.at)
    if head is None:
        return None
    name_only = _NAME_ONLY.match(scanner.text, scanner.at)
    is_mention = scanner.tools.resolve(head[1]) is None or (name_only is not None and name_only[2])
    return not (head[2] and is_mention)


def _read_marker_line(scanner: Scanner) -> Calls:
    """Read the call after the marker that the prompt asks for: `TOOL_CALL: name({…})`, and what models make of it."""
    scanner.match(_BEFORE_NAME)
    if scanner.sees("{"):
        calls = read_json_calls(scanner, is_certain=True)
        check_rest(scanner)
        return calls
    head = scanner.match(_NAMED)
    if head is None:
        _check_name_only(scanner)
        return None
    in_parentheses = head[2] == "("
    if not in_parentheses and scanner.tools.resolve(head[1]) is None:
        return None
    name = scanner.call_of(head[1])
    scanner.tool, scanner.at = name, head.end() - 1
    arguments = read_parentheses(scanner) if in_parentheses else read_object(scanner)
    check_rest(scanner, in_parentheses=in_parentheses)
    return [WrittenCall(name, arguments)]


def _check_name_only(scanner: Scanner) -> None:
    """Raise if a marker is followed by nothing but a tool. With more words the text is about the tool."""
    named = _NAME_ONLY.match(scanner.text, scanner.at)
    name = named[1] if named else ""
    if scanner.tools.resolve(name) and not (named and named[2]):
        scanner.tool = name
        raise Unreadable("it has no arguments; write them in parentheses after the name")
    if scanner.at + len(name) == len(scanner.text) and any(tool.startswith(name) for tool in scanner.tools.names):
        scanner.tool = name
        raise Unreadable(CUT)


_INLINE_OBJECTS = tuple(f"{{{quote}{key}{quote}:" for key in (*NAME_KEYS, "tool_calls") for quote in ('"', "'"))
_LINE_INDENT = re.compile(rf"(?:{LINE_START})[ \t]{{0,4}}\Z")


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
    if not _LINE_INDENT.search(scanner.text, max(0, begin - 24), begin):
        error = "it stands within a line; write the call on a line of its own"
        return [replace(call, error=f"the call of {call.name} is not made: {error}") for call in calls]
    return calls


def _reject_end_mark(scanner: Scanner) -> Calls:
    """Reject an end mark without a start mark: the beginning of the call was not recognised."""
    scanner.tool = ""
    raise Unreadable("its beginning cannot be recognised")


_SECTIONS = (
    Form("Hermes, Qwen, GLM, Granite", ("<tool_call>",), ("</tool_call>",)),
    Form("MiniMax M1, Hunyuan, Jamba", ("<tool_calls>",), ("</tool_calls>",)),
    Form("MiniMax M2", ("<minimax:tool_call>",), ("</minimax:tool_call>",)),
    Form("DeepSeek 3", ("<\uff5ctool\u2581calls\u2581begin\uff5c>",), ("<\uff5ctool\u2581calls\u2581end\uff5c>",)),
    Form("DeepSeek 3.2", ("<\uff5cDSML\uff5cfunction_calls>",), ("</\uff5cDSML\uff5cfunction_calls>",)),
    Form("DeepSeek 4", ("<\uff5cDSML\uff5ctool_calls>",), ("</\uff5cDSML\uff5ctool_calls>",)),
    Form("Kimi K2", ("<|tool_calls_section_begin|>",), ("<|tool_calls_section_end|>",)),
    *(Form("a call without its section", (start,), (end,)) for start, end in _CALL_MARKS.items()),
    Form("Claude, Olmo 3", ("<function_calls>",), ("</function_calls>",)),
    Form("Seed", ("<seed:tool_call>",), ("</seed:tool_call>",)),
    Form("LFM2", ("<|tool_call_start|>",), ("<|tool_call_end|>",)),
    Form("Gemma 4", ("<|tool_call>",), ("<tool_call|>",)),
    Form("FunctionGemma", ("<start_function_call>",), ("<end_function_call>",)),
    Form("InternLM", ("<|action_start|><|plugin|>",), ("<|action_end|>",)),
    Form("Command", ("<|START_ACTION|>",), ("<|END_ACTION|>",)),
    Form("Qwen 2.5 Coder", ("<tools>",), ("</tools>",)),
    Form("Nemotron", ("<TOOLCALL>",), ("</TOOLCALL>",)),
)
_CODE_STARTS = ("print(default_api.", "default_api.")
_END_MARKS = tuple(dict.fromkeys(["<|call|>", *(mark for form in _SECTIONS for mark in form.ends)]))
MARKER = Form("marker", (), parse=_read_marker_line, may_be_call=_may_be_marker_call)
FORMS = (
    *_SECTIONS,
    Form("end marks", _END_MARKS, _END_MARKS, _reject_end_mark, is_content=True),
    Form("Granite, Phi-4", ("<|tool_call|>",), ("<|/tool_call|>",), needs_end=False),
    Form("Granite 20B", ("<function_call>",), ("</function_call>",), needs_end=False),
    Form("Llama", ("<|python_tag|>",), ("<|eom_id|>", "<|eot_id|>"), needs_end=False),
    Form("Llama 4", ("<|python_start|>",), ("<|python_end|>", "<|eom_id|>", "<|eot_id|>"), needs_end=False),
    Form("Mistral", ("[TOOL_CALLS]",), ("</s>",), needs_end=False),
    Form(
        "gpt-oss",
        ("<|start|>assistant", "<|channel|>"),
        ("<|call|>", "<|end|>", "<|return|>"),
        parse=_read_harmony,
        may_be_call=_may_be_harmony_call,
    ),
    *(Form("tags", (start,), (tags.end,), _read_function_tag) for start, tags in TAGS.items()),
    Form(
        "Gemini",
        ("call:",),
        parse=_read_gemma_call,
        head=re.compile(r"call:[^\W\d][\w./:-]{0,99}\{"),
        may_be_call=lambda scanner: scanner.tools.resolve(scanner.name().rstrip(":")) is not None,
    ),
    Form("Gemini code", _CODE_STARTS, parse=read_statements, may_be_call=begins_statement, is_content=True),
    Form(
        "fences",
        ("```",),
        (),
        read_fence,
        at_line_start=True,
        head=FENCE,
        may_be_call=may_be_fence_call,
        is_content=True,
    ),
    Form(
        "lists and objects",
        ("[", "{"),
        parse=_read_brackets,
        at_line_start=True,
        head=BRACKETS,
        may_be_call=may_be_bracket_call,
        is_content=True,
    ),
    Form("objects within a line", _INLINE_OBJECTS, parse=_read_brackets, may_be_call=may_be_json_call, is_content=True),
    Form("ReAct", ("Action:",), parse=_read_action, at_line_start=True, head=_ACTION, is_content=True),
)
THOUGHT_ENDS = tuple(mark for mark in THOUGHTS.values() if mark.startswith("</"))
"""Those of models whose prompt already contains the start mark."""
OBSERVATION = "Observation:"
RESULTS = ("TOOL_RESULT ", "TOOL_ERROR ", "<tool_response>", OBSERVATION)
"""What a model writes after a result that it made up itself is not a call. An observation before a call is text."""


# A lookbehind has a fixed width, so each beginning of a line is an alternative of its own.
_LINE_STARTS = ("\n", "\n ", "\n  ", "\n   ", "\n    ", "\n\t", *THOUGHTS.values())
# A nonce in brackets, bold marks and spaces may stand between the marker and its colon.
NONCE = r"\[[^\]\n]{0,64}\]"
_COLON = r"[*`_]{0,3}[ \t]{0,3}[:\uff1a]"
_NEAR_CHARS = 300


class CallPatterns:
    """The start marks of all forms as one expression."""

    def __init__(self, marker: str) -> None:
        self._forms: dict[str, Form | None] = {mark: form for form in FORMS for mark in form.starts}
        at_line_start = [mark for mark, form in self._forms.items() if form and form.at_line_start] + [*RESULTS]
        self._forms |= dict.fromkeys([*THOUGHTS, *THOUGHT_ENDS, *RESULTS])
        anywhere = [mark for mark in self._forms if mark not in at_line_start]
        self._places = re.compile(_alternatives(marker, anywhere, at_line_start))
        marks = [marker, *self._forms, *THOUGHTS.values()]
        self._beginnings = frozenset(mark[:size].casefold() for mark in marks for size in range(1, len(mark)))
        self._longest = max(map(len, marks))
        self._open_marker = re.compile(
            rf"(?i:{re.escape(marker)})(?:\[[^\]\n]{{0,64}}|(?:{NONCE})?[*`_]{{0,3}}[ \t]{{0,3}})\Z"
        )

    def find(self, text: str, at: int) -> re.Match[str] | None:
        """Return the next place where a call, a thought or a result may begin."""
        return self._places.search(text, at)

    def form_of(self, mark: str) -> Form | None:
        """Return the form of the call that begins with this mark; None for thoughts and results."""
        return self._forms.get(mark, MARKER)

    def has_call(self, text: str, begin: int, end: int) -> bool:
        """Whether there is a mark in this part of the text that does not occur in plain text."""
        forms = (self.form_of(place[0]) for place in self._places.finditer(text, begin, end))
        return any(form is MARKER or (form is not None and form.parse is None) for form in forms)

    def escape(self, text: str, escape: Callable[[str], str], names: Collection[str]) -> str:
        """Replace the first character of each start mark. Marks that also occur in plain text need a tool nearby."""

        def replace(place: re.Match[str]) -> str:
            mark, form = place[0], self.form_of(place[0])
            near = text[place.start() : place.start() + _NEAR_CHARS]
            if form is None or (form.at_line_start and not any(name in near for name in names)):
                return mark
            return escape(mark[0]) + mark[1:]

        return self._places.sub(replace, text)

    def held_from(self, text: str, at: int) -> int:
        """Return from where on the text must wait, because its end may be the beginning of a mark."""
        marker = self._open_marker.search(text, max(at, len(text) - self._longest - 80))
        held = len(text) if marker is None else marker.start()
        for size in range(min(self._longest, len(text) - at), 0, -1):
            if text[-size:].casefold() in self._beginnings:
                return min(held, len(text) - size)
        return held


call_patterns = lru_cache(maxsize=256)(CallPatterns)


def _alternatives(marker: str, anywhere: Iterable[str], at_line_start: Iterable[str]) -> str:
    """Return one expression. Each alternative begins with another character, so text without marks is skipped fast."""
    tails: dict[str, list[str]] = {}
    first, rest = marker[0], re.escape(marker[1:])
    # The marker as the prompt has it counts anywhere, even glued to a word; in other letters only where a word begins.
    tails[first] = [rf"(?<![_\\].){rest}(?:{NONCE})?{_COLON}"]
    for letter in dict.fromkeys([first.upper(), first.lower()]):
        tails.setdefault(letter, []).append(rf"(?<![\w\\].)(?i:{rest})(?:{NONCE})?{_COLON}")
    for mark in sorted(anywhere, key=len, reverse=True):
        before = r"(?<![\w\\.].)" if mark[0].isalpha() else r"(?<!\\.)"
        tails.setdefault(mark[0], []).append(before + re.escape(mark[1:]))
    for mark in sorted(at_line_start, key=len, reverse=True):
        line_start = "|".join(f"(?<={re.escape(start + mark[0])})" for start in _LINE_STARTS)
        tails.setdefault(mark[0], []).append(f"(?:{line_start}){re.escape(mark[1:])}")
    return "|".join(f"{re.escape(first)}(?:{'|'.join(branches)})" for first, branches in tails.items())
