"""Background runs by id: started once, subscribed to any number of times from any event on, cancelled by anyone.

Every event is stored in a journal, and subscribers read it there by number. A slow subscriber blocks nobody, a late one
misses nothing, and a run can still be read after its end.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any, Literal, NamedTuple, Self

from msgspec.structs import replace

from midspan._loop.agent import Agent, new_run_id
from midspan._loop.background import BackgroundRun, Phase, RunStatus, end_of
from midspan._loop.prompt import Prompt
from midspan._loop.result import NumberedEvents, RunResult, final_text
from midspan._storage.journal import Journal, check_run
from midspan._storage.memory import MemoryJournal
from midspan._types.closing import close_all
from midspan._types.codec import from_json, to_json
from midspan._types.events import Interrupted, RunStart
from midspan.errors import ConfigError, JournalError, RunElsewhereError, RunError, RunExistsError, UnknownRunError

View = Literal["all", "final"]

MAX_PAST_RUNS = 1_000
MAX_PAST_BYTES = 64_000_000
"""How many runs a journal in memory keeps by default, and the bytes of their events."""
_SILENCE_TIMEOUT = 60.0
_KILLED = "the process of the run ended before the run did"


class _Outcome(NamedTuple):
    """How a run ended."""

    value: "RunResult[Any] | None"
    error: BaseException | None
    size: int
    run: BackgroundRun | None
    """The run itself, which holds the caller's context, only if it is not completely in the journal."""

    @classmethod
    def of(cls, run: BackgroundRun) -> "_Outcome":
        unstored = None if run.is_stored else run
        try:
            return cls(run.result(), None, run.size, unstored)
        except BaseException as error:  # noqa: BLE001 - it is raised again to those who ask
            return cls(None, error.with_traceback(None), run.size, unstored)

    def result(self) -> "RunResult[Any]":
        if self.error is not None:
            raise self.error.with_traceback(None)
        assert self.value is not None, "a run has a result or an error"
        return self.value


