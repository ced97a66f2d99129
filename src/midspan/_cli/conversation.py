"""A conversation in the terminal: the agent is asked, its answer is shown, and the messages are saved."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from midspan._cli.interrupts import InterruptibleRunner
from midspan._cli.messages import print_line
from midspan._cli.output import Display
from midspan._cli.sessions import Session
from midspan._cli.settings import Settings
from midspan._loop.agent import Agent
from midspan._types.messages import History
from midspan._types.specs import Limits
from midspan.providers.registry import credential_variables, default_family, fallback_family
from midspan.tools import Filtered, source_of


def with_fallback(settings: Settings, *, allow_all_tools: bool) -> Settings:
    """Use the model that needs no credentials if no model is configured, and say so."""
    if settings.model is not None or default_family() is not None:
        return settings
    name = fallback_family().name
    tools = "" if allow_all_tools else ", with read-only tools only (--yes allows all tools)"
    print_line(
        f"no model is named and no key is set, so the {name} model answers{tools}. "
        f"For a language model set {credential_variables()}, or use --model."
    )
    return replace(settings, model=name, read_only=not allow_all_tools)


def build_agent(settings: Settings, tools: list[Any]) -> Agent:
    limits = Limits() if settings.max_turns is None else Limits(max_turns=settings.max_turns)
    if settings.read_only and tools:
        tools = [Filtered(source_of(tools), lambda spec: spec.changes is False)]
    return Agent(settings.model, tools, system=settings.system, limits=limits)


class Conversation:
    """An agent, the messages so far, and the session that they are saved in."""

    def __init__(self, agent: Agent, runner: InterruptibleRunner, session: Session | None) -> None:
        self.agent = agent
        self.session = session
        self.history = History(session.messages()) if session is not None else History()
        self._runner = runner

    def ask(self, prompt: str | list[Any], displays: Sequence[Display]) -> None:
        """Run the agent and show its events. Raises KeyboardInterrupt if the run was cancelled."""
        stream = self.agent.stream(prompt, messages=self.history)

        async def watch() -> None:
            async with stream:
                async for event in stream:
                    for display in displays:
                        display.show(event)

        def finish() -> None:
            try:
                for display in displays:
                    display.close()
            finally:
                self._save(stream.messages)

        try:
            self._runner.run(watch(), on_exit=finish)
        finally:  # outside of the coroutine, which may be abandoned
            finish()

    def _save(self, messages: History) -> None:
        """Save calls and answers, however the run ended. A question that led to nothing can just be asked again."""
        if len(messages) > len(self.history) + 1:
            if self.session is not None:
                self.session.append(messages[len(self.history) :])
            self.history = messages

    def clear(self) -> None:
        if self.session is not None:
            self.session.clear()
        self.history = History()

    def close(self) -> None:
        self._runner.run(self.agent.close())
