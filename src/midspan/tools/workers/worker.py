"""The worker process: registers the tools of a file with a host and runs their calls, one at a time.

It imports neither providers nor the loop. The host enforces deadlines: it kills the process.
"""

import asyncio
import logging
import os
import select
import socket
import struct
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from math import ceil
from queue import SimpleQueue
from time import process_time
from typing import Any, NoReturn

import msgspec

from midspan._types.context import RunContext
from midspan._types.parts import ToolCall, ToolResult
from midspan._types.texts import NOT_JSON, truncate
from midspan.errors import MidspanError, ToolError
from midspan.tools.execution import execute, execute_here
from midspan.tools.function import Tool
from midspan.tools.source import describe_error, unknown_tool_result
from midspan.tools.workers import protocol
from midspan.tools.workers.context import WorkerContext
from midspan.tools.workers.protocol import FromWorker, ProtocolError, ToWorker
from midspan.tools.workers.setup import WorkerSetup, load_tools, without_timeout

REFUSED = 3
"""The exit code of a worker that a host does not accept."""
_READ_BYTES = 65_536
_WATCH_SECONDS = 0.02
"""After one or two of these, the event loop reads what comes during a call: Cancel, Ping, the results of callbacks."""
_IDLE_TIME = struct.pack("ll", 0, 500_000)
"""A timeval: how long the main thread waits for the next call before it lets the event loop wait."""
_MAX_RESULT_BYTES = protocol.MAX_FRAME_BYTES - 1_024
_encode_json = msgspec.json.Encoder().encode
_decode_json = msgspec.json.Decoder().decode
_decode_result = msgspec.json.Decoder(ToolResult).decode


def run_worker(connection: socket.socket, output: int, setup: WorkerSetup | Mapping[str, Any]) -> None:
    """Serve one host until it says Stop. `output` is the read end of the pipe that is stdout and stderr."""
    if not isinstance(setup, WorkerSetup):
        setup = msgspec.convert(setup, WorkerSetup)
    decoder = protocol.FrameDecoder[ToWorker](ToWorker)
    limits = _receive_limits(connection, decoder)
    if limits.max_memory_bytes is not None:
        _limit("RLIMIT_AS", limits.max_memory_bytes, is_hard=True)
    tools: dict[str, Tool[..., Any]] = {}
    error = None
    try:
        tools = load_tools(setup)
    except (MidspanError, MemoryError) as problem:
        error = _sendable(describe_error(problem) if isinstance(problem, MemoryError) else str(problem))
    registered = tuple(protocol.RegisteredTool(tool.spec, tool.timeout) for tool in tools.values())
    register = protocol.Register(protocol.VERSION, setup.token, os.getpid(), registered, error)
    worker = _Worker(connection, decoder, output, tools, limits.max_cpu_seconds)
    threading.Thread(target=worker.serve, args=(register,), name="midspan-worker", daemon=True).start()
    worker.run_plain_calls()


def _receive_limits(connection: socket.socket, decoder: protocol.FrameDecoder[ToWorker]) -> protocol.Configure:
    """Wait for the first frame of the host, which sends no other one before a worker has registered."""
    try:
        while data := connection.recv(_READ_BYTES):
            for message in decoder.feed(data):
                if isinstance(message, protocol.Configure):
                    return message
                raise ProtocolError("the first message of the host must be Configure")
    except (OSError, ProtocolError) as error:
        _exit_with(error)
    os._exit(1)


def _limit(name: str, amount: int, *, is_hard: bool = False) -> None:
    """Limit a resource of this process and of those that it starts. A hard limit cannot be raised again."""
    import resource  # does not exist on Windows

    kind = getattr(resource, name)
    hard = resource.getrlimit(kind)[1]
    if hard != resource.RLIM_INFINITY:
        amount = min(amount, hard)
    resource.setrlimit(kind, (amount, amount if is_hard else hard))


