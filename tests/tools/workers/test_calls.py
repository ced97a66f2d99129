"""Calls in workers: results, output, progress, callbacks, and workers that die."""

import asyncio
import contextlib
import logging
import os
import random
import signal
from collections import Counter as Tally
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from midspan import Agent, Limits, tool
from midspan._types.context import RunContext
from midspan.errors import ConfigError, ToolError, WorkerError
from midspan.events import ToolProgress
from midspan.messages import ToolCall, ToolResult
from midspan.testing import ScriptedProvider
from midspan.tools import ToolSource, WorkerLimits, Workers
from tests.tools.workers.conftest import TOKEN, Counter, run


def call(workers: Workers, name: str, **arguments: Any) -> ToolResult:
    return run(workers.call(ToolCall("7", name, arguments)))


@pytest.mark.requirement("S0-14")
def test_functions_of_a_file_are_registered_with_names_docstrings_hints_and_defaults(
    make_workers: Callable[..., Workers], tmp_path: Path
) -> None:
    file = tmp_path / "weather.py"
    file.write_text('''
def get_current_weather(location: str, unit: str = "celsius"):
    """Gets the current weather for a given location."""
    return {"temperature": "22", "unit": unit}

def _hidden():
    pass
''')
    [spec] = run(make_workers(file).list_tools())
    assert (spec.name, spec.description) == (
        "get_current_weather",
        "Gets the current weather for a given location.",
    )
    assert spec.parameters == {
        "type": "object",
        "properties": {"location": {"type": "string"}, "unit": {"type": "string", "default": "celsius"}},
        "required": ["location"],
        "additionalProperties": False,
    }


def test_worker_imports_neither_providers_nor_the_loop(workers: Workers) -> None:
    modules = call(workers, "modules").value
    assert "midspan.tools.execution" in modules
    assert [name for name in modules if name.startswith(("midspan.providers", "midspan._loop", "midspan._http"))] == []
    assert not {"httptools", "mcp", "starlette", "rich"} & set(modules)


def test_file_that_cannot_be_imported_is_a_config_error(make_workers: Callable[..., Workers], tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import nothing_of_this_name")
    with pytest.raises(ConfigError, match=r"cannot load the tools in .*broken.py.*nothing_of_this_name"):
        run(make_workers(broken).list_tools())
    broken.write_text("import os; os._exit(7)")
    with pytest.raises(WorkerError, match="exited with code 7 before it had registered its tools"):
        run(make_workers(broken).list_tools())
    broken.write_text("import time; time.sleep(60)")
    with pytest.raises(WorkerError, match=r"had not registered its tools after 0.5 seconds"):
        run(make_workers(broken, limits=WorkerLimits(start_seconds=0.5)).list_tools())
    broken.write_text("from midspan.tools import LocalTools\ntools = LocalTools([])")
    with pytest.raises(ConfigError, match="a worker runs functions and tools only"):
        run(make_workers(broken).list_tools())
    with pytest.raises(ConfigError, match="no such file"):
        Workers(tmp_path / "missing.py")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"processes": 0}, "processes must be a positive number"),
        ({"listen": "unix:/x", "token": "t"}, "either the file of the tools or listen"),
        ({"tools": 5}, "expected the name of a file or a module with tools, got 5"),
        ({"tools": None}, "either the file of the tools or listen"),
        ({"tools": None, "listen": "unix:/x"}, "listen= needs token=…, the secret that workers must know"),
        ({"tools": None, "listen": "unix:/x", "token": "t"}, "a token has fewer than 16 characters"),
        ({"tools": None, "listen": "unix:/x", "token": "t" * 15}, "a token has fewer than 16 characters"),
        ({"tools": None, "listen": "unix:/x", "token": ""}, "a token must be printable ASCII"),
        ({"tools": None, "listen": "unix:/x", "token": TOKEN, "sandbox": True}, "^sandbox= is for workers that"),
        ({"tools": None, "listen": "/x", "token": TOKEN}, "invalid address '/x'"),
        ({"limits": {"max_cpu_seconds": 5}}, "limits must be a WorkerLimits"),
        ({"tools": None, "listen": "tcp:host:99999", "token": TOKEN}, "invalid address"),
    ],
)
def test_invalid_options_are_config_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Workers(**{"tools": "json", **options})


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"stuck_seconds": 0}, "stuck_seconds must be a positive number of seconds, got 0"),
        ({"max_memory_bytes": 1.5e9}, "max_memory_bytes must be a positive int or None, got 1500000000.0"),
        ({"max_sessions": None}, "max_sessions must be a positive int, got None"),
        ({"idle_seconds": float("nan")}, "idle_seconds must be a positive number of seconds or None, got nan"),
    ],
)
def test_invalid_limit_is_a_config_error(limits: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}$"):
        WorkerLimits(**limits)


