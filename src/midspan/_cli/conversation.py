"""A conversation in the terminal: the agent is asked, its answer is shown, and everything is logged."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from midspan._cli.interrupts import InterruptibleRunner
from midspan._cli.log import LogEntry, RunLog
from midspan._cli.output import Display
from midspan._cli.questions import TERMINAL
from midspan._cli.settings import Settings
from midspan._cli.text import print_line
from midspan._loop.agent import Agent
from midspan._schema.settings import settings_of
from midspan._types.events import RunEvent
from midspan._types.messages import History
from midspan._types.specs import Limits, ModelSettings
from midspan.errors import ConfigError, MidspanError
from midspan.providers.registry import check_credentials, credential_variables, default_family, fallback_family
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
    return replace(settings, model=name, read_only=settings.read_only or not allow_all_tools)


def build_agent(settings: Settings, tools: list[Any], telemetry: Any = None) -> Agent:
    limits = Limits() if settings.max_turns is None else Limits(max_turns=settings.max_turns)
    if settings.read_only and tools:
        tools = [Filtered(source_of(tools), lambda spec: spec.changes is False)]
    if settings.model is not None:
        check_credentials(settings.model)
    options, system = settings_of(ModelSettings, settings.options, "options of the model"), settings.system
    return Agent(settings.model, tools, system=system, limits=limits, settings=options, telemetry=telemetry)


class LoggedConversation:
    """An agent, the messages so far, and the session of the log that they are part of."""

    def __init__(self, agent: Agent, runner: InterruptibleRunner, options: Namespace, settings: Settings) -> None:
        """Start or continue the conversation that the flags select. Without a log, there are no earlier messages."""
        self.agent = agent
        self.runner = runner
        is_continued = options.continue_last or options.session is not None
        if is_continued and not settings.log:
            raise ConfigError("a conversation cannot be continued without the log; leave --no-log out")
        try:
            log = RunLog(runner.run, max_days=settings.log_days) if settings.log else None
        except (MidspanError, OSError) as error:
            if is_continued:
                raise
            print_line(f"this is not logged: {error}")
            log = None
        self._log, self._session, self.history = log, "", History()
        if log is not None:
            is_new = getattr(options, "new", False)
            self._session = log.last_session() if options.continue_last else log.session(options.session, is_new=is_new)
            self.history = log.history(self._session)

    def ask(self, prompt: str | list[Any], displays: Sequence[Display], events: list[RunEvent], **options: Any) -> None:
        """Run the agent, show its events and add them to `events`. Raises KeyboardInterrupt if it was cancelled."""
        TERMINAL.displays = displays
        stream = self.agent.stream(prompt, messages=self.history, on_question=TERMINAL.on_question, **options)
        entry = LogEntry(None if self._log is None else self._log.journal, self._session, len(self.history))

        async def watch() -> None:
            async with stream:
                async for event in stream:
                    events.append(event)
                    for display in displays:
                        display.show(event)
                    await entry.add(event)

        try:
            self.runner.run(watch())
        finally:
            for display in displays:
                display.close()
            if len(stream.messages) > len(self.history) + 1:  # a question that led to nothing can just be asked again
                self.history = stream.messages
            self.runner.run(entry.end(sys.exception()))

    def use(self, agent: Agent) -> None:
        """Continue with another agent."""
        self.runner.run(self.agent.aclose())
        self.agent = agent

    def clear(self) -> None:
        """Start over. The messages so far stay in the log."""
        if self._log is not None:
            name = self._session.partition("#")[0]
            self._session = self._log.session(None if name.startswith("-") else name, is_new=True)
        self.history = History()

    def close(self) -> None:
        self.runner.run(self.agent.aclose())
        if self._log is not None:
            self._log.close()
