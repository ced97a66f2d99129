"""The forms in which models write calls, as a table: the form that the prompt asks for, and those of other models.

Most models write calls between two marks. The text between the marks is read in the same way for all of them, so a
model may mix two forms. Sources: the chat templates of the models, and
https://github.com/vllm-project/vllm/tree/main/vllm/tool_parsers.
"""

import re
from typing import Any

from midspan.providers.prompted.arguments import TAGS
from midspan.providers.prompted.calls import (
    ARGUMENT_KEYS,
    CALL_MARKS,
    NAME_KEYS,
    QUOTE,
    read_after_head,
    read_marker_line,
    read_tags,
    reject_end_mark,
)
from midspan.providers.prompted.scanner import CallForm

PROMPT_MARKER = "TOOL_CALL"
WITHIN_LINE = "it is inside a sentence, a quotation or a comment; to make the call, write it on a separate line"
CONDITIONAL = "the words after it name a condition or say that it is not meant; to make it, write it without them"
PROMPT_FORM = CallForm("the marker of the prompt", (), read=read_marker_line)
_SECTIONS = (
    CallForm("Hermes, Qwen, GLM, Granite", ("<tool_call>",), ("</tool_call>",)),
    CallForm("MiniMax M1, Hunyuan, Jamba", ("<tool_calls>",), ("</tool_calls>",)),
    CallForm("MiniMax M2", ("<minimax:tool_call>",), ("</minimax:tool_call>",)),
    CallForm("DeepSeek 3", ("<\uff5ctool\u2581calls\u2581begin\uff5c>",), ("<\uff5ctool\u2581calls\u2581end\uff5c>",)),
    CallForm("DeepSeek 3.2", ("<\uff5cDSML\uff5cfunction_calls>",), ("</\uff5cDSML\uff5cfunction_calls>",)),
    CallForm("DeepSeek 4", ("<\uff5cDSML\uff5ctool_calls>",), ("</\uff5cDSML\uff5ctool_calls>",)),
    CallForm("Kimi K2", ("<|tool_calls_section_begin|>",), ("<|tool_calls_section_end|>",)),
    *(CallForm("a call without its section", (start,), (end,)) for start, end in CALL_MARKS.items()),
    CallForm("Claude, Olmo 3", ("<function_calls>",), ("</function_calls>",)),
    CallForm("Seed", ("<seed:tool_call>",), ("</seed:tool_call>",)),
    CallForm("LFM2", ("<|tool_call_start|>",), ("<|tool_call_end|>",)),
    CallForm("Gemma 4", ("<|tool_call>",), ("<tool_call|>",)),
    CallForm("FunctionGemma", ("<start_function_call>",), ("<end_function_call>",)),
    CallForm("InternLM", ("<|action_start|><|plugin|>",), ("<|action_end|>",)),
    CallForm("Command", ("<|START_ACTION|>",), ("<|END_ACTION|>",)),
    CallForm("Qwen 2.5 Coder", ("<tools>",), ("</tools>",)),
    CallForm("Nemotron", ("<TOOLCALL>",), ("</TOOLCALL>",)),
)
_END_MARKS = ("<|call|>", *dict.fromkeys(mark for form in _SECTIONS for mark in form.end_marks))
_OBJECT = (
    rf"(?:\[\s{{0,16}})?\{{\s{{0,16}}{QUOTE}"
    rf"(?:{'|'.join([*NAME_KEYS, *ARGUMENT_KEYS, 'tool_calls', 'type', 'id', 'index'])}){QUOTE}\s{{0,4}}:"
)
_HARMONY = re.compile(
    r"<\|(?:start\|>assistant|channel\|>)(?:<\|channel\|>|[\s\w]){0,40}?(?<!\w)to=(?P<name>[\w.:-]{1,128}+)"
    r"(?:<\|c(?:hannel|onstrain)\|>|[\s\w]){0,40}?<\|message\|>"
)
_REACT = re.compile(r"Action:\s{0,4}(?P<name>[^\W\d][\w./:-]{0,99})\s{1,8}Action Input:")
_GEMINI_CALL = re.compile(r"call:[^\W\d][\w./:-]{0,99}\{")
_NOT_INDENTED = re.compile(r"(?<![ \t])\w")  # indented code may be inside an `if`, so it is not a call
_FENCED_OBJECT = re.compile(rf"```\w{{0,16}}[ \t]{{0,8}}\r?\n\s{{0,16}}{_OBJECT}")
_OBJECT_OR_CALLS = re.compile(rf"{_OBJECT}|\[\s{{0,16}}[^\W\d][\w./:-]{{0,99}}\(")
_FENCES = tuple(f"```{language}" for language in ("json", "JSON", "tool_calls", "tool", "function_call", ""))
_OBJECTS = tuple(f"{{{quote}{key}{quote}:" for key in (*NAME_KEYS, "tool_calls") for quote in ('"', "'"))
# The start mark is ordinary text, and a part of the call.
_IN_TEXT: Any = {"needs_end_mark": False, "is_unambiguous": False, "includes_start_mark": True}
_ON_A_LINE: Any = {**_IN_TEXT, "place": "line start"}

