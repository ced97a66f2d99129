"""Calls are read in the forms of the models that people run, and no call runs with a part of its arguments."""

from typing import Any

import pytest

from midspan._types.parts import Text, ToolCall
from midspan._types.specs import ToolSpec
from midspan.providers.prompted.reader import CallReader, Piece, RejectedCall

OBJECT = {"type": "object", "properties": {"id": {"type": "integer"}}}
TOOLS = [
    ToolSpec(
        "delete_files",
        parameters={
            "type": "object",
            "properties": {
                "filter": OBJECT,
                "dry_run": {"type": "boolean"},
                "note": {"type": "string"},
                "id": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "limit": {"$ref": "#/$defs/limit"},
            },
            "$defs": {"limit": {"enum": [1, 2]}},
        },
    ),
    ToolSpec("get_time"),
]
BAR, LOW = "\uff5c", "\u2581"
DSML = f"{BAR}DSML{BAR}"


def token(words: str, join: str = LOW) -> str:
    return f"<{BAR}{join.join(words.split())}{BAR}>"


def read(text: str, tools: list[ToolSpec] = TOOLS) -> list[Piece]:
    """Read a text whole and in pieces, which must give the same."""
    whole = read_pieces([text], tools)
    for size in (1, 2, 3, 5, 11):
        assert read_pieces([text[at : at + size] for at in range(0, len(text), size)], tools) == whole
    return whole


def read_pieces(texts: list[str], tools: list[ToolSpec]) -> list[Piece]:
    reader = CallReader(tools)
    pieces: list[Piece] = []
    for piece in [piece for text in texts for piece in reader.feed(text)] + reader.end():
        if isinstance(piece, Text) and pieces and isinstance(pieces[-1], Text):
            pieces[-1] = Text(pieces[-1].text + piece.text)
        else:
            pieces.append(piece)
    return pieces


def calls(pieces: list[Piece]) -> list[tuple[str, dict[str, Any]]]:
    return [(piece.name, piece.arguments) for piece in pieces if isinstance(piece, ToolCall)]


def errors(pieces: list[Piece]) -> list[str]:
    return [piece.error for piece in pieces if isinstance(piece, RejectedCall)]


