import asyncio
from contextlib import aclosing

from midspan._storage.journal import RunSummary
from midspan._storage.memory import MemoryJournal
from tests.bounds import BOUND

DONE = RunSummary(state="completed")


async def names(journal: MemoryJournal) -> list[str]:
    return [info.run for info in await journal.list()]


def append(journal: MemoryJournal, run: str, expected_seq: int, events: list[bytes], *, end: bool = False) -> None:
    asyncio.run(journal.append(run, expected_seq, events, summary=DONE if end else None))


def test_synchronous_code_can_ask_whether_a_run_exists() -> None:
    journal = MemoryJournal()
    assert "a" not in journal
    append(journal, "a", 0, [b"1"])
    assert "a" in journal


def test_runs_that_ended_first_are_dropped_first() -> None:
    journal = MemoryJournal(max_runs=3)
    for name in ("a", "b", "c"):
        append(journal, name, 0, [b"x"])
    for name in ("c", "a"):
        append(journal, name, 1, [], end=True)
    assert asyncio.run(names(journal)) == ["c", "b", "a"]
    append(journal, "d", 0, [b"x"])
    assert asyncio.run(names(journal)) == ["d", "b", "a"]
    append(journal, "e", 0, [b"x"], end=True)
    assert asyncio.run(names(journal)) == ["e", "d", "b"]


def test_running_runs_are_never_dropped() -> None:
    journal = MemoryJournal(max_runs=0)
    for number in range(10):
        append(journal, f"run {number}", 0, [b"x"])
    assert len(asyncio.run(journal.list())) == 10
    for number in range(10):
        append(journal, f"run {number}", 1, [b"x"], end=True)
    assert asyncio.run(journal.list()) == []


def test_deleted_run_does_not_count_as_kept() -> None:
    async def main() -> None:
        journal = MemoryJournal(max_runs=1)
        await journal.append("a", 0, [b"x"], summary=DONE)
        await journal.delete("a")
        await journal.append("b", 0, [b"x"], summary=DONE)
        await journal.append("c", 0, [b"x"], summary=DONE)
        assert await names(journal) == ["c"]

    asyncio.run(main())


def test_watcher_of_a_dropped_run_sees_all_of_its_events() -> None:
    async def main() -> None:
        journal = MemoryJournal(max_runs=0)

        async def watch() -> list[bytes]:
            return [event async for _, event in journal.watch("early")]

        early = asyncio.create_task(watch())
        await asyncio.sleep(0)
        await journal.append("early", 0, [b"1", b"2"], summary=DONE)
        async with asyncio.timeout(BOUND):
            assert await early == [b"1", b"2"]
        await journal.append("late", 0, [b"1"])
        async with aclosing(journal.watch("late")) as watcher, asyncio.timeout(BOUND):
            assert await anext(watcher) == (0, b"1")
            await journal.append("late", 1, [b"2"], summary=DONE)
            assert await names(journal) == []
            assert [item async for item in watcher] == [(1, b"2")]

    asyncio.run(main())


def test_watcher_of_an_ended_run_gets_all_of_it_although_the_journal_is_closed() -> None:
    async def main() -> None:
        journal = MemoryJournal()
        events = [b"%d" % number for number in range(1_000)]
        await journal.append("a", 0, events, summary=DONE)
        async with asyncio.timeout(BOUND), aclosing(journal.watch("a")) as watcher:
            seen = [await anext(watcher)]
            await journal.aclose()
            seen += [item async for item in watcher]
        assert seen == list(enumerate(events))

    asyncio.run(main())
