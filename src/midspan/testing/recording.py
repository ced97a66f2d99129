"""`record`: an agent whose runs are written to files."""

import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from midspan._loop.agent import Agent
from midspan._loop.prepare import ToolSet
from midspan._loop.prompt import Prompt, conversation
from midspan._loop.result import RunResult, RunStream
from midspan._types.context import NO_CONTEXT, RunContext
from midspan._types.exchange import ModelEvent, ModelRequest, ModelResponse, PartEvent
from midspan._types.parts import ToolCall, ToolResult
from midspan._types.specs import Limits, ToolSpec
from midspan.errors import ConfigError, MidspanError
from midspan.providers.provider import Provider, WireProvider, WrapperProvider, ensure_aclose
from midspan.testing.format import (
    FORMAT,
    CallLine,
    EndLine,
    ErrorLine,
    EventLine,
    Line,
    NoResponseLine,
    RecordedError,
    RequestLine,
    ResponseLine,
    RunLine,
    ToolsLine,
    encode,
    encode_line,
    encode_messages,
    recordings_in,
)
from midspan.testing.masking import SecretMasker
from midspan.tools.source import ToolSource
from midspan.tools.wrap import WrapperSource

RECORDED_OPTIONS = ("system", "settings", "limits", "tool_choice", "calls_only", "prompt_mode")
_UNRECORDED_OPTIONS = ("model", "tools", "output")


def record(agent: Agent, directory: str | os.PathLike[str], *, secrets: Iterable[str] = ()) -> Agent:
    """Return an agent that writes every run to a file in the directory.

    Secrets are masked in the files: credentials of providers, environment variables that hold secrets, everything that
    looks like a key or a token, and the texts in `secrets`.
    """
    secrets = tuple(secrets) if isinstance(secrets, Iterator) else secrets  # each run needs them
    SecretMasker(secrets)  # reports wrong secrets before the directory is created
    path = Path(directory)
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(0, "it is not writable")
    except (OSError, ValueError) as error:  # ValueError: no directory can have this name
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot record into {str(path)!r}: {reason}") from error
    return ObservedAgent(agent, lambda run: RecordingWriter(path, run, SecretMasker(secrets)))


class RecordingWriter:
    """Writes the recording of one run. The file is created with the first line and closed after each line.

    A thousand concurrent runs have a thousand files, more than a process may keep open. Any number of threads and
    processes can write to one directory.
    """

    def __init__(self, directory: Path, run: RunLine, masker: SecretMasker) -> None:
        self._directory = directory
        self._run = run
        self._masker = masker
        self._path: Path | None = None
        self._error: MidspanError | None = None

    def wrap_provider(self, provider: Provider) -> Provider:
        return RecordedProvider(provider, self)

    def wrap_tools(self, source: ToolSource) -> ToolSource:
        return RecordedTools(source, self)

    def finish(self, outcome: RunResult | Exception) -> None:
        if isinstance(outcome, RunResult):
            self.write(EndLine(outcome.text, outcome.turns, tuple(run.call for run in outcome.tool_calls)))
        elif self._path is not None:  # otherwise the run failed before it did anything
            self.write(EndLine(error=RecordedError.of(outcome)))

    def write(self, line: Line) -> None:
        """Append a line. It is in the file when this returns."""
        if self._error is not None:  # one that was raised in a tool call has reached the model, not the caller
            raise self._error
        try:
            if self._path is None:
                self._path = _create(self._directory, self._encode(self._run))
            _append(self._path, self._encode(line))
        except OSError as error:
            path = str(self._path or self._directory)
            self._error = ConfigError(f"cannot write the recording {path!r}: {error.strerror or error}")
            raise self._error from error
        except MidspanError as error:
            self._error = error
            raise

    def _encode(self, line: Line) -> bytes:
        return self._masker.mask(encode_line(line)) + b"\n"


def _create(directory: Path, data: bytes) -> Path:
    """Create a recording that starts with `data`, under the next free number."""
    numbers = [path.stem.removeprefix("run-") for path in recordings_in(directory)]
    number = max((int(number) for number in numbers if number.isdecimal()), default=0)
    while True:
        number += 1
        with suppress(FileExistsError):  # another run was faster
            path = directory / f"run-{number:05}.jsonl"
            _append(path, data, os.O_CREAT | os.O_EXCL)
            return path


