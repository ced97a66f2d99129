"""Calls are read from text while it streams, and the text around them stays text."""

import codecs
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midspan._types.parts import Text, ToolCall
from midspan._types.specs import ToolSpec
from midspan.providers.prompted.forms import CONDITIONAL, WITHIN_LINE
from midspan.providers.prompted.reader import MAX_CALLS, CallReader, Piece, RejectedCall

STRING = {"type": "string"}
TOOLS = [
    ToolSpec("f", parameters={"type": "object", "properties": {"a": {"type": "integer"}, "s": STRING}}),
    ToolSpec("get_weather", parameters={"type": "object", "properties": {"city": STRING}}),
    ToolSpec("math.add"),
]


def read(text: str, **options: Any) -> list[Piece]:
    reader = CallReader(TOOLS, **options)
    return joined([*reader.feed(text), *reader.end()])


def joined(pieces: Sequence[Piece]) -> list[Piece]:
    made: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, Text) and made and isinstance(made[-1], Text):
            made[-1] = Text(made[-1].text + piece.text)
        else:
            made.append(piece)
    return made


def calls(pieces: Sequence[Piece]) -> list[tuple[str, dict[str, Any]]]:
    return [(piece.name, piece.arguments) for piece in pieces if isinstance(piece, ToolCall)]


def rejected(pieces: Sequence[Piece]) -> list[RejectedCall]:
    return [piece for piece in pieces if isinstance(piece, RejectedCall)]


def text(pieces: Sequence[Piece]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, Text))


@pytest.mark.requirement("S2-05", "S2-06", "S2-07", "S2-08")
def test_several_calls_of_a_response_are_read_and_the_text_after_them_stays() -> None:
    said = 'TOOL_CALL: get_weather({"city": "Oslo"})\nTOOL_CALL: f({"a": 1})\n\nI will compare both.'
    assert read(said) == [
        ToolCall("gemini_call_0", "get_weather", {"city": "Oslo"}),
        Text("\n"),
        ToolCall("gemini_call_1", "f", {"a": 1}),
        Text("\n\nI will compare both."),
    ]


BAR, LOW = "\uff5c", "\u2581"
DEEPSEEK = (
    "<|tool_calls_begin|><|tool_call_begin|>function<|tool_sep|>f\n"
    '```json\n{"a": 1}\n```<|tool_call_end|><|tool_calls_end|>'
).replace("|", BAR)
for word in ("calls_begin", "call_begin", "sep", "call_end", "calls_end"):
    DEEPSEEK = DEEPSEEK.replace(f"tool_{word}", f"tool_{word}".replace("_", LOW))

FORMS = [
    'TOOL_CALL: f({"a": 1})',
    '```\nTOOL_CALL: f({"a": 1})\n```',
    '- **TOOL_CALL: f({"a": 1})**',
    '1. **TOOL_CALL:** `f({"a": 1})`',
    '[TOOL_CALL: f({"a": 1})]',
    'tool_call: f({"a": 1})',
    'Tool_Call : f ( {"a": 1} )',
    'TOOL_CALL:\n  f({"a": 1})',
    'TOOL_CALL: f(\n{\n"a":\n1\n}\n)',
    "TOOL_CALL: f(a=1)",
    'TOOL_CALL: f {"a": 1}',
    'TOOL_CALL: {"name": "f", "arguments": {"a": 1}}',
    'TOOL_CALL: default_api.f({"a": 1})',
    'Sure.TOOL_CALL: f({"a": 1})Done',
    'TOOL_CALL: f({"a": 1}',
    '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>',
    "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
    '<|python_tag|>{"name": "f", "parameters": {"a": 1}}<|eom_id|>',
    "<|python_tag|>f.call(a=1)",
    "[f(a=1)]",
    '[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}]',
    '[TOOL_CALLS]f[CALL_ID]x1[ARGS]{"a": 1}',
    DEEPSEEK,
    'Thought: I need f.\nAction: f\nAction Input: {"a": 1}\nObservation:',
    '<function=f>{"a": 1}</function>',
    "```tool_code\nprint(default_api.f(a=1))\n```",
    "print(default_api.f(a=1))",
    "call:default_api:f{a:1}",
    '```json\n{"name": "f", "arguments": {"a": 1}}\n```',
    '```json\n[{"type": "function", "function": {"name": "f", "arguments": "{\\"a\\": 1}"}}]\n```',
    '{"name": "f", "parameters": {"a": 1}}',
]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_the_same_call(form: str) -> None:
    assert calls(read(f"Hello.\n{form}\n")) == [("f", {"a": 1})]


