"""What the model reads about results, calls that were not run, and limits."""

import asyncio
import itertools
from typing import Any

import pytest

from midspan import Agent, BackgroundRuns, Limits, tool
from midspan._types.events import ToolStart
from midspan._types.exchange import FinishReason, ModelRequest, ModelResponse
from midspan._types.messages import Message
from midspan._types.parts import Blob, Text, ToolCall
from midspan._types.specs import ToolChoice, ToolSpec
from midspan.errors import LimitReachedError, RunError
from midspan.testing import ScriptedProvider
from midspan.tools.source import ToolListing, ToolSource


@tool
async def echo(n: int) -> int:
    """Says it again."""
    return n


@tool
async def other(n: int = 0) -> int:
    """Says something else."""
    return n + 1


def call(id: str, name: str, /, **arguments: Any) -> ToolCall:
    return ToolCall(id, name, arguments)


def goes_on(text: str) -> ModelResponse:
    return ModelResponse(Message("model", (Text(text),)), FinishReason.CONTINUES)


def test_same_text_with_another_image_is_another_result() -> None:
    shots: list[bytes] = []

    @tool
    def screenshot() -> Blob:
        """Take a picture."""
        shots.append(b"picture %d" % len(shots))
        return Blob.of(shots[-1], "image/png")

    provider = ScriptedProvider([*(call(str(n), "screenshot") for n in range(5)), "seen"])
    result = Agent(provider, tools=[screenshot]).run_sync("?")
    assert [run.result.media[0].data for run in result.tool_calls] == shots
    assert len(shots) == 5


def test_true_is_not_the_same_result_as_one() -> None:
    values = iter([1, True, 1, True, 1])

    @tool
    def poll() -> Any:
        """Look."""
        return next(values)

    provider = ScriptedProvider([*(call(str(n), "poll") for n in range(5)), "seen"])
    assert [run.value for run in Agent(provider, tools=[poll]).run_sync("?").tool_calls] == [1, True, 1, True, 1]


def test_model_gets_a_note_and_a_refusal_before_tools_are_withdrawn() -> None:
    def both(turn: int) -> list[ToolCall]:
        return [call(f"{turn}a", "echo", n=1), call(f"{turn}b", "echo", n=1)]

    provider = ScriptedProvider([*map(both, range(5)), "enough"])
    assert Agent(provider, tools=[echo]).run_sync("?").text == "enough"
    choices = [request.config.tool_choice for request in provider.requests]
    assert choices == [*[None] * 5, ToolChoice("none")]


def test_results_keep_the_order_of_the_calls() -> None:
    async def main() -> None:
        fast_ended = asyncio.Event()

        @tool
        async def slow() -> str:
            """Ends last."""
            await fast_ended.wait()
            return "slow"

        @tool
        async def fast() -> str:
            """Ends first."""
            fast_ended.set()
            return "fast"

        provider = ScriptedProvider([[call("1", "slow"), call("2", "fast")], "done"])
        result = await Agent(provider, tools=[slow, fast]).run("?")
        assert [run.name for run in result.tool_calls] == ["slow", "fast"]
        assert [made.name for made in result.messages[2].results] == ["slow", "fast"]

    asyncio.run(main())


def test_calls_under_one_id_have_the_results_of_their_names() -> None:
    provider = ScriptedProvider([[call("1", "echo", n=1), call("1", "other", n=2)], "done"])
    limits = Limits(max_tool_calls=1, on_limit="answer")
    result = Agent(provider, tools=[echo, other], limits=limits).run_sync("?")
    assert [(run.call.name, run.result.name, run.is_error) for run in result.tool_calls] == [
        ("echo", "echo", False),
        ("other", "other", True),
    ]


def test_repeated_call_has_the_result_of_the_first() -> None:
    calls = [call("1", "echo", n=1), call("1", "other", n=2), call("1", "echo", n=1), call("2", "echo", n=3)]
    result = Agent(ScriptedProvider([calls, "done"]), tools=[echo, other]).run_sync("?")
    assert [(run.name, run.value) for run in result.tool_calls] == [("echo", 1), ("other", 3), ("echo", 1), ("echo", 3)]