def test_repr_shows_the_tools_or_the_address_and_no_token() -> None:
    assert repr(Workers("json")) == "Workers('json')"
    assert repr(Workers(listen="unix:/x", token="secret-of-the-workers")) == "Workers(listen='unix:/x')"


def test_values_arrive_unchanged(workers: Workers) -> None:
    number = 2**80
    assert call(workers, "whole", number=number).value == number
    assert call(workers, "whole", number="12").value == 12  # coerced, as in a host
    assert "invalid parameters" in call(workers, "whole", number="x").value
    assert "not JSON serializable" in call(workers, "whole", number=object()).value
    for id, run_id in (("\ud800", "run"), ("1", "\ud800")):
        result = run(workers.call(ToolCall(id, "pid"), RunContext(run_id=run_id)))
        assert "pid was not run: the call is not JSON serializable" in result.value
    assert call(workers, "leave").value == "leave failed: SystemExit: enough"
    assert "a worker may return" in call(workers, "everything").value
    assert call(workers, "pid").value  # the worker is still there


def test_context_that_is_not_json_serializable_is_an_error_for_the_tool_that_reads_it(workers: Workers) -> None:
    async def main() -> ToolResult:
        return await workers.call(ToolCall("1", "total", {"items": []}), RunContext(object()))

    assert "is not JSON serializable" in run(main()).value