TRICKY = [
    *FORMS,
    'TOOL_CALL: f({"s": "}) TOOL_CALL: f({\\"a\\": 2}) \\\\"}) TOOL_CALL: math.add() ok',
    "TOOL_CALL: f({'s': 'it's'}) rest\nTOOL_CALL: f({\"a\": 1})\nend",
    'TOOL_CALL: f({"s": "open\nTOOL_CALL: f({"a": 1})\n\nand more',
    'So TOOL_CALL: f(...)\nis what I need. </think>\nTOOL_CALL: f({"a": 1})',
    f'TOOL_CALL: f({{"a": 1}})\n, "s": "{"long " * 40}"}})',
    f'{{"id": oops, "s": "{"long " * 40}", "name": "f", "arguments": {{}}}}',
    "TOOL_CALL: f({'s': 'it's </think>\nTOOL_CALL: f({\"a\": 1})'}) </think>\nTOOL_CALL: f({\"a\": 1})",
    'TOOL_CALL: nothing({"a": 1}) é😀 “quoted” TOOL_CALL: f',
    "a tool call: no. TOOL_CALL is a word; TOOL_CALL: line. tool_cal",
    "[note] {x} ``` [f(x)] \\TOOL_CALL: f({})",
    '[f(a=1), get_weather(city="Oslo")] and TOOL_CALL: f({"s": "cut',
    'TOOL_CALL: f(oops)\nSorry, let me try that again and properly this time: TOOL_CALL: f({"a": 1}) ok',
    'I do not run TOOL_CALL: f({"a": 1}) TOOL_CALL: f({"a": 2})\nTOOL_CALL: f({"a": 3})',
    'TOOL_CALL: f({"s": "said "x" })\nTOOL_CALL: f({"a": 1})',
    'TOOL_CALL: f({"a": 1} if x else {"a": 2})\nTOOL_CALL: f({"a": 3})',
    "```tool_code\nif x:\n    default_api.f(a=1)\n```\nTOOL_CALL: f(a=2)",
    "print(default_api.f(a=1)); default_api.f(a=2)\ndefault_api.f(a=3) if x else 0\nx = default_api.f(a=4)",
    'TOOL_CALL: f(a=1)\nObservation: 4\nTOOL_CALL: f({"a": 2})',
    'TOOL_RESULT x f: 4\nTOOL_CALL: f({"a": 2})',
    '[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}, {"name": "nope", "arguments": {}}]',
    '{"arguments": {"s": "open\nTOOL_CALL: f({})',
    '```json\n{"name": "f", "arguments": {"a": 1}}\n{"name": "f", "arguments": {"a": 2}}\n``',
    '```json\n{"name": "f", "arguments": {"a": 1}}\n// so\n```\nTOOL_CALL: f({})',
    '[{"type": "function",  function": {"name": "f", "arguments": {"a": 1}}}]\nTOOL_CALL: f({})',
    'TOOL_CALL: functions:f({"a": 1})',
    '{"id": 1} {"name": "f", "arguments": {"a": 1}}',
    '<|channel|>final<|message|>So <|start|>assistant<|channel|>commentary to=functions.f<|message|>{"a": 1}<|call|>',
    f'{{"name": "Ada", "notes": "{"words " * 40}", "tool": "f", "arguments": {{"a": 1}}}}\nTOOL_CALL: f(a=1)',
]


@pytest.mark.parametrize("said", TRICKY)
def test_cut_at_every_byte_it_is_read_the_same(said: str) -> None:
    whole = read(said)
    data = said.encode()
    for size in (1, 2, 3, 7):
        assert in_pieces([data[at : at + size] for at in range(0, len(data), size)]) == whole
    for cut in range(len(data)):
        assert in_pieces([data[:cut], data[cut:]]) == whole


PARTS = st.sampled_from(
    [*TRICKY, "\n", " ", "\n\n", "TOOL_CALL:", "f(", "{", '"', "'", "}", ")", "```", "x", "<tool_call>"]
)