def test_each_refusal_names_its_own_limit() -> None:
    provider = ScriptedProvider(
        [[call("1", "echo", n=1), call("2", "other")], [call("3", "echo", n=2), call("4", "other", n=5)], "x"]
    )
    limits = Limits(max_calls_per_tool=1, on_limit="answer")
    result = Agent(provider, tools=[echo, other], limits=limits).run_sync("?")
    refused = [run.value for run in result.tool_calls if run.is_error]
    assert refused == [
        "echo was not run: Maximum calls of echo exceeded (1)",
        "other was not run: Maximum calls of other exceeded (1)",
    ]


def test_answer_may_continue_while_it_has_new_text() -> None:
    script = [*(goes_on(f"{n} ") for n in range(6)), "end"]
    assert Agent(ScriptedProvider(script)).run_sync("?").text == "0 1 2 3 4 5 end"


def test_text_before_a_call_is_not_part_of_the_answer() -> None:
    script = [goes_on("part one "), [Text("two"), call("1", "echo", n=1)], "final"]
    assert Agent(ScriptedProvider(script), tools=[echo]).run_sync("?").text == "final"


def test_limit_message_is_not_appended_to_a_turn_of_the_model() -> None:
    script = [goes_on("never "), goes_on("ending ")]
    result = Agent(ScriptedProvider(script), limits=Limits(max_turns=2, on_limit="message")).run_sync("?")
    roles = [message.role for message in result.messages]
    assert all(one != next_one for one, next_one in itertools.pairwise(roles))


def test_calls_of_the_history_are_not_judged_by_the_tool_choice() -> None:
    history = (Message.user("first"), Message("model", (call("1", "echo", n=1),)))
    provider = ScriptedProvider([call("2", "other"), "done"])
    agent = Agent(provider, tools=[echo, other], tool_choice=ToolChoice("required", ("other",)))
    result = agent.run_sync(messages=history)
    assert [(run.name, run.is_error) for run in result.tool_calls] == [("echo", False), ("other", False)]
    assert provider.requests[0].config.tool_choice == ToolChoice("required", ("other",))


def test_journal_has_the_transcript_of_the_run() -> None:
    async def main() -> None:
        def agent() -> Agent:
            return Agent(ScriptedProvider([call("1", "echo", n=1)]), tools=[echo], limits=Limits(max_turns=1))

        with pytest.raises(LimitReachedError) as raised:
            await agent().run("?")
        async with BackgroundRuns(agent()) as runs:
            run_id = runs.start("?")
            with pytest.raises(RunError) as read:
                async for _ in runs.subscribe(run_id, view="final"):
                    pass
        assert read.value.transcript == raised.value.transcript

    asyncio.run(main())


class Source(ToolSource):
    """Has one tool, and may be slow, or refuse, when it is asked for it."""

    def __init__(self, *, seconds: float = 0) -> None:
        self.asked = 0
        self._seconds = seconds

    async def list_tools(self) -> ToolListing:
        self.asked += 1
        await asyncio.sleep(self._seconds)
        return ToolListing((ToolSpec("far", "Far away."),))

    async def call(self, call: ToolCall, context: Any = None) -> Any: ...


def test_first_run_lists_the_tools_once() -> None:
    source = Source()
    assert Agent(ScriptedProvider(["done"]), tools=[source]).run_sync("?").text == "done"
    assert source.asked == 1


@pytest.mark.parametrize("streaming", [False, True])
def test_time_limit_includes_listing_the_tools(*, streaming: bool) -> None:
    async def main() -> None:
        def never(_: ModelRequest) -> str:
            raise AssertionError

        agent = Agent(ScriptedProvider([never]), tools=[Source(seconds=60)], limits=Limits(max_seconds=0.01))
        running = anext(agent.stream("?")) if streaming else agent.run("?")
        with pytest.raises(LimitReachedError, match="Maximum run time exceeded") as caught:
            await running
        assert caught.value.transcript == (Message.user("?"),)

    asyncio.run(main())


def test_start_of_a_call_says_whether_it_may_write_and_whether_more_calls_follow() -> None:
    @tool
    def pay(n: int) -> str:
        """Pay."""
        return "paid"

    @tool(read_only=True)
    def look(n: int) -> str:
        """Look."""
        return "seen"

    calls = [ToolCall(str(n), name, {"n": n}) for n, name in enumerate(["pay", "look", "pay"])]
    agent = Agent(
        ScriptedProvider([calls, "done"]), [pay, look], limits=Limits(max_calls_per_tool=1, on_limit="answer")
    )
    starts = [event for event in agent.stream("?") if isinstance(event, ToolStart)]
    assert [(start.may_write, start.has_more) for start in starts] == [(True, True), (False, True), (False, False)]
