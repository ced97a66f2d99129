"""`record` and `replay`: agents whose runs are recorded, and agents whose runs are answered from recordings."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from os import PathLike, urandom
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, cast

import msgspec
from msgspec.structs import replace

from midspan._loop.agent import Agent
from midspan._loop.prepare import ToolSet
from midspan._loop.prompt import Prompt
from midspan._loop.result import RunResult, RunStream
from midspan._types.context import NO_CONTEXT, RunContext
from midspan._types.events import RunEvent
from midspan._types.exchange import Usage
from midspan._types.messages import History, Message
from midspan._types.parts import Text, ToolCall, ToolResult
from midspan._types.specs import Limits, ToolSpec
from midspan.providers.provider import Provider
from midspan.providers.recording.format import (
    FORMAT,
    CallLine,
    EndLine,
    RecordedError,
    RunLine,
    ToolsLine,
    read_recording,
)
from midspan.providers.recording.masking import SecretMasker
from midspan.providers.recording.recorder import RecordedProvider, RecordingWriter, prepare_directory
from midspan.providers.recording.replayer import RecordingLibrary, ReplayedProvider, Replayer
from midspan.tools.source import ToolListing, ToolSource
from midspan.tools.wrap import WrapperSource

_log = logging.getLogger("midspan.testing")

_RECORDED_OPTIONS = ("system", "settings", "limits", "tool_choice", "calls_only", "prompt_mode")
_UNRECORDED_OPTIONS = ("model", "tools", "output")


def record(agent: Agent, directory: str | PathLike[str], *, secrets: Iterable[str] = ()) -> Agent:
    """Return an agent that writes every run to a file in the directory.

    Secrets are masked in the files: credentials of providers, environment variables that hold secrets, everything that
    looks like a key or a token, and the texts in `secrets`.
    """
    secrets = tuple(secrets) if isinstance(secrets, Iterator) else secrets  # each run needs them
    SecretMasker(secrets)  # reports wrong secrets before the directory is created
    prepare_directory(Path(directory))

    def start(run: RunLine) -> _Session:
        writer = RecordingWriter(Path(directory), run, SecretMasker(secrets))
        return _Session(
            lambda provider: RecordedProvider(provider, writer),
            lambda source: RecordedTools(source, writer),
            lambda outcome: _write_end(writer, outcome),
        )

    return _ObservedAgent(agent, start)


def replay(agent: Agent, directory: str | PathLike[str], *, secrets: Iterable[str] = ()) -> Agent:
    """Return an agent that is answered from the recordings in the directory, or from a single recording.

    No model is asked and no tool is run. Each recording is replayed once, by the run that asks the same.
    """
    library = RecordingLibrary(Path(directory), SecretMasker(secrets))

    def start(run: RunLine) -> _Session:
        replayer = Replayer(library, run.messages)
        return _Session(
            lambda provider: ReplayedProvider(provider, replayer),
            lambda source: ReplayedTools(source, replayer),
            lambda _: replayer.check(),
        )

    return _ObservedAgent(agent, start)


def asked(recording: str | PathLike[str]) -> dict[str, Any]:
    """Return what the run of a recording was asked, as arguments of `run`: `agent.run_sync(**asked(path))`."""
    run = read_recording(Path(recording)).run
    options = {name: run.options[name] for name in _RECORDED_OPTIONS if name in run.options}
    if "limits" in options:
        options["limits"] = msgspec.convert(options["limits"], Limits)
    match run.messages:
        case (Message(role="user", parts=(Text(text, None),)),):
            return {"prompt": text, **options}
    return {"messages": History(run.messages), **options}


class _Session(NamedTuple):
    """What wraps the model and the tools of one run, and is told its outcome."""

    wrap_provider: Callable[[Provider], Provider]
    wrap_tools: Callable[[ToolSource], ToolSource]
    finish: Callable[[RunResult | Exception], None]


def _write_end(writer: RecordingWriter, outcome: RunResult | Exception) -> None:
    if isinstance(outcome, RunResult):
        writer.write(EndLine(outcome.text, outcome.turns, tuple(run.call for run in outcome.tool_calls)))
    elif writer.has_started:  # otherwise the run failed before it did anything
        writer.write(EndLine(error=RecordedError.of(outcome)))


class RecordedTools(WrapperSource):
    """Tools whose calls are recorded when they end."""

    def __init__(self, source: ToolSource, writer: RecordingWriter) -> None:
        super().__init__(source)
        self._writer = writer

    def adapt(self, tools: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
        self._writer.write(ToolsLine(tools))
        return tools

    async def call(self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
        started_at = perf_counter()
        try:
            result = await self.source.call(call, context)
        except Exception as error:
            self._writer.write(CallLine(call, perf_counter() - started_at, error=RecordedError.of(error)))
            raise
        recorded = result if isinstance(result, ToolResult) else None
        self._writer.write(CallLine(call, perf_counter() - started_at, recorded))
        return result


class ReplayedTools(WrapperSource):
    """Tools that are declared as they are now, and answered from a recording."""

    def __init__(self, source: ToolSource, replayer: Replayer) -> None:
        super().__init__(source)
        self._replayer = replayer

    async def list_tools(self) -> ToolListing:
        """The tools of the source; if it cannot be reached, those of the recording."""
        try:
            listing = await super().list_tools()
        except Exception as error:  # noqa: BLE001 - a source is foreign code
            _log.info("cannot list the tools, using those of the recording: %s", error)
            return ToolListing(self._replayer.tools())
        return ToolListing(self._replayer.tools()) if listing.unavailable else listing

    async def call(self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:  # noqa: ARG002 - protocol
        line = await self._replayer.call(call)
        if line.error is not None:
            raise line.error.to_exception()
        if line.result is None or line.result.id != line.call.id:
            return cast("ToolResult", line.result)  # what the source returned was wrong, and is wrong again
        return replace(line.result, id=call.id)


class _ObservedAgent(Agent):
    """An agent that wraps the model and the tools of each run."""

    def __init__(self, agent: Agent, start: Callable[[RunLine], _Session]) -> None:
        self._agent = agent
        self._start = start

    @property
    def model(self) -> Provider:
        return self._agent.model

    @property
    def tools(self) -> Sequence[Any]:
        return self._agent.tools

    def replace(self, *, limits: Limits | None = None, **options: Any) -> Agent:
        return _ObservedAgent(self._agent.replace(limits=limits, **options), self._start)

    def __repr__(self) -> str:
        return f"<{self._agent!r}, recorded or replayed>"

    async def run(self, prompt: Prompt | None = None, **options: Any) -> RunResult:
        session, options = self._session(prompt, options)
        try:
            result = await self._agent.run(prompt, **options)
        except Exception as error:
            session.finish(error)
            raise
        session.finish(result)
        return result

    def stream(self, prompt: Prompt | None = None, **options: Any) -> RunStream:
        session, options = self._session(prompt, options)
        return _ObservedStream(self._agent.stream(prompt, **options), session)

    async def close(self) -> None:
        await self._agent.close()

    def _session(self, prompt: Any, options: dict[str, Any]) -> tuple[_Session, dict[str, Any]]:
        messages = options.get("messages", ())
        messages = tuple(messages) if isinstance(messages, Iterator) else messages  # an iterator can be read only once
        run_id = options.get("run_id") or f"run_{urandom(8).hex()}"
        agent = self._agent.replace(**{name: options[name] for name in ("model", "tools") if name in options})
        given = {name: value for name, value in options.items() if value is not None}
        run = RunLine(
            version=FORMAT,
            run_id=run_id,
            model=agent.model.model,
            recorded_at=datetime.now(UTC).isoformat(timespec="seconds"),
            messages=self._agent.stream(prompt, messages=messages).messages.messages,  # a stream that is not started
            options={name: _to_json(given[name]) for name in _RECORDED_OPTIONS if name in given},
            unrecorded_options=tuple(name for name in _UNRECORDED_OPTIONS if name in given),
        )
        session = self._start(run)
        tools = ToolSet(agent.tools)
        wrapped = {
            "model": session.wrap_provider(agent.model),
            "tools": [*tools.builtins, session.wrap_tools(tools.source)],
        }
        return session, {**options, "messages": messages, "run_id": run_id, **wrapped}


def _to_json(option: Any) -> Any:
    try:
        return msgspec.to_builtins(option)
    except TypeError:
        return None  # the agent will refuse it


class _ObservedStream(RunStream):
    """The events of another stream, whose end is reported to the session."""

    def __init__(self, stream: RunStream, session: _Session) -> None:
        # Without RunStream.__init__: the other stream has the run and its task.
        self._stream = stream
        self._session: _Session | None = session

    async def __anext__(self) -> RunEvent:
        try:
            return await anext(self._stream)
        except StopAsyncIteration:
            if self._stream.has_ended:
                self._finish(self._stream.result)
            raise
        except Exception as error:
            self._finish(error)
            raise

    def _finish(self, outcome: RunResult | Exception) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.finish(outcome)

    async def aclose(self) -> None:
        self._session = None
        await self._stream.aclose()

    @property
    def has_ended(self) -> bool:
        return self._stream.has_ended

    @property
    def result(self) -> RunResult:
        return self._stream.result

    @property
    def messages(self) -> History:
        return self._stream.messages

    @property
    def usage(self) -> Usage:
        return self._stream.usage
