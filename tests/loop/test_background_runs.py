"""Background runs: subscribers, replay, cancellation, status; with a journal in memory and in a file."""

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from midspan import Agent, tool
from midspan._loop.background_runs import MAX_BYTES, MAX_RUNS, BackgroundRuns
from midspan._storage.journal import Journal, RunSummary
from midspan._storage.memory import MemoryJournal
from midspan._storage.sqlite import SqliteJournal
from midspan._types.codec import from_json, to_json
from midspan._types.context import RunContext
from midspan._types.events import (
    ErrorInfo,
    Interrupted,
    RunEnd,
    RunEvent,
    RunStart,
    TextDelta,
    ToolEnd,
    ToolProgress,
    ToolStart,
    TurnEnd,
    TurnRetry,
    TurnStart,
)
from midspan._types.exchange import FinishReason, ModelResponse, Usage
from midspan._types.messages import Message
from midspan._types.parts import Text, ToolCall, ToolResult
from midspan._types.run_state import RunState
from midspan._types.specs import Limits, ToolSpec
from midspan.errors import (
    CodecError,
    ConfigError,
    IncompleteResponseError,
    JournalError,
    LimitReachedError,
    RunElsewhereError,
    RunError,
    RunExistsError,
    ServerError,
    UnknownRunError,
)
from midspan.testing import ScriptedProvider
from midspan.tools.source import ToolListing, ToolSource
from tests.bounds import BOUND, MANY, PATIENT_PROGRAM
from tests.streaming import PartsProvider

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


def test_start_without_a_running_event_loop_is_an_error_that_says_what_to_do() -> None:
    provider = ScriptedProvider(["hi"])
    runs = BackgroundRuns(Agent(provider))
    with pytest.raises(ConfigError, match="needs a running event loop; call it in a coroutine"):
        runs.start("?", run_id="a")

    async def main() -> str:
        return (await runs.result(runs.start("?", run_id="a"))).text

    assert asyncio.run(main()) == "hi"
    assert len(provider.requests) == 1


def test_call_that_the_journal_could_not_read_again_is_not_run(make_journal: MakeJournal) -> None:
    called: list[int] = []
    call = ToolCall(3, "append", {"number": 1})  # type: ignore[arg-type]

    def append(number: int) -> None:
        """Append."""
        called.append(number)

    async def main() -> list[type[RunEvent]]:
        async with BackgroundRuns(Agent(ScriptedProvider([[call], "hi"]), tools=[append]), make_journal()) as runs:
            id = runs.start("?")
            with pytest.raises(CodecError, match="the id of a ToolCall of 'append' must be a string, got 3"):
                await runs.result(id)
            return [type(event) for _, event in await taken(runs, id)]

    assert asyncio.run(main()) == [RunStart, TurnStart, RunEnd]
    assert called == []


def test_tool_that_reports_after_its_run_has_ended_adds_no_event(make_journal: MakeJournal) -> None:
    reporters: list[asyncio.Task[None]] = []

    @tool
    async def start(context: RunContext[Any]) -> str:
        """Start something that reports for ever."""

        async def report() -> None:
            while True:
                context.progress(0.5)
                await asyncio.sleep(0)

        reporters.append(asyncio.create_task(report()))
        return "started"

    async def main() -> tuple[list[RunEvent], str]:
        reporter = Agent(ScriptedProvider([ToolCall("1", "start"), "done"]), [start])
        async with BackgroundRuns(reporter, make_journal()) as runs:
            id = runs.start("?")
            events = [event for _, event in await taken(runs, id)]
            for _ in range(100):
                await asyncio.sleep(0)
            reporters[0].cancel()
            return events, (await runs.result(id)).text

    events, text = asyncio.run(main())
    assert isinstance(events[-1], RunEnd)
    assert text == "done"


def test_progress_of_any_text_is_stored() -> None:
    @tool
    async def read(context: RunContext[Any]) -> None:
        """Read a file whose name is not Unicode."""
        context.progress(0.5, "caf\udce9.txt")

    async def main() -> list[str | None]:
        async with BackgroundRuns(Agent(ScriptedProvider([ToolCall("1", "read"), "done"]), [read])) as runs:
            events = await taken(runs, runs.start("?"))
            return [event.message for _, event in events if isinstance(event, ToolProgress)]

    assert asyncio.run(main()) == ["caf\ufffd.txt"]


def test_result_of_a_source_that_cannot_be_stored_is_an_error_result() -> None:
    class Source(ToolSource):
        async def list_tools(self) -> ToolListing:
            return ToolListing((ToolSpec("look"),))

        async def call(self, call: ToolCall, context: RunContext[Any]) -> ToolResult:
            return ToolResult(call.id, call.name, "x", meta={"at": object()})

    async def main() -> ToolResult:
        async with BackgroundRuns(Agent(ScriptedProvider([ToolCall("1", "look"), "done"]), Source())) as runs:
            return (await runs.result(runs.start("?"))).tool_calls[0].result

    result = asyncio.run(main())
    assert result.is_error
    assert "look failed: TypeError" in result.value


async def taken(runs: BackgroundRuns, id: str, **options: Any) -> list[tuple[int, RunEvent]]:
    return [item async for item in runs.subscribe(id, **options)]


def run(main: Any) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(BOUND):
            return await main

    return asyncio.run(bounded())


def test_all_subscribers_see_the_same_events_from_any_number_on(make_journal: MakeJournal) -> None:
    async def main() -> None:
        journal = make_journal()
        async with BackgroundRuns(agent(), journal) as runs:
            id = runs.start("1 + 2?")
            early = [asyncio.create_task(taken(runs, id)) for _ in range(5)]
            whole = await early[0]
            assert [await subscriber for subscriber in early] == [whole] * 5
            assert await taken(BackgroundRuns(journal=journal), id) == whole  # as in another process
            assert [number for number, _ in whole] == list(range(len(whole)))
            assert isinstance(whole[0][1], RunStart)
            assert isinstance(whole[-1][1], RunEnd)
            for reader in (runs, BackgroundRuns(journal=journal)):
                assert (await reader.status(id)).events == len(whole)
            for begin in range(len(whole) + 1):
                assert await taken(runs, id, from_event=begin) == whole[begin:]
        await journal.aclose()

    run(main())


def test_subscriber_of_a_deleted_run_gets_an_error(make_journal: MakeJournal) -> None:
    async def main() -> None:
        journal = make_journal()
        async with BackgroundRuns(agent(), journal) as runs:
            id = runs.start("1 + 2?")
            await runs.result(id)
            await journal.delete(id)
            for reader in (runs, BackgroundRuns(journal=journal)):
                with pytest.raises(UnknownRunError, match="unknown run"):
                    await taken(reader, id)
        await journal.aclose()

    run(main())


def test_final_view_has_only_the_text_of_the_final_answer(make_journal: MakeJournal) -> None:
    async def main() -> None:
        journal = make_journal()
        async with BackgroundRuns(agent(), journal) as runs:
            id = runs.start("1 + 2?")
            final = await taken(runs, id, view="final")
            assert [event for _, event in final] == [TextDelta(2, "It is 3")]
            assert await taken(runs, id, view="final", from_event=final[0][0]) == final
            assert await taken(runs, id, view="final", from_event=final[0][0] + 1) == []
        await journal.aclose()

    run(main())


