"""What every journal does, wherever it stores its events."""

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from midspan._storage.journal import Journal, RunInfo, RunSummary, StateName
from midspan._storage.memory import MemoryJournal
from midspan._storage.sqlite import SqliteJournal
from midspan._types.events import ErrorInfo
from midspan._types.exchange import Usage
from midspan.errors import ConfigError, RunElsewhereError, RunExistsError, UnknownRunError
from tests.bounds import BOUND

T = TypeVar("T")
JOURNALS = ("memory", "sqlite")
DONE = RunSummary(state="completed")


def make_journal(name: str, directory: Path) -> Journal:
    return MemoryJournal() if name == "memory" else SqliteJournal(directory / "journal.db")


@pytest.fixture(params=JOURNALS)
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    journal = make_journal(request.param, tmp_path)
    yield journal
    asyncio.run(journal.aclose())


def run(coroutine: Coroutine[Any, Any, T], seconds: float = 30) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(seconds):
            return await coroutine

    return asyncio.run(bounded())


def documents(count: int, first: int = 0) -> list[bytes]:
    return [b'{"event": %d}' % number for number in range(first, first + count)]


def test_it_is_a_journal(journal: Journal) -> None:
    assert isinstance(journal, Journal)


def test_events_are_numbered_from_zero_and_read_in_order(journal: Journal) -> None:
    async def main() -> None:
        assert await journal.append("a", 0, documents(3), summary=RunSummary()) == 3
        assert await journal.append("a", 3, documents(2, 3), summary=RunSummary()) == 5
        assert await journal.append("b", 0, [b"other"], summary=RunSummary()) == 1
        assert await journal.read("a") == list(enumerate(documents(5)))
        assert await journal.read("b") == [(0, b"other")]

    run(main())


def test_read_starts_at_any_number_and_has_a_limit(journal: Journal) -> None:
    async def main() -> None:
        await journal.append("a", 0, documents(5), summary=RunSummary())
        everything = list(enumerate(documents(5)))
        assert await journal.read("a", 2) == everything[2:]
        assert await journal.read("a", 1, 2) == everything[1:3]
        assert await journal.read("a", 4, 100) == everything[4:]
        assert await journal.read("a", 0, 0) == []
        assert await journal.read("a", 5) == []
        assert await journal.read("a", 10**30) == []
        assert await journal.read("a", 3, 10**30) == everything[3:]
        assert len(await journal.list(limit=10**30)) == 1

    run(main())


def test_run_without_events_is_unknown(journal: Journal) -> None:
    async def main() -> None:
        with pytest.raises(UnknownRunError, match="unknown run 'nobody'"):
            await journal.read("nobody")
        with pytest.raises(UnknownRunError, match="unknown run 'nobody'"):
            await journal.get("nobody")
        assert await journal.list() == []

    run(main())


@pytest.mark.parametrize("expected", [-1, 1, 2, 4, 10**30])
def test_append_with_another_expected_number_is_rejected_and_stores_nothing(journal: Journal, expected: int) -> None:
    async def main() -> None:
        await journal.append("a", 0, documents(3), summary=RunSummary())
        for events in (documents(2), []):
            with pytest.raises(RunElsewhereError, match="'a' has 3 events") as refused:
                await journal.append("a", expected, events, summary=RunSummary())
            assert (refused.value.run, refused.value.expected, refused.value.stored) == ("a", expected, 3)
            assert not refused.value.ended
        assert await journal.read("a") == list(enumerate(documents(3)))

    run(main())


def test_first_append_must_expect_no_events(journal: Journal) -> None:
    async def main() -> None:
        with pytest.raises(UnknownRunError, match="unknown run 'a'"):
            await journal.append("a", 1, documents(1), summary=RunSummary())
        assert await journal.list() == []

    run(main())


def test_run_that_exists_cannot_be_created_again(journal: Journal) -> None:
    async def main() -> None:
        await journal.append("a", 0, documents(3), summary=RunSummary())
        await journal.append("b", 0, documents(1), summary=DONE)
        for name in ("a", "b"):
            for events in (documents(3), []):
                with pytest.raises(RunExistsError, match=f"run_id '{name}' is already used"):
                    await journal.append(name, 0, events, summary=RunSummary())
        assert await journal.read("a") == list(enumerate(documents(3)))

    run(main())


