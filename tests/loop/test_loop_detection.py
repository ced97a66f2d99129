"""Loop detection: repeated calls with the same result, and calls whose result may have changed."""

import itertools
from collections import Counter
from typing import Any

import pytest

from midspan import Agent, Limits, tool
from midspan._loop.policies import LIMIT_MESSAGE
from midspan._types.context import RunContext
from midspan._types.exchange import ModelRequest
from midspan._types.parts import ToolCall, ToolResult
from midspan._types.specs import Effects, ToolChoice, ToolSpec
from midspan.errors import NoAnswerError, ToolError
from midspan.testing import ScriptedProvider
from midspan.tools.source import ToolListing, ToolSource

DECLARED = pytest.mark.parametrize("declared", [True, False], ids=["declared", "not declared"])


class Notebook:
    """Two tools, and how often each was really run."""

    def __init__(self, *, declared: bool) -> None:
        self.notes = {"a": 0}
        self.runs: Counter[str] = Counter()
        reads, writes = ("note:{name}", "note:{name}") if declared else ((), ())
        self.tools = [tool(reads=reads)(self.look), tool(writes=writes)(self.put)]

    def look(self, name: str) -> int:
        """What a note says."""
        self.runs["look"] += 1
        return self.notes[name]

    def put(self, name: str, value: int) -> str:
        """Write a note."""
        self.runs["put"] += 1
        self.notes[name] = value
        return "done"


def look(name: str = "a") -> ToolCall:
    return ToolCall("", "look", {"name": name})


def put(value: int, name: str = "a") -> ToolCall:
    return ToolCall("", "put", {"name": name, "value": value})


def script(*calls: ToolCall) -> ScriptedProvider:
    return ScriptedProvider([*(ToolCall(str(n), one.name, one.arguments) for n, one in enumerate(calls)), "done"])


def values(notebook: Notebook, *calls: ToolCall) -> list[Any]:
    result = Agent(script(*calls), tools=notebook.tools, limits=Limits(max_turns=None)).run_sync("go")
    return [run.value for run in result.tool_calls]


@DECLARED
def test_call_after_a_write_runs_again(declared: bool) -> None:
    notebook = Notebook(declared=declared)
    assert values(notebook, look(), look(), put(7), look())[-1] == 7


@DECLARED
def test_same_result_after_each_change_is_not_a_loop(declared: bool) -> None:
    notebook = Notebook(declared=declared)
    calls = itertools.chain.from_iterable((put(n, "other"), look()) for n in range(9))
    assert values(notebook, *calls)[1::2] == [0] * 9
    assert notebook.runs["look"] == 9


def test_alternating_writes_are_not_a_loop() -> None:
    notebook = Notebook(declared=True)
    values(notebook, *(put(n % 2) for n in range(7)))
    assert (notebook.runs["put"], notebook.notes["a"]) == (7, 0)


@DECLARED
def test_two_alternating_read_only_calls_are_a_loop(declared: bool) -> None:
    notebook = Notebook(declared=declared)
    forever = itertools.cycle([look(), put(1)])

    def model(request: ModelRequest) -> Any:
        choice = request.config.tool_choice
        return "stopped" if choice is not None and choice.mode == "none" else next(forever)

    limits = Limits(max_turns=None)
    assert Agent(ScriptedProvider(model), tools=notebook.tools, limits=limits).run_sync("go").text == "stopped"
    assert max(notebook.runs.values()) <= 8


def test_read_only_calls_do_not_reset_the_count_of_others() -> None:
    notebook = Notebook(declared=True)
    notebook.notes |= {str(n): n for n in range(7)}
    values(notebook, *itertools.chain.from_iterable((look(), look(str(n))) for n in range(7)))
    assert notebook.runs["look"] == 5 + 6  # after the second refusal the tools are withdrawn


def test_integers_written_as_floats_are_the_same_call() -> None:
    runs: list[int] = []

    def show(page: int) -> str:
        """Show a page."""
        runs.append(page)
        return "empty"

    pages = [{"page": 1}, {"page": 1.0}] * 4
    provider = ScriptedProvider([*(ToolCall(str(n), "show", page) for n, page in enumerate(pages)), "done"])
    result = Agent(provider, tools=[show]).run_sync("go")
    assert runs == [1] * 5
    assert result.text == "done"


@DECLARED
@pytest.mark.parametrize("order", ["before", "after"])
def test_read_in_the_same_turn_as_a_write_runs(declared: bool, order: str) -> None:
    notebook = Notebook(declared=declared)
    both = [put(7), look()] if order == "before" else [look(), put(7)]
    together = [ToolCall(str(n), one.name, one.arguments) for n, one in enumerate(both)]
    Agent(ScriptedProvider([look(), look(), together, "done"]), tools=notebook.tools).run_sync("go")
    assert notebook.runs["look"] == 3


def test_undeclared_tool_with_a_new_result_resets_the_count() -> None:
    notebook = Notebook(declared=False)
    assert values(notebook, put(1), put(2), look(), look(), put(1), look())[-1] == 1


