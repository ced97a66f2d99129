import asyncio
from contextlib import aclosing

import pytest

from midspan.errors import ConfigError, JournalConflict
from midspan.storage.memory import MemoryJournal
from tests.bounds import BOUND


async def names(journal: MemoryJournal) -> list[str]:
    return [info.run for info in await journal.list()]


def test_code_that_need_not_wait_appends_at_once() -> None:
    journal = MemoryJournal()
    assert journal.append_now("a", 0, [b"1", b"2"]) == 2
    with pytest.raises(JournalConflict):
        journal.append_now("a", 0, [b"3"])
    assert journal.append_now("a", 2, [b"3"], end=True) == 3
    assert asyncio.run(journal.read("a", 1)) == [(1, b"2"), (2, b"3")]


def test_of_too_many_runs_those_that_ended_first_are_dropped() -> None:
    journal = MemoryJournal(max_runs=3)
    for name in ("a", "b", "c"):
        journal.append_now(name, 0, [b"x"])
    for name in ("c", "a"):
        journal.append_now(name, 1, [], end=True)
    assert asyncio.run(names(journal)) == ["c", "b", "a"]
    journal.append_now("d", 0, [b"x"])
    assert asyncio.run(names(journal)) == ["d", "b", "a"]
    journal.append_now("e", 0, [b"x"], end=True)
    assert asyncio.run(names(journal)) == ["e", "d", "b"]


def test_runs_that_go_on_are_never_dropped() -> None:
    journal = MemoryJournal(max_runs=0)
    for number in range(10):
        journal.append_now(f"run {number}", 0, [b"x"])
    assert len(asyncio.run(journal.list())) == 10
    for number in range(10):
        journal.append_now(f"run {number}", 1, [b"x"], end=True)
    assert asyncio.run(journal.list()) == []


def test_runs_that_ended_long_ago_are_dropped() -> None:
    journal = MemoryJournal(max_age_seconds=0)
    journal.append_now("old", 0, [b"x"], end=True)
    journal.append_now("open", 0, [b"x"])
    assert asyncio.run(names(journal)) == ["open"]
    patient = MemoryJournal(max_age_seconds=3600)
    patient.append_now("old", 0, [b"x"], end=True)
    patient.append_now("open", 0, [b"x"])
    assert asyncio.run(names(patient)) == ["open", "old"]


def test_a_deleted_run_no_longer_counts() -> None:
    async def main() -> None:
        journal = MemoryJournal(max_runs=1)
        await journal.append("a", 0, [b"x"], end=True)
        await journal.delete("a")
        await journal.append("b", 0, [b"x"], end=True)
        await journal.append("c", 0, [b"x"], end=True)
        assert await names(journal) == ["c"]

    asyncio.run(main())


def test_whoever_watches_a_run_that_is_dropped_sees_all_of_it() -> None:
    async def main() -> None:
        journal = MemoryJournal(max_runs=0)

        async def watch() -> list[bytes]:
            return [event async for _, event in journal.watch("early")]

        early = asyncio.create_task(watch())
        await asyncio.sleep(0)
        journal.append_now("early", 0, [b"1", b"2"], end=True)
        async with asyncio.timeout(BOUND):
            assert await early == [b"1", b"2"]
        journal.append_now("late", 0, [b"1"])
        async with aclosing(journal.watch("late")) as watcher, asyncio.timeout(BOUND):
            assert await anext(watcher) == (0, b"1")
            journal.append_now("late", 1, [b"2"], end=True)
            assert await names(journal) == []
            assert [item async for item in watcher] == [(1, b"2")]

    asyncio.run(main())


def test_fewer_than_no_runs_cannot_be_kept() -> None:
    with pytest.raises(ConfigError, match="max_runs=-1"):
        MemoryJournal(max_runs=-1)