def test_nothing_is_appended_after_the_end(journal: Journal) -> None:
    async def main() -> None:
        await journal.append("a", 0, documents(2), summary=RunSummary())
        assert await journal.append("a", 2, documents(1, 2), summary=DONE) == 3
        for events in (documents(1), []):
            for summary in (DONE, RunSummary()):
                with pytest.raises(RunElsewhereError, match="has already ended") as refused:
                    await journal.append("a", 3, events, summary=summary)
                assert refused.value.ended
        assert await journal.read("a") == list(enumerate(documents(3)))

    run(main())


def test_run_can_end_without_further_events(journal: Journal) -> None:
    async def main() -> None:
        await journal.append("a", 0, documents(2), summary=RunSummary())
        assert await journal.append("a", 2, [], summary=DONE) == 2
        assert await journal.append("empty", 0, [], summary=DONE) == 0
        assert [(info.run, info.length, info.summary) for info in await journal.list()] == [
            ("empty", 0, DONE),
            ("a", 2, DONE),
        ]

    run(main())


def test_one_of_several_writing_threads_gets_each_number(journal: Journal) -> None:
    rounds, drivers = 25, 4
    together = threading.Barrier(drivers, timeout=BOUND)

    def drive(driver: int) -> list[int]:
        async def main() -> list[int]:
            won = []
            for number in range(rounds):
                await asyncio.to_thread(together.wait)
                try:
                    await journal.append("a", number * 2, [b"%d" % driver] * 2, summary=RunSummary())
                except (RunExistsError, RunElsewhereError):
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


def test_thousand_concurrent_runs_do_not_mix(journal: Journal) -> None:
    async def one(name: str) -> list[tuple[int, bytes]]:
        for number in range(3):
            await journal.append(name, number, [name.encode()], summary=DONE if number == 2 else RunSummary())
        return await journal.read(name)

    async def main() -> None:
        names = [f"run {number}" for number in range(1000)]
        seen = await asyncio.gather(*map(one, names))
        assert seen == [[(number, name.encode()) for number in range(3)] for name in names]
        assert len(await journal.list()) == 1000

    run(main(), seconds=20)


def test_cancelled_append_is_stored_completely_or_not_at_all(journal: Journal) -> None:
    async def main() -> None:
        for number in range(20):
            name = f"run {number}"
            task = asyncio.create_task(journal.append(name, 0, documents(3), summary=RunSummary()))
            for _ in range(number % 5):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            await journal.append("after", number, documents(1, number), summary=RunSummary())  # by now it is settled
            with suppress(UnknownRunError):  # if it was cancelled in time
                assert await journal.read(name) == list(enumerate(documents(3)))

    run(main())


@pytest.mark.parametrize("steps", range(6))
def test_append_in_doubt_is_resolved_by_reading_and_stored_once(journal: Journal, steps: int) -> None:
    """A cancelled writer does not know whether its append was stored. It reads the run and continues from there."""

    async def main() -> None:
        length = 0
        while length < 60:
            append = asyncio.create_task(journal.append("a", length, documents(3, length), summary=RunSummary()))
            for _ in range(steps):
                await asyncio.sleep(0)
            append.cancel()
            with suppress(asyncio.CancelledError):
                await append
            await journal.append(
                f"settled at {length}", 0, documents(1), summary=RunSummary()
            )  # by now the append is settled
            try:
                stored = await journal.read("a", length)
            except UnknownRunError:
                stored = []
            assert stored in ([], list(enumerate(documents(3, length), length)))
            if stored:
                with pytest.raises((RunExistsError, RunElsewhereError)):
                    await journal.append("a", length, documents(3, length), summary=RunSummary())
            else:
                await journal.append("a", length, documents(3, length), summary=RunSummary())
            length += 3
        assert await journal.read("a") == list(enumerate(documents(60)))
        assert (await journal.get("a")).length == 60

    run(main(), seconds=30)


def test_deleted_run_is_gone_and_its_writer_is_rejected(journal: Journal) -> None:
    async def main() -> None:
        await journal.append("a", 0, documents(3), summary=RunSummary())
        await journal.append("b", 0, documents(1), summary=DONE)
        assert await journal.delete("a")
        assert not await journal.delete("a")
        with pytest.raises(UnknownRunError):
            await journal.read("a")
        assert [info.run for info in await journal.list()] == ["b"]
        with pytest.raises(UnknownRunError):
            await journal.append("a", 3, documents(1), summary=RunSummary())
        assert await journal.delete("b")
        assert await journal.append("b", 0, [b"anew"], summary=RunSummary()) == 1

    run(main())


