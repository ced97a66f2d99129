"""The type of an answer follows from `output=`, wherever it is given."""

from dataclasses import dataclass
from typing import assert_type

from midspan import Agent, BackgroundRuns, Chat, Gemini, RunResult
from midspan.testing import ScriptedProvider, record, replay


@dataclass
class City:
    name: str


async def main() -> None:
    plain = Agent("gemini:gemini-3.8-flash")
    typed = Agent(Gemini("gemini-3.8-flash", api_key="x"), output=City)
    assert_type(typed, Agent[City])
    assert_type((await typed.run("where?")).output, City)
    assert_type(Agent(ScriptedProvider([]), output=list[int]).run_sync("which?").output, list[int])

    assert_type((await plain.run("where?", output=City)), RunResult[City])
    assert_type(plain.run_sync("where?", output=City).output, City)
    assert_type(plain.stream("where?", output=City).result.output, City)
    assert_type(plain.replace(output=City), Agent[City])
    assert_type(typed.replace(system="Be brief."), Agent[City])

    chat = Chat(typed)
    assert_type(chat, Chat[City])
    chat = await chat.ask("where?")
    assert_type(chat.output, City)
    assert_type(chat.ask_sync("and then?").output, City)
    assert_type(chat.add_turn("user", "hello").text, str)

    assert_type(record(typed, "recordings"), Agent[City])
    assert_type(replay(typed, "recordings"), Agent[City])
    BackgroundRuns(typed)

    chat.output.town  # type: ignore
    plain.run_sync("where?", output=City).output.town  # type: ignore