@pytest.mark.requirement("S4-10")
def test_status_has_the_phase_of_the_run() -> None:
    phases = []

    async def main() -> None:
        gate = asyncio.Event()

        @tool
        async def wait() -> str:
            await gate.wait()
            return "ok"

        async def model(request: Any) -> Any:
            phases.append((await runs.status("a")).phase)
            return Text("done") if len(request.history) > 1 else ToolCall("1", "wait", {})

        async with BackgroundRuns(Agent(ScriptedProvider([model, model]), tools=[wait])) as runs:
            runs.start("go", run_id="a")
            async for _, event in runs.subscribe("a"):
                if type(event).__name__ == "ToolStart":
                    phases.append((await runs.status("a")).phase)
                    gate.set()
            status = await runs.status("a")
            assert (status.phase, status.turn, status.is_over, status.error) == ("completed", 2, True, None)

    run(main())
    assert phases == ["awaiting_model_call", "executing_tools", "awaiting_final_response"]


def test_cancelled_run_ends_for_all_subscribers(make_journal: MakeJournal) -> None:
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
        async with BackgroundRuns(Agent(script, tools=[hang]), journal) as runs:
            id = runs.start("go")
            watcher = asyncio.create_task(taken(runs, id))
            await started.wait()
            assert await runs.cancel(id)
            assert ended == [True]
            *_, (_, last), (_, end) = await watcher
            assert isinstance(last, ToolEnd)
            assert (last.result.id, last.result.is_error) == ("1", True)
            assert last.result.value.startswith("hang was cancelled before it ended")
            assert isinstance(end, RunEnd)
            assert end.error is not None
            assert end.error.kind == "cancelled"
            assert (await runs.status(id)).phase == "cancelled"
            assert not await runs.cancel(id)
            with pytest.raises(RunError, match="cancelled"):
                await taken(runs, id, view="final")
        await journal.aclose()

    run(main())


def test_error_of_a_run_is_raised_to_its_subscribers() -> None:
    async def main() -> None:
        async with BackgroundRuns(Agent(ScriptedProvider([RuntimeError("broken")]))) as runs:
            id = runs.start("go")
            end = (await taken(runs, id))[-1][1]
            assert isinstance(end, RunEnd)
            assert end.error is not None
            assert (end.error.kind, end.error.message) == ("ProviderError", "the model failed: RuntimeError: broken")
            status = await runs.status(id)
            assert (status.phase, status.error) == (
                "failed",
                "ProviderError: the model failed: RuntimeError: broken",
            )

    run(main())


@pytest.mark.requirement("S4-16")
def test_slow_subscriber_blocks_neither_the_run_nor_others() -> None:
    async def main() -> None:
        journal = MemoryJournal()
        script = [[Text("x")] * 5_000]
        async with BackgroundRuns(Agent(ScriptedProvider(script)), journal) as runs:
            id = runs.start("go")
            slow = runs.subscribe(id)
            await anext(slow)
            whole = await taken(runs, id)
            assert len(whole) == 5_004
            assert [whole[0], *[item async for item in slow]] == whole

    run(main())


@pytest.mark.requirement("S4-16")
def test_only_the_last_thousand_runs_are_kept() -> None:
    async def main() -> None:
        async with BackgroundRuns(Agent(ScriptedProvider(lambda _: "done"))) as runs:
            first = runs.start("go", run_id="first")
            await taken(runs, first)
            for _ in range(10):
                ids = [runs.start("go") for _ in range(101)]
                await asyncio.gather(*(taken(runs, id) for id in ids))
            with pytest.raises(UnknownRunError):
                await runs.status(first)
            assert runs.start("go", run_id="first") == "first"
            assert (await runs.status(ids[-1])).phase == "completed"

    run(main())


@pytest.mark.requirement("S4-16")
def test_run_with_a_subscriber_is_kept_until_the_subscriber_has_read_it() -> None:
    async def main() -> None:
        script = ScriptedProvider(chain([[Text("x")] * 1_000], repeat("done")))
        async with BackgroundRuns(Agent(script)) as runs:
            slow = runs.subscribe(runs.start("go", run_id="slow"))
            seen = [await anext(slow)]
            await runs.result("slow")
            for number in range(MAX_RUNS + 10):
                await runs.result(runs.start("go", run_id=str(number)))
            kept = [info.run for info in await runs.journal.list()]
            assert len(kept) == MAX_RUNS
            assert kept[-2:] == ["11", "slow"]
            seen += [item async for item in slow]
            assert [number for number, _ in seen] == list(range(1_004))
            await runs.result(runs.start("go"))
            with pytest.raises(UnknownRunError):
                await runs.status("slow")

    run(main())


@pytest.mark.requirement("S4-12")
def test_background_run_takes_any_number_of_tool_rounds() -> None:
    async def main() -> None:
        rounds = [[Text(f"Round {n}."), ToolCall(str(n), "add", {"a": n, "b": 1})] for n in range(5)]
        async with BackgroundRuns(agent(*rounds, [Text("It is "), Text("5.")])) as runs:
            id = runs.start("go")
            assert "".join(event.text for _, event in await taken(runs, id, view="final")) == "It is 5."  # type: ignore[union-attr]
            events = [event for _, event in await taken(runs, id)]
            assert [event.result.value for event in events if isinstance(event, ToolEnd)] == [1, 2, 3, 4, 5]

    run(main())


def test_open_calls_of_a_cancelled_run_have_their_ends_in_the_journal(make_journal: MakeJournal) -> None:
    async def main() -> None:
        started = asyncio.Event()

        @tool
        async def stay() -> None:
            """Stay."""
            started.set()
            await asyncio.Event().wait()

        calls = [ToolCall("1", "add", {"a": 1, "b": 2}), ToolCall("2", "stay", {}), ToolCall("3", "stay", {})]
        runs = BackgroundRuns(Agent(ScriptedProvider([calls]), tools=[add, stay]), make_journal())
        id = runs.start("go")
        await started.wait()
        async for _, event in runs.subscribe(id):
            if isinstance(event, ToolEnd):
                break
        await runs.cancel(id)
        events = [event for _, event in await taken(runs, id)]
        starts = [event.index for event in events if isinstance(event, ToolStart)]
        ends = {event.index: event.result for event in events if isinstance(event, ToolEnd)}
        assert (starts, sorted(ends)) == ([0, 1, 2], [0, 1, 2])
        assert ends[0].value == 3
        assert all("was cancelled before it ended" in ends[index].value for index in (1, 2))
        assert isinstance(events[-1], RunEnd)
        await runs.aclose()

    run(main())


def test_slow_subscriber_sees_the_end_of_a_run_after_close() -> None:
    async def main() -> None:
        runs = BackgroundRuns(Agent(ScriptedProvider([[Text("x")] * 5_000])))
        id = runs.start("go")
        behind = runs.subscribe(id)
        await anext(behind)
        whole = await taken(runs, id)
        await runs.aclose()
        assert [whole[0], *[item async for item in behind]] == whole

    run(main())


def test_close_cancels_all_runs_and_leaves_no_task() -> None:
    async def main() -> None:
        async def hang(_: Any) -> Any:
            await asyncio.sleep(60)

        runs = BackgroundRuns(Agent(ScriptedProvider(hang)))
        for _ in range(50):
            runs.start("go")
        await asyncio.sleep(0.01)
        await runs.aclose()
        assert len(asyncio.all_tasks()) == 1
        with pytest.raises(ConfigError, match="closed"):
            runs.start("go")

    run(main())


