"""Runs by id: subscribers, replay, stopping, status; over a journal in memory and one in a file."""

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from midspan import Agent, tool
from midspan.errors import ConfigError, JournalError, LimitReached, RunError, ServerError
from midspan.loop.state import RunState
from midspan.loop.streams import Phase, Streams
from midspan.storage.journal import Journal
from midspan.storage.memory import MemoryJournal
from midspan.storage.sqlite import SqliteJournal
from midspan.testing import ScriptedProvider
from midspan.types.codec import to_json
from midspan.types.events import ErrorInfo, RunEnd, RunEvent, RunStart, TextDelta, ToolEnd, TurnStart
from midspan.types.exchange import Usage
from midspan.types.messages import History, Message
from midspan.types.parts import Text, ToolCall
from midspan.types.specs import Limits
from tests.bounds import BOUND

MakeJournal = Callable[[], Journal]


@pytest.fixture(params=["memory", "sqlite"])
def make_journal(request: pytest.FixtureRequest, tmp_path: Path) -> MakeJournal:
    return MemoryJournal if request.param == "memory" else lambda: SqliteJournal(tmp_path / "journal.db")


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    await asyncio.sleep(0)
    return a + b


def agent(*script: Any) -> Agent:
    turns = script or ([Text("Let me see."), ToolCall("1", "add", {"a": 1, "b": 2})], [Text("It is"), Text(" 3")])
    return Agent(ScriptedProvider(turns), tools=[add])


async def taken(streams: Streams, id: str, **options: Any) -> list[tuple[int, RunEvent]]:
    return [item async for item in streams.subscribe(id, **options)]


def run(main: Any) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(BOUND):
            return await main

    return asyncio.run(bounded())


def test_any_number_of_subscribers_see_the_same_from_any_event_on(make_journal: MakeJournal) -> None:
    async def main() -> None:
        journal = make_journal()
        async with Streams(agent(), journal) as streams:
            id = streams.start("1 + 2?")
            early = [asyncio.create_task(taken(streams, id)) for _ in range(5)]
            whole = await early[0]
            assert [await one for one in early] == [whole] * 5
            assert [number for number, _ in whole] == list(range(len(whole)))
            assert isinstance(whole[0][1], RunStart)
            assert isinstance(whole[-1][1], RunEnd)
            for begin in range(len(whole) + 1):
                assert await taken(streams, id, from_event=begin) == whole[begin:]
        await journal.close()

    run(main())


def test_the_final_view_is_the_text_of_the_final_answer_and_nothing_else(make_journal: MakeJournal) -> None:
    async def main() -> None:
        journal = make_journal()
        async with Streams(agent(), journal) as streams:
            id = streams.start("1 + 2?")
            final = await taken(streams, id, view="final")
            assert [event for _, event in final] == [TextDelta(2, "It is"), TextDelta(2, " 3")]
            assert await taken(streams, id, view="final", from_event=final[1][0]) == final[1:]
        await journal.close()

    run(main())


@pytest.mark.requirement("S4-10")
def test_the_status_tells_the_phase() -> None:
    phases = []

    async def main() -> None:
        gate = asyncio.Event()

        @tool
        async def wait() -> str:
            await gate.wait()
            return "ok"

        async def model(request: Any) -> Any:
            phases.append((await streams.status("a")).phase)
            return Text("done") if len(request.history) > 1 else ToolCall("1", "wait", {})

        async with Streams(Agent(ScriptedProvider([model, model]), tools=[wait])) as streams:
            streams.start("go", run_id="a")
            async for _, event in streams.subscribe("a"):
                if type(event).__name__ == "ToolStart":
                    phases.append((await streams.status("a")).phase)
                    gate.set()
            status = await streams.status("a")
            assert (status.phase, status.turn, status.ended, status.error) == (Phase.COMPLETED, 2, True, None)

    run(main())
    assert phases == [Phase.AWAITING_MODEL_CALL, Phase.EXECUTING_TOOLS, Phase.AWAITING_FINAL_RESPONSE]


