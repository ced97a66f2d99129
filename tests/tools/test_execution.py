import asyncio
import datetime
import itertools
import logging
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextvars import ContextVar
from typing import Any

import msgspec
import pytest

from midspan._types.context import RunContext
from midspan._types.parts import NOT_RUN, Blob, Resource, Text, ToolCall, ToolResult
from midspan.errors import ArgumentError, ConfigError, ToolError
from midspan.tools.declared import tool_from_schema
from midspan.tools.execution import execute, execute_here, run_call
from midspan.tools.function import tool
from midspan.tools.loop_thread import LoopThread
from midspan.tools.tasks import _depth
from tests.bounds import BOUND

PNG = b"\x89PNG\r\n\x1a\n" + b"\x00" * 20


def use(function: Any, context: Any = None, /, options: dict[str, Any] | None = None, **arguments: Any) -> ToolResult:
    made = tool(**(options or {}))(function)
    return asyncio.run(execute(made, ToolCall("7", made.name, arguments), RunContext(context)))


def told(result: ToolResult) -> str:
    assert result.is_error
    assert isinstance(result.value, str)
    return result.value


@pytest.mark.requirement("S3-07")
def test_all_wrong_arguments_are_returned_to_the_model_in_one_error() -> None:
    def book(city: str, nights: int) -> str:
        raise AssertionError("never called")

    words = told(use(book, nights="many", hotel="x"))
    assert words.startswith("invalid parameters:\n- ")
    assert "city" in words
    assert "nights" in words
    assert "hotel" in words


@pytest.mark.requirement("S1-09")
def test_arguments_are_coerced_to_the_schema_with_a_note() -> None:
    def book(n: int, tags: list[str], ok: bool) -> list[Any]:
        return [n, tags, ok]

    result = use(book, n="5", tags='["a"]', ok="true")
    assert result.value == [5, ["a"], True]
    assert len(result.notes) == 3
    assert repr(use(book, n=5.0, tags=["a"], ok=True).value) == "[5, ['a'], True]"


@pytest.mark.requirement("S3-07")
def test_exception_is_returned_without_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> str:
        raise KeyError("secret place")

    with caplog.at_level(logging.WARNING, "midspan.tools"):
        assert told(use(fail)) == "fail failed: KeyError: 'secret place'"
    assert "Traceback" in caplog.text


