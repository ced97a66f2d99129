"""Blocking and streaming are one loop: the same requests, the same events."""

import asyncio
import subprocess
import sys
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from midspan import Agent, Limits, tool
from midspan._types.events import RunEnd, RunEvent, RunStart, TextDelta, ThoughtDelta, ToolEnd
from midspan._types.exchange import FinishReason, ModelResponse
from midspan._types.messages import Message
from midspan._types.parts import Text, Thought, ToolCall
from midspan.errors import MidspanError
from midspan.testing import ScriptedProvider

ROOT = Path(__file__).parents[2]
RECORDINGS = ROOT.parent / "shared" / "data" / "gemini_traffic.jsonl"


@pytest.mark.skipif(not RECORDINGS.exists(), reason="no recordings beside the project (../shared/data)")
def test_recorded_tool_loops_are_equal_in_both_modes() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "replay_loops.py"), str(RECORDINGS)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    last = ran.stdout.splitlines()[-1]
    assert last.endswith(" 0 failed")
    assert int(last.split()[0]) >= 150


@tool
async def echo(value: Any) -> Any:
    """Give it back."""
    return value


@tool(final=True)
async def finish(value: int) -> int:
    """The end."""
    return value


words = st.text(max_size=5)
parts = st.one_of(
    words.map(Text),
    words.map(Thought),
    st.builds(lambda n: ToolCall("", "echo", {"value": n}), st.integers(0, 3)),
    st.builds(lambda n: ToolCall("", "echo", {"other": n}), st.integers(0, 3)),
    st.just(ToolCall("", "finish", {"value": 1})),
    st.just(ToolCall("", "unknown", {})),
)
finishes = st.sampled_from([*FinishReason, *[FinishReason.END] * 10])
turns = st.tuples(st.lists(parts, max_size=4), finishes)


def script(given_turns: list[tuple[list[Any], FinishReason]]) -> list[Any]:
    made: list[Any] = []
    for number, (said, finish_reason) in enumerate(given_turns):
        numbered = tuple(
            replace(part, id=f"{number}-{place}") if isinstance(part, ToolCall) else part
            for place, part in enumerate(said)
        )
        made.append(ModelResponse(Message("model", numbered), finish_reason))
    return [*made, "the end"]


def events_of(provider: ScriptedProvider, limits: Limits, *, whole: bool) -> tuple[list[Any], str]:
    agent = Agent(provider, tools=[echo, finish], limits=limits)
    listener = Events(deltas=not whole)

    async def main() -> tuple[str, bool]:
        start = agent._begin("go", run_id="r").start
        run = await start(listener)
        try:
            await run.execute()
        except MidspanError as error:
            return f"{type(error).__name__}: {error}", error.transcript == run.state.history
        return "ended", True

    ending, has_transcript = asyncio.run(main())
    assert has_transcript
    return told(listener.events), ending


class Events:
    """Listens to a run."""

    def __init__(self, *, deltas: bool) -> None:
        self.deltas = deltas
        self.events: list[RunEvent] = []

    async def emit(self, event: RunEvent) -> None:
        self.events.append(event)

    async def wait_for_reader(self) -> None:
        """Events are read at once."""

    def report(self, event: RunEvent) -> None:
        """The tools of these runs report nothing."""


def told(events: list[RunEvent]) -> list[Any]:
    made: list[Any] = []
    for (kind, _), group in groupby(events, lambda event: (type(event), getattr(event, "turn", None))):
        if kind in (TextDelta, ThoughtDelta):
            continue  # their text is in TurnEnd; a run that nobody streams has none
        if kind is ToolEnd:
            ends = [replace(event, duration_seconds=0.0) for event in group]  # type: ignore[type-var]
            made.append(sorted(ends, key=lambda event: event.result.id))  # type: ignore[attr-defined]
        else:
            made += group
    return made


@given(st.lists(turns, max_size=6), st.sampled_from(["error", "message", "answer"]), st.integers(1, 6))
def test_random_runs_are_equal_in_both_modes_and_every_call_has_one_result(
    said: list[tuple[list[Any], FinishReason]], on_limit: Any, most: int
) -> None:
    limits = Limits(max_turns=most, on_limit=on_limit)
    outcomes = []
    for whole in (True, False):
        provider = ScriptedProvider(script(said))
        events, ending = events_of(provider, limits, whole=whole)
        requests = [(request.config.tool_choice, request.history.messages) for request in provider.requests]
        outcomes.append((events, ending, requests))
        assert_legal(requests)
        if ending == "ended" and events:
            assert isinstance(events[0], RunStart)
            assert isinstance(events[-1], RunEnd)
    assert outcomes[0] == outcomes[1]


def assert_legal(requests: list[Any]) -> None:
    for _, messages in requests:
        for one, following in pairwise(messages):
            if one.calls:
                assert [result.id for result in following.results] == [call.id for call in one.calls]
        assert messages[-1].role == "user"