def test_invalid_arguments_are_errors_at_once() -> None:
    async def main() -> None:
        async with BackgroundRuns(agent()) as runs:
            with pytest.raises(ConfigError, match="nothing to ask"):
                runs.start()
            with pytest.raises(ConfigError, match="run_id is empty"):
                runs.start("go", run_id="")
            with pytest.raises(ConfigError, match="run_id is not valid Unicode"):
                runs.start("go", run_id="half \ud800")
            with pytest.raises(UnknownRunError, match="unknown run 'x'"):
                await runs.status("x")
            with pytest.raises(UnknownRunError, match="unknown run 'x'"):
                await runs.result("x")
            with pytest.raises(UnknownRunError, match="unknown run 'x'"):
                await taken(runs, "x")
            id = runs.start("go")
            with pytest.raises(RunExistsError, match="already used"):
                runs.start("go", run_id=id)
            with pytest.raises(ConfigError, match="unknown view"):
                await taken(runs, id, view="some")
        for arguments in ([5], [None, 5]):
            with pytest.raises(ConfigError, match="takes an Agent and a journal, got"):
                BackgroundRuns(*arguments)  # type: ignore[arg-type]

    run(main())


def test_ended_run_can_be_read_by_the_next_process(tmp_path: Path) -> None:
    async def first() -> list[tuple[int, RunEvent]]:
        journal = SqliteJournal(tmp_path / "journal.db")
        async with BackgroundRuns(agent(), journal) as runs:
            events = await taken(runs, runs.start("1 + 2?", run_id="mine"))
        await journal.aclose()
        return events

    async def second() -> list[tuple[int, RunEvent]]:
        journal = SqliteJournal(tmp_path / "journal.db")
        async with BackgroundRuns(agent(), journal) as runs:
            events = await taken(runs, "mine")
            assert (await runs.status("mine")).phase == "completed"
        await journal.aclose()
        return events

    assert run(first()) == run(second())


@pytest.mark.requirement("S4-15")
def test_concurrent_runs_do_not_mix() -> None:
    async def main() -> None:
        async def model(request: Any) -> Any:
            await asyncio.sleep(0)
            return [Text(request.history[0].text)]

        async with BackgroundRuns(Agent(ScriptedProvider(model))) as runs:
            ids = [runs.start(f"question {number}") for number in range(200)]
            texts = await asyncio.gather(*(taken(runs, id, view="final") for id in ids))
            assert ["".join(event.text for _, event in text) for text in texts] == [f"question {n}" for n in range(200)]

    run(main())