class BackgroundRuns:
    """Runs that continue in the background, in the event loop in which they are started."""

    def __init__(self, agent: Agent | None = None, journal: Journal | None = None) -> None:
        """Without a journal, the last thousand runs are kept in memory, up to 64 MB of events."""
        self._agent = None if agent is None else _checked_agent(agent)
        self._journal = (
            MemoryJournal(max_runs=MAX_PAST_RUNS, max_bytes=MAX_PAST_BYTES)
            if journal is None
            else _checked_journal(journal)
        )
        self._owns_journal = journal is None
        self._running: dict[str, BackgroundRun] = {}
        self._ended: dict[str, _Outcome] = {}
        """The last runs that have ended, the oldest first."""
        self._ended_bytes = 0
        self._closed = False

    def start(
        self,
        prompt: Prompt | None = None,
        *,
        agent: Agent | None = None,
        run_id: str | None = None,
        owner: str | None = None,
        session: str | None = None,
        **options: Any,
    ) -> str:
        """Start a run and return its id. `options` are those of `Agent.stream`.

        `session` is the conversation that the run belongs to. It is stored with the run, as is `owner`.

        Raises RunExistsError if `run_id` is already used. If only a journal on disk knows that, the model is not asked,
        and subscribers get the error.
        """
        if self._closed:
            raise ConfigError("these background runs are closed; create new ones")
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise ConfigError("no running event loop; start background runs inside asyncio.run") from None
        id = new_run_id() if run_id is None else run_id
        self._check_unused(id)
        agent = self._agent if agent is None else _checked_agent(agent)
        if agent is None:
            raise ConfigError("no agent given; pass one to BackgroundRuns(agent) or start(agent=…)")
        stream = agent.stream(prompt, run_id=id, **options)
        start = RunStart(id, stream.model, stream.messages.messages)
        run = self._running[id] = BackgroundRun(start, stream, self._journal, owner, session)
        run.task.add_done_callback(lambda _: self._retire(run))
        return id

    async def subscribe(
        self,
        run_id: str,
        *,
        from_event: int = 0,
        view: View = "all",
        silence_timeout: float | None = _SILENCE_TIMEOUT,
    ) -> AsyncGenerator[tuple[int, Any], None]:
        """The events of a run with their numbers: the stored ones from `from_event` on, then new ones as they come.

        `view="final"` gives the text of the final answer as TextDelta events, or raises the error of the run. A
        TurnRetry among them says that the text starts anew (see `docs/agent.md`). If the journal failed, JournalError
        is raised after the stored events.

        A run of another process may be running there, or that process may have been killed; the journal cannot tell.
        RunError is raised if no event comes for `silence_timeout` seconds. 0 gives only what is stored, and None waits
        without limit.
        """
        if view not in ("all", "final"):
            raise ConfigError(f"unknown view {view!r}; known views: all, final")
        if type(from_event) is not int or from_event < 0:
            raise ConfigError(f"events are numbered from 0; from_event must not be {from_event!r}")
        if silence_timeout is not None and (type(silence_timeout) not in (int, float) or not silence_timeout >= 0):
            raise ConfigError(f"silence_timeout must be a number of seconds from 0 or None, got {silence_timeout!r}")
        events = await self._events(run_id, from_event if view == "all" else 0, silence_timeout)
        chosen: AsyncGenerator[tuple[int, Any], None] = events if view == "all" else final_text(events)
        async with aclosing(chosen):
            async for number, event in chosen:
                if number >= from_event:
                    yield number, event

    async def status(self, run_id: str) -> RunStatus:
        """The status of a run, read from the journal if this process does not run it. Raises UnknownRunError."""
        check_run(run_id)
        run = self._find(run_id)
        if run is not None:
            return run.status
        status = RunStatus(run_id)
        for _, document in await self._journal.read(run_id):
            status = status.after(from_json(document, "event"))
        return replace(status, elsewhere=not status.ended)

    async def result(self, run_id: str) -> RunResult[Any]:
        """Wait until a run of this process has ended and is stored. Return its result, or raise its error.

        The outcomes of the last thousand runs that have ended are kept, up to 64 MB of events.
        """
        check_run(run_id)
        if run_id in self._ended:
            return self._ended[run_id].result()
        run = self._running.get(run_id)
        if run is None:
            await self._journal.get(run_id)  # raises UnknownRunError if it was never started
            raise ConfigError(
                f"run {run_id!r} is not running in this process, nor is it one of the last that ended in it; read its "
                "events with subscribe"
            )
        if run.is_over:
            return run.result()
        await end_of(run.task)
        return run.result()

    async def cancel(self, run_id: str, message: str | None = None) -> bool:
        """Cancel a run, and wait until it has ended and is stored. Returns whether it was still running.

        `message` is stored as the reason. Raises RunError if the run was interrupted, because its calls may have had
        effects that are not stored.
        """
        check_run(run_id)
        run = self._running.get(run_id)
        if run is None:
            status = await self.status(run_id)
            if status.phase is Phase.INTERRUPTED:
                raise RunError(f"run {run_id!r} was interrupted: {_KILLED}")
            if status.elsewhere:
                raise ConfigError(f"run {run_id!r} runs in another process; cancel it where it was started")
            return False
        await self._cancel(run, message)
        return True

    async def interrupt_unfinished(self) -> list[str]:
        """Mark the runs that a killed process left unfinished in the journal as interrupted, and return their ids.

        Call it when no other process runs any of them. Nothing of them runs again.
        """
        ids = []
        for info in await self._journal.list(state="running"):
            if info.run not in self._running:
                event = Interrupted(_KILLED)
                with suppress(RunElsewhereError, UnknownRunError):  # it has just ended, or was deleted
                    await self._journal.append(
                        info.run, info.length, [to_json(event)], summary=info.summary.after(event)
                    )
                    ids.append(info.run)
        return ids

    async def aclose(self, *, grace_seconds: float = 0, message: str | None = None) -> None:
        """Wait at most `grace_seconds` for the running runs, then cancel the others and wait until they are stored."""
        self._closed = True
        if grace_seconds > 0 and self._running:
            await asyncio.wait([run.task for run in self._running.values()], timeout=grace_seconds)
        cancelling = [self._cancel(run, message) for run in list(self._running.values())]
        await close_all(cancelling)
        if self._owns_journal:
            await self._journal.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _events(self, run_id: str, from_event: int, silence_timeout: float | None) -> NumberedEvents:
        check_run(run_id)
        run = self._find(run_id)
        if run is not None:
            return _read_running(self._journal, run, from_event)
        status = await self.status(run_id)
        return _read_stored(self._journal, status, from_event, silence_timeout)

    def _find(self, run_id: str) -> BackgroundRun | None:
        """A run that this process runs, or that is not completely in the journal."""
        run = self._running.get(run_id)
        if run is None and run_id in self._ended:
            run = self._ended[run_id].run
        return None if run is None or run.is_stored else run

    def _check_unused(self, id: str) -> None:
        check_run(id)
        is_stored = isinstance(self._journal, MemoryJournal) and id in self._journal
        if id in self._running or id in self._ended or is_stored:
            raise RunExistsError(id)

    async def _cancel(self, run: BackgroundRun, message: str | None = None) -> None:
        await run.cancel(message)
        self._retire(run)

    def _retire(self, run: BackgroundRun) -> None:
        if self._running.pop(run.id, None) is None:
            return
        self._ended[run.id] = _Outcome.of(run)
        self._ended_bytes += run.size
        while len(self._ended) > MAX_PAST_RUNS or self._ended_bytes > MAX_PAST_BYTES:
            self._ended_bytes -= self._ended.pop(next(iter(self._ended))).size


