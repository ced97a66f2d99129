"""A whole run with a model that only writes text, blocking and streaming; the conversation of a cloud platform."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from midspan import Agent, tool
from midspan._types.events import TextDelta, TurnRetry
from midspan._types.exchange import ModelRequest
from midspan._types.parts import Text, ToolCall
from midspan.providers.provider import ModelProfile
from midspan.testing import ScriptedProvider
from tests.streaming import PartsProvider

BLUEPRINTS = [{"id": "bp-pg", "name": "PostgreSQL"}, {"id": "bp-web", "name": "Web service"}]


@tool
async def cloudgenie_get_blueprints() -> list[dict[str, str]]:
    """List the blueprints from which resources are made."""
    return BLUEPRINTS


@tool
async def cloudgenie_create_resource(name: str, type: str, blueprint_id: str) -> dict[str, str]:  # noqa: A002 - the design calls it so
    """Make a resource from a blueprint."""
    return {"id": "res-1", "name": name, "type": type, "blueprint": blueprint_id, "status": "provisioning"}


class Writer(ScriptedProvider):
    """A model that knows nothing of functions."""

    profile = ModelProfile("Gemini", supports_tools=False)


def writer(pieces: int) -> Writer:
    """Lists the blueprints, creates a database from the right one, and answers, in this number of pieces."""

    def says(request: ModelRequest) -> Any:
        assert request.config.tools == ()
        assert "TOOL_CALL[" in (request.config.system or "")
        said = "\n".join(message.text for message in request.history)
        if "res-1" in said:
            text = "The database orders is being made."
        elif "bp-pg" in said:
            text = (
                "PostgreSQL it is.\n"
                'TOOL_CALL: cloudgenie_create_resource({"name": "orders", "type": "database", "blueprint_id": "bp-pg"})'
            )
        else:
            text = "Let me look at the blueprints.\nTOOL_CALL: cloudgenie_get_blueprints({})\nOne moment."
        size = max(1, len(text) // pieces)
        return [Text(text[at : at + size]) for at in range(0, len(text), size)]

    return Writer(says)


@pytest.mark.requirement("S2-16")
@pytest.mark.parametrize("streaming", [False, True], ids=["blocking", "streaming"])
@pytest.mark.parametrize("pieces", [1, 7, 1000])
def test_a_model_that_only_writes_text_calls_tools_one_after_another(streaming: bool, pieces: int) -> None:
    async def main() -> tuple[Any, str]:
        agent = Agent(writer(pieces), tools=[cloudgenie_get_blueprints, cloudgenie_create_resource])
        stream = agent.stream("Create a database for orders.")
        if not streaming:
            return await agent.run("Create a database for orders."), ""
        texts = [event.text async for event in stream if type(event).__name__ == "TextDelta"]
        return stream.result, "".join(texts)

    result, heard = asyncio.run(main())
    assert result.text == "The database orders is being made."
    assert [run.name for run in result.tool_calls] == ["cloudgenie_get_blueprints", "cloudgenie_create_resource"]
    assert [run.id for run in result.tool_calls] == ["gemini_call_0", "gemini_call_1"]
    assert result.tool_calls[1].arguments == {"name": "orders", "type": "database", "blueprint_id": "bp-pg"}
    assert "TOOL_CALL" not in heard
    if streaming:
        assert "Let me look at the blueprints." in heard
        assert "One moment." in heard


@pytest.mark.requirement("S2-16")
@pytest.mark.parametrize("supports_tools", [True, False], ids=["native", "prompted"])
def test_tools_are_native_or_prompted_by_what_the_model_can_do(supports_tools: bool) -> None:
    class Model(ScriptedProvider):
        profile = ModelProfile(supports_tools=supports_tools)

    native: list[Any] = [ToolCall("native_1", "cloudgenie_get_blueprints", {})]
    written = "TOOL_CALL: cloudgenie_get_blueprints({})"
    model = Model([native if supports_tools else written, "Two."])
    result = Agent(model, tools=[cloudgenie_get_blueprints]).run_sync("Which?")
    assert [(call.name, call.id) for call in result.tool_calls] == [
        ("cloudgenie_get_blueprints", "native_1" if supports_tools else "gemini_call_0")
    ]
    for request in model.requests:
        assert bool(request.config.tools) is supports_tools
        assert ("TOOL_CALL[" in (request.config.system or "")) is not supports_tools


def test_calls_are_numbered_from_0_over_all_runs_of_a_conversation() -> None:
    call = "TOOL_CALL: cloudgenie_get_blueprints({})\n"
    agent = Agent(Writer([call * 2, "Two.", call, "Still two."]), tools=[cloudgenie_get_blueprints])
    first = agent.run_sync("Which?")
    second = agent.run_sync("And now?", messages=first.messages)
    assert [call.id for call in first.tool_calls] == ["gemini_call_0", "gemini_call_1"]
    assert [call.id for call in second.tool_calls] == ["gemini_call_2"]


EARLY_ENDS = [
    '<tool_call>\n{"name": "delete_files", "arguments": {"filter": {"id": 7}}, "dry_run": true}}\n</tool_call>',
    '[TOOL_CALLS]delete_files[ARGS]{"filter": {"id": 7}}, "dry_run": true}',
    'Action: delete_files\nAction Input: {"filter": {"id": 7}}, "dry_run": true}',
    'TOOL_CALL: delete_files({"filter": {"id": 7}}, "dry_run": true})',
    'TOOL_CALL: delete_files(filter={"id": 7}) dry_run=True)',
    'call:delete_files{"filter": {"id": 7}} "dry_run": true}',
]


@pytest.mark.parametrize("text", EARLY_ENDS)
def test_a_tool_never_runs_without_the_arguments_that_follow_an_early_end(text: str) -> None:
    ran: list[bool] = []

    def delete_files(filter: dict[str, int], dry_run: bool = False) -> str:  # noqa: A002 - a name that tools have
        """Delete files."""
        ran.append(dry_run)
        return "ok"

    model = Writer([text, 'TOOL_CALL: delete_files({"filter": {"id": 7}, "dry_run": true})', "Done."])
    assert Agent(model, [delete_files]).run_sync("Clean up, dry run.").text == "Done."
    assert ran == [True]
    assert "delete_files" in model.requests[1].history[-1].text


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>cloudgenie_get_blueprints",
        "<tool_call>please list</tool_call>",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.nothing:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
        '{"name": "cloudgenie_get_blueprint", "arguments": {}}',
    ],
)
def test_a_raw_call_is_never_the_answer_of_a_run(text: str) -> None:
    model = Writer([text, "There are two."])
    result = Agent(model, tools=[cloudgenie_get_blueprints]).run_sync("Which?")
    assert (result.text, result.turns) == ("There are two.", 2)
    assert not result.tool_calls


def test_prompt_mode_can_be_chosen_for_one_run() -> None:
    provider = ScriptedProvider(["TOOL_CALL: cloudgenie_get_blueprints()", "Two.", "None."])
    agent = Agent(provider, tools=[cloudgenie_get_blueprints])
    assert agent.run_sync("Which?", prompt_mode=True).tool_calls[0].value == BLUEPRINTS
    agent.run_sync("Which?")
    assert [len(request.config.tools) for request in provider.requests] == [0, 0, 1]


def test_an_unreadable_call_is_never_run_and_reported_to_the_model() -> None:
    provider = Writer(
        [
            'TOOL_CALL: cloudgenie_create_resource({"name": "orders", "type": ',
            "TOOL_CALL: cloudgenie_destroy({})",
            'TOOL_CALL: cloudgenie_create_resource({"name": "a", "type": "b", "blueprint_id": "c"})',
            "Done.",
        ]
    )
    result = Agent(provider, tools=[cloudgenie_create_resource]).run_sync("Go.")
    assert [run.arguments for run in result.tool_calls] == [{"name": "a", "type": "b", "blueprint_id": "c"}]
    told = [request.history[-1].text for request in provider.requests]
    assert "cloudgenie_create_resource" in told[1]
    assert "cloudgenie_destroy" in told[2]


def test_text_around_a_rejected_call_is_streamed_and_is_not_part_of_the_answer() -> None:
    rejected = "Let me look.\nTOOL_CALL: get_blueprints({})\nThere are two."
    stream = Agent(Writer([rejected, "None."]), tools=[cloudgenie_get_blueprints]).stream("Which?")
    events = list(stream)
    [retry] = [event for event in events if isinstance(event, TurnRetry)]
    texts = [event.text for event in events if isinstance(event, TextDelta) and event.turn == retry.turn]
    assert texts == ["Let me look.\n", "\nThere are two."]
    assert stream.messages[1].text == "".join(texts)
    assert stream.result.text == "None."


def test_a_typed_answer_in_prompt_mode_is_a_call() -> None:
    provider = Writer(["TOOL_CALL: cloudgenie_get_blueprints()", 'TOOL_CALL: final_answer({"answer": ["bp-pg"]})'])
    agent = Agent(provider, tools=[cloudgenie_get_blueprints], output=list[str])
    assert agent.run_sync("Which?").output == ["bp-pg"]


def test_a_model_that_breaks_off_without_an_answer_is_asked_again() -> None:
    class Silent(PartsProvider, ScriptedProvider):
        async def parts(self, request: ModelRequest) -> AsyncIterator[Any]:
            if self.requests:
                async for part in ScriptedProvider.stream(self, request):
                    yield part
            else:
                self.requests.append(request)

    result = Agent(Silent(["fine"]), tools=[cloudgenie_get_blueprints], prompt_mode=True).run_sync("?")
    assert (result.text, result.turns) == ("fine", 2)