class SlowJournal(MemoryJournal):
    """Holds appends back until the gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.asked = asyncio.Event()

    async def append(self, run: str, expected_seq: int, events: Sequence[bytes], **options: Any) -> int:
        self.asked.set()
        await self.gate.wait()
        return await super().append(run, expected_seq, events, **options)


class FailingJournal(MemoryJournal):
    """Takes so many appends."""

    def __init__(self, appends: int) -> None:
        super().__init__()
        self._left = appends

    async def append(self, run: str, expected_seq: int, events: Sequence[bytes], **options: Any) -> int:
        if not self._left:
            raise OSError(28, "No space left on device")
        self._left -= 1
        return await super().append(run, expected_seq, events, **options)


async def hang(_: Any) -> Any:
    await asyncio.Event().wait()


def hanging() -> Agent:
    return Agent(ScriptedProvider(hang))


def folded(events: Iterable[tuple[int, RunEvent]]) -> RunState:
    return RunState.of_events(event for _, event in events)


async def no_task_left() -> bool:
    await asyncio.sleep(0)
    return len(asyncio.all_tasks()) == 1


def test_run_cancelled_before_its_first_step_has_an_end(make_journal: MakeJournal) -> None:
    async def main() -> None:
        journal = make_journal()
        async with BackgroundRuns(agent(), journal) as runs:
            id = runs.start("q")
            watcher = asyncio.ensure_future(taken(runs, id))
            assert await runs.cancel(id)
            start, end = [event for _, event in await watcher]
            assert start == RunStart(id, "scripted", (Message.user("q"),))
            assert isinstance(end, RunEnd)
            assert end.error == ErrorInfo("cancelled", "the run was cancelled")
            assert (await runs.status(id)).phase == "cancelled"
        await journal.aclose()

    run(main())


def test_used_run_id_is_refused_at_once() -> None:
    async def main() -> None:
        async with BackgroundRuns(agent()) as runs:
            await taken(runs, runs.start("1 + 2?", run_id="mine"))
            with pytest.raises(RunExistsError, match="run_id 'mine' is already used"):
                runs.start("something else", run_id="mine")

    run(main())


@pytest.mark.parametrize("view", ["all", "final"])
def test_run_id_that_only_the_journal_knows_fails_before_any_request(make_journal: MakeJournal, view: str) -> None:
    async def main() -> None:
        journal = make_journal()
        async with BackgroundRuns(agent(), journal) as runs:
            old = await taken(runs, runs.start("1 + 2?", run_id="mine"))
        script = ScriptedProvider([[Text("new")]])
        async with BackgroundRuns(Agent(script), journal) as runs:
            id = runs.start("something else", run_id="mine")
            with pytest.raises(RunExistsError, match="run_id 'mine' is already used"):
                await taken(runs, id, view=view)
            assert not script.requests
            with pytest.raises(RunExistsError, match="run_id 'mine' is already used"):
                await runs.result(id)
            assert (await runs.status("mine")).phase == "completed"
            assert await taken(runs, "mine") == old
            runs.start("something else", run_id="mine")
            await asyncio.sleep(0.1)  # usually it has been refused by now
            with pytest.raises(RunExistsError, match="run_id 'mine' is already used"):
                await runs.result("mine")
        await journal.aclose()

    run(main())


def test_run_that_has_only_started_elsewhere_is_not_continued_by_an_equal_one() -> None:
    async def main() -> None:
        journal = MemoryJournal()
        start = RunStart("mine", "scripted", (Message.user("?"),))
        await journal.append("mine", 0, [to_json(start)], summary=RunSummary().after(start))
        script = ScriptedProvider(["never"])
        async with BackgroundRuns(Agent(script), journal) as runs:
            with pytest.raises(RunExistsError):
                await runs.result(runs.start("?", run_id="mine"))
        assert not script.requests

    run(main())


@pytest.mark.parametrize("appends", [0, 1])
def test_journal_error_ends_the_run_and_notifies_subscribers(appends: int) -> None:
    async def main() -> None:
        async with BackgroundRuns(hanging(), FailingJournal(appends)) as runs:
            id = runs.start("go")
            watchers = [asyncio.create_task(taken(runs, id, view=view)) for view in ("all", "final")]
            for watcher in watchers:
                with pytest.raises(JournalError, match="No space left on device"):
                    await watcher
            status = await runs.status(id)
            assert status.phase == "failed"
            assert "No space left on device" in str(status.error)
            with pytest.raises(JournalError):
                await taken(runs, id)
        assert await no_task_left()

    run(main())


def test_end_of_a_run_is_stored_if_the_journal_works_again() -> None:
    class RecoveringJournal(MemoryJournal):
        is_broken = False

        async def append(self, run: str, expected_seq: int, events: Sequence[bytes], **options: Any) -> int:
            if self.is_broken:
                self.is_broken = False
                raise OSError(28, "No space left on device")
            return await super().append(run, expected_seq, events, **options)

    async def main() -> None:
        journal = RecoveringJournal()
        async with BackgroundRuns(hanging(), journal) as runs:
            id = runs.start("go")
            await anext(runs.subscribe(id))
            journal.is_broken = True
            with pytest.raises(JournalError, match="No space left on device"):
                await runs.result(id)
            assert [type(event) for _, event in await taken(runs, id)] == [RunStart, TurnStart, RunEnd]
            assert (await runs.status(id)).phase == "failed"
            summary = (await journal.get(id)).summary
            assert summary.state == "failed"
            assert summary.error is not None
            assert summary.error.kind == "JournalError"

    run(main())


def test_completed_run_has_its_result_if_its_end_is_stored_at_the_second_attempt() -> None:
    class RecoveringJournal(MemoryJournal):
        failures = 1

        async def append(self, run: str, expected_seq: int, events: Sequence[bytes], **options: Any) -> int:
            if options["summary"].ended and self.failures:
                self.failures -= 1
                raise OSError(28, "No space left on device")
            return await super().append(run, expected_seq, events, **options)

    async def main() -> None:
        async with BackgroundRuns(agent("Hello."), RecoveringJournal()) as runs:
            id = runs.start("go")
            assert (await runs.result(id)).text == "Hello."
            assert (await runs.status(id)).phase == "completed"

    run(main())


def test_result_is_the_error_of_the_journal_if_the_end_is_never_stored() -> None:
    class EndlessJournal(MemoryJournal):
        async def append(self, run: str, expected_seq: int, events: Sequence[bytes], **options: Any) -> int:
            if options["summary"].ended:
                raise OSError(28, "No space left on device")
            return await super().append(run, expected_seq, events, **options)

    async def main() -> None:
        async with BackgroundRuns(agent("Hello."), EndlessJournal()) as runs:
            id = runs.start("go")
            with pytest.raises(JournalError, match="No space left on device"):
                await runs.result(id)
            assert (await runs.status(id)).phase == "failed"

    run(main())


def test_error_while_storing_the_end_is_raised_to_subscribers() -> None:
    async def main() -> None:
        async with BackgroundRuns(Agent(ScriptedProvider([[Text("x")]])), FailingJournal(1)) as runs:
            id = runs.start("go")
            with pytest.raises(JournalError, match="No space left") as caught:
                await taken(runs, id, view="final")
            await runs.cancel(id)
            assert (await runs.status(id)).phase == "failed"
            with pytest.raises(JournalError) as caught:
                await taken(runs, id)
            assert caught.value.transcript is not None
            assert caught.value.transcript[0].text == "go"

    run(main())


def test_unfinished_run_of_another_process_can_be_read_and_not_cancelled(make_journal: MakeJournal) -> None:
    async def main() -> None:
        journal = make_journal()
        begun: list[RunEvent] = [RunStart("old", "m", (Message.user("q"),)), TurnStart(1)]
        await journal.append("old", 0, [to_json(event) for event in begun], summary=RunSummary())
        async with BackgroundRuns(agent(), journal) as runs:
            status = await runs.status("old")
            assert not status.is_over
            watching = runs.subscribe("old")
            assert [await anext(watching) for _ in begun] == list(enumerate(begun))
            with pytest.raises(RunError, match="does not run in this process"):
                await anext(watching)
            with pytest.raises(ConfigError, match="runs in another process"):
                await runs.cancel("old")
            end = RunEnd("old", "a", Usage(), 1)
            await journal.append("old", 2, [to_json(end)], summary=RunSummary(state="completed"))
            assert await taken(runs, "old", from_event=1) == [(1, begun[1]), (2, end)]
            assert (await runs.status("old")).is_over
        await journal.aclose()

    run(main())


@pytest.mark.parametrize("second", ["cancel", "close"])
def test_second_cancel_waits_for_a_slow_journal(second: str) -> None:
    async def main() -> None:
        journal = SlowJournal()
        runs = BackgroundRuns(hanging(), journal)
        id = runs.start("go")
        await journal.asked.wait()
        first = asyncio.create_task(runs.cancel(id))
        await asyncio.sleep(0)
        again: asyncio.Task[Any] = asyncio.create_task(runs.cancel(id) if second == "cancel" else runs.aclose())
        await asyncio.sleep(0)
        assert not first.done()
        assert not again.done()
        journal.gate.set()
        await asyncio.gather(first, again)
        await runs.aclose()
        assert await no_task_left()
        [info] = await journal.list()
        assert info.summary.state == "cancelled"

    run(main())


def test_program_that_exits_without_close_leaves_complete_journals(tmp_path: Path) -> None:
    async def first() -> None:
        runs = BackgroundRuns(hanging(), SqliteJournal(tmp_path / "journal.db"))
        kept.append(runs)
        id = runs.start("go", run_id="a")
        await anext(runs.subscribe(id))

    async def second() -> None:
        journal = SqliteJournal(tmp_path / "journal.db")
        async with BackgroundRuns(agent(), journal) as runs:
            assert (await runs.status("a")).phase == "cancelled"
        await journal.aclose()

    kept: list[BackgroundRuns] = []
    run(first())
    run(second())


def test_error_of_the_final_view_has_transcript_and_kind() -> None:
    async def main() -> None:
        call = [ToolCall("1", "add", {"a": 1, "b": 2})]
        async with BackgroundRuns(agent(call, call, call)) as runs:
            id = runs.start("go", limits=Limits(max_tool_calls=1))
            with pytest.raises(LimitReachedError, match="tool calls exceeded") as limited:
                await taken(runs, id, view="final")
            assert (limited.value.limit, limited.value.kind) == ("max_tool_calls", "LimitReachedError")
            assert limited.value.transcript is not None
            assert [message.role for message in limited.value.transcript] == ["user", *["model", "user"] * 2]
        async with BackgroundRuns(Agent(ScriptedProvider([ServerError("broken")]))) as runs:
            id = runs.start("go")
            with pytest.raises(ServerError, match="broken") as broken:
                await taken(runs, id, view="final")
            assert (broken.value.kind, list(broken.value.transcript or ())) == ("ServerError", [Message.user("go")])

    run(main())


def test_journal_of_a_run_without_an_answer_restores_a_valid_history(make_journal: MakeJournal) -> None:
    async def main() -> None:
        started = asyncio.Event()

        @tool
        async def stay() -> None:
            started.set()
            await asyncio.Event().wait()

        calls = [ToolCall("1", "stay", {}), ToolCall("2", "add", {"a": 1, "b": 2})]
        journal = make_journal()
        async with BackgroundRuns(Agent(ScriptedProvider([calls, calls]), tools=[stay, add]), journal) as runs:
            id = runs.start("go")
            await started.wait()
            await runs.cancel(id)
            stopped = folded(await taken(runs, id))
            limited = folded(await taken(runs, runs.start("go", limits=Limits(max_turns=1))))
        await journal.aclose()
        for state in (stopped, limited):
            assert state.unanswered == []
            assert [result.id for result in state.history[-1].results] == ["1", "2"]

    run(main())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("ending", ["cancel", "close"])
def test_run_whose_event_loop_was_closed_is_like_one_whose_process_was_killed(ending: str) -> None:
    end_from_another_loop(ending)
    gc.collect()  # the abandoned task complains while this test runs, not in another one


def end_from_another_loop(ending: str) -> None:
    journal = MemoryJournal()
    runs = BackgroundRuns(hanging(), journal)
    loop = asyncio.new_event_loop()

    async def begin() -> None:
        runs.start("go", run_id="a")
        await anext(runs.subscribe("a"))

    loop.run_until_complete(begin())

    async def too_early() -> None:
        with pytest.raises(ConfigError, match="runs in another event loop"):
            await runs.cancel("a")

    run(too_early())
    loop.close()

    async def main() -> None:
        if ending == "cancel":
            assert await runs.cancel("a")
        await runs.aclose()
        async with BackgroundRuns(agent(), journal) as others:
            assert not (await others.status("a")).is_over

    run(main())


def test_run_of_a_closed_event_loop_is_garbage_collected_without_errors() -> None:
    program = """
import asyncio, gc
from midspan import Agent, BackgroundRuns
from midspan.testing import ScriptedProvider

async def begin():
    runs = BackgroundRuns(Agent(ScriptedProvider(lambda _: asyncio.Event().wait())))
    await anext(runs.subscribe(runs.start("go")))

