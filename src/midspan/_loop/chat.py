"""An immutable conversation: every turn makes the next one, and any of them can be gone on from."""

from collections.abc import Iterable, Mapping
from typing import Any, Unpack

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from midspan._loop.agent import Agent
from midspan._loop.blocking import run_blocking
from midspan._loop.options import AllRunOptions
from midspan._loop.prompt import Prompt, message_of, messages_of, part_of
from midspan._loop.result import RunResult
from midspan._types.messages import ROLES, History, Message
from midspan._types.parts import ToolCall
from midspan.errors import ConfigError


class Chat(Struct, frozen=True, eq=False):
    """A conversation with an agent: `chat = await chat.ask("…")`, then `chat.text`."""

    agent: Agent
    messages: History = History()
    result: RunResult | None = None
    """What the last question gave."""

    def __post_init__(self) -> None:
        if not isinstance(self.agent, Agent):
            raise ConfigError(f"a chat is with an Agent, not with {type(self.agent).__name__}")
        if not isinstance(self.messages, History):
            # Of a list, as saved conversations are read.
            force_setattr(self, "messages", History(messages_of(self.messages)))

    @property
    def text(self) -> str:
        """The last answer; empty if nothing was asked yet."""
        return "" if self.result is None else self.result.text

    def add_turn(self, role: str, content: Prompt | Iterable[Any]) -> "Chat":
        """The conversation with one turn more: a text, parts, the calls of a model, or the results of tools."""
        if not isinstance(role, str) or role not in ROLES:
            raise ConfigError(f"unknown role {role!r}; known: {', '.join(ROLES)}")
        given: Any = content
        if isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping | Struct):
            given = list(given)
        items = given if isinstance(given, list) else [given]
        if ROLES[role] != "model" and any(isinstance(one, ToolCall) for one in items):
            raise ConfigError("calls are made by the model; give them with the role 'model'")
        calls = {id(one): ToolCall.read(one) for one in items} if ROLES[role] == "model" else {}
        if any(calls.values()):
            message = Message("model", tuple(calls[id(one)] or part_of(one) for one in items))
        else:
            message = replace(message_of(given), role=ROLES[role])
        if message.results and message.role != "user":
            raise ConfigError("results are given to the model; give them with the role 'user'")
        return replace(self, messages=self.messages.append(message), result=None)

    async def ask(self, prompt: Prompt | None = None, **options: Unpack[AllRunOptions]) -> "Chat":
        """The conversation with this question and its answer; `options` are those of `Agent.run`."""
        if "messages" in options:
            raise ConfigError("a chat has its messages already; make another one with Chat(agent, messages)")
        options["messages"] = self.messages
        result = await self.agent.run(prompt, **options)
        return replace(self, messages=result.messages, result=result)

    def ask_sync(self, prompt: Prompt | None = None, **options: Unpack[AllRunOptions]) -> "Chat":
        """The same for plain code."""
        return run_blocking(self.ask(None if prompt is None else message_of(prompt), **options))
