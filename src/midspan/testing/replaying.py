"""`replay`: an agent whose runs are answered from recordings."""

import asyncio
import logging
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import zip_longest
from os import PathLike
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from midspan._loop.agent import Agent
from midspan._loop.result import RunResult
from midspan._schema.paths import MAX_QUOTED_CHARS, Steps, format_path, quoted
from midspan._types.context import NO_CONTEXT, RunContext
from midspan._types.exchange import ModelEvent, ModelRequest, ModelResponse
from midspan._types.messages import History, Message
from midspan._types.parts import Text, ToolCall, ToolResult, is_local_id
from midspan._types.specs import Limits, ToolSpec
from midspan.errors import ConfigError, NotRecorded
from midspan.providers.provider import Provider, WrapperProvider
from midspan.providers.stream import collect, events_of
from midspan.testing.format import (
    CallLine,
    ErrorLine,
    EventLine,
    Exchange,
    Recording,
    RequestLine,
    ResponseLine,
    encode_messages,
    read_recording,
    recordings_in,
)
from midspan.testing.masking import MASK, SecretMasker
from midspan.testing.recording import RECORDED_OPTIONS, ObservedAgent, request_line
from midspan.tools.source import ToolListing, ToolSource
from midspan.tools.wrap import WrapperSource

_log = logging.getLogger("midspan.testing")


def replay(agent: Agent, directory: str | PathLike[str], *, secrets: Iterable[str] = ()) -> Agent:
    """Return an agent that is answered from the recordings in the directory, or from a single recording.

    No model is asked and no tool is run. Each recording is replayed once, by the run that asks the same.
    """
    library = RecordingLibrary(Path(directory), SecretMasker(secrets))
    return ObservedAgent(agent, lambda run: Replayer(library, run.messages))


def asked(recording: str | PathLike[str]) -> dict[str, Any]:
    """Return what the run of a recording was asked, as arguments of `run`: `agent.run_sync(**asked(path))`."""
    run = read_recording(Path(recording)).run
    options = {name: run.options[name] for name in RECORDED_OPTIONS if name in run.options}
    if "limits" in options:
        options["limits"] = msgspec.convert(options["limits"], Limits)
    match run.messages:
        case (Message(role="user", parts=(Text(text, None),)),):
            return {"prompt": text, **options}
    return {"messages": History(run.messages), **options}


class RecordingLibrary:
    """The recordings of a directory, or a single one. Each is given to one run, which asks the same."""

    def __init__(self, path: Path, masker: SecretMasker) -> None:
        self._path = path
        self.masker = masker
        self._lock = threading.Lock()
        self.recordings = [read_recording(file) for file in _recordings_at(path)]
        self._prompts = {recording: self._prompt(recording.run.messages) for recording in self.recordings}
        self._unused = dict.fromkeys(self.recordings)

    def take(self, messages: tuple[Message, ...], request: "RequestMaker | None") -> Recording:
        """Return the recording of the run that begins with these messages and this request, if it begins with one."""
        prompt = self._prompt(messages)
        with self._lock:
            if not self._unused:
                count = len(self.recordings)
                recordings = "the recording" if count == 1 else f"all {count} recordings"
                raise NotRecorded(f"{recordings} in {str(self._path)!r} have been replayed; this run was not recorded")
            candidates = sorted(self._unused, key=lambda recording: self._prompts[recording] != prompt)
            for recording in candidates:
                if self._difference(recording, prompt, request) is None:
                    del self._unused[recording]
                    return recording
        raise NotRecorded(str(self._difference(candidates[0], prompt, request)))

    def tools(self, messages: tuple[Message, ...]) -> tuple[ToolSpec, ...]:
        """The tools of a run that begins with these messages."""
        prompt = self._prompt(messages)
        return min(self.recordings, key=lambda recording: self._prompts[recording] != prompt).tools

    def request_difference(self, recording: Recording, turn: int, make_request: "RequestMaker") -> str | None:
        """What is different in a request, compared with the recorded one."""
        recorded = recording.exchanges[turn].request
        request = make_request(recorded.stream)
        difference = diff({"model": recorded.model}, {"model": request.model}) or diff(
            comparable(recorded.request, self.masker), comparable(request.request, self.masker)
        )
        return difference and f"request {turn + 1} differs from the recording {str(recording.path)!r} at {difference}"

    def _prompt(self, messages: tuple[Message, ...]) -> Any:
        return comparable(encode_messages(messages), self.masker)

    def _difference(self, recording: Recording, prompt: Any, request: "RequestMaker | None") -> str | None:
        if request is not None and recording.exchanges:
            return self.request_difference(recording, 0, request)
        difference = diff(self._prompts[recording], prompt, ("messages",))
        return difference and f"the run differs from the recording {str(recording.path)!r} at {difference}"