def test_path_that_cannot_be_passed_to_a_worker_is_an_error(
    make_workers: Callable[..., Workers], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend("/folder-\udcff")  # how Python reads a name that is not UTF-8
    assert "could not be started" in call(make_workers(), "pid").value


def test_output_goes_to_the_log_with_the_id_of_the_call(workers: Workers, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "midspan.tools.workers"):
        for id in ("first", "second"):
            run(workers.call(ToolCall(id, "speak", {"text": f"hello {id}"}), RunContext(run_id="run_1")))
    lines = [record.getMessage() for record in caplog.records if "run_1" in record.getMessage()]
    for id in ("first", "second"):
        prefix = f"[run_1 {id}] "
        spoken = sorted(line.removeprefix(prefix) for line in lines if line.startswith(prefix))
        assert spoken == [f"child: hello {id}", f"error: hello {id}", f"hello {id}", "unfinished"]


def test_output_during_the_import_of_the_tools_is_logged(
    make_workers: Callable[..., Workers], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "chatty.py"
    file.write_text("print('at import')\n\ndef one() -> int:\n    'Returns 1.'\n    return 1\n")
    with caplog.at_level(logging.INFO, "midspan.tools.workers"):
        assert run(make_workers(file).call(ToolCall("1", "one"), RunContext(run_id="run_1"))).value == 1
    [line] = [record.getMessage() for record in caplog.records if "at import" in record.getMessage()]
    assert "run_1" not in line


def test_message_that_cannot_be_logged_does_not_fail_the_call(
    make_workers: Callable[..., Workers], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "logs.py"
    file.write_text(
        "import logging\n\ndef warn() -> str:\n    'Logs.'\n    log = logging.getLogger('logs')\n"
        "    log.warning('%d items', 'abc')\n    log.warning('file %s', 'a\\udcff')\n"
        "    log.warning('last')\n    return 'done'\n"
    )
    with caplog.at_level(logging.INFO, "midspan.tools.workers"):
        assert call(make_workers(file), "warn").value == "done"
    assert "Message: '%d items'" in caplog.text  # as other handlers report it
    assert "logs: last" in caplog.text


def test_async_function_prints_more_than_a_pipe_holds(make_workers: Callable[..., Workers], tmp_path: Path) -> None:
    file = tmp_path / "loud.py"
    file.write_text(
        "async def shout() -> int:\n    'Prints a lot.'\n"
        "    for _ in range(30):\n        print('x' * 50_000)\n    return 30\n"
    )
    assert call(make_workers(file), "shout").value == 30


def test_output_of_a_killed_call_is_logged(workers: Workers, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "midspan.tools.workers"):
        run(workers.call(ToolCall("1", "die", {"path": str(tmp_path / "x")}), RunContext(run_id="run_1")))
    assert "was killed by SIGSEGV" in caplog.text
    assert "[run_1 1] about to die" in caplog.text


def test_progress_reaches_the_readers_of_a_run(workers: Workers, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> list[tuple[Any, ...]]:
        model = ScriptedProvider([ToolCall("1", "report"), "done"])
        async with Agent(model, tools=workers).stream("?") as stream:
            return [(e.call_id, e.fraction, e.message) async for e in stream if isinstance(e, ToolProgress)]

    with caplog.at_level(logging.INFO, "midspan"):
        assert run(main()) == [("1", 0.4, "reading")]
    assert " 1] a note" in caplog.text


def test_texts_that_are_not_valid_unicode_are_replaced(workers: Workers, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "midspan"):
        assert (
            call(workers, "fail_with_surrogates").value == "fail_with_surrogates failed: ValueError: bad \ufffd thing"
        )
    assert "note \ufffd" in caplog.text
    assert 'raise ValueError("bad' in caplog.text, "the traceback"
    assert "ran, but its result cannot be sent" in call(workers, "fail_with_surrogates", is_content=True).value


def test_file_whose_error_is_not_valid_unicode_is_a_config_error(
    make_workers: Callable[..., Workers], tmp_path: Path
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("raise ValueError('bad \\ud800 thing')")
    with pytest.raises(ConfigError, match="bad \ufffd thing"):
        run(make_workers(broken).list_tools())


@tool(read_only=True)
async def price(item: str) -> int:
    """The price of an item."""
    return {"lamp": 20, "chair": 45}[item]


@pytest.mark.requirement("W-07")
def test_tool_of_a_worker_calls_a_tool_of_the_host(workers: Workers) -> None:
    script = [
        [ToolCall("1", "total", {"items": ["lamp", "chair"]}), ToolCall("2", "total_in_thread", {"items": ["lamp"]})],
        "done",
    ]
    agent = Agent(ScriptedProvider(script), tools=[workers, price])
    result = agent.run_sync("?", context={"shipping": 5})
    assert [tool_run.value for tool_run in result.tool_calls] == [70, 20]


@pytest.mark.requirement("W-07")
def test_calls_back_to_the_host_count_against_the_limits(workers: Workers) -> None:
    agent = Agent(ScriptedProvider([ToolCall("1", "total", {"items": ["lamp"] * 3}), "done"]), tools=[workers, price])
    limits = Limits(max_calls_per_tool={"price": 2})
    [tool_run] = agent.run_sync("?", context={"shipping": 5}, limits=limits).tool_calls
    assert tool_run.is_error
    [alone] = (
        Agent(ScriptedProvider([ToolCall("1", "total", {"items": ["lamp"]}), "x"]), workers).run_sync("?").tool_calls
    )
    assert alone.is_error
    outside = call(workers, "total", items=["lamp"])
    assert outside.value == "price can be called only within a run"


def test_tool_of_a_worker_asks_the_user(workers: Workers) -> None:
    async def answer(question: str, _schema: Any) -> str:
        return f"{question} Yes"

    agent = Agent(ScriptedProvider([ToolCall("1", "ask", {"question": "Sure?"}), "done"]), tools=workers)
    assert agent.run_sync("?", on_question=answer).tool_calls[0].value == "Sure? Yes!"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (asyncio.CancelledError(), "ask_user was cancelled"),
        (ToolError("file \udce9 is missing"), "file \ufffd is missing"),
        (ValueError("file \udce9 is missing"), "ValueError: file \ufffd is missing"),
    ],
    ids=["cancelled", "surrogate", "surrogate of another error"],
)
def test_question_that_fails_is_an_error_for_the_tool_of_a_worker(
    workers: Workers, error: BaseException, message: str
) -> None:
    async def on_question(_question: str, _schema: Any) -> str:
        raise error

    agent = Agent(ScriptedProvider([ToolCall("1", "ask", {"question": "Sure?"}), "done"]), tools=workers)

    async def main() -> Any:
        return (await agent.run("?", on_question=on_question)).tool_calls[0].value

    assert message in run(main())


def test_tool_that_calls_a_tool_of_its_own_pool_does_not_wait_for_itself(workers: Workers) -> None:
    agent = Agent(ScriptedProvider([ToolCall("1", "descend", {"levels": 2}), "done"]), tools=workers)
    [tool_run] = agent.run_sync("?").tool_calls
    assert len(set(tool_run.value)) == 3
    workers.open_session("s")
    agent = Agent(ScriptedProvider([ToolCall("1", "descend", {"levels": 1}), "done"]), tools=workers.source("s"))
    [tool_run] = agent.run_sync("?").tool_calls
    assert "occupies the session" in tool_run.value[1]


@pytest.mark.requirement("W-05")
def test_outcome_of_a_call_whose_worker_died_is_unknown(workers: Workers, tmp_path: Path) -> None:
    result = call(workers, "die", path=str(tmp_path / "lines"))
    assert result.value == "die: outcome unknown: its process was killed by SIGSEGV; it may have had an effect"
    for code in (9, 255):
        result = call(workers, "die", path=str(tmp_path / "lines"), code=code)
        assert f"outcome unknown: its process exited with code {code};" in result.value
    assert len((tmp_path / "lines").read_text().splitlines()) == 3


def test_crash_after_much_output_is_noticed_at_once(make_workers: Callable[..., Workers], tmp_path: Path) -> None:
    file = tmp_path / "loud.py"
    file.write_text(
        "import os\n\ndef crash() -> None:\n    'Prints more than a pipe holds.'\n"
        "    os.write(1, b'x' * 500_000)\n    os.kill(os.getpid(), 9)\n"
    )
    result = call(make_workers(file), "crash")
    assert "outcome unknown: its process was killed by SIGKILL" in result.value


@pytest.mark.requirement("W-05")
def test_read_only_and_idempotent_calls_are_run_again_three_times_at_most(
    workers: Workers, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    result = call(workers, "die_reading", path=str(tmp_path / "a"))
    warning = "running die_reading again, because its worker was killed by SIGSEGV"
    assert [record.getMessage() for record in caplog.records].count(warning) == 3
    assert result.value == "die_reading failed in 4 runs: its process was killed by SIGSEGV"
    assert len((tmp_path / "a").read_text().splitlines()) == 4
    call(workers, "pid")  # the next call finds an idle worker
    assert call(workers, "die_once", path=str(tmp_path / "b")).value == "done"
    assert "running die_once again, because its worker was killed by SIGSEGV" in caplog.text


@pytest.mark.requirement("W-05")
@pytest.mark.parametrize("is_idle", [True, False], ids=["idle worker", "new worker"])
@pytest.mark.parametrize("change", ["raise ValueError('broken')", "del put"])
def test_outcome_stays_unknown_if_the_call_cannot_be_run_again(
    make_workers: Callable[..., Workers], tmp_path: Path, is_idle: bool, change: str
) -> None:
    file, lines = tmp_path / "mytools.py", tmp_path / "lines"
    file.write_text(f"""
import os
from pathlib import Path
from midspan import tool

def other() -> None:
    "Does nothing."

@tool(writes="lines", idempotent=True)
def put() -> None:
    "Writes a line, and ends the process."
    with Path({str(lines)!r}).open("a") as file:
        file.write("line")
    with Path(__file__).open("a") as file:
        file.write({change!r})
    os._exit(1)
""")
    workers = make_workers(file)
    if is_idle:
        run(workers.list_tools())
    result = call(workers, "put")
    assert lines.read_text() == "line"
    assert result.value == "put: outcome unknown: its process exited with code 1; it may have had an effect"
    assert result.notes == ()


@pytest.mark.requirement("W-05")
def test_a_thousand_calls_with_workers_killed_at_random(make_workers: Callable[..., Workers], tmp_path: Path) -> None:
    workers = make_workers(processes=2)
    files = {name: tmp_path / name for name in ("note", "look")}
    chosen = random.Random(22)

    victims = set(chosen.sample(range(50, 1000), 40))
    """The calls during which a worker is killed."""
    kills: list[int] = []

    async def kill_a_worker() -> None:
        await asyncio.sleep(chosen.uniform(0, 0.01))
        lines = [line for file in files.values() for line in file.read_text().splitlines()[-2:]]
        pid = int(chosen.choice(lines).split()[1])
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            kills.append(pid)

    async def one(number: int, slots: asyncio.Semaphore) -> ToolResult:
        name = "look" if number % 3 == 0 else "note"
        async with slots:
            killing = [kill_a_worker()] if number in victims else []
            calling = workers.call(ToolCall(str(number), name, {"path": str(files[name]), "number": number}))
            result, *_ = await asyncio.gather(calling, *killing)
            return result

    async def main() -> list[ToolResult]:
        await workers.list_tools()
        slots = asyncio.Semaphore(8)
        return await asyncio.gather(*(one(number, slots) for number in range(1000)))

    results = asyncio.run(main())
    runs = {name: Tally(int(line.split()[0]) for line in file.read_text().splitlines()) for name, file in files.items()}
    assert len(kills) >= 10
    assert [result.id for result in results] == [str(number) for number in range(1000)]
    for number, result in enumerate(results):
        if number % 3 == 0:
            assert 1 <= runs["look"][number] <= 4 or result.is_error
        elif result.is_error:
            assert "outcome unknown" in result.value
            assert runs["note"][number] <= 1
        else:
            assert (result.value, runs["note"][number]) == (number, 1)


def test_workers_are_a_tool_source_that_can_be_used_again_after_closing(workers: Workers) -> None:
    assert isinstance(workers, ToolSource)
    first = call(workers, "pid").value
    run(workers.aclose())
    assert call(workers, "pid").value != first


def test_forked_process_starts_workers_of_its_own(workers: Workers) -> None:
    parent_pid = call(workers, "pid").value
    readable, writable = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writable, str(call(workers, "pid").value).encode())
            run(workers.aclose())
        finally:
            os._exit(0)
    os.close(writable)
    os.waitpid(child, 0)
    child_pid = int(os.read(readable, 100))
    os.close(readable)
    assert child_pid != parent_pid
    assert call(workers, "pid").value == parent_pid


@pytest.mark.parametrize("session", [None, "s"])
def test_call_that_is_cancelled_at_once_ends(workers: Workers, counter: Counter, session: str | None) -> None:
    async def main() -> None:
        workers.open_session("s")
        arguments = {"port": counter.port}
        busy = asyncio.create_task(workers.execute_in_session(session, "wait_politely", arguments))
        await asyncio.to_thread(counter.next)
        for _ in range(50):  # the cancellation must arrive before the first step of the task in the other thread
            call = asyncio.create_task(workers.call(ToolCall("c", "pid", {}), RunContext(), session=session))
            await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait([call])
            assert call.cancelled()
        busy.cancel()
        await asyncio.wait([busy])

    run(main())


@pytest.mark.parametrize("session", [None, "s"])
def test_call_that_waits_is_not_run_after_closing(
    workers: Workers, counter: Counter, tmp_path: Path, session: str | None
) -> None:
    path = tmp_path / "lines"

    async def main() -> list[ToolResult]:
        workers.open_session("s")
        arguments = {"port": counter.port}
        busy = asyncio.create_task(workers.execute_in_session(session, "wait_politely", arguments))
        await asyncio.to_thread(counter.next)
        note = {"path": str(path), "number": 1}
        queued = asyncio.create_task(workers.execute_in_session(session, "note", note))
        await asyncio.sleep(0)  # it is on its way
        await workers.aclose()
        return [await busy, await queued]

    busy, queued = run(main())
    assert "wait_politely: outcome unknown" in busy.value
    assert "note was not run" in queued.value
    assert not path.exists()
