"""Background runs by id: started once, subscribed to any number of times from any event on, cancelled by anyone.

Every event is stored in a journal, and subscribers read it there by number. A slow subscriber blocks nobody, a late one
misses nothing, and a run can still be read after its end.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any, Literal

from midspan._loop.agent import Agent, new_run_id
from midspan._loop.background import BackgroundRun, RunStatus
from midspan._loop.prompt import Prompt
from midspan._loop.result import NumberedEvents, RunResult, final_text
from midspan._storage.journal import Journal
from midspan._storage.memory import MemoryJournal
from midspan._types.closing import close_all
from midspan._types.codec import from_json, to_json
from midspan._types.events import Interrupted
from midspan._types.run_state import RunState
from midspan._types.texts import check_text
from midspan.errors import ConfigError, RunElsewhereError, RunError, RunExistsError, UnknownRunError
from midspan.providers.provider import ClosedOnExit

View = Literal["all", "final"]

MAX_RUNS = 1_000
MAX_BYTES = 64_000_000
"""How many ended runs are kept, and the bytes of their events. Runs that have subscribers are kept in any case."""
_PAGE_EVENTS = 256
_KILLED = "the process of the run ended before the run did"


class BackgroundRuns(ClosedOnExit):
    """Runs that continue in the background, in the event loop in which they are started."""

    def __init__(self, agent: Agent | None = None, journal: Journal | None = None) -> None:
        """Keeps the last thousand results, or fewer if their events take more than 64 MB.

        Without a journal, the events of these runs are kept in memory, too.
        """
        if not isinstance(agent, Agent | None) or not isinstance(journal, Journal | None):
            raise ConfigError(f"BackgroundRuns takes an Agent and a journal, got {agent!r:.80} and {journal!r:.80}")
        self._agent = agent
        self._memory = MemoryJournal()  # empty if there is another journal
        self.journal: Journal = self._memory if journal is None else journal
        self._running: dict[str, BackgroundRun] = {}
        self._ended: dict[str, BackgroundRun] = {}
        """The last runs that have ended, the oldest first."""
        self._ended_bytes = 0
        self._id_conflicts: dict[str, RunExistsError] = {}
        """The errors of the last runs whose ids the journal had already, until `result` raises them."""
        self._closed = False

    def start(
        self,
        prompt: Prompt = None,
        *,
        agent: Agent | None = None,
        run_id: str | None = None,
        owner: str | None = None,
        session: str | None = None,
        **options: Any,
    ) -> str:
        """Start a run and return its id. `options` are those of `Agent.stream`.

        `session` is the conversation that the run belongs to. It is stored with the run, as is `owner`.

        Raises RunExistsError if `run_id` is already used. If only the journal knows that, the model is not asked, and
        `result` raises the error, once; all other methods refer to the stored run.
        """
        if self._closed:
            raise ConfigError("these background runs are closed; create new ones")
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            hint = "call it in a coroutine, such as one that asyncio.run runs"
            raise ConfigError(f"BackgroundRuns.start needs a running event loop; {hint}") from None
        id = new_run_id() if run_id is None else run_id
        if not id:
            raise ConfigError("run_id is empty; leave it out to get a new id")
        if self._find(id) is not None:
            raise RunExistsError(id)
        agent = agent or self._agent
        if agent is None:
            raise ConfigError("no agent given; pass one to BackgroundRuns(agent) or start(agent=…)")
        stream = agent.stream(prompt, run_id=id, **options)
        self._running[id] = BackgroundRun(id, stream, self.journal, self._retire, owner=owner, session=session)
        return id

    async def subscribe(
        self, run_id: str, *, from_event: int = 0, view: View = "all"
    ) -> AsyncGenerator[tuple[int, Any], None]:
        """Yield the events of a run with their numbers: the stored ones from `from_event` on, then new ones.

        `view="final"` gives the text of the final answer as TextDelta events, or raises the error of the run. A
        TurnRetry among them means: discard the text so far (see `docs/agent.md`). If the journal failed, JournalError
        is raised after the stored events. RunError is raised after the stored events of an unfinished run that does not
        run in this process.
        """
        if view not in ("all", "final"):
            raise ConfigError(f"unknown view {view!r}; known views: all, final")
        if from_event < 0:
            raise ConfigError(f"events are numbered from 0, got {from_event}")
        events = self._events(run_id, from_event if view == "all" else 0)
        viewed: AsyncGenerator[tuple[int, Any], None] = events if view == "all" else final_text(events)
        async with aclosing(viewed):
            async for number, event in viewed:
                if number >= from_event:
                    yield number, event

    async def status(self, run_id: str) -> RunStatus:
        """Return the status of a run, read from the journal if this process does not run it. Raises UnknownRunError."""
        run = self._find(run_id)
        if run is not None:
            return run.status
        info = await self.journal.get(run_id)
        events = [from_json(document, "event") for _, document in await self.journal.read(run_id)]
        return RunStatus.of(run_id, len(events), info.summary, RunState.of_events(events))

    async def result(self, run_id: str) -> RunResult[Any]:
        """Wait until a run of this process has ended and is stored. Return its result, or raise its error."""
        run = self._find(run_id)
        if run is None:
            if (refused := self._id_conflicts.pop(run_id, None)) is not None:
                raise refused
            await self.journal.get(run_id)  # raises UnknownRunError if it was never started
            raise ConfigError(f"run {run_id!r} is not one of the last runs of this process; read it with subscribe")
        return await run.result()

    async def cancel(self, run_id: str, message: str | None = None) -> bool:
        """Cancel a run, and wait until its end is stored or its journal has failed. `message` is stored as the reason.

        Returns whether the run was still running. Raises RunError if the run was interrupted, because its calls may
        have had effects that are not stored.
        """
        run = self._running.get(run_id)
        if run is None:
            status = await self.status(run_id)
            if status.phase == "interrupted":
                raise RunError(f"run {run_id!r} was interrupted: {_KILLED}")
            if not status.is_over:
                raise ConfigError(f"run {run_id!r} runs in another process; cancel it where it was started")
            return False
        await run.cancel(message)
        return True

    async def interrupt_unfinished(self) -> list[str]:
        """Mark the runs that a killed process left unfinished in the journal as interrupted, and return their ids.

        Call it when no other process runs any of them. They are not resumed.
        """
        ids = []
        for info in await self.journal.list(state="running"):
            if info.run not in self._running:
                event = Interrupted(_KILLED)
                with suppress(RunElsewhereError, UnknownRunError):  # it has just ended, or was deleted
                    await self.journal.append(
                        info.run, info.length, [to_json(event)], summary=info.summary.after(event)
                    )
                    ids.append(info.run)
        return ids

    async def aclose(self, *, message: str | None = None) -> None:
        """Cancel the runs and wait until they are stored. `message` is stored as the reason."""
        self._closed = True
        await close_all([run.cancel(message) for run in tuple(self._running.values())])

    async def _events(self, run_id: str, number: int) -> NumberedEvents:
        """Read the events of a run from the journal, page by page. Meanwhile a run of this process is not evicted."""
        run = self._find(run_id)
        is_unfinished = False
        if run is None:
            is_unfinished = (await self.journal.get(run_id)).summary.state == "running"
        else:
            run.subscribers += 1
        try:
            while run is None or await run.wait_stored(number):
                page = await self.journal.read(run_id, number, _PAGE_EVENTS)
                if not page:
                    break
                for stored_number, document in page:
                    yield stored_number, from_json(document, "event")
                number += len(page)
                await asyncio.sleep(0)  # other tasks run while a long run is read
        finally:
            if run is not None:
                run.subscribers -= 1
        if is_unfinished:
            raise RunError(f"run {run_id!r} does not run in this process, and has not ended; was its process killed?")

    def _find(self, run_id: str) -> BackgroundRun | None:
        """Return a run that this process runs, or one of the last that ended in it."""
        check_text(run_id, "run_id")
        return self._running.get(run_id) or self._ended.get(run_id)

    def _retire(self, run: BackgroundRun) -> None:
        """Keep a run that has ended, and evict the oldest ones if there are too many."""
        del self._running[run.id]
        if isinstance(run.journal_error, RunExistsError):  # the id refers to the stored run
            self._id_conflicts[run.id] = run.journal_error
            if len(self._id_conflicts) > MAX_RUNS:
                del self._id_conflicts[next(iter(self._id_conflicts))]
            return
        self._ended[run.id] = run
        self._ended_bytes += run.size
        for ended in [*self._ended.values()]:
            if len(self._ended) <= MAX_RUNS and self._ended_bytes <= MAX_BYTES:
                return
            if not ended.subscribers and ended is not run:
                del self._ended[ended.id]
                self._ended_bytes -= ended.size
                self._memory.drop(ended.id)
