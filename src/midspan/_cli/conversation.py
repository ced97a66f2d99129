"""Conversations in the terminal, and the log of their runs in a SQLite journal.

A conversation is a session of the journal. It has the name that the user gave it, or one of its own that starts with a
dash. A named conversation that is started over becomes `NAME#2`; the old one stays in the log.
"""

import asyncio
import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from midspan._cli.interrupts import InterruptibleRunner
from midspan._cli.output import Display
from midspan._cli.questions import TERMINAL
from midspan._cli.settings import Settings, private_directory, user_directory
from midspan._cli.text import print_line
from midspan._loop.agent import Agent
from midspan._loop.prompt import Prompt
from midspan._schema.conversion import settings_of
from midspan._storage.journal import RunInfo, RunSummary
from midspan._storage.sqlite import SqliteJournal
from midspan._types import events
from midspan._types.closing import close_all
from midspan._types.codec import from_json, to_json
from midspan._types.events import CANCELLED, RunEvent
from midspan._types.messages import History
from midspan._types.run_state import CALL_CANCELLED, RunState
from midspan._types.specs import Limits, ModelSettings
from midspan.errors import ConfigError, JournalError, MidspanError
from midspan.providers.provider import Provider
from midspan.providers.registry import check_credentials, credential_variables, default_family, offline_family
from midspan.tools import Filtered, ToolSource, source_of

_SKIPPED = (events.TextDelta, events.ThoughtDelta, events.ToolCallDelta, events.ToolProgress)
"""Events whose content is in later ones."""
_DAY = 86_400
_REMEDY = "; for the log of runs, set XDG_STATE_HOME to a directory that you can write to; --no-log does without it"


def with_fallback(settings: Settings, *, allow_all_tools: bool) -> Settings:
    """Use the model that needs no credentials if no model is configured, and say so."""
    if settings.model is not None or default_family() is not None:
        return settings
    name = offline_family().name
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
    options, system = settings_of(ModelSettings, settings.options, "model settings"), settings.system
    return Agent(settings.model, tools, system=system, limits=limits, settings=options, telemetry=telemetry)


class LoggedConversation:
    """An agent, the messages so far, and the session of the log that they are part of."""

    def __init__(self, settings: Settings, tools: list[Any], runner: InterruptibleRunner, options: Namespace) -> None:
        """Start or continue the conversation that the flags select. Without a log, there are no earlier messages."""
        self.runner = runner
        is_continued = options.continue_last or options.session is not None
        if is_continued and not settings.log:
            raise ConfigError("a conversation cannot be continued without the log; leave --no-log out")
        self._session, self.history = "", History()
        try:
            log = RunLog(runner.run, max_days=settings.log_days) if settings.log else None
            if log is not None:
                name, is_new = options.session, getattr(options, "new", False)
                self._session = log.last_session() if options.continue_last else log.session(name, is_new=is_new)
                self.history = log.history(self._session)
        except (MidspanError, OSError) as error:
            if is_continued:
                raise
            print_line(f"this conversation is not logged: {error}")
            log = None
        self._log = log
        self._used: list[Provider | ToolSource] = []
        """All models and sources so far. They are closed together, because each of them may be used again."""
        try:
            self.use(with_fallback(settings, allow_all_tools=options.yes), tools)
        except BaseException:
            if log is not None:
                log.close()
            raise

    def ask(self, prompt: Prompt, displays: Sequence[Display], received: list[RunEvent], **options: Any) -> None:
        """Run the agent, show its events and add them to `received`. Raises KeyboardInterrupt if it was cancelled."""
        TERMINAL.displays = displays
        stream = self.agent.stream(prompt, messages=self.history, on_question=TERMINAL.on_question, **options)
        entry = LogEntry(None if self._log is None else self._log.journal, self._session, len(self.history))

        async def watch() -> None:
            async with stream:
                async for event in stream:
                    received.append(event)
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

    def use(self, settings: Settings, tools: list[Any]) -> None:
        """Continue with another model or other tools. If that fails, nothing changes."""
        self.agent = build_agent(settings, tools)
        self.settings = settings
        used: list[Any] = [self.agent.provider, *(tool for tool in tools if isinstance(tool, ToolSource))]
        self._used += [item for item in used if item not in self._used]

    def clear(self) -> None:
        """Start over. The messages so far stay in the log."""
        if self._log is not None:
            name = self._session.partition("#")[0]
            self._session = self._log.session(None if name.startswith("-") else name, is_new=True)
        self.history = History()

    def close(self) -> None:
        self.runner.run(close_all(item.aclose() for item in self._used))
        if self._log is not None:
            self._log.close()


