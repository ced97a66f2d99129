"""Background runs by id: started once, subscribed to any number of times from any event on, cancelled by anyone.

Every event is stored in a journal, and subscribers read it there by number. A slow subscriber blocks nobody, a late one
misses nothing, and a run can still be read after its end.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Literal, Self

from msgspec.structs import replace

from midspan._loop.agent import Agent, new_run_id
from midspan._loop.background import BackgroundRun, RunStatus
from midspan._loop.prompt import Prompt
from midspan._loop.result import NumberedEvents, final_text
from midspan._storage.journal import Journal, check_run
from midspan._storage.memory import MemoryJournal
from midspan._types.codec import from_json
from midspan._types.events import RunStart
from midspan.errors import ConfigError, JournalError, RunError, RunExists

View = Literal["all", "final"]

_MAX_PAST_RUNS = 1_000
_SILENCE_TIMEOUT = 60.0


class BackgroundRuns:
    """Runs that continue in the background, in the event loop in which they are started."""

    def __init__(self, agent: Agent | None = None, journal: Journal | None = None) -> None:
        """Without a journal, the last thousand runs are kept in memory."""
        self._agent = None if agent is None else _checked_agent(agent)
        self._journal = MemoryJournal(max_runs=_MAX_PAST_RUNS) if journal is None else _checked_journal(journal)
        self._owns_journal = journal is None
        self._running: dict[str, BackgroundRun] = {}
        self._past: dict[str, BackgroundRun | None] = {}
        """The last runs that have ended. One that is not completely in the journal is kept for its error."""
        self._closed = False

    def start(
        self,
        prompt: Prompt | None = None,
        *,
        agent: Agent | None = None,
        run_id: str | None = None,
        owner: str | None = None,
        **options: Any,
    ) -> str:
        """Start a run and return its id. `options` are those of `Agent.run`, `owner` is stored with the run.

        RunExists is raised if `run_id` is already used. If only a journal on disk knows that, the model is not asked,
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
        model = options.get("model") or agent.model
        start = RunStart(id, model if isinstance(model, str) else model.model, stream.messages.messages)
        run = self._running[id] = BackgroundRun(start, stream, self._journal, owner)
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
        """The status of a run, read from the journal if this process does not run it. Raises UnknownRun."""
        check_run(run_id)
        run = self._find(run_id)
        if run is not None:
            return run.status
        status = RunStatus(run_id)
        for _, document in await self._journal.read(run_id):
            status = status.after(from_json(document, "event"))
        return replace(status, elsewhere=not status.ended)

    async def cancel(self, run_id: str) -> bool:
        """Cancel a run, and wait until it has ended and is stored. Returns whether it was still running."""
        check_run(run_id)
        run = self._running.get(run_id)
        if run is None:
            if (await self.status(run_id)).elsewhere:
                raise ConfigError(f"run {run_id!r} runs in another process; cancel it where it was started")
            return False
        await self._cancel(run)
        return True

    async def close(self) -> None:
        """Cancel all running runs, and wait until they are stored."""
        self._closed = True
        results = await asyncio.gather(*map(self._cancel, list(self._running.values())), return_exceptions=True)
        for error in results:
            if error is not None:
                raise error
        if self._owns_journal:
            await self._journal.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _events(self, run_id: str, from_event: int, silence_timeout: float | None) -> NumberedEvents:
        check_run(run_id)
        run = self._find(run_id)
        if run is not None:
            return _read_running(self._journal, run, from_event)
        status = await self.status(run_id)
        return _read_stored(self._journal, status, from_event, silence_timeout)

    def _find(self, run_id: str) -> BackgroundRun | None:
        """A run that this process runs, or that is not completely in the journal."""
        run = self._running.get(run_id) or self._past.get(run_id)
        return None if run is None or run.is_stored else run

    def _check_unused(self, id: str) -> None:
        check_run(id)
        is_stored = isinstance(self._journal, MemoryJournal) and id in self._journal
        if id in self._running or id in self._past or is_stored:
            raise RunExists(id)

    async def _cancel(self, run: BackgroundRun) -> None:
        await run.cancel()
        self._retire(run)

    def _retire(self, run: BackgroundRun) -> None:
        if self._running.pop(run.id, None) is None:
            return
        self._past[run.id] = None if run.is_stored else run
        if len(self._past) > _MAX_PAST_RUNS:
            del self._past[next(iter(self._past))]


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
    """The events of a run of another process. Only events that may still come are waited for with a timeout."""
    number = from_event
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
            yield number, from_json(document, "event")
            number += 1


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
