"""One call on its way through a pool, between the event loop of its caller and that of the pool, and how it ends."""

import asyncio
import contextvars
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import msgspec
from msgspec import Struct

from midspan._types.context import RunContext
from midspan._types.parts import ToolCall, ToolResult
from midspan._types.specs import ToolSpec
from midspan._types.texts import NOT_JSON, count_noun, truncate
from midspan.errors import ToolError
from midspan.tools.source import describe_error
from midspan.tools.workers.protocol import Call, Callback, CallbackResult

encode_json = msgspec.json.Encoder().encode
_decode_json = msgspec.json.Decoder().decode

_callers: contextvars.ContextVar[tuple["Job", ...]] = contextvars.ContextVar("midspan_worker_calls", default=())
"""The calls in workers that wait for what the current code does, outermost first."""


def call_in(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *args: Any) -> bool:
    """Call a function in an event loop, at once if that is the current one. Returns False if the loop is closed."""
    if asyncio.get_running_loop() is loop:
        function(*args)
        return True
    try:
        loop.call_soon_threadsafe(function, *args)
    except RuntimeError:
        return False
    return True


class Job:
    """A call, its caller, and who answers it. The pool finishes it exactly once."""

    def __init__(self, call: ToolCall, context: RunContext[Any], session: str | None = None) -> None:
        """Raises TypeError or another of NOT_JSON if the arguments are not JSON serializable, or an id is not."""
        encode_json((call.id, context.run_id))
        self.call = call
        self.context = context
        self.session = session
        self.arguments = encode_json(call.arguments)
        self.callers = _callers.get()
        """The calls that wait for this one: their tools made it, directly or through other tools or agents."""
        self.reruns = 0
        """How often it was run again after its worker had died."""
        self.died: ToolResult | None = None
        """The result of the last run whose worker died, for a call that cannot be run again."""
        self.is_cancelled = False
        self.on_cancel: Callable[[], object] | None = None
        """What the pool does if the call is cancelled; it is used in the event loop of the pool only."""
        self._variables = contextvars.copy_context()
        self.loop = asyncio.get_running_loop()
        self._result: asyncio.Future[ToolResult] = self.loop.create_future()
        self._is_finished = False
        self._callback_tasks: set[asyncio.Task[None]] = set()

    def message(self, number: int, seconds: float | None) -> Call:
        """Return the call as it is sent to a worker."""
        call, context = self.call, self.context
        user: bytes | None = b"null"
        if context.user is not None:
            try:
                user = encode_json(context.user)
            except NOT_JSON:
                user = None
        position = (context.run_id, context.turn, context.index, context.depth)
        return Call(number, call.id, call.name, self.arguments, *position, seconds, user)

    async def result(self, cancel: Callable[["Job"], None]) -> ToolResult:
        """Wait for the result. If the waiting task is cancelled, the call is, and its end is waited for."""
        try:
            return await self._result
        except asyncio.CancelledError:
            self.context.cancel()
            if not self._is_finished:
                self._result = self.loop.create_future()
                cancel(self)
                await asyncio.wait([self._result])
            raise
        except GeneratorExit:  # the caller is being closed and must not await
            self.context.cancel()
            cancel(self)
            raise

    # The following is called in the event loop of the pool, or in that of any caller.

    def finish(self, result: ToolResult) -> None:
        """Give the result to the caller."""
        call_in(self.loop, self._finish, result)

    def progress(self, fraction: float | None, message: str) -> None:
        if not self.context.cancelled:
            self.context.progress(fraction, message)

    def call_back(self, message: Callback, reply: Callable[[CallbackResult], None]) -> None:
        """Do in the event loop of the caller what a worker asks for."""
        call_in(self.loop, self._start_callback, message, reply)

    # The rest runs in the event loop of the caller.

    def _finish(self, result: ToolResult) -> None:
        self._is_finished = True
        for task in self._callback_tasks:
            task.cancel()
        if not self._result.done():
            self._result.set_result(result)

    def _start_callback(self, message: Callback, reply: Callable[[CallbackResult], None]) -> None:
        if not self._is_finished:
            self._variables.run(_callers.set, (*self.callers, self))
            task = self.loop.create_task(self._answer(message, reply), context=self._variables)
            self._callback_tasks.add(task)
            task.add_done_callback(self._callback_tasks.discard)

    async def _answer(self, message: Callback, reply: Callable[[CallbackResult], None]) -> None:
        ask = self.context.call_tool if message.kind == "call_tool" else self.context.ask_user
        value, problem = b"", None
        try:
            value = encode_json(await ask(message.subject, _decode_json(message.value)))
        except ToolError as error:
            problem = str(error)
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            problem = f"{message.kind} was cancelled"
        except Exception as error:  # noqa: BLE001 - `ask_user` is user code
            problem = describe_error(error)
        reply(CallbackResult(message.number, value, None if problem is None else truncate(problem)))


def _is_cancelled() -> bool:
    """Whether the current task itself was cancelled, and not only what it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


Cause = Literal["timeout", "cancelled", "stuck", "cpu", "closed", "died"]


class Ended(Struct, frozen=True):
    """A worker has ended."""

    cause: Cause
    description: str
    """How it ended, to follow its name."""
    seconds: float = 0.0
    """The timeout of the call."""
    all_killed: bool = True
    """Whether all processes that it started have ended too."""

    def may_rerun(self, spec: ToolSpec) -> bool:
        """Whether the call that ran can be run again: its worker died, and a second run changes nothing more."""
        return self.cause == "died" and spec.safe_to_retry

    def result(self, call: ToolCall, spec: ToolSpec, *, reruns: int = 0) -> ToolResult:
        """Return the result of the call that ran."""
        name = call.name
        killed = "its process and all processes that it started were killed"
        if not self.all_killed:
            killed = "whether all its processes were killed is unknown"
        if self.cause == "timeout":
            return call.error_result(f"{name} timed out after {count_noun(self.seconds, 'second')}; {killed}")
        if self.cause == "cancelled":
            return call.error_result(f"{name} was cancelled; {killed}")
        runs = f" in {reruns + 1} runs" if reruns else ""
        if spec.changes is False:
            return call.error_result(f"{name} failed{runs}: its process {self.description}")
        message = f"{name}: outcome unknown: its process {self.description}{runs}; it may have had an effect"
        return call.error_result(message)


OnOutcome = Callable[[ToolResult | Ended], object]
"""Takes the result of a call, or how its worker ended."""


class WaitingCall(Struct, eq=False):
    """A call that waits for a worker."""

    job: Job | None
    """None if the pool itself waits."""
    blockers: Callable[[], Iterable[Job | None]]
    """Returns the running calls this wait depends on: it ends when one of them ends.

    Contains None if a worker can become free otherwise.
    """


_waits: list[WaitingCall] = []
"""Of calls that were made by tools in workers, in all pools, which share one event loop.

Calls from outside workers cannot deadlock and are not listed.
"""


@contextmanager
def waiting(wait: WaitingCall) -> Iterator[None]:
    """Let `find_deadlocks` know that a call waits."""
    if wait.job is not None and wait.job.callers:
        _waits.append(wait)
    try:
        yield
    finally:
        if wait in _waits:
            _waits.remove(wait)


def find_deadlocks() -> list[WaitingCall]:
    """Return the waits that can never end, because all calls that could end them wait for one of these waits."""
    waits = list(_waits)
    while True:
        blocked = {caller for wait in waits if wait.job is not None for caller in wait.job.callers}
        stuck = [wait for wait in waits if blocked.issuperset(wait.blockers())]
        if len(stuck) == len(waits):
            return stuck
        waits = stuck