@given(st.lists(PARTS, max_size=8).map("".join), st.data())
def test_cut_anywhere_any_mixture_is_read_the_same(said: str, data: st.DataObject) -> None:
    bytes_said = said.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(bytes_said)), max_size=6)))
    pieces = [bytes_said[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(bytes_said)], strict=True)]
    assert in_pieces(pieces) == read(said)


def in_pieces(pieces: Sequence[bytes]) -> list[Piece]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    reader = CallReader(TOOLS)
    made: list[Piece] = []
    for piece in pieces:
        made += reader.feed(decoder.decode(piece))
    return joined([*made, *reader.end()])


@given(st.text(alphabet=st.sampled_from("TOL_CAtolc: f({})\"'\n`[]<>ab=1\\"), max_size=60))
def test_nothing_is_lost_and_nothing_is_shown_twice(said: str) -> None:
    pieces = read(said)
    if not calls(pieces):
        assert "".join(piece.text for piece in pieces if not isinstance(piece, ToolCall)) == said


def test_the_marker_is_never_shown_and_other_text_is_not_held_back() -> None:
    reader = CallReader(TOOLS)
    shown = [text(reader.feed(letter)) for letter in 'To be sure:\nTOOL_CALL: f({"a": 1}) ok, then']
    assert "".join(shown) == "To be sure:\n"
    assert "".join(shown[: len("To be sure:\n")]) == "To be sure:\n"
    assert text(reader.end()) == " ok, then"


def test_text_is_given_out_until_a_call_may_begin_and_the_rest_at_the_end() -> None:
    reader = CallReader(TOOLS)
    plain = "A list:\n[1] of links,\n```python\nprint(1)\n```\n[2] more. " + "Words. " * 40 + "\n"
    assert text(reader.feed(plain)) == plain
    assert reader.feed('TOOL_CALL: f({"a": 1})\nI will tell you about it.') == []
    assert reader.feed(" Soon.") == []
    assert reader.end() == [ToolCall("gemini_call_0", "f", {"a": 1}), Text("\nI will tell you about it. Soon.")]


def test_text_before_a_mark_in_the_same_piece_is_given_out_at_once() -> None:
    assert CallReader(TOOLS).feed("Hello.\nTOOL_CALL: f(") == [Text("Hello.\n")]


def test_text_between_a_call_and_an_unreadable_one_stays() -> None:
    call, between, unreadable = read('TOOL_CALL: f({"a": 1})\nAnd now:\nTOOL_CALL: f({"a": ')
    assert (call, between) == (ToolCall("gemini_call_0", "f", {"a": 1}), Text("\nAnd now:\n"))
    assert isinstance(unreadable, RejectedCall)
    assert (unreadable.text, unreadable.name, unreadable.is_unreadable) == ('TOOL_CALL: f({"a": ', "f", True)


def test_an_unreadable_call_in_a_sentence_has_another_problem_than_its_arguments() -> None:
    (one,) = rejected(read('I will not run TOOL_CALL: f({"a": '))
    assert not one.is_unreadable


def test_a_call_whose_tool_is_not_known_has_no_name() -> None:
    (one,) = rejected(read("So be it.</tool_call>"))
    assert (one.name, one.error) == (None, "a call cannot be read: its beginning cannot be recognised")


ANSWERS = [
    "<|channel|>final<|message|>Hello",
    "<|channel|>analysis<|message|>think<|end|><|start|>assistant<|channel|>final<|message|>Hello",
    'The record is {"age": 3, "name": "Ada"} and',
    'Here:\n```json\n{"age": 3, "name": "Ada"}\n```\nThen',
    "See\n[1] and [2]",
    "I used default_api.f in code",
    "call:me",
]


@pytest.mark.parametrize("said", ANSWERS)
def test_an_answer_without_a_call_streams_on(said: str) -> None:
    reader = CallReader(TOOLS)
    words = " word" * 40
    shown = "".join(text(reader.feed(letter)) for letter in said + words)
    assert said + words == shown + text(reader.end())
    assert len(shown) >= len(said + words) - 1