def test_changed_status_resets_the_count() -> None:
    shown = iter(["running", "done"])
    fetched: list[str] = []

    @tool(reads="job")
    def status() -> str:
        """How it stands."""
        return next(shown)

    @tool(reads="job")
    def fetch() -> str:
        """What it gave."""
        fetched.append("not yet")
        return "not yet"

    calls = [ToolCall(str(n), name, {}) for n, name in enumerate(["fetch", "status", "fetch", "status", "fetch"])]
    Agent(ScriptedProvider([*calls, "done"]), tools=[status, fetch]).run_sync("go")
    assert len(fetched) == 3


def test_call_is_repeated_while_another_result_changes() -> None:
    lines = itertools.count()
    pressed: list[str] = []

    @tool
    def press(key: str) -> str:
        """Press a key."""
        pressed.append(key)
        return "ok"

    @tool(reads="screen")
    def screen() -> int:
        """What is seen."""
        return next(lines)

    calls = [ToolCall(str(n), *one) for n, one in enumerate([("press", {"key": "down"}), ("screen", {})] * 9)]
    agent = Agent(ScriptedProvider([*calls, "done"]), tools=[press, screen], limits=Limits(max_turns=None))
    assert agent.run_sync("go").text == "done"
    assert pressed == ["down"] * 9


class Broken(ToolSource):
    """A source that raises."""

    calls = 0

    async def list_tools(self) -> ToolListing:
        return ToolListing((ToolSpec("edit", effects=Effects(writes=("file",))),))

    async def call(self, call: ToolCall, context: Any = None) -> Any:
        self.calls += 1
        raise OSError("old text not found")


def failing(old: str) -> str:
    """Change a text."""
    raise ToolError(f"{old} not found")


@pytest.mark.parametrize(
    ("source", "calls"),
    [
        (tool(name="edit", writes="file")(failing), [{"old": "a"}, {"old": "b"}]),
        (tool(name="edit", writes="file")(failing), [{"wrong": "a"}, {"wrong": "b"}]),
        (tool(name="edit")(failing), [{"old": "a"}]),
        (Broken(), [{"old": "a"}, {"old": "b"}]),
    ],
    ids=["fails", "wrong arguments", "not declared", "raises"],
)
def test_repeated_identical_errors_are_a_loop(source: Any, calls: list[dict[str, str]]) -> None:
    forever = itertools.cycle(calls)

    def model(request: ModelRequest) -> Any:
        choice = request.config.tool_choice
        return "stopped" if choice is not None and choice.mode == "none" else ToolCall("1", "edit", next(forever))

    agent = Agent(ScriptedProvider(model), tools=[source], limits=Limits(max_turns=None, max_seconds=20))
    result = agent.run_sync("go")
    assert (result.text, result.turns <= 14) == ("stopped", True)


@pytest.mark.parametrize(
    ("effects", "changes"),
    [
        (None, None),
        (Effects(idempotent=True), None),
        (Effects(reads=("a",)), False),
        (Effects(writes=("a",)), True),
        (Effects(reads=("a",), writes=("b",), idempotent=True), True),
    ],
)
def test_spec_says_whether_a_tool_changes_anything(effects: Effects | None, changes: bool | None) -> None:
    assert ToolSpec("f", effects=effects).changes is changes


@pytest.mark.parametrize("said", ["words at last", ToolCall("end", "submit", {"n": 7})])
def test_final_call_is_requested_after_a_loop_with_calls_only(said: Any) -> None:
    @tool(final=True)
    def submit(n: int) -> int:
        """The end."""
        return n

    def circles(request: ModelRequest) -> Any:
        return said if request.config.tool_choice == ToolChoice("required", ("submit",)) else look()

    answer = "7" if isinstance(said, ToolCall) else said  # words are better than nothing then
    tools = [*Notebook(declared=True).tools, submit]
    assert Agent(ScriptedProvider(circles), tools=tools, calls_only=True).run_sync("go").text == answer
    limits = Limits(max_turns=2, on_limit="answer")
    result = Agent(ScriptedProvider(circles), tools=tools, calls_only=True, limits=limits).run_sync("go")
    assert (result.text, result.limit) == (answer, "max_turns")
    with pytest.raises(NoAnswerError, match="answered with text"):
        Agent(ScriptedProvider(lambda _: "words"), tools=tools, calls_only=True).run_sync("go")


def test_answer_is_requested_after_a_loop_if_no_tool_is_final() -> None:
    def circles(request: ModelRequest) -> Any:
        return "words at last" if request.config.tool_choice == ToolChoice("none") else look()

    tools = Notebook(declared=True).tools
    assert Agent(ScriptedProvider(circles), tools=tools, calls_only=True).run_sync("go").text == "words at last"


