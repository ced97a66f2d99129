"""Promises about tools and runs that span several layers, shown with scripted models."""

import asyncio
import gc
import threading
import time
import weakref
from typing import Any

import pytest

from midspan import Agent, BackgroundRuns, Chat, Limits, RunContext, Toolbox
from midspan.compat import ToolRegistry, new_function_declaration
from midspan.errors import ConfigError, UnknownSessionError
from midspan.messages import Message, Text, ToolCall
from midspan.testing import ScriptedProvider
from midspan.tools import tool_from_schema
from tests.bounds import BOUND


def add(first_number: int, second_number: int = 0) -> dict[str, int]:
    """Add two numbers."""
    return {"the_sum": first_number + second_number}


@pytest.mark.requirement("S4-07", "S3-09")
def test_registered_functions_run_at_the_same_time() -> None:
    tools, both_run = ToolRegistry(), threading.Barrier(2)
    for name in ("left", "right"):
        tools.register(new_function_declaration(name, "Waits for the other."), lambda _: both_run.wait(BOUND) >= 0)
    results = tools.execute_calls([ToolCall("1", "left"), ToolCall("2", "right")])
    assert [(result.id, result.value) for result in results] == [("1", True), ("2", True)]


@pytest.mark.requirement("S4-07", "S3-16")
def test_a_function_has_thirty_seconds() -> None:
    deadlines: list[float | None] = []

    def look(context: RunContext[Any]) -> None:
        """Look."""
        deadlines.append(context.deadline)

    start = time.monotonic()
    Agent(ScriptedProvider([ToolCall("1", "look"), "Done."]), [look]).run_sync("Look.")
    [deadline] = deadlines
    assert deadline is not None
    assert start + 30 <= deadline <= time.monotonic() + 30


@pytest.mark.requirement("S4-08")
@pytest.mark.parametrize(
    "wrong",
    [
        {"parameters": {"type": "objekt"}},
        {"parameters": {"properties": {"a": {"anyOf": [{"type": "x"}]}}}},
        {"response": {"type": "objekt"}},
        {"parameters_json_schema": {"type": "objekt"}},
        {"description": "\n\t"},
    ],
)
def test_a_declaration_that_an_api_would_reject_is_an_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        new_function_declaration(**{"name": "add", "description": "Adds.", **wrong})
    assert new_function_declaration("a" * 64, "Adds.", {"type": "OBJECT"}).name == "a" * 64


class Payload:
    """Something large that a caller passes to a run."""


@pytest.mark.requirement("S4-16")
def test_what_a_run_used_is_freed_when_the_run_has_ended() -> None:
    async def main() -> None:
        model = ScriptedProvider(lambda _: "Done.")
        async with BackgroundRuns(Agent(model)) as runs, asyncio.timeout(BOUND):
            payload = Payload()
            reference = weakref.ref(payload)
            id = runs.start("go", context=payload)
            del payload
            assert [event.text async for _, event in runs.subscribe(id, view="final")] == ["Done."]
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            await asyncio.gather(*tasks, return_exceptions=True)  # until the run has ended
            del tasks
            await asyncio.sleep(0)  # until the callbacks of its tasks were called
            model.requests.clear()
            gc.collect()
            assert reference() is None
            assert (await runs.status(id)).is_over, "it can still be read"

    asyncio.run(main())


@pytest.mark.requirement("S4-16")
def test_a_run_leaves_no_reference_cycles() -> None:
    payload = Payload()
    reference = weakref.ref(payload)
    agent = Agent(ScriptedProvider([ToolCall("1", "add", {"first_number": 1}), "1"]), [add])

    async def main() -> None:
        nonlocal payload
        result = await agent.run("1 + 0?", context=payload)
        assert result.text == "1"
        del payload, result

    gc.collect()
    gc.disable()
    try:
        asyncio.run(main())
        assert reference() is None
    finally:
        gc.enable()


@pytest.mark.requirement("S3-04", "S3-03")
@pytest.mark.parametrize(
    ("keywords", "wrong", "right"),
    [
        ({"type": "string", "minLength": 2}, "a", "ab"),
        ({"type": "string", "maxLength": 2}, "abc", "ab"),
        ({"type": "string", "pattern": "^[A-Z]+$"}, "ab", "AB"),
        ({"enum": ["small", "large"]}, "medium", "small"),
        ({"type": "array", "minItems": 1}, [], [1]),
        ({"type": "array", "uniqueItems": True}, [1, 1], [1, 2]),
        ({"type": "object", "properties": {"a": {}}, "additionalProperties": False}, {"b": 1}, {"a": 1}),
    ],
)
def test_a_tool_runs_only_with_arguments_that_match_every_keyword(keywords: Any, wrong: Any, right: Any) -> None:
    calls: list[Any] = []
    schema = {"type": "object", "properties": {"value": keywords}, "required": ["value"]}
    order = tool_from_schema("order", "Order.", schema, lambda arguments: calls.append(arguments["value"]))
    script = [[ToolCall("1", "order", {"value": wrong}), ToolCall("2", "order", {"value": right})], "Done."]
    rejected, executed = Agent(ScriptedProvider(script), [order]).run_sync("Order it.").tool_calls
    assert rejected.is_error
    assert str(rejected.value).startswith("invalid parameters: value")
    assert not executed.is_error
    assert calls == [right]