@pytest.mark.requirement("S2-10")
@pytest.mark.parametrize(
    ("said", "words"),
    [
        ('TOOL_CALL: f({"s": "cut off', "the text ends too early"),
        ('TOOL_CALL: f({"a": 1', "the text ends too early"),
        ('TOOL_CALL: f({"a": 1, "s"', "the text ends too early"),
        ("TOOL_CALL: f(a=1", "the text ends too early"),
        ("TOOL_CALL: get_wea", "the text ends too early"),
        ("TOOL_CALL: f", "no arguments"),
        ("TOOL_CALL: f\nDone.", "no arguments"),
        ("TOOL_CALL: f(1, 2)", "have no names"),
        ('TOOL_CALL: f,({"a": 1})', "no arguments"),
        ('TOOL_CALL: f(){"a": 1}', "the text after the call could belong to its arguments"),
        ('TOOL_CALL: f({"a": 1)', "expected a comma or }"),
        ('TOOL_CALL: f({"a": 1} now', "expected ) or the end of the line"),
        ('TOOL_CALL: f("a": 1)', "have no names"),
        ('TOOL_CALL: f("{\\"a\\": 1}")', "have no names"),
        ('TOOL_CALL: f({"a": 1}})', "expected )"),
        ('TOOL_CALL: f({"a": 1}, {"b": 2})', "expected )"),
        ("TOOL_CALL: f({'s': 'it's'})", "expected a comma"),
        ('<tool_call>{"name": "f"}</tool_call>', "needs its arguments"),
        ('<tool_call>{"name": "f", "arguments": {"a": ', "the text ends too early"),
        ("[f(a=1), get_weather(city=", "the text ends too early"),
        ("Action: f\nAction Input: Oslo", "not an object in braces"),
        ("<function=math.add><parameter=x>5</parameter></function>", "may be text or JSON"),
    ],
)
def test_what_cannot_be_read_is_asked_about_and_never_becomes_a_call(said: str, words: str) -> None:
    pieces = read(f"Hello.\n{said}")
    assert not calls(pieces)
    (one,) = rejected(pieces)
    assert words in one.error
    assert text(pieces).startswith("Hello.\n")
    assert text(pieces) + one.text == f"Hello.\n{said}" or one.text + text(pieces).removeprefix("Hello.\n") == said


def test_calls_before_an_unreadable_one_are_made_and_calls_after_it_are_not() -> None:
    pieces = read("TOOL_CALL: f({'a': 1})\nTOOL_CALL: f({'s': 'it's'})\nTOOL_CALL: get_weather({})\nBoth.")
    assert calls(pieces) == [("f", {"a": 1})]
    (unreadable,) = rejected(pieces)
    assert unreadable.name == "f"
    assert unreadable.error.endswith("; calls after it are not made")
    assert unreadable.text == "TOOL_CALL: f({'s': 'it's'})\nTOOL_CALL: get_weather({})\nBoth."


QUOTED = "get_weather({'city': 'x'})"
QUOTING = [
    "TOOL_CALL: f({'s': 'it's so: TOOL_CALL: get_weather({})'}) TOOL_CALL: f({})",
    'TOOL_CALL: f({"a": 1, "s": "How to call:\nTOOL_CALL: get_weather({"city": "/"})\nThat is all."})',
    'TOOL_CALL: f({"s": "So:\nTOOL_CALL: math.add({"a": 1})\nTOOL_CALL: get_weather({"city": "/"})\nAll."})',
    f'TOOL_CALL: f({{"s": "So:\nTOOL_CALL: {QUOTED}\nmore and mo',
    f'TOOL_CALL: f({{"s": "So:\n\nLike this: TOOL_CALL: {QUOTED} and then mo',
    f'TOOL_CALL: f({{"s": "He said "hi" and\nTOOL_CALL: {QUOTED}"}})',
    f'TOOL_CALL: f({{"s": "He said "hi and }})\nTOOL_CALL: {QUOTED}"}})',
    f"TOOL_CALL: f({{'s': 'It's this }})\nTOOL_CALL: {QUOTED}'}})",
    "TOOL_CALL: f({\"s\": \"So:\n<tool_call>{'name': 'get_weather', 'arguments': {}}</tool_call>\nmo",
    f'<tool_call>{{"name":"f","arguments":{{"s":"a\nTOOL_CALL: {QUOTED}\nmo',
    f'<tool_call>{{"arguments":{{"s":"a\nTOOL_CALL: {QUOTED}\nmo',
    f'{{"arguments":{{"s":"He said "hi" and\nTOOL_CALL: {QUOTED}"}},"name":"f"}}',
    f'{{"type":"function","function":{{"name":"f","arguments":{{"s":"a\nTOOL_CALL: {QUOTED}\nmo',
    f'[f(s="""a\nTOOL_CALL: {QUOTED}\nmo',
    f"TOOL_CALL: f({{'s': 'it's </think>\nTOOL_CALL: {QUOTED}'}})",
    'TOOL_CALL: f({"a": 1, "s": "say "hi}) </think>\nTOOL_CALL: get_weather({})"})',
]


