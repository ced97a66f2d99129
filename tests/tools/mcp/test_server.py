"""The tools of a server on the official SDK, over stdio and HTTP, in both versions of the protocol."""

import asyncio
import base64
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest

from midspan import Agent
from midspan._types.context import NO_CONTEXT, RunContext
from midspan._types.parts import Blob, Resource, Text, ToolCall, ToolResult
from midspan.errors import ConfigError
from midspan.events import SourceUnavailable, ToolEnd, ToolProgress
from midspan.testing import ScriptedProvider
from midspan.tools import MCPServer, source_of
from midspan.tools.mcp.protocols import ProtocolCache, ProtocolInfo
from tests.bounds import time_passes
from tests.tools.mcp.conftest import FOLDER, SAMPLE, Connect, cache_of, http_server

T = TypeVar("T")

pytestmark = pytest.mark.requirement("MC-01")


def with_server(server: MCPServer, use: Callable[[MCPServer], Awaitable[T]]) -> T:
    async def main() -> T:
        try:
            return await use(server)
        finally:
            await server.aclose()

    return asyncio.run(main())


def call(server: MCPServer, tool: str, context: RunContext[Any] = NO_CONTEXT, /, **arguments: Any) -> ToolResult:
    return with_server(server, lambda server: server.call(ToolCall("7", tool, arguments), context))


def test_tools_are_listed_with_their_schemas(connect_all: Connect) -> None:
    listing = with_server(connect_all(), lambda server: server.list_tools())
    assert listing.unavailable == ()
    specs = {spec.name: spec for spec in listing}
    assert specs["add"].description == "Adds two numbers."
    assert specs["add"].parameters is not None
    assert specs["add"].parameters["properties"]["a"]["description"] == "one"
    assert specs["add"].read_only
    assert specs["city"].response is not None
    assert specs["erase"].needs_approval


def test_structured_result_is_the_value(connect_all: Connect) -> None:
    result = call(connect_all(), "city", name="Rome")
    assert (result.id, result.name, result.is_error) == ("7", "city", False)
    assert result.value == {"name": "Rome", "people": 3_000_000}


def test_arguments_are_coerced_and_defaults_filled_in(connect: Connect) -> None:
    result = call(connect(), "add", a="40")
    assert result.value == 42
    assert result.notes == ('a: "40" → 40',)


def test_content_of_every_kind_keeps_its_order(connect: Connect) -> None:
    result = call(connect(), "media")
    assert result.value is None
    assert result.content == (
        Text("a text"),
        Blob("image/png", base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()),
        Blob("audio/wav", base64.b64encode(b"RIFF").decode()),
        Resource("file:///a.txt", "a link", "text/plain"),
        Resource("file:///b.txt", media_type="text/plain", text="inside"),
        Resource("file:///c.bin", media_type="application/x-c", base64="AAEC"),
    )


@pytest.mark.requirement("S2-19")
def test_empty_result_is_a_text(connect: Connect) -> None:
    assert call(connect(), "nothing").value == "Tool executed successfully with no output"


def test_error_of_a_tool_is_an_error_result(connect: Connect) -> None:
    result = call(connect(), "fail")
    assert result.is_error
    assert "Error executing tool fail" in result.value


def test_wrong_arguments_are_not_sent(connect: Connect) -> None:
    result = call(connect(), "add", a="many")
    assert result.is_error
    assert result.value == 'invalid parameters: a: expected integer, got string "many"'
    assert result.notes == ("not run",)


def test_unknown_tool_names_the_tools_that_there_are(connect: Connect) -> None:
    assert "did you mean city" in call(connect(), "citi").value


def run(agent: Agent, **options: Any) -> tuple[list[Any], Any]:
    """Return the events of a run, and its result."""

    async def main() -> tuple[list[Any], Any]:
        async with agent, agent.stream("?", **options) as stream:
            return [event async for event in stream], stream.result

    return asyncio.run(main())


def calling(server: Any, *calls: ToolCall, **options: Any) -> Agent:
    return Agent(ScriptedProvider([*calls, "done"]), [server], **options)


