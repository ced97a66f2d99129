"""The messages between a host and its workers, and how they are framed.

A frame is four bytes with the length of what follows, and one message in MessagePack. Arguments and results are JSON
documents within it, because MessagePack has no integers beyond 64 bits. The first frame of a host is `Configure`, the
first frame of a worker is `Register`, which carries the version of the protocol.
"""

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from midspan._types.specs import ToolSpec
from midspan.errors import MidspanError

VERSION = 1
MAX_FRAME_BYTES = 64 * 2**20
_HEAD_BYTES = 4


class ProtocolError(MidspanError):
    """The other side sent something that is not a frame of this protocol. The connection is closed."""


class _Message(Struct, frozen=True, gc=False, array_like=True):
    """A message is an array that starts with its tag. Fields that a newer release appends are ignored."""


class RegisteredTool(Struct, frozen=True, gc=False):
    """A tool of a worker."""

    spec: ToolSpec
    timeout: float | None


class Register(_Message, frozen=True, tag="register"):
    """The worker is ready for calls, or `error` says why it has no tools."""

    version: int
    token: str
    pid: int
    tools: tuple[RegisteredTool, ...] = ()
    error: str | None = None


class Result(_Message, frozen=True, tag="result"):
    """A call has ended."""

    call: int
    result: bytes
    """A ToolResult as JSON."""


class Progress(_Message, frozen=True, tag="progress"):
    """How far a call is."""

    call: int
    fraction: float | None
    message: str


class Log(_Message, frozen=True, tag="log"):
    """A line that was logged or printed; call 0 means that no call was running."""

    call: int
    level: int
    text: str
    is_from_context: bool = False
    """Whether the tool logged it by its RunContext."""


class Callback(_Message, frozen=True, tag="callback"):
    """A call asks the host to run a tool or to ask the user."""

    call: int
    number: int
    kind: str
    """`call_tool` or `ask_user`."""
    subject: str
    """The name of the tool, or the question."""
    value: bytes
    """Arguments or a schema, as JSON."""


class Pong(_Message, frozen=True, tag="pong"):
    """The answer to a Ping."""


class Exit(_Message, frozen=True, tag="exit"):
    """All processes of the worker have ended. The supervisor sends it as the last frame; see its `exit_frame`."""

    code: int


class Configure(_Message, frozen=True, tag="configure"):
    """The first frame of the host: the limits of the worker."""

    max_memory_bytes: int | None = None
    max_cpu_seconds: float | None = None


class Call(_Message, frozen=True, tag="call"):
    """Run a tool."""

    call: int
    """Counts the calls of a connection."""
    id: str
    name: str
    arguments: bytes
    run_id: str = ""
    turn: int = 0
    index: int = 0
    depth: int = 0
    seconds: float | None = None
    """The time until the deadline."""
    user: bytes | None = b"null"
    """What the caller passed to the run, as JSON; None if it is not JSON serializable."""


class CallbackResult(_Message, frozen=True, tag="callback_result"):
    """The answer to a Callback: a ToolResult or an answer of the user as JSON, or an error message."""

    number: int
    value: bytes
    error: str | None = None


class Cancel(_Message, frozen=True, tag="cancel"):
    """End the call; the host kills the worker if it does not."""

    call: int


class Ping(_Message, frozen=True, tag="ping"):
    """Asks whether the worker still reacts."""


class Stop(_Message, frozen=True, tag="stop"):
    """The worker has to exit."""


class Refuse(_Message, frozen=True, tag="refuse"):
    """The host does not accept the worker."""

    reason: str


FromWorker = Register | Result | Progress | Log | Callback | Pong | Exit
ToWorker = Configure | Call | CallbackResult | Cancel | Ping | Stop | Refuse

_encoder = msgspec.msgpack.Encoder()
T = TypeVar("T")


def encode(message: FromWorker | ToWorker) -> bytes:
    """Return the frame of a message."""
    body = _encoder.encode(message)
    return len(body).to_bytes(_HEAD_BYTES, "big") + body


class FrameDecoder(Generic[T]):
    """Turns the bytes of one connection into messages of one type."""

    def __init__(self, message_type: Any, max_bytes: int = MAX_FRAME_BYTES) -> None:
        self._decode = msgspec.msgpack.Decoder(message_type).decode
        self.max_bytes = max_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[T]:
        """Yield the messages that are complete. Raises ProtocolError if the bytes are not frames."""
        self._buffer += data
        buffer, start, end = self._buffer, 0, len(self._buffer)
        try:
            while end - start >= _HEAD_BYTES:
                body = start + _HEAD_BYTES
                size = int.from_bytes(buffer[start:body], "big")
                if size > self.max_bytes:
                    raise ProtocolError(f"a frame of {size:,} bytes was announced; the maximum is {self.max_bytes:,}")
                if end - body < size:
                    break
                start = body + size
                yield self._read(bytes(buffer[body:start]))
        finally:
            del buffer[:start]

    def _read(self, body: bytes) -> T:
        try:
            message: T = self._decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ProtocolError(f"a frame is not a message of version {VERSION}: {error}") from error
        return message
