import asyncio
import base64
import threading
from contextlib import aclosing
from typing import Any, Literal, TypedDict

import mcp_types
import pytest
from mcp import Client
from mcp.client import ClientRequestContext
from mcp.shared.exceptions import MCPError

from midspan._types.context import RunContext
from midspan._types.parts import Blob, Resource, Text, ToolCall, ToolResult
from midspan._types.specs import Effects, ToolSpec
from midspan.errors import ConfigError, ToolError
from midspan.tools import MCPServer, ToolListing, ToolSource, mcp_app, mcp_server, serve_mcp, tool, tool_from_spec
from midspan.tools.toolbox import Toolbox
from tests.bounds import BOUND
from tests.tools.mcp_serve.serving import ERAS, served

pytestmark = pytest.mark.anyio

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 8


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def add(a: int, b: int = 1) -> int:
    """Add two numbers.

    Args:
        a: The first one.
        b: The second one.
    """
    return a + b


def texts(result: mcp_types.CallToolResult) -> list[str]:
    return [block.text for block in result.content if isinstance(block, mcp_types.TextContent)]


@pytest.mark.requirement("MS-01")
async def test_functions_are_listed_with_their_schemas(era: str) -> None:
    async with Client(mcp_server([add], name="sums", instructions="Use add."), mode=era) as client:
        assert client.server_info is not None
        assert client.server_info.name == "sums"
        assert client.instructions == "Use add."
        assert client.server_capabilities.tools is not None
        assert client.server_capabilities.tools.list_changed
        (declared,) = (await client.list_tools()).tools
    assert declared.name == "add"
    assert declared.description is not None
    assert declared.description.startswith("Add two numbers.")
    assert declared.input_schema["properties"]["a"] == {"type": "integer", "description": "The first one."}
    assert declared.input_schema["required"] == ["a"]
    assert declared.output_schema == {
        "type": "object",
        "properties": {"result": {"type": "integer"}},
        "required": ["result"],
    }


class Pair(TypedDict):
    first: int
    second: int


class Found(TypedDict):
    result: int
    page: int


async def test_values_return_to_midspan_as_the_functions_returned_them() -> None:
    def find(name: str) -> int | None:
        return 3 if name == "ann" else None

    def pairs() -> list[Pair]:
        return [{"first": 1, "second": 2}]

    def search() -> Found:
        return {"result": 1, "page": 2}

    functions = [add, find, pairs, search]
    async with served(mcp_app(functions)) as url, aclosing(MCPServer(url=url)) as server:
        calls = [
            ("add", {"a": 11}),
            ("find", {"name": "ann"}),
            ("find", {"name": "bob"}),
            ("pairs", {}),
            ("search", {}),
        ]
        results = [await server.call(ToolCall("1", name, arguments)) for name, arguments in calls]
        specs = await server.list_tools()
    assert [result.value for result in results] == [12, 3, None, pairs(), search()]
    assert [spec.response for spec in specs] == [tool(function).spec.response for function in functions]


@pytest.mark.requirement("MS-02")
async def test_annotations_follow_from_the_effects(era: str) -> None:
    @tool(reads="note:{id}")
    def read(id: str) -> str:
        return id

    @tool(writes="note:{id}", idempotent=True)
    def write(id: str) -> str:
        return id

    @tool(writes="note:{id}", destructive=True, open_world=False)
    def delete(id: str) -> str:
        return id

    def unknown(id: str) -> str:
        return id

    approved = tool_from_spec(ToolSpec("approved", needs_approval=True, effects=Effects(writes=("*",))), lambda _: 1)
    secret = tool_from_spec(ToolSpec("secret", needs_approval=True, read_only=True), lambda _: 1)
    async with Client(mcp_server([read, write, delete, unknown, approved, secret]), mode=era) as client:
        hints = {declared.name: declared.annotations for declared in (await client.list_tools()).tools}
    assert hints == {
        "read": mcp_types.ToolAnnotations(read_only_hint=True),
        "write": mcp_types.ToolAnnotations(read_only_hint=False, idempotent_hint=True),
        "delete": mcp_types.ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False),
        "unknown": None,
        "approved": mcp_types.ToolAnnotations(read_only_hint=False, destructive_hint=True),
        "secret": mcp_types.ToolAnnotations(destructive_hint=True),
    }


