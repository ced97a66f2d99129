"""What every journal does, whatever it keeps its events in."""

import asyncio
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midspan._storage.journal import Journal, RunInfo, RunSummary, StateName
from midspan._storage.memory import MemoryJournal
from midspan._storage.sqlite import SqliteJournal
from midspan._types.events import ErrorInfo
from midspan._types.exchange import Usage
from midspan.errors import ConfigError, RunElsewhere, RunExists, UnknownRun
from tests.bounds import BOUND

T = TypeVar("T")
KINDS = ("memory", "sqlite")
DONE = RunSummary(state="completed")


def make(kind: str, directory: Path) -> Journal:
    return MemoryJournal() if kind == "memory" else SqliteJournal(directory / "journal.db", synchronous="normal")


@pytest.fixture(params=KINDS)
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    made = make(request.param, tmp_path)
    yield made
    asyncio.run(made.close())


def run(coroutine: Coroutine[Any, Any, T], seconds: float = 5) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(seconds):
            return await coroutine

    return asyncio.run(bounded())


def documents(count: int, first: int = 0) -> list[bytes]:
    return [b'{"event": %d}' % number for number in range(first, first + count)]


async def collected(items: AsyncIterator[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    return [item async for item in items]


def test_it_is_a_journal(journal: Journal) -> None:
    assert isinstance(journal, Journal)


def test_events_are_numbered_from_zero_and_come_back_in_order(journal: Journal) -> None:
    async def main() -> None:
        assert await journal.append("a", 0, documents(3)) == 3
        assert await journal.append("a", 3, documents(2, 3)) == 5
        assert await journal.append("b", 0, [b"other"]) == 1
        assert await journal.read("a") == list(enumerate(documents(5)))
        assert await journal.read("b") == [(0, b"other")]

    run(main())


def test_reading_starts_at_any_number_and_takes_as_many_as_asked(journal: Journal) -> None:
    async def main() -> None:
        await journal.append("a", 0, documents(5))
        everything = list(enumerate(documents(5)))
        assert await journal.read("a", 2) == everything[2:]
        assert await journal.read("a", 1, 2) == everything[1:3]
        assert await journal.read("a", 4, 100) == everything[4:]
        assert await journal.read("a", 0, 0) == []
        assert await journal.read("a", 5) == []
        assert await journal.read("a", 10**30, 10**30) == []

    run(main())


def test_a_run_that_has_not_begun_is_unknown(journal: Journal) -> None:
    async def main() -> None:
        with pytest.raises(UnknownRun, match="unknown run 'nobody'"):
            await journal.read("nobody")
        with pytest.raises(UnknownRun, match="unknown run 'nobody'"):
            await journal.get("nobody")
        assert await journal.append("nobody", 0, []) == 0
        assert await journal.list() == []

    run(main())


@pytest.mark.parametrize("expected", [-1, 1, 2, 4, 10**30])
def test_a_writer_who_expects_another_number_is_refused_and_nothing_is_kept(journal: Journal, expected: int) -> None:
    async def main() -> None:
        await journal.append("a", 0, documents(3))
        for events in (documents(2), []):
            with pytest.raises(RunElsewhere, match="'a' has 3 events") as refused:
                await journal.append("a", expected, events)
            assert (refused.value.run, refused.value.expected, refused.value.found) == ("a", expected, 3)
            assert not refused.value.ended
        assert await journal.read("a") == list(enumerate(documents(3)))

    run(main())


def test_a_first_append_that_expects_more_than_nothing_is_refused(journal: Journal) -> None:
    async def main() -> None:
        with pytest.raises(UnknownRun, match="unknown run 'a'"):
            await journal.append("a", 1, documents(1))
        assert await journal.list() == []

    run(main())


def test_a_second_writer_cannot_create_a_run_that_exists(journal: Journal) -> None:
    async def main() -> None:
        await journal.append("a", 0, documents(3))
        await journal.append("b", 0, documents(1), summary=DONE)
        for name in ("a", "b"):
            for events in (documents(3), []):
                with pytest.raises(RunExists, match=f"run_id '{name}' is already used"):
                    await journal.append(name, 0, events)
        assert await journal.read("a") == list(enumerate(documents(3)))

    run(main())


def test_after_the_end_nothing_is_appended(journal: Journal) -> None:
    async def main() -> None:
        await journal.append("a", 0, documents(2))
        assert await journal.append("a", 2, documents(1, 2), summary=DONE) == 3
        for events in (documents(1), []):
            for summary in (None, DONE, RunSummary()):
                with pytest.raises(RunElsewhere, match="ended with 3 events") as refused:
                    await journal.append("a", 3, events, summary=summary)
                assert refused.value.ended
        assert await journal.read("a") == list(enumerate(documents(3)))

    run(main())


def test_a_run_may_end_without_another_event_or_without_any(journal: Journal) -> None:
    async def main() -> None:
        await journal.append("a", 0, documents(2))
        assert await journal.append("a", 2, [], summary=DONE) == 2
        assert await journal.append("empty", 0, [], summary=DONE) == 0
        assert await collected(journal.watch("a")) == list(enumerate(documents(2)))
        assert await collected(journal.watch("empty")) == []
        assert [(info.run, info.length, info.summary) for info in await journal.list()] == [
            ("empty", 0, DONE),
            ("a", 2, DONE),
        ]

    run(main())


def test_of_several_drivers_in_threads_one_gets_each_number(journal: Journal) -> None:
    rounds, drivers = 25, 4
    together = threading.Barrier(drivers, timeout=BOUND)

    def drive(driver: int) -> list[int]:
        async def main() -> list[int]:
            won = []
            for number in range(rounds):
                await asyncio.to_thread(together.wait)
                try:
                    await journal.append("a", number * 2, [b"%d" % driver] * 2)
                except (RunExists, RunElsewhere):
                    continue
                won.append(number)
            return won

        return run(main())

    with ThreadPoolExecutor(drivers) as threads:
        won = list(threads.map(drive, range(drivers)))
    assert sorted(number for numbers in won for number in numbers) == list(range(rounds))
    winners = {number: driver for driver, numbers in enumerate(won) for number in numbers}
    expected = [b"%d" % winners[number] for number in range(rounds) for _ in range(2)]
    assert run(journal.read("a")) == list(enumerate(expected))


def test_a_thousand_runs_at_once(journal: Journal) -> None:
    async def one(name: str) -> list[tuple[int, bytes]]:
        watching = asyncio.create_task(collected(journal.watch(name)))
        for number in range(3):
            await journal.append(name, number, [name.encode()], summary=DONE if number == 2 else None)
        return await watching

    async def main() -> None:
        names = [f"run {number}" for number in range(1000)]
        seen = await asyncio.gather(*map(one, names))
        assert seen == [[(number, name.encode()) for number in range(3)] for name in names]
        assert len(await journal.list()) == 1000

    run(main(), seconds=20)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(
    sizes=st.lists(st.integers(0, 5), min_size=1, max_size=12),
    starts=st.lists(st.integers(0, 40), min_size=1, max_size=5),
    pauses=st.lists(st.integers(0, 3), min_size=5, max_size=5),
)
def test_a_watcher_sees_exactly_the_sequence(kind: str, sizes: list[int], starts: list[int], pauses: list[int]) -> None:
    async def watch(journal: Journal, start: int, pause: int) -> list[tuple[int, bytes]]:
        seen = []
        async for item in journal.watch("a", start):
            seen.append(item)
            for _ in range(pause):
                await asyncio.sleep(0)
        return seen

    async def main(directory: Path) -> None:
        journal = make(kind, directory)
        watchers = [
            asyncio.create_task(watch(journal, start, pause)) for start, pause in zip(starts, pauses, strict=False)
        ]
        length = 0
        for number, size in enumerate(sizes):
            await asyncio.sleep(0)
            length = await journal.append(
                "a", length, documents(size, length), summary=DONE if number == len(sizes) - 1 else None
            )
        everything = list(enumerate(documents(length)))
        assert await asyncio.gather(*watchers) == [everything[start:] for start in starts]
        await journal.close()

    with tempfile.TemporaryDirectory() as directory:
        run(main(Path(directory)))


def test_watchers_in_other_threads_see_the_same(journal: Journal) -> None:
    count, watchers = 300, 4
    ready = threading.Barrier(watchers + 1, timeout=BOUND)

    def watch(start: int) -> list[tuple[int, bytes]]:
        async def main() -> list[tuple[int, bytes]]:
            ready.wait()
            return await collected(journal.watch("a", start))

        return run(main())

    async def drive() -> None:
        for number in range(count):
            await journal.append("a", number, documents(1, number), summary=DONE if number == count - 1 else None)

    with ThreadPoolExecutor(watchers) as threads:
        seen = [threads.submit(watch, start * 50) for start in range(watchers)]
        ready.wait()
        run(drive())
        everything = list(enumerate(documents(count)))
        assert [one.result(5) for one in seen] == [everything[start * 50 :] for start in range(watchers)]


def test_a_slow_watcher_holds_up_nobody_and_misses_nothing(journal: Journal) -> None:
    async def main() -> None:
        await journal.append("a", 0, documents(1))
        async with aclosing(journal.watch("a")) as watcher:
            assert await anext(watcher) == (0, documents(1)[0])
            for number in range(1, 1000):
                await journal.append("a", number, documents(1, number), summary=DONE if number == 999 else None)
            assert await collected(watcher) == list(enumerate(documents(1000)))[1:]

    run(main(), seconds=10)


def test_a_watcher_of_a_long_run_lets_others_have_their_turn(journal: Journal) -> None:
    async def main() -> None:
        await journal.append("a", 0, documents(20_000), summary=DONE)
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(others())
        assert len(await collected(journal.watch("a"))) == 20_000
        other.cancel()
        assert turns > 20

    run(main())


def test_a_cancelled_watcher_leaves_nothing_behind(journal: Journal) -> None:
    async def main() -> None:
        await journal.append("a", 0, documents(1))
        seen: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()

        async def watch() -> None:
            async for item in journal.watch("a"):
                seen.put_nowait(item)

        tasks = [asyncio.create_task(watch()) for _ in range(10)]
        for _ in tasks:
            await seen.get()
        for task in tasks[1:]:
            task.cancel()
        await asyncio.wait(tasks[1:])
        assert all(task.cancelled() for task in tasks[1:])
        await journal.append("a", 1, documents(1, 1), summary=DONE)
        await tasks[0]
        assert seen.get_nowait() == (1, documents(1, 1)[0])
        assert seen.empty()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(main())


def test_a_cancelled_append_is_there_as_a_whole_or_not_at_all(journal: Journal) -> None:
    async def main() -> None:
        for number in range(20):
            name = f"run {number}"
            task = asyncio.create_task(journal.append(name, 0, documents(3)))
            for _ in range(number % 5):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            await journal.append("after", number, documents(1, number))  # by now it is settled
            with suppress(UnknownRun):  # if it was cancelled in time
                assert await journal.read(name) == list(enumerate(documents(3)))

    run(main())


def test_a_deleted_run_is_gone_and_its_driver_is_fenced_off(journal: Journal) -> None:
    async def main() -> None:
        await journal.append("a", 0, documents(3))
        await journal.append("b", 0, documents(1), summary=DONE)
        assert await journal.delete("a")
        assert not await journal.delete("a")
        with pytest.raises(UnknownRun):
            await journal.read("a")
        assert [info.run for info in await journal.list()] == ["b"]
        with pytest.raises(UnknownRun):
            await journal.append("a", 3, documents(1))
        assert await journal.delete("b")
        assert await journal.append("b", 0, [b"anew"]) == 1

    run(main())


def test_a_delete_ends_watchers_that_wait(journal: Journal) -> None:
    async def main() -> None:
        await journal.append("a", 0, documents(2))
        async with aclosing(journal.watch("a")) as watcher:
            assert [await anext(watcher), await anext(watcher)] == list(enumerate(documents(2)))
            waiting = asyncio.create_task(collected(watcher))
            await asyncio.sleep(0)
            await journal.delete("a")
            assert await waiting == []

    run(main())


def test_a_watcher_of_a_deleted_run_never_sees_a_new_run_of_the_name(journal: Journal) -> None:
    async def main() -> None:
        await journal.append("a", 0, documents(2))
        async with aclosing(journal.watch("a")) as watcher:
            assert [await anext(watcher), await anext(watcher)] == list(enumerate(documents(2)))
            await journal.delete("a")
            await journal.append("a", 0, [b"new"] * 5, summary=DONE)
            assert await collected(watcher) == []

    run(main())


def test_runs_are_listed_newest_first(journal: Journal) -> None:
    async def main() -> None:
        for number in range(5):
            await journal.append(f"run {number}", 0, documents(number + 1), summary=DONE if number % 2 == 0 else None)
        await journal.append("run 1", 2, documents(1))
        infos = await journal.list()
        assert [info.run for info in infos] == ["run 4", "run 3", "run 2", "run 1", "run 0"]
        assert [info.length for info in infos] == [5, 4, 3, 3, 1]
        assert [info.run for info in await journal.list(limit=2)] == ["run 4", "run 3"]
        assert [info.run for info in await journal.list(state="completed")] == ["run 4", "run 2", "run 0"]
        assert [info.run for info in await journal.list(state="running", limit=1)] == ["run 3"]
        assert await journal.list(limit=0) == []
        assert await journal.list(limit=10**30) == infos
        first = infos[-2]
        assert first == RunInfo("run 1", 3, RunSummary(), None, first.started_at, first.updated_at, first.cursor)
        assert await journal.get("run 1") == first

    run(main())


def test_times_are_those_of_the_store(journal: Journal) -> None:
    async def main() -> None:
        before = time.time()
        await journal.append("a", 0, documents(1))
        started = await journal.get("a")
        await journal.append("a", 1, documents(1))
        updated = await journal.get("a")
        assert before - 1 < started.started_at == updated.started_at < time.time() + 1
        assert started.started_at <= started.updated_at <= updated.updated_at

    run(main())


def test_the_stored_summary_is_the_one_of_the_last_append_that_had_one(journal: Journal) -> None:
    error = ErrorInfo("ServerError", "overloaded")
    running = RunSummary("m", turns=1, usage=Usage(1, 2))
    failed = RunSummary("m", "failed", 2, Usage(2, 4), error)

    async def main() -> None:
        await journal.append("a", 0, documents(1), owner="ann", summary=running)
        await journal.append("a", 1, documents(1))
        info = await journal.get("a")
        assert (info.summary, info.owner, info.length) == (running, "ann", 2)
        await journal.append("a", 2, [], owner="somebody else", summary=failed)
        [info] = await journal.list()
        assert (info.summary, info.owner, info.length) == (failed, "ann", 2)

    run(main())


def test_an_interrupted_run_takes_further_events(journal: Journal) -> None:
    async def main() -> None:
        await journal.append("a", 0, documents(1), summary=RunSummary(state="interrupted"))
        assert [info.run for info in await journal.list(state="interrupted")] == ["a"]
        await journal.append("a", 1, documents(1), summary=RunSummary(state="running"))
        assert await journal.list(state="interrupted") == []

    run(main())


def test_runs_are_listed_page_by_page_for_one_owner_and_one_state(journal: Journal) -> None:
    async def pages(**filters: Any) -> list[list[str]]:
        listed, after = [], None
        while page := await journal.list(after=after, limit=3, **filters):
            listed.append([info.run for info in page])
            after = page[-1].cursor
            await journal.delete(page[-1].run)  # a cursor outlives its run
            await journal.append(f"new {filters} {len(listed)}", 0, documents(1))  # and new runs do not shift the pages
        return listed

    async def main() -> None:
        states: list[StateName] = ["running", "completed", "failed"]
        for number in range(18):
            summary = RunSummary(state=states[number % 3])
            await journal.append(str(number), 0, documents(1), owner="ab"[number % 2], summary=summary)
        assert await pages(owner="a", state="failed") == [["14", "8", "2"]]
        assert await pages(owner="b") == [["17", "15", "13"], ["11", "9", "7"], ["5", "3", "1"]]
        assert await journal.list(owner="nobody") == []

    run(main())


@pytest.mark.parametrize("cursor", ["", "x", "-1", "1.5", "9" * 40, "²", 5])
def test_what_is_not_a_cursor_is_refused(journal: Journal, cursor: Any) -> None:
    with pytest.raises(ConfigError, match="is not a cursor of this journal"):
        run(journal.list(after=cursor))


def test_an_unknown_state_is_refused(journal: Journal) -> None:
    state: Any = "stopped"
    with pytest.raises(ConfigError, match="unknown state 'stopped'; known states: running, completed"):
        run(journal.list(state=state))


def test_events_are_any_bytes_of_any_size(journal: Journal) -> None:
    everything = [b"", bytes(range(256)), b"\0", '"é"'.encode(), b"x" * 10_000_000, b"\0" * 3_000_000]

    async def main() -> None:
        await journal.append("a", 0, everything, summary=DONE)
        assert await journal.read("a") == list(enumerate(everything))
        assert await collected(journal.watch("a")) == list(enumerate(everything))

    run(main())


def test_a_writer_may_use_its_list_again(journal: Journal) -> None:
    async def main() -> None:
        events = documents(2)
        appending = asyncio.create_task(journal.append("a", 0, events))
        await asyncio.sleep(0)
        events.clear()
        await appending
        assert await journal.read("a") == list(enumerate(documents(2)))

    run(main())


NAMES = ["a b", "é 東京 🚀", "' OR 1=1 --", "nul\0nul", "nul", "%", "A", "x" * 10_000, "../up", "12", "12.0"]


def test_a_run_has_any_name(journal: Journal) -> None:
    async def main() -> None:
        for name in NAMES:
            await journal.append(name, 0, [name.encode()])
        for name in NAMES:
            assert await journal.read(name) == [(0, name.encode())]
        assert [info.run for info in await journal.list()] == NAMES[::-1]

    run(main())


@pytest.mark.parametrize("name", ["", "\ud800", None, 5, b"bytes"])
def test_what_cannot_be_a_name_is_refused(journal: Journal, name: Any) -> None:
    with pytest.raises(ConfigError, match="the id of a run must be"):
        run(journal.append(name, 0, documents(1)))


def test_numbers_below_zero_are_refused(journal: Journal) -> None:
    async def main() -> None:
        with pytest.raises(ConfigError, match="numbered from 0"):
            await journal.read("a", -1)
        with pytest.raises(ConfigError, match="numbered from 0"):
            await collected(journal.watch("a", -1))
        with pytest.raises(ConfigError, match="limit must not be negative"):
            await journal.read("a", 0, -1)
        with pytest.raises(ConfigError, match="limit must not be negative"):
            await journal.list(limit=-1)

    run(main())


def test_a_closed_journal_refuses_everything_and_wakes_its_watchers(journal: Journal) -> None:
    async def main() -> None:
        await journal.append("a", 0, documents(1))
        watcher = journal.watch("a")
        await anext(watcher)
        waiting = asyncio.create_task(collected(watcher))
        early = asyncio.create_task(collected(journal.watch("not begun")))
        await asyncio.sleep(0)
        await journal.close()
        await journal.close()
        for use in (
            waiting,
            early,
            journal.append("a", 1, documents(1)),
            journal.read("a"),
            journal.get("a"),
            journal.list(),
            journal.delete("a"),
            collected(journal.watch("a")),
        ):
            with pytest.raises(ConfigError, match="closed"):
                await use

    run(main())


def test_closing_waits_for_what_was_asked_before(journal: Journal) -> None:
    async def main() -> None:
        appends = [asyncio.create_task(journal.append(f"run {number}", 0, documents(1))) for number in range(50)]
        await asyncio.sleep(0)
        await journal.close()
        assert await asyncio.gather(*appends) == [1] * 50

    run(main())