def results(events: list[Any]) -> list[ToolResult]:
    return [event.result for event in events if isinstance(event, ToolEnd)]


def test_progress_reaches_the_observer_of_the_run(connect_all: Connect) -> None:
    events, _ = run(calling(connect_all(), ToolCall("1", "count", {"steps": 3})))
    reports = [(event.fraction, event.message) for event in events if isinstance(event, ToolProgress)]
    assert reports[-1] == (1.0, "step 3")


def test_question_of_the_server_is_answered_by_the_agent(connect_all: Connect) -> None:
    asked: list[Any] = []

    async def on_question(question: str, schema: dict[str, Any] | None) -> Any:
        asked.append((question, schema))
        return {"people": 4}

    events, _ = run(calling(connect_all(), ToolCall("1", "book", {}), on_question=on_question))
    assert [result.model_value for result in results(events)] == ["accept: 4"]
    assert asked[0][0] == "sample asks: How many people?"
    assert asked[0][1]["properties"]["people"]["type"] == "integer"


@pytest.mark.parametrize(("answer", "action"), [(None, "decline"), ({"people": "many"}, "cancel")])
def test_question_can_be_declined(connect: Connect, answer: Any, action: str) -> None:
    async def on_question(question: str, schema: dict[str, Any] | None) -> Any:
        return answer

    events, _ = run(calling(connect(), ToolCall("1", "book", {}), on_question=on_question))
    assert [result.model_value for result in results(events)] == [action]


def test_question_whose_answer_is_cancelled_does_not_end_the_session(connect: Connect) -> None:
    async def on_question(question: str, schema: dict[str, Any] | None) -> Any:
        raise asyncio.CancelledError

    calls = [ToolCall("1", "book", {}), ToolCall("2", "add", {"a": 1})]
    events, _ = run(calling(connect(), *calls, on_question=on_question))
    assert [result.model_value for result in results(events)] == ["cancel", 3]


def test_question_without_anybody_to_ask_is_cancelled(connect: Connect) -> None:
    events, _ = run(calling(connect(), ToolCall("1", "book", {})))
    assert [result.model_value for result in results(events)] == ["cancel"]


def test_time_for_an_answer_does_not_count(connect_all: Connect) -> None:
    async def on_question(question: str, schema: dict[str, Any] | None) -> Any:
        time_passes(1_000)
        await asyncio.sleep(0)
        return {"people": 4}

    events, _ = run(calling(connect_all(timeout=900), ToolCall("1", "book", {}), on_question=on_question))
    assert [result.model_value for result in results(events)] == ["accept: 4"]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - another process writes a file
        await asyncio.sleep(0.01)


def test_cancelled_call_is_cancelled_on_the_server(connect_all: Connect, tmp_path: Path) -> None:
    path = tmp_path / "wait"

    async def use(server: MCPServer) -> None:
        await server.list_tools()
        task = asyncio.create_task(server.call(ToolCall("7", "wait", {"path": str(path)})))
        await until(lambda: path.exists() and path.read_text() == "started")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: path.read_text() == "cancelled")

    with_server(connect_all(), use)


def test_call_that_times_out_is_cancelled_on_the_server(connect_all: Connect, tmp_path: Path) -> None:
    path = tmp_path / "wait"

    async def use(server: MCPServer) -> ToolResult:
        await server.list_tools()
        task = asyncio.create_task(server.call(ToolCall("7", "wait", {"path": str(path)})))
        await until(lambda: path.exists() and path.read_text() == "started")
        time_passes(1_000)
        result = await task
        await until(lambda: path.read_text() == "cancelled")
        return result

    result = with_server(connect_all(timeout=900), use)
    assert result.value == "wait timed out after 900 seconds and was cancelled"


