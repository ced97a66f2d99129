"""`record`: an agent whose runs are written to files."""

import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import aclosing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from midspan._loop.agent import Agent, new_run_id
from midspan._loop.options import AgentTools, OutputT
from midspan._loop.prompt import Prompt, check_messages, conversation
from midspan._loop.result import RunResult
from midspan._loop.run_stream import RunStream
from midspan._types.context import NO_CONTEXT, RunContext
from midspan._types.exchange import ModelEvent, ModelRequest, ModelResponse, PartEvent
from midspan._types.messages import History
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
    encode,
)
from midspan.testing.masking import SecretMasker
from midspan.tools.source import ToolListing
from midspan.tools.wrap import ToolsLike, WrapperSource

_RECORDED_OPTIONS = ("system", "settings", "limits", "tool_choice", "calls_only", "prompt_mode")


def record(agent: Agent[OutputT], directory: str | os.PathLike[str], *, secrets: Iterable[str] = ()) -> Agent[OutputT]:
    """Return an agent that writes every run to a file in the directory.

    Secrets are masked in the files: credentials of providers, environment variables that hold secrets, everything that
    looks like a key or a token, and the texts in `secrets`.
    """
    path, masker = Path(directory), SecretMasker(secrets)
    return ObservedAgent(agent, partial(Recorder, path, masker))


class RunObserver(WrapperProvider, WrapperSource, ABC):
    """The model and the tools of one run: a `Recorder` passes requests and calls on, a `Replayer` answers them."""

    def __init__(self, provider: Provider, tools: ToolsLike) -> None:
        WrapperProvider.__init__(self, provider)
        WrapperSource.__init__(self, tools)

    @abstractmethod
    def finish(self, outcome: RunResult | Exception) -> None:
        """Called when the run has ended."""


class Recorder(RunObserver):
    """Records one run. The file is created with the first line and closed after each line.

    A thousand concurrent runs have a thousand files, more than a process may keep open. Any number of threads and
    processes can write to one directory.
    """

    def __init__(
        self, directory: Path, masker: SecretMasker, run: RunLine, provider: Provider, tools: ToolsLike
    ) -> None:
        super().__init__(provider, tools)
        self._directory = directory
        self._masker = masker
        self._run = run
        self._path: Path | None = None
        self._tools: tuple[ToolSpec, ...] | None = None
        self._error: ConfigError | None = None

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Record a request when its response is complete."""
        is_complete = False
        received: list[PartEvent] = []
        with self._record_errors(make_line := self._exchange(request, received)):
            async with aclosing(ensure_aclose(self.wrapped.stream(request))) as events:
                async for event in events:
                    if isinstance(event, ModelResponse):
                        is_complete = True
                        self._write(make_line(response=event))
                    elif isinstance(event, PartEvent):  # runs ignore anything else
                        received.append(event)
                    yield event
        if not is_complete:
            self._write(make_line())

    async def generate(self, request: ModelRequest) -> ModelResponse:
        with self._record_errors(make_line := self._exchange(request, [])):
            response = await self.wrapped.generate(request)
        self._write(make_line(response=response))
        return response

    async def list_tools(self) -> ToolListing:
        listing = await self.source.list_tools()
        if listing.tools != self._tools:
            self._tools = listing.tools
            self._write(ToolsLine(listing.tools))
        return listing

    async def call(self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
        with self._record_errors(make_line := partial(CallLine, call)):
            result = await self.source.call(call, context)
        self._write(make_line(result))
        return result

    def finish(self, outcome: RunResult | Exception) -> None:
        if isinstance(outcome, RunResult) or self._path is not None:  # otherwise it failed before it did anything
            self._write(EndLine.of(outcome))

    def _exchange(self, request: ModelRequest, events: list[PartEvent]) -> Callable[..., ExchangeLine]:
        recorded = RecordedRequest(request.config, request.history.messages)
        return lambda **outcome: ExchangeLine(self.model, recorded, tuple(events), **outcome)

    @contextmanager
    def _record_errors(self, make_line: Callable[..., Line]) -> Iterator[None]:
        """Write a line with the error that is raised within the block."""
        try:
            yield
        except Exception as error:
            self._write(make_line(error=RecordedError.of(error)))
            raise

    def _write(self, line: Line) -> None:
        """Append a line. It is in the file when this returns."""
        if self._error is not None:  # one that was raised in a tool call has reached the model, not the caller
            raise self._error
        try:
            data = self._encode(line)
            if self._path is None:  # encoded after `line`, from which the masker learns the names of tools
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


class ObservedAgent(Agent):
    """An agent whose requests and calls go through an observer of each run."""

    def __init__(self, agent: Agent, make_observer: Callable[[RunLine, Provider, ToolsLike], RunObserver]) -> None:
        if isinstance(agent, ObservedAgent):
            raise ConfigError("this agent is already recorded or replayed; pass the original agent")
        vars(self).update(vars(agent))  # it has the options of the agent, and so has what `replace` returns
        self._make_observer = make_observer

    async def run(self, prompt: Prompt | None = None, **options: Any) -> RunResult:
        observer, options = self._observe(prompt, options)
        try:
            result = await super().run(prompt, **options)
        except Exception as error:
            observer.finish(error)
            raise
        observer.finish(result)
        return result

    def stream(self, prompt: Prompt | None = None, **options: Any) -> RunStream:
        observer, options = self._observe(prompt, options)
        stream = super().stream(prompt, **options)
        stream.on_end = observer.finish
        return stream

    def _observe(self, prompt: Any, options: dict[str, Any]) -> tuple[RunObserver, dict[str, Any]]:
        run_id = options.get("run_id") or new_run_id()
        agent = self.replace(**{name: options[name] for name in ("model", "tools") if name in options})
        recorded = {name: options[name] for name in _RECORDED_OPTIONS if options.get(name) is not None}
        if not isinstance(options.get("messages"), History | None):  # a generator can be read only once
            options["messages"] = check_messages(options["messages"])
        messages = conversation(prompt, options.get("messages"))[0].messages
        # The agent will reject what JSON cannot express.
        line = RunLine(FORMAT, run_id, messages, msgspec.to_builtins(recorded, enc_hook=repr))
        tool_set = AgentTools(agent.tools)
        observer = self._make_observer(line, agent.provider, tool_set.source)
        return observer, {**options, "run_id": run_id, "model": observer, "tools": [*tool_set.builtins, observer]}
