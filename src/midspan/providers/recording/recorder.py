"""Writes recordings: a directory with one file per run, and a provider whose exchanges are recorded."""

import os
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

from msgspec import Raw

from midspan._types.exchange import ModelEvent, ModelRequest, ModelResponse, PartEvent
from midspan.errors import ConfigError, MidspanError
from midspan.providers.provider import Provider, WireProvider, WrapperProvider, ensure_aclose
from midspan.providers.recording.format import (
    ErrorLine,
    EventLine,
    Line,
    NoResponseLine,
    RecordedError,
    RequestLine,
    ResponseLine,
    RunLine,
    encode,
    encode_line,
    encode_messages,
)
from midspan.providers.recording.masking import SecretMasker


def recordings_in(directory: Path) -> list[Path]:
    """The recordings of a directory in the order of their start."""
    return sorted(directory.glob("run-*.jsonl"), key=lambda path: (len(path.name), path.name))


def prepare_directory(path: Path) -> None:
    """Create the directory, and check that recordings can be written there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(0, "it is not writable")
    except (OSError, ValueError) as error:  # ValueError: no directory can have this name
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot record into {str(path)!r}: {reason}") from error


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

    @property
    def has_started(self) -> bool:
        return self._path is not None

    def check(self) -> None:
        """Raise an earlier error again. An error that is raised in a tool call reaches the model, not the caller."""
        if self._error is not None:
            raise self._error

    def write(self, line: Line) -> None:
        """Append a line. It is in the file when this returns."""
        self.check()
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
        self._writer.write(request_line(self.wrapped, request, stream=True))
        has_response = False
        try:
            async with aclosing(ensure_aclose(self.wrapped.stream(request))) as events:
                async for event in events:
                    has_response = has_response or isinstance(event, ModelResponse)
                    self._write(event)
                    yield event
        except Exception as error:
            self._writer.write(ErrorLine(RecordedError.of(error)))
            raise
        if not has_response:
            self._writer.write(NoResponseLine())

    async def generate(self, request: ModelRequest) -> ModelResponse:
        self._writer.write(request_line(self.wrapped, request, stream=False))
        try:
            response = await self.wrapped.generate(request)
        except Exception as error:
            self._writer.write(ErrorLine(RecordedError.of(error)))
            raise
        self._write(response)
        return response

    def _write(self, event: Any) -> None:
        if isinstance(event, ModelResponse):
            self._writer.write(ResponseLine(event))
        elif isinstance(event, PartEvent):  # runs ignore anything else
            self._writer.write(EventLine(event))


def request_line(provider: Provider, request: ModelRequest, *, stream: bool) -> RequestLine:
    """The request as recordings store and compare it."""
    if isinstance(provider, WireProvider):
        wire = provider.wire_request(request, stream=stream)
        return RequestLine(provider.model, stream, Raw(wire.body), wire.path)
    values = {"config": request.config, "messages": encode_messages(request.history.messages)}
    return RequestLine(provider.model, stream, Raw(encode(values)))