def test_call_ends_at_the_deadline_of_the_tool_that_makes_it(connect: Connect, tmp_path: Path) -> None:
    async def use(server: MCPServer) -> ToolResult:
        await server.list_tools()
        context: RunContext[None] = RunContext(deadline=time.monotonic() - 1)
        return await server.call(ToolCall("7", "wait", {"path": str(tmp_path / "wait")}), context)

    result = with_server(connect(timeout=900), use)
    assert result.value == "wait timed out after 0 seconds and was cancelled"


def test_destructive_tool_is_refused_unless_it_is_approved(connect: Connect) -> None:
    erase = ToolCall("1", "erase", {"what": "x"})
    events, _ = run(calling(connect(), erase))
    assert [event.value for event in results(events)] == [
        "erase was not run: it needs the approval of a person, and nobody can be asked"
    ]
    events, _ = run(calling(connect(approve=True), erase))
    assert [result.model_value for result in results(events)] == ["deleted x"]


def test_callback_decides_about_each_call_of_a_destructive_tool(connect: Connect) -> None:
    asked: list[ToolCall] = []

    async def approve(call: ToolCall) -> bool:
        asked.append(call)
        return call.arguments["what"] == "x"

    calls = [ToolCall("1", "erase", {"what": "x"}), ToolCall("2", "erase", {"what": "y"}), ToolCall("3", "nothing", {})]
    events, _ = run(calling(connect(approve=approve), *calls))
    assert [result.is_error for result in results(events)] == [False, True, False]
    assert "it requires approval, and the user did not approve it" in results(events)[1].value
    assert [call.arguments["what"] for call in asked] == ["x", "y"]


def test_only_true_approves_a_call(connect: Connect) -> None:
    async def approve(call: ToolCall) -> str:
        return "no"

    events, _ = run(calling(connect(approve=approve), ToolCall("1", "erase", {"what": "x"})))
    assert "the user did not approve it" in results(events)[0].value


def test_declaration_of_the_user_wins_over_annotations(connect: Connect) -> None:
    overrides = {"erase": {"needs_approval": False, "destructive": False}, "add": {"read_only": False}}
    listing = with_server(connect(overrides=overrides), lambda server: server.list_tools())
    specs = {spec.name: spec for spec in listing}
    assert not specs["erase"].needs_approval
    assert specs["add"].changes


def test_only_chosen_tools_are_used(connect: Connect) -> None:
    listing = with_server(connect(include={"add", "city"}, exclude={"city"}), lambda server: server.list_tools())
    assert [spec.name for spec in listing] == ["add"]