FORMS = (
    *_SECTIONS,
    CallForm("end marks", _END_MARKS, read=reject_end_mark),
    CallForm("Granite, Phi-4", ("<|tool_call|>",), ("<|/tool_call|>",), needs_end_mark=False),
    CallForm("Granite 20B", ("<function_call>",), ("</function_call>",), needs_end_mark=False),
    CallForm("Llama", ("<|python_tag|>",), ("<|eom_id|>", "<|eot_id|>"), needs_end_mark=False),
    CallForm("Llama 4", ("<|python_start|>",), ("<|python_end|>", "<|eom_id|>", "<|eot_id|>"), needs_end_mark=False),
    CallForm("Mistral", ("[TOOL_CALLS]",), ("</s>",), needs_end_mark=False),
    *(CallForm("tags", (start,), (end,), read=read_tags) for start, end in TAGS.items()),
    CallForm("Gemini code in a fence", ("```tool_code", "```tool_call"), ("```",), place="line start"),
    CallForm(
        "gpt-oss",
        ("<|start|>assistant", "<|channel|>"),
        ("<|call|>", "<|end|>", "<|return|>"),
        head=_HARMONY,
        includes_start_mark=True,
        read=read_after_head,
    ),
    CallForm("ReAct", ("Action:",), head=_REACT, read=read_after_head, **_ON_A_LINE),
    CallForm("Gemini", ("call:",), head=_GEMINI_CALL, **_IN_TEXT),
    CallForm("Gemini code", ("print(default_api.", "default_api."), head=_NOT_INDENTED, **_ON_A_LINE),
    CallForm("JSON in a fence", _FENCES, ("```",), is_unambiguous=False, place="line start", head=_FENCED_OBJECT),
    CallForm("JSON or Python", ("[", "{"), _END_MARKS, head=_OBJECT_OR_CALLS, **_ON_A_LINE),
    CallForm("JSON that may be an example", _OBJECTS, _END_MARKS, place="within a line", **_IN_TEXT),
)
THOUGHTS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<reasoning>": "</reasoning>",
    "<seed:think>": "</seed:think>",
    "[THINK]": "[/THINK]",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "<|channel>thought": "<channel|>",
    "<|channel|>analysis<|message|>": "<|end|>",
}
THOUGHTS |= {case(start): case(end) for start, end in [*THOUGHTS.items()][:4] for case in (str.upper, str.title)}
"""The marks around the thoughts of a model. A call within a thought is not made."""
_THOUGHT_ENDS = tuple(mark for mark in THOUGHTS.values() if mark.startswith("</"))
"""End marks that may come without a start mark, because the prompts of some models contain it."""
COMMENTS = {"<!--": "-->", "/*": "*/"}
"""The marks around comments. A call within a comment is not made."""
OBSERVATION = "Observation:"
RESULTS = ("TOOL_RESULT", "TOOL_ERROR", "<tool_response>", OBSERVATION)
"""If the model writes one of these, it invents a result, and what follows is text; see `CallReader`."""

_FORMS = {mark: form for form in FORMS for mark in form.start_marks}
# There may be a nonce in brackets, bold marks and spaces between the marker and its colon.
NONCE = r"\[[^\]\n]{0,64}\]"
_COLON = r"[*`_]{0,3}[ \t]{0,3}[:\uff1a]"


