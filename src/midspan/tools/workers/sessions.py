"""Sessions: each has a worker of its own, in which tools keep their state between calls."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from msgspec.structs import replace

from midspan._types.parts import NOT_RUN, ToolCall, ToolResult
from midspan.errors import WorkerError
from midspan.tools.source import unknown_session
from midspan.tools.workers.connection import WorkerConnection
from midspan.tools.workers.job import Job, WaitingCall, find_deadlocks, waiting
from midspan.tools.workers.setup import WorkerLimits, WorkerSetup

StartWorker = Callable[[WorkerSetup | None], Awaitable[WorkerConnection]]
"""Returns a worker for a session. Without a setup it is a remote worker."""


class _Session:
    def __init__(self, name: str, setup: WorkerSetup | None) -> None:
        self.name = name
        self.setup = setup
        self.worker: WorkerConnection | None = None
        self.is_starting = False
        self.job: Job | None = None
        """The call that runs."""
        self.lock = asyncio.Lock()
        self.used_at = 0.0
        self.lost: str | None = None
        """How its process ended, until a result has reported it."""


class Sessions:
    """The sessions of a pool that have been used."""

    def __init__(self, setups: Mapping[str, WorkerSetup | None], limits: WorkerLimits, start: StartWorker) -> None:
        """`setups` has the open sessions; it changes."""
        self._setups = setups
        self._limits = limits
        self._start = start
        self._sessions: dict[str, _Session] = {}

    async def run(self, job: Job, name: str) -> ToolResult:
        """Run a call in its session."""
        call, session = job.call, self._get(name)
        wait = WaitingCall(job, lambda: [session.job])
        with waiting(wait):
            if session.lock.locked() and wait in find_deadlocks():
                raise WorkerError("the tool that calls it occupies the session, directly or through another call")
            await session.lock.acquire()
        try:
            if name not in self._setups:  # it was closed meanwhile
                raise unknown_session(name, self._setups)
            if session.lost is not None:
                reason, session.lost = session.lost, None
                return _lost(call, name, reason)
            worker = await self._worker_of(session)
            session.job = job
            outcome = await worker.run(job)
            if outcome is None:
                await asyncio.wait([worker.ended])
                return _lost(call, name, worker.ended.result().description)
        finally:
            session.job = None
            session.used_at = asyncio.get_running_loop().time()
            session.lock.release()
        if isinstance(outcome, ToolResult):
            return outcome
        result = outcome.result(call, worker.tools[call.name].spec)
        return replace(result, value=f"{result.value}. Session lost: the state of session {name!r} is gone")

    async def tools_worker(self, name: str) -> WorkerConnection:
        """Return the worker of a session, for its tools."""
        session = self._get(name)
        async with session.lock:
            return await self._worker_of(session)

    async def close(self, name: str) -> None:
        """End the process of a session that was closed."""
        session = self._sessions.pop(name, None)
        if session is not None and session.worker is not None:
            await session.worker.stop()

    async def evict_idle(self) -> None:
        """End the processes of sessions without calls for a long time."""
        limit, now = self._limits.idle_seconds, asyncio.get_running_loop().time()
        for session in list(self._sessions.values()):
            idle = now - session.used_at
            if limit is not None and idle >= limit and session.worker is not None and not session.lock.locked():
                await self._evict(session, f"was ended after {idle:.0f} seconds without a call")

    def _get(self, name: str) -> _Session:
        if name not in self._setups:
            raise unknown_session(name, self._setups)
        if name not in self._sessions:
            self._sessions[name] = _Session(name, self._setups[name])
        return self._sessions[name]

    async def _worker_of(self, session: _Session) -> WorkerConnection:
        """Return the worker of a session; start it if it has none. The session is locked."""
        if session.worker is not None:
            return session.worker
        session.is_starting = True
        try:
            await self._evict_if_full()
            worker = await self._start(session.setup)
        finally:
            session.is_starting = False
        if self._sessions.get(session.name) is not session:  # it was closed meanwhile
            worker.kill("closed")
            raise unknown_session(session.name, self._setups)
        session.worker = worker
        session.used_at = asyncio.get_running_loop().time()
        worker.ended.add_done_callback(lambda _: _lose(session, worker))
        return worker

    async def _evict_if_full(self) -> None:
        live = [session for session in self._sessions.values() if session.worker is not None or session.is_starting]
        if len(live) <= self._limits.max_sessions:  # with the one that is starting
            return
        idle = [session for session in live if session.worker is not None and not session.lock.locked()]
        if not idle:
            raise WorkerError(f"all {self._limits.max_sessions} sessions are busy, and no more are allowed")
        await self._evict(min(idle, key=lambda session: session.used_at), "was ended to make room for another session")

    async def _evict(self, session: _Session, reason: str) -> None:
        worker, session.worker, session.lost = session.worker, None, reason
        if worker is not None:
            await worker.stop()


def _lost(call: ToolCall, session: str, reason: str) -> ToolResult:
    """Return the result of a call that was not run, because the process of its session has ended."""
    message = f"session lost: the process of session {session!r} {reason}, and its state is gone"
    return call.error_result(f"{call.name} was not run: {message}; the next call starts anew", NOT_RUN)


def _lose(session: _Session, worker: WorkerConnection) -> None:
    if session.worker is worker:
        session.worker = None
        if session.job is None:  # else the result of that call says so
            session.lost = worker.ended.result().description
