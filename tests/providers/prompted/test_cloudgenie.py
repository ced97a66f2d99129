"""The conversations of a cloud platform in prompt mode, against the strict local Gemini, blocking and streaming."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from midspan import Agent, Gemini, tool
from midspan.emulator import Conversation, LocalGemini
from tests.bounds import BOUND

BLUEPRINTS = [{"id": "bp-pg", "name": "PostgreSQL"}, {"id": "bp-web", "name": "Web service"}]
MODELS = pytest.mark.parametrize(
    ("model", "prompt_mode"), [("gemma-4-31b-it", None), ("gemini-3.8-flash", True)], ids=["by itself", "on demand"]
)
MODES = pytest.mark.parametrize("streaming", [False, True], ids=["blocking", "streaming"])


class Platform:
    """The tools of the platform as plain functions."""

    def __init__(self) -> None:
        self.resources = [{"id": "res-0", "name": "shop", "type": "web"}]

    def tools(self) -> list[Any]:
        @tool
        async def cloudgenie_get_blueprints() -> list[dict[str, str]]:
            """List the blueprints from which resources are made."""
            return BLUEPRINTS

        @tool
        async def cloudgenie_get_resources(type: str | None = None) -> list[dict[str, str]]:  # noqa: A002 - as designed
            """List the resources that there are, of one type or of all."""
            return [one for one in self.resources if type is None or one["type"] == type]

        @tool
        async def cloudgenie_create_resource(name: str, type: str, blueprint_id: str) -> dict[str, str]:  # noqa: A002
            """Make a resource from a blueprint."""
            made = {"id": f"res-{len(self.resources)}", "name": name, "type": type, "blueprint_id": blueprint_id}
            self.resources.append(made)
            return made

        return [cloudgenie_get_blueprints, cloudgenie_get_resources, cloudgenie_create_resource]


def writer(conversation: Conversation) -> Any:
    """A model that writes calls as the prompt describes, and answers when it has the results."""
    said = [part.text or "" for content in conversation.contents for part in content.parts or ()]
    system = conversation.system_text + said[0]
    assert "TOOL_CALL[" in system
    asked = next(text for text in said if "blueprints" in text or "database" in text or "resources" in text)
    told = "\n".join(said)
    if "database" in asked and "res-1" in told:
        return "Your database orders is res-1."
    if "database" in asked and '"bp-pg"' in told:
        arguments = {"name": "orders", "type": "database", "blueprint_id": "bp-pg"}
        return f"PostgreSQL will do.\nTOOL_CALL: cloudgenie_create_resource({json.dumps(arguments, indent=1)})"
    if "What resources" in asked:
        return "There is shop." if "res-0" in told else "TOOL_CALL: cloudgenie_get_resources({})"
    if '"bp-pg"' in told:
        return "There are PostgreSQL and Web service."
    return "I look.\n**TOOL_CALL: cloudgenie_get_blueprints({})**\nOne moment, please."


@pytest.fixture(scope="module")
def server() -> Iterator[LocalGemini]:
    with LocalGemini(writer) as local:
        yield local


@MODES
@MODELS
@pytest.mark.parametrize(
    ("question", "calls", "answer"),
    [
        ("List the blueprints.", ["cloudgenie_get_blueprints"], "There are PostgreSQL and Web service."),
        (
            "Create a database called orders.",
            ["cloudgenie_get_blueprints", "cloudgenie_create_resource"],
            "Your database orders is res-1.",
        ),
        ("What resources are there?", ["cloudgenie_get_resources"], "There is shop."),
    ],
)
def test_the_conversations_of_the_platform(
    server: LocalGemini,
    model: str,
    prompt_mode: bool | None,
    streaming: bool,
    question: str,
    calls: list[str],
    answer: str,
) -> None:
    platform = Platform()

    async def main() -> tuple[Any, str]:
        async with asyncio.timeout(BOUND), Gemini(model, api_key="k", base_url=server.url) as gemini:
            agent = Agent(gemini, tools=platform.tools(), system="You run a platform.", prompt_mode=prompt_mode)
            if not streaming:
                return await agent.run(question), answer
            stream = agent.stream(question)
            heard = "".join([event.text async for event in stream if type(event).__name__ == "TextDelta"])
            return stream.result, heard

    result, heard = asyncio.run(main())
    assert result.text == answer
    assert [run.name for run in result.tool_calls] == calls
    assert [run.id for run in result.tool_calls] == [f"gemini_call_{n}" for n in range(len(calls))]
    assert "TOOL_CALL" not in heard
    assert heard.endswith(answer)
    assert not server.errors
