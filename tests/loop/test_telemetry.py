"""OpenTelemetry: spans with the right parents, the conventions for generative AI, and no content by default."""

import asyncio
import json
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from midspan import Agent, BackgroundRuns, Gemini, Limits, RunContext, Telemetry, tool
from midspan._types.exchange import FinishReason, ModelResponse, Usage
from midspan.emulator import LocalGemini, answer, call
from midspan.errors import ConfigError, LimitReachedError
from midspan.events import TextDelta
from midspan.messages import Blob, Message, Text, Thought, ToolCall, ToolResult
from midspan.testing import ScriptedProvider
from midspan.tools import MCPServer, ToolListing, ToolSource, ToolSpec, mcp_app, trace_headers
from midspan.toolsets.weather import weather_tool
from tests.gemini.recorder import Recorder, recorder
from tests.tools.mcp_serve.serving import served

SECRET = "the prompt is confidential"


class Recorded:
    """An in-process exporter of spans."""

    def __init__(self, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.telemetry = Telemetry(self.tracers, **options)

    @property
    def spans(self) -> list[ReadableSpan]:
        return sorted(self.exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def tree(self) -> list[tuple[str, str | None]]:
        """The names of all spans with those of their parents, in the order of their start."""
        names = {span.context.span_id: span.name for span in self.spans}
        return [(span.name, None if span.parent is None else names[span.parent.span_id]) for span in self.spans]

    def one(self, name: str) -> ReadableSpan:
        [found] = [span for span in self.spans if span.name == name]
        return found


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(read_only=True)
async def add_thrice(a: int, context: RunContext) -> int:
    """Call another tool."""
    return (await context.call_tool("add", {"a": a, "b": a})).value + a


SCRIPT = [
    answer(call("add", a=1, b=2), call("add_thrice", a=3), usage={"promptTokenCount": 10, "candidatesTokenCount": 2}),
    answer("It is 3 and 9.", chunks=3),
]
TREE = [
    ("invoke_agent sums", None),
    ("generate_content gemini-3.8-flash", "invoke_agent sums"),
    ("execute_tool add", "execute_tool add_thrice"),
    ("execute_tool add", "invoke_agent sums"),
    ("execute_tool add_thrice", "invoke_agent sums"),
    ("generate_content gemini-3.8-flash", "invoke_agent sums"),
]


@pytest.mark.requirement("S4-21")
@pytest.mark.parametrize("how", ["run", "stream", "background"])
def test_spans_of_a_run_have_the_right_parents(how: str) -> None:
    recorded = Recorded(agent_name="sums")

    async def main() -> None:
        with LocalGemini(SCRIPT) as server:
            provider = Gemini("gemini-3.8-flash", api_key="k", base_url=server.url)
            agent = Agent(provider, [add, add_thrice], telemetry=recorded.telemetry)
            if how == "run":
                await agent.run("Add.")
            elif how == "stream":
                async with agent.stream("Add.") as stream:
                    async for _ in stream:
                        pass
            else:
                async with BackgroundRuns(agent) as runs:
                    run_id = runs.start("Add.")
                    async for _ in runs.subscribe(run_id):
                        pass
            await provider.aclose()

    asyncio.run(main())
    assert sorted(map(str, recorded.tree())) == sorted(map(str, TREE))
    assert len({span.context.trace_id for span in recorded.spans}) == 1
    assert (recorded.one("invoke_agent sums").attributes or {})["gen_ai.agent.name"] == "sums"


def test_attributes_follow_the_conventions_and_have_no_content() -> None:
    recorded = Recorded()
    with LocalGemini(SCRIPT) as server:
        provider = Gemini("gemini-3.8-flash", api_key="k", base_url=server.url)
        agent = Agent(provider, [add, add_thrice], telemetry=recorded.telemetry, settings={"temperature": 0.5})
        result = agent.run_sync(SECRET, run_id="r1")
    run = dict(recorded.one("invoke_agent").attributes or {})
    assert run["gen_ai.operation.name"] == "invoke_agent"
    assert run["gen_ai.provider.name"] == "gcp.gemini"
    assert run["gen_ai.conversation.id"] == "r1"
    assert run["gen_ai.usage.input_tokens"] == result.usage.input
    request = next(span for span in recorded.spans if span.name.startswith("generate_content"))
    assert request.kind is trace.SpanKind.CLIENT
    assert dict(request.attributes or {}) == {
        "gen_ai.operation.name": "generate_content",
        "gen_ai.provider.name": "gcp.gemini",
        "gen_ai.request.model": "gemini-3.8-flash",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.conversation.id": "r1",
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 2,
        "gen_ai.response.finish_reasons": ("end",),
    }
    executed = dict(recorded.one("execute_tool add_thrice").attributes or {})
    assert executed["gen_ai.tool.name"] == "add_thrice"
    assert SECRET not in str([span.to_json() for span in recorded.spans])


def test_content_is_recorded_on_request() -> None:
    recorded = Recorded(include_content=True)
    model = ScriptedProvider([ToolCall("1", "add", {"a": 1, "b": 2}), "It is 3."])
    Agent(model, [add], system="Be brief.", telemetry=recorded.telemetry).run_sync(SECRET)
    request = [span for span in recorded.spans if span.name.startswith("chat")][1].attributes or {}
    called = {"type": "tool_call", "id": "1", "name": "add", "arguments": {"a": 1, "b": 2}}
    assert json.loads(str(request["gen_ai.input.messages"])) == [
        {"role": "user", "parts": [{"type": "text", "content": SECRET}]},
        {"role": "assistant", "parts": [called]},
        {"role": "user", "parts": [{"type": "tool_call_response", "id": "1", "response": 3}]},
    ]
    assert json.loads(str(request["gen_ai.output.messages"]))[0]["parts"] == [{"type": "text", "content": "It is 3."}]
    assert json.loads(str(request["gen_ai.system_instructions"])) == [{"type": "text", "content": "Be brief."}]
    executed = recorded.one("execute_tool add").attributes or {}
    assert (executed["gen_ai.tool.call.arguments"], executed["gen_ai.tool.call.result"]) == ('{"a":1,"b":2}', "3")
    run = recorded.one("invoke_agent").attributes or {}
    assert [message["role"] for message in json.loads(str(run["gen_ai.input.messages"]))] == ["user"]
    outputs = json.loads(str(run["gen_ai.output.messages"]))
    assert [message["role"] for message in outputs] == ["assistant", "user", "assistant"]
    assert [message.get("finish_reason") for message in outputs] == [None] * 3


def test_parts_of_content_have_the_types_of_the_conventions() -> None:
    recorded = Recorded(include_content=True)
    model = ScriptedProvider([[Thought("Hm."), Text("A cat.")]])
    Agent(model, telemetry=recorded.telemetry).run_sync(["What is this?", Blob.of(b"x", "image/png")])
    request = recorded.one("chat scripted").attributes or {}
    [asked] = json.loads(str(request["gen_ai.input.messages"]))
    assert asked["parts"] == [{"type": "text", "content": "What is this?"}, {"type": "blob"}]
    thought, text = {"type": "reasoning", "content": "Hm."}, {"type": "text", "content": "A cat."}
    assert json.loads(str(request["gen_ai.output.messages"])) == [
        {"role": "assistant", "parts": [thought, text], "finish_reason": "end"}
    ]
    assert "gen_ai.system_instructions" not in request


def test_only_requests_are_spans_of_a_client() -> None:
    recorded = Recorded()
    model = ScriptedProvider([ToolCall("1", "add", {"a": 1, "b": 2}), "3"])
    Agent(model, [add], telemetry=recorded.telemetry).run_sync("?")
    kinds = {span.name: span.kind for span in recorded.spans}
    internal, client = trace.SpanKind.INTERNAL, trace.SpanKind.CLIENT
    assert kinds == {"invoke_agent": internal, "chat scripted": client, "execute_tool add": internal}


@pytest.mark.parametrize("include_content", [False, True])
def test_message_of_an_error_is_content(include_content: bool) -> None:
    class Broken(ToolSource):
        async def list_tools(self) -> ToolListing:
            return ToolListing((ToolSpec("broken"),))

        async def call(self, call: ToolCall, context: RunContext[Any]) -> ToolResult:
            raise ValueError(SECRET * 100)

    recorded = Recorded(include_content=include_content)
    Agent(ScriptedProvider([ToolCall("1", "broken"), "so"]), Broken(), telemetry=recorded.telemetry).run_sync("?")
    failed = recorded.one("execute_tool broken")
    assert (failed.attributes or {})["error.type"] == "ValueError"
    assert failed.status.description == ((SECRET * 100)[:1_000] if include_content else None)
    assert not failed.events  # an event would have the message, too


def test_errors_are_recorded_on_the_spans_that_failed() -> None:
    def broken() -> None:
        """Fail."""
        raise ValueError("no")

    recorded = Recorded()
    model = ScriptedProvider(lambda request: ToolCall(str(len(request.history)), "broken", {}))
    agent = Agent(model, [broken], telemetry=recorded.telemetry, limits=Limits(max_turns=2))
    with pytest.raises(LimitReachedError):
        agent.run_sync("Go.")
    failed = {span.name: dict(span.attributes or {}).get("error.type") for span in recorded.spans}
    assert failed == {"invoke_agent": "LimitReachedError", "chat scripted": None, "execute_tool broken": "tool_error"}
    assert not recorded.one("execute_tool broken").status.is_ok
    assert recorded.one("execute_tool broken").status.description is None  # error messages may quote content


def test_request_whose_stream_is_closed_early_has_not_failed() -> None:
    recorded = Recorded()

    async def main() -> None:
        agent = Agent(ScriptedProvider([["a", "b"]]), telemetry=recorded.telemetry)
        async with agent.stream("Go.") as stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    break

    asyncio.run(main())
    assert recorded.one("chat scripted").status.status_code is trace.StatusCode.UNSET


@pytest.mark.parametrize("streams", [True, False])
def test_span_of_a_request_has_the_usage_and_the_finish_reason(streams: bool) -> None:
    recorded = Recorded()
    response = ModelResponse(Message("model", (Text("hi"),)), FinishReason.END, usage=Usage(input=3, output=2))
    agent = Agent(ScriptedProvider([response]), telemetry=recorded.telemetry)
    if streams:
        list(agent.stream("Go."))
    else:
        agent.run_sync("Go.")
    attributes = recorded.one("chat scripted").attributes or {}
    assert attributes["gen_ai.usage.input_tokens"] == 3
    assert attributes["gen_ai.usage.output_tokens"] == 2
    assert attributes["gen_ai.response.finish_reasons"] == (str(FinishReason.END),)


def test_cancelled_run_ends_its_spans() -> None:
    recorded = Recorded()

    async def main() -> None:
        started = asyncio.Event()

        async def wait() -> None:
            """Wait."""
            started.set()
            await asyncio.Event().wait()

        agent = Agent(ScriptedProvider([ToolCall("1", "wait", {})]), [wait], telemetry=recorded.telemetry)
        task = asyncio.create_task(agent.run("Go."))
        await started.wait()
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(main())
    names = {span.name: dict(span.attributes or {}).get("error.type") for span in recorded.spans}
    assert names["invoke_agent"] == names["execute_tool wait"] == "CancelledError"


def test_tools_are_below_the_span_of_the_caller_and_continue_the_trace() -> None:
    recorded = Recorded()
    tracer = recorded.tracers.get_tracer("test")
    seen: list[dict[str, str]] = []

    async def ask_service() -> str:
        """Ask a service over HTTP, in a span of its own."""
        with tracer.start_as_current_span("own span"):
            seen.append(trace_headers())
        return "done"

    def in_a_thread() -> str:
        """Do the same in a thread."""
        seen.append(trace_headers())
        return "done"

    calls = [ToolCall("1", "ask_service", {}), ToolCall("2", "in_a_thread", {})]
    agent = Agent(ScriptedProvider([calls, "Done."]), [ask_service, in_a_thread], telemetry=recorded.telemetry)
    with tracer.start_as_current_span("request of a user"):
        asyncio.run(agent.run("Go."))
    assert ("invoke_agent", "request of a user") in recorded.tree()
    assert ("own span", "execute_tool ask_service") in recorded.tree()
    trace_id = format(recorded.spans[0].context.trace_id, "032x")
    assert [headers["traceparent"].split("-")[1] for headers in seen] == [trace_id, trace_id]


def test_weather_service_gets_the_trace_context() -> None:
    recorded = Recorded()
    with recorder(Recorder()) as service:
        service.answer({"current_condition": [{"temp_C": "4", "weatherDesc": [{"value": "Cloudy"}]}]})
        model = ScriptedProvider([ToolCall("1", "get_weather", {"location": "Oslo"}), "Cold."])
        Agent(model, [weather_tool(url=service.url)], telemetry=recorded.telemetry).run_sync("Cold?")
        headers = {name.lower(): value for name, value in dict(service.last.headers).items()}
    span = recorded.one("execute_tool get_weather")
    assert headers["traceparent"].split("-")[2] == format(span.context.span_id, "016x")


def test_there_are_no_trace_headers_without_a_trace() -> None:
    assert trace_headers() == {}


def test_mcp_servers_get_the_trace_context() -> None:
    recorded = Recorded()
    bodies: list[dict[str, Any]] = []

    async def main() -> None:
        app = mcp_app([add])

        async def recording(scope: Any, receive: Any, send: Any) -> None:
            async def receive_and_record() -> Any:
                message = await receive()
                if body := message.get("body"):
                    bodies.append(json.loads(body))
                return message

            await app(scope, receive_and_record if scope["type"] == "http" else receive, send)

        async with served(recording) as url:
            server = MCPServer(url=url, name="sums")
            model = ScriptedProvider([ToolCall("1", "add", {"a": 1, "b": 2}), "It is 3."])
            agent = Agent(model, [server], telemetry=recorded.telemetry)
            result = await agent.run("Add.")
            assert not result.tool_calls[0].is_error
            await agent.aclose()

    asyncio.run(main())
    [call] = [body for body in bodies if body.get("method") == "tools/call"]
    trace_id = format(recorded.one("execute_tool add").context.trace_id, "032x")
    assert call["params"]["_meta"]["traceparent"].split("-")[1] == trace_id


def test_telemetry_is_not_a_switch() -> None:
    with pytest.raises(ConfigError, match=r"telemetry must be a Telemetry, such as Telemetry\(\), got True"):
        Agent(ScriptedProvider(["hi"]), telemetry=True)  # type: ignore[call-overload]
