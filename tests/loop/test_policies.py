"""Several policies in one turn, and policies of runs that are restored from their events."""

import asyncio
from time import monotonic
from typing import Any

import pytest
from msgspec.structs import replace

from midspan import Agent, Limits, tool
from midspan._loop.loop_detector import LoopDetector
from midspan._loop.policies import LimitTracker, ResponsePolicy, ToolChoicePolicy, decide
from midspan._loop.turn import NO_RESPONSE
from midspan._types.context import RunContext
from midspan._types.events import RunEvent, ToolProgress
from midspan._types.exchange import Budget, FinishReason, ModelRequest, ModelResponse, Usage
from midspan._types.messages import History, Message
from midspan._types.parts import ToolCall, ToolResult
from midspan._types.run_state import MAX_RETRIES, RunState
from midspan._types.specs import ToolChoice, ToolSpec
from midspan.errors import ConfigError, LimitReachedError, NoAnswerError
from midspan.providers.gemini.capabilities import GEMINI_JSON_SCHEMA
from midspan.providers.provider import ModelProfile
from midspan.testing import ScriptedProvider
from midspan.tools.source import ToolListing, ToolSource


def calls(name: str, count: int, **arguments: Any) -> list[ToolCall]:
    return [ToolCall(str(n), name, {"n": n, **arguments}) for n in range(count)]


