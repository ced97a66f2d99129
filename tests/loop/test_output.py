"""Typed answers, alone and together with tools."""

from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import pydantic
import pytest

from midspan import Agent, Limits, tool
from midspan._loop.typed_output import ANSWER_TOOL
from midspan._types.exchange import Output
from midspan._types.parts import ToolCall
from midspan._types.specs import ToolChoice
from midspan.errors import ConfigError, OutputError, SchemaError
from midspan.providers.anthropic.profile import OUTPUT
from midspan.providers.gemini.capabilities import GEMINI_JSON_SCHEMA
from midspan.providers.provider import ModelProfile
from midspan.testing import ScriptedProvider


@dataclass
class City:
    name: str
    people: int


class Town(pydantic.BaseModel):
    name: str
    people: int = pydantic.Field(gt=0)


class Village(msgspec.Struct):
    name: str
    kind: Literal["old", "new"] = "old"


@pytest.mark.parametrize(
    ("form", "said", "value"),
    [
        (City, '{"name": "Oslo", "people": 700000}', City("Oslo", 700000)),
        (Town, '{"name": "Oslo", "people": 7}', Town(name="Oslo", people=7)),
        (Village, '{"name": "Flåm"}', Village("Flåm")),
        (list[int], "[1, 2]", [1, 2]),
        (int, "5", 5),
        (dict[str, float], '{"a": 1}', {"a": 1.0}),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, '{"a": 1}', {"a": 1}),
        (City, '```json\n{"name": "Oslo", "people": 1}\n```', City("Oslo", 1)),
    ],
)
def test_answer_is_parsed_as_the_requested_type(form: Any, said: str, value: Any) -> None:
    provider = ScriptedProvider([said])
    result = Agent(provider, output=form).run_sync("Which?")
    assert (result.output, result.text) == (value, said)
    assert isinstance(provider.requests[0].config.output, Output)


def test_text_answer_needs_no_schema() -> None:
    provider = ScriptedProvider(["hi"])
    assert Agent(provider, output=str).run_sync("?").output == "hi"
    assert provider.requests[0].config.output is None


def test_answer_of_another_type_is_returned_to_the_model() -> None:
    provider = ScriptedProvider(["It is Oslo.", '{"name": "Oslo"}', '{"name": "Oslo", "people": 7}'])
    result = Agent(provider, output=City).run_sync("Which?")
    assert result.output == City("Oslo", 7)
    assert "it is not valid JSON" in provider.requests[1].history[-1].text
    assert "people" in provider.requests[2].history[-1].text


def test_answer_that_never_matches_is_an_error_with_the_transcript() -> None:
    with pytest.raises(OutputError, match=r"^the answer is not of the requested type: expected object, got ") as caught:
        Agent(ScriptedProvider(["[]"] * 9), output=City).run_sync("Which?")
    assert caught.value.transcript is not None


def test_output_type_can_be_replaced_for_one_run() -> None:
    agent = Agent(ScriptedProvider(["[1]", "plain"]))
    assert agent.run_sync("?", output=list[int]).output == [1]
    assert agent.run_sync("?").output == "plain"


@tool
async def people(city: str) -> int:
    """How many live there."""
    return 700_000


def test_typed_answer_works_with_tools() -> None:
    script = [[ToolCall("1", "people", {"city": "Oslo"})], '{"name": "Oslo", "people": 700000}']
    provider = ScriptedProvider(script)
    result = Agent(provider, tools=[people], output=City).run_sync("Which?")
    assert result.output == City("Oslo", 700_000)
    assert all(request.config.output is not None for request in provider.requests)


class Old(ScriptedProvider):
    """A model that takes tools or a form of the answer, but not both."""

    profile = ModelProfile("Old", GEMINI_JSON_SCHEMA, supports_json_with_tools=False)


@pytest.mark.parametrize(
    ("form", "value"), [(City, City("Oslo", 7)), (Town, Town(name="Oslo", people=7)), (list[City], [City("Oslo", 7)])]
)
def test_model_without_json_mode_beside_tools_answers_by_a_call(form: Any, value: Any) -> None:
    said: Any = {"name": "Oslo", "people": 7}
    arguments = {"answer": [said] if form == list[City] else said}
    script = [[ToolCall("1", "people", {"city": "Oslo"})], "Oslo, I think", [ToolCall("2", ANSWER_TOOL, arguments)]]
    provider = Old(script)
    result = Agent(provider, tools=[people], output=form).run_sync("Which?")
    assert result.output == value
    assert provider.requests[0].config.output is None
    assert f"Call {ANSWER_TOOL}" in provider.requests[2].history[-1].text
    assert Old(["7"]).requests == []
    alone = Old(['{"name": "Oslo", "people": 7}'])
    assert Agent(alone, output=City).run_sync("?").output == City("Oslo", 7)


def test_wrong_arguments_of_the_answer_tool_are_returned_to_the_model() -> None:
    script = [
        [ToolCall("1", ANSWER_TOOL, {"answer": {}})],
        [ToolCall("2", ANSWER_TOOL, {"answer": {"name": "a", "people": 1}})],
    ]
    result = Agent(Old(script), tools=[people], output=City).run_sync("?")
    assert result.output == City("a", 1)
    assert result.tool_calls[0].is_error


def test_output_type_without_a_schema_is_an_error() -> None:
    with pytest.raises(SchemaError, match="output cannot be"):
        Agent(ScriptedProvider([]), output=5).run_sync("?")


@pytest.mark.parametrize("schema", [{}, {"description": "anything"}, {"minimum": 3}, {"not": {"type": "string"}}])
def test_schema_without_a_type_is_accepted(schema: dict[str, Any]) -> None:
    assert Agent(ScriptedProvider(["5"]), output=schema).run_sync("?").output == 5


