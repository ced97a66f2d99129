"""Calls that a service could not read are recovered if they have only one reading."""

from typing import Any

import pytest

from midspan._types.parts import is_local_id
from midspan._types.specs import BuiltinTool, ToolSpec
from midspan.providers.prompted.reader import recover_calls

TOOLS = (ToolSpec("get_weather"), ToolSpec("send"), BuiltinTool("googleSearch"))


def recovered(text: str) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name, call.arguments) for call in recover_calls(text, TOOLS)]


@pytest.mark.parametrize(
    "text",
    [
        'Malformed function call: print(default_api.get_weather(city="Paris"))',
        'Malformed function call:\nprint(default_api.get_weather(city = "Paris"))',
        "default_api.get_weather(city='Paris')",
        'weather = default_api.get_weather(city="Paris")\nprint(weather)',
        'Malformed function call: get_weather(city="Paris")',
        'Malformed function call: get_weather({"city": "Paris"})',
        'Malformed function call: call:get_weather{city:"Paris"}',
        "Malformed function call: call:default_api:get_weather{city:<ctrl46>Paris<ctrl46>}",
        '```tool_code\nprint(default_api.get_weather(city="Paris"))\n```',
        '```tool_call\npython(default_api.get_weather(city="Paris"))\n```',
        '{"name": "get_weather", "arguments": {"city": "Paris"}}',
        '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>',
        ' \n\nTOOL_CALL: get_weather({"city": "Paris"})\n\n ',
    ],
)
def test_a_whole_call_is_recovered(text: str) -> None:
    assert recovered(text) == [("get_weather", {"city": "Paris"})]


def test_several_calls_are_recovered_with_local_ids() -> None:
    calls = recover_calls(
        'print(default_api.get_weather(city="Oslo"))\nprint(default_api.send(text="hi\\n", to=["a"]))', TOOLS
    )
    assert [(call.name, call.arguments) for call in calls] == [
        ("get_weather", {"city": "Oslo"}),
        ("send", {"text": "hi\n", "to": ["a"]}),
    ]
    assert all(is_local_id(call.id) for call in calls)
    assert calls[0].id != calls[1].id


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Malformed function call: ",
        "Malformed function call: print(157.3 * 1.04)",
        'Malformed function call: print(default_api.get_weather(city="Par',
        'Malformed function call: print(default_api.get_weather("Paris"))',
        "Malformed function call: print(default_api.get_weather(city=here))",
        'Malformed function call: print(default_api.unknown(city="Paris"))',
        'Malformed function call: for c in "ab":\n    print(default_api.get_weather(city=c))',
        'print(default_api.get_weather(city="Oslo"))\nprint(default_api.send(text=',
        "Malformed function call: Failed to parse function call: Function call is empty - no input to parse.",
        'Sure.\nTOOL_CALL: get_weather({"city": "Paris"})',
        'TOOL_CALL: get_weather({"city": "Paris"})\nDone.',
        'the call of get_weather cannot be read: expected a comma after "TOOL_CALL: get_weather({"',
    ],
)
def test_where_anything_would_be_guessed_nothing_is_recovered(text: str) -> None:
    assert recovered(text) == []