def test_tool_error_is_returned_with_its_own_message(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> str:
        raise ToolError("the account is closed; ask for another")

    assert told(use(fail)) == "the account is closed; ask for another"
    assert not caplog.records


@pytest.mark.parametrize(
    "error",
    [SystemExit(3), StopIteration("x"), ValueError(), RecursionError("deep"), TimeoutError("t"), GeneratorExit("g")],
)
@pytest.mark.parametrize("timeout", [None, 5])
def test_exceptions_of_a_tool_become_error_results(error: BaseException, timeout: float | None) -> None:
    def fail() -> str:
        raise error

    async def fail_too() -> str:
        raise error

    async def fail_later() -> str:
        await asyncio.sleep(0)
        raise error

    for function in (fail, fail_too, fail_later):
        if isinstance(error, SystemExit):
            with pytest.raises(SystemExit):
                use(function, options={"timeout": timeout})
        else:
            assert type(error).__name__ in told(use(function, options={"timeout": timeout}))


def test_function_whose_generator_cannot_be_read_is_reported_as_run() -> None:
    @tool
    async def charge() -> Any:
        return iter([1])

    async def main() -> ToolResult:
        _depth.set(1_000)  # so deep in threads that no other is started
        return await execute(charge, ToolCall("1", "charge"))

    result = asyncio.run(main())
    assert result.value.startswith("charge ran, but its result could not be read: functions in threads are nested")
    assert result.notes == ()


def test_closing_a_call_cancels_its_tool() -> None:
    seen: list[str] = []

    @tool
    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            seen.append("stopped")

    async def main(steps: int) -> None:
        running = execute(wait, ToolCall("1", "wait"))
        running.send(None)
        for _ in range(steps):
            await asyncio.sleep(0)
        running.close()
        for _ in range(3):
            await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1

    for steps in range(4):
        asyncio.run(main(steps))
        assert seen == ["stopped"] or (not seen and not steps)  # Python 3.11 starts the tool in the second step
        seen.clear()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_keyboard_interrupt_and_system_exit_of_a_tool_are_raised(kind: type[BaseException]) -> None:
    async def fail_at_once() -> str:
        raise kind

    async def fail_later() -> str:
        await asyncio.sleep(0)
        raise kind

    def fail_in_a_thread() -> str:
        raise kind

    for function in (fail_at_once, fail_later, fail_in_a_thread):
        with pytest.raises(kind):
            use(function)


@pytest.mark.parametrize("error", [GeneratorExit(), asyncio.CancelledError()])
def test_base_exception_raised_in_a_thread_becomes_an_error_result(error: BaseException) -> None:
    def fail() -> str:
        raise error

    assert type(error).__name__ in told(use(fail))


def test_custom_base_exception_becomes_an_error_result() -> None:
    class Odd(BaseException):
        pass

    async def fail() -> str:
        raise Odd("x")

    assert told(use(fail)) == "fail failed: Odd: x"


def test_exception_group_is_described_by_its_members() -> None:
    async def fail() -> str:
        raise ExceptionGroup("group", [ValueError("a"), KeyError("b")])

    assert told(use(fail)) == "fail failed: ValueError: a; KeyError: 'b'"


@pytest.mark.parametrize("timeout", [None, 5])
def test_timeout_inside_a_tool_is_its_own_error(timeout: float | None) -> None:
    async def fail() -> str:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(60)
        return "never"

    assert told(use(fail, options={"timeout": timeout})) == "fail failed: TimeoutError"


def test_error_messages_are_truncated_and_encodable() -> None:
    def fail(long: bool) -> str:
        raise ValueError("x" * 5_000_000 if long else "no file '\udcff'")

    assert len(told(use(fail, long=True))) < 5_000
    assert msgspec.json.encode(use(fail, long=False))

    def give() -> int:
        return {"error": "x" * 1_000_000}  # type: ignore[return-value]

    assert len(told(use(give))) < 201_000


def test_exception_whose_str_fails_is_named_by_its_type() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def fail() -> None:
        raise Mute

    assert told(use(fail)) == "fail failed: Mute"


def test_cancelled_error_raised_by_a_tool_is_its_failure() -> None:
    async def give_up() -> None:
        raise asyncio.CancelledError

    assert "CancelledError" in told(use(give_up))


def test_cancelling_the_call_cancels_the_tool() -> None:
    seen: list[str] = []

    @tool
    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def main() -> None:
        task = asyncio.create_task(execute(wait, ToolCall("1", "wait")))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert seen == ["cancelled"]


def test_plain_function_can_see_that_its_call_was_cancelled() -> None:
    started, saw_it = threading.Event(), threading.Event()

    @tool
    def export(context: RunContext[None]) -> None:
        started.set()
        while not context.cancelled:
            time.sleep(0.001)
        saw_it.set()

    async def main() -> None:
        task = asyncio.create_task(execute(export, ToolCall("1", "export"), RunContext()))
        await asyncio.to_thread(started.wait, BOUND)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert saw_it.wait(BOUND)


def test_context_of_a_call_is_told_what_the_tool_or_its_source_raised() -> None:
    errors: list[BaseException] = []

    @tool
    def fail(error: str) -> None:
        raise ToolError("for the model") if error == "tool" else ValueError(error)

    async def broken(call: ToolCall, context: RunContext[Any]) -> ToolResult:
        raise KeyError(call.id)

    async def main() -> None:
        context: RunContext[None] = RunContext(on_error=errors.append)
        for error in ("tool", "value"):
            await execute(fail, ToolCall("1", "fail", {"error": error}), context)
        await run_call(broken, ToolCall("2", "fail"), context)

    asyncio.run(main())
    assert [repr(error) for error in errors] == ["ValueError('value')", "KeyError('2')"]


def test_plain_function_can_run_in_the_current_thread_as_in_worker_processes() -> None:
    thread = LoopThread("test")

    @tool
    def work(kind: str) -> Any:
        if kind == "error":
            raise ValueError("no")
        return asyncio.sleep(0, [1]) if kind == "later" else threading.get_ident()

    def run(**arguments: str) -> ToolResult:
        return execute_here(work, ToolCall("1", "work", arguments), RunContext(), thread.loop())

    assert run(kind="now").value == threading.get_ident()
    assert run(kind="later").value == [1]
    assert told(run(kind="error")) == "work failed: ValueError: no"
    assert told(run()).startswith("invalid parameters: kind: is required")
    thread.close()


@pytest.mark.requirement("S3-10")
def test_tool_is_cancelled_at_its_timeout() -> None:
    async def sleep() -> None:
        await asyncio.sleep(60)

    release = threading.Event()

    def block() -> None:
        release.wait(60)

    assert told(use(sleep, options={"timeout": 0.02})) == "sleep timed out after 0.02 seconds and was cancelled"
    assert told(use(block, options={"timeout": 0.02})).endswith("; its thread was abandoned and may still be running")
    release.set()


def test_plain_function_can_see_that_it_timed_out() -> None:
    saw_it = threading.Event()

    def export(context: RunContext[None]) -> None:
        while not context.cancelled:
            time.sleep(0.001)
        saw_it.set()

    assert "its thread was abandoned" in told(use(export, options={"timeout": 0.02}))
    assert saw_it.wait(BOUND)


def test_late_result_of_a_tool_that_ignores_its_cancellation_is_discarded() -> None:
    async def stubborn(answers: bool) -> str | None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return "late" if answers else None

    for answers in (True, False):
        words = told(use(stubborn, options={"timeout": 0.02}, answers=answers))
        assert words == (
            "stubborn timed out after 0.02 seconds, ignored its cancellation and returned too late; "
            "its result was discarded"
        )


def test_tool_error_raised_on_cancellation_is_returned() -> None:
    async def careful() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise ToolError("too slow: nothing was booked") from None
        return "done"

    assert told(use(careful, options={"timeout": 0.02})) == "too slow: nothing was booked"


def test_plain_function_does_not_block_the_event_loop() -> None:
    gate = threading.Event()

    @tool
    def block() -> str:
        assert gate.wait(BOUND), "nobody else could run meanwhile"
        return threading.current_thread().name

    async def main() -> ToolResult:
        task = asyncio.create_task(execute(block, ToolCall("1", "block")))
        await asyncio.sleep(0.01)
        gate.set()
        return await task

    assert asyncio.run(main()).value == "midspan-tool"


def test_awaitable_returned_by_a_plain_function_is_awaited() -> None:
    async def later() -> int:
        return 5

    made = tool_from_schema("later", "Later.", {"type": "object"}, lambda arguments: later())
    assert asyncio.run(execute(made, ToolCall("1", "later"))).value == 5


@pytest.mark.parametrize("returned", [None, 5, ["x"], {"error": None, "items": []}])
def test_result_that_does_not_match_the_return_annotation_reaches_the_model_with_a_note(
    returned: Any, caplog: pytest.LogCaptureFixture
) -> None:
    sent: list[str] = []

    def send(to: str) -> str:
        sent.append(to)
        return returned

    result = use(send, to="ann")
    assert (sent, result.value, result.is_error) == (["ann"], returned, False)
    assert result.hint is not None
    assert result.hint.startswith("The result does not match the declared output: expected string, got ")
    assert "the result of tool send does not match its return annotation" in caplog.text


@pytest.mark.requirement("S3-03")
@pytest.mark.parametrize("returned", ["five", None, [1.0, float("nan")]])
def test_response_that_does_not_match_an_explicit_schema_is_an_error(returned: Any) -> None:
    made = tool_from_schema("count", "Counts.", {"type": "object"}, lambda _: returned, response={"type": "integer"})
    assert told(asyncio.run(execute(made, ToolCall("1", "count")))).startswith("invalid response: ")


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("hint", [Iterable[int], list[int], None])
def test_items_of_a_returned_generator_are_collected(hint: Any, is_async: bool) -> None:
    def numbers() -> Any:
        return (number for number in range(3))

    async def numbers_later() -> Any:
        return iter([0, 1, 2])

    function = numbers_later if is_async else numbers
    if hint is not None:
        function.__annotations__["return"] = hint
    result = use(function)
    assert (result.value, result.is_error, result.hint) == ([0, 1, 2], False, None)


def test_items_that_a_generator_function_yields_are_collected() -> None:
    def count(last: int) -> Iterator[int]:
        yield from range(last)

    async def tick(last: int) -> AsyncIterator[int]:
        for number in range(last):
            yield number

    for function in (count, tick):
        assert tool(function).spec.response == {"type": "array", "items": {"type": "integer"}}
        result = use(function, last=3)
        assert (result.value, result.is_error, result.hint) == ([0, 1, 2], False, None)


def test_items_of_an_async_generator_are_collected_and_it_is_closed() -> None:
    closed = threading.Event()

    async def count(last: int) -> AsyncIterator[int]:
        try:
            for number in range(last):
                yield number
        finally:
            closed.set()

    def numbers(last: int) -> Any:
        return count(last)

    assert use(numbers, last=3).value == [0, 1, 2]
    assert closed.is_set()
    closed.clear()
    endless = use(numbers, last=10**9, options={"max_result_chars": 10**6})
    assert endless.value[-2:] == [9_999, "… [cut: the first 10,000 items]"]
    assert closed.is_set()


def test_async_generator_that_the_program_still_holds_is_closed() -> None:
    closed: list[str] = []

    async def count() -> AsyncIterator[int]:
        try:
            for number in itertools.count():
                yield number
        finally:
            closed.append("yes")

    async def main() -> None:
        numbers = count()
        made = tool_from_schema("numbers", "Counts.", {"type": "object"}, lambda arguments: numbers)
        await execute(made, ToolCall("1", "numbers"))
        assert closed == ["yes"]

    asyncio.run(main())


def test_endless_generator_is_read_up_to_a_maximum() -> None:
    def numbers() -> Any:
        return itertools.count()

    result = use(numbers)
    assert result.value == [*range(10_000), "… [cut: the first 10,000 items]"]


def test_generator_of_the_maximum_length_is_read_completely() -> None:
    def numbers() -> Any:
        return iter(range(10_000))

    result = use(numbers)
    assert (result.value, result.notes) == ([*range(10_000)], ())


def test_generator_runs_within_the_timeout_of_its_tool() -> None:
    release = threading.Event()

    def numbers() -> Iterator[int]:
        release.wait(BOUND)
        yield 1

    assert "timed out after 0.02 seconds" in told(use(numbers, options={"timeout": 0.02}))
    release.set()


def test_error_raised_by_a_generator_is_the_error_of_its_tool() -> None:
    def numbers() -> Iterator[int]:
        yield 1
        raise KeyError("x")

    assert told(use(numbers)) == "numbers failed: KeyError: 'x'"


def test_call_whose_arguments_cannot_be_bound_was_not_run() -> None:
    def book(day: datetime.date) -> str:
        raise AssertionError("never called")

    def fail() -> str:
        raise ArgumentError("day", "is in the past")

    result = use(book, day="31 February")
    assert told(result).startswith("invalid parameters: day: ")
    assert NOT_RUN in result.notes
    ran = use(fail)
    assert (told(ran), ran.notes) == ("invalid parameters: day: is in the past", ())


def test_error_in_a_result_need_not_match_the_response_schema() -> None:
    made = tool_from_schema(
        "w",
        "W.",
        {"type": "object"},
        lambda arguments: {"error": "API request failed: timeout"},
        response={"type": "object", "required": ["temp_c"]},
    )
    result = asyncio.run(execute(made, ToolCall("1", "w")))
    assert (result.is_error, result.value) == (True, {"error": "API request failed: timeout"})


def test_number_with_too_many_digits_is_described_because_the_tool_has_run() -> None:
    @tool(writes="orders")
    def order() -> int:
        """Order everything."""
        return 10**5000

    result = asyncio.run(execute(order, ToolCall("1", "order")))
    assert not result.is_error
    assert "4300 digits" in result.value


def test_result_that_is_not_json_serializable_is_described() -> None:
    class Odd:
        def __repr__(self) -> str:
            return "<odd>" * 1000

    class Mute:
        def __repr__(self) -> str:
            raise RuntimeError

    advice = "is not JSON serializable; return text, numbers, lists, dicts or a dataclass"
    for odd, message in (
        (Odd(), f"an Odd {advice}. repr: <odd><odd>"),
        (Mute(), f"a Mute {advice}. repr: its repr() failed"),
        (float("nan"), "JSON has no number for nan; return None or a text instead. repr: nan"),
        ({"x": Odd()}, f"x: an Odd {advice}. repr: {{'x': <odd>"),
        ("\ud800 a", "it is not JSON serializable: UnicodeEncodeError: "),
    ):
        made = tool_from_schema("give", "Gives.", {"type": "object"}, lambda arguments, odd=odd: odd)
        result = asyncio.run(execute(made, ToolCall("1", "give")))
        assert not result.is_error
        assert result.value.startswith(message)
        assert len(result.value) < 4_100


@pytest.mark.parametrize("value", ["ü" * 500, ["x"] * 500, {"k": "v" * 500}])
def test_too_large_result_is_cut_with_a_mark(value: Any) -> None:
    def large() -> Any:
        return value

    result = use(large, options={"max_result_chars": 100})
    assert isinstance(result.value, str)
    assert "… [cut: the first 100 of " in result.value
    assert len(result.value) < 200


def test_result_of_exactly_the_maximum_size_is_not_cut() -> None:
    def large() -> str:
        return "ü" * 100

    def structured() -> list[str]:
        return ["ü" * 96]

    assert use(large, options={"max_result_chars": 100}).value == "ü" * 100
    assert use(structured, options={"max_result_chars": 100}).value == ["ü" * 96]
    assert isinstance(use(structured, options={"max_result_chars": 99}).value, str)


def test_results_have_at_most_200_000_characters_by_default() -> None:
    def text(size: int) -> str:
        return "x" * size

    assert use(text, size=200_000).value == "x" * 200_000
    assert use(text, size=200_001).value.endswith("x… [cut: the first 200,000 of 200,001 characters]")


def test_images_within_a_result_become_media_too() -> None:
    def draw() -> Any:
        return {"name": "cat", "image": PNG, "more": [Blob.of(PNG, "image/png", name="dog.png")]}

    result = use(draw)
    assert result.value == {"name": "cat", "image": "image/png", "more": ["dog.png"]}
    assert [blob.media_type for blob in result.media] == ["image/png", "image/png"]


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"%PDF-1.7", "application/pdf"),
        (b"RIFF\n\0\0\0WEBPVP8 ", "image/webp"),
        (b"RIFF\n\0\0\0WAVEfmt ", "audio/wav"),
        (b"RIFF\n\0\0\0AVI LIST", None),
        (b"plain", None),
    ],
)
def test_media_are_recognised_by_their_first_bytes(data: bytes, media_type: str | None) -> None:
    def load() -> Any:
        return data

    assert [blob.media_type for blob in use(load).media] == ([] if media_type is None else [media_type])