def test_a_stopped_run_ends_for_all_who_watch_it(make_journal: MakeJournal) -> None:
    async def main() -> None:
        started, ended = asyncio.Event(), []

        @tool
        async def hang() -> None:
            started.set()
            try:
                await asyncio.sleep(60)
            finally:
                ended.append(True)

        journal = make_journal()
        script = ScriptedProvider([[ToolCall("1", "hang", {})]])
        async with Streams(Agent(script, tools=[hang]), journal) as streams:
            id = streams.start("go")
            watcher = asyncio.create_task(taken(streams, id))
            await started.wait()
            assert await streams.stop(id)
            assert ended == [True]
            *_, (_, last), (_, end) = await watcher
            assert isinstance(last, ToolEnd)
            assert (last.result.id, last.result.is_error) == ("1", True)
            assert last.result.value.startswith("hang was cancelled before it ended")
            assert isinstance(end, RunEnd)
            assert end.error is not None
            assert end.error.kind == "cancelled"
            assert (await streams.status(id)).phase is Phase.STOPPED
            assert not await streams.stop(id)
            with pytest.raises(RunError, match="cancelled"):
                await taken(streams, id, view="final")
        await journal.close()

    run(main())


def test_an_error_of_the_run_is_told_to_those_who_watch_it() -> None:
    async def main() -> None:
        async with Streams(Agent(ScriptedProvider([RuntimeError("broken")]))) as streams:
            id = streams.start("go")
            end = (await taken(streams, id))[-1][1]
            assert isinstance(end, RunEnd)
            assert end.error is not None
            assert (end.error.kind, end.error.message) == ("ProviderError", "the model failed: RuntimeError: broken")
            status = await streams.status(id)
            assert (status.phase, status.error) == (
                Phase.ERROR,
                "ProviderError: the model failed: RuntimeError: broken",
            )

    run(main())


@pytest.mark.requirement("S4-16")
def test_a_subscriber_that_takes_nothing_neither_blocks_the_run_nor_holds_events() -> None:
    async def main() -> None:
        journal = MemoryJournal()
        script = [[Text("x")] * 5_000]
        async with Streams(Agent(ScriptedProvider(script)), journal) as streams:
            id = streams.start("go")
            slow = streams.subscribe(id)
            await anext(slow)
            whole = await taken(streams, id)
            assert len(whole) == 5_004
            assert [whole[0], *[item async for item in slow]] == whole

    run(main())


def test_a_subscriber_far_behind_still_sees_the_end_of_streams_that_were_closed() -> None:
    async def main() -> None:
        streams = Streams(Agent(ScriptedProvider([[Text("x")] * 5_000])))
        id = streams.start("go")
        behind = streams.subscribe(id)
        await anext(behind)
        whole = await taken(streams, id)
        await streams.close()
        assert [whole[0], *[item async for item in behind]] == whole

    run(main())


def test_closing_cancels_what_was_started_and_leaves_no_task_behind() -> None:
    async def main() -> None:
        async def hang(_: Any) -> Any:
            await asyncio.sleep(60)

        streams = Streams(Agent(ScriptedProvider(hang)))
        for _ in range(50):
            streams.start("go")
        await asyncio.sleep(0.01)
        await streams.close()
        assert len(asyncio.all_tasks()) == 1
        with pytest.raises(ConfigError, match="closed"):
            streams.start("go")

    run(main())


def test_what_is_wrong_is_told_at_once() -> None:
    async def main() -> None:
        async with Streams(agent()) as streams:
            with pytest.raises(ConfigError, match="nothing to ask"):
                streams.start()
            with pytest.raises(ConfigError, match="unknown run 'x'"):
                await streams.status("x")
            with pytest.raises(ConfigError, match="unknown run 'x'"):
                await taken(streams, "x")
            id = streams.start("go")
            with pytest.raises(ConfigError, match="going on already"):
                streams.start("go", run_id=id)
            with pytest.raises(ConfigError, match="unknown view"):
                await taken(streams, id, view="some")

    run(main())