ARGUMENTS = '{"filter": {"id": 7}, "dry_run": true, "note": "a, b"}'
CALL = f'{{"name": "delete_files", "arguments": {ARGUMENTS}}}'
GEMMA = '{filter:{id:7},dry_run:true,note:<|"|>a, b<|"|>}'
PYTHON = 'delete_files(filter={"id": 7}, dry_run=True, note="a, b")'
PARAMETERS = (
    '<parameter name="filter">{"id": 7}</parameter>\n<parameter name="dry_run">true</parameter>\n'
    '<parameter name="note">a, b</parameter>\n'
)
FORMS = {
    "Hermes": f"<tool_call>\n{CALL}\n</tool_call>",
    "a list in Hermes": f"<tool_call>[{CALL}]</tool_call>",
    "Python in Hermes": f"<tool_call>{PYTHON}</tool_call>",
    "Qwen Coder": "<tool_call>\n<function=delete_files>\n"
    '<parameter=filter>\n{"id": 7}\n</parameter>\n<parameter=dry_run>\nTrue\n</parameter>\n'
    "<parameter=note>\na, b\n</parameter>\n</function>\n</tool_call>",
    "GLM 4.5": "<tool_call>delete_files\n"
    '<arg_key>filter</arg_key>\n<arg_value>{"id": 7}</arg_value>\n<arg_key>dry_run</arg_key>\n'
    "<arg_value>true</arg_value>\n<arg_key>note</arg_key>\n<arg_value>a, b</arg_value>\n</tool_call>",
    "GLM 4.7": '<tool_call>delete_files<arg_key>filter</arg_key><arg_value>{"id": 7}</arg_value><arg_key>dry_run'
    "</arg_key><arg_value>true</arg_value><arg_key>note</arg_key><arg_value>a, b</arg_value></tool_call>",
    "LFM2": f"<|tool_call_start|>[{PYTHON}]<|tool_call_end|>",
    "LFM2 with JSON": f"<|tool_call_start|>[{CALL}]<|tool_call_end|>",
    "Kimi K2": "<|tool_calls_section_begin|><|tool_call_begin|>functions.delete_files:0"
    f"<|tool_call_argument_begin|>{ARGUMENTS}<|tool_call_end|><|tool_calls_section_end|>",
    "Kimi K2 without a section": "<|tool_call_begin|>functions.delete_files:12<|tool_call_argument_begin|>"
    f"{ARGUMENTS}<|tool_call_end|>",
    "DeepSeek 3": f"{token('tool calls begin')}{token('tool call begin')}function{token('tool sep')}delete_files\n"
    f"```json\n{ARGUMENTS}\n```{token('tool call end')}{token('tool calls end')}",
    "DeepSeek 3.1": f"{token('tool calls begin')}{token('tool call begin')}delete_files{token('tool sep')}{ARGUMENTS}"
    f"{token('tool call end')}{token('tool calls end')}",
    "DeepSeek 3.2": f'<{DSML}function_calls>\n<{DSML}invoke name="delete_files">\n'
    f'<{DSML}parameter name="filter" string="false">{{"id": 7}}</{DSML}parameter>\n'
    f'<{DSML}parameter name="dry_run" string="false">true</{DSML}parameter>\n'
    f'<{DSML}parameter name="note" string="true">a, b</{DSML}parameter>\n</{DSML}invoke>\n</{DSML}function_calls>',
    "DeepSeek 3.2 with JSON": f'<{DSML}function_calls>\n<{DSML}invoke name="delete_files">\n{ARGUMENTS}\n'
    f"</{DSML}invoke>\n</{DSML}function_calls>",
    "MiniMax M2": f'<minimax:tool_call>\n<invoke name="delete_files">\n{PARAMETERS}</invoke>\n</minimax:tool_call>',
    "MiniMax M1": f"<tool_calls>\n{CALL}\n</tool_calls>",
    "Granite": f"<|tool_call|>[{CALL}]",
    "Granite 20B": f"<function_call> {CALL}",
    "gpt-oss": "<|channel|>analysis<|message|>I need to delete.<|end|><|start|>assistant<|channel|>commentary "
    f"to=functions.delete_files <|constrain|>json<|message|>{ARGUMENTS}<|call|>",
    "gpt-oss with the recipient first": "<|start|>assistant to=functions.delete_files<|channel|>commentary json"
    f"<|message|>{ARGUMENTS}",
    "Gemma 4": f"<|tool_call>call:delete_files{GEMMA}<tool_call|>",
    "FunctionGemma": f"<start_function_call>call:delete_files{GEMMA}<end_function_call>".replace('<|"|>', "<escape>"),
    "InternLM": f"<|action_start|><|plugin|>\n{CALL.replace('arguments', 'parameters')}<|action_end|>",
    "Phi-4 mini": f"<|tool_call|>[{CALL}]<|/tool_call|>",
    "Olmo 3": f"<function_calls>\n{PYTHON}\n</function_calls>",
    "Seed": f"<seed:tool_call><function=delete_files>{ARGUMENTS}</function></seed:tool_call>",
    "Command": '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "delete_files", '
    f'"parameters": {ARGUMENTS}}}]<|END_ACTION|>',
    "Llama 4": f"<|python_start|>[{PYTHON}]<|python_end|>",
    "Mistral 11": f"[TOOL_CALLS]delete_files[CALL_ID]9bc123def[ARGS]{ARGUMENTS}",
    "Kimi K2 with spaces": "<|tool_calls_section_begin|> <|tool_call_begin|> functions.delete_files:0 "
    f"<|tool_call_argument_begin|> {ARGUMENTS} <|tool_call_end|> <|tool_calls_section_end|>",
    "Qwen Coder without a start mark": f"<function=delete_files>\n{ARGUMENTS}\n</function>\n</tool_call>",
    "Qwen 2.5 Coder": f"<tools>{CALL}</tools>",
    "a list after a thought": f"<think>Delete.</think>[{CALL}]",
    "Python after a thought": f"<think>Delete.</think>[{PYTHON}]",
    "ReAct": f"Action: delete_files\nAction Input: {ARGUMENTS}",
    "leaked": f"call:delete_files{ARGUMENTS}",
    "marker": f"TOOL_CALL: delete_files({ARGUMENTS})",
    "marker with keywords": f"TOOL_CALL: {PYTHON}",
    "marker with an object": f"TOOL_CALL: {CALL}",
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_every_form_gives_the_same_call(form: str) -> None:
    truth = ("delete_files", {"filter": {"id": 7}, "dry_run": True, "note": "a, b"})
    pieces = read(form)
    assert calls(pieces) == [truth]
    assert not errors(pieces)
    assert calls(read(f"I will do it.\n{form}\n\nThat is all.")) == [truth]


MAY_BE_TEXT = ("leaked", "a list after a thought", "Python after a thought")


@pytest.mark.parametrize("name", [name for name in FORMS if name not in MAY_BE_TEXT])
def test_a_call_of_an_unknown_tool_is_reported(name: str) -> None:
    pieces = read("\n" + FORMS[name].replace("delete_files", "delete_file"))
    assert calls(pieces) == []
    (error,) = errors(pieces)
    assert "did you mean delete_files?" in error


def swap(form: str, arguments: str, keywords: str) -> str:
    """Put damaged arguments into a form."""
    if ARGUMENTS in form:
        return form.replace(ARGUMENTS, arguments)
    return form.replace(PYTHON, keywords).replace(GEMMA, keywords.replace("delete_files(", "{", 1))


DAMAGED = {
    "a brace too many": (
        '{"filter": {"id": 7}}, "dry_run": true, "note": "a, b"}',
        'delete_files(filter={"id": 7}), dry_run=True, note="a, b")',
    ),
    "a comma that became a brace": (
        '{"filter": {"id": 7}} "dry_run": true, "note": "a, b"}',
        'delete_files(filter={"id": 7}) dry_run=True, note="a, b")',
    ),
    "a quote that became a brace": (
        '{"filter": {"id": 7}, }dry_run": true, "note": "a, b"}',
        'delete_files(filter={"id": 7}, )dry_run=True, note="a, b")',
    ),
    "the last member outside": (
        '{"filter": {"id": 7}, "dry_run": true}\n, "note": "a, b"}',
        'delete_files(filter={"id": 7}, dry_run=True)\n, note="a, b")',
    ),
    "a member whose name is that of a member of the call": (
        '{"filter": {"id": 7}}, "id": "5"}',
        'delete_files(filter={"id": 7}), id="5")',
    ),
}
WITH_JSON = {name: form for name, form in FORMS.items() if ARGUMENTS in form or PYTHON in form}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED.keys())
@pytest.mark.parametrize("form", WITH_JSON.values(), ids=WITH_JSON.keys())
def test_a_call_whose_arguments_end_too_early_is_not_made(form: str, damage: tuple[str, str]) -> None:
    pieces = read(f"Now.\n{swap(form, *damage)}\n\nThat is all.")
    assert calls(pieces) == []
    assert errors(pieces)