def _append(path: Path, data: bytes, flags: int = 0) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | flags, 0o600)
    with os.fdopen(descriptor, "ab") as file:
        file.write(data)


class RecordedProvider(WrapperProvider):
    """A provider whose requests and responses are recorded."""

    def __init__(self, provider: Provider, writer: RecordingWriter) -> None:
        super().__init__(provider)
        self._writer = writer

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        has_response = False
        with self._recorded(request, stream=True):
            async with aclosing(ensure_aclose(self.wrapped.stream(request))) as events:
                async for event in events:
                    has_response = has_response or isinstance(event, ModelResponse)
                    if isinstance(event, ModelResponse | PartEvent):  # runs ignore anything else
                        self._writer.write(
                            ResponseLine(event) if isinstance(event, ModelResponse) else EventLine(event)
                        )
                    yield event
        if not has_response:
            self._writer.write(NoResponseLine())

    async def generate(self, request: ModelRequest) -> ModelResponse:
        with self._recorded(request, stream=False):
            response = await self.wrapped.generate(request)
        self._writer.write(ResponseLine(response))
        return response

    @contextmanager
    def _recorded(self, request: ModelRequest, *, stream: bool) -> Iterator[None]:
        """Record a request, and its error if there is one."""
        self._writer.write(request_line(self.wrapped, request, stream=stream))
        try:
            yield
        except Exception as error:
            self._writer.write(ErrorLine(RecordedError.of(error)))
            raise


def request_line(provider: Provider, request: ModelRequest, *, stream: bool) -> RequestLine:
    """The request as recordings store and compare it."""
    if isinstance(provider, WireProvider):
        wire = provider.wire_request(request, stream=stream)
        return RequestLine(provider.model, stream, Raw(wire.body), wire.path)
    values = {"config": request.config, "messages": encode_messages(request.history.messages)}
    return RequestLine(provider.model, stream, Raw(encode(values)))


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


class Session(Protocol):
    """Wraps the model and the tools of one run, and gets its outcome."""

    def wrap_provider(self, provider: Provider) -> Provider: ...

    def wrap_tools(self, source: ToolSource) -> ToolSource: ...

    def finish(self, outcome: RunResult | Exception) -> None: ...


class ObservedAgent(Agent):
    """An agent that wraps the model and the tools of each run."""

    def __init__(self, agent: Agent, start: Callable[[RunLine], Session]) -> None:
        self._agent = agent
        self._start = start

    @property
    def model(self) -> Provider:
        return self._agent.model

    @property
    def tools(self) -> Sequence[Any]:
        return self._agent.tools

    def replace(self, *, limits: Limits | None = None, **options: Any) -> Agent:
        return ObservedAgent(self._agent.replace(limits=limits, **options), self._start)

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
        stream = self._agent.stream(prompt, **options)
        stream.on_end = session.finish
        return stream

    async def close(self) -> None:
        await self._agent.close()

    def _session(self, prompt: Any, options: dict[str, Any]) -> tuple[Session, dict[str, Any]]:
        messages = options.get("messages", ())
        messages = tuple(messages) if isinstance(messages, Iterator) else messages  # an iterator can be read only once
        run_id = options.get("run_id") or f"run_{os.urandom(8).hex()}"
        agent = self._agent.replace(**{name: options[name] for name in ("model", "tools") if name in options})
        overrides = {name: value for name, value in options.items() if value is not None}
        run = RunLine(
            version=FORMAT,
            run_id=run_id,
            model=agent.model.model,
            recorded_at=datetime.now(UTC).isoformat(timespec="seconds"),
            messages=conversation(prompt, messages)[0].messages,
            options={name: _to_json(overrides[name]) for name in RECORDED_OPTIONS if name in overrides},
            unrecorded_options=tuple(name for name in _UNRECORDED_OPTIONS if name in overrides),
        )
        session = self._start(run)
        model = session.wrap_provider(agent.model)
        tool_set = ToolSet(agent.tools)
        tools = [*tool_set.builtins, session.wrap_tools(tool_set.source)]
        return session, {**options, "messages": messages, "run_id": run_id, "model": model, "tools": tools}


def _to_json(option: Any) -> Any:
    try:
        return msgspec.to_builtins(option)
    except TypeError:
        return None  # the agent will refuse it
