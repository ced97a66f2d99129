import asyncio
import gc
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import pytest

from midspan._storage.journal import RunSummary
from midspan._storage.sqlite import SqliteJournal
from midspan.errors import ConfigError, JournalError, RunElsewhereError, RunExistsError, UnknownRunError
from tests.bounds import BOUND, PATIENT_PROGRAM

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T], seconds: float = 5) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(seconds):
            return await coroutine

    return asyncio.run(bounded())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[SqliteJournal]:
    made = SqliteJournal(path)
    yield made
    run(made.aclose())


PROLOGUE = """
import asyncio, os, sys, threading
from midspan._storage.journal import RunSummary
from midspan._storage.sqlite import SqliteJournal
"""


def script(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Another process with this program, which gets the arguments in `sys.argv`."""
    code = PATIENT_PROGRAM + PROLOGUE + code
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def printed(process: subprocess.Popen[str]) -> str:
    """What it prints to its end, which has to be a good one."""
    output, errors = process.communicate(timeout=BOUND)
    assert (process.returncode, errors) == (0, "")
    return output


def test_appended_events_are_there_for_the_next_process(path: Path) -> None:
    writing = script(
        """
async def main():
    journal = SqliteJournal(sys.argv[1])
    await journal.append("a", 0, [b"1", b"2"], summary=RunSummary())
    await journal.append("a", 2, [b"3"], summary=RunSummary(state="completed"))
asyncio.run(main())
""",
        path,
    )
    assert printed(writing) == ""
    journal = SqliteJournal(path)
    assert run(journal.read("a")) == [(0, b"1"), (1, b"2"), (2, b"3")]
    with pytest.raises(RunElsewhereError):
        run(journal.append("a", 3, [b"4"], summary=RunSummary()))
    run(journal.aclose())


RACER = """
from midspan.errors import RunElsewhereError, RunExistsError
async def main():
    journal = SqliteJournal(sys.argv[1])
    await journal.list()
    print("ready", flush=True)
    sys.stdin.readline()
    won = length = 0
    while length < 400:
        try:
            length = await journal.append("a", length, [sys.argv[2].encode()] * 2, summary=RunSummary())
            won += 2
        except RunExistsError:
            length = (await journal.get("a")).length
        except RunElsewhereError as conflict:
            length = conflict.stored
    await journal.aclose()
    print(won)
asyncio.run(main())
"""


def test_one_of_several_writing_processes_gets_each_number(path: Path) -> None:
    racers = [script(RACER, path, number) for number in range(3)]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    won = [int(printed(racer)) for racer in racers]
    assert sum(won) == 400
    journal = SqliteJournal(path)
    events = run(journal.read("a"))
    assert [seq for seq, _ in events] == list(range(400))
    assert [sum(event == b"%d" % number for _, event in events) for number in range(3)] == won
    run(journal.aclose())


def test_processes_can_create_a_file_at_the_same_time(path: Path) -> None:
    code = """
sys.stdin.readline()
async def main():
    journal = SqliteJournal(sys.argv[1])
    await asyncio.gather(journal.append(sys.argv[2], 0, [b"x"], summary=RunSummary()), journal.list())
    await journal.aclose()
asyncio.run(main())
"""
    openers = [script(code, path, number) for number in range(6)]
    for opener in openers:
        assert opener.stdin is not None
        opener.stdin.write("go\n")
        opener.stdin.flush()
    for opener in openers:
        printed(opener)
    journal = SqliteJournal(path)
    assert sorted(info.run for info in run(journal.list())) == list("012345")
    run(journal.aclose())


APPENDER = """
from itertools import count
async def one(journal, name, size):
    length = 0
    for number in count():
        events = [b"%d/%d/" % (number, place) + b"x" * size for place in range(5)]
        length = await journal.append(name, length, events, summary=RunSummary())
        os.write(1, b"%s %d\\n" % (name.encode(), length))
async def main():
    journal = SqliteJournal(sys.argv[1])
    await asyncio.gather(*(one(journal, f"run-{number}", number * 700) for number in range(8)))
asyncio.run(main())
"""


@pytest.mark.parametrize("lines", [1, 40, 41, 300, 1001])
def test_killed_process_leaves_a_prefix_with_all_acknowledged_events(path: Path, lines: int) -> None:
    process = script(APPENDER, path)
    assert process.stdout is not None
    acknowledged = [process.stdout.readline() for _ in range(lines)]
    process.send_signal(signal.SIGKILL)
    rest, errors = process.communicate(timeout=BOUND)
    assert (process.returncode, errors) == (-signal.SIGKILL, "")
    promised: dict[str, int] = {}
    for line in "".join([*acknowledged, rest]).splitlines():
        name, _, length = line.partition(" ")
        promised[name] = int(length)
    journal = SqliteJournal(path)
    for number in range(8):
        name = f"run-{number}"
        try:
            events = run(journal.read(name))
        except UnknownRunError:  # killed before its first append
            events = []
        assert [seq for seq, _ in events] == list(range(len(events)))
        assert len(events) % 5 == 0, "an append is there as a whole or not at all"
        assert len(events) >= promised.get(name, 0)
        body = b"x" * (number * 700)
        assert [event for _, event in events] == [b"%d/%d/" % divmod(seq, 5) + body for seq in range(len(events))]
        assert run(journal.append(name, len(events), [b"go on"], summary=RunSummary())) == len(events) + 1
    run(journal.aclose())
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_journal_serves_many_threads_and_event_loops(journal: SqliteJournal) -> None:
    def work(number: int) -> None:
        for turn in range(5):
            run(journal.append(f"run {number}", turn, [b"x"], summary=RunSummary()))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(16)))
    assert {(info.run, info.length) for info in run(journal.list())} == {(f"run {number}", 5) for number in range(16)}


def test_event_loop_is_not_blocked_while_another_process_locks_the_file(path: Path, journal: SqliteJournal) -> None:
    async def main() -> None:
        await journal.append("a", 0, [b"1"], summary=RunSummary())
        other = sqlite3.connect(path, isolation_level=None)
        with closing(other):
            other.execute("BEGIN IMMEDIATE")
            waiting = asyncio.create_task(journal.append("a", 1, [b"2"], summary=RunSummary()))
            assert await journal.read("a") == [(0, b"1")]
            assert len(await journal.list()) == 1
            assert not waiting.done()
            other.execute("COMMIT")
            assert await waiting == 2

    run(main())


def test_locked_file_is_an_error_and_later_appends_succeed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("midspan._storage.sqlite_file._BUSY_SECONDS", 0.05)

    async def main() -> None:
        journal = SqliteJournal(path)
        await journal.append("a", 0, [b"1"], summary=RunSummary())
        other = sqlite3.connect(path, isolation_level=None)
        with closing(other):
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(JournalError, match=r"journal\.db failed: database is locked"):
                await journal.append("a", 1, [b"2"], summary=RunSummary())
            other.execute("COMMIT")
        assert await journal.append("a", 1, [b"2"], summary=RunSummary()) == 2
        await journal.aclose()

    run(main())


def test_append_of_something_else_than_bytes_stores_nothing_and_later_appends_succeed(journal: SqliteJournal) -> None:
    async def main() -> None:
        with pytest.raises(JournalError, match="failed: "):
            await journal.append("a", 0, [b"1", object()], summary=RunSummary())  # type: ignore[list-item]  # what is forbidden is tried
        assert await journal.append("b", 0, [b"1"], summary=RunSummary()) == 1
        assert [info.run for info in await journal.list()] == ["b"]

    run(main())


def test_conflicting_append_does_not_affect_others_in_its_transaction(journal: SqliteJournal) -> None:
    async def main() -> None:
        await journal.append("taken", 0, [b"x"], summary=RunSummary())
        appends = [journal.append(f"run {number}", 0, [b"x"], summary=RunSummary()) for number in range(20)]
        appends.insert(10, journal.append("taken", 0, [b"y"] * 3, summary=RunSummary()))
        outcomes = await asyncio.gather(*appends, return_exceptions=True)
        assert isinstance(outcomes.pop(10), RunExistsError)
        assert outcomes == [1] * 20

    run(main())


def test_append_that_cannot_be_stored_does_not_affect_others_in_its_transaction(journal: SqliteJournal) -> None:
    async def main() -> None:
        appends = [journal.append(f"run {number}", 0, [b"x"], summary=RunSummary()) for number in range(20)]
        appends.insert(10, journal.append("text", 0, [b"x"], session="\ud800", summary=RunSummary()))
        appends.insert(5, journal.append("object", 0, [object()], summary=RunSummary()))  # type: ignore[list-item]  # what is forbidden is tried
        outcomes = await asyncio.gather(*appends, return_exceptions=True)
        errors = [outcomes.pop(11), outcomes.pop(5)]
        assert [type(error) for error in errors] == [ConfigError, JournalError]
        assert "'\\ud800' is not valid Unicode" in str(errors[0])
        assert outcomes == [1] * 20
        assert len(await journal.list()) == 20

    run(main())


@pytest.mark.parametrize("is_replaced", [False, True])
def test_append_to_a_deleted_or_replaced_file_is_an_error(
    is_replaced: bool, path: Path, journal: SqliteJournal
) -> None:
    def delete() -> None:
        path.unlink()
        if is_replaced:
            path.touch()

    async def main() -> None:
        await journal.append("a", 0, [b"x"], summary=RunSummary())
        delete()
        with pytest.raises(JournalError, match="was deleted or replaced while it was in use"):
            await journal.append("a", 1, [b"y"], summary=RunSummary())
        await journal.append("b", 0, [b"x"], summary=RunSummary())  # into the new file
        assert [info.run for info in await SqliteJournal(path).list()] == ["b"]

    run(main())


@pytest.fixture
def unwritable(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() == 0:  # whom no permissions hold back
        yield Path("/proc/self")
        return
    tmp_path.chmod(0o500)
    yield tmp_path
    tmp_path.chmod(0o700)


def test_unwritable_directory_is_reported(unwritable: Path) -> None:
    expect_refusal(unwritable / "journal.db", r"cannot use .*journal\.db as a journal: unable to open database file")


def test_path_of_another_type_is_rejected() -> None:
    with pytest.raises(ConfigError, match="path must be a string or a Path, got 5"):
        SqliteJournal(5)  # type: ignore[arg-type]


def test_database_in_memory_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"use MemoryJournal\(\)"):
        SqliteJournal(":memory:")


def test_directory_is_rejected(tmp_path: Path) -> None:
    expect_refusal(tmp_path, "unable to open database file")


def test_file_that_is_not_a_database_is_rejected_unchanged(path: Path) -> None:
    text = "these are my notes\n" * 100
    path.write_text(text)
    expect_refusal(path, r"cannot use .*journal\.db as a journal: file is not a database")
    assert path.read_text() == text


def test_database_of_another_program_is_rejected_unchanged(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")
    before = path.read_bytes()
    expect_refusal(path, r"journal\.db is another program's database; use a separate file for the journal")
    assert path.read_bytes() == before


def test_journal_of_a_newer_version_is_rejected(path: Path, journal: SqliteJournal) -> None:
    run(journal.append("a", 0, [b"x"], summary=RunSummary()))
    run(journal.aclose())
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE journal_version SET version = 99")
    expect_refusal(path, r"journal format 99, but this release of Midspan uses format 3")


def test_journal_of_the_first_format_is_rejected(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE journal_version (version INTEGER NOT NULL)")
        connection.execute("INSERT INTO journal_version VALUES (1)")
    expect_refusal(path, r"journal format 1, but this release of Midspan uses format 3")


def expect_refusal(path: Path, words: str) -> None:
    journal = SqliteJournal(path)

    for use in (
        journal.append("a", 0, [b"x"], summary=RunSummary()),
        journal.read("a"),
        journal.list(),
        journal.delete("a"),
    ):
        with pytest.raises(ConfigError, match=words):
            run(use)
    run(journal.aclose())


LIMITED_FILE = """
import resource
from midspan.errors import JournalError
async def main():
    path, room, size, count = sys.argv[1], *map(int, sys.argv[2:])
    journal = SqliteJournal(path)
    await journal.append("a", 0, [b"1"], summary=RunSummary())
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(path + "-wal") + room, hard))
    events = [b"x" * size] * count
    try:
        await journal.append("a", 1, events, summary=RunSummary("m", "completed"))
    except JournalError as error:
        print(str(error).replace(path, "FILE"))
    other = SqliteJournal(path)
    for reader in (journal, other):
        assert await reader.read("a") == [(0, b"1")]
        assert (await reader.get("a")).summary == RunSummary()
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert await journal.append("a", 1, events, summary=RunSummary()) == 1 + count
    await other.aclose()
    await journal.aclose()
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("room", "size", "count"),
    [
        pytest.param(0, 10, 1, id="at the commit"),
        pytest.param(9_000, 10_000, 2, id="in the middle of the commit"),
        pytest.param(1_000_000, 1_000_000, 12, id="before the commit, when the page cache is full"),
    ],
)
def test_an_append_that_fails_stores_nothing_and_later_appends_succeed(
    path: Path, room: int, size: int, count: int
) -> None:
    words = "the journal FILE failed: disk I/O error\n"
    assert printed(script(LIMITED_FILE, path, room, size, count)) == words