class RunLog:
    """The log of this user. `run` runs a coroutine and returns its result."""

    def __init__(self, run: Callable[[Coroutine[Any, Any, Any]], Any], *, max_days: int | None = None) -> None:
        self._run = run
        self.path = private_directory(user_directory("state"), _REMEDY) / "runs.db"
        self.journal = SqliteJournal(self.path)
        if max_days is not None:
            self._sweep(max_days)

    def close(self) -> None:
        self._run(self.journal.aclose())

    def session(self, name: str | None, *, is_new: bool = False) -> str:
        """Return the session of a name, or a new one."""
        if name is None:
            return f"-{os.urandom(6).hex()}"
        if not name.isprintable() or not name.strip() or name.startswith("-") or "#" in name:
            raise ConfigError(f"{name!r} is not a valid name; it must not be empty, begin with - or contain #")
        sessions = [info.session for info in self._run(self.journal.sessions())]
        numbers = [int(number or 1) for base, _, number in (key.partition("#") for key in sessions) if base == name]
        number = max(numbers, default=0 if is_new else 1) + is_new
        return name if number <= 1 else f"{name}#{number}"

    def last_session(self) -> str:
        """Return the session of the last run."""
        sessions = self._run(self.journal.sessions(limit=1))
        if not sessions:
            raise ConfigError("there is no conversation to continue: the log is empty")
        return str(sessions[0].session)

    def history(self, session: str) -> History:
        """Return the messages of a conversation. A question that led to nothing is left out."""
        messages: list[Any] = []
        for info in reversed(self._run(self.journal.list(session=session))):
            added = RunState.of_events(self.read(info.run)).settled(CALL_CANCELLED).history
            messages += added if len(added) > 1 else ()
        return History(messages)

    def runs(self, limit: int | None = None) -> list[RunInfo]:
        """Return the runs, newest first."""
        return list(self._run(self.journal.list(limit=limit)))

    def find(self, id: str) -> RunInfo:
        """Return the run whose id starts with `id`; `run_` can be left out."""
        runs = [info for info in self.runs() if info.run.removeprefix("run_").startswith(id.removeprefix("run_"))]
        if len(runs) != 1:
            raise ConfigError(f"{len(runs) or 'no'} runs have an id that starts with {id!r}; see midspan runs list")
        return runs[0]

    def read(self, run: str, limit: int | None = None) -> list[events.RunEvent]:
        return [from_json(data, "event") for _, data in self._run(self.journal.read(run, limit=limit))]

    def delete(self, run: str) -> None:
        self._run(self.journal.delete(run))

    def _sweep(self, max_days: int) -> None:
        """Delete conversations that have not been continued for `max_days`. Does so once a day at most."""
        marker = self.path.with_name("runs.swept")
        if marker.exists() and time.time() - marker.stat().st_mtime < _DAY:
            return
        marker.touch(mode=0o600)
        for info in self._run(self.journal.sessions()):
            if info.updated_at < time.time() - max_days * _DAY:
                for run in self._run(self.journal.list(session=info.session)):
                    self.delete(run.run)


class LogEntry(Struct):
    """Writes the events of one run to the log, if there is one. If that fails, the run continues without the log."""

    journal: SqliteJournal | None
    session: str
    earlier_messages: int
    run_id: str = ""
    length: int = 0
    summary: RunSummary = RunSummary()

    async def add(self, event: events.RunEvent) -> None:
        if isinstance(event, _SKIPPED) or self.journal is None:
            return
        if isinstance(event, events.RunStart):  # the earlier messages are those of the earlier runs
            self.run_id = event.run_id
            event = replace(event, messages=event.messages[self.earlier_messages :])
        self.summary = self.summary.after(event)
        length, self.length = self.length, self.length + 1
        data = [to_json(event)]
        append = self.journal.append(self.run_id, length, data, session=self.session, summary=self.summary)
        try:
            await asyncio.shield(append)  # whether a cancelled append was stored is unknown
        except JournalError as error:
            self.journal = None
            print_line(f"this run is not logged: {error}")

    async def end(self, error: BaseException | None) -> None:
        """Store how the run ended, if it has no RunEnd of its own."""
        if self.length and not self.summary.ended:
            is_cancelled = isinstance(error, KeyboardInterrupt)
            name, message = (CANCELLED, CANCELLED) if is_cancelled else (type(error).__name__, str(error))
            info = events.ErrorInfo(name, message)
            usage, turns = self.summary.usage, self.summary.turns
            await self.add(events.RunEnd(self.run_id, "", usage, turns, getattr(error, "limit", None), info))