def test_runs_are_listed_newest_first(journal: Journal) -> None:
    states: list[StateName] = ["completed", "running"]

    async def main() -> None:
        for number in range(5):
            summary = RunSummary(state=states[number % 2])
            await journal.append(f"run {number}", 0, documents(number + 1), summary=summary)
        await journal.append("run 1", 2, documents(1), summary=RunSummary())
        infos = await journal.list()
        assert [info.run for info in infos] == ["run 4", "run 3", "run 2", "run 1", "run 0"]
        assert [info.length for info in infos] == [5, 4, 3, 3, 1]
        assert [info.run for info in await journal.list(limit=2)] == ["run 4", "run 3"]
        assert [info.run for info in await journal.list(state="completed")] == ["run 4", "run 2", "run 0"]
        assert [info.run for info in await journal.list(state="running", limit=1)] == ["run 3"]
        assert await journal.list(limit=0) == []
        assert [info.run for info in await journal.list(after=infos[2].cursor)] == ["run 1", "run 0"]
        first = infos[-2]
        assert first == RunInfo("run 1", 3, RunSummary(), None, None, first.started_at, first.updated_at, first.cursor)
        assert await journal.get("run 1") == first

    run(main())


def test_start_and_update_times_are_stored(journal: Journal) -> None:
    async def main() -> None:
        before = time.time()
        await journal.append("a", 0, documents(1), summary=RunSummary())
        started = await journal.get("a")
        await journal.append("a", 1, documents(1), summary=RunSummary())
        updated = await journal.get("a")
        assert before - 1 < started.started_at == updated.started_at < time.time() + 1
        assert started.started_at <= started.updated_at <= updated.updated_at

    run(main())