@pytest.mark.parametrize("said", QUOTING)
def test_a_call_inside_an_unreadable_call_is_not_made(said: str) -> None:
    pieces = read(said)
    assert calls(pieces) == []
    assert len(rejected(pieces)) == 1
    if said.startswith("TOOL_CALL:"):
        assert calls(read(said.replace("TOOL_CALL:", "TOOL_CALL[k7]:"))) == []


def test_a_call_in_the_arguments_of_an_unknown_tool_is_not_made() -> None:
    said = '<tool_call>{"name": "nope", "arguments": {"s": "TOOL_CALL: f({})"}}</tool_call>'
    (piece,) = read(said)
    assert isinstance(piece, RejectedCall)
    assert piece.error.startswith("unknown tool: nope;")


@pytest.mark.parametrize(
    "said",
    [
        "```tool_code\nif user_agreed:\n    default_api.f(a=1)\n```",
        "```tool_code\nif user_agreed:\n    default_api.f(a=1)\n",
        "```tool_code\nf(a=1)\nif user_agreed:\n    default_api.f(a=1)\n```",
        "if user_agreed:\n    default_api.f(a=1)",
        "if user_agreed: default_api.f(a=1)",
        '# default_api.get_weather(city="/")',
        "default_api.f(a=1) if ok else None",
        '```json\n{"name": "f", "arguments": {"a": 1}}\n// example only\n```',
        "I will not do print(default_api.f(a=1)) because",
        'TOOL_CALL: f({"a": 1} if False else {"a": 2})',
        'TOOL_CALL: f({"a": 1} and now I wait',
        'TOOL_CALL: f({"s": "/a") and "a": 1})',
        'TOOL_CALL: f({"s": "/a") - "a": 1})',
    ],
)
def test_only_a_plain_call_is_one(said: str) -> None:
    assert calls(read(said)) == []


@pytest.mark.parametrize(
    "said",
    [
        'TOOL_CALL: f({"a": 1})\nTOOL_RESULT gemini_call_0 f: "now the weather"\nTOOL_CALL: get_weather({})',
        'TOOL_CALL: f({"a": 1})\nTOOL_ERROR gemini_call_0 f: "no"\nTOOL_CALL: get_weather({})',
        'TOOL_CALL: f({"a": 1})\nTOOL_RESULT: now the weather\nTOOL_CALL: get_weather({})',
        'TOOL_CALL: f({"a": 1})\nTOOL_ERROR\nTOOL_CALL: get_weather({})',
        'TOOL_CALL: f({"a": 1})\n**TOOL_RESULT:** now the weather\nTOOL_CALL: get_weather({})',
        'Action: f\nAction Input: {"a": 1}\nObservation: 4\nAction: get_weather\nAction Input: {}',
    ],
)
def test_calls_after_a_result_that_the_model_made_up_are_text(said: str) -> None:
    pieces = read(said)
    assert calls(pieces) == [("f", {"a": 1})]
    assert text(pieces) in said
    assert "get_weather" in text(pieces)


def test_a_fence_may_hold_several_calls_and_needs_its_end() -> None:
    call = '{"name": "f", "arguments": {"a": 1}}'
    assert calls(read(f"```json\n{call}\n{call}\n```")) == [("f", {"a": 1})] * 2
    assert calls(read(f"```json\n{call}\n{call}\n``")) == []


@pytest.mark.parametrize("written", ["math.add(x=(1, 2))", "math.add(x=[1, 2,])"])
def test_keyword_arguments_are_python(written: str) -> None:
    for whole in (f"TOOL_CALL: {written}", f"```tool_code\n{written}\n```"):
        assert calls(read(whole)) == [("math.add", {"x": [1, 2]})]


