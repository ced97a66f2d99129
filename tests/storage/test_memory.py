import asyncio

from midspan._storage.journal import RunSummary
from midspan._storage.memory import MemoryJournal

DONE = RunSummary(state="completed")


async def names(journal: MemoryJournal) -> list[str]:
    return [info.run for info in await journal.list()]


def append(journal: MemoryJournal, run: str, expected_seq: int, events: list[bytes], *, end: bool = False) -> None:
    asyncio.run(journal.append(run, expected_seq, events, summary=DONE if end else None))


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