def test_a_run_that_ended_is_still_there_for_the_next_process(tmp_path: Path) -> None:
    async def first() -> list[tuple[int, RunEvent]]:
        journal = SqliteJournal(tmp_path / "journal.db")
        async with Streams(agent(), journal) as streams:
            events = await taken(streams, streams.start("1 + 2?", run_id="mine"))
        await journal.close()
        return events

    async def second() -> list[tuple[int, RunEvent]]:
        journal = SqliteJournal(tmp_path / "journal.db")
        async with Streams(agent(), journal) as streams:
            events = await taken(streams, "mine")
            assert (await streams.status("mine")).phase is Phase.COMPLETED
        await journal.close()
        return events

    assert run(first()) == run(second())


@pytest.mark.requirement("S4-15")
def test_many_runs_at_once_do_not_mix() -> None:
    async def main() -> None:
        async def model(request: Any) -> Any:
            await asyncio.sleep(0)
            return [Text(request.history[0].text)]

        async with Streams(Agent(ScriptedProvider(model))) as streams:
            ids = [streams.start(f"question {number}") for number in range(200)]
            texts = await asyncio.gather(*(taken(streams, id, view="final") for id in ids))
            assert ["".join(event.text for _, event in text) for text in texts] == [f"question {n}" for n in range(200)]

    run(main())