loop = asyncio.new_event_loop()
loop.set_exception_handler(lambda _, context: None)  # it reports the task that never ended
loop.run_until_complete(begin())
loop.close()
gc.collect()
"""
    # From Python 3.13 on, there is a RuntimeWarning about the subscriber.
    command = [sys.executable, "-W", "ignore::RuntimeWarning", "-c", program]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=BOUND, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_running_run_can_only_be_waited_for_in_its_own_event_loop() -> None:
    ready, ended = threading.Event(), threading.Event()
    runs = BackgroundRuns(hanging())

    async def drive() -> None:
        runs.start("go", run_id="a")
        ready.set()
        await asyncio.to_thread(ended.wait, BOUND)
        await runs.aclose()

    async def elsewhere() -> None:
        for waiting in (taken(runs, "a"), runs.result("a"), runs.cancel("a")):
            with pytest.raises(ConfigError, match="runs in another event loop"):
                await waiting

    async def afterwards() -> None:
        with pytest.raises(RunError, match="cancelled"):
            await runs.result("a")
        assert isinstance((await taken(runs, "a"))[-1][1], RunEnd)

    thread = threading.Thread(target=lambda: run(drive()))
    thread.start()
    try:
        assert ready.wait(BOUND)
        run(elsewhere())
    finally:
        ended.set()
        thread.join(BOUND)
    run(afterwards())


@pytest.mark.parametrize("view", ["all", "final"])
def test_negative_event_number_is_an_error(view: str) -> None:
    async def main() -> None:
        async with BackgroundRuns(agent()) as runs:
            id = runs.start("go")
            with pytest.raises(ConfigError, match="numbered from 0"):
                await taken(runs, id, from_event=-1, view=view)

    run(main())


@pytest.mark.requirement("S4-15")
def test_thousand_runs_in_one_file_do_not_mix(tmp_path: Path) -> None:
    async def main() -> None:
        async def model(request: Any) -> Any:
            return [Text(request.history[0].text)]

        journal = SqliteJournal(tmp_path / "journal.db")
        async with BackgroundRuns(Agent(ScriptedProvider(model)), journal) as runs:
            ids = [runs.start(f"question {number}") for number in range(MANY)]
            texts = await asyncio.gather(*(taken(runs, id, view="final") for id in ids))
            assert ["".join(event.text for _, event in text) for text in texts] == [
                f"question {number}" for number in range(MANY)
            ]
        await journal.aclose()

    run(main())


class Panic(BaseException):
    """An exception that `except Exception` does not catch."""


@pytest.mark.parametrize("kind", [Panic, GeneratorExit])
def test_run_has_an_end_whatever_its_provider_raises(kind: type[BaseException]) -> None:
    async def panics(_: Any) -> Any:
        raise kind("now")

    async def main() -> None:
        async with BackgroundRuns(Agent(ScriptedProvider([panics]))) as runs:
            id = runs.start("?")
            assert [type(event).__name__ for _, event in await taken(runs, id)][-1] == "RunEnd"
            assert (await runs.status(id)).phase == "failed"
            with pytest.raises(RunError, match=kind.__name__):
                await taken(runs, id, view="final")

    run(main())


@pytest.mark.parametrize("kind", [Panic, asyncio.CancelledError])
def test_run_ends_whatever_its_journal_raises(kind: type[BaseException]) -> None:
    class Broken(MemoryJournal):
        async def append(self, *_: Any, **__: Any) -> int:
            raise kind("now")

    async def main() -> None:
        async with BackgroundRuns(agent("hello"), Broken()) as runs:
            id = runs.start("?")
            with pytest.raises(JournalError):
                await taken(runs, id)

    run(main())


class RecordingJournal(MemoryJournal):
    """Yields to the event loop before each append, as a database does, and remembers the sizes of the batches."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[str]] = []

    async def append(self, run: str, expected_seq: int, events: Sequence[bytes], **options: Any) -> int:
        for _ in range(20):
            await asyncio.sleep(0)
        length = await super().append(run, expected_seq, events, **options)
        self.batches.append([type(from_json(event, "event")).__name__ for event in events])
        return length

    def stored(self) -> list[str]:
        return [name for batch in self.batches for name in batch]


def test_call_that_may_write_is_stored_before_it_runs() -> None:
    journal = RecordingJournal()
    stored: list[list[str]] = []

    @tool
    async def pay(euros: int) -> str:
        """Pay."""
        stored.append(journal.stored())
        return "paid"

    async def main() -> None:
        script = [[Text("Paying."), ToolCall("1", "pay", {"euros": 100})], "done"]
        async with BackgroundRuns(Agent(ScriptedProvider(script), tools=[pay]), journal) as runs:
            await taken(runs, runs.start("go"))

    run(main())
    assert stored == [["RunStart", "TurnStart", "TextDelta", "TurnEnd", "ToolStart"]]


def test_calls_of_a_turn_are_stored_together_before_any_of_them_runs() -> None:
    journal = RecordingJournal()
    stored: list[int] = []

    @tool
    async def pay(euros: int) -> str:
        """Pay."""
        stored.append(journal.stored().count("ToolStart"))
        return "paid"

    async def main() -> None:
        calls = [ToolCall(str(number), "pay", {"euros": number}) for number in range(5)]
        async with BackgroundRuns(Agent(ScriptedProvider([calls, "done"]), tools=[pay]), journal) as runs:
            await taken(runs, runs.start("go"))

    run(main())
    assert stored == [5] * 5
    assert len([batch for batch in journal.batches if "ToolStart" in batch]) <= 2


@pytest.mark.parametrize(("read_only", "batches"), [(True, [1, 7]), (False, [1, 3, 4])])
def test_events_that_nobody_waits_for_are_stored_together(read_only: bool, batches: list[int]) -> None:
    journal = RecordingJournal()

    async def main() -> None:
        now = 0.0
        asyncio.get_running_loop().time = lambda: now  # type: ignore[method-assign]

        def respond(request: Any) -> Any:
            nonlocal now
            now += 0.05  # a fast model
            return "done" if request.history[-1].results else ToolCall("1", "look", {})

        @tool(read_only=read_only)
        async def look() -> str:
            """Look."""
            return "noon"

        async with BackgroundRuns(Agent(ScriptedProvider(respond), tools=[look]), journal) as runs:
            await runs.result(runs.start("go", deltas=False))

    asyncio.run(main())
    assert [len(batch) for batch in journal.batches] == batches


class EventLoopWithoutTime(asyncio.SelectorEventLoop):
    """An event loop in which no time passes, so that its timers never fire."""

    def time(self) -> float:
        return 0.0


def test_subscriber_gets_earlier_events_without_waiting_for_more() -> None:
    async def main() -> None:
        looking, seen = asyncio.Event(), asyncio.Event()

        @tool(read_only=True)
        async def look() -> None:
            looking.set()
            await seen.wait()

        async with BackgroundRuns(Agent(ScriptedProvider([ToolCall("1", "look"), "done"]), [look])) as runs:
            id = runs.start("?")
            await looking.wait()
            async for _, event in runs.subscribe(id):
                if isinstance(event, ToolStart):
                    seen.set()
            assert (await runs.result(id)).text == "done"

    with asyncio.Runner(loop_factory=EventLoopWithoutTime) as runner:
        runner.run(main())


def test_read_only_call_does_not_wait_for_the_journal() -> None:
    async def main() -> None:
        journal, looked = SlowJournal(), asyncio.Event()

        @tool(reads="clock")
        async def look() -> str:
            """Look."""
            looked.set()
            return "noon"

        script = ScriptedProvider([ToolCall("1", "look", {}), "done"])
        async with BackgroundRuns(Agent(script, tools=[look]), journal) as runs:
            id = runs.start("go")
            journal.gate.set()
            async for _, event in runs.subscribe(id):
                if isinstance(event, RunStart):
                    journal.gate.clear()
                    await looked.wait()
                    journal.gate.set()

    run(main())