async def _read_running(journal: Journal, run: BackgroundRun, from_event: int) -> NumberedEvents:
    """The events of a run of this process: only those it has stored, because another run may have used its id."""
    if not await run.wait_stored(0):
        return
    # Start at an event that is stored: then the watcher gets all of the run, even if the journal drops it at its end.
    number = min(from_event, run.written - 1)
    if run.is_over and not await journal.read(run.id, number, 1):
        raise _deleted(run.id)
    async with aclosing(journal.watch(run.id, number)) as documents:
        async for number, document in documents:
            if number >= from_event:
                yield number, from_json(document, "event")
            if run.written <= number + 1 and not await run.wait_stored(number + 1):
                return
    raise _deleted(run.id)


async def _read_stored(
    journal: Journal, status: RunStatus, from_event: int, silence_timeout: float | None
) -> NumberedEvents:
    """The events of a run of another process. Only events that may still come are waited for with a timeout.

    None are waited for after `Interrupted`: the journal accepts more of them, but the process of the run has ended.
    """
    number = from_event
    if status.phase is Phase.INTERRUPTED and from_event >= status.events:
        return
    async with aclosing(journal.watch(status.run_id, from_event)) as documents:
        while True:
            try:
                async with asyncio.timeout(silence_timeout if number >= status.events else None):
                    number, document = await anext(documents)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise RunError(
                    f"run {status.run_id!r} has not ended, is not running in this process, and had no event for "
                    f"{silence_timeout} seconds: its process may have been killed; subscribe again with from_event, "
                    "or wait longer with silence_timeout"
                ) from None
            event = from_json(document, "event")
            yield number, event
            number += 1
            if isinstance(event, Interrupted) and number >= status.events:
                return


def _deleted(id: str) -> JournalError:
    return JournalError(f"run {id!r} was deleted from the journal, so the rest of it cannot be read")


def _checked_agent(agent: Any) -> Agent:
    if not isinstance(agent, Agent):
        raise ConfigError(f"expected an Agent, got {agent!r}")
    return agent


def _checked_journal(journal: Any) -> Journal:
    if isinstance(journal, type) or not isinstance(journal, Journal):
        hint = f"; for a file, pass SqliteJournal({journal!r})" if isinstance(journal, str) else ""
        raise ConfigError(f"expected a journal such as MemoryJournal(), got {journal!r}{hint}")
    return journal
