"""The tool bridge: tools of sessions for Gemini, and tools as registries of worker processes describe them."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from midspan.compat import InternalToolSpec, ToolBridge
from midspan.emulator import LocalGemini, answer, call
from midspan.errors import ConfigError, SchemaError, UnknownSessionError
from midspan.gemini import Client, Content, FunctionDeclaration, Part, Schema, Tool
from midspan.providers.gemini.proto import to_plain
from midspan.tools import Toolbox, Workers

TOOL_FILE = '''
import asyncio
import os

def get_current_weather(location: str, unit: str = "celsius"):
    """Gets the current weather for a given location."""
    return {"temperature": "22", "unit": unit, "forecast": "windy", "pid": os.getpid()}
'''


def plain(tool: Tool) -> Any:
    """Return a tool as it is sent."""
    return to_plain(tool)


@pytest.fixture
def weather(tmp_path: Path) -> Iterator[Workers]:
    file = tmp_path / "weather_tools.py"
    file.write_text(TOOL_FILE)  # step 1: a function in a worker
    workers = Workers(file, processes=1)
    yield workers
    asyncio.run(workers.aclose())


@pytest.mark.requirement("S0-17", "S0-12", "S0-14", "S0-15", "S0-16")
def test_seven_steps_from_a_function_in_a_worker_to_the_final_text(weather: Workers) -> None:
    prompt, session = "What's the weather like in Boston?", "user_123"
    script = [call("get_current_weather", location="Boston, MA"), answer("It is 22 degrees and windy in Boston.")]
    with LocalGemini(script, api_key="k") as server, Client(api_key="k", base_url=server.url) as client:
        weather.open_session(session)  # step 2: the worker registers the function
        bridge = ToolBridge(weather)
        tools = bridge.get_tools_for_gemini(session)  # step 3: Gemini tools
        assert plain(*tools) == plain(
            Tool(
                function_declarations=[
                    FunctionDeclaration(
                        name="get_current_weather",
                        description="Gets the current weather for a given location.",
                        parameters=Schema(
                            type="OBJECT",
                            properties={
                                "location": Schema(type="STRING"),
                                "unit": Schema(type="STRING", default="celsius"),
                            },
                            required=["location"],
                        ),
                    )
                ]
            )
        )
        response = client.generate_content(prompt, tools=tools)  # step 4: the first request
        [function_call] = response.function_calls  # step 5: the model calls
        assert (function_call.name, function_call.args) == ("get_current_weather", {"location": "Boston, MA"})
        result = bridge.execute_in_session(session, function_call.name, function_call.args)  # step 6: in the worker
        assert not result.is_error
        assert result.value.pop("pid") != os.getpid()
        assert result.value == {"temperature": "22", "unit": "celsius", "forecast": "windy"}
        history = [  # step 7: the result goes back
            Content.text(prompt),
            response.candidates[0].content,
            Content(
                role="user",
                parts=[Part.from_function_response(function_call.name, {"result": result.value}, id=function_call.id)],
            ),
        ]
        assert client.generate_content(history, tools=tools).text == "It is 22 degrees and windy in Boston."


@pytest.mark.requirement("S0-12")
def test_unknown_session_is_an_error(weather: Workers) -> None:
    for bridge in (ToolBridge(weather), ToolBridge(Toolbox())):
        with pytest.raises(UnknownSessionError, match="unknown session 'nobody'"):
            bridge.get_tools_for_gemini("nobody")


@pytest.mark.requirement("S0-12", "S0-16")
def test_all_tools_of_a_session_are_declarations_of_one_tool() -> None:
    box = Toolbox()
    box.open_session("empty")

    def one(x: int) -> int:
        """Returns it."""
        return x

    def two() -> int:
        """Returns two."""
        return 2

    for function in (one, two):
        box.register(function, session="full")
    bridge = ToolBridge(box)
    assert bridge.get_tools_for_gemini("empty") == []
    [tool] = bridge.get_tools_for_gemini("full")
    assert [(item.name, item.parameters is None) for item in tool.function_declarations] == [
        ("one", False),
        ("two", True),
    ]
    assert bridge.execute_in_session("full", "one", {"x": 3}).value == 3


NESTED = [
    {"name": "city", "type": "String", "description": "Where.", "required": True},
    {"name": "guests", "type": "list[dict]", "required": True},
    {"name": "room", "type": "object", "properties": {"beds": {"type": "int"}, "tags": {"type": "list[str]"}}},
    {"name": "kind", "type": "string", "enum": ["single", "double"], "default": "single"},
    {"name": "nights", "type": "INTEGER", "validation_json": '{"minimum": 1, "maximum": 30}'},
]


@pytest.mark.requirement("S0-13")
def test_nested_parameters_become_an_object_schema() -> None:
    tool = ToolBridge.from_snakepit_tool(InternalToolSpec("book", "Books a room.", NESTED))
    expected = Schema(
        type="OBJECT",
        properties={
            "city": Schema(type="STRING", description="Where."),
            "guests": Schema(type="ARRAY", items=Schema(type="OBJECT")),
            "room": Schema(
                type="OBJECT",
                properties={
                    "beds": Schema(type="INTEGER"),
                    "tags": Schema(type="ARRAY", items=Schema(type="STRING")),
                },
            ),
            "kind": Schema(type="STRING", enum=["single", "double"], default="single"),
            "nights": Schema(type="INTEGER", minimum=1, maximum=30),
        },
        required=["city", "guests"],
    )
    declaration = FunctionDeclaration(name="book", description="Books a room.", parameters=expected)
    assert plain(tool) == plain(Tool(function_declarations=[declaration]))


@pytest.mark.requirement("S0-13")
def test_tool_without_a_description_gets_one_from_its_name() -> None:
    [declaration] = ToolBridge.from_snakepit_tool({"name": "book_room"}).function_declarations
    assert (declaration.description, declaration.parameters) == ("Book room", None)
    with pytest.raises(SchemaError, match=r"parameters of book: 'x': unknown type 'strng'"):
        ToolBridge.from_snakepit_tool(InternalToolSpec("book", "", [{"name": "x", "type": "strng"}]))
    with pytest.raises(ConfigError, match="not a valid tool"):
        ToolBridge.from_snakepit_tool({"description": "no name"})
