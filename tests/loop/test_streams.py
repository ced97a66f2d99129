"""Runs by id: subscribers, replay, stopping, status; over a journal in memory and one in a file."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wasat import Agent, tool
from wasat.errors import ConfigError, RunError
from wasat.loop.streams import Phase, Streams
from wasat.storage.journal import Journal
from wasat.storage.memory import MemoryJournal
from wasat.storage.sqlite import SqliteJournal
from wasat.testing import ScriptedProvider
from wasat.types.events import RunEnd, RunEvent, RunStart, TextDelta
from wasat.types.parts import Text, ToolCall

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
        async with asyncio.timeout(10):
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
            end = (await watcher)[-1][1]
            assert isinstance(end, RunEnd)
            assert end.fault is not None
            assert end.fault.kind == "cancelled"
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
            assert end.fault is not None
            assert (end.fault.kind, end.fault.message) == ("RuntimeError", "broken")
            status = await streams.status(id)
            assert (status.phase, status.error) == (Phase.ERROR, "RuntimeError: broken")

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