def test_chosen_tool_that_the_server_does_not_have_is_logged(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    async def use(server: MCPServer) -> None:
        await server.list_tools()
        server.accept_changes()
        await server.list_tools()  # asks the server again; its tools are the same

    with_server(connect(include={"add", "ad"}, overrides={"sum": {"read_only": True}}), use)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [warning.partition(", but")[0] for warning in warnings] == [
        "the options of the MCP server sample name the tool 'ad'",
        "the options of the MCP server sample name the tool 'sum'",
    ]
    assert "add" in warnings[0]


def test_source_can_be_used_from_several_event_loops(connect: Connect) -> None:
    server = connect()
    agent = Agent(
        ScriptedProvider([ToolCall("1", "add", {"a": 1}), "first", ToolCall("2", "add", {"a": 2}), "second"]), [server]
    )

    async def main() -> list[str]:
        listing = await server.list_tools()
        assert listing.tools
        texts = [(await asyncio.to_thread(agent.run_sync, "?")).text, (await agent.run("?")).text]
        await agent.aclose()
        return texts

    assert asyncio.run(main()) == ["first", "second"]
    assert call(server, "add", a=1).value == 3  # in another event loop, after the first one was closed


def test_closed_source_is_listed_several_times_at_once_in_each_event_loop(connect: Connect) -> None:
    async def use(server: MCPServer) -> list[bool]:
        listings = await asyncio.gather(*(server.list_tools() for _ in range(3)))
        return [bool(listing.tools) for listing in listings]

    server = connect()
    assert [with_server(server, use) for _ in range(2)] == [[True] * 3] * 2


def test_source_of_a_blocked_event_loop_is_an_error_and_not_a_deadlock(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("midspan.tools.wrap._MAX_BLOCKED_SECONDS", 0.2)
    agent = calling(connect(), ToolCall("1", "add", {"a": 1}))

    async def main() -> None:
        await agent.run("?")
        with pytest.raises(ConfigError, match="the event loop of this source is not running, or blocked"):
            agent.close()
        await agent.aclose()

    asyncio.run(main())


def test_changes_of_the_list_are_followed(transport: str, era: str, stack: ExitStack) -> None:
    options: dict[str, Any] = {"name": "sample", "protocol_cache": cache_of(era)}
    if transport == "http":
        options["url"] = stack.enter_context(http_server(SAMPLE))
    else:
        options["command"] = SAMPLE

    async def use(server: MCPServer) -> tuple[Any, Any]:
        before = await server.list_tools()
        assert (await server.list_tools()).is_same_as(before)
        assert (await server.call(ToolCall("7", "grow", {}))).model_value == "grown"
        while True:
            after = await server.list_tools()
            if not after.is_same_as(before):
                return before, after
            await asyncio.sleep(0.01)

    before, after = with_server(MCPServer(**options), use)
    assert {spec.name for spec in after} - {spec.name for spec in before} == {"added"}
    assert after.version == before.version + 1


def test_server_that_is_closed_while_it_starts_is_unavailable(era: str, tmp_path: Path) -> None:
    started = tmp_path / "started"
    program = "import sys, pathlib; pathlib.Path(sys.argv[1]).touch(); sys.stdin.read()"
    server = MCPServer([sys.executable, "-c", program, str(started)], name="silent", protocol_cache=cache_of(era))

    async def use(server: MCPServer) -> Any:
        listing = asyncio.create_task(server.list_tools())
        await until(started.exists)
        started.unlink()
        await server.aclose()
        return await listing

    listing = with_server(server, use)
    assert [source.message for source in listing.unavailable] == ["the connection was closed"]
    assert not started.exists(), "it was not started again"


@pytest.mark.requirement("MC-06")
def test_call_in_flight_when_the_server_dies_has_an_unknown_outcome(era: str, tmp_path: Path) -> None:
    server = MCPServer(SAMPLE, name="sample", protocol_cache=cache_of(era))
    path = str(tmp_path / "died")
    events, result = run(calling(server, ToolCall("1", "die", {"path": path}), ToolCall("2", "die", {"path": path})))
    lost, after = results(events)
    assert lost.is_error
    assert "The outcome is unknown" in lost.value
    assert after.model_value == "survived"
    assert result.text == "done"


@pytest.mark.requirement("MC-06")
def test_call_that_changes_nothing_is_made_again_when_the_server_dies(era: str, tmp_path: Path) -> None:
    server = MCPServer(SAMPLE, name="sample", protocol_cache=cache_of(era))
    assert call(server, "die_reading", path=str(tmp_path / "died")).model_value == "survived"


PUT = {"name": "put", "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}}}
IDEMPOTENT = {**PUT, "annotations": {"readOnlyHint": False, "idempotentHint": True, "destructiveHint": False}}
DESTRUCTIVE = {**PUT, "annotations": {"readOnlyHint": False, "idempotentHint": True, "destructiveHint": True}}
RENAMED = {**IDEMPOTENT, "name": "write"}
OTHER_PARAMETERS = {**IDEMPOTENT, "inputSchema": {"type": "object", "required": ["key"]}}


def restarting(folder: Path, first: Any, second: Any, **options: Any) -> MCPServer:
    """Return a server with other tools after its first end; None cannot be started."""
    command = [sys.executable, "-c", RESTARTING_SERVER, str(folder), json.dumps([first, second])]
    return MCPServer(command, name="db", protocol_cache=cache_of("2025-11-25"), **options)


@pytest.mark.requirement("MC-06")
@pytest.mark.parametrize("second", [None, RENAMED, OTHER_PARAMETERS, DESTRUCTIVE])
def test_outcome_stays_unknown_if_the_call_cannot_be_made_again(tmp_path: Path, second: Any) -> None:
    result = call(restarting(tmp_path, IDEMPOTENT, second), "put", n=5)
    assert (tmp_path / "calls").read_text() == '{"n": 5}'
    assert result.value.startswith("the connection to db was lost during put: ")
    assert result.value.endswith("The outcome is unknown: the call may have had an effect.")
    assert result.notes == ()


def test_call_is_not_made_again_after_the_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000.0]
    monkeypatch.setattr("midspan.tools.mcp.server.monotonic", lambda: now[0])

    async def approve(call: ToolCall) -> bool:
        now[0] += 900
        return True

    server = restarting(tmp_path, IDEMPOTENT, DESTRUCTIVE, approve=approve)
    context: RunContext[None] = RunContext(deadline=now[0] + 900)
    assert "The outcome is unknown" in call(server, "put", context, n=5).value
    assert (tmp_path / "calls").read_text() == '{"n": 5}'


def test_tool_that_became_destructive_is_approved_before_the_second_attempt(tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = []

    async def approve(call: ToolCall) -> bool:
        asked.append(call.arguments)
        return True

    result = call(restarting(tmp_path, IDEMPOTENT, DESTRUCTIVE, approve=approve), "put", n=5)
    assert result.model_value == "put"
    assert asked == [{"n": 5}]


def test_approval_is_asked_once_for_both_attempts(tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = []

    async def approve(call: ToolCall) -> bool:
        asked.append(call.arguments)
        return True

    assert call(restarting(tmp_path, DESTRUCTIVE, DESTRUCTIVE, approve=approve), "put", n=5).model_value == "put"
    assert asked == [{"n": 5}]


def test_call_is_sent_to_the_next_process_if_the_server_ends_before_it_is_approved(tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = []

    async def approve(call: ToolCall) -> bool:
        asked.append(call.arguments)
        os.kill(int((tmp_path / "starts").read_text()), signal.SIGTERM)
        await until(lambda: server.protocol_version is None)
        return True

    tool = {**PUT, "annotations": {"destructiveHint": True}}
    server = restarting(tmp_path, tool, tool, approve=approve)
    assert call(server, "put", n=5).model_value == "put"
    assert asked == [{"n": 5}]
    assert (tmp_path / "calls").read_text() == '{"n": 5}'


def test_approval_is_asked_for_the_arguments_that_are_sent(tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = []

    async def approve(call: ToolCall) -> bool:
        asked.append(call.arguments)
        return False

    properties = {"n": {"type": "integer"}, "force": {"type": "boolean", "default": True}}
    erase = {**DESTRUCTIVE, "inputSchema": {"type": "object", "properties": properties}}
    result = call(restarting(tmp_path, erase, None, approve=approve), "put", n="5")
    assert "the user did not approve it" in result.value
    assert asked == [{"n": 5, "force": True}]


@pytest.mark.requirement("MC-06")
@pytest.mark.parametrize("read_only", [True, False])
def test_every_call_in_flight_when_the_server_dies_has_an_unknown_outcome(
    era: str, tmp_path: Path, read_only: bool
) -> None:
    starts = tmp_path / "starts"
    overrides = {name: {"read_only": read_only} for name in ("crash", "wait")}
    server = MCPServer(SAMPLE, name="sample", protocol_cache=cache_of(era), overrides=overrides)
    waiting = [ToolCall(str(index), "wait", {"path": str(tmp_path / "waiting")}) for index in range(4)]
    crash = ToolCall("crash", "crash", {"path": str(starts)})

    async def use(server: MCPServer) -> tuple[list[ToolResult], ToolResult]:
        lost = await asyncio.gather(*(server.call(call) for call in (*waiting, crash)))
        return lost, await server.call(ToolCall("after", "add", {"a": 1}))

    lost, after = with_server(server, use)
    for result in lost:
        assert result.is_error
        assert "The outcome is unknown" in result.value
        assert result.notes == (("The call was tried 2 times.",) if read_only else ())
    assert starts.read_text() == ("xx" if read_only else "x")
    assert after.value == 3, "one death is one failure, after which the server is started at once"


@pytest.mark.requirement("MC-06")
def test_server_that_keeps_failing_is_tried_with_growing_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000.0]
    monkeypatch.setattr("midspan.tools.mcp.server.monotonic", lambda: now[0])

    async def use(server: MCPServer) -> list[str]:
        messages = []
        for seconds in (0, 0, 0, 1, 1, 1):
            now[0] += seconds
            messages.append((await server.list_tools()).unavailable[0].message)
        return messages

    messages = with_server(MCPServer([sys.executable, "-c", "raise SystemExit('no such thing')"], name="broken"), use)
    assert "its stderr ends with: no such thing" in messages[0]
    assert messages[0].startswith(f"the command {sys.executable!r} ended with code 1 before it answered; ")
    attempts = ["the next attempt" not in message for message in messages]
    assert attempts == [True, True, False, True, False, True]
    assert messages[2].endswith("the next attempt is made in 1 seconds")


def test_agent_works_with_the_servers_that_came_up() -> None:
    servers = [MCPServer(SAMPLE, name=f"s{index}", include={"add"}) for index in range(4)]
    servers += [MCPServer(["no-such-command"], name=f"gone{index}") for index in range(16)]
    agent = Agent(ScriptedProvider([ToolCall("1", "s2_add", {"a": 1}), "done"]), servers)
    events, _ = run(agent)
    assert [result.value for result in results(events)] == [3]
    missing = {event.source: event.message for event in events if isinstance(event, SourceUnavailable)}
    assert missing.keys() == {f"gone{index}" for index in range(16)}
    assert "the command 'no-such-command' cannot be started" in missing["gone0"]


def test_unavailable_server_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    servers = [MCPServer(["no-such-command"], name="gone"), MCPServer(SAMPLE, name="here", include={"add"})]
    with Agent(ScriptedProvider(["one", "two", "three"]), servers) as agent:
        for _ in range(3):
            agent.run_sync("?")
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert "the MCP server gone cannot be listed and are left out: the command 'no-such-command'" in warnings[0]


def test_names_are_prefixed_only_where_they_clash() -> None:
    servers = [MCPServer(SAMPLE, name="one", include={"add", "city"}), MCPServer(SAMPLE, name="two", include={"add"})]

    async def main() -> list[str]:
        source = source_of(servers)
        try:
            return [spec.name for spec in await source.list_tools()]
        finally:
            await source.aclose()

    assert asyncio.run(main()) == ["one_add", "city", "two_add"]


@pytest.mark.requirement("MC-03")
def test_environment_of_a_server_is_an_allow_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "secret")
    monkeypatch.setenv("SOME_TOKEN", "secret")
    result = call(MCPServer(SAMPLE, name="sample", env={"GIVEN": "1"}), "environment")
    names = {part.text for part in result.content if isinstance(part, Text)}
    assert {"PATH", "GIVEN"} <= names
    assert not {"GEMINI_API_KEY", "SOME_TOKEN"} & names


def test_era_of_a_silent_server_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server ignores what it does not know, so it is asked for the newer protocol once, and never again."""
    monkeypatch.setattr("mcp.client.session.DISCOVER_TIMEOUT_SECONDS", 0.2)
    program = tmp_path / "silent.py"
    log = tmp_path / "asked"
    program.write_text(SILENT_SERVER)
    cache = tmp_path / "protocols.json"

    def listed() -> list[str]:
        server = MCPServer([sys.executable, str(program), str(log)], name="silent", protocol_cache=ProtocolCache(cache))
        listing = with_server(server, lambda server: server.list_tools())
        return [spec.name for spec in listing]

    assert listed() == ["quiet"]
    assert listed() == ["quiet"]
    assert log.read_text().split() == ["server/discover", "initialize", "tools/list", "initialize", "tools/list"]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no process groups")
def test_child_processes_of_a_server_end_with_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    program = f"import subprocess; subprocess.Popen(['sleep', '60'], stdout=open({str(pipe)!r}, 'w'))"
    command = [sys.executable, "-c", f"{program}{SILENT_SERVER}", str(tmp_path / "asked")]
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    def has_writer() -> bool:
        try:
            return os.read(reader, 1) != b""
        except BlockingIOError:
            return True

    async def use(server: MCPServer) -> None:
        assert (await server.list_tools()).tools
        assert has_writer()
        await server.aclose()
        await asyncio.wait_for(until(lambda: not has_writer()), 5)

    try:
        with_server(MCPServer(command, name="parent", protocol_cache=cache_of("2025-11-25")), use)
    finally:
        os.close(reader)


def test_server_that_changes_its_protocol_version_is_asked_again(tmp_path: Path) -> None:
    cache = ProtocolCache(tmp_path / "protocols.json")
    server = MCPServer(SAMPLE, name="sample", protocol_cache=cache)
    cache.remember(server.config.identity, ProtocolInfo("legacy"))
    assert with_server(server, lambda server: server.list_tools()).tools
    hostile = MCPServer([sys.executable, str(FOLDER / "hostile_server.py")], name="hostile", protocol_cache=cache)
    cache.remember(
        hostile.config.identity, ProtocolInfo("2026-07-28", {"supportedVersions": ["2026-07-28"], "capabilities": {}})
    )
    with_server(hostile, lambda server: server.list_tools())
    assert with_server(hostile, lambda server: server.list_tools()).tools


SILENT_SERVER = """
import json, sys

for line in sys.stdin:
    request = json.loads(line)
    method = request["method"]
    if "id" not in request:
        continue
    with open(sys.argv[1], "a") as log:
        log.write(method + " ")
    if method == "initialize":
        info = {"name": "s", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    elif method == "tools/list":
        result = {"tools": [{"name": "quiet", "inputSchema": {"type": "object"}}]}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""


RESTARTING_SERVER = """
import json, os, sys
from pathlib import Path

folder = Path(sys.argv[1])
with (folder / "starts").open("a") as file:
    file.write(f"{os.getpid()}\\n")
starts = len((folder / "starts").read_text().split())
tool = json.loads(sys.argv[2])[min(starts, 2) - 1]
if tool is None:
    sys.exit("a lock is left behind")
for line in sys.stdin:
    request = json.loads(line)
    method, id = request["method"], request.get("id")
    if id is None:
        continue
    result = {}
    if method == "initialize":
        info = {"name": "s", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    elif method == "tools/list":
        result = {"tools": [tool]}
    elif method == "tools/call":
        with (folder / "calls").open("a") as file:
            file.write(json.dumps(request["params"]["arguments"]))
        if starts == 1:
            os._exit(1)
        result = {"content": [{"type": "text", "text": request["params"]["name"]}]}
    print(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}), flush=True)
"""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs a command or a url"),
        ({"command": "a", "url": "http://b"}, "needs a command or a url"),
        ({"command": ""}, "is empty"),
        ({"command": "a 'b"}, "cannot be split"),
        ({"url": "ftp://b"}, "must start with http"),
        ({"command": "a", "tiemout": 1}, "unknown option 'tiemout'"),
        ({"command": "a", "timeout": 0}, r"Expected `float` > 0.0 - at `\$.timeout`"),
        ({"command": "a", "env": {"A": 1}}, "env"),
        ({"command": 5}, "the command 5 cannot be split"),
        ({"url": 5}, "must start with http"),
        ({"command": "a", "approve": lambda call: True}, "approve must be True or an async function"),
        ({"command": "a", "approve": "ask"}, "approve must be True or an async function, got 'ask'"),
        ({"command": "a", "overrides": {"t": {"readonly": True}}}, "'t' has the unknown field 'readonly'; known: desc"),
        ({"command": "a", "overrides": {"t": {"read_only": "yes"}}}, r"Expected `bool.*at `\$.read_only`"),
    ],
)
def test_wrong_option_is_a_config_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MCPServer(**options)
