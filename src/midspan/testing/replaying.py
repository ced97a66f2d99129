"""`replay`: an agent whose runs are answered from recordings; `freeze`: a test that replays them."""

import re
import threading
from collections.abc import AsyncIterator
from itertools import zip_longest
from keyword import iskeyword
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from midspan._loop.agent import Agent
from midspan._loop.options import OutputT
from midspan._loop.result import RunResult
from midspan._schema.problems import MAX_QUOTED_CHARS, Steps, format_path, quoted
from midspan._types.context import NO_CONTEXT, RunContext
from midspan._types.exchange import ModelEvent, ModelRequest, ModelResponse
from midspan._types.messages import History, Message
from midspan._types.parts import ToolCall, ToolResult
from midspan.errors import ConfigError, NotRecordedError
from midspan.providers.provider import Provider
from midspan.providers.stream import collect, parts_as_events
from midspan.testing.format import EndLine, RecordedRequest, Recording, encode, read_recordings
from midspan.testing.masking import MASK
from midspan.testing.recording import ObservedAgent, RunObserver
from midspan.tools.source import ToolListing
from midspan.tools.wrap import ToolsLike, list_source


def replay(agent: Agent[OutputT], directory: str | PathLike[str]) -> Agent[OutputT]:
    """Return an agent that is answered from the recordings in the directory, or from a single recording.

    No model is asked and no tool is run. Each recording is replayed once, by a run with the same messages.
    """
    library = RecordingLibrary(directory)
    return ObservedAgent(agent, lambda run, *answered: Replayer(library.take(run.messages), *answered))


def assert_replays(agent: Agent[Any], directory: str | PathLike[str]) -> None:
    """Replay every recording in the directory, or a single one, with the messages and options of its run.

    Raises an error if a request, a call or the outcome differs from the recording.
    """
    for recording in read_recordings(directory):
        run = recording.run
        outcome: RunResult | Exception
        try:
            outcome = replay(agent, recording.path).run_sync(messages=History(run.messages), **run.options)
        except NotRecordedError:
            raise
        except Exception as error:  # noqa: BLE001 - it is compared with the recorded one
            outcome = error
        difference = diff(comparable(recording.end), comparable(EndLine.of(outcome)))
        if difference is not None:
            raise NotRecordedError(f"the outcome differs from the recording {str(recording.path)!r} at {difference}")


def freeze(directory: str | PathLike[str], agent: str | None = None) -> str:
    """Return the source of a pytest test that replays every run of the directory.

    `agent` names the agent as `my_module:agent`; without it, the test uses a fixture called `agent`.
    """
    for recording in read_recordings(directory):
        if recording.end is None:
            raise ConfigError(f"the recording {str(recording.path)!r} was cut off; delete it, or record the run again")
    module, _, variable = str("midspan:Agent" if agent is None else agent).partition(":")
    if not all(name.isidentifier() and not iskeyword(name) for name in (*module.split("."), variable)):
        raise ConfigError(f"agent must name a module and a variable, as 'my_module:agent', got {agent!r}")
    alias = "" if agent is None or variable == "agent" else " as agent"
    fixture = "agent: Agent" if agent is None else ""
    # repr, so that no name of a file becomes code
    return _TEST.format(f"from {module} import {variable}{alias}", repr(str(Path(directory))), fixture)


_TEST = '''\
"""Replays recorded runs and compares their requests, calls and outcomes."""

from pathlib import Path

from midspan.testing import assert_replays

# fmt: off
{}

RECORDINGS = Path({})
# fmt: on


def test_recorded_runs_are_the_same({}) -> None:
    assert_replays(agent, RECORDINGS)
'''


class RecordingLibrary:
    """The recordings of a directory, or a single one. Each is given to one run, which has the same messages."""

    def __init__(self, directory: str | PathLike[str]) -> None:
        self._directory = str(directory)
        self._lock = threading.Lock()
        self._unused = [(item, comparable(item.run.messages)) for item in read_recordings(directory)]

    def take(self, messages: tuple[Message, ...]) -> Recording:
        """Return the first recording of a run that begins with these messages."""
        now = comparable(messages)
        with self._lock:
            if not self._unused:
                raise NotRecordedError(f"all recordings in {self._directory!r} have been replayed, but not this run")
            for recording, prompt in self._unused:
                if diff(prompt, now) is None:
                    self._unused.remove((recording, prompt))
                    return recording
            recording, prompt = self._unused[0]
        difference = diff(prompt, now, ("messages",))
        raise NotRecordedError(f"the run differs from the recording {str(recording.path)!r} at {difference}")