def test_call_that_cannot_be_stored_is_not_run() -> None:
    paid: list[int] = []

    class Refusing(MemoryJournal):
        async def append(self, run: str, expected_seq: int, events: Sequence[bytes], **options: Any) -> int:
            if any(isinstance(from_json(event, "event"), ToolStart) for event in events):
                raise OSError(28, "No space left on device")
            return await super().append(run, expected_seq, events, **options)

    @tool
    async def pay(euros: int) -> str:
        """Pay."""
        paid.append(euros)
        return "paid"

    async def main() -> None:
        script = [ToolCall("1", "pay", {"euros": 100}), "done"]
        async with BackgroundRuns(Agent(ScriptedProvider(script), tools=[pay]), Refusing()) as runs:
            id = runs.start("go", run_id="a")
            with pytest.raises(
                JournalError, match=r"run 'a' was cancelled because its journal failed: OSError.*No space"
            ):
                await taken(runs, id)
            await runs.cancel(id)
            assert (await runs.status(id)).phase == "failed"

    run(main())
    assert paid == []


class ForgetfulJournal(MemoryJournal):
    """Stores an append and then fails, as a database whose acknowledgement is lost."""

    async def append(self, run: str, expected_seq: int, events: Sequence[bytes], **options: Any) -> int:
        await super().append(run, expected_seq, events, **options)
        raise ConnectionResetError("connection lost")


def test_append_whose_outcome_is_unknown_is_looked_up_and_not_repeated() -> None:
    async def main() -> None:
        async with BackgroundRuns(agent(), ForgetfulJournal()) as runs:
            events = [event for _, event in await taken(runs, runs.start("1 + 2?"))]
            assert isinstance(events[-1], RunEnd)
            assert events[-1].text == "It is 3"
            assert [type(event) for event in events].count(ToolStart) == 1

    run(main())


def test_append_whose_outcome_is_unknown_fails_if_the_journal_has_other_events() -> None:
    class ForeignJournal(ForgetfulJournal):
        async def append(self, run: str, expected_seq: int, events: Sequence[bytes], **options: Any) -> int:
            return await super().append(run, expected_seq, [to_json(TurnStart(7))] * len(events), **options)

    async def main() -> None:
        async with BackgroundRuns(agent(), ForeignJournal()) as runs:
            with pytest.raises(JournalError, match="connection lost"):
                await runs.result(runs.start("go"))

    run(main())


class SilentJournal(MemoryJournal):
    """Never acknowledges the first append, whether it is stored or not."""

    def __init__(self, *, stores: bool) -> None:
        super().__init__()
        self._stores = stores
        self.is_asked = asyncio.Event()

    async def append(self, run: str, expected_seq: int, events: Sequence[bytes], **options: Any) -> int:
        if self.is_asked.is_set():
            return await super().append(run, expected_seq, events, **options)
        if self._stores:
            await super().append(run, expected_seq, events, **options)
        self.is_asked.set()
        return await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("stores", [True, False])
def test_append_that_the_end_of_the_event_loop_cancels_is_in_the_journal_once(stores: bool) -> None:
    async def first() -> SilentJournal:
        journal = SilentJournal(stores=stores)
        runs.append(BackgroundRuns(agent(), journal))
        runs[0].start("go", run_id="a")
        await journal.is_asked.wait()
        return journal  # without close, so asyncio cancels the tasks

    async def second(journal: MemoryJournal) -> list[RunEvent]:
        return [from_json(document, "event") for _, document in await journal.read("a")]

    runs: list[BackgroundRuns] = []
    start, end = asyncio.run(second(asyncio.run(first())))
    assert isinstance(start, RunStart)
    assert isinstance(end, RunEnd)
    assert end.error == ErrorInfo("cancelled", "the run was cancelled")


def test_append_by_another_writer_ends_the_run() -> None:
    ran: list[str] = []

    async def main() -> None:
        journal = MemoryJournal()

        @tool
        async def look(place: str) -> str:
            """Look."""
            ran.append(place)
            length = (await journal.get("a")).length
            await journal.append("a", length, [to_json(TurnStart(7))], summary=RunSummary())
            return "nothing"

        script = ScriptedProvider([ToolCall("1", "look", {"place": "here"}), ToolCall("2", "look", {"place": "there"})])
        async with BackgroundRuns(Agent(script, tools=[look]), journal) as runs:
            with pytest.raises(JournalError, match="another writer has appended to it"):
                await taken(runs, runs.start("go", run_id="a"))

    run(main())
    assert ran == ["here"]


def test_run_that_another_process_marks_as_interrupted_ends_with_run_elsewhere_error() -> None:
    async def main() -> None:
        journal = MemoryJournal()
        async with BackgroundRuns(hanging(), journal) as runs:
            id = runs.start("go")
            await anext(runs.subscribe(id))
            assert await BackgroundRuns(journal=journal).interrupt_unfinished() == [id]
            with pytest.raises(RunElsewhereError, match="another writer has appended to it"):
                await runs.result(id)
            assert (await journal.get(id)).summary.state == "interrupted"

    run(main())


def test_cancelled_calls_that_share_an_id_keep_their_names() -> None:
    async def main() -> None:
        started = asyncio.Event()

        @tool
        async def stay() -> None:
            """Stay."""
            started.set()
            await asyncio.Event().wait()

        one = {"a": 1, "b": 2}
        script = [[ToolCall("0", "add", one)], [ToolCall("1", "stay", {}), ToolCall("1", "add", one)]]
        limits = Limits(max_calls_per_tool={"add": 1}, on_limit="answer")
        async with BackgroundRuns(Agent(ScriptedProvider(script), tools=[stay, add], limits=limits)) as runs:
            id = runs.start("go")
            await started.wait()
            await runs.cancel(id)
            with pytest.raises(RunError) as cancelled:
                await taken(runs, id, view="final")
            assert cancelled.value.transcript is not None
            results = list(cancelled.value.transcript)[-1].results
            assert [(result.name, result.value.split()[:2]) for result in results] == [
                ("stay", ["stay", "was"]),
                ("add", ["add", "was"]),
            ]

    run(main())


def test_journal_has_a_summary_of_every_run() -> None:
    async def main() -> None:
        journal = MemoryJournal()
        usage = Usage(1, 2)
        answer = ModelResponse(Message("model", (Text("hi"),)), FinishReason.END, usage=usage)
        async with BackgroundRuns(Agent(ScriptedProvider([answer, ServerError("overloaded")])), journal) as runs:
            await taken(runs, runs.start("go", run_id="good", owner="ann"))
            await taken(runs, runs.start("go", run_id="bad"))
            runs.start("go", agent=hanging(), run_id="hanging")
            await runs.cancel("hanging")
        good, bad, cancelled = [await journal.get(name) for name in ("good", "bad", "hanging")]
        assert (good.owner, good.summary) == ("ann", RunSummary("scripted", "completed", 1, usage))
        assert bad.summary == RunSummary("scripted", "failed", 1, error=ErrorInfo("ServerError", "overloaded"))
        assert cancelled.summary.state == "cancelled"
        assert [info.run for info in await journal.list(owner="ann", state="completed")] == ["good"]

    run(main())