def test_comments_in_code_may_stand_before_and_after_a_call() -> None:
    assert calls(read("```tool_code\n# First:\nf(a=1)\n# That is all.\n```")) == [("f", {"a": 1})]


def test_a_call_in_a_thought_is_not_a_call_before_an_observation() -> None:
    said = 'TOOL_CALL: f({"a": 1})</think>\nObservation: it is cold.\nTOOL_CALL: f({"a": 2})'
    assert calls(read(said)) == [("f", {"a": 2})]


def test_a_call_in_a_thought_that_has_ended_is_not_reported_for_a_later_one() -> None:
    said = 'Hello.\n<think>TOOL_CALL: f({"a": 1})</think>So:<think>There is nothing to do.'
    assert read(said) == [Text(said)]


def test_an_observation_before_any_call_is_text() -> None:
    assert calls(read('Observation: it is cold.\nTOOL_CALL: f({"a": 1})')) == [("f", {"a": 1})]


@pytest.mark.parametrize(
    "said",
    [
        '[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}, {"name": "get_wether", "arguments": {}}]',
        '<tool_call>{"name": "f", "arguments": {"a": 1}}\n{"name": "get_wether", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "get_wether", "arguments": {}}\n{"name": "f", "arguments": {"a": 1}}</tool_call>',
        "[f(a=1), get_wether(city='x')]",
        '<|python_tag|>{"name": "f", "parameters": {"a": 1}}; {"name": "get_wether", "parameters": {}}',
        DEEPSEEK.replace(LOW.join(["<|tool", "calls", "end|>"]).replace("|", BAR), "")
        + DEEPSEEK[DEEPSEEK.index(f"<{BAR}tool{LOW}call{LOW}begin") :].replace(f"{BAR}>f\n", f"{BAR}>get_wether\n"),
    ],
)
def test_beside_a_tool_that_is_not_there_the_others_are_called(said: str) -> None:
    pieces = read(said)
    assert calls(pieces) == [("f", {"a": 1})]
    (one,) = rejected(pieces)
    assert "did you mean get_weather?" in one.error


@pytest.mark.requirement("S2-09")
def test_an_unknown_tool_is_rejected_with_the_nearest_names() -> None:
    pieces = read('TOOL_CALL: get_wether({"city": "Oslo"})')
    assert rejected(pieces)[0].error == (
        "unknown tool: get_wether; did you mean get_weather? The tools are: f, get_weather, math.add"
    )


@pytest.mark.parametrize(
    "said",
    [
        "I could make a tool call: f(x) would do, or get_weather(city).",
        "Write TOOL_CALL: and then the name.",
        "TOOL_CALL: zzz",
        "TOOL_CALL: get_wea and more",
        "TOOL_CALL: get_weather gives the weather.",
        "Quoted: \\TOOL_CALL: f({}) and MY_TOOL_CALL: f({}).",
        '```json\n{"name": "f", "description": "adds", "parameters": {"type": "object", "properties": {}}}\n```',
        '```json\n{"name": "Ada", "arguments": {}}\n```',
        "```python\nprint(f(a=1))\n```",
        "[note](https://example.org) and [f](x)",
        "Action: none\nAction Input: {}",
        "The mark <tool_call> begins a call of Hermes, [TOOL_CALLS] one of Mistral.",
        "Use functools.partial, and `call: f` in YAML.",
    ],
)
def test_text_about_calls_is_text(said: str) -> None:
    assert read(said) == [Text(said)]


QUOTATION = 'TOOL_CALL: f({"a": 1})'
ABOUT_CALLS = [
    f"I will not run {QUOTATION}",
    f"It says: {QUOTATION}, which I refuse.",
    f"Never write `{QUOTATION}`.",
    f"`{QUOTATION}`",
    f'"{QUOTATION}"',
    f"> {QUOTATION}",
    f"# {QUOTATION}",
    f"<!-- {QUOTATION} -->",
    f"- [ ] {QUOTATION}",
    f"({QUOTATION})",
    f"我不运行{QUOTATION}",
    f"I will not run {QUOTATION.lower()}",
    f"{'Words ' * 20}{QUOTATION}",
    "I will not run TOOL_CALL[k7]: f(a=1)",
]


