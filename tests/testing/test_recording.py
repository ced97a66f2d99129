"""Runs are recorded and replayed."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from midspan import Agent, Chat, Limits, tool
from midspan._types.events import RunEnd, RunEvent, RunStart, ToolEnd
from midspan._types.exchange import FinishReason, ModelEvent, ModelRequest, ModelResponse, Usage
from midspan._types.messages import Message
from midspan._types.parts import Blob, Opaque, Part, ProviderData, Text, Thought, ToolCall, ToolResult, local_id
from midspan._types.specs import BuiltinTool, ToolSpec
from midspan.errors import (
    ConfigError,
    IncompleteResponseError,
    InvalidRequestError,
    LimitReachedError,
    MidspanError,
    ProviderError,
    RateLimitError,
    ToolError,
)
from midspan.providers import Provider, WrapperProvider
from midspan.server import create_app
from midspan.testing import ScriptedProvider, record, replay
from midspan.testing.format import LINE_END
from midspan.tools.source import ToolListing, ToolSource
from tests.streaming import PartsProvider, raw_of

runs: list[str] = []


@tool
async def temperature(city: str) -> dict[str, int]:
    """How warm it is."""
    runs.append(city)
    return {"temp_c": 4}


@tool
async def broken(city: str) -> int:
    """Always fails."""
    raise ToolError(f"{city} is unknown")


CALL = ToolCall("1", "temperature", {"city": "Oslo"})
SCRIPT: list[Any] = [(Thought("hm"), Text("Let me "), Text("see."), CALL), (Text("It is "), Text("4."))]


def agent_of(script: Any = SCRIPT, tools: Any = (temperature, broken), **more: Any) -> Agent:
    return Agent(ScriptedProvider(script), tools, **more)


def nobody(tools: Any = (temperature, broken), **more: Any) -> Agent:
    """An agent whose model has nothing to say."""
    return agent_of([], tools, **more)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().split(LINE_END)[:-1]]


async def events_of(agent: Agent, prompt: Any = "go", **options: Any) -> list[RunEvent]:
    return [event async for event in agent.stream(prompt, run_id="r", **options)]


def timeless(events: Sequence[RunEvent]) -> list[RunEvent]:
    """The events without durations, and the ends of calls in the order of the calls, because concurrent calls race."""
    ends = [replace(event, duration_seconds=0.0) for event in events if isinstance(event, ToolEnd)]
    others = [event for event in events if not isinstance(event, ToolEnd)]
    return [*others, *sorted(ends, key=lambda end: (end.turn, end.index))]


def test_recorded_agent_returns_the_same_result_as_the_plain_agent(tmp_path: Path) -> None:
    plain = agent_of().run_sync("Cold?", run_id="r")
    recorded = record(agent_of(), tmp_path).run_sync("Cold?", run_id="r")
    assert (recorded.text, recorded.messages, recorded.run_id) == (plain.text, plain.messages, "r")
    assert [run.result for run in recorded.tool_calls] == [run.result for run in plain.tool_calls]


def test_replay_asks_no_model_and_runs_no_tool(tmp_path: Path) -> None:
    recorded = record(agent_of(), tmp_path).run_sync("Cold?")
    runs.clear()
    replayed = replay(nobody(), tmp_path).run_sync("Cold?")
    assert (replayed.text, replayed.messages, replayed.turns) == (recorded.text, recorded.messages, recorded.turns)
    assert [run.result for run in replayed.tool_calls] == [run.result for run in recorded.tool_calls]
    assert runs == []


def test_replayed_stream_has_the_same_events(tmp_path: Path) -> None:
    async def main() -> None:
        recorded = await events_of(record(agent_of(), tmp_path))
        assert timeless(await events_of(replay(nobody(), tmp_path))) == timeless(recorded)
        assert len([event for event in recorded if not isinstance(event, RunStart | RunEnd)]) > 8

    asyncio.run(main())


@pytest.mark.parametrize("recorded_whole", [True, False])
def test_blocking_recording_replays_streamed_and_vice_versa(tmp_path: Path, recorded_whole: bool) -> None:
    async def main() -> None:
        recording, replaying = record(agent_of(), tmp_path), replay
        if recorded_whole:
            text = (await recording.run("Cold?")).text
            stream = replaying(nobody(), tmp_path).stream("Cold?")
            assert [event async for event in stream]
            assert stream.result.text == text == "It is 4."
        else:
            stream = recording.stream("Cold?")
            assert [event async for event in stream]
            assert (await replaying(nobody(), tmp_path).run("Cold?")).text == stream.result.text == "It is 4."

    asyncio.run(main())


def test_recording_has_one_line_per_exchange_and_call(tmp_path: Path) -> None:
    record(agent_of(), tmp_path).run_sync("Cold?", run_id="mine")
    [path] = tmp_path.iterdir()
    lines = lines_of(path)
    assert [line["line"] for line in lines] == [
        "run",
        "tools",
        "exchange",
        "call",
        "exchange",
        "end",
    ]
    assert (lines[0]["version"], lines[0]["run_id"], lines[2]["model"]) == (5, "mine", "scripted")
    assert lines[0]["messages"][0]["parts"] == [{"type": "text", "text": "Cold?"}]
    assert lines[2]["request"]["messages"] == lines[0]["messages"]
    assert lines[3]["call"] == {"type": "call", "id": "1", "name": "temperature", "arguments": {"city": "Oslo"}}
    assert lines[3]["result"]["value"] == {"temp_c": 4}
    assert lines[4]["response"]["message"]["parts"][-1]["text"] == "It is 4."
    assert lines[5]["text"] == "It is 4."


def test_different_request_is_reported_with_the_path_of_the_difference(tmp_path: Path) -> None:
    record(agent_of(), tmp_path).run_sync("Is it cold?")
    [path] = tmp_path.iterdir()
    with pytest.raises(ConfigError) as raised:
        replay(nobody(), tmp_path).run_sync("Is it warm?")
    told = 'messages[0].parts[0].text: recorded "Is it cold?", now "Is it warm?"'
    assert str(raised.value) == f"the run differs from the recording {str(path)!r} at {told}"
    path.write_bytes(
        path.read_bytes().replace(b'"value":{"temp_c":4}},', b"").replace(b'{"temp_c":4}', b'{"temp_c":5}', 1)
    )
    with pytest.raises(ConfigError, match=r"request 2 .* at messages\[2\].parts\[0\].value.temp_c: recorded 4, now 5$"):
        replay(nobody(), tmp_path).run_sync("Is it cold?")


def test_changed_tool_declaration_and_system_prompt_are_reported(tmp_path: Path) -> None:
    @tool(name="temperature")
    async def other(city: str, unit: str = "C") -> int:
        """How warm it is."""
        return 4

    record(agent_of(tools=[temperature]), tmp_path).run_sync("Cold?")
    with pytest.raises(ConfigError, match=r"at config\.tools\[0\]\.parameters\.properties\.unit: recorded nothing"):
        replay(nobody([other]), tmp_path).run_sync("Cold?")
    with pytest.raises(ConfigError, match=r"at config\.system: recorded nothing, now \"Be brief\.\""):
        replay(nobody([temperature], system="Be brief."), tmp_path).run_sync("Cold?")


def test_difference_in_a_long_text_is_shown_with_its_context(tmp_path: Path) -> None:
    long = "word " * 200
    record(agent_of(["yes"]), tmp_path).run_sync(f"{long}cold? {long}")
    with pytest.raises(ConfigError, match=r"recorded \"…(word )+cold\? word .*, now \"…(word )+warm\? "):
        replay(nobody(), tmp_path).run_sync(f"{long}warm? {long}")


def test_request_after_the_end_of_a_recording_is_reported(tmp_path: Path) -> None:
    record(agent_of(), tmp_path).run_sync("Cold?")
    [path] = tmp_path.iterdir()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:4]))
    with pytest.raises(ConfigError, match=r"^request 2 was not recorded: '.*' ends after 1$"):
        replay(nobody(), tmp_path).run_sync("Cold?")


@pytest.mark.parametrize("streamed", [True, False])
def test_call_that_was_not_recorded_ends_the_run_instead_of_reaching_the_model(tmp_path: Path, streamed: bool) -> None:
    record(agent_of(), tmp_path).run_sync("Cold?")
    [path] = tmp_path.iterdir()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for line in lines if b'"line":"call"' not in line))
    agent = replay(nobody(), tmp_path)
    with pytest.raises(ConfigError, match=r'^the call temperature\(\{"city": "Oslo"\}\) was not recorded in '):
        asyncio.run(events_of(agent, "Cold?")) if streamed else agent.run_sync("Cold?")
    path.write_bytes(
        b"".join(lines).replace(
            b'"line":"call","call":{"type":"call","id":"1","name":"temperature","arguments":{"city":"Oslo"',
            b'"line":"call","call":{"type":"call","id":"1","name":"temperature","arguments":{"city":"Rome"',
        )
    )
    with pytest.raises(ConfigError, match=r'another one differs at arguments\.city: recorded "Rome", now "Oslo"'):
        replay(nobody(), tmp_path).run_sync("Cold?")


def test_provider_errors_are_replayed_with_their_attributes(tmp_path: Path) -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "9s"}]
    limited = RateLimitError("slow down", status=429, retry_delay_seconds=9.5, details=details)
    refused = InvalidRequestError("no", status=400, violations=[("contents", "empty")])
    for number, error in enumerate([limited, refused]):
        folder = tmp_path / str(number)
        with pytest.raises(type(error)):
            record(agent_of([error]), folder).run_sync("go")
        with pytest.raises(ProviderError) as raised:
            replay(nobody(), folder).run_sync("go")
        again = raised.value
        assert (type(again), str(again), again.status) == (type(error), str(error), error.status)
        assert (again.retryable, again.retry_delay_seconds) == (error.retryable, error.retry_delay_seconds)
        assert again.details == error.details
        assert getattr(again, "violations", ()) == getattr(error, "violations", ())
        assert again.transcript is not None


def test_other_exceptions_of_a_provider_have_the_same_outcome_in_a_replay(tmp_path: Path) -> None:
    async def main() -> None:
        recorded = await outcome(record(agent_of([KeyError("x")]), tmp_path), streamed=False)
        assert "KeyError: 'x'" in recorded[1]
        assert await outcome(replay(nobody(), tmp_path), streamed=False) == recorded

    asyncio.run(main())


class Breaking(PartsProvider):
    """A model whose first answer breaks off in the middle."""

    model = "breaking"

    def __init__(self) -> None:
        self.asked = 0

    async def parts(self, request: ModelRequest) -> AsyncIterator[Any]:
        self.asked += 1
        if self.asked == 1:
            yield Text("It i")
            raise IncompleteResponseError("the stream was cut")
        yield Text("It is 4.")
        yield ModelResponse(Message("model", (Text("It is 4."),)), FinishReason.END)


def test_stream_that_was_cut_and_retried_is_replayed_in_both_modes(tmp_path: Path) -> None:
    async def main() -> None:
        recorded = await events_of(record(Agent(Breaking()), tmp_path))
        unasked = Breaking()
        assert await events_of(replay(Agent(unasked), tmp_path)) == recorded
        result = await replay(Agent(unasked), tmp_path).run("go")
        assert (result.text, result.turns, unasked.asked) == ("It is 4.", 2, 0)

    asyncio.run(main())


class Raising(ToolSource):
    """A source that raises exceptions."""

    async def list_tools(self) -> ToolListing:
        return ToolListing((ToolSpec("raising"),))

    async def call(self, call: ToolCall, context: Any = None) -> ToolResult:
        raise ZeroDivisionError("by zero")


def test_exception_of_a_tool_source_is_replayed(tmp_path: Path) -> None:
    said = [ToolCall("1", "raising"), "so"]
    recorded = record(agent_of(said, Raising()), tmp_path).run_sync("go")
    replayed = replay(nobody(Raising()), tmp_path).run_sync("go")
    assert replayed.messages == recorded.messages
    assert "ZeroDivisionError: by zero" in str(replayed.messages)


@pytest.mark.parametrize("error", [ConnectionError("nobody is there"), ConfigError("there is no token")])
def test_tools_are_taken_from_the_recording_if_the_source_cannot_list_them(tmp_path: Path, error: Exception) -> None:
    class Gone(Raising):
        async def list_tools(self) -> ToolListing:
            raise error

    recorded = record(agent_of([ToolCall("1", "raising"), "so"], Raising()), tmp_path).run_sync("go")
    assert replay(nobody(Gone()), tmp_path).run_sync("go").messages == recorded.messages


def test_calls_are_found_in_any_order(tmp_path: Path) -> None:
    said = [tuple(ToolCall(str(n), "temperature", {"city": f"c{n}"}) for n in range(20)), "so"]
    recorded = record(agent_of(said), tmp_path).run_sync("go")
    [path] = tmp_path.iterdir()
    lines = path.read_bytes().splitlines(keepends=True)
    calls = [line for line in lines if line.startswith(b'{"line":"call"')]
    others = [line for line in lines if line not in calls]
    path.write_bytes(b"".join(others[:3] + calls[::-1] + others[3:]))
    assert replay(nobody(), tmp_path).run_sync("go").messages == recorded.messages


def test_equal_calls_get_their_own_results(tmp_path: Path) -> None:
    counts = iter(range(10))

    @tool
    async def progress() -> int:
        """How far the work is."""
        return next(counts)

    twice = tuple(ToolCall(name, "progress") for name in "ab")
    recorded = record(agent_of([twice, ToolCall("a", "progress"), "so"], [progress]), tmp_path).run_sync("go")
    [path] = tmp_path.iterdir()
    lines = path.read_bytes().splitlines(keepends=True)
    first, second = [index for index, line in enumerate(lines) if line.startswith(b'{"line":"call"')][:2]
    lines[first], lines[second] = lines[second], lines[first]
    path.write_bytes(b"".join(lines))
    assert replay(nobody([progress]), tmp_path).run_sync("go").messages == recorded.messages


def test_random_local_ids_do_not_count_as_a_difference(tmp_path: Path) -> None:
    def history() -> list[Message]:
        id = local_id()
        call = ToolCall(id, "temperature", {"city": "Rome"})
        return [Message.user("Rome?"), Message("model", (call,)), Message.user(ToolResult(id, "temperature", 20))]

    malformed = "Malformed function call: temperature(city='Oslo')"
    salvaged = ModelResponse(Message("model", ()), FinishReason.MALFORMED_CALL, finish_message=malformed)
    recorded = record(agent_of([salvaged, "so"]), tmp_path).run_sync("go", messages=history())
    replayed = replay(nobody(), tmp_path).run_sync("go", messages=history())
    assert len(recorded.tool_calls) == 1
    assert recorded.tool_calls[0].call.id != replayed.tool_calls[0].call.id
    assert recorded.tool_calls[0].result.value == replayed.tool_calls[0].result.value


def test_all_parts_and_raw_bytes_are_replayed(tmp_path: Path) -> None:
    raw = Raw(b'{\n  "odd" : [ 1.0,\r\n 2 ] }')
    parts: tuple[Part, ...] = (
        Thought("t", ProviderData("other", raw)),
        Text("x\n", ProviderData("other")),
        Blob.of(b"\x00\x01", "image/png", name="a"),
        Opaque("odd", ProviderData("other", raw)),
        Opaque("text", ProviderData("other", Raw(b'"a text\\n"'))),
    )
    answer = ModelResponse(
        Message("model", parts, ProviderData("other", raw)), FinishReason.END, "STOP", "m", Usage(1, 2, 3, 4, 5, 6),
        "v", "id", (raw, Raw(b" {} ")),
    )  # fmt: skip
    recorded = record(agent_of([answer]), tmp_path).run_sync("go").response
    replayed = replay(nobody(), tmp_path).run_sync("go").response
    assert [bytes(one) for one in replayed.raw] == [bytes(one) for one in recorded.raw] == [bytes(raw), b" {} "]
    assert raw_of(replayed.message) == bytes(raw)
    assert replayed == recorded == answer
    [path] = tmp_path.iterdir()
    assert len(lines_of(path)) == 4


def test_each_run_gets_the_recording_with_its_prompt(tmp_path: Path) -> None:
    recording = record(agent_of(lambda request: f"You said {request.history[-1].text}"), tmp_path)
    for prompt in ("a", "b", "c"):
        recording.run_sync(prompt)
    replaying = replay(nobody(), tmp_path)
    assert [replaying.run_sync(prompt).text for prompt in "cab"] == ["You said c", "You said a", "You said b"]
    with pytest.raises(ConfigError, match=r"^all recordings in .* have been replayed"):
        replaying.run_sync("a")
    assert replay(nobody(), tmp_path / "run-00002.jsonl").run_sync("b").text == "You said b"


def test_equal_prompts_get_their_recordings_in_order(tmp_path: Path) -> None:
    recording = record(agent_of(["first", "second"]), tmp_path)
    for _ in range(2):
        recording.run_sync("go")
    replaying = replay(nobody(), tmp_path)
    assert [replaying.run_sync("go").text for _ in range(2)] == ["first", "second"]


def test_run_that_was_not_recorded_uses_up_no_recording(tmp_path: Path) -> None:
    record(agent_of(["yes"]), tmp_path).run_sync("right")
    replaying = replay(nobody(), tmp_path)
    for _ in range(2):
        with pytest.raises(ConfigError, match='recorded "right", now "wrong"'):
            replaying.run_sync("wrong")
    assert replaying.run_sync("right").text == "yes"


def test_chats_and_replaced_agents_are_recorded(tmp_path: Path) -> None:
    def talk(agent: Agent) -> str:
        chat = Chat(agent.replace(system="Be brief.")).ask_sync("a").ask_sync("b")
        return chat.ask_sync("c", tools=["temperature"], limits=Limits(max_turns=3)).text

    echo = agent_of(lambda request: f"{len(request.history)} {len(request.config.tools)} {request.config.system}")
    assert talk(record(echo, tmp_path)) == talk(replay(nobody(), tmp_path)) == "5 1 Be brief."


def test_builtin_tools_are_passed_to_the_provider(tmp_path: Path) -> None:
    tools = [BuiltinTool("googleSearch"), temperature]
    provider = ScriptedProvider(["yes"])
    record(Agent(provider, tools), tmp_path).run_sync("go")
    assert [one.name for one in provider.requests[0].config.tools] == ["googleSearch", "temperature"]
    assert replay(nobody(tools), tmp_path).run_sync("go").text == "yes"


def test_prompt_mode_is_recorded_with_the_tools_in_the_prompt(tmp_path: Path) -> None:
    said = ['TOOL_CALL: {"name": "temperature", "arguments": {"city": "Oslo"}}', "It is 4."]
    recorded = record(agent_of(said, prompt_mode=True), tmp_path).run_sync("Cold?")
    assert len(recorded.tool_calls) == 1
    first = lines_of(tmp_path / "run-00001.jsonl")[2]["request"]["config"]
    assert "tools" not in first
    assert "temperature" in first["system"]
    assert replay(nobody(prompt_mode=True), tmp_path).run_sync("Cold?").messages == recorded.messages


def test_conversation_that_ends_with_an_open_call_is_recorded_and_replayed(tmp_path: Path) -> None:
    history = [Message.user("Cold?"), Message("model", (CALL,))]
    recorded = record(agent_of(["It is 4."]), tmp_path).run_sync(messages=history)
    assert [run.result.value for run in recorded.tool_calls] == [{"temp_c": 4}]
    path = tmp_path / "run-00001.jsonl"
    replayed = replay(nobody(), path).run_sync(messages=history)
    assert (replayed.text, replayed.messages) == (recorded.text, recorded.messages)


def test_run_that_reached_a_limit_reaches_it_again(tmp_path: Path) -> None:
    for again in (False, True):
        agent = replay(nobody(), tmp_path) if again else record(agent_of(), tmp_path)
        with pytest.raises(LimitReachedError) as raised:
            agent.run_sync("go", limits=Limits(max_turns=1))
        assert raised.value.transcript
    assert lines_of(tmp_path / "run-00001.jsonl")[-1]["error"]["name"] == "LimitReachedError"


class PausedAfter(WrapperProvider):
    """Sends nothing more after an event with a certain text."""

    def __init__(self, provider: Provider, text: str) -> None:
        super().__init__(provider)
        self.text = text

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        async for event in super().stream(request):
            yield event
            if self.text in repr(event):
                await asyncio.Event().wait()


def test_response_of_a_closed_stream_is_not_recorded(tmp_path: Path) -> None:
    async def main() -> None:
        agent = Agent(PausedAfter(ScriptedProvider(SCRIPT), "Let me "), [temperature, broken])
        async with record(agent, tmp_path).stream("go") as stream:
            async for event in stream:
                if getattr(event, "text", "") == "Let me ":
                    break
        assert [line["line"] for line in lines_of(tmp_path / "run-00001.jsonl")] == ["run", "tools"]
        _, error = await outcome(replay(nobody(), tmp_path), streamed=True)
        assert error.startswith("NotRecordedError: request 1 was not recorded")

    asyncio.run(main())


def test_cancelled_run_leaves_the_lines_before_the_cancellation(tmp_path: Path) -> None:
    async def main() -> None:
        begun = asyncio.Event()

        @tool(name="temperature")
        async def endless(city: str) -> dict[str, int]:
            """How warm it is."""
            begun.set()
            await asyncio.Event().wait()
            return {}

        running = asyncio.create_task(record(agent_of(tools=[endless]), tmp_path).run("go"))
        await asyncio.wait_for(begun.wait(), 5)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert [line["line"] for line in lines_of(tmp_path / "run-00001.jsonl")] == ["run", "tools", "exchange"]
        with pytest.raises(ConfigError, match="was not recorded"):
            await replay(nobody([endless]), tmp_path).run("go")

    asyncio.run(main())


def test_write_error_during_a_tool_call_ends_the_run(tmp_path: Path) -> None:
    @tool(name="temperature")
    async def deleting(city: str) -> int:
        """How warm it is."""
        (tmp_path / "run-00001.jsonl").unlink()
        return 4

    with pytest.raises(ConfigError, match=r"^cannot write the recording '.*run-00001.jsonl': No such file"):
        record(agent_of(tools=[deleting]), tmp_path).run_sync("go")


@pytest.mark.parametrize("arguments", [{"prompt": "go", "colour": 1}, {}, {"prompt": "go", "settings": {"seed": "x"}}])
def test_wrong_options_are_rejected_as_by_the_plain_agent(tmp_path: Path, arguments: dict[str, Any]) -> None:
    messages = []
    for agent in (agent_of(), record(agent_of(), tmp_path)):
        with pytest.raises(ConfigError) as raised:
            agent.run_sync(**arguments)
        messages.append(re.sub("0x[0-9a-f]+", "", str(raised.value)))
    assert messages[0] == messages[1]
    assert list(tmp_path.iterdir()) == []


words = st.text(max_size=5)
parts = st.one_of(
    words.map(Text),
    words.map(Thought),
    st.builds(lambda c: ToolCall("", "temperature", {"city": c}), words),
    st.builds(lambda c: ToolCall("", "broken", {"city": c}), st.sampled_from("ab")),
    st.just(ToolCall("", "temperature", {"town": 1})),
    st.just(ToolCall("", "unknown", {"x": [1.5, None, {"ü": "\n"}]})),
)
turns = st.one_of(
    st.tuples(st.lists(parts, max_size=4), st.sampled_from([*FinishReason, *[FinishReason.END] * 10])),
    st.sampled_from([RateLimitError("later", status=429), IncompleteResponseError("cut"), ValueError("odd")]),
)


def script(said: list[Any]) -> list[Any]:
    made: list[Any] = []
    for number, turn in enumerate(said):
        if isinstance(turn, Exception):
            made.append(turn)
            continue
        numbered = tuple(
            replace(part, id=f"{number}-{place}") if isinstance(part, ToolCall) else part
            for place, part in enumerate(turn[0])
        )
        made.append(ModelResponse(Message("model", numbered), turn[1]))
    return [*made, "the end"]


async def outcome(agent: Agent, *, streamed: bool) -> tuple[list[Any], str]:
    events: list[Any] = []
    try:
        if streamed:
            async for event in agent.stream("go", run_id="r"):
                events.append(event)  # noqa: PERF401 - those before an error count too
        else:
            result = await agent.run("go", run_id="r")
            events = [result.messages, result.text, [(run.call, run.result) for run in result.tool_calls]]
    except Exception as error:  # noqa: BLE001 - it is compared
        transcript = error.transcript if isinstance(error, MidspanError) else None
        return timeless(events), f"{type(error).__name__}: {error} {transcript}"
    return timeless(events), "ended"


@given(st.lists(turns, max_size=5), st.booleans())
def test_replay_has_the_outcome_of_any_recorded_run(
    tmp_path_factory: pytest.TempPathFactory, said: list[Any], streamed: bool
) -> None:
    folder = tmp_path_factory.mktemp("recording")

    async def main() -> None:
        recorded = await outcome(record(agent_of(script(said)), folder), streamed=streamed)
        assert await outcome(replay(nobody(), folder), streamed=streamed) == recorded
        other = await outcome(replay(nobody(), folder), streamed=not streamed)
        assert other[1] == recorded[1]

    asyncio.run(main())


def test_a_recorded_agent_has_the_options_of_the_agent_and_can_be_served(tmp_path: Path) -> None:
    recorded = record(agent_of(system="Be brief.", limits=Limits(max_turns=3)), tmp_path)
    assert (recorded.system, recorded.limits.max_turns) == ("Be brief.", 3)
    create_app(recorded)


def test_a_recorded_agent_cannot_be_recorded_or_replayed_again(tmp_path: Path) -> None:
    recorded = record(agent_of(), tmp_path)
    recorded.run_sync("go")
    for wrap in (record, replay):
        with pytest.raises(ConfigError, match="already recorded or replayed"):
            wrap(recorded, tmp_path)


def test_messages_of_an_iterator_are_recorded_and_sent(tmp_path: Path) -> None:
    messages = [Message.user("Oslo?"), Message("model", (Text("Yes."),)), Message.user("And now?")]
    recorded = record(agent_of(["Cold."]), tmp_path).run_sync(messages=iter(messages))
    assert recorded.messages[:3] == tuple(messages)
    replayed = replay(nobody(), tmp_path).run_sync(messages=iter(messages))
    assert replayed.text == "Cold."