@pytest.mark.requirement("S0-16", "S0-12")
def test_a_session_that_was_never_opened_is_an_error() -> None:
    box = Toolbox()
    box.register(add, session="user_123")
    assert [spec.name for spec in box.list_tools("user_123")] == ["add"]
    for use in (box.list_tools, box.source, box.tools):
        with pytest.raises(UnknownSessionError, match="user_456"):
            use("user_456")


@pytest.mark.requirement("S3-16")
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "thread"])
def test_a_function_sees_that_its_run_was_cancelled(is_async: bool) -> None:
    contexts: list[RunContext[Any]] = []
    started, seen = threading.Event(), threading.Event()

    async def wait_in_loop(context: RunContext[Any]) -> None:
        """Wait."""
        contexts.append(context)
        started.set()
        await asyncio.Event().wait()

    def wait_in_thread(context: RunContext[Any]) -> None:
        """Wait."""
        contexts.append(context)
        started.set()
        while not context.cancelled:
            seen.wait(0.01)
        seen.set()

    async def main() -> None:
        function = wait_in_loop if is_async else wait_in_thread
        model = ScriptedProvider([ToolCall("1", function.__name__)])
        async with BackgroundRuns(Agent(model, [function])) as runs, asyncio.timeout(BOUND):
            id = runs.start("Wait.")
            await asyncio.to_thread(started.wait, BOUND)
            assert not contexts[0].cancelled
            await runs.cancel(id)

    asyncio.run(main())
    assert contexts[0].cancelled
    assert is_async or seen.wait(BOUND)


@pytest.mark.requirement("S4-05")
def test_a_turn_of_a_chat_has_the_role_it_was_added_with() -> None:
    chat = Chat(Agent(ScriptedProvider([])))
    for role, expected in (("assistant", "model"), ("model", "model"), ("user", "user"), ("tool", "user")):
        for content in ("Hello", Message("user", (Text("Hello"),))):
            assert chat.add_turn(role, content).messages[0] == Message(expected, (Text("Hello"),))
    assert len(chat.messages) == 0


@pytest.mark.requirement("S1-21")
def test_an_object_is_passed_as_json_text_if_a_string_is_wanted() -> None:
    def save(text: str, note: str | None = None) -> list[str | None]:
        """Save a text."""
        return [text, note]

    call = ToolCall("1", "save", {"text": {"a": [1]}, "note": {"b": None}})
    [run] = Agent(ScriptedProvider([call, "Saved."]), [save]).run_sync("Save it.").tool_calls
    assert (run.is_error, run.value) == (False, ['{"a":[1]}', '{"b":null}'])


@pytest.mark.requirement("S2-18")
def test_wrong_arguments_are_reported_to_the_model_before_the_tool_runs() -> None:
    calls: list[int] = []

    def take(count: int) -> int:
        """Take some."""
        calls.append(count)
        return count

    model = ScriptedProvider([ToolCall("1", "take", {"count": "many"}), ToolCall("2", "take", {"count": 2}), "Done."])
    assert Agent(model, [take]).run_sync("Take two.").text == "Done."
    assert calls == [2]
    [error] = model.requests[1].history[-1].results
    assert error.is_error
    assert error.value == 'invalid parameters: count: expected integer, got string "many"'


@pytest.mark.requirement("S2-19")
@pytest.mark.parametrize("streaming", [False, True])
def test_a_run_that_goes_too_long_can_end_with_a_message(streaming: bool) -> None:
    async def main() -> str:
        model = ScriptedProvider(lambda request: ToolCall(str(len(request.history)), "add", {"first_number": 1}))
        agent = Agent(model, [add], limits=Limits(max_turns=2, max_repeats=None, on_limit="message"))
        if not streaming:
            return (await agent.run("Add for ever.")).text
        stream = agent.stream("Add for ever.")
        async for _ in stream:
            pass
        return stream.result.text

    text = "Maximum tool execution iterations reached. Please try breaking down your request."
    assert asyncio.run(main()) == text