@pytest.mark.parametrize(
    "text",
    [
        f"<tool_call>\n{CALL}\n",
        f"<tool_call>{CALL}</tool_cal",
        f"<|tool_call_start|>[{PYTHON}]",
        FORMS["Kimi K2"].removesuffix("<|tool_calls_section_end|>"),
        FORMS["Kimi K2"].replace("<|tool_call_end|>", ""),
        FORMS["DeepSeek 3"].replace(token("tool call end"), ""),
        FORMS["DeepSeek 3"].replace("\n```<", "\n<"),
        FORMS["Gemma 4"].removesuffix("<tool_call|>"),
        FORMS["InternLM"].removesuffix("<|action_end|>"),
        FORMS["MiniMax M2"].removesuffix("</minimax:tool_call>"),
        FORMS["Qwen Coder"].replace("</function>", ""),
        FORMS["GLM 4.5"].removesuffix("</tool_call>"),
    ],
)
def test_a_call_without_the_end_mark_of_its_form_is_not_made(text: str) -> None:
    pieces = read(text)
    assert calls(pieces) == []
    assert len(errors(pieces)) == 1


@pytest.mark.parametrize(
    "member", ['"dry_run": true', '"description": "x"', '"call_id": "1"', '"tool": "get_time"', '"input": {}']
)
def test_members_beside_name_and_arguments_make_a_call_unreadable(member: str) -> None:
    text = f'<tool_call>{{"name": "get_time", "arguments": {{}}, {member}}}</tool_call>'
    assert errors(read(text))[0].startswith("the call of get_time cannot be read: ")
    assert calls(read(text)) == []


def test_the_id_the_type_and_the_index_of_a_call_may_stand_beside_its_name() -> None:
    inner = '{"name": "get_time", "arguments": {}}'
    for text in (
        '{"id": "1", "type": "function", "index": 0, "name": "get_time", "arguments": {}}',
        f'{{"id": "1", "type": "function", "index": 0, "function": {inner}}}',
        f'{{"role": "assistant", "content": null, "tool_calls": [{{"id": "1", "function": {inner}}}]}}',
        '{"name": "get_time", "arguments": null}',
    ):
        assert calls(read(f"<tool_call>{text}</tool_call>")) == [("get_time", {})]


