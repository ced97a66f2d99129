"""A conversation at a terminal: asks, shows, keeps."""

import sys
from typing import Any

from msgspec.structs import replace

from midspan._cli.ask import agent_of
from midspan._cli.fallback import with_fallback
from midspan._cli.interrupts import Stoppable
from midspan._cli.output import Answer, LiveAnswer
from midspan._cli.progress.choose import progress
from midspan._cli.sessions import Session
from midspan._cli.settings import Settings
from midspan._cli.tool_files import tools_of
from midspan._types.messages import History


class Talk:
    """What is said, with whom, and with which tools."""

    def __init__(
        self, settings: Settings, session: Session, loop: Stoppable, *, yes: bool = False, verbose: int = 0
    ) -> None:
        self.session = session
        self.history = History(session.messages())
        self._loop = loop
        self._verbose = verbose
        self.tools: list[Any] = tools_of(settings.tools)
        self.settings = with_fallback(settings, yes=yes)
        self._agent = agent_of(self.settings, self.tools)

    @property
    def model(self) -> str:
        return self._agent.model.model

    def use(self, **changes: Any) -> None:
        """Go on with another model or other tools; if they cannot be had, with those that were."""
        if "model" in changes:
            changes["read_only"] = False  # the limit of the fallback does not apply to a model that is named
        settings = replace(self.settings, **changes)
        tools = tools_of(settings.tools) if "tools" in changes else self.tools
        agent = agent_of(settings, tools)
        self.close()
        self.settings, self.tools, self._agent = settings, tools, agent

    def clear(self) -> None:
        self.session.clear()
        self.history = History()

    def ask(self, question: str) -> None:
        """Ask and show the answer. KeyboardInterrupt if it was stopped; the conversation is fit to go on with."""
        shown = progress(verbose=self._verbose)
        answer = LiveAnswer(sys.stdout) if sys.stdout.isatty() else Answer(sys.stdout)
        stream = self._agent.stream(question, messages=self.history)

        async def watch() -> None:
            async with stream:
                async for event in stream:
                    shown.show(event)
                    answer.hear(event)

        try:
            self._loop.run(watch(), at_leaving=lambda: self._keep(stream.messages))
        finally:  # and not within, because a tool that does not end when it is stopped is left behind
            shown.stop()
            answer.stop()
            self._keep(stream.messages)

    def _keep(self, messages: History) -> None:
        """What was done stays, however the run ended; a question on which nothing was done yet does not."""
        if len(messages) > len(self.history) + 1:
            self.session.add(messages[len(self.history) :])
            self.history = messages

    def close(self) -> None:
        self._loop.run(self._agent.close())