def test_media_are_found_up_to_four_levels_deep() -> None:
    def nested(levels: int) -> Any:
        value: Any = Blob.of(PNG, "image/png")
        for level in range(levels):
            value = [value] if level % 2 else {"inner": value}
        return value

    assert len(use(nested, levels=4).media) == 1
    assert not use(nested, levels=5).media


def test_texts_media_and_resources_of_a_function_are_content_in_their_order() -> None:
    content = (Blob.of(PNG, "image/png"), Text("a cat"), Resource("https://example.com/cat", name="cat"))

    def several() -> list[Any]:
        return list(content)

    def single() -> Resource:
        return content[2]

    assert (use(several).content, use(several).value) == (content, None)
    assert use(single).content == content[2:]


@pytest.mark.parametrize(("final", "is_final"), [(True, True), (False, False), (lambda text: text.text == "a", True)])
def test_content_can_be_the_final_result(final: Any, is_final: bool) -> None:
    def words() -> Text:
        return Text("a")

    assert use(words, options={"final": final}).is_final is is_final


def test_images_become_media() -> None:
    def draw() -> Any:
        return PNG

    def blob() -> Any:
        return Blob.of(PNG, "image/png", name="cat.png")

    def several() -> Any:
        return ["two cats", Blob.of(PNG, "image/png"), Blob.of(b"%PDF-1", "application/pdf")]

    assert (use(draw).value, use(draw).media) == ("image/png", (Blob.of(PNG, "image/png"),))
    assert (use(blob).value, use(blob).media[0].name) == ("cat.png", "cat.png")
    assert (use(several).value, len(use(several).media)) == (["two cats", "image/png", "application/pdf"], 2)