@pytest.mark.parametrize(
    ("value", "note"),
    [
        ("x\n", "x\n"),
        ("\nx", "\nx"),
        ("\nx\n", "x"),
        ("\nx\n\n", "x\n"),
        ("5", "5"),
        ('"x"', '"x"'),
        ("{a}", "{a}"),
        ("a <b> c", "a <b> c"),
    ],
)
def test_a_string_in_tags_keeps_its_characters(value: str, note: str) -> None:
    text = f"<function=delete_files><parameter=note>{value}</parameter></function>"
    assert calls(read(text)) == [("delete_files", {"note": note})]


@pytest.mark.parametrize(
    "parameter",
    [
        "<parameter==note>x</parameter>",
        "<parameter=note>>x</parameter>",
        "<parameter=note>x<</parameter>",
        "<parameter=note\n>x</parameter>",
        "<parameter=not>ex</parameter>",
        "<parameter=note>x<parameter=dry_run>true</parameter>",
        "<parameter=note>x</parameter><parameter=note>y</parameter>",
        "<parameter=note>x/parameter>\n<parameter=dry_run>\ntrue\n</parameter>",
        '<parameter=filter>{"id": 7}}</parameter>',
        "<parameter=dry_run>maybe</parameter>",
        "<parameter=note>null</parameter>",
        "<parameter=id>null</parameter>",
    ],
)
def test_a_parameter_in_tags_that_is_damaged_or_has_two_readings_is_not_read(parameter: str) -> None:
    pieces = read(f"<function=delete_files>{parameter}</function>")
    assert calls(pieces) == []
    assert errors(pieces)


@pytest.mark.parametrize("tag", ['<invoke name="delete_files>', '<invoke name="delete_files">'])
def test_an_attribute_without_its_quote_makes_a_call_unreadable(tag: str) -> None:
    parameter = '<parameter name="note> string="true">x</parameter>'
    pieces = read(f"<minimax:tool_call>{tag}{parameter}</invoke></minimax:tool_call>")
    assert calls(pieces) == []
    assert errors(pieces)


def test_the_schema_decides_what_a_value_in_tags_is() -> None:
    text = (
        "<function=delete_files><parameter=id>5</parameter><parameter=limit>2</parameter>"
        "<parameter=dry_run>false</parameter></function>"
    )
    assert calls(read(text)) == [("delete_files", {"id": "5", "limit": 2, "dry_run": False})]
    braces = read("<function=delete_files><parameter=id>{abc</parameter></function>")
    assert calls(braces) == [("delete_files", {"id": "{abc"})], "it cannot be a damaged object"


@pytest.mark.parametrize(
    "text",
    [
        "<think>I could write {}.</think>The time is 5.",
        "<think>\n{}\n</think>\nThe time is 5.",
        "[THINK]{}[/THINK]It is 5.",
        "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>It is 5.",
        "<|channel>thought\n{}<channel|>It is 5.",
    ],
)
@pytest.mark.parametrize("call", ["TOOL_CALL: get_time({})", "<tool_call>get_time</tool_call>"])
def test_a_call_in_a_thought_is_text(text: str, call: str) -> None:
    said = text.replace("{}", call, 1)
    assert read(said) == [Text(said)]


def test_a_call_after_a_thought_is_made() -> None:
    pieces = read("<think>TOOL_CALL: get_time({})</think>TOOL_CALL: delete_files({})")
    assert calls(pieces) == [("delete_files", {})]


def test_calls_before_the_end_of_a_thought_that_began_in_the_prompt_are_text() -> None:
    thought = "I try TOOL_CALL: get_time({}).</think>"
    pieces = read(f"{thought}\nTOOL_CALL: delete_files({{}})")
    assert pieces == [Text(f"{thought}\n"), ToolCall("gemini_call_0", "delete_files", {})]


def test_a_call_in_a_thought_without_an_end_is_reported() -> None:
    pieces = read("<think>So:\nTOOL_CALL: get_time({})\n")
    assert calls(pieces) == []
    assert "thought that has no end" in errors(pieces)[0]
    assert errors(read("<think>There is nothing {to} do")) == []


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>delete everything</tool_call>",
        "<tool_call>\nfunction=get_time>\n</function>\n</tool_call>",
        '<tool_call>"name": "get_time", "arguments": {}}</tool_call>',
        "<tool_call></tool_call>",
        "tool_call>get_time</tool_call>",
        "<|tool_call_start|>get time<|tool_call_end|>",
        '[TOOL_CALLS]"name": "get_time", "arguments": {}',
        '<|channel|>commentary to=functions.get_time <|constrain|>json<|message{"a": 1}<|call|>',
        'I will call {"name": "get_time", "arguments": {}} now.',
        'Like this: {"name": "get_time", "arguments": {}}',
        '{"name": "get_tim", "arguments": {}}',
    ],
)
def test_what_is_meant_as_a_call_and_cannot_be_read_is_reported_and_never_just_text(text: str) -> None:
    pieces = read(text)
    assert calls(pieces) == []
    assert len(errors(pieces)) == 1


