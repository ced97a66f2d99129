"""The host's side of one worker: its calls, one at a time, and its end."""

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import Callable
from functools import partial

import msgspec

from midspan._types.parts import NOT_RUN, ToolResult
from midspan.errors import ConfigError, WorkerError
from midspan.tools.source import unknown_tool_result
from midspan.tools.workers import protocol
from midspan.tools.workers.channel import Channel
from midspan.tools.workers.job import Cause, Ended, Job, OnOutcome, call_in
from midspan.tools.workers.process import WorkerProcess, describe_exit
from midspan.tools.workers.protocol import FromWorker, ProtocolError, RegisteredTool
from midspan.tools.workers.setup import WorkerLimits, WorkerSetup
from midspan.tools.workers.supervisor import KILL_SECONDS, NOT_KILLED

_log = logging.getLogger("midspan.tools.workers")

CANCEL_SECONDS = 2.0
"""How long a call that was cancelled, or a worker that has to stop, may take to end before it is killed."""
_MAX_REGISTRATION_BYTES = 2 * 2**20
"""Of a frame from a remote worker that has not shown its token yet."""
_decode_result = msgspec.json.Decoder(ToolResult).decode

OnRegistered = Callable[["WorkerConnection", protocol.Register], None]


def _ignore(_outcome: ToolResult | Ended) -> None:
    """The outcome of no call."""