def test_result_is_a_copy_of_what_the_tool_returned() -> None:
    kept: dict[str, Any] = {"list": [1]}

    def give() -> Any:
        return kept

    result = use(give)
    kept["list"].append(2)
    assert result.value == {"list": [1]}


def test_context_variables_set_by_a_tool_stay_inside_it() -> None:
    variable: ContextVar[str] = ContextVar("variable", default="before")

    @tool
    async def at_once() -> str:
        variable.set("set")
        return variable.get()

    @tool
    async def later() -> str:
        await asyncio.sleep(0)
        variable.set("set")
        return variable.get()

    @tool
    def plain() -> str:
        variable.set("set")
        return variable.get()

    async def main() -> None:
        for one in (at_once, later, plain):
            assert (await execute(one, ToolCall("1", one.name))).value == "set"
            assert variable.get() == "before"

    asyncio.run(main())


def test_unknown_option_is_reported() -> None:
    with pytest.raises(ConfigError, match=r"unknown tool option 'foo'; known options: .*name, .*timeout"):
        tool(foo=1)(use)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="unknown tool option 'foo'"):
        tool_from_schema("f", "F.", {"type": "object"}, lambda _: 1, foo=1)


def test_awaitable_returned_by_a_plain_function_has_only_the_rest_of_the_timeout() -> None:
    def later() -> Any:
        time.sleep(0.2)
        return asyncio.sleep(0.2, "late")

    made = tool(timeout=0.3)(later)
    result = asyncio.run(execute(made, ToolCall("1", "later")))
    assert result.is_error
    assert "timed out after 0.3 seconds" in result.value


def test_tool_without_parameters_is_not_run_with_an_argument() -> None:
    def refresh() -> str:
        """Refresh the page."""
        return "refreshed"

    result = use(refresh, reason="old")
    assert result.is_error
    assert result.notes == (NOT_RUN,)
    assert result.value.startswith("invalid parameters:")
    assert use(refresh).value == "refreshed"


def test_first_items_of_a_long_range_are_returned() -> None:
    def numbers(count: int) -> object:
        """Count."""
        return range(count)

    assert use(numbers, count=3).value == [0, 1, 2]
    many = use(numbers, count=10**9).value
    assert many[:3] == [0, 1, 2]
    assert many[-1] == "… [cut: the first 10,000 items]"