@pytest.mark.requirement("MS-03")
async def test_arguments_are_validated_and_coerced(era: str) -> None:
    async with Client(mcp_server([add]), mode=era) as client:
        result = await client.call_tool("add", {"a": "5"})
        assert (texts(result), result.structured_content, result.is_error) == (["6"], {"result": 6}, False)
        wrong = await client.call_tool("add", {"a": "five", "c": 1})
        assert wrong.is_error
        assert "a" in texts(wrong)[0]
        assert texts(wrong)[0].startswith("invalid parameters")
        with pytest.raises(MCPError, match="unknown tool: ad; did you mean add") as caught:
            await client.call_tool("ad", {"a": 1})
        assert caught.value.code == mcp_types.INVALID_PARAMS


class _Source(ToolSource):
    """A source that neither validates arguments nor results."""

    def __init__(self, result: Any, spec: ToolSpec | None = None) -> None:
        self.result = result
        self.spec = spec or ToolSpec("get", "Get it.", {"type": "object", "properties": {"n": {"type": "integer"}}})
        self.calls: list[ToolCall] = []

    async def list_tools(self) -> ToolListing:
        return ToolListing((self.spec,))

    async def call(self, call: ToolCall, context: RunContext[Any]) -> ToolResult:
        self.calls.append(call)
        return ToolResult(call.id, call.name, **self.result)


async def test_arguments_for_any_source_are_validated(era: str) -> None:
    source = _Source({"value": "got"})
    async with Client(mcp_server(source), mode=era) as client:
        assert texts(await client.call_tool("get", {"n": "7"})) == ["got"]
        assert (await client.call_tool("get", {"n": "seven"})).is_error
    assert [call.arguments for call in source.calls] == [{"n": 7}]


@pytest.mark.requirement("MS-04")
async def test_content_keeps_its_order_and_kinds(era: str) -> None:
    sound = base64.b64encode(b"RIFF").decode()
    content = (
        Text("first"),
        Blob.of(PNG, "image/png"),
        Resource("test://a", media_type="text/plain", text="inside"),
        Blob("audio/wav", base64=sound),
        Resource("https://example.com/b", name="b"),
        Blob.of(b"%PDF-", "application/pdf", name="c.pdf"),
        Text("last"),
    )
    source = _Source({"value": {"structured": True}, "content": content})
    async with Client(mcp_server(source), mode=era) as client:
        result = await client.call_tool("get", {})
    assert result.structured_content == {"structured": True}
    assert result.content == [
        mcp_types.TextContent(text="first"),
        mcp_types.ImageContent(data=base64.b64encode(PNG).decode(), mime_type="image/png"),
        mcp_types.EmbeddedResource(
            resource=mcp_types.TextResourceContents(uri="test://a", mime_type="text/plain", text="inside")
        ),
        mcp_types.AudioContent(data=sound, mime_type="audio/wav"),
        mcp_types.ResourceLink(uri="https://example.com/b", name="b"),
        mcp_types.EmbeddedResource(
            resource=mcp_types.BlobResourceContents(
                uri="attachment:c.pdf", mime_type="application/pdf", blob=base64.b64encode(b"%PDF-").decode()
            )
        ),
        mcp_types.TextContent(text="last"),
    ]


async def test_image_of_a_function_follows_its_text(era: str) -> None:
    def draw() -> list[Any]:
        return ["a dot", Blob.of(PNG, "image/png")]

    def snap() -> Blob:
        return Blob.of(PNG, "image/png", name="snap.png")

    async with Client(mcp_server([draw, snap]), mode=era) as client:
        result = await client.call_tool("draw", {})
        assert [block.type for block in result.content] == ["text", "image"]
        result = await client.call_tool("snap", {})
        assert [block.type for block in result.content] == ["text", "image"]
        assert texts(result) == ["snap.png"]


async def test_function_without_result_returns_no_content(era: str) -> None:
    def nothing() -> None:
        return None

    async with Client(mcp_server(nothing), mode=era) as client:
        result = await client.call_tool("nothing", {})
    assert result.content == []
    assert not result.is_error


@pytest.mark.requirement("MS-04")
async def test_result_that_breaks_the_output_schema_is_an_error_with_the_value(era: str) -> None:
    spec = ToolSpec("get", "Get it.", response={"type": "object", "properties": {"n": {"type": "integer"}}})
    async with Client(mcp_server(_Source({"value": {"n": "many"}}, spec)), mode=era) as client:
        result = await client.call_tool("get", {})
    assert result.is_error
    assert texts(result)[0] == '{"n":"many"}'
    assert "does not match its output schema" in texts(result)[1]