class SlowJournal(MemoryJournal):
    """Holds appends back until the gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.asked = asyncio.Event()

    async def append(self, run: str, expected_seq: int, events: Sequence[bytes], *, end: bool = False) -> int:
        self.asked.set()
        await self.gate.wait()
        return await super().append(run, expected_seq, events, end=end)


class FailingJournal(MemoryJournal):
    """Takes so many appends."""

    def __init__(self, appends: int) -> None:
        super().__init__()
        self._left = appends

    async def append(self, run: str, expected_seq: int, events: Sequence[bytes], *, end: bool = False) -> int:
        if not self._left:
            raise OSError(28, "No space left on device")
        self._left -= 1
        return await super().append(run, expected_seq, events, end=end)


async def hang(_: Any) -> Any:
    await asyncio.Event().wait()


def hanging() -> Agent:
    return Agent(ScriptedProvider(hang))


def folded(events: Iterable[tuple[int, RunEvent]]) -> RunState:
    state = RunState.of(History())
    for _, event in events:
        state = RunState.of(History(event.messages)) if isinstance(event, RunStart) else state.after(event)
    return state


async def no_task_left() -> bool:
    await asyncio.sleep(0)
    return len(asyncio.all_tasks()) == 1


def test_a_run_that_is_stopped_before_it_could_begin_ends_all_the_same(make_journal: MakeJournal) -> None:
    async def main() -> None:
        journal = make_journal()
        async with Streams(agent(), journal) as streams:
            id = streams.start("q")
            watcher = asyncio.ensure_future(taken(streams, id))
            assert await streams.stop(id)
            start, end = [event for _, event in await watcher]
            assert start == RunStart(id, "scripted", (Message.user("q"),))
            assert isinstance(end, RunEnd)
            assert end.error == ErrorInfo("cancelled", "the run was stopped")
            assert (await streams.status(id)).phase is Phase.STOPPED
        await journal.close()

    run(main())


def test_an_id_that_was_used_is_refused_at_once() -> None:
    async def main() -> None:
        journal = MemoryJournal()
        async with Streams(agent(), journal) as streams:
            await taken(streams, streams.start("1 + 2?", run_id="mine"))
            with pytest.raises(ConfigError, match=r"'mine' .* another run_id"):
                streams.start("something else", run_id="mine")
        async with Streams(agent(), journal) as others:
            with pytest.raises(ConfigError, match=r"'mine' .* another run_id"):
                others.start("something else", run_id="mine")

    run(main())


def test_an_id_of_another_process_fails_visibly_and_nothing_is_asked(tmp_path: Path) -> None:
    async def main() -> None:
        journal = SqliteJournal(tmp_path / "journal.db")
        async with Streams(agent(), journal) as streams:
            old = await taken(streams, streams.start("1 + 2?", run_id="mine"))
        script = ScriptedProvider([[Text("new")]])
        async with Streams(Agent(script), journal) as streams:
            id = streams.start("something else", run_id="mine")
            for view in ("all", "final"):
                with pytest.raises(JournalError, match="'mine' is in the journal already"):
                    await taken(streams, id, view=view)
            status = await streams.status(id)
            assert (status.phase, "in the journal already" in str(status.error)) == (Phase.ERROR, True)
            assert not script.requests
        async with Streams(agent(), journal) as streams:
            assert await taken(streams, "mine") == old
        await journal.close()

    run(main())


@pytest.mark.parametrize("appends", [0, 1])
def test_a_journal_that_fails_ends_the_run_and_tells_all_who_wait(appends: int) -> None:
    async def main() -> None:
        async with Streams(hanging(), FailingJournal(appends)) as streams:
            id = streams.start("go")
            watchers = [asyncio.create_task(taken(streams, id, view=view)) for view in ("all", "final")]
            for watcher in watchers:
                with pytest.raises(JournalError, match="No space left on device"):
                    await watcher
            status = await streams.status(id)
            assert status.phase is Phase.ERROR
            assert "No space left on device" in str(status.error)
            with pytest.raises(JournalError):
                await taken(streams, id)
        assert await no_task_left()

    run(main())


def test_an_end_that_cannot_be_written_is_an_error_and_no_silence() -> None:
    async def main() -> None:
        async with Streams(Agent(ScriptedProvider([[Text("x")]])), FailingJournal(1)) as streams:
            id = streams.start("go")
            with pytest.raises(JournalError, match="No space left") as caught:
                await taken(streams, id, view="final")
            await streams.stop(id)
            assert (await streams.status(id)).phase is Phase.ERROR
            with pytest.raises(JournalError) as caught:
                await taken(streams, id)
            assert caught.value.transcript is not None
            assert [message.text for message in caught.value.transcript] == ["go", "x"]

    run(main())


def test_a_run_that_nobody_here_drives_is_waited_for_only_so_long(make_journal: MakeJournal) -> None:
    async def main() -> None:
        journal = make_journal()
        begun: list[RunEvent] = [RunStart("old", "m", (Message.user("q"),)), TurnStart(1)]
        await journal.append("old", 0, [to_json(event) for event in begun])
        async with Streams(agent(), journal) as streams:
            status = await streams.status("old")
            assert (status.elsewhere, status.ended) == (True, False)
            watching = streams.subscribe("old", patience_seconds=0.0)
            assert [await anext(watching) for _ in begun] == list(enumerate(begun))
            with pytest.raises(RunError, match="not driven here"):
                await anext(watching)
            with pytest.raises(ConfigError, match="not driven here"):
                await streams.stop("old")
            watcher = asyncio.create_task(taken(streams, "old", from_event=1))
            end = RunEnd("old", "a", Usage(), 1)
            await journal.append("old", 2, [to_json(end)], end=True)
            assert await watcher == [(1, begun[1]), (2, end)]
            assert not (await streams.status("old")).elsewhere
        await journal.close()

    run(main())


@pytest.mark.parametrize("second", ["stop", "close"])
def test_stopping_twice_waits_for_a_slow_journal_and_loses_nothing(second: str) -> None:
    async def main() -> None:
        journal = SlowJournal()
        streams = Streams(hanging(), journal)
        id = streams.start("go")
        await journal.asked.wait()
        first = asyncio.create_task(streams.stop(id))
        await asyncio.sleep(0)
        again: asyncio.Task[Any] = asyncio.create_task(streams.stop(id) if second == "stop" else streams.close())
        await asyncio.sleep(0)
        assert not first.done()
        assert not again.done()
        journal.gate.set()
        await asyncio.gather(first, again)
        await streams.close()
        assert await no_task_left()
        [info] = await journal.list()
        assert info.ended

    run(main())


def test_a_program_that_ends_without_closing_leaves_whole_runs_behind(tmp_path: Path) -> None:
    async def first() -> None:
        streams = Streams(hanging(), SqliteJournal(tmp_path / "journal.db"))
        kept.append(streams)
        id = streams.start("go", run_id="a")
        await anext(streams.subscribe(id))

    async def second() -> None:
        journal = SqliteJournal(tmp_path / "journal.db")
        async with Streams(agent(), journal) as streams:
            assert (await streams.status("a")).phase is Phase.STOPPED
        await journal.close()

    kept: list[Streams] = []
    run(first())
    run(second())


def test_the_error_of_the_final_view_has_the_transcript_and_the_kind_of_the_fault() -> None:
    async def main() -> None:
        call = [ToolCall("1", "add", {"a": 1, "b": 2})]
        async with Streams(agent(call, call, call)) as streams:
            id = streams.start("go", limits=Limits(max_turns=1))
            with pytest.raises(LimitReached, match="turns exceeded") as limited:
                await taken(streams, id, view="final")
            assert (limited.value.limit, limited.value.kind) == ("max_turns", "LimitReached")
            assert limited.value.transcript is not None
            assert [message.role for message in limited.value.transcript] == ["user", "model", "user"]
        async with Streams(Agent(ScriptedProvider([ServerError("broken")]))) as streams:
            id = streams.start("go")
            with pytest.raises(ServerError, match="broken") as broken:
                await taken(streams, id, view="final")
            assert (broken.value.kind, list(broken.value.transcript or ())) == ("ServerError", [Message.user("go")])

    run(main())


def test_the_journal_of_a_run_without_an_answer_folds_to_a_history_that_can_go_on(make_journal: MakeJournal) -> None:
    async def main() -> None:
        started = asyncio.Event()

        @tool
        async def stay() -> None:
            started.set()
            await asyncio.Event().wait()

        calls = [ToolCall("1", "stay", {}), ToolCall("2", "add", {"a": 1, "b": 2})]
        journal = make_journal()
        async with Streams(Agent(ScriptedProvider([calls, calls]), tools=[stay, add]), journal) as streams:
            id = streams.start("go")
            await started.wait()
            await streams.stop(id)
            stopped = folded(await taken(streams, id))
            limited = folded(await taken(streams, streams.start("go", limits=Limits(max_turns=1))))
        await journal.close()
        for state in (stopped, limited):
            assert state.waiting == ()
            assert [result.id for result in state.history[-1].results] == ["1", "2"]

    run(main())


@pytest.mark.parametrize("from_event", ["x", None, -1, True, 1.5])
@pytest.mark.parametrize("view", ["all", "final"])
def test_a_number_that_no_event_has_is_refused_in_both_views(from_event: Any, view: str) -> None:
    async def main() -> None:
        async with Streams(agent()) as streams:
            id = streams.start("go")
            with pytest.raises(ConfigError, match="numbered from 0"):
                await taken(streams, id, from_event=from_event, view=view)

    run(main())


def test_what_streams_cannot_be_made_of_is_told_in_words() -> None:
    async def main() -> None:
        wrong: Any = "runs.db"
        with pytest.raises(ConfigError, match=r"SqliteJournal\('runs.db'\)"):
            Streams(agent(), wrong)
        with pytest.raises(ConfigError, match=r"an Agent, not 'runs\.db'"):
            Streams(wrong)
        async with Streams() as streams:
            with pytest.raises(ConfigError, match=r"an Agent, not 'runs\.db'"):
                streams.start("go", agent=wrong)
            for id in (5, "", "\ud800"):
                with pytest.raises(ConfigError, match="the name of a run"):
                    streams.start("go", agent=agent(), run_id=id)  # type: ignore[arg-type]  # that is the point
            for ask in (streams.status, streams.stop):
                with pytest.raises(ConfigError, match="the name of a run"):
                    await ask([])  # type: ignore[arg-type]  # that is the point
            id = streams.start("go", agent=agent())
            with pytest.raises(ConfigError, match="patience_seconds"):
                await taken(streams, id, patience_seconds="x")

    run(main())


def test_starting_outside_an_event_loop_is_told_and_leaves_nothing() -> None:
    streams = Streams(agent())
    with pytest.raises(ConfigError, match="no event loop"):
        streams.start("go", run_id="a")

    async def main() -> None:
        with pytest.raises(ConfigError, match="unknown run 'a'"):
            await streams.status("a")
        await streams.close()

    run(main())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("ending", ["stop", "close"])
def test_a_run_whose_event_loop_was_closed_is_ended_from_another_one(ending: str) -> None:
    journal = MemoryJournal()
    streams = Streams(hanging(), journal)
    loop = asyncio.new_event_loop()

    async def begin() -> None:
        streams.start("go", run_id="a")
        await anext(streams.subscribe("a"))

    loop.run_until_complete(begin())

    async def too_early() -> None:
        with pytest.raises(ConfigError, match="does not run"):
            await streams.stop("a")

    run(too_early())
    loop.close()

    async def main() -> None:
        if ending == "stop":
            assert await streams.stop("a")
        await streams.close()
        async with Streams(agent(), journal) as others:
            events = await taken(others, "a")
        end = events[-1][1]
        assert isinstance(end, RunEnd)
        assert end.error is not None
        assert end.error.kind == "cancelled"

    run(main())


def test_subscribers_and_stops_may_be_in_other_event_loops() -> None:
    ready, ended = threading.Event(), threading.Event()
    streams = Streams(hanging())

    async def drive() -> None:
        streams.start("go", run_id="a")
        ready.set()
        await asyncio.to_thread(ended.wait, 5)

    async def main() -> None:
        watcher = asyncio.create_task(taken(streams, "a"))
        assert await streams.stop("a")
        assert isinstance((await watcher)[-1][1], RunEnd)

    thread = threading.Thread(target=lambda: run(drive()))
    thread.start()
    try:
        assert ready.wait(BOUND)
        run(main())
    finally:
        ended.set()
        thread.join(BOUND)


@pytest.mark.requirement("S4-15")
def test_a_thousand_runs_in_one_file_do_not_mix(tmp_path: Path) -> None:
    async def main() -> None:
        async def model(request: Any) -> Any:
            return [Text(request.history[0].text)]

        journal = SqliteJournal(tmp_path / "journal.db", synchronous="normal")
        async with Streams(Agent(ScriptedProvider(model)), journal) as streams:
            ids = [streams.start(f"question {number}") for number in range(1_000)]
            texts = await asyncio.gather(*(taken(streams, id, view="final") for id in ids))
            assert ["".join(event.text for _, event in text) for text in texts] == [
                f"question {number}" for number in range(1_000)
            ]
        await journal.close()

    run(main())


class Panic(BaseException):
    """What nobody catches by mistake."""


@pytest.mark.parametrize("kind", [Panic, GeneratorExit])
def test_whatever_a_provider_raises_the_run_has_an_end(kind: type[BaseException]) -> None:
    async def panics(_: Any) -> Any:
        raise kind("now")

    async def main() -> None:
        async with Streams(Agent(ScriptedProvider([panics]))) as streams:
            id = streams.start("?")
            assert [type(event).__name__ for _, event in await taken(streams, id)][-1] == "RunEnd"
            assert (await streams.status(id)).phase is Phase.ERROR
            with pytest.raises(RunError, match=kind.__name__):
                await taken(streams, id, view="final")

    run(main())


@pytest.mark.parametrize("kind", [Panic, asyncio.CancelledError])
def test_whatever_a_journal_raises_ends_the_run(kind: type[BaseException]) -> None:
    class Broken(MemoryJournal):
        async def append(self, *_: Any, **__: Any) -> int:
            raise kind("now")

    async def main() -> None:
        async with Streams(agent("hello"), Broken()) as streams:
            id = streams.start("?")
            with pytest.raises(JournalError):
                await taken(streams, id)

    run(main())
