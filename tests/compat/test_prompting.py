"""Prompt mode in two functions: the prompt, and the calls in a text."""

import logging

import pytest

from midspan.compat import build_system_prompt_with_tools, extract_tool_calls

PARAMETERS = {
    "type": "object",
    "properties": {"name": {"type": "string", "description": "Its name."}},
    "required": ["name"],
}
TOOLS = [
    {"type": "function", "function": {"name": "create", "description": "Create it.", "parameters": PARAMETERS}},
    {"name": "list_all", "description": "List them.", "inputSchema": {"type": "object", "properties": {}}},
]


@pytest.mark.requirement("S2-02", "S2-21")
def test_prompt_lists_the_tools_in_their_order() -> None:
    lines = build_system_prompt_with_tools(TOOLS).splitlines()
    assert lines[:7] == [
        "Available tools:",
        "- create: Create it.",
        "  Parameters:",
        "    - name (string): Its name.",
        "  Required: name",
        "- list_all: List them.",
        "  Parameters: (none)",
    ]
    assert 'TOOL_CALL: tool_name({"arg1": "value1", "arg2": "value2"})' in lines


@pytest.mark.requirement("S2-05", "S2-06", "S2-07", "S2-08")
def test_calls_of_a_text_have_id_name_and_arguments() -> None:
    text = 'First:\nTOOL_CALL: list_all({})\nTOOL_CALL: create({"name": "a"})\nThen I will explain.'
    assert extract_tool_calls(text, TOOLS) == [
        {"id": "gemini_call_0", "name": "list_all", "arguments": {}},
        {"id": "gemini_call_1", "name": "create", "arguments": {"name": "a"}},
    ]


@pytest.mark.requirement("S2-09", "S2-10")
def test_unknown_tools_and_unreadable_arguments_are_logged_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "midspan"):
        assert extract_tool_calls('TOOL_CALL: destroy({"name": "a"})', TOOLS) == []
        assert extract_tool_calls('TOOL_CALL: create({"name": oops', TOOLS) == []
    assert any("Gemini called invalid tool: destroy" in message for message in caplog.messages)
    assert any(message.startswith("Failed to parse tool arguments: ") for message in caplog.messages)


def test_text_without_calls_has_none() -> None:
    assert extract_tool_calls("I need no tool.", TOOLS) == []
    assert extract_tool_calls("", TOOLS) == []