async def test_error_of_a_tool_is_a_result(era: str) -> None:
    def fail() -> str:
        raise ToolError("the database is locked; try again in a minute")

    def crash() -> str:
        raise ZeroDivisionError("oh")

    async with Client(mcp_server([fail, crash]), mode=era) as client:
        failed, crashed = await client.call_tool("fail", {}), await client.call_tool("crash", {})
    assert (failed.is_error, texts(failed)) == (True, ["the database is locked; try again in a minute"])
    assert (crashed.is_error, texts(crashed)) == (True, ["crash failed: ZeroDivisionError: oh"])


@pytest.mark.requirement("MS-05")
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_progress_reaches_the_client_in_order(era: str, kind: str) -> None:
    def in_thread(context: RunContext[None]) -> str:
        for fraction in (0.0, 0.5, 0.5, 0.25, 1.0):
            context.progress(fraction)
        context.progress(message="cleaning up")
        return "done"

    async def in_task(context: RunContext[None]) -> str:
        return in_thread(context)

    reports: list[tuple[float, float | None, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        reports.append((progress, total, message))

    work = tool(in_thread if kind == "thread" else in_task, name="work")
    async with served(mcp_app([work])) as url, Client(url, mode=era) as client:
        result = await client.call_tool("work", {}, progress_callback=on_progress)
        assert texts(result) == ["done"]
    assert reports[:3] == [(0, 100, None), (50, 100, None), (100, 100, None)]
    ((last, total, message),) = reports[3:]
    assert last > 100
    assert (total, message) == (100, "cleaning up")


@pytest.mark.requirement("MS-06")
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_cancelled_request_cancels_the_tool(era: str, kind: str) -> None:
    started, cancelled = threading.Event(), threading.Event()

    async def in_task() -> None:
        started.set()
        try:
            await asyncio.sleep(BOUND)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    def in_thread(context: RunContext[None]) -> None:
        started.set()
        for _ in range(int(BOUND * 100)):
            if context.cancelled:
                cancelled.set()
                return
            threading.Event().wait(0.01)

    work = tool(in_thread if kind == "thread" else in_task, name="work")
    async with served(mcp_app([work])) as url, Client(url, mode=era) as client:
        task = asyncio.create_task(client.call_tool("work", {}))
        await asyncio.to_thread(started.wait, BOUND)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert await asyncio.to_thread(cancelled.wait, BOUND)


Action = Literal["accept", "decline", "cancel"]


def _answering(*answers: tuple[Action, dict[str, Any] | None]) -> Any:
    """Return an elicitation callback that gives one answer after the other, and a list of what it was asked."""
    asked: list[mcp_types.ElicitRequestFormParams] = []
    remaining = list(answers)

    async def answer(
        _context: ClientRequestContext, params: mcp_types.ElicitRequestParams
    ) -> mcp_types.ElicitResult | mcp_types.ErrorData:
        assert isinstance(params, mcp_types.ElicitRequestFormParams)
        asked.append(params)
        action, content = remaining.pop(0)
        return mcp_types.ElicitResult(action=action, content=content)

    return answer, asked


@pytest.mark.requirement("MS-07")
async def test_question_is_asked_while_the_tool_waits(era: str) -> None:
    runs = []

    async def order(context: RunContext[None]) -> str:
        runs.append("started")
        name = await context.ask_user("What is your name?")
        size = await context.ask_user("Which size?", {"type": "string", "enum": ["small", "large"]})
        form = await context.ask_user(
            "Where to?", {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
        )
        return f"{name} {size} {form['city']}"

    answer, asked = _answering(
        ("accept", {"answer": "Ann"}), ("accept", {"answer": "large"}), ("accept", {"city": "Oslo"})
    )
    async with served(mcp_app([order])) as url, Client(url, mode=era, elicitation_callback=answer) as client:
        result = await client.call_tool("order", {})
        assert texts(result) == ["Ann large Oslo"]
    assert runs == ["started"]
    assert [params.message for params in asked] == ["What is your name?", "Which size?", "Where to?"]
    assert asked[1].requested_schema["properties"]["answer"]["enum"] == ["small", "large"]


async def test_question_of_a_plain_function_is_asked(era: str) -> None:
    def order(context: RunContext[None]) -> str:
        return str(context.run_blocking(context.ask_user("How many?", {"type": "integer"})))

    answer, _ = _answering(("accept", {"answer": 3}))
    async with served(mcp_app([order])) as url, Client(url, mode=era, elicitation_callback=answer) as client:
        assert texts(await client.call_tool("order", {})) == ["3"]


async def test_wrong_answer_is_asked_for_again_and_refusals_reach_the_tool(era: str) -> None:
    async def order(context: RunContext[None]) -> str:
        return str(await context.ask_user("How many?", {"type": "integer", "minimum": 1}))

    answer, asked = _answering(("accept", {"answer": 0}), ("accept", {"answer": 2}), ("decline", None))
    async with Client(mcp_server(order), mode=era, elicitation_callback=answer) as client:
        assert texts(await client.call_tool("order", {})) == ["2"]
        declined = await client.call_tool("order", {})
    assert "does not have the requested form" in asked[1].message
    assert (declined.is_error, texts(declined)) == (True, ["the user declined to answer"])


async def test_question_is_asked_while_another_one_is_open(era: str) -> None:
    first_is_open, second_is_asked = asyncio.Event(), asyncio.Event()

    async def ask_later(context: RunContext[None]) -> Any:
        await first_is_open.wait()
        second_is_asked.set()
        return await context.ask_user("Second?")

    async def order(context: RunContext[None]) -> str:
        answers = await asyncio.gather(context.ask_user("First?"), ask_later(context))
        return " ".join(answers)

    async def answer(
        _context: ClientRequestContext, params: mcp_types.ElicitRequestParams
    ) -> mcp_types.ElicitResult | mcp_types.ErrorData:
        first_is_open.set()
        await asyncio.wait_for(second_is_asked.wait(), BOUND)
        return mcp_types.ElicitResult(action="accept", content={"answer": params.message})

    async with Client(mcp_server(order), mode=era, elicitation_callback=answer) as client:
        assert texts(await client.call_tool("order", {})) == ["First? Second?"]


@pytest.mark.requirement("MS-07")
async def test_answer_is_taken_once_and_a_question_without_answer_ends_the_tool() -> None:
    gone = asyncio.Event()

    async def order(context: RunContext[None]) -> str:
        try:
            return str(await context.ask_user("How many?", {"type": "integer", "title": "count"}))
        finally:
            gone.set()

    answer, _ = _answering()
    server = mcp_server([tool(order, timeout=None), add])
    async with Client(server, elicitation_callback=answer) as client:
        session = client.session

        async def ask(state: str | None = None, **answers: Any) -> Any:
            responses = {
                key: mcp_types.ElicitResult(action="accept", content={"answer": value})
                for key, value in answers.items()
            }
            return await session.call_tool(
                "order", {}, input_responses=responses or None, request_state=state, allow_input_required=True
            )

        first = await ask()
        assert list(first.input_requests) == ["count"]
        with pytest.raises(MCPError):  # the state of one call does not continue another one
            await session.call_tool("add", {"a": 1}, request_state=first.request_state, allow_input_required=True)
        second = await ask(first.request_state, other=1)
        assert list(second.input_requests) == ["count"], "the answer to another question is ignored"
        assert second.request_state != first.request_state
        assert texts(await ask(second.request_state, count=3)) == ["3"]
        for used in (first.request_state, second.request_state):
            with pytest.raises(MCPError, match="no call of order waits for this answer"):
                await ask(used, count=3)
        assert texts(await ask(count=4)) == ["4"], "an answer in advance"
        gone.clear()
        server.answer_seconds = 0.0
        third = await ask()
        await asyncio.wait_for(gone.wait(), BOUND)
        with pytest.raises(MCPError, match="no call of order waits for this answer"):
            await ask(third.request_state, count=3)


async def test_client_without_elicitation_gets_an_error_result(era: str) -> None:
    async def order(context: RunContext[None]) -> str:
        return str(await context.ask_user("How many?"))

    async def nested(context: RunContext[None]) -> str:
        return str(await context.ask_user("How many?", {"type": "object", "properties": {"a": {"type": "object"}}}))

    async with Client(mcp_server([order, nested]), mode=era) as client:
        result = await client.call_tool("order", {})
        assert texts(result) == ["there is no user to ask: the MCP client does not support elicitation"]
        assert "cannot be asked through MCP" in texts(await client.call_tool("nested", {}))[0]


@pytest.mark.requirement("MS-08")
async def test_log_messages_reach_clients_that_want_them(era: str) -> None:
    def work(context: RunContext[None]) -> str:
        context.log("details", 10)
        context.log("half done")
        context.log("disk is full", 40)
        return "done"

    logged: list[tuple[str, Any]] = []

    async def on_log(params: mcp_types.LoggingMessageNotificationParams) -> None:
        logged.append((params.level, params.data))

    app = mcp_app([tool(work)])
    async with served(app) as url:
        async with Client(url, mode=era, logging_callback=on_log, log_level="info") as client:
            await client.call_tool("work", {})
        assert logged == [("info", "half done"), ("error", "disk is full")]
        logged.clear()
        async with Client(url, mode="2026-07-28", logging_callback=on_log) as client:
            await client.call_tool("work", {})
        assert logged == []


@pytest.mark.requirement("MS-09")
async def test_changed_tools_are_announced(era: str) -> None:
    box = Toolbox()

    def grow() -> str:
        """Add a tool."""
        box.register(add)
        return "grown"

    box.register(grow)
    announced = asyncio.Event()

    async def on_message(message: Any) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            announced.set()

    async with (
        served(mcp_app([box.source()])) as url,
        Client(url, mode=era, message_handler=on_message, cache=None) as client,
    ):
        assert [declared.name for declared in (await client.list_tools()).tools] == ["grow"]
        if era == "legacy":
            assert client.server_capabilities.tools is not None
            assert client.server_capabilities.tools.list_changed
            await client.call_tool("grow", {})
            await asyncio.wait_for(announced.wait(), BOUND)
        else:
            async with client.listen(tools_list_changed=True) as events:
                await client.call_tool("grow", {})
                await asyncio.wait_for(anext(aiter(events)), BOUND)
        assert [declared.name for declared in (await client.list_tools()).tools] == ["grow", "add"]


@pytest.mark.requirement("MS-09")
async def test_clients_that_left_do_not_keep_others_from_being_notified() -> None:
    box = Toolbox()
    box.register(add)
    app = mcp_app([box.source()])
    announced = asyncio.Event()

    async def on_message(message: Any) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            announced.set()

    async with served(app) as url:
        for _ in range(3):
            async with Client(url, mode="legacy", cache=None) as gone:
                await gone.list_tools()
        async with Client(url, mode="legacy", message_handler=on_message, cache=None) as client:
            await client.list_tools()
            box.register(tool(lambda: 1, name="one"))
            await client.call_tool("add", {"a": 1})
            await asyncio.wait_for(announced.wait(), BOUND)
            assert len((await client.list_tools()).tools) == 2


async def test_tool_calls_read_only_tools_of_the_server() -> None:
    @tool(read_only=True)
    def rate() -> float:
        return 1.5

    @tool(writes="*")
    def pay() -> str:
        return "paid"

    async def convert(amount: float, context: RunContext[None]) -> dict[str, Any]:
        found, paid = await context.call_tool("rate", {}), await context.call_tool("pay", {})
        return {"amount": amount * found.value, "paid": paid.value}

    async with Client(mcp_server([rate, pay, convert])) as client:
        result = await client.call_tool("convert", {"amount": 2})
    assert result.structured_content is not None
    assert result.structured_content["amount"] == 3
    assert "declared read-only" in result.structured_content["paid"]


async def test_tool_that_needs_approval_is_not_called_by_other_tools() -> None:
    source = _Source({"value": "got"}, ToolSpec("get", read_only=True, needs_approval=True))

    async def ask(context: RunContext[None]) -> str:
        return str((await context.call_tool("get", {})).value)

    async with Client(mcp_server([source, ask])) as client:
        result = await client.call_tool("ask", {})
    assert texts(result) == ["get was not run: it needs the approval of a person, and nobody can be asked"]
    assert source.calls == []


async def test_calls_of_calls_are_ten_deep_at_most() -> None:
    @tool(read_only=True)
    async def nest(context: RunContext[None]) -> int:
        result = await context.call_tool("nest", {})
        return 0 if result.is_error else result.value + 1

    async with Client(mcp_server([nest])) as client:
        assert (await client.call_tool("nest", {})).structured_content == {"result": 10}


async def test_source_that_is_not_a_tool_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not a tool"):
        mcp_server([3])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="hosts must be a list of names"):
        mcp_app([add], hosts="example.com")
    with pytest.raises(ConfigError, match="hosts must be a list of names"):
        await serve_mcp([add], port=0, hosts="example.com")
