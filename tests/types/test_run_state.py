"""The state of a run equals the fold of its events, at every event."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from midspan import Agent, Limits, tool
from midspan._loop.run_stream import RunStream
from midspan._types.codec import from_json, to_json
from midspan._types.events import (
    CANCELLED,
    ErrorInfo,
    RunEnd,
    RunEvent,
    RunStart,
    ToolEnd,
    ToolStart,
    TurnEnd,
    TurnRetry,
    TurnStart,
)
from midspan._types.exchange import Citation, FinishReason, ModelResponse, Usage
from midspan._types.messages import History, Message
from midspan._types.parts import NOT_RUN, OVER_LIMIT, Blob, Text, Thought, ToolCall, ToolResult
from midspan._types.run_state import RunState, has_answer
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


def responded(state: RunState, *parts: Any, finish_reason: FinishReason = FinishReason.END, **fields: Any) -> RunState:
    return state.after(TurnEnd(state.turn, Message("model", parts), finish_reason, Usage(input=5), **fields))


START = RunState.of_events([RunStart("r", "m", (Message.user("hi"),)), TurnStart(1)])
CALL = ToolCall("1", "add", {"a": 1, "b": 2})


@pytest.mark.parametrize(
    ("parts", "finish_reason"),
    [
        ((), FinishReason.END),
        ((Text(""), Thought("hm")), FinishReason.END),
        ((Text("It is"),), FinishReason.CUT),
        ((CALL,), FinishReason.CUT),
    ],
)
def test_response_without_usable_content_is_counted_but_not_part_of_the_conversation(
    parts: tuple[Any, ...], finish_reason: FinishReason
) -> None:
    state = responded(START, *parts, finish_reason=finish_reason, requests=3)
    assert (state.history, state.calls, state.finish_reason) == (START.history, (), finish_reason)
    assert (state.usage, state.requests) == (Usage(input=5), 3)


def test_text_of_paused_turns_is_kept_until_the_next_call() -> None:
    pauses = FinishReason.CONTINUES
    first = responded(replace(START, failed_turns=1), Text("a"), finish_reason=pauses)
    assert (first.partial_text, first.failed_turns) == ("a", 0)
    second = responded(first, Text("b"), finish_reason=pauses, citations=(Citation("https://a"),))
    assert (second.partial_text, second.citations) == ("ab", (Citation("https://a"),))
    assert responded(second, Text("c")).partial_text == "ab"
    assert responded(second, CALL).partial_text == ""
    assert responded(replace(START, failed_turns=1), Text("a")).failed_turns == 1


def test_retry_is_counted_and_its_message_is_part_of_the_conversation() -> None:
    state = START.after(TurnRetry(1, "empty", Message.user("Go on."))).after(TurnRetry(1, "empty"))
    assert (state.history[-1], len(state.history), state.failed_turns) == (Message.user("Go on."), 2, 2)
    assert (state.retries_exhausted, state.after(TurnRetry(1, "empty")).retries_exhausted) == (False, True)


@pytest.mark.parametrize(
    ("notes", "was_run", "is_refused"),
    [((), True, False), (("a: 1",), True, False), ((NOT_RUN,), False, False), ((OVER_LIMIT,), False, True)],
)
def test_call_that_was_not_run_or_refused_is_known_by_its_notes(
    notes: tuple[str, ...], was_run: bool, is_refused: bool
) -> None:
    result = ToolResult("1", "add", 3, notes=notes, meta={"limit": "max_tool_calls"})
    state = responded(START, CALL).after(ToolEnd(1, result, 0.5))
    [run] = state.tool_runs
    assert (run.was_run, run.is_refused, state.has_run_call) == (was_run, is_refused, was_run)
    assert (run.id, run.name, run.arguments, run.value, run.is_error) == ("1", "add", CALL.arguments, 3, False)
    assert (state.refused_turns, state.limit) == ((1, "max_tool_calls") if is_refused else (0, None))


def test_turn_is_refused_if_all_of_its_calls_are() -> None:
    calls = (CALL, ToolCall("2", "add"))
    refused, run = ToolResult("1", "add", notes=(OVER_LIMIT,)), ToolResult("2", "add")
    state = responded(START, *calls)
    assert state.after(ToolEnd(1, refused, 0, 0)).after(ToolEnd(1, refused, 0, 1)).refused_turns == 1
    state = state.after(ToolEnd(1, run, 0, 1))
    assert state.unanswered == [(0, CALL)]
    state = state.after(ToolEnd(1, refused, 0, 0))
    assert (state.refused_turns, state.history[-1]) == (0, Message("user", (refused, run)))
    assert (state.unanswered, state.final_result) == ([], None)


def test_calls_of_an_earlier_run_are_not_calls_of_this_one() -> None:
    state = RunState.of(History([Message.user("?"), Message("model", (CALL,))]))
    state = state.after(ToolEnd(0, ToolResult("1", "add", 3), 0.5))
    assert (state.has_run_call, len(state.tool_runs)) == (False, 1)


def test_refused_turns_are_counted_anew_when_calls_are_forbidden() -> None:
    state = replace(START, refused_turns=2)
    assert state.after(TurnStart(2)).refused_turns == 2
    forbidden = state.after(TurnStart(2, tools_withdrawn=True, limit="max_turns"))
    assert (forbidden.refused_turns, forbidden.tools_withdrawn, forbidden.limit) == (0, True, "max_turns")


@pytest.mark.parametrize(
    ("text", "limit", "parts", "is_added"),
    [
        ("Too many turns.", "max_turns", (CALL,), True),
        ("", "max_turns", (CALL,), False),
        ("It is 3.", None, (CALL,), False),
        ("It is 3.", "max_turns", (Text("It is 3."),), False),
    ],
)
def test_message_that_replaces_the_answer_is_part_of_the_conversation(
    text: str, limit: str | None, parts: tuple[Any, ...], is_added: bool
) -> None:
    state = responded(START, *parts).settled("was not run")
    after = state.after(RunEnd("r", text, Usage(), 1, limit))
    assert after.history.messages[len(state.history) :] == ((Message("model", (Text(text),)),) if is_added else ())


@pytest.mark.parametrize(
    ("kind", "words"), [(CANCELLED, "was cancelled before it ended"), ("OutputError", "was not run, because")]
)
def test_calls_without_results_get_error_results_when_the_run_fails(kind: str, words: str) -> None:
    state = responded(START, CALL, ToolCall("2", "add")).after(ToolEnd(1, ToolResult("2", "add", 3), 0.5, 1))
    state = state.after(RunEnd("r", "", Usage(), 1, error=ErrorInfo(kind, "?")))
    first, second = state.history[-1].results
    assert (first.is_error, first.value[:40].startswith(f"add {words}"[:40]), second.value) == (True, True, 3)


@pytest.mark.parametrize(
    ("parts", "is_answer"),
    [((), False), ((Text(" "), CALL), False), ((Text("a"),), True), ((Blob("image/png"),), True)],
)
def test_answer_is_text_or_media(parts: tuple[Any, ...], is_answer: bool) -> None:
    assert has_answer(Message("model", parts)) is is_answer