class Shop:
    """Two tools, and what was really run."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.tools = [tool(self.pay), tool(read_only=True)(self.look)]

    def pay(self, n: int) -> str:
        """Pay."""
        self.paid.append(n)
        return f"paid {n}"

    def look(self, n: int) -> str:
        """Look."""
        return "seen"


def test_forbidden_call_beside_others_does_not_switch_off_the_limit() -> None:
    shop = Shop()
    script = [[*calls("pay", 4), ToolCall("x", "look", {"n": 1})], "done"]
    limits = Limits(max_tool_calls=1, on_limit="answer")
    agent = Agent(ScriptedProvider(script), shop.tools, limits=limits, tool_choice={"type": "required", "tool": "pay"})
    agent.run_sync("?")
    assert shop.paid == [0]


def test_unreadable_call_beside_a_valid_one_does_not_count_against_the_limit() -> None:
    shop = Shop()
    unreadable = ToolCall("2", "pay", {}, raw_arguments="{", arguments_error="the arguments are not valid JSON")
    script = [[ToolCall("1", "pay", {"n": 1}), unreadable], "done"]
    result = Agent(ScriptedProvider(script), shop.tools, limits=Limits(max_tool_calls=1)).run_sync("?")
    assert (result.text, shop.paid) == ("done", [1])


def test_calls_of_unknown_tools_do_not_count_against_the_limits() -> None:
    shop = Shop()
    script = [ToolCall("1", "nope", {}), ToolCall("2", "nope", {}), ToolCall("3", "pay", {"n": 1}), "done"]
    limits = Limits(max_tool_calls=1, max_calls_per_tool=1)
    assert Agent(ScriptedProvider(script), shop.tools, limits=limits).run_sync("?").text == "done"
    assert shop.paid == [1]


def test_limit_error_is_raised_although_the_model_made_a_forbidden_call_before() -> None:
    shop = Shop()
    look = ToolCall("1", "look", {"n": 1})
    script = [[look, ToolCall("2", "pay", {"n": 1})], look, look, look, look]
    choice = {"type": "required", "tool": "look"}
    agent = Agent(
        ScriptedProvider(script), shop.tools, limits=Limits(max_turns=3, on_limit="answer"), tool_choice=choice
    )
    with pytest.raises(LimitReachedError):
        agent.run_sync("?")


def test_tool_that_needs_approval_is_refused() -> None:
    class Guarded(ToolSource):
        async def list_tools(self) -> ToolListing:
            return ToolListing((ToolSpec("wipe", needs_approval=True),))

        async def call(self, call: ToolCall, context: RunContext[Any]) -> ToolResult:
            raise AssertionError("it must not run")

    [run] = Agent(ScriptedProvider([ToolCall("1", "wipe"), "so"]), Guarded()).run_sync("?").tool_calls
    assert "needs the approval of a person" in run.value


def test_model_that_only_calls_tools_that_need_approval_gets_no_endless_run() -> None:
    class Guarded(ToolSource):
        async def list_tools(self) -> ToolListing:
            return ToolListing((ToolSpec("wipe", needs_approval=True),))

        async def call(self, call: ToolCall, context: RunContext[Any]) -> ToolResult:
            raise AssertionError("it must not run")

    provider = ScriptedProvider([ToolCall("1", "wipe")] * 20)
    with pytest.raises(NoAnswerError, match="only made calls that were refused"):
        Agent(provider, Guarded(), limits=Limits(max_turns=None)).run_sync("?")


def test_complete_call_before_a_forbidden_one_that_may_be_cut_off_is_run() -> None:
    shop = Shop()
    cut = ModelResponse(Message("model", (*calls("look", 1), *calls("pay", 1))), FinishReason.LENGTH)
    choice = {"type": "required", "tool": "look"}
    result = Agent(ScriptedProvider([cut, "done"]), shop.tools, tool_choice=choice).run_sync("?")
    assert [run.is_error for run in result.tool_calls] == [False, True]
    assert "is not available now" in result.tool_calls[1].value


def test_run_that_makes_calls_instead_of_its_answer_ends_with_the_first_limit() -> None:
    limits = Limits(max_tool_calls=1, max_turns=3, on_limit="answer")
    provider = ScriptedProvider(lambda request: ToolCall("1", "pay", {"n": len(request.history)}))
    with pytest.raises(LimitReachedError) as caught:
        Agent(provider, Shop().tools, limits=limits).run_sync("?")
    assert caught.value.limit == "max_tool_calls"


def test_valid_call_after_refused_turns_is_run() -> None:
    shop = Shop()
    unreadable = ToolCall("1", "pay", {}, raw_arguments="{", arguments_error="the arguments are not valid JSON")
    script = [unreadable, unreadable, unreadable, [unreadable, ToolCall("2", "pay", {"n": 1})], "done"]
    assert Agent(ScriptedProvider(script), shop.tools).run_sync("?").text == "done"
    assert shop.paid == [1]


def test_run_whose_time_is_over_ends_at_this_limit_although_its_last_turns_were_refused() -> None:
    call = ToolCall("1", "look")
    state = replace(RunState.of(History([Message("model", (call,))])), refused_turns=MAX_RETRIES + 1)
    limits = LimitTracker(Limits(max_seconds=1), monotonic() - 2)
    policy = ToolChoicePolicy([ToolSpec("look", needs_approval=True)])
    with pytest.raises(LimitReachedError, match="run time exceeded"):
        decide([policy], limits, state, NO_RESPONSE)


def test_run_whose_time_is_over_ends_at_this_limit_although_its_last_turns_were_empty() -> None:
    state = replace(RunState.of(History([Message.user("?")])), turn=4, failed_turns=MAX_RETRIES)
    limits = LimitTracker(Limits(max_seconds=1), monotonic() - 2)
    with pytest.raises(LimitReachedError, match="run time exceeded"):
        decide([ResponsePolicy(calls_only=False)], limits, state, NO_RESPONSE)


def test_meta_of_a_result_is_not_taken_for_a_limit_of_the_run() -> None:
    class Paged(ToolSource):
        async def list_tools(self) -> ToolListing:
            return ToolListing((ToolSpec("rows"),))

        async def call(self, call: ToolCall, context: RunContext[Any]) -> ToolResult:
            return ToolResult(call.id, call.name, [1], notes=("cut",), meta={"limit": "100"})

    provider = ScriptedProvider([ToolCall("1", "rows"), "done"])
    assert Agent(provider, Paged()).run_sync("?").limit is None
    assert [request.config.tool_choice for request in provider.requests] == [None, None]


def test_loop_detector_that_is_restored_at_once_decides_as_the_live_one() -> None:
    shop = Shop()
    script = [*(ToolCall(str(n), "look", {"n": 1}) for n in range(7)), "done"]
    specs = {each.spec.name: each.spec for each in shop.tools}

    async def main() -> None:
        events: list[RunEvent] = []
        live = LoopDetector(5, specs)
        next_call = [(0, ToolCall("next", "look", {"n": 1}))]
        refused = 0
        async for event in Agent(ScriptedProvider(script), shop.tools, limits=Limits(max_turns=None)).stream("?"):
            events.append(event)
            state = RunState.of_events(events)
            restored = LoopDetector(5, specs)
            refusals = live.refuse(state, next_call)
            assert restored.refuse(state, next_call) == refusals
            assert restored.repeated == live.repeated
            refused += bool(refusals)
        assert refused

    asyncio.run(main())


@pytest.mark.parametrize(("max_turns", "modes"), [(1, ["required", "none"]), (2, ["required", "required"])])
def test_model_that_may_only_answer_is_not_forced_to_make_a_call(max_turns: int, modes: list[str]) -> None:
    provider = ScriptedProvider([ToolCall("1", "nope", {}), "done"])
    limits = Limits(max_turns=max_turns, on_limit="answer")
    Agent(provider, Shop().tools, limits=limits, tool_choice="required").run_sync("?")
    assert [request.config.tool_choice and request.config.tool_choice.mode for request in provider.requests] == modes


def test_budget_of_a_request_is_what_earlier_requests_left() -> None:
    budgets: list[Budget] = []

    def model(request: ModelRequest) -> Any:
        budgets.append(request.budget)
        if len(budgets) > 1:
            return "done"
        message = Message("model", (ToolCall("1", "look", {"n": 1}),))
        return ModelResponse(message, FinishReason.END, usage=Usage(input=30, output=10), requests=3)

    Agent(ScriptedProvider(model), Shop().tools, limits=Limits(max_turns=10, max_tokens=100)).run_sync("?")
    assert budgets == [Budget(10, 100), Budget(7, 60)]


def test_request_for_the_answer_has_no_tool_choice_if_there_are_no_tools() -> None:
    provider = ScriptedProvider([ToolCall("1", "nope", {}), "sorry"])
    result = Agent(provider, limits=Limits(max_turns=1, on_limit="answer")).run_sync("?")
    assert (result.text, result.limit) == ("sorry", "max_turns")
    assert [request.config.tool_choice for request in provider.requests] == [None, None]


async def lookup(context: RunContext[None], name: str, count: int = 1) -> list[Any]:
    """Call another tool."""
    results = await asyncio.gather(*(context.call_tool(name, {"n": n}) for n in range(count)))
    return [result.value for result in results]


def test_tool_calls_read_only_tools_within_the_limits() -> None:
    shop = Shop()
    script = [ToolCall("1", "lookup", {"name": "look", "count": 4}), "done"]
    [run] = (
        Agent(ScriptedProvider(script), [lookup, *shop.tools], limits=Limits(max_tool_calls=3)).run_sync("?").tool_calls
    )
    assert run.value[:2] == ["seen", "seen"]
    assert all("Maximum tool calls exceeded" in value for value in run.value[2:])


def test_model_without_any_allowed_call_is_asked_three_more_times() -> None:
    provider = ScriptedProvider([ToolCall("1", "look", {"n": 1})] * 9)
    with pytest.raises(NoAnswerError, match="only made calls that were refused"):
        Agent(provider, Shop().tools, tool_choice="none").run_sync("?")
    assert len(provider.requests) == 4


@pytest.mark.parametrize("choice", ["none", {"type": "required", "tool": "pay"}])
def test_cut_and_forbidden_calls_by_turns_give_no_endless_run(choice: Any) -> None:
    requests: list[ModelRequest] = []

    def model(request: ModelRequest) -> ModelResponse:
        requests.append(request)
        assert len(requests) < 20
        reason = FinishReason.LENGTH if len(requests) % 2 else FinishReason.END
        return ModelResponse(Message("model", (ToolCall(str(len(requests)), "look", {"n": 1}),)), reason)

    agent = Agent(ScriptedProvider(model), Shop().tools, tool_choice=choice, limits=Limits(max_turns=None))
    with pytest.raises(NoAnswerError):
        agent.run_sync("?")
    read = [result.value for request in requests for result in request.history[-1].results]
    assert all("is not available now" in text for text in read)


def test_forbidden_and_unreadable_calls_by_turns_give_no_endless_run() -> None:
    requests: list[ModelRequest] = []

    def model(request: ModelRequest) -> ToolCall:
        requests.append(request)
        assert len(requests) < 20
        if len(requests) % 2:
            return ToolCall(str(len(requests)), "look", {"n": 1})
        return ToolCall(str(len(requests)), "pay", {}, raw_arguments="{", arguments_error="this is not JSON")

    choice = {"type": "required", "tool": "pay"}
    agent = Agent(ScriptedProvider(model), Shop().tools, tool_choice=choice, limits=Limits(max_turns=None))
    with pytest.raises(NoAnswerError, match="calls that were refused, 4 times in a row"):
        agent.run_sync("?")


def test_unreadable_calls_before_a_limit_leave_the_chance_to_answer() -> None:
    unreadable = ToolCall("1", "pay", {}, raw_arguments="{", arguments_error="this is not JSON")
    script = [unreadable, unreadable, ToolCall("2", "pay", {"n": 1})]
    agent = Agent(ScriptedProvider(script), Shop().tools, limits=Limits(max_turns=2, on_limit="answer"))
    with pytest.raises(LimitReachedError):
        agent.run_sync("?")


def test_tool_cannot_call_a_tool_that_needs_approval() -> None:
    class Secrets(ToolSource):
        async def list_tools(self) -> ToolListing:
            return ToolListing((ToolSpec("secret", read_only=True, needs_approval=True),))

        async def call(self, call: ToolCall, context: RunContext[Any]) -> ToolResult:
            return ToolResult(call.id, call.name, "hunter2")

    @tool
    async def helper(context: RunContext[None]) -> str:
        """Call the other tool."""
        return str((await context.call_tool("secret", {})).value)

    result = Agent(ScriptedProvider([ToolCall("1", "helper"), "done"]), [Secrets(), helper]).run_sync("?")
    assert "secret was not run: it needs the approval of a person" in result.tool_calls[0].value


def test_call_made_by_a_tool_has_its_deadline_and_reports_no_progress() -> None:
    deadlines: list[float | None] = []

    @tool(read_only=True, timeout=None)
    async def inner(context: RunContext[None]) -> None:
        """Report to nobody."""
        context.progress(0.5, "inner")
        deadlines.append(context.deadline)

    @tool(timeout=20)
    async def outer(context: RunContext[None]) -> None:
        """Call the other tool."""
        context.progress(0.5, "outer")
        await context.call_tool("inner", {})
        deadlines.append(context.deadline)

    async def main() -> list[str | None]:
        stream = Agent(ScriptedProvider([ToolCall("1", "outer"), "done"]), [inner, outer]).stream("?")
        return [event.message async for event in stream if isinstance(event, ToolProgress)]

    assert asyncio.run(main()) == ["outer"]
    assert deadlines[0] == deadlines[1] is not None


def test_note_of_a_refused_nested_call_does_not_blame_the_tool_choice() -> None:
    notes: list[Any] = []

    async def outer(context: RunContext[None]) -> None:
        notes.append((await context.call_tool("write", {})).notes)

    def write() -> None: ...

    Agent(ScriptedProvider([ToolCall("1", "outer"), "done"]), tools=[outer, write]).run_sync("?")
    assert [[*note] for note in notes] == [["forbidden"]]


def test_tool_cannot_call_tools_that_may_write() -> None:
    shop = Shop()
    script = [ToolCall("1", "lookup", {"name": "pay"}), "done"]
    [run] = Agent(ScriptedProvider(script), [lookup, *shop.tools]).run_sync("?").tool_calls
    assert "declared read-only" in run.value[0]
    assert shop.paid == []


def test_nested_call_is_refused_when_the_time_is_over_although_calls_are_left() -> None:
    limits = LimitTracker(Limits(max_seconds=1, max_tool_calls=5), monotonic() - 2)
    refusal = limits.refuse_nested(RunState.of(History()), ToolCall("1", "look"))
    assert refusal is not None
    assert refusal.limit == "max_seconds"


def test_tool_that_calls_itself_is_refused_at_the_maximum_depth() -> None:
    @tool(read_only=True)
    async def deeper(context: RunContext[None]) -> str:
        """Go deeper."""
        return str((await context.call_tool("deeper", {})).value)

    [run] = Agent(ScriptedProvider([ToolCall("1", "deeper"), "done"]), [deeper]).run_sync("?").tool_calls
    assert "nested 20 deep" in run.value


def test_waiting_in_an_async_tool_is_an_error_and_no_deadlock() -> None:
    @tool
    async def wrong(context: RunContext[None]) -> Any:
        """Wait in the event loop."""
        return context.run_blocking(asyncio.sleep(0))

    [run] = Agent(ScriptedProvider([ToolCall("1", "wrong"), "done"]), [wrong]).run_sync("?").tool_calls
    assert "use await" in run.value


def test_progress_reaches_the_reader_from_tasks_and_threads() -> None:
    @tool
    async def task(context: RunContext[None]) -> None:
        """Report from a task."""
        context.progress(0.5, "half")

    @tool
    def thread(context: RunContext[None]) -> None:
        """Report from a thread."""
        context.progress(0.25)

    async def main() -> None:
        script = [[ToolCall("1", "task"), ToolCall("2", "thread")], "done"]
        events = [event async for event in Agent(ScriptedProvider(script), [task, thread]).stream("?")]
        reports = {event.call_id: event for event in events if isinstance(event, ToolProgress)}
        assert reports["1"] == ToolProgress(1, "1", 0, 0.5, "half")
        assert reports["2"] == ToolProgress(1, "2", 1, 0.25)

    asyncio.run(main())


class Counted(ToolSource):
    closed = 0

    async def list_tools(self) -> ToolListing:
        return ToolListing((ToolSpec("far"),))

    async def call(self, call: ToolCall, context: RunContext[Any]) -> ToolResult:
        return ToolResult(call.id, call.name, 1)

    async def aclose(self) -> None:
        self.closed += 1


class Listing(ToolSource):
    """A source that keeps its listing, or builds an equal one each time."""

    def __init__(self, *, keeps: bool) -> None:
        self.listings = 0
        self._kept = self._build() if keeps else None

    def _build(self) -> ToolListing:
        parameters = {"type": "object", "properties": {"n": {"type": "integer"}}}
        return ToolListing(tuple(ToolSpec(f"tool-{n}", parameters=dict(parameters)) for n in range(20)))

    async def list_tools(self) -> ToolListing:
        self.listings += 1
        return self._kept or self._build()

    async def call(self, call: ToolCall, context: RunContext[Any]) -> ToolResult:
        return ToolResult(call.id, call.name, 1)


def test_source_that_builds_its_list_anew_costs_no_more_than_one_that_keeps_it() -> None:
    def listings_of_runs(source: Listing) -> int:
        provider = ScriptedProvider(["a", "b", "c", "d"], profile=ModelProfile("Gemini", GEMINI_JSON_SCHEMA))
        agent = Agent(provider, source)
        for _ in range(2):
            agent.run_sync("?")
        for _ in range(2):
            agent.run_sync("?", system="Be brief.")
        first, second, *others = [request.config for request in provider.requests]
        assert first is second  # nothing was adapted or encoded again
        for config in others:
            assert all(ours is theirs for ours, theirs in zip(config.tools, first.tools, strict=True))
        return source.listings

    assert listings_of_runs(Listing(keeps=False)) == listings_of_runs(Listing(keeps=True))


def test_options_and_tools_know_a_renamed_tool_by_the_name_of_the_caller() -> None:
    @tool(name="look at", read_only=True)
    def look(n: int) -> str:
        """Look."""
        return "seen"

    @tool(read_only=True)
    async def outer(context: RunContext[None]) -> Any:
        """Call the renamed tool."""
        return (await context.call_tool("look at", {"n": 2})).value

    profile = ModelProfile("Gemini", GEMINI_JSON_SCHEMA)
    provider = ScriptedProvider([ToolCall("1", "look_at", {"n": 1}), ToolCall("2", "outer"), "done"], profile=profile)
    choice = {"type": "required", "tool": "look at"}
    limits = Limits(max_calls_per_tool={"look at": 1})
    result = Agent(provider, [look, outer], tool_choice=choice, limits=limits).run_sync("?")
    assert [spec.name for spec in provider.requests[0].config.tools] == ["look_at", "outer"]
    assert provider.requests[0].config.tool_choice == ToolChoice("required", ("look_at",))
    assert [run.value for run in result.tool_calls] == [
        "seen",
        "look_at was not run: Maximum calls of look_at exceeded (1)",
    ]


def test_derived_agent_closes_only_what_it_added() -> None:
    async def main() -> None:
        source, added = Counted(), Counted()
        agent = Agent(ScriptedProvider([]), [source])
        await agent.replace(tools=["far"]).aclose()
        await agent.replace(system="x").aclose()
        assert source.closed == 0
        await agent.replace(tools=[added]).aclose()
        assert (source.closed, added.closed) == (0, 1)
        await agent.aclose()
        assert source.closed == 1

    asyncio.run(main())


def test_agent_is_closed_by_plain_code() -> None:
    source = Counted()
    with Agent(ScriptedProvider(["a"]), [source]) as agent:
        assert agent.run_sync("?").text == "a"
    assert source.closed == 1


def test_result_of_a_closed_stream_says_so() -> None:
    async def main() -> None:
        stream = Agent(ScriptedProvider(["a"])).stream("?")
        async for _ in stream:
            break
        await stream.aclose()
        with pytest.raises(ConfigError, match="was closed before its end"):
            _ = stream.result

    asyncio.run(main())