FAILED_COMMIT = """
import resource
from midspan.errors import JournalError
async def main():
    journal = SqliteJournal(sys.argv[1])
    await journal.append("a", 0, [b"1"], summary=RunSummary())
    await journal.list()  # the connection of the reader keeps the WAL file as it is
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(sys.argv[1] + "-wal"), hard))
    appends = [journal.append(f"run {number}", 0, [b"x"], summary=RunSummary()) for number in range(20)]
    errors = await asyncio.gather(*appends, return_exceptions=True)
    assert all(type(error) is JournalError for error in errors), errors
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert [info.run for info in await journal.list()] == ["a"]
    appends = [journal.append(f"run {number}", 0, [b"x"], summary=RunSummary()) for number in range(20)]
    assert await asyncio.gather(*appends) == [1] * 20
    await journal.aclose()
asyncio.run(main())
"""


def test_failed_commit_is_reported_to_each_append_and_stores_none_of_them(path: Path) -> None:
    assert printed(script(FAILED_COMMIT, path)) == ""


def test_append_cancelled_while_it_waits_for_another_process_is_resolved_by_reading(
    path: Path, journal: SqliteJournal
) -> None:
    async def main() -> None:
        await journal.append("a", 0, [b"1"], summary=RunSummary())
        for number in range(1, 20):
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                append = asyncio.create_task(journal.append("a", number, [b"%d" % number], summary=RunSummary()))
                for _ in range(number % 4):
                    assert len(await journal.read("a")) == number  # time for the writer to start
                append.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await append
                other.execute("COMMIT")
            await journal.append(f"settled {number}", 0, [b"x"], summary=RunSummary())
            stored = await journal.read("a", number)
            assert stored in ([], [(number, b"%d" % number)])
            if stored:
                with pytest.raises(RunElsewhereError, match=f"has {number + 1} events, not {number}"):
                    await journal.append("a", number, [b"%d" % number], summary=RunSummary())
            else:
                await journal.append("a", number, [b"%d" % number], summary=RunSummary())
        assert await journal.read("a") == [(0, b"1")] + [(number, b"%d" % number) for number in range(1, 20)]

    run(main(), seconds=30)