def test_a_space_of_another_kind_does_not_hide_arguments_after_an_object() -> None:
    assert calls(read('TOOL_CALL: f {"a": 1}\xa0"s": "x"')) == []


def test_markers_after_much_white_space_take_linear_time() -> None:
    pieces = read(QUOTATION + " " * 300_000 + "TOOL_CALL: \n" * 3_000)
    assert calls(pieces) == [("f", {"a": 1})]


@pytest.mark.parametrize("written", ABOUT_CALLS)
def test_a_call_in_a_sentence_a_quotation_or_a_comment_is_not_made_but_asked_about(written: str) -> None:
    for whole in (written, f"Hello.\n{written}", f"{written.rstrip('.')} {QUOTATION}"):
        pieces = read(whole)
        assert calls(pieces) == []
        assert rejected(pieces)[0].error == f"the call of f is not made: {WITHIN_LINE}"
    assert calls(read(f"{written}\n{QUOTATION}")) == [("f", {"a": 1})]


@pytest.mark.parametrize(
    "prefix",
    [
        *(
            "",
            "  ",
            "\t- ",
            "* ",
            "• ",
            "12) ",
            "**",
            "1. **",
            "[",
            "```",
            "```tool_code ",
            "Sure!",
            "Sure. ",
            "好的。",
        ),
        *("Done", "\ufeff", "\xa0", "Hi.\r", "<|channel|>final<|message|>"),
    ],
)
def test_a_call_at_the_start_of_a_line_or_after_a_sentence_is_made(prefix: str) -> None:
    assert calls(read(f"{prefix}{QUOTATION}")) == [("f", {"a": 1})]
    assert calls(read(f"{prefix}{QUOTATION}, {QUOTATION}")) == [("f", {"a": 1})] * 2


OBJECT = '{"name": "f", "arguments": {"a": 1}}'
TAGGED = f"<tool_call>{OBJECT}</tool_call>"
OTHER_FORMS = [
    TAGGED,
    f"[TOOL_CALLS][{OBJECT}]",
    "call:f{a:1}",
    '<function_calls><invoke name="f"><parameter name="a">1</parameter></invoke></function_calls>',
]


@pytest.mark.parametrize("form", OTHER_FORMS)
@pytest.mark.parametrize(
    "quotation",
    [
        *("`{}`", "``{}``", '"{}" which I refuse', "It says “{}”.", "('{}')", '我不运行"{}"'),
        *(
            "> {}",
            f"  > It says {'so ' * 99}{{}}",
            "# {}",
            "| {} | no |",
            "// {}",
            "`{0} {0}`",
            "<!-- {} -->",
            "<!--\n{}",
        ),
    ],
)
def test_a_quoted_call_in_another_form_is_not_made_but_asked_about(form: str, quotation: str) -> None:
    written = quotation.replace("{0}", form).replace("{}", form)
    for whole in (written, f"Hello.\n{written}"):
        pieces = read(whole)
        assert calls(pieces) == []
        error = rejected(pieces)[0].error
        assert error == f"the call of f is not made: {WITHIN_LINE}" or error.startswith("the call of f cannot be read")


@pytest.mark.parametrize("form", OTHER_FORMS)
@pytest.mark.parametrize("prefix", ["I call ", "Sure: ", "```", "```xml\n", 'He said "hi"\n', "> hi\n", "", "It's "])
def test_a_call_in_another_form_may_stand_within_a_sentence(form: str, prefix: str) -> None:
    assert calls(read(f"{prefix}{form}")) == [("f", {"a": 1})]


def test_a_call_may_follow_a_closing_quotation_mark() -> None:
    assert calls(read(f'He said "hi"{TAGGED}')) == calls(read(f"I use `f`{TAGGED}")) == [("f", {"a": 1})]


@pytest.mark.parametrize("call", [QUOTATION, TAGGED, f"```json\n{OBJECT}\n```", OBJECT, "default_api.f(a=1)"])
@pytest.mark.parametrize("comment", ["<!--\n{}\n-->", "See <!-- this:\n{}\n-->", "/*\n{}\n*/", "/**\n <!--\n{}\n*/"])
def test_a_call_in_a_comment_of_several_lines_is_not_made_but_asked_about(comment: str, call: str) -> None:
    written = comment.replace("{}", call)
    reader = CallReader(TOOLS)
    in_characters = [piece for character in written for piece in reader.feed(character)]
    for pieces in (read(written), in_characters + reader.end()):
        assert calls(pieces) == []
        assert rejected(pieces)[0].error == f"the call of f is not made: {WITHIN_LINE}"
    assert calls(read(f"{written}\n{call}")) == [("f", {"a": 1})]