class _Worker:
    """One connection to a host, and the call that runs. It is what the contexts of calls talk to; see `RunHost`.

    An event loop in a thread of its own runs async functions, and sync functions run in the main thread. Any thread
    sends. One of the two threads reads: the main thread while short calls of sync functions follow one another, so
    that no call has to wake another thread; the event loop at all other times.
    """

    loop: asyncio.AbstractEventLoop
    thread: int

    def __init__(
        self,
        connection: socket.socket,
        decoder: protocol.FrameDecoder[ToWorker],
        output: int,
        tools: dict[str, Tool[..., Any]],
        max_cpu_seconds: float | None,
    ) -> None:
        self._connection = connection
        self._output = output
        self._tools = {name: without_timeout(tool) for name, tool in tools.items()}
        self._max_cpu_seconds = max_cpu_seconds
        self._decoder = decoder
        self._plain_calls: SimpleQueue[_PlainCall | None] = SimpleQueue()
        """None means that the process has to exit."""
        self._main_reads = False
        """Whether the main thread reads the connection. A thread that takes this role from the other holds the lock."""
        self._reader_lock = threading.Lock()
        self._watch_timer: asyncio.TimerHandle | None = None
        self._send_lock = threading.Lock()
        self._output_lock = threading.Lock()
        """Held while output is read and sent; and before an exit, to leave the last output to the supervisor."""
        self._unfinished_line = b""
        self._call = 0
        """The number of the call that runs; 0 if none does."""
        self._context: RunContext[Any] | None = None
        self._task: asyncio.Task[None] | None = None
        """Of an async function."""
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[bytes]] = {}

    def serve(self, register: protocol.Register) -> None:
        """Serve the connection in the current thread."""
        try:
            asyncio.run(self._serve(register))
        finally:
            os._exit(1)  # this thread never ends while the process lives

    async def _serve(self, register: protocol.Register) -> None:
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        os.set_blocking(self._output, False)
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _IDLE_TIME)
        self.send(register)  # the host accepts no other message before
        logging.getLogger().addHandler(_LogHandler(self))
        self.flush_output()
        threading.Thread(target=self._watch_output, name="midspan-output", daemon=True).start()
        self._read_in_loop(self._decode(b""))  # what came with the first frame
        await asyncio.Event().wait()

    def run_plain_calls(self) -> None:
        """Run calls of sync functions in the current thread, until the host says Stop."""
        while (call := self._plain_calls.get()) is not None:
            while call is not None:
                self._run_plain(call)
                call = self._next_plain_call()
        self.flush_output()

    def _run_plain(self, plain_call: "_PlainCall") -> None:
        message, tool, context = plain_call
        call = _call_of(message)
        self._limit_cpu_time()
        try:
            result = execute_here(tool, call, context, self.loop)
        except BaseException as error:  # noqa: BLE001 - sys.exit() would end this process, which belongs to the host
            result = call.error_result(f"{call.name} failed: {describe_error(error)}")
        self._finish(message, result)

    def _next_plain_call(self) -> "_PlainCall | None":
        """Read the next call in the main thread. Returns None if the event loop reads, now or from now on."""
        while self._is_main_reader():
            messages = self._receive_messages()
            message = messages[0] if messages is not None and len(messages) == 1 else None
            tool = self._tools.get(message.name) if isinstance(message, protocol.Call) else None
            if isinstance(message, protocol.Call) and tool is not None and not tool.is_async:
                return message, tool, self._begin(message)
            self._main_reads = False
            self.loop.call_soon_threadsafe(self._read_in_loop, messages or [])
        return None

    def _is_main_reader(self) -> bool:
        with self._reader_lock:
            return self._main_reads and self._plain_calls.empty()  # else the event loop has read the next call

    def _read_in_loop(self, messages: Sequence[ToWorker] = ()) -> None:
        """Let the event loop read from now on. `messages` are those that the main thread has read for it."""
        if self._watch_timer is not None:
            self._watch_timer.cancel()
        self.loop.add_reader(self._connection, self._read)
        self._receive(messages)

    def _watch_main(self, last_call: int = 0) -> None:
        """Read in the event loop if the main thread, which should read, is busy with a call for some time."""
        if not self._take_reading(last_call):
            self._watch_timer = self.loop.call_later(_WATCH_SECONDS, self._watch_main, self._call)

    def _take_reading(self, call: int) -> bool:
        """Take the reading from the main thread if it runs this call. It does not read while it runs one."""
        with self._reader_lock:
            if not (self._main_reads and call and call == self._call):
                return False
            self._main_reads = False
        self._read_in_loop()
        return True

    async def _run(self, message: protocol.Call, tool: Tool[..., Any], context: RunContext[Any]) -> None:
        """Run the call of an async function."""
        call = _call_of(message)
        self._limit_cpu_time()
        try:
            result = await execute(tool, call, context)
        except asyncio.CancelledError:
            result = call.error_result(f"{call.name} was cancelled")
        except (KeyboardInterrupt, SystemExit) as error:  # as above
            result = call.error_result(f"{call.name} failed: {describe_error(error)}")
        self._finish(message, result)

    def _finish(self, message: protocol.Call, result: ToolResult) -> None:
        problem = None
        try:
            encoded = _encode_json(result)
        except NOT_JSON as error:  # a text of its content is not valid Unicode
            problem = f"{message.name} ran, but its result cannot be sent: {describe_error(error)}"
        else:
            if len(encoded) > _MAX_RESULT_BYTES:
                problem = f"{message.name} returned {len(encoded):,} bytes; a worker may return {_MAX_RESULT_BYTES:,}"
        if problem is not None:
            encoded = _encode_json(ToolResult(message.id, message.name, truncate(problem), is_error=True))
        self.flush_output()
        self._call, self._context, self._task = 0, None, None
        self._waiting.clear()
        self.send(protocol.Result(message.call, encoded))

    def _read(self) -> None:
        self._receive(self._receive_messages(socket.MSG_DONTWAIT) or ())

    def _receive_messages(self, flags: int = 0) -> list[ToWorker] | None:
        """Return the messages that have arrived; None if nothing has, which takes a while without MSG_DONTWAIT."""
        try:
            data = self._connection.recv(_READ_BYTES, flags)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if not data:
            os._exit(1)  # there is no host any more; the supervisor kills what is left
        return self._decode(data)

    def _decode(self, data: bytes) -> list[ToWorker]:
        try:
            return list(self._decoder.feed(data))
        except ProtocolError as error:
            with self._output_lock:
                _exit_with(error)

    def _receive(self, messages: Iterable[ToWorker]) -> None:
        for message in messages:
            match message:
                case protocol.Call():
                    self._start(message)
                case protocol.Ping():
                    self.send(protocol.Pong())
                case protocol.Cancel(call=number):
                    self._cancel(number)
                case protocol.CallbackResult(number=number, value=value, error=error):
                    future = self._waiting.pop(number, None)
                    if future is not None and not future.done():
                        future.set_result(value) if error is None else future.set_exception(ToolError(error))
                case protocol.Stop():
                    self._plain_calls.put(None)
                case protocol.Refuse(reason=reason):
                    with self._output_lock:
                        os.write(1, f"midspan: the host does not accept this worker: {reason}\n".encode())
                        os._exit(REFUSED)

    def _start(self, message: protocol.Call) -> None:
        if self._call:
            with self._output_lock:
                _exit_with(ProtocolError("a call was sent while another one was running"))
        context = self._begin(message)
        tool = self._tools.get(message.name)
        if tool is None:
            self._finish(message, unknown_tool_result(_call_of(message), self._tools))
        elif tool.is_async:
            self._task = self.loop.create_task(self._run(message, tool, context))
        else:
            self.loop.remove_reader(self._connection)
            with self._reader_lock:
                self._main_reads = True
                self._plain_calls.put((message, tool, context))
            self._watch_main()

    def _begin(self, message: protocol.Call) -> RunContext[Any]:
        self._context = context = WorkerContext(message, self)
        self._call = message.call
        return context

    def _cancel(self, number: int) -> None:
        """Ask a call to end: an async function is cancelled; a plain one sees it in its context."""
        context, task = self._context, self._task
        if number != self._call or context is None:
            return
        context.cancel()
        for future in list(self._waiting.values()):  # the main thread clears it when a call ends
            future.cancel()
        if task is not None:
            task.cancel()

    def _limit_cpu_time(self) -> None:
        """Let the kernel end this process with SIGXCPU when the call has used its time."""
        if self._max_cpu_seconds is not None:
            _limit("RLIMIT_CPU", ceil(process_time() + self._max_cpu_seconds))
            _limit("RLIMIT_CORE", 0)

    def send(self, message: FromWorker) -> None:
        """Send a message, from any thread. It waits until the host reads."""
        frame = protocol.encode(message)
        with self._send_lock:
            self._connection.sendall(frame)

    def log(self, level: int, text: str) -> None:
        self.send(protocol.Log(self._call, level, _sendable(text)))

    def _watch_output(self) -> None:
        """Read the pipe in a thread of its own: a tool that prints more than it holds blocks its thread."""
        poll = select.poll()
        poll.register(self._output, select.POLLIN)
        is_open = True
        with suppress(OSError):  # there is no host any more; the thread that reads its messages ends the process
            while is_open:
                poll.poll()
                with self._output_lock:
                    is_open = self._read_output()

    def _read_output(self) -> bool:
        """Send what was printed as lines of the log. Returns False if nobody can print any more."""
        with suppress(BlockingIOError):
            while data := os.read(self._output, _READ_BYTES):
                *lines, rest = (self._unfinished_line + data).split(b"\n")
                if len(rest) > _READ_BYTES:
                    lines, rest = [*lines, rest], b""
                self._unfinished_line = rest
                for line in lines:
                    self.log(logging.INFO, line.decode(errors="backslashreplace"))
            return False
        return True

    def flush_output(self) -> None:
        """Send all output of a call before its result."""
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # a tool may have replaced or closed it
                stream.flush()
        with self._output_lock:
            self._read_output()
            if self._unfinished_line:
                self.log(logging.INFO, self._unfinished_line.decode(errors="backslashreplace"))
                self._unfinished_line = b""

    def report_progress(self, context: RunContext[Any], fraction: float | None, message: str) -> None:
        self.send(protocol.Progress(_number(context), fraction, _sendable(message)))

    def report_log(self, context: RunContext[Any], level: int, message: str) -> None:
        self.send(protocol.Log(_number(context), level, _sendable(message), is_from_context=True))

    async def ask_user(self, question: str, schema: dict[str, Any] | None) -> Any:
        return _decode_json(await self._ask_host(self._call, "ask_user", question, schema))

    async def call_tool(self, parent: RunContext[Any], name: str, arguments: dict[str, Any]) -> ToolResult:
        return _decode_result(await self._ask_host(_number(parent), "call_tool", name, arguments))

    async def _ask_host(self, call: int, kind: str, subject: str, value: Any) -> bytes:
        try:
            data = _encode_json(value)
        except NOT_JSON as error:
            raise ToolError(f"{subject}: {error}") from error
        number = next(self._numbers)
        future: asyncio.Future[bytes] = self.loop.create_future()
        self._waiting[number] = future
        self._take_reading(self._call)
        self.send(protocol.Callback(call, number, kind, subject, data))
        return await future


_PlainCall = tuple[protocol.Call, Tool[..., Any], RunContext[Any]]


def _exit_with(error: Exception) -> NoReturn:
    os.write(2, f"{error}\n".encode())
    os._exit(1)


def _sendable(text: str) -> str:
    return truncate(text, len(text))


def _call_of(message: protocol.Call) -> ToolCall:
    return ToolCall(message.id, message.name, _decode_json(message.arguments))


def _number(context: RunContext[Any]) -> int:
    assert isinstance(context, WorkerContext), "calls of a worker have no other context"
    return context.number


class _LogHandler(logging.Handler):
    """Sends log records to the host."""

    def __init__(self, worker: _Worker) -> None:
        super().__init__()
        self._worker = worker
        self.setFormatter(logging.Formatter("%(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._worker.log(record.levelno, self.format(record))
        except Exception:  # noqa: BLE001 - handlers do not fail: arguments may not fit the message
            self.handleError(record)