def comparable(value: Any) -> Any:
    """Return a value as JSON that can be compared: the random ids of Midspan are replaced by their order."""
    numbers: dict[bytes, int] = {}

    def replace_id(match: re.Match[bytes]) -> bytes:
        return b'"local id %d"' % numbers.setdefault(match[0], len(numbers) + 1)

    return msgspec.json.decode(_LOCAL_ID.sub(replace_id, encode(value)))


_LOCAL_ID = re.compile(rb'"midspan_[0-9a-f]{16}"')


class Replayer(RunObserver):
    """Answers the requests and calls of one run from a recording."""

    def __init__(self, recording: Recording, provider: Provider, tools: ToolsLike) -> None:
        super().__init__(provider, tools)
        self._recording = recording
        self._path = str(recording.path)
        self._turn = 0
        self._calls = [*recording.calls]
        """The recorded calls that have not been made yet."""
        self._error: NotRecordedError | None = None

    def finish(self, _outcome: RunResult | Exception | None = None) -> None:
        """Raise an earlier error again. An error that is raised in a tool call reaches the model, not the caller."""
        if self._error is not None:
            raise self._error

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Answer with the next recorded exchange, which must have this request."""
        self.finish()
        exchanges = self._recording.exchanges
        self._turn += 1
        if self._turn > len(exchanges):
            raise NotRecordedError(f"request {self._turn} was not recorded: {self._path!r} ends after {len(exchanges)}")
        exchange, now = exchanges[self._turn - 1], RecordedRequest(request.config, request.history.messages)
        difference = diff(exchange.model, self.model, ("model",)) or diff(comparable(exchange.request), comparable(now))
        if difference is not None:
            raise NotRecordedError(f"request {self._turn} differs from the recording {self._path!r} at {difference}")
        response = exchange.response
        for event in exchange.events or parts_as_events(response.message.parts if response else ()):
            yield event
        if exchange.error is not None:
            raise exchange.error.to_exception()
        if response is not None:
            yield replace(response, raw=tuple(msgspec.Raw(document.encode()) for document in exchange.documents))

    async def generate(self, request: ModelRequest) -> ModelResponse:
        return await collect(self.stream(request))

    async def list_tools(self) -> ToolListing:
        """Return the tools of the source; if it cannot be reached, those of the recording."""
        try:
            listing = await list_source(self.source)
        except ConfigError:  # such as a missing package or missing tokens of an MCP server
            return ToolListing(self._recording.tools)
        return ToolListing(self._recording.tools) if listing.unavailable else listing

    async def call(self, call: ToolCall, _context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
        """Return the recorded result of a call, or raise its error."""
        lines = [line for line in self._calls if line.call.name == call.name]
        lines.sort(key=lambda line: line.call.id != call.id)
        now = comparable(call.arguments)
        differences = [diff(comparable(line.call.arguments), now, ("arguments",)) for line in lines]
        if None not in differences:
            place = f"; another one differs at {differences[0]}" if differences else ""
            called = f"{call.name}({quoted(call.arguments)})"
            self._error = NotRecordedError(f"the call {called} was not recorded in {self._path!r}{place}")
            raise self._error
        line = lines[differences.index(None)]
        self._calls.remove(line)
        if line.result is None:
            assert line.error is not None, "a call ends with a result or an error"
            raise line.error.to_exception()
        return replace(line.result, id=call.id)


def diff(recorded: Any, now: Any, steps: Steps = ()) -> str | None:
    """Describe the first difference of two JSON values, as `contents[0].role: recorded "user", now "model"`.

    A mask in a recorded string matches any text.
    """
    if recorded == MASK:
        return None
    if isinstance(recorded, dict) and isinstance(now, dict):
        if any(MASK in name for name in recorded):
            return diff([*map(list, recorded.items())], [*map(list, now.items())], steps)
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
    if isinstance(recorded, str) and isinstance(now, str) and max(len(recorded), len(now)) > MAX_QUOTED_CHARS:
        position = next(index for index, (before, after) in enumerate(zip_longest(recorded, now)) if before != after)
        start = max(0, position - MAX_QUOTED_CHARS // 4)
        recorded, now = (f"…{text[start:]}" if start else text for text in (recorded, now))
    values = ["nothing" if value is _NOTHING else quoted(value) for value in (recorded, now)]
    return f"{format_path(steps) or 'the whole'}: recorded {values[0]}, now {values[1]}"
