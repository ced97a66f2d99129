"""A conversation in the terminal: the agent is asked, its answer is shown, and the messages are saved in a file."""

import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from midspan._cli.interrupts import InterruptibleRunner
from midspan._cli.output import Display
from midspan._cli.settings import Settings, private_directory, state_directory
from midspan._cli.text import print_line
from midspan._loop.agent import Agent
from midspan._types.codec import from_json, to_json
from midspan._types.messages import History, Message
from midspan._types.specs import Limits
from midspan.errors import CodecError, ConfigError
from midspan.providers.registry import credential_variables, default_family, fallback_family
from midspan.tools import Filtered, source_of

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)
_LOCK_SECONDS = 5.0


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

    def __init__(self, agent: Agent, runner: InterruptibleRunner, session: "Session | None") -> None:
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


class Session:
    """One conversation, by its name."""

    def __init__(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"{name!r} is not a valid name; use at most 64 letters, digits, dots, dashes or underscores"
            )
        self.name = name
        self.path = _sessions_directory() / f"{name}.json"
        self._new_path = self.path.with_name(f".{self.path.name}.new")

    def messages(self) -> tuple[Message, ...]:
        """Return the messages so far; none if the conversation does not exist yet."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise ConfigError(f"cannot read the conversation {str(self.path)!r}: {error.strerror}") from error
        try:
            messages: tuple[Message, ...] = from_json(data, "messages")
        except CodecError as error:
            raise ConfigError(
                f"the conversation {str(self.path)!r} is damaged: {error}; move the file away to start anew"
            ) from error
        return messages

    def check_writable(self) -> None:
        """Raise ConfigError if the conversation cannot be saved, before a model is asked."""
        with self._writing():
            os.close(os.open(self._new_path, os.O_WRONLY | os.O_CREAT, 0o600))
            self._new_path.unlink()

    def append(self, messages: Sequence[Message]) -> None:
        """Add messages after those that other processes have added meanwhile."""
        with self._writing():
            self._write((*self.messages(), *messages))

    def clear(self) -> None:
        with self._writing():
            self._write(())

    def _write(self, messages: tuple[Message, ...]) -> None:
        """Write a new file and rename it, so that the conversation is complete even after a crash."""
        with os.fdopen(os.open(self._new_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(to_json(messages))
            file.flush()
            os.fsync(file.fileno())
        self._new_path.replace(self.path)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            with _locked(private_directory(self.path.parent) / ".lock"):
                yield
        except OSError as error:
            raise ConfigError(f"cannot save the conversation {str(self.path)!r}: {error.strerror}") from error


def last_session() -> Session:
    """Return the conversation that was changed last."""
    sessions = [(path.stat().st_mtime_ns, path.stem) for path in _sessions_directory().glob("[!.]*.json")]
    if not sessions:
        raise ConfigError("there is no conversation to continue; start one with --session NAME")
    return Session(max(sessions)[1])


def _sessions_directory() -> Path:
    return state_directory() / "sessions"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Allow one writer at a time. The system releases the lock of a process that dies."""
    try:
        import fcntl
    except ImportError:  # Windows: of two commands that end at the same time, one may not be saved
        yield
        return
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise ConfigError(f"another process holds the lock {str(path)!r}") from error
                time.sleep(0.02)
        yield
    finally:
        os.close(lock)