def test_append_cancelled_before_its_turn_is_not_stored(path: Path, journal: SqliteJournal) -> None:
    async def main() -> None:
        await journal.append("a", 0, [b"1"], summary=RunSummary())
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            first = asyncio.create_task(journal.append("first", 0, [b"x"], summary=RunSummary()))
            for _ in range(50):
                await journal.read("a")  # time for the writer to take the first append, which waits for the lock
            second = asyncio.create_task(journal.append("second", 0, [b"x"], summary=RunSummary()))
            await asyncio.sleep(0)
            second.cancel()
            await asyncio.wait([second])
            other.execute("COMMIT")
        assert await first == 1
        await journal.append("third", 0, [b"x"], summary=RunSummary())
        assert sorted(info.run for info in await journal.list()) == ["a", "first", "third"]

    run(main(), seconds=30)


PRIVATE_FILES = """
import stat
os.umask(int(sys.argv[2], 8))
async def main():
    journal = SqliteJournal(sys.argv[1])
    await asyncio.gather(journal.append("a", 0, [b"secret"], summary=RunSummary()), journal.list())
    directory = os.path.dirname(os.path.realpath(sys.argv[1]))
    for file in sorted(os.listdir(directory)):
        print(file, oct(stat.S_IMODE(os.stat(os.path.join(directory, file)).st_mode)))
    if sys.argv[3:] != ["killed"]:
        await journal.aclose()
    sys.stdout.flush()
    os._exit(0)
asyncio.run(main())
"""
PRIVATE = "journal.db 0o600\njournal.db-shm 0o600\njournal.db-wal 0o600\n"