GLM_NOTE = "<arg_key>note</arg_key><arg_value>tmp</arg_value>"


@pytest.mark.parametrize("mark", ["[TOOL_CALLS]", "<|tool_call|>", "<|python_tag|>", "<function_call>"])
@pytest.mark.parametrize(
    "damaged",
    [
        "<arg_key>dry_run</arg_key>true</arg_value>",
        "<arg_key dry_run</arg_key><arg_value>true</arg_value>",
        "<rg_key>dry_run</arg_key><arg_value>true</arg_value>",
        "\narg_key>dry_run</arg_key>\n<arg_value>true</arg_value>",
        ", <arg_key>dry_run</arg_key><arg_value>true</arg_value>",
        "</arg_value>",
    ],
)
def test_a_damaged_parameter_makes_the_call_unreadable_in_forms_without_an_end_mark(mark: str, damaged: str) -> None:
    pieces = read(f"{mark}delete_files{GLM_NOTE}{damaged}")
    assert calls(pieces) == []
    assert "the call of delete_files cannot be read" in errors(pieces)[0]
    intact = read(f"{mark}delete_files{GLM_NOTE}\nOne moment.\n{mark}delete_files{GLM_NOTE}")
    assert calls(intact) == [("delete_files", {"note": "tmp"})] * 2


@pytest.mark.parametrize("mark", ["", "[TOOL_CALLS]"])
def test_a_parameter_after_the_closing_tag_makes_the_call_unreadable(mark: str) -> None:
    call = f"{mark}<function=delete_files><parameter=note>tmp</parameter></function>"
    pieces = read(f"{call}<parameter=dry_run>true</parameter></function>")
    assert calls(pieces) == []
    assert "the tags of a parameter after it cannot be read" in errors(pieces)[0]
    assert calls(read(f"{call}\n{call}")) == [("delete_files", {"note": "tmp"})] * 2


@pytest.mark.parametrize(
    "rest",
    [
        "\n\nNote: this takes a moment.",
        "\nTemperature: 4, humidity: 80.",
        " (see below)",
        "\n1) First\n2) Then",
        "\nIt is cold :)",
        '\n"Done", she said.',
        "\nObservation: 4",
        ".",
        "**",
        "`",
        "\n```",
    ],
)
def test_prose_after_a_call_does_not_belong_to_it(rest: str) -> None:
    for call in ("TOOL_CALL: delete_files({})", "TOOL_CALL: delete_files(dry_run=True)"):
        assert len(calls(read(call + rest))) == 1
    if not rest.startswith(" "):
        assert len(calls(read(f"Action: get_time\nAction Input: {{}}{rest}"))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "TOOL_CALL: delete_files(dry_run=True, price=5)",
        "<|tool_call>call:delete_files{dry_run:true,price:5}<tool_call|>",
    ],
)
def test_a_parameter_that_the_schema_does_not_declare_is_read(text: str) -> None:
    assert calls(read(text)) == [("delete_files", {"dry_run": True, "price": 5})]


@pytest.mark.parametrize(
    "text",
    [
        'TOOL_CALL: delete_files({"note": "x}")',
        'TOOL_CALL: delete_files({"filter": {}, "note": "x}")',
        'TOOL_CALL: delete_files({"note": {"a": "x}"})',
        "TOOL_CALL: delete_files(dry_run1=True)",
        "[delete_files(filter={'id7': 1})]",
        "<|tool_call>call:delete_files{filter:{id7:1}}<tool_call|>",
        '<|tool_call>call:delete_files{note:<|"|>x<<|"|>}<tool_call|>',
        'call:delete_files{filter:{id:7}},note:<|"|>x<|"|>}',
        'TOOL_CALL: delete_files({"filter": {"id": 7}}){"dry_run": true}',
    ],
)
def test_a_sign_in_the_wrong_place_makes_a_call_unreadable(text: str) -> None:
    pieces = read(text)
    assert calls(pieces) == []
    assert errors(pieces)