EXITING = """
import asyncio, sys
from midspan import Agent, BackgroundRuns, SqliteJournal
from midspan.testing import ScriptedProvider

def leave(_):
    raise {kind}("now")

async def main():
    runs = BackgroundRuns(Agent(ScriptedProvider([leave])), SqliteJournal(sys.argv[1]))
    async for _ in runs.subscribe(runs.start("go", run_id="a")):
        pass

try:
    asyncio.run(main())
except {kind}:
    print("left")
"""


@pytest.mark.parametrize("kind", ["SystemExit", "KeyboardInterrupt"])
def test_provider_that_exits_the_program_leaves_an_end_in_the_journal(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", PATIENT_PROGRAM + EXITING.format(kind=kind), str(path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=BOUND)
    assert (ran.stdout, ran.stderr) == ("left\n", "")

    async def look() -> None:
        journal = SqliteJournal(path)
        summary = (await journal.get("a")).summary
        assert (summary.state, summary.error) == ("failed", ErrorInfo(kind, "now"))
        await journal.aclose()

    run(look())


class Dictating(PartsProvider, ScriptedProvider):
    """Writes its text word by word, each after somebody has asked for it."""

    def __init__(self, script: Iterable[str | BaseException]) -> None:
        super().__init__([])
        self._turns = [turn.split() if isinstance(turn, str) else turn for turn in script]
        self.next = asyncio.Semaphore(0)

    async def parts(self, request: Any) -> Any:
        words = self._turns.pop(0)
        if isinstance(words, BaseException):
            raise words
        said = ""
        for word in words:
            await self.next.acquire()
            if word == "CUT":
                raise IncompleteResponseError("cut")
            said += word
            yield Text(word)
        yield ModelResponse(Message("model", (Text(said),)), FinishReason.END)


@pytest.mark.requirement("S4-17")
@pytest.mark.parametrize("options", [{"tools": ()}, {"tools": [add], "tool_choice": "none"}])
def test_final_view_yields_text_at_once_if_the_model_cannot_make_calls(options: Any) -> None:
    async def main() -> None:
        provider = Dictating(["It is late."])
        async with BackgroundRuns(Agent(provider, **options)) as runs:
            id, seen = runs.start("go"), []
            provider.next.release()
            async for _, event in runs.subscribe(id, view="final"):
                assert not (await runs.status(id)).is_over or len(seen) == 2
                seen.append(event.text)
                provider.next.release()
        assert seen == ["It", "is", "late."]

    run(main())


def test_final_view_holds_text_back_while_a_call_may_follow() -> None:
    async def main() -> None:
        provider = Dictating(["It is late."])
        async with BackgroundRuns(Agent(provider, tools=[add])) as runs:
            id = runs.start("go")
            final = runs.subscribe(id, view="final")
            first = asyncio.ensure_future(anext(final))
            provider.next.release()
            async for _, event in runs.subscribe(id):
                if isinstance(event, TextDelta):
                    assert event.text == "late." or not first.done()
                    provider.next.release()
            assert (await first)[1] == TextDelta(1, "Itislate.")
            assert [event async for event in final] == []

    run(main())


def test_final_view_reports_that_earlier_text_was_discarded() -> None:
    async def main() -> None:
        provider = Dictating(["It is CUT", "Quite late."])
        async with BackgroundRuns(Agent(provider)) as runs:
            for _ in range(5):
                provider.next.release()
            events = [event for _, event in await taken(runs, runs.start("go"), view="final")]
            assert [type(event).__name__ for event in events] == ["TextDelta"] * 2 + ["TurnRetry"] + ["TextDelta"] * 2
            assert "".join(event.text for event in events[3:]) == "Quitelate."

    run(main())


def test_final_view_discards_text_beside_a_call_that_is_forbidden() -> None:
    async def main() -> None:
        script = [[Text("Let me see."), ToolCall("1", "add", {"a": 1, "b": 2})], "It is late."]
        model = Agent(ScriptedProvider(script), tools=[add], tool_choice="none")
        async with BackgroundRuns(model) as runs:
            events = [event for _, event in await taken(runs, runs.start("go"), view="final")]
        last_retry = max(index for index, event in enumerate(events) if isinstance(event, TurnRetry))
        assert "".join(event.text for event in events[last_retry + 1 :]) == "It is late."

    run(main())


def test_final_view_ends_with_the_text_of_a_limit_or_a_final_tool() -> None:
    async def main() -> None:
        provider = Dictating(["It is CUT"])
        for _ in range(3):
            provider.next.release()
        async with BackgroundRuns(Agent(provider, limits=Limits(max_turns=1, on_limit="message"))) as runs:
            *_, (_, retry), (_, last) = await taken(runs, runs.start("go"), view="final")
            assert isinstance(retry, TurnRetry)
            assert last.text.startswith("Maximum tool execution iterations reached")

    run(main())


def test_answer_in_several_parts_is_not_discarded() -> None:
    async def main() -> None:
        first = ModelResponse(Message("model", (Text("It is "),)), FinishReason.CONTINUES)
        for tools in ((), [add]):
            async with BackgroundRuns(Agent(ScriptedProvider([first, "late."]), tools)) as runs:
                events = [event for _, event in await taken(runs, runs.start("go"), view="final")]
                assert [event.text for event in events] == (["It is late."] if tools else ["It is ", "late."])

    run(main())


def test_result_is_that_of_the_run_or_its_error() -> None:
    async def main() -> None:
        journal = MemoryJournal()
        await journal.append("of another process", 0, [b"{}"], summary=RunSummary())
        async with BackgroundRuns(agent(), journal) as runs:
            result = await runs.result(runs.start("1 + 2?"))
            assert (result.text, result.turns, [call.value for call in result.tool_calls]) == ("It is 3", 2, [3])
            with pytest.raises(LimitReachedError):
                await runs.result(runs.start("1 + 2?", agent=agent(), limits=Limits(max_turns=1)))
            with pytest.raises(ConfigError, match="not one of the last runs of this process"):
                await runs.result("of another process")
            with pytest.raises(UnknownRunError, match="unknown run 'nobody'"):
                await runs.result("nobody")

    run(main())


def test_result_of_a_run_that_has_ended_is_kept(make_journal: MakeJournal) -> None:
    async def main() -> None:
        journal = make_journal()
        async with BackgroundRuns(agent(), journal) as runs:
            done = runs.start("1 + 2?")
            failed = runs.start("1 + 2?", agent=agent(), limits=Limits(max_turns=1))
            for _ in range(3):  # the first time, the run may still be running
                assert (await runs.result(done)).text == "It is 3"
                with pytest.raises(LimitReachedError):
                    await runs.result(failed)
        await journal.aclose()

    run(main())


@pytest.mark.parametrize(("count", "characters"), [(MAX_RUNS, 1), (2, MAX_BYTES // 5)])
def test_kept_results_are_bounded(count: int, characters: int) -> None:
    text = "x" * characters

    async def main() -> None:
        # The journal of this test keeps everything. Without deltas, the events of a run have its text twice.
        async with BackgroundRuns(Agent(ScriptedProvider(lambda _: text)), MemoryJournal()) as runs:
            first = runs.start("go", deltas=False)
            await runs.result(first)
            later = [runs.start("go", deltas=False) for _ in range(count)]
            for _ in range(2):
                assert all([(await runs.result(id)).text == text for id in later])
            with pytest.raises(ConfigError, match="not one of the last runs of this process"):
                await runs.result(first)

    run(main())


def test_cancelled_run_has_the_message_of_its_cancellation(make_journal: MakeJournal) -> None:
    async def main() -> None:
        journal = make_journal()
        gate = asyncio.Event()

        @tool
        async def wait() -> None:
            """Wait."""
            gate.set()
            await asyncio.Event().wait()

        waiting = Agent(ScriptedProvider([[ToolCall("1", "wait", {})], "done"]), tools=[wait])
        async with BackgroundRuns(waiting, journal) as runs:
            id = runs.start("Wait.")
            result = asyncio.create_task(runs.result(id))
            await gate.wait()
            await runs.cancel(id, "the server is shutting down")
            with pytest.raises(RunError, match="shutting down") as raised:
                await result
            assert raised.value.kind == "cancelled"
            assert (await taken(runs, id))[-1][1].error == ErrorInfo("cancelled", "the server is shutting down")
        await journal.aclose()

    run(main())


@pytest.mark.parametrize("ends_by", ["cancel", "max_seconds"])
def test_call_that_was_cancelled_has_its_duration(ends_by: str) -> None:
    async def main() -> None:
        started = asyncio.Event()

        async def wait() -> None:
            started.set()
            await asyncio.Event().wait()

        limits = Limits(max_seconds=0.5 if ends_by == "max_seconds" else None)
        waiting = Agent(ScriptedProvider([[ToolCall("1", "wait", {})], "done"]), tools=[wait], limits=limits)
        begin = perf_counter()
        async with BackgroundRuns(waiting) as runs:
            id = runs.start("Wait.")
            if ends_by == "cancel":
                await started.wait()
                await runs.cancel(id)
            [end] = [event for _, event in await taken(runs, id) if isinstance(event, ToolEnd)]
            assert end.result.is_error
            assert 0 < end.duration_seconds < perf_counter() - begin

    run(main())


def test_unfinished_runs_of_a_killed_process_are_marked_as_interrupted(make_journal: MakeJournal) -> None:
    async def main() -> None:
        journal = make_journal()
        start = to_json(RunStart("killed", "m", (Message.user("Hi."),)))
        await journal.append("killed", 0, [start], owner="ann", summary=RunSummary("m"))
        async with BackgroundRuns(agent(), journal) as runs:
            own = runs.start("1 + 2?")
            await anext(runs.subscribe(own))  # it is in the journal
            assert await runs.interrupt_unfinished() == ["killed"]
            assert await runs.interrupt_unfinished() == []
            assert (await journal.get("killed")).summary.state == "interrupted"
            assert (await runs.status("killed")).phase == "interrupted"
            assert isinstance((await taken(runs, own))[-1][1], RunEnd)
        await journal.aclose()

    run(main())


@pytest.mark.parametrize("method", ["status", "result", "cancel"])
def test_id_of_a_run_must_be_text(make_journal: MakeJournal, method: str) -> None:
    async def main() -> None:
        journal = make_journal()
        async with BackgroundRuns(agent(), journal) as runs:
            with pytest.raises(ConfigError, match="run_id must be a string"):
                await getattr(runs, method)(None)
        await journal.aclose()

    run(main())


def test_calls_of_an_interrupted_run_are_not_run_again(make_journal: MakeJournal) -> None:
    orders: list[int] = []

    @tool(writes="orders")
    def order(n: int) -> str:
        """Order."""
        orders.append(n)
        return f"ordered {n}"

    calls = (ToolCall("1", "order", {"n": 1}), ToolCall("2", "order", {"n": 2}))
    stored = [
        RunStart("killed", "m", (Message.user("Go."),)),
        TurnStart(1),
        TurnEnd(1, Message("model", calls), FinishReason.END, Usage()),
        ToolStart(1, calls[0], 0, may_write=True),
        ToolEnd(1, ToolResult("1", "order", "ordered 1"), 0.1, 0),
        ToolStart(1, calls[1], 1, may_write=True),
    ]

    async def main() -> None:
        journal = make_journal()
        await journal.append("killed", 0, [to_json(event) for event in stored], summary=RunSummary("m"))
        async with BackgroundRuns(agent(), journal) as runs:
            await runs.interrupt_unfinished()
            with pytest.raises(RunError) as raised:
                await anext(runs.subscribe("killed", view="final"))
        transcript: Any = raised.value.transcript
        first, second = transcript[-1].results
        assert first.value == "ordered 1"
        assert "whether it had an effect is unknown" in second.value
        assert (await Agent(ScriptedProvider(["done"]), [order]).run(messages=transcript)).text == "done"
        assert orders == []
        await journal.aclose()

    run(main())


def test_subscribers_of_an_interrupted_run_do_not_wait(make_journal: MakeJournal) -> None:
    async def main() -> None:
        journal = make_journal()
        start = to_json(RunStart("killed", "m", (Message.user("Hi."),)))
        await journal.append("killed", 0, [start], summary=RunSummary("m"))
        async with BackgroundRuns(agent(), journal) as runs:
            await runs.interrupt_unfinished()
            events = [event async for event in runs.subscribe("killed")]
            assert [(number, type(event)) for number, event in events] == [(0, RunStart), (1, Interrupted)]
            assert [event async for event in runs.subscribe("killed", from_event=2)] == []
            with pytest.raises(RunError, match="the run was interrupted: the process of the run ended") as raised:
                await anext(runs.subscribe("killed", view="final"))
            assert raised.value.transcript is not None
            assert raised.value.transcript.messages == (Message.user("Hi."),)
            with pytest.raises(RunError, match="'killed' was interrupted"):
                await runs.cancel("killed")
            status = await runs.status("killed")
            assert status.is_over
        await journal.aclose()

    run(main())


def test_every_cancel_waits_for_a_tool_that_cleans_up() -> None:
    ended = asyncio.Event()

    @tool
    async def work() -> None:
        """Undo what was done, which takes time."""
        try:
            started.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.1)
            ended.set()

    async def main() -> None:
        async with BackgroundRuns(Agent(ScriptedProvider([ToolCall("1", "work")]), [work])) as runs:
            id = runs.start("Go.")
            await started.wait()

            async def cancel() -> None:
                await runs.cancel(id)
                assert ended.is_set()

            first = asyncio.create_task(cancel())
            await asyncio.sleep(0.02)
            await asyncio.gather(first, cancel())

    started = asyncio.Event()
    run(main())


def test_refused_start_does_not_hide_the_stored_run(make_journal: MakeJournal) -> None:
    async def main() -> None:
        journal = make_journal()
        async with BackgroundRuns(agent("first"), journal) as runs:
            await runs.result(runs.start("1 + 2?", run_id="order"))
        async with BackgroundRuns(agent("second"), journal) as runs:
            runs.start("1 + 2?", run_id="order")
            for _ in range(100):
                await asyncio.sleep(0.01)
                if (await runs.status("order")).phase == "completed":
                    break
            assert [event.text for _, event in await taken(runs, "order", view="final")] == ["first"]
            with pytest.raises(RunExistsError):
                await runs.result("order")
        await journal.aclose()

    run(main())


def test_errors_of_refused_runs_that_nobody_reads_are_bounded() -> None:
    async def main() -> None:
        journal = MemoryJournal()
        ids = [str(number) for number in range(MAX_RUNS + 1)]
        async with BackgroundRuns(Agent(ScriptedProvider(repeat("first"))), journal) as runs:
            for run_id in ids:
                await runs.result(runs.start("1 + 2?", run_id=run_id))
        async with BackgroundRuns(Agent(ScriptedProvider(repeat("second"))), journal) as runs:
            for run_id in ids:
                runs.start("1 + 2?", run_id=run_id)
                while (await runs.status(run_id)).phase != "completed":  # noqa: ASYNC110 - nothing tells that it is refused
                    await asyncio.sleep(0)
            with pytest.raises(ConfigError, match="is not one of the last runs of this process"):
                await runs.result(ids[0])
            for run_id in ids[1:]:
                with pytest.raises(RunExistsError):
                    await runs.result(run_id)

    run(main())