RequestMaker = Callable[[bool], RequestLine]
"""Returns a request as it is sent blocking, or streamed. It is compared as it was recorded: they may differ."""


def comparable(document: Any, masker: SecretMasker) -> Any:
    """A JSON document as it is compared: secrets masked, and the random ids of Midspan replaced by their order."""
    numbers: dict[bytes, int] = {}

    def replace_id(match: re.Match[bytes]) -> bytes:
        return b'"local id %d"' % numbers.setdefault(match[0], len(numbers) + 1)

    return msgspec.json.decode(masker.mask(_LOCAL_ID.sub(replace_id, bytes(document))))


_LOCAL_ID = re.compile(rb'"midspan_[0-9a-f]{16}"')


def _recordings_at(path: Path) -> list[Path]:
    try:
        is_directory = path.is_dir()
        files = recordings_in(path) if is_directory else [path] if path.exists() else []
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the recordings in {str(path)!r}: {error}") from error
    if not files:
        problem = f"no runs are recorded in {str(path)!r}" if is_directory else f"there is no recording {str(path)!r}"
        command = f"midspan ask --record {str(path)!r}"
        raise ConfigError(f"{problem}; record runs with record(agent, directory), or with {command}")
    return files


class Replayer:
    """Replays one recording of a library; the first request or call of the run decides which one."""

    def __init__(self, library: RecordingLibrary, messages: tuple[Message, ...]) -> None:
        self._library = library
        self._messages = messages
        self._recording: Recording | None = None
        self._turn = 0
        self._calls: dict[int, CallLine] = {}
        """The recorded calls that have not been made yet, by their position."""
        self._running: dict[int, asyncio.Event] = {}
        """The calls that have been made and have not ended yet."""
        self._error: NotRecorded | None = None

    def wrap_provider(self, provider: Provider) -> Provider:
        return ReplayedProvider(provider, self)

    def wrap_tools(self, source: ToolSource) -> ToolSource:
        return ReplayedTools(source, self)

    def finish(self, _outcome: RunResult | Exception | None = None) -> None:
        """Raise an earlier error again. An error that is raised in a tool call reaches the model, not the caller."""
        if self._error is not None:
            raise self._error

    def exchange(self, request: RequestMaker) -> Exchange:
        """Return the recorded exchange of this request."""
        self.finish()
        recording = self._find(request)
        if self._turn >= len(recording.exchanges):
            cut_off = "" if recording.end is not None else ", where it was cut off"
            raise NotRecorded(
                f"request {self._turn + 1} was not recorded: {str(recording.path)!r} ends after "
                f"{len(recording.exchanges)}{cut_off}"
            )
        difference = self._library.request_difference(recording, self._turn, request)
        if difference is not None:
            raise NotRecorded(difference)
        self._turn += 1
        return recording.exchanges[self._turn - 1]

    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools that were recorded, for a source that cannot be listed."""
        return self._library.tools(self._messages)

    async def call(self, call: ToolCall) -> CallLine:
        """Return the recorded outcome of a call. Concurrent calls end in the order in which they ended then."""
        try:
            position = self._position(call)
        except NotRecorded as error:
            self._error = error
            raise
        line = self._calls.pop(position)
        ended = self._running[position] = asyncio.Event()
        try:
            await asyncio.sleep(0)  # until all concurrent calls have been made
            earlier = max((other for other in self._running if other < position), default=None)
            if earlier is not None:
                await self._running[earlier].wait()
        finally:
            del self._running[position]
            ended.set()
        return line

    def _find(self, request: RequestMaker | None) -> Recording:
        if self._recording is None:
            self._recording = self._library.take(self._messages, request)
            self._calls = dict(enumerate(self._recording.calls))
        return self._recording

    def _position(self, call: ToolCall) -> int:
        recording = self._find(None)
        same_name = [position for position, line in self._calls.items() if line.call.name == call.name]
        same_name.sort(key=lambda position: self._calls[position].call.id != call.id)
        for position in same_name:
            has_id = self._calls[position].call.id == call.id or is_local_id(call.id)
            if has_id and self._difference(position, call) is None:
                return position
        difference = self._difference(same_name[0], call) if same_name else None
        problem = "was not recorded in" if difference is None else "differs from the recording"
        place = "" if difference is None else f" at {difference}"
        raise NotRecorded(f"the call {call.name}({quoted(call.arguments)}) {problem} {str(recording.path)!r}{place}")

    def _difference(self, position: int, call: ToolCall) -> str | None:
        documents = [
            msgspec.json.encode(arguments) for arguments in (self._calls[position].call.arguments, call.arguments)
        ]
        recorded, now = [comparable(document, self._library.masker) for document in documents]
        return diff(recorded, now, ("arguments",))


class ReplayedProvider(WrapperProvider):
    """Answers requests from a recording. The wrapped provider only encodes them, so that they can be compared."""

    def __init__(self, provider: Provider, replayer: Replayer) -> None:
        super().__init__(provider)
        self._replayer = replayer

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        exchange = self._replayer.exchange(lambda stream: request_line(self.wrapped, request, stream=stream))
        for line in exchange.lines:
            match line:
                case EventLine(event=event):
                    yield event
                case ResponseLine(response=response) if exchange.request.stream:
                    yield response
                case ResponseLine(response=response):
                    for response_event in events_of(response):
                        yield response_event
                case ErrorLine(error=error):
                    raise error.to_exception()
        if not exchange.lines or isinstance(exchange.lines[-1], EventLine):
            raise NotRecorded("the rest of this response was not recorded; record the run again")

    async def generate(self, request: ModelRequest) -> ModelResponse:
        return await collect(self.stream(request))


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


def diff(recorded: Any, now: Any, steps: Steps = ()) -> str | None:
    """Describe the first difference of two JSON values, as `contents[0].role: recorded "user", now "model"`.

    A mask in a recorded string stands for any text.
    """
    if isinstance(recorded, dict) and isinstance(now, dict):
        names = dict.fromkeys([*recorded, *now])
        pairs: Any = ((name, recorded.get(name, _NOTHING), now.get(name, _NOTHING)) for name in names)
    elif isinstance(recorded, list) and isinstance(now, list):
        both = zip_longest(recorded, now, fillvalue=_NOTHING)
        pairs = ((index, *values) for index, values in enumerate(both))
    else:
        return None if _is_same(recorded, now) else _describe(recorded, now, steps)
    differences = (diff(before, after, (*steps, step)) for step, before, after in pairs)
    return next((difference for difference in differences if difference is not None), None)


_NOTHING = object()


def _is_same(recorded: Any, now: Any) -> bool:
    if type(recorded) is not type(now):
        return False
    if not isinstance(recorded, str) or MASK not in recorded:
        return bool(recorded == now)
    first, *middle, last = map(re.escape, recorded.split(MASK))
    # Atomic groups: without them, many masks in a long text would take exponential time.
    pattern = "".join([first, *(f"(?>.*?{text})" for text in middle), ".*", last])
    return re.fullmatch(pattern, now, re.DOTALL) is not None


def _describe(recorded: Any, now: Any, steps: Steps) -> str:
    if isinstance(recorded, str) and isinstance(now, str):
        recorded, now = _around_difference(recorded, now)
    values = ["nothing" if value is _NOTHING else quoted(value) for value in (recorded, now)]
    return f"{format_path(steps) or 'the whole'}: recorded {values[0]}, now {values[1]}"


def _around_difference(recorded: str, now: str) -> tuple[str, str]:
    """Long texts, from shortly before the position where they differ."""
    pairs = enumerate(zip_longest(recorded, now))
    position = next(index for index, (before, after) in pairs if before != after)
    start = max(0, position - MAX_QUOTED_CHARS // 4)
    if start == 0 or max(len(recorded), len(now)) < MAX_QUOTED_CHARS:
        return recorded, now
    return f"…{recorded[start:]}", f"…{now[start:]}"
