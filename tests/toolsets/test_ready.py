import subprocess
import sys
from typing import Any

import pytest

from midspan import toolsets
from midspan._loop.agent import Agent
from midspan._schema.adapt import adapt_schema
from midspan._schema.dialect import SchemaDialect
from midspan._types.exchange import ModelRequest
from midspan._types.parts import ToolCall, ToolResult
from midspan.providers.gemini.capabilities import GEMINI_JSON_SCHEMA, GEMINI_PARAMETERS
from midspan.providers.scripted import ScriptedProvider
from midspan.tools.schedule import run_calls
from midspan.tools.wrap import source_of
from tests.http.misbehaving import Server
from tests.http.test_errors import run
from tests.toolsets.stand_in import forecast


def test_importing_the_toolsets_loads_none_of_them() -> None:
    heavy = {
        "zoneinfo",
        "httptools",
        "ssl",
        "jsonschema_rs",
        "midspan._http",
        "midspan.tools",
        "midspan.toolsets.clock",
    }
    code = (
        f"import sys, midspan.toolsets as toolsets; print({heavy} & set(sys.modules)); "
        "toolsets.ready_tools(); print('httptools' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "set()\nFalse\n"


def test_ready_tools_describe_all_of_their_parameters() -> None:
    tools = toolsets.ready_tools()
    assert [tool.name for tool in tools] == ["get_weather", "get_time", "calculate"]
    for tool in tools:
        assert tool.spec.description.endswith((".", "*.")), tool.name
        assert tool.spec.examples
        assert tool.spec.response is not None
        assert tool.spec.parameters is not None
        for name, schema in tool.spec.parameters["properties"].items():
            assert schema.get("description"), f"{tool.name}.{name}"


@pytest.mark.parametrize("dialect", [GEMINI_PARAMETERS, GEMINI_JSON_SCHEMA])
def test_gemini_gets_the_parameters_except_for_their_bounds(dialect: SchemaDialect) -> None:
    for tool in toolsets.ready_tools():
        assert tool.spec.parameters is not None
        adapted = adapt_schema(tool.spec.parameters, dialect)
        assert not adapted.renamed
        declared, original = adapted.schema.get("properties", {}), tool.spec.parameters["properties"]
        for name, prop in original.items():
            lost = prop.keys() - declared[name].keys()
            assert lost <= {"additionalProperties", "minLength", "maxLength", "title", "default"}, f"{tool.name}.{name}"


def test_several_tools_are_used_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with Server(forecast) as server:
            monkeypatch.setenv("MIDSPAN_WEATHER_URL", f"http://127.0.0.1:{server.port}")
            source = source_of(toolsets.ready_tools())

            async def ask(name: str, **arguments: Any) -> Any:
                (result,) = await run_calls([ToolCall("1", name, arguments)], source.call)
                assert not result.is_error, result.value
                return result.value

            celsius = (await ask("get_weather", location="Oslo"))["current_temp_c"]
            fahrenheit = await ask("calculate", expression=f"{celsius} * 9/5 + 32")
            assert fahrenheit["result"] == "33.8"
            assert (await ask("get_time", zone="Europe/Oslo"))["zone"] == "Europe/Oslo"

    run(main())


@pytest.mark.requirement("S4-19")
def test_an_agent_uses_several_tools_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    def convert(request: ModelRequest) -> ToolCall:
        (weather,) = request.history[-1].parts
        assert isinstance(weather, ToolResult)
        return ToolCall("2", "calculate", {"expression": f"{weather.value['current_temp_c']} * 9/5 + 32"})

    def answer(request: ModelRequest) -> str:
        (calculation,) = request.history[-1].parts
        assert isinstance(calculation, ToolResult)
        return f"It is {calculation.value['result']} °F."

    async def main() -> None:
        async with Server(forecast) as server:
            monkeypatch.setenv("MIDSPAN_WEATHER_URL", f"http://127.0.0.1:{server.port}")
            provider = ScriptedProvider([ToolCall("1", "get_weather", {"location": "Oslo"}), convert, answer])
            result = await Agent(provider, toolsets.ready_tools()).run("How warm is it in Oslo, in Fahrenheit?")
            assert result.text == "It is 33.8 °F."

    run(main())


@pytest.mark.requirement("S4-19")
def test_ready_tools_run_concurrently_and_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with Server(forecast) as server:
            monkeypatch.setenv("MIDSPAN_WEATHER_URL", f"http://127.0.0.1:{server.port}")
            calls = [
                ToolCall("1", "get_weather", {"location": "東京"}),
                ToolCall("2", "get_time", {"zone": "Tokyo"}),
                ToolCall("3", "calculate", {"expression": "6 * 7"}),
            ]
            results = await run_calls(calls, source_of(toolsets.ready_tools()).call)
            assert [(result.id, result.is_error) for result in results] == [("1", False), ("2", False), ("3", False)]

    run(main())
