"""The state of a run equals the fold of its events, at every event."""

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from midspan import Agent, Limits, tool
from midspan._loop.result import RunStream
from midspan._types.codec import from_json, to_json
from midspan._types.events import CANCELLED, ErrorInfo, RunEnd, RunEvent, RunStart, ToolEnd, ToolStart, TurnEnd
from midspan._types.exchange import Citation, FinishReason, ModelResponse, Usage
from midspan._types.messages import History, Message
from midspan._types.parts import Text, Thought, ToolCall, ToolResult
from midspan._types.run_state import RunState
from midspan.errors import IncompleteResponseError, MidspanError, ServerError, ToolError
from midspan.testing import ScriptedProvider
from tests.bounds import BOUND


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    await asyncio.sleep(0)
    return a + b


@tool
def fail() -> None:
    raise ToolError("broken")


@tool(final=True)
def finish(text: str) -> str:
    return text


TOOLS = [add, fail, finish]

ids = st.sampled_from(["1", "2", "3"])
calls = st.one_of(
    st.builds(ToolCall, ids, st.just("add"), st.fixed_dictionaries({"a": st.integers(0, 2), "b": st.just(1)})),
    st.builds(ToolCall, ids, st.sampled_from(["fail", "unknown"]), st.just({})),
    st.builds(ToolCall, ids, st.just("add"), st.just({"a": "wrong"})),
)
endings = st.builds(ToolCall, ids, st.just("finish"), st.just({"text": "over"}))
words = st.builds(Text, st.sampled_from(["", "a", "It is 3."]))
parts = st.lists(st.one_of(calls, calls, words, st.builds(Thought, st.just("hm"))), max_size=5).map(tuple)
responses = st.builds(
    ModelResponse,
    st.builds(Message, st.just("model"), parts),
    st.sampled_from([reason for reason in FinishReason if reason is not FinishReason.BLOCKED]),
    usage=st.builds(Usage, st.integers(0, 9), st.integers(0, 9)),
    citations=st.sampled_from([(), (Citation("https://a"),)]),
    requests=st.integers(1, 3),
)
turns = st.one_of(
    parts.map(list),
    responses,
    st.lists(endings, min_size=1, max_size=2),
    st.just("It is 3."),
    st.sampled_from([ServerError("503"), IncompleteResponseError("cut"), RuntimeError("bug")]),
)
limits = st.builds(
    Limits,
    max_turns=st.integers(1, 8),
    max_tool_calls=st.none() | st.integers(1, 4),
    max_calls_per_tool=st.none() | st.just({"add": 1}),
    max_tokens=st.none() | st.just(20),
    on_limit=st.sampled_from(["error", "message", "answer"]),
)
histories = st.sampled_from(
    [
        History([Message.user("go")]),
        History(
            [Message.user("go"), Message("model", (ToolCall("1", "add", {"a": 1, "b": 1}), ToolCall("1", "fail")))]
        ),
    ]
)


def live_state(stream: RunStream) -> RunState:
    assert stream._queue.run is not None
    return stream._queue.run.state


async def check_every_event(stream: RunStream, *, leave_after: int | None = None) -> None:
    """Compare the live state with the fold of the stored events so far, to the end of the run or until we leave."""
    events: list[RunEvent] = []
    error: ErrorInfo | None = None
    try:
        async with stream:
            async for event in stream:
                events.append(from_json(to_json(event), "event"))
                assert RunState.of_events(events) == live_state(stream)
                if len(events) == leave_after:
                    error = ErrorInfo(CANCELLED, "left")
                    break
    except MidspanError as raised:
        error = ErrorInfo(type(raised).__name__, str(raised))
    if not isinstance(events[-1], RunEnd):
        assert error is not None, "a run has an end or an error"
        events.append(RunEnd("r", "", Usage(), 0, None, error))
    assert RunState.of_events(events) == live_state(stream)
    assert live_state(stream).unanswered == []


@given(
    script=st.lists(turns, min_size=1, max_size=8),
    limits=limits,
    history=histories,
    leave_after=st.none() | st.integers(1, 20),
)
def test_state_restored_from_events_equals_the_live_state(
    script: list[Any], limits: Limits, history: History, leave_after: int | None
) -> None:
    async def main() -> None:
        agent = Agent(ScriptedProvider([*script, *["done"] * 20]), TOOLS, limits=limits)
        async with asyncio.timeout(BOUND):
            await check_every_event(agent.stream(messages=history), leave_after=leave_after)

    asyncio.run(main())


def test_calls_that_share_an_id_keep_their_own_results() -> None:
    calls = [ToolCall("1", "fail"), ToolCall("1", "add", {"a": 1, "b": 2}), ToolCall("1", "add", {"a": 3, "b": 4})]

    async def main() -> None:
        events = [event async for event in Agent(ScriptedProvider([calls, "done"]), TOOLS).stream("go")]
        assert [(event.index, event.call) for event in events if isinstance(event, ToolStart)] == [*enumerate(calls)]
        ends = [event for event in events if isinstance(event, ToolEnd)]
        assert sorted((end.index, end.result.name) for end in ends) == [(0, "fail"), (1, "add"), (2, "add")]
        runs = RunState.of_events(events).tool_runs
        assert [(run.call, run.value) for run in runs[1:]] == [(calls[1], 3), (calls[2], 7)]

    asyncio.run(main())


def test_events_of_unknown_kinds_do_not_change_the_state() -> None:
    events = [
        RunStart("r", "m", (Message.user("hi"),)),
        from_json(b'{"midspan":1,"kind":"event","value":{"type":"tool_dream"}}', "event"),
    ]
    assert RunState.of_events(events) == RunState.of(History([Message.user("hi")]))


def test_first_of_several_final_results_ends_the_run() -> None:
    calls = tuple(ToolCall(id, "finish", {"text": id}) for id in ("a", "b"))
    state = RunState.of(History([Message.user("?"), Message("model", calls)]))
    for index in (1, 0):
        result = ToolResult(calls[index].id, "finish", calls[index].id, is_final=True)
        state = state.after(ToolEnd(1, result, 0.1, index))
    assert state.final_result is not None
    assert state.final_result.id == "a"


def test_failed_turns_are_counted_anew_after_a_call() -> None:
    call = ToolCall("1", "add", {"a": 1, "b": 2})
    state = RunState(History([Message.user("hi")]), turn=2, failed_turns=2)
    after_call = state.after(TurnEnd(2, Message("model", (call,)), FinishReason.END, Usage()))
    assert after_call.failed_turns == 0
    answered = state.after(TurnEnd(2, Message("model", (Text("3"),)), FinishReason.END, Usage()))
    assert answered.failed_turns == 2, "whether text is an answer is decided by the policies"