def poll(*results: str, count: int, **limits: Any) -> tuple[list[str], list[Any]]:
    """Make the same call again and again; return what the tool really returned, and the results that the model got."""
    returned: list[str] = []
    answers = itertools.chain(results, itertools.repeat(results[-1]))

    @tool
    def status(id: int) -> str:
        """How a job stands."""
        returned.append(next(answers))
        return returned[-1]

    provider = ScriptedProvider([*(ToolCall(str(n), "status", {"id": 7}) for n in range(count)), "done"])
    agent = Agent(provider, tools=[status], limits=Limits(max_turns=None, **limits))
    return returned, [run.result for run in agent.run_sync("go").tool_calls]


def test_repeated_call_runs_five_times_with_a_hint_from_the_third_on_and_is_then_refused() -> None:
    returned, results = poll("pending", count=6)
    assert returned == ["pending"] * 5
    assert [result.value for result in results[:5]] == ["pending"] * 5
    assert [bool(result.hint) for result in results] == [False, False, True, True, True, False]
    assert "3 times in a row" in results[2].hint
    assert (results[5].is_error, "was not run again" in results[5].value) == (True, True)


def test_different_result_starts_the_count_anew() -> None:
    returned, results = poll(*["pending"] * 4, "done", count=9)
    assert returned == ["pending"] * 4 + ["done"] * 5
    assert not any(result.is_error for result in results)


def test_repeated_writes_are_executed() -> None:
    basket: list[str] = []

    @tool(writes="basket")
    def add_item(name: str) -> str:
        """Put an item into the basket."""
        basket.append(name)
        return "added"

    provider = ScriptedProvider([*(ToolCall(str(n), "add_item", {"name": "apple"}) for n in range(4)), "done"])
    Agent(provider, tools=[add_item]).run_sync("Four apples, please.")
    assert basket == ["apple"] * 4


def test_another_maximum_and_none_are_honoured() -> None:
    assert len(poll("pending", count=4, max_repeats=1)[0]) == 1
    assert len(poll("pending", count=30, max_repeats=None)[0]) == 30


def test_run_whose_tools_were_withdrawn_names_the_limit() -> None:
    polls = [ToolCall(str(n), "status", {"id": 7}) for n in range(7)]
    result = Agent(
        ScriptedProvider([*polls, "still pending"]), tools=[tool(lambda id: "pending", name="status")]
    ).run_sync("go")
    assert (result.text, result.limit) == ("still pending", "max_repeats")


def test_limit_after_loop_detection_ends_with_its_message() -> None:
    provider = ScriptedProvider(lambda request: ToolCall(str(len(request.history)), "status", {"id": 7}))
    limits = Limits(max_turns=8, on_limit="message")
    result = Agent(provider, tools=[tool(lambda id: "pending", name="status")], limits=limits).run_sync("go")
    assert (result.text, result.limit) == (LIMIT_MESSAGE, "max_turns")


def test_refused_call_beside_one_that_runs_does_not_withdraw_the_tools() -> None:
    notebook = Notebook(declared=True)
    turns = [
        [ToolCall(f"a{n}", "look", {"name": "a"}), ToolCall(f"b{n}", "put", {"name": "b", "value": 1})]
        for n in range(3)
    ]
    polls = [ToolCall(str(n), "look", {"name": "a"}) for n in range(6)]
    provider = ScriptedProvider([*polls, *turns, "done"])
    result = Agent(provider, tools=notebook.tools, limits=Limits(max_turns=None)).run_sync("go")
    assert (result.limit, notebook.runs["put"]) == (None, 3)


def test_tools_are_not_withdrawn_if_a_change_came_between_two_refused_calls() -> None:
    notebook = Notebook(declared=True)
    result = Agent(
        script(*[look()] * 6, put(1), *[look()] * 6), tools=notebook.tools, limits=Limits(max_turns=None)
    ).run_sync("go")
    assert (result.limit, result.text) == (None, "done")
    assert notebook.runs["look"] == 10


def test_model_without_tools_that_repeats_an_unknown_call_is_given_up() -> None:
    provider = ScriptedProvider(lambda request: ToolCall(str(len(request.history)), "nope", {}))
    with pytest.raises(NoAnswerError, match="only made calls that were refused"):
        Agent(provider, limits=Limits(max_turns=None)).run_sync("go")


def test_calls_that_were_refused_for_other_reasons_do_not_start_the_count_anew() -> None:
    notebook = Notebook(declared=True)

    class Guarded(ToolSource):
        async def list_tools(self) -> ToolListing:
            return ToolListing((ToolSpec("wipe", needs_approval=True),))

        async def call(self, call: ToolCall, context: RunContext[Any]) -> ToolResult:
            raise AssertionError("it must not run")

    wiping = [ToolCall("", "wipe", {"number": number}) for number in range(6)]
    provider = script(*itertools.chain.from_iterable(zip([look()] * 6, wiping, strict=True)))
    Agent(provider, tools=[*notebook.tools, Guarded()], limits=Limits(max_turns=None)).run_sync("go")
    assert notebook.runs["look"] == 5
