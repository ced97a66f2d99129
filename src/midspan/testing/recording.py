"""`record`: an agent whose runs are written to files."""

import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import aclosing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from midspan._loop.agent import Agent, new_run_id
from midspan._loop.options import Output, ToolSet
from midspan._loop.prompt import Prompt, conversation
from midspan._loop.result import RunResult, RunStream
from midspan._types.context import NO_CONTEXT, RunContext
from midspan._types.exchange import ModelEvent, ModelRequest, ModelResponse, PartEvent
from midspan._types.parts import ToolCall, ToolResult
from midspan._types.specs import ToolSpec
from midspan.errors import ConfigError
from midspan.providers.provider import Provider, WrapperProvider, ensure_aclose
from midspan.testing.format import (
    FORMAT,
    LINE_END,
    CallLine,
    EndLine,
    ExchangeLine,
    Line,
    RecordedError,
    RecordedRequest,
    RunLine,
    ToolsLine,
    as_path,
    encode,
)
from midspan.testing.masking import SecretMasker
from midspan.tools.source import ToolSource
from midspan.tools.wrap import WrapperSource

_RECORDED_OPTIONS = ("system", "settings", "limits", "tool_choice", "calls_only", "prompt_mode")


def record(agent: Agent[Output], directory: str | os.PathLike[str], *, secrets: Iterable[str] = ()) -> Agent[Output]:
    """Return an agent that writes every run to a file in the directory.

    Secrets are masked in the files: credentials of providers, environment variables that hold secrets, everything that
    looks like a key or a token, and the texts in `secrets`.
    """
    path, masker = as_path(directory), SecretMasker(secrets)
    return ObservedAgent(agent, lambda run: RecordingWriter(path, run, masker), RecordedProvider, RecordedTools)


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
        self._error: ConfigError | None = None

    def finish(self, outcome: RunResult | Exception) -> None:
        if isinstance(outcome, RunResult) or self._path is not None:  # otherwise it failed before it did anything
            self.write(EndLine.of(outcome))

    @contextmanager
    def record_errors(self, make_line: Callable[..., Line]) -> Iterator[None]:
        """Write a line with the error that is raised within the block."""
        try:
            yield
        except Exception as error:
            self.write(make_line(error=RecordedError.of(error)))
            raise

    def write(self, line: Line) -> None:
        """Append a line. It is in the file when this returns."""
        if self._error is not None:  # one that was raised in a tool call has reached the model, not the caller
            raise self._error
        try:
            data = self._encode(line)
            if self._path is None:  # encoded after the first line, which has the names of the tools
                self._path = _create(self._directory, self._encode(self._run))
            _append(self._path, data)
        except (OSError, TypeError, ValueError, RecursionError) as error:  # the last three: it is not JSON
            path = str(self._path or self._directory)
            sentence = f"cannot write the recording {path!r}: {getattr(error, 'strerror', None) or error}"
            self._error = ConfigError(sentence)
            raise self._error from error

    def _encode(self, line: Line) -> bytes:
        line = self._masker.mask(line)
        if isinstance(line, ExchangeLine) and line.response is not None:
            documents = tuple(bytes(document).decode() for document in line.response.raw)
            line = replace(line, response=replace(line.response, raw=()), documents=documents)
        return encode(line) + LINE_END


def _create(directory: Path, data: bytes) -> Path:
    """Create a recording that starts with `data`, under the next free number."""
    directory.mkdir(parents=True, exist_ok=True)
    numbers = (path.stem.removeprefix("run-") for path in directory.iterdir())
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
    """A provider whose requests are recorded when their responses are complete."""

    def __init__(self, provider: Provider, writer: RecordingWriter) -> None:
        super().__init__(provider)
        self._writer = writer

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        is_complete = False
        received: list[PartEvent] = []
        make_line = self._make_line(request, received)
        with self._writer.record_errors(make_line):
            async with aclosing(ensure_aclose(self.wrapped.stream(request))) as events:
                async for event in events:
                    if isinstance(event, ModelResponse):
                        is_complete = True
                        self._writer.write(make_line(response=event))
                    elif isinstance(event, PartEvent):  # runs ignore anything else
                        received.append(event)
                    yield event
        if not is_complete:
            self._writer.write(make_line())

    async def generate(self, request: ModelRequest) -> ModelResponse:
        make_line = self._make_line(request, [])
        with self._writer.record_errors(make_line):
            response = await self.wrapped.generate(request)
        self._writer.write(make_line(response=response))
        return response

    def _make_line(self, request: ModelRequest, events: list[PartEvent]) -> Callable[..., ExchangeLine]:
        recorded = RecordedRequest(request.config, request.history.messages)
        return lambda **outcome: ExchangeLine(self.model, recorded, tuple(events), **outcome)


class RecordedTools(WrapperSource):
    """Tools whose calls are recorded when they end."""

    def __init__(self, source: ToolSource, writer: RecordingWriter) -> None:
        super().__init__(source)
        self._writer = writer

    def adapt(self, tools: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
        self._writer.write(ToolsLine(tools))
        return tools

    async def call(self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
        make_line = partial(CallLine, call)
        with self._writer.record_errors(make_line):
            result = await self.source.call(call, context)
        self._writer.write(make_line(result))
        return result


class ObservedAgent(Agent):
    """An agent that wraps the model and the tools of each run.

    `start` returns an object for a run; its method `finish` gets the result or the error.
    """

    def __init__(
        self,
        agent: Agent,
        start: Callable[[RunLine], Any],
        wrap_provider: Callable[[Provider, Any], Provider],
        wrap_tools: Callable[[ToolSource, Any], ToolSource],
    ) -> None:
        if not isinstance(agent, Agent):
            raise ConfigError(f"expected an agent, got {agent!r}")
        if isinstance(agent, ObservedAgent):
            raise ConfigError("this agent is already recorded or replayed; pass the original agent")
        vars(self).update(vars(agent))  # it has the options of the agent, and so has what `replace` returns
        self._start = start
        self._wrap_provider = wrap_provider
        self._wrap_tools = wrap_tools

    async def run(self, prompt: Prompt | None = None, **options: Any) -> RunResult:
        session, options = self._session(prompt, options)
        try:
            result = await super().run(prompt, **options)
        except Exception as error:
            session.finish(error)
            raise
        session.finish(result)
        return result

    def stream(self, prompt: Prompt | None = None, **options: Any) -> RunStream:
        session, options = self._session(prompt, options)
        stream = super().stream(prompt, **options)
        stream.on_end = session.finish
        return stream

    def _session(self, prompt: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        run_id = options.get("run_id") or new_run_id()
        agent = self.replace(**{name: options[name] for name in ("model", "tools") if name in options})
        recorded = {name: options[name] for name in _RECORDED_OPTIONS if options.get(name) is not None}
        messages = conversation(prompt, options.get("messages"))[0].messages
        # The agent will reject what JSON cannot express.
        session = self._start(RunLine(FORMAT, run_id, messages, msgspec.to_builtins(recorded, enc_hook=repr)))
        tool_set = ToolSet(agent.tools)
        tools = [*tool_set.builtins, self._wrap_tools(tool_set.source, session)]
        model = self._wrap_provider(agent.provider, session)
        return session, {**options, "run_id": run_id, "model": model, "tools": tools}
