"""`Chat`, an immutable conversation with an agent."""

from collections.abc import Iterable
from typing import Any, Generic, Unpack

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from midspan._loop.agent import Agent
from midspan._loop.blocking import run_blocking
from midspan._loop.options import Output, RunOptions
from midspan._loop.prompt import Prompt, check_messages, to_message, to_turn
from midspan._loop.result import RunResult
from midspan._types.messages import History
from midspan.errors import ConfigError


class Chat(Struct, Generic[Output], frozen=True, eq=False):
    """An immutable conversation with an agent: `chat = await chat.ask("…")`, then `chat.text`."""

    agent: Agent[Output]
    messages: History = History()
    result: RunResult[Output] | None = None
    """The result of the last question."""

    def __post_init__(self) -> None:
        if not isinstance(self.agent, Agent):
            raise ConfigError(f"a chat needs an Agent, got {self.agent!r:.80}")
        if not isinstance(self.messages, History):  # a list, as saved conversations are read
            force_setattr(self, "messages", History(check_messages(self.messages)))

    @property
    def text(self) -> str:
        """The last answer; empty if nothing was asked yet."""
        return "" if self.result is None else self.result.text

    @property
    def output(self) -> Output:
        """The last answer as the requested type."""
        if self.result is None:
            raise ConfigError("nothing was asked yet")
        return self.result.output

    def add_turn(self, role: str, content: Prompt | Iterable[Any]) -> "Chat[Output]":
        """Return the conversation with one more turn: text, parts, the calls of a model, or the results of tools."""
        return replace(self, messages=self.messages.append(to_turn(role, content)), result=None)

    async def ask(self, prompt: Prompt = None, **options: Unpack[RunOptions]) -> "Chat[Output]":
        """Return the conversation with this question and its answer; `options` are those of `Agent.run`."""
        options["messages"] = self.messages
        result = await self.agent.run(prompt, **options)
        return replace(self, messages=result.messages, result=result)

    def ask_sync(self, prompt: Prompt = None, **options: Unpack[RunOptions]) -> "Chat[Output]":
        """Like `ask`, for sync code."""
        return run_blocking(self.ask(None if prompt is None else to_message(prompt), **options))