@pytest.mark.parametrize("before", ["<!-- a note -->", "/* a note */", "All of src/*", "a --> b", "/**/"])
def test_a_call_after_a_comment_is_made(before: str) -> None:
    assert calls(read(f"{before}\n{QUOTATION}")) == calls(read(f"{before}\n{TAGGED}")) == [("f", {"a": 1})]


@pytest.mark.parametrize("mark", ["reasoning", "thought", "Think", "THINKING", "Reasoning"])
def test_a_call_in_a_thought_is_not_made(mark: str) -> None:
    thought = f"<{mark}>\n{QUOTATION}\n</{mark}>"
    assert calls(read(thought)) == []
    assert calls(read(f"{thought}{QUOTATION}")) == [("f", {"a": 1})]


@pytest.mark.parametrize(
    "veto",
    [
        *(" if confirmed", ", but only if you agree", " unless you object", " (once confirmed)", " # do not run"),
        *(" // example only", " -- don't run this", " — never"),
        *(" after you confirm", ", before the deadline", " provided that you agree", " (assuming it is empty)"),
        *(" as soon as you agree", " - as long as it is free", " in case it is open", " # pending your answer"),
        *(" requires approval", " (needs your confirmation)", ", upon approval", " # TODO: Approval required"),
        *(" <!-- if approved -->", " <!-- not yet -->", " [if approved]", " [example]", " - example", " UNLESS used"),
        *(" // PENDING", " Requires Your Approval"),
    ],
)
@pytest.mark.parametrize("call", [QUOTATION, TAGGED])
def test_a_call_with_a_condition_after_it_is_not_made_but_asked_about(call: str, veto: str) -> None:
    pieces = read(f"{call}{veto}\nHello.")
    assert calls(pieces) == []
    assert rejected(pieces)[0].error == f"the call of f is not made: {CONDITIONAL}"


@pytest.mark.parametrize(
    "after",
    [
        *(" now", ", then I answer", " # the weather", "\nif you agree", "\n# not now", " If so, …"),
        *(" [1] is not a tool", " and afterwards I answer", " to see what I get after that", "\nafter that I answer"),
    ],
)
def test_a_call_with_other_words_after_it_is_made(after: str) -> None:
    assert calls(read(f"{QUOTATION}{after}")) == [("f", {"a": 1})]


def test_another_call_that_begins_with_a_bracket_is_no_condition() -> None:
    assert calls(read('[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]f[ARGS] is not all')) == [("f", {"a": 1})]


def test_blank_lines_may_follow_the_marker() -> None:
    assert calls(read('TOOL_CALL:\n\n  f({"a": 1})')) == [("f", {"a": 1})]
    assert read("TOOL_CALL:\n\nf is a tool.") == [Text("TOOL_CALL:\n\nf is a tool.")]


def test_the_mark_of_a_call_decides_whether_it_is_made() -> None:
    said = 'TOOL_CALL: f({"a": 1}) TOOL_CALL[k7]: f({"a": 2}) TOOL_CALL[x]: f({"a": 3})\n[f(a=4)]'
    pieces = read(said, rejection=lambda call, mark: None if "[k7]" in mark else "it has no nonce")
    assert calls(pieces) == [("f", {"a": 2})]
    assert [piece.error for piece in rejected(pieces)] == ["it has no nonce"] * 3


def test_the_numbers_of_calls_can_start_later() -> None:
    assert read('TOOL_CALL: f({"a": 1})', first_number=7) == [ToolCall("gemini_call_7", "f", {"a": 1})]


def test_an_answer_of_nothing_but_calls_comes_to_an_end() -> None:
    pieces = read('TOOL_CALL: f({"a": 1})\n' * (MAX_CALLS + 10))
    assert len(calls(pieces)) == MAX_CALLS
    assert "not read" in rejected(pieces)[-1].error
    assert text(pieces).endswith('TOOL_CALL: f({"a": 1})\n' * 10)