class WorkerConnection:
    """One worker, in the event loop of its pool.

    A call need not wait until the thread of the pool wakes up. It is started, and frames are sent, from any thread. As
    long as an event loop makes short calls one after another, that loop reads their results itself.
    """

    def __init__(
        self,
        connection: socket.socket,
        process: WorkerProcess | None,
        limits: WorkerLimits,
        on_registered: OnRegistered,
    ) -> None:
        """`process=None` is a worker that has connected itself, from anywhere."""
        self.loop = asyncio.get_running_loop()
        self.created_at = self.loop.time()
        self.ended: asyncio.Future[Ended] = self.loop.create_future()
        """Set when the worker and all its descendants have ended."""
        self.tools: dict[str, RegisteredTool] = {}
        self.is_registered = False
        self.pid = 0
        self.job: Job | None = None
        """The call that runs."""
        self._process = process
        self._limits = limits
        self._on_registered = on_registered
        max_bytes = _MAX_REGISTRATION_BYTES if process is None else protocol.MAX_FRAME_BYTES
        self._decoder = protocol.FrameDecoder[FromWorker](FromWorker, max_bytes)
        self._start_lock = threading.Lock()
        """Held while `job`, `_cause` or `_is_stopping` change in a way that matters to another thread."""
        self._number = 0
        self._on_outcome: OnOutcome = _ignore
        self._deadline: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._seconds: float | None = None
        self._cause: Cause | None = None
        """Why the worker is being killed."""
        self._is_stopping = False
        self._is_refused = False
        self._missed_pings = 0
        self._description = ""
        self._exit_code: int | None = None
        self._exit_task: asyncio.Task[None] | None = None
        self._channel = Channel(connection, self._feed, self._disconnect)
        self.send(protocol.Configure(limits.max_memory_bytes, limits.max_cpu_seconds))

    async def run(self, job: Job) -> ToolResult | Ended | None:
        """Run one call; None if it was not started, because the worker is ending.

        A task that is cancelled after the end of the call gets its outcome nevertheless.
        """
        outcome: asyncio.Future[ToolResult | Ended] = self.loop.create_future()
        on_cancel = job.on_cancel

        def finish(value: ToolResult | Ended) -> None:
            if not outcome.done():
                outcome.set_result(value)

        if not self._start(job, lambda value: call_in(self.loop, finish, value)):
            return None
        try:
            return await outcome
        except asyncio.CancelledError:
            if outcome.done() and not outcome.cancelled():
                return outcome.result()
            raise
        finally:
            job.on_cancel = on_cancel

    def _start(self, job: Job, on_outcome: OnOutcome) -> bool:
        call = job.call
        if call.name not in self.tools:
            on_outcome(unknown_tool_result(call, self.tools))
        elif not self.try_start(job, on_outcome):
            if not self.is_alive():
                return False
            on_outcome(call.error_result(f"{call.name} was not run: the time of the run is over", NOT_RUN))
        return True

    def try_start(self, job: Job, on_outcome: OnOutcome) -> bool:
        """Start one call, from any thread, unless the worker is ending or the time of the run is over.

        The worker is killed after the timeout of the tool and at the deadline of the run. `on_outcome` is called once,
        in the event loop of the pool; with a result, maybe in that of a caller.
        """
        context, tool = job.context, self.tools[job.call.name]
        seconds, left = tool.timeout, context.seconds_left
        if left is not None:
            seconds = left if seconds is None else min(left, seconds)
        with self._start_lock:
            if not self.is_alive() or (seconds is not None and seconds <= 0):
                return False
            assert self.job is None, "a worker runs one call at a time"
            self.job, self._number, self._seconds, self._on_outcome = job, self._number + 1, seconds, on_outcome
            self._deadline = None if seconds is None else self.loop.time() + seconds
            job.on_cancel = partial(self._cancel, self._number)  # here: if the worker has ended, another may be next
        context.start(tool.timeout)
        self.send(job.message(self._number, seconds))
        timer = self._timer
        if self._deadline is not None and (timer is None or timer.when() > self._deadline):
            self.loop.call_soon_threadsafe(self._check_deadline)
        return True

    def _check_deadline(self) -> None:
        """Kill a worker whose call has reached its deadline, or come back at that time.

        The timer of an earlier call stays: as long as it is due before the deadline of the next one, that call need not
        wake the event loop.
        """
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None  # before `job` is read: another thread first sets that, and then looks for a timer
        self.kill("timeout", self._is_overdue)
        deadline = self._deadline
        if self.job is not None and deadline is not None and self._cause is None:
            self._timer = self.loop.call_at(deadline, self._check_deadline)

    def _is_overdue(self) -> bool:
        return self.job is not None and self._deadline is not None and self.loop.time() >= self._deadline

    def _finish(self, outcome: ToolResult | Ended) -> None:
        with self._start_lock:
            job, on_outcome, self.job = self.job, self._on_outcome, None
        if job is not None:
            job.on_cancel = None
            on_outcome(outcome)

    def _cancel(self, number: int) -> None:
        """Ask the worker to end its call; kill it if that takes too long."""
        self.send(protocol.Cancel(number))

        def is_running() -> bool:
            return self.job is not None and self._number == number

        self.loop.call_later(CANCEL_SECONDS, self.kill, "cancelled", is_running)

    def send(self, message: protocol.ToWorker) -> None:
        """Send a message, from any thread."""
        if self._cause is None:
            self._channel.send(protocol.encode(message))

    @property
    def is_used(self) -> bool:
        """Whether it has run a call."""
        return self._number > 0

    def is_alive(self) -> bool:
        return self._cause is None and not self._is_stopping

    def ping(self) -> None:
        """Ask whether the worker reacts, and kill it if it has not done so for `stuck_seconds`.

        A worker that runs a call with a deadline may hold the interpreter's lock until then.
        """
        if not self.is_registered:
            return  # it has its own time limit
        max_missed = max(1, round(self._limits.stuck_seconds / self._limits.ping_seconds))
        if self._missed_pings >= max_missed and (self.job is None or self._seconds is None):
            self.kill("stuck")
        self._missed_pings += 1
        self.send(protocol.Ping())

    def refuse(self, reason: str) -> None:
        """Close the connection to a worker that has connected itself."""
        self._is_refused = True
        self.send(protocol.Refuse(reason))
        self._cause = "closed"
        self.loop.call_later(CANCEL_SECONDS, self._disconnect)  # it closes first, if it is a worker

    async def stop(self) -> None:
        """Let the worker exit by itself; kill it if that takes too long."""
        with self._start_lock:
            is_idle = self.job is None and self.is_alive()
            self._is_stopping |= is_idle
        if is_idle:
            self.send(protocol.Stop())
            await asyncio.wait([self.ended], timeout=CANCEL_SECONDS)
        self.kill("closed")
        await asyncio.wait([self.ended])

    def kill(self, cause: Cause, is_due: Callable[[], bool] = lambda: True) -> None:
        """Kill the worker and all its descendants. `ended` says when that is done.

        `is_due` is asked while no other thread can start a call.
        """
        with self._start_lock:
            if self._cause is not None or not is_due():
                return
            self._cause = cause
        self._channel.end_stream()  # the supervisor kills when it sees this
        if self._process is None and self.is_registered:
            self.loop.call_later(KILL_SECONDS + 1, self._disconnect)  # else it ends its own stream
        else:
            self._disconnect()

    def _disconnect(self) -> None:
        """Read and send nothing any more."""
        if self._exit_task is None:
            with self._start_lock:
                self._cause = self._cause or ("closed" if self._is_stopping else "died")
            self._channel.close()
            self._exit_task = self.loop.create_task(self._wait_for_exit())

    def _feed(self, data: bytes) -> None:
        if self._is_refused:
            return  # it may send anything until the connection is closed
        try:
            for message in self._decoder.feed(data):
                if isinstance(message, protocol.Exit):
                    self._exit_code = message.code
                elif self._cause is None:
                    self._receive(message)
        except ProtocolError as error:
            _log.error("the connection to a worker was closed: %s", error)
            self._description = f"was killed, because {error}"
            call_in(self.loop, self.kill, "died")

    async def _wait_for_exit(self) -> None:
        """Wait for the end of all processes, and report it."""
        assert self._cause is not None, "the connection is lost"
        code, output = self._exit_code, ""  # None if the supervisor of a remote worker could not send it
        if self._process is not None:
            code, output = await self._process.ended()
        if self._cause == "stuck":
            self._description = "did not react any more and was killed"
        elif code == 128 + signal.SIGXCPU:
            self._cause, self._description = "cpu", "was killed, because it used too much CPU time"
        description = self._description or ("closed its connection" if code is None else describe_exit(code))
        for line in output.splitlines():
            self._log_line(logging.INFO, line)
        ended = Ended(self._cause, description, round(self._seconds or 0.0, 2), code not in (None, NOT_KILLED))
        if ended.cause not in ("closed", "cancelled"):
            _log.warning("%s %s (%s)", self, ended.description, ended.cause)
        if self._timer is not None:
            self._timer.cancel()
        self.ended.set_result(ended)
        self._finish(ended)

    def _receive(self, message: FromWorker) -> None:
        self._missed_pings = 0
        job = self.job
        if isinstance(message, protocol.Register):
            if self.is_registered:
                raise ProtocolError("a worker registered twice")
            self._decoder.max_bytes = protocol.MAX_FRAME_BYTES
            self.is_registered, self.pid = True, message.pid
            self.tools = {tool.spec.name: tool for tool in message.tools}
            self._on_registered(self, message)
            return
        if not self.is_registered:
            raise ProtocolError("a worker sent another message before it registered")
        match message:
            case protocol.Pong() | protocol.Exit():
                return
            case protocol.Log(call=number, level=level, text=text):
                is_call = number == self._number
                if message.is_from_context and is_call and job is not None:
                    job.context.log(text, level)
                else:
                    self._log_line(level, text, is_call=is_call)
                return
        if job is None or message.call != self._number:
            return  # of a call that has ended
        match message:
            case protocol.Result(result=encoded):
                self._set_result(job, encoded)
            case protocol.Progress(fraction=fraction, message=text):
                job.progress(fraction, text)
            case protocol.Callback():
                job.call_back(message, self.send)

    def _set_result(self, job: Job, encoded: bytes) -> None:
        try:
            result = _decode_result(encoded)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ProtocolError(f"a result is not valid: {error}") from error
        if (result.id, result.name) != (job.call.id, job.call.name):
            raise ProtocolError("a result belongs to another call")
        if job.session is None and asyncio.get_running_loop() is self.loop:
            self._channel.lend(job.loop)
        self._finish(result)

    def _log_line(self, level: int, text: str, *, is_call: bool = True) -> None:
        if self.job is not None and is_call:
            _log.log(level, "[%s %s] %s", self.job.context.run_id, self.job.call.id, text)
        else:
            _log.log(level, "[%s] %s", self, text)

    def __str__(self) -> str:
        return f"worker {self.pid}" if self.pid else "a worker"