def form_of(mark: str) -> CallForm | None:
    """Return the form of the call that begins with this mark; None for thoughts, comments and results."""
    return None if mark in _OTHER_MARKS else _FORMS.get(mark, PROMPT_FORM)


_COMMENT_MARKS = (*COMMENTS, *COMMENTS.values())
_OTHER_MARKS = (*THOUGHTS, *_THOUGHT_ENDS, *RESULTS, *_COMMENT_MARKS)


def _mark_pattern() -> str:
    """Return one pattern for all marks. Each alternative begins with another character, which makes searching fast."""
    first, rest = PROMPT_MARKER[0], re.escape(PROMPT_MARKER[1:])
    # The marker as the prompt has it counts also directly after a word; in other letter case only where a word begins.
    in_any_case = rf"(?<![\w\\].)(?i:{rest})(?:{NONCE})?{_COLON}"
    tails = {first: [rf"(?<![_\\].){rest}(?:{NONCE})?{_COLON}", in_any_case], first.lower(): [in_any_case]}
    for mark in sorted([*_FORMS, *_OTHER_MARKS], key=len, reverse=True):
        tails.setdefault(mark[0], []).append(_before(mark) + re.escape(mark[1:]))
    return "|".join(f"{re.escape(begin)}(?:{'|'.join(branches)})" for begin, branches in tails.items())


def _before(mark: str) -> str:
    """Return the lookbehinds for the text before a mark. Their width is fixed, so every form of line start has one."""
    form = _FORMS.get(mark)
    starts = ("\n", "\n ", "\n  ", "\n   ", "\n    ", "\n\t", *THOUGHTS.values())
    bold = ("\n**", "\n`") if mark in RESULTS else ()
    line_starts = [re.escape(start + mark[0]) for start in (*starts, *bold)]
    if mark in RESULTS or mark == "/*" or (form and form.place == "line start"):
        return f"(?:{'|'.join(f'(?<={start})' for start in line_starts)})"
    if form and form.place == "within a line":
        return "".join(f"(?<!{start})" for start in [*line_starts, r"\\."])
    return r"(?<![\w\\.].)" if mark[0].isalpha() else r"(?<!\\.)"


MARK_PATTERN = re.compile(_mark_pattern())
"""A mark with which a call, a thought, a comment or a result may begin."""


def has_call(text: str, begin: int, end: int) -> bool:
    """Whether this part of the text contains a mark that never occurs in plain text."""
    forms = (form_of(mark[0]) for mark in MARK_PATTERN.finditer(text, begin, end))
    return any(form is not None and form.is_unambiguous and form.head is None for form in forms)


_MARKS = (PROMPT_MARKER, *_FORMS, *_OTHER_MARKS, *THOUGHTS.values())
_BEGINNINGS = frozenset(mark[:size].casefold() for mark in _MARKS for size in range(1, len(mark)))
_MAX_HELD_CHARS = 100
"""More than the longest mark, even with a nonce."""
_OPEN_MARKER = re.compile(
    rf"(?i:{re.escape(PROMPT_MARKER)})(?:\[[^\]\n]{{0,64}}|(?:{NONCE})?[*`_]{{0,3}}[ \t]{{0,3}})\Z"
)


def held_from(text: str, at: int) -> int:
    """Return the position from which on the text is held back, because its end may be the beginning of a mark."""
    begin = max(at, len(text) - _MAX_HELD_CHARS)
    marker = _OPEN_MARKER.search(text, begin)
    held = len(text) if marker is None else marker.start()
    return next((start for start in range(begin, held) if text[start:].casefold() in _BEGINNINGS), held)


def escape_marks(json: str) -> str:
    """Write the first character of each mark in a JSON text as an escape, which does not change the value."""
    return MARK_PATTERN.sub(_escape, json)


def _escape(mark: re.Match[str]) -> str:
    if mark[0] in _COMMENT_MARKS or mark[0].startswith('{"'):  # not in a string, where the quote would be escaped
        return mark[0]
    return f"\\u{ord(mark[0][0]):04x}{mark[0][1:]}"