@pytest.mark.parametrize("umask", ["000", "022", "077"])
def test_only_the_owner_can_read_the_file_its_wal_and_its_shm(path: Path, umask: str) -> None:
    assert printed(script(PRIVATE_FILES, path, umask)) == PRIVATE


def test_file_is_created_private(path: Path, journal: SqliteJournal) -> None:
    run(journal.append("a", 0, [b"secret"], summary=RunSummary()))
    assert [file.stat().st_mode & 0o777 for file in path.parent.iterdir()] == [0o600] * 3


def test_file_created_through_a_symbolic_link_is_private(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "target" / "real.db")
    output = printed(script(PRIVATE_FILES, tmp_path / "link.db", "000"))
    assert output == "real.db 0o600\nreal.db-shm 0o600\nreal.db-wal 0o600\n"


@pytest.mark.parametrize("mode", [0o644, 0o666, 0o604])
def test_existing_journal_that_everybody_can_read_is_made_private(path: Path, mode: int) -> None:
    assert printed(script(PRIVATE_FILES, path, "022", "killed")) == PRIVATE  # leaves its WAL and SHM files
    for file in path.parent.iterdir():
        file.chmod(mode)
    assert printed(script(PRIVATE_FILES.replace('append("a", 0', 'append("b", 0'), path, "022")) == PRIVATE


