"""Background runs by id: started once, subscribed to any number of times from any event on, cancelled by anyone.

Every event is stored in a journal, and subscribers read it there by number. A slow subscriber blocks nobody, a late one
misses nothing, and a run can still be read after its end.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Literal, Self

from msgspec.structs import replace

from midspan import errors
from midspan._loop.agent import Agent, new_run_id
from midspan._loop.background import BackgroundRun
from midspan._loop.background import Phase as Phase
from midspan._loop.background import RunStatus as RunStatus
from midspan._loop.prompt import Prompt
from midspan._storage.journal import Journal, check_run
from midspan._storage.memory import MemoryJournal
from midspan._types.codec import from_json
from midspan._types.events import (
    ErrorInfo,
    RunEnd,
    RunEvent,
    RunStart,
    TextDelta,
    ToolStart,
    TurnEnd,
    TurnRetry,
    TurnStart,
)
from midspan._types.exchange import FinishReason
from midspan._types.messages import History
from midspan._types.run_state import RunState
from midspan.errors import (
    ConfigError,
    JournalError,
    LimitReached,
    MidspanError,
    ProviderError,
    RunError,
    RunExists,
)

View = Literal["all", "final"]
NumberedEvents = AsyncGenerator[tuple[int, RunEvent], None]

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
        _check_loop()
        id = new_run_id() if run_id is None else run_id
        self._check_unused(id)
        agent = self._agent if agent is None else _checked_agent(agent)
        if agent is None:
            raise ConfigError("no agent given; pass one to BackgroundRuns(agent) or start(agent=…)")
        stream = agent.stream(prompt, run_id=id, **options)
        model = agent.model if options.get("model") is None else agent.replace(model=options["model"]).model
        start = RunStart(id, model.model, stream.messages.messages)
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
        _check_number(from_event)
        _check_timeout(silence_timeout)
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
        return None if run is None or _is_stored(run) else run

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
        self._past[run.id] = None if _is_stored(run) else run
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


async def final_text(events: NumberedEvents) -> AsyncGenerator[tuple[int, TextDelta | TurnRetry], None]:
    """Yield the text of the final answer from numbered events. Raises the error of a run that has no answer.

    Text of a turn in which the model cannot make calls is passed on as it comes. Other text is held back until the run
    has ended, because a call may follow. If text that was passed on turns out not to be the answer (its stream was cut
    and the model is asked again), a TurnRetry says that the text starts anew.
    """
    passed = ""
    held: list[tuple[int, TextDelta]] = []
    is_answer = continues = False
    state = RunState.of(History())
    async with aclosing(events):
        async for number, event in events:
            if type(event) is TextDelta:
                if is_answer:
                    passed += event.text
                    yield number, event
                else:
                    held.append((number, event))
                continue
            state = state.after(event)
            match event:
                case TurnStart():
                    is_answer = event.answer_only
                case TurnEnd():
                    continues = event.finish_reason is FinishReason.CONTINUES
                case ToolStart() | TurnRetry() if not (continues and isinstance(event, TurnRetry)):
                    held.clear()
                    if passed:
                        passed = ""
                        yield number, event if isinstance(event, TurnRetry) else TurnRetry(event.turn, _CALL)
                case RunEnd(error=ErrorInfo() as info):
                    raise error_of(info, event.limit, state)
                case RunEnd():
                    for item in _last_text(passed, held, number, event):
                        yield item
                    return
    raise RunError("the events of the run have no RunEnd")


_CALL = "the model made a call, so its text was not the answer"
_OTHER_TEXT = "the run ended with another text"


def _last_text(
    passed: str, held: list[tuple[int, TextDelta]], number: int, end: RunEnd
) -> list[tuple[int, TextDelta | TurnRetry]]:
    """Return what is left of the answer when the run has ended; the text may be that of a tool or a limit."""
    if passed + "".join(delta.text for _, delta in held) == end.text:
        return [*held]
    if not end.text.startswith(passed):
        return [(number, TurnRetry(end.turns, _OTHER_TEXT)), *_last_text("", [], number, end)]
    rest = end.text[len(passed) :]
    return [(number, TextDelta(end.turns, rest))] if rest else []


def error_of(info: ErrorInfo, limit: str | None, state: RunState) -> MidspanError:
    """Return the exception for a stored error, of the same class if it is one of ours."""
    kind = getattr(errors, info.kind, None)
    error: MidspanError
    if kind is LimitReached:
        error = LimitReached(info.message, limit or "max_turns")
    elif isinstance(kind, type) and issubclass(kind, RunError | ConfigError | ProviderError):
        error = kind(info.message)
    else:
        error = RunError(f"the run ended without an answer: {info.kind}: {info.message}")
    error.kind = info.kind
    error.transcript = state.history
    return error


def _deleted(id: str) -> JournalError:
    return JournalError(f"run {id!r} was deleted from the journal, so the rest of it cannot be read")


def _is_stored(run: BackgroundRun) -> bool:
    """Whether the run has ended and is completely in the journal."""
    return run.is_over and run.written > 0 and not run.has_journal_failed


def _checked_agent(agent: Any) -> Agent:
    if not isinstance(agent, Agent):
        raise ConfigError(f"expected an Agent, got {agent!r}")
    return agent


def _checked_journal(journal: Any) -> Journal:
    if isinstance(journal, type) or not isinstance(journal, Journal):
        hint = f"; for a file, pass SqliteJournal({journal!r})" if isinstance(journal, str) else ""
        raise ConfigError(f"expected a journal such as MemoryJournal(), got {journal!r}{hint}")
    return journal


def _check_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise ConfigError("no running event loop; start background runs from async code, inside asyncio.run") from None


def _check_number(from_event: Any) -> None:
    if not isinstance(from_event, int) or isinstance(from_event, bool) or from_event < 0:
        raise ConfigError(f"events are numbered from 0; from_event must not be {from_event!r}")


def _check_timeout(seconds: Any) -> None:
    if seconds is not None and (not isinstance(seconds, int | float) or isinstance(seconds, bool) or not seconds >= 0):
        raise ConfigError(f"silence_timeout must be a number of seconds from 0 or None, got {seconds!r}")