def test_limit_message_is_the_output_of_a_typed_run() -> None:
    script = [[ToolCall(str(n), "people", {"city": str(n)})] for n in range(5)]
    limits = Limits(max_turns=1, on_limit="message")
    result = Agent(ScriptedProvider(script), tools=[people], output=City, limits=limits).run_sync("?")
    assert result.output == result.text


def test_unknown_setting_is_an_error() -> None:
    with pytest.raises(ConfigError, match="settings"):
        Agent(ScriptedProvider([]), settings={"temperature": "hot"})


@dataclass
class Place:
    name: str


class ByCall(ScriptedProvider):
    """Does not support tools and JSON output at once."""

    profile = ModelProfile(supports_json_with_tools=False)


@pytest.mark.parametrize("limits", [Limits(max_tool_calls=1), Limits(max_calls_per_tool=1)])
def test_call_of_the_answer_tool_does_not_count_against_the_limits(limits: Limits) -> None:
    script = [
        [ToolCall("1", "people", {"city": "Oslo"})],
        [ToolCall("2", ANSWER_TOOL, {"answer": {}})],
        [ToolCall("3", ANSWER_TOOL, {"answer": {"name": "Oslo", "people": 7}})],
    ]
    result = Agent(Old(script), tools=[people], output=City, limits=limits).run_sync("?")
    assert (result.output, result.limit) == (City("Oslo", 7), None)


@tool
def same() -> str:
    """Gives the same each time."""
    return "same"


@pytest.mark.parametrize("case", ["in circles", "at a limit", "where no tool may be called"])
@pytest.mark.parametrize("first", [[], ["It is Oslo."]], ids=["at once", "after words"])
def test_answer_tool_can_be_called_although_other_calls_are_forbidden(case: str, first: list[str]) -> None:
    answer = ToolCall("end", "final_answer", {"answer": {"name": "Oslo"}})
    options: dict[str, Any] = {}
    calls = [ToolCall(str(n), "same", {}) for n in range(7)]
    if case == "at a limit":
        options["limits"], calls = Limits(max_turns=1 + len(first), on_limit="answer"), calls[:1]
    elif case == "where no tool may be called":
        options["tool_choice"], calls = "none", []
    provider = ByCall([*calls, *first, answer] if case != "at a limit" else [*first, *calls, answer])
    result = Agent(provider, tools=[same], output=Place, **options).run_sync("?")
    assert result.output == Place("Oslo")
    assert provider.requests[-1].config.tool_choice == ToolChoice("required", ("final_answer",))


def test_tool_with_the_name_of_the_answer_tool_is_refused() -> None:
    @tool(name="final_answer")
    def give(text: str) -> str:
        """Give it."""
        return text

    with pytest.raises(ConfigError, match="Midspan names 'final_answer', and the agent has a tool of that name"):
        Agent(ByCall(["x"]), [give], output=Place).run_sync("?")


def test_output_error_quotes_the_answer() -> None:
    with pytest.raises(OutputError, match=r"^the answer is not of the requested type: .*; it was '.no.'$"):
        Agent(ScriptedProvider(['"no"'] * 9), output=int).run_sync("?")
    with pytest.raises(
        OutputError, match=r"^the answer is not of the requested type: it is not valid JSON: .*; it was 'no no no'$"
    ):
        Agent(ScriptedProvider(["no no no"] * 9), output=int).run_sync("?")


def test_output_that_is_not_json_serializable_is_an_error_without_advice_for_tools() -> None:
    words = (
        r"^output cannot be Agent: Agent is not JSON serializable; use plain types, lists, a dataclass or a TypedDict$"
    )
    with pytest.raises(SchemaError, match=words):
        Agent(ScriptedProvider(["x"]), output=Agent)


@pytest.mark.parametrize("form", [5, complex, "City"])
def test_invalid_output_type_is_an_error_when_the_agent_is_created(form: Any) -> None:
    with pytest.raises(SchemaError, match=r"output cannot be|output must be a type"):
        Agent(ScriptedProvider(["x"]), output=form)
    agent = Agent(ScriptedProvider(["x"]))
    with pytest.raises(SchemaError, match=r"output cannot be|output must be a type"):
        agent.run_sync("?", output=form)


def test_schema_of_the_answer_is_adapted_to_the_model() -> None:
    form = {"type": "array", "items": {"const": "yes"}}
    provider = ScriptedProvider(['["yes"]'], profile=ModelProfile(schema=GEMINI_JSON_SCHEMA))
    assert Agent(provider, output=form).run_sync("?").output == ["yes"]
    requested = provider.requests[0].config.output
    assert requested == Output({"type": "array", "items": {"type": "string", "enum": ["yes"]}})


@pytest.mark.parametrize(
    ("profile", "form", "by_tool"),
    [
        (ModelProfile(output_is_object=True), City, False),
        (ModelProfile(output_is_object=True), list[int], True),
        (ModelProfile(output_is_strict=True), City, True),  # without a dialect no schema is strict
        (ModelProfile(output_schema=OUTPUT, output_is_strict=True), City, False),
        (ModelProfile(supports_json_with_tools=False), list[int], False),
    ],
)
def test_answer_that_the_model_cannot_give_as_json_is_a_call(profile: ModelProfile, form: Any, by_tool: bool) -> None:
    value = {"name": "Oslo", "people": 7} if form is City else [1, 2]
    said = ToolCall("1", ANSWER_TOOL, {"answer": value}) if by_tool else msgspec.json.encode(value).decode()
    provider = ScriptedProvider([said], profile=profile)
    result = Agent(provider, output=form).run_sync("?")
    assert result.output == (City("Oslo", 7) if form is City else [1, 2])
    assert (provider.requests[0].config.output is None) is by_tool