def test_empty_file_that_everybody_can_read_is_made_private(path: Path) -> None:
    path.touch()
    path.chmod(0o644)
    assert printed(script(PRIVATE_FILES, path, "022")) == PRIVATE


def test_file_for_a_group_keeps_its_mode(path: Path) -> None:
    path.touch()
    path.chmod(0o640)
    assert printed(script(PRIVATE_FILES, path, "022")) == PRIVATE.replace("0o600", "0o640")


def test_mode_of_another_programs_database_is_not_changed(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")
    path.chmod(0o644)
    expect_refusal(path, "is another program's database")
    assert path.stat().st_mode & 0o777 == 0o644


ENDINGS = {
    "never closed": """
async def main():
    await journal.append("a", 0, [b"x"], summary=RunSummary())
    await journal.read("a")
asyncio.run(main())
""",
    "never used": "",
    "closed": """
async def main():
    await journal.append("a", 0, [b"x"], summary=RunSummary())
    await journal.aclose()
    async with asyncio.timeout(30):
        while threading.active_count() > 1:  # they have told their end, and have yet to end
            await asyncio.sleep(0.001)
asyncio.run(main())
""",
    "the loop is closed while an append is under way": """
loop = asyncio.new_event_loop()
async def main():
    loop.call_soon(loop.stop)
    await journal.append("a", 0, [b"x" * 3_000_000], summary=RunSummary())
task = loop.create_task(main())
try:
    loop.run_forever()
finally:
    task._log_destroy_pending = False
    loop.close()
""",
    "thousands of appends are under way": """
async def main():
    tasks = [asyncio.create_task(journal.append(str(n), 0, [b"x"], summary=RunSummary())) for n in range(3000)]
    await asyncio.sleep(0)
asyncio.run(main())
""",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_program_exits_at_once_without_output(path: Path, ending: str) -> None:
    assert printed(script("journal = SqliteJournal(sys.argv[1])\n" + ENDINGS[ending], path)) == ""


def test_threads_end_when_the_journal_is_garbage_collected(path: Path) -> None:
    before = set(threading.enumerate())
    journal = SqliteJournal(path)
    run(journal.append("a", 0, [b"x"], summary=RunSummary()))
    run(journal.read("a"))
    started = set(threading.enumerate()) - before
    assert len(started) == 2
    del journal
    gc.collect()
    for thread in started:
        thread.join(BOUND)
        assert not thread.is_alive()


def test_closed_journal_rejects_everything(journal: SqliteJournal) -> None:
    async def main() -> None:
        await journal.append("a", 0, [b"x"], summary=RunSummary())
        await journal.aclose()
        await journal.aclose()
        for use in (
            journal.append("a", 1, [b"x"], summary=RunSummary()),
            journal.read("a"),
            journal.get("a"),
            journal.list(),
            journal.delete("a"),
        ):
            with pytest.raises(ConfigError, match="closed"):
                await use

    run(main())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_forked_child_uses_its_own_threads(path: Path) -> None:
    code = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
journal = SqliteJournal(sys.argv[1])
asyncio.run(journal.append("a", 0, [b"parent"], summary=RunSummary()))
child = os.fork()
if not child:
    asyncio.run(asyncio.wait_for(journal.append("a", 1, [b"child"], summary=RunSummary()), 30))
    asyncio.run(asyncio.wait_for(journal.aclose(), 30))
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert asyncio.run(journal.read("a")) == [(0, b"parent"), (1, b"child")]
asyncio.run(journal.aclose())
"""
    assert printed(script(code, path)) == ""


def test_close_waits_for_a_locked_file_and_does_not_block_the_event_loop(path: Path, journal: SqliteJournal) -> None:
    async def main() -> None:
        await journal.append("a", 0, [b"1"], summary=RunSummary())
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            waiting = asyncio.create_task(journal.append("a", 1, [b"2"], summary=RunSummary()))
            await journal.read("a")  # by now the append waits for the other connection
            closed = asyncio.create_task(journal.aclose())
            await asyncio.wait([closed], timeout=0)
            assert not closed.done()
            other.execute("COMMIT")
            await closed
            assert await waiting == 2
        assert list(path.parent.iterdir()) == [path]

    run(main())


def test_file_and_wal_do_not_grow_without_limit(path: Path, journal: SqliteJournal) -> None:
    async def main() -> None:
        for number in range(30):
            await journal.append(f"run {number}", 0, [b"x" * 1_000_000], summary=RunSummary(state="completed"))
            await journal.delete(f"run {number}")

    run(main(), seconds=20)
    assert sum(file.stat().st_size for file in path.parent.iterdir()) < 20_000_000


def test_closed_journal_is_one_file_that_readers_do_not_block(path: Path, journal: SqliteJournal) -> None:
    async def main() -> None:
        await journal.append("a", 0, [b"x"], summary=RunSummary())
        assert path.with_name(f"{path.name}-wal").exists()
        await journal.aclose()

    asyncio.run(main())
    assert list(path.parent.iterdir()) == [path]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