async def start_worker(
    setup: WorkerSetup, limits: WorkerLimits, *, sandbox: bool, on_created: Callable[[WorkerConnection], None]
) -> WorkerConnection:
    """Start a process and wait until it has registered its tools."""
    loop = asyncio.get_running_loop()
    registered: asyncio.Future[protocol.Register] = loop.create_future()
    try:
        process = WorkerProcess(setup, sandbox=sandbox)
    except (OSError, ValueError) as error:  # ValueError: a path that is not UTF-8 cannot be passed on
        raise WorkerError(f"a worker for {setup.tools!r} could not be started: {error}") from error
    worker = WorkerConnection(process.socket, process, limits, lambda _, message: registered.set_result(message))
    on_created(worker)
    seconds = limits.start_seconds
    try:
        await asyncio.wait((registered, worker.ended), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        worker.kill("closed")
        raise
    if registered.done():
        message = registered.result()
        if message.error is None and message.tools:
            return worker
        worker.kill("closed")
        raise ConfigError(message.error or f"there are no tools in {setup.tools!r}")
    if worker.ended.done():
        ended = worker.ended.result()
        raise WorkerError(f"a worker for {setup.tools!r} {ended.description} before it had registered its tools")
    worker.kill("stuck")
    raise WorkerError(f"a worker for {setup.tools!r} had not registered its tools after {seconds:g} seconds")