def test_run_is_never_updated_before_its_start(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        await journal.append("a", 0, documents(1), summary=RunSummary())
        monkeypatch.setattr(time, "time", lambda: 0.0)  # the clock is set back
        await journal.append("a", 1, documents(1), summary=RunSummary())
        info = await journal.get("a")
        assert info.started_at == info.updated_at > 0

    run(main())


def test_last_summary_is_stored(journal: Journal) -> None:
    error = ErrorInfo("ServerError", "overloaded")
    running = RunSummary("m", turns=1, usage=Usage(1, 2))
    failed = RunSummary("m", "failed", 2, Usage(2, 4), error)

    async def main() -> None:
        await journal.append("a", 0, documents(1), owner="ann", summary=running)
        await journal.append("a", 1, documents(1), summary=running)
        info = await journal.get("a")
        assert (info.summary, info.owner, info.length) == (running, "ann", 2)
        await journal.append("a", 2, [], owner="somebody else", summary=failed)
        [info] = await journal.list()
        assert (info.summary, info.owner, info.length) == (failed, "ann", 2)

    run(main())


def test_interrupted_run_accepts_further_events(journal: Journal) -> None:
    async def main() -> None:
        await journal.append("a", 0, documents(1), summary=RunSummary(state="interrupted"))
        assert [info.run for info in await journal.list(state="interrupted")] == ["a"]
        await journal.append("a", 1, documents(1), summary=RunSummary(state="running"))
        assert await journal.list(state="interrupted") == []

    run(main())


def test_runs_are_listed_in_pages_by_owner_and_state(journal: Journal) -> None:
    async def pages(**filters: Any) -> list[list[str]]:
        listed, after = [], None
        while page := await journal.list(after=after, limit=3, **filters):
            listed.append([info.run for info in page])
            after = page[-1].cursor
            await journal.delete(page[-1].run)  # a cursor outlives its run
            await journal.append(
                f"new {filters} {len(listed)}", 0, documents(1), summary=RunSummary()
            )  # and new runs do not shift the pages
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


def test_unknown_state_is_rejected(journal: Journal) -> None:
    with pytest.raises(ConfigError, match="unknown state 'foo'; known states: running, completed"):
        run(journal.list(state="foo"))  # type: ignore[arg-type]


def test_negative_limit_is_rejected(journal: Journal) -> None:
    async def main() -> None:
        await journal.append("a", 0, documents(1), summary=RunSummary())
        for query in (journal.list(limit=-1), journal.sessions(limit=-1), journal.read("a", limit=-1)):
            with pytest.raises(ConfigError, match="limit must be 0 or more, or None for no limit, got -1"):
                await query

    run(main())


@pytest.mark.parametrize("cursor", ["", "x", "-1", "1.5", "9" * 19, "²"])
def test_invalid_cursor_is_rejected(journal: Journal, cursor: str) -> None:
    with pytest.raises(ConfigError, match="is not a cursor of this journal"):
        run(journal.list(after=cursor))


def test_every_run_follows_the_largest_cursor(journal: Journal) -> None:
    async def main() -> None:
        await journal.append("a", 0, documents(1), summary=RunSummary())
        assert [info.run for info in await journal.list(after="9" * 18)] == ["a"]

    run(main())


def test_events_can_be_any_bytes(journal: Journal) -> None:
    everything = [b"", bytes(range(256)), b"\0", '"é"'.encode(), b"x" * 10_000_000, b"\0" * 3_000_000]

    async def main() -> None:
        await journal.append("a", 0, everything, summary=DONE)
        assert await journal.read("a") == list(enumerate(everything))

    run(main())


def test_caller_can_change_its_list_after_append(journal: Journal) -> None:
    async def main() -> None:
        events = documents(2)
        appending = asyncio.create_task(journal.append("a", 0, events, summary=RunSummary()))
        await asyncio.sleep(0)
        events.clear()
        await appending
        assert await journal.read("a") == list(enumerate(documents(2)))

    run(main())


NAMES = ["a b", "é 東京 🚀", "' OR 1=1 --", "nul\0nul", "nul", "%", "A", "x" * 10_000, "../up", "12", "12.0"]


def test_run_can_have_any_name(journal: Journal) -> None:
    async def main() -> None:
        for name in NAMES:
            await journal.append(name, 0, [name.encode()], summary=RunSummary())
        for name in NAMES:
            assert await journal.read(name) == [(0, name.encode())]
        assert [info.run for info in await journal.list()] == NAMES[::-1]

    run(main())


def test_close_waits_for_earlier_requests(journal: Journal) -> None:
    async def main() -> None:
        appends = [
            asyncio.create_task(journal.append(f"run {number}", 0, documents(1), summary=RunSummary()))
            for number in range(50)
        ]
        await asyncio.sleep(0)
        await journal.aclose()
        assert await asyncio.gather(*appends) == [1] * 50

    run(main())


def test_runs_of_a_session_are_listed_and_grouped_by_owner(journal: Journal) -> None:
    async def main() -> None:
        await journal.append("a1", 0, documents(1), owner="ann", session="trip", summary=RunSummary())
        await journal.append("b1", 0, documents(1), owner="bob", session="trip", summary=RunSummary())
        await journal.append("a2", 0, documents(1), owner="ann", session="other", summary=RunSummary())
        await journal.append("x", 0, documents(1), owner="ann", summary=RunSummary())
        await journal.append("a3", 0, documents(1), owner="ann", session="trip", summary=DONE)
        await journal.append("a1", 1, documents(1, 1), session="ignored", summary=RunSummary())
        assert [info.run for info in await journal.list(session="trip", owner="ann")] == ["a3", "a1"]
        assert [info.run for info in await journal.list(session="trip")] == ["a3", "b1", "a1"]
        assert (await journal.get("a1")).session == "trip"
        assert (await journal.get("x")).session is None
        sessions = await journal.sessions(owner="ann")
        assert [(item.session, item.owner, item.runs, item.last_run) for item in sessions] == [
            ("trip", "ann", 2, "a3"),
            ("other", "ann", 1, "a2"),
        ]
        assert sessions[0].started_at <= sessions[0].updated_at
        assert [item.session for item in await journal.sessions(owner="ann", after=sessions[0].cursor)] == ["other"]
        assert [(item.session, item.owner) for item in await journal.sessions(limit=2)] == [
            ("trip", "ann"),
            ("other", "ann"),
        ]
        assert len(await journal.sessions()) == 3
        assert await journal.sessions(owner="nobody") == []
        await journal.delete("a2")
        assert [item.session for item in await journal.sessions(owner="ann")] == ["trip"]

    run(main())
