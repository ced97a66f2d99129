"""Closing and cancelling streams, whatever the provider and the tools do about it."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, Self

import pytest

from midspan import Agent, Limits, tool
from midspan._types.context import RunContext
from midspan._types.events import RunStart, TextDelta, ToolProgress, ToolStart, TurnEnd
from midspan._types.exchange import FinishReason, ModelEvent, ModelRequest, ModelResponse, PartStart
from midspan._types.messages import Message
from midspan._types.parts import Text, ToolCall
from midspan.errors import ConfigError, IncompleteResponseError, NetworkError, ServerError
from midspan.testing import ScriptedProvider
from midspan.tools.source import ToolListing, ToolSource
from tests.bounds import BOUND
from tests.streaming import PartsProvider


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Within bounds, and with nothing left of it."""

    async def bounded() -> None:
        await asyncio.wait_for(main(), BOUND)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(bounded())


async def drained(stream: Any) -> list[Any]:
    return [event async for event in stream]


class BreaksWhenLeft(PartsProvider, ScriptedProvider):
    """Yields a text, waits, and raises when it is cancelled or closed."""

    def __init__(self) -> None:
        super().__init__([])
        self.waits = asyncio.Event()

    async def parts(self, request: ModelRequest) -> AsyncIterator[Any]:
        self.requests.append(request)
        try:
            yield Text("a")
            self.waits.set()
            await asyncio.sleep(60)
        finally:
            raise NetworkError("the connection broke while it was being closed")


def test_run_ends_although_its_provider_fails_when_cancelled() -> None:
    async def main() -> None:
        provider = BreaksWhenLeft()
        task = asyncio.create_task(drained(Agent(provider).stream("?")))
        await provider.waits.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(provider.requests) == 1

    run(main)


def test_run_ends_although_its_provider_fails_when_closed() -> None:
    async def main() -> None:
        provider = BreaksWhenLeft()
        stream = Agent(provider).stream("?")
        async for event in stream:
            if isinstance(event, TextDelta):
                break
        await stream.aclose()
        assert len(provider.requests) == 1
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    run(main)


def test_run_ends_although_a_tool_ignores_its_cancellation() -> None:
    async def main() -> None:
        waits = asyncio.Event()

        @tool
        async def stubborn() -> int:
            """Goes on."""
            waits.set()
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
            return 7

        provider = ScriptedProvider([ToolCall("1", "stubborn", {}), "never"])
        task = asyncio.create_task(Agent(provider, tools=[stubborn]).run("?"))
        await waits.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(provider.requests) == 1

    run(main)


@pytest.mark.parametrize("calls", [1, 2])
def test_stream_can_be_closed_by_another_task_while_a_tool_runs(calls: int) -> None:
    async def main() -> None:
        waits = asyncio.Event()
        ended = []

        @tool
        async def wait(n: int) -> int:
            """Waits."""
            waits.set()
            try:
                await asyncio.sleep(60)
            finally:
                ended.append(n)
            return n

        script = [[ToolCall(str(n), "wait", {"n": n}) for n in range(calls)], "never"]
        provider = ScriptedProvider(script)
        stream = Agent(provider, tools=[wait]).stream("?")
        task = asyncio.create_task(drained(stream))
        await waits.wait()
        await asyncio.sleep(0)
        await stream.aclose()
        assert sorted(ended) == list(range(calls))
        assert isinstance((await task)[0], RunStart)  # who listened comes to an end, and is not cancelled
        assert len(provider.requests) == 1
        assert len(stream.messages[-1].results) == calls
        with pytest.raises(ConfigError, match="there is no result"):
            _ = stream.result

    run(main)


def test_stream_can_be_closed_during_a_request_and_by_a_tool() -> None:
    async def main() -> None:
        asked = asyncio.Event()

        async def slow(_: ModelRequest) -> str:
            asked.set()
            await asyncio.sleep(60)
            return "never"

        stream = Agent(ScriptedProvider([slow])).stream("?")
        task = asyncio.create_task(drained(stream))
        await asked.wait()
        await stream.aclose()
        await task

        @tool
        async def stop() -> str:
            """Stops the run that it is called in."""
            await stopped.aclose()
            return "never"

        provider = ScriptedProvider([ToolCall("1", "stop", {}), "never"])
        stopped = Agent(provider, tools=[stop]).stream("?")
        await drained(stopped)
        assert len(provider.requests) == 1

    run(main)


class SlowSource(ToolSource):
    """Takes its time to say what it has."""

    def __init__(self) -> None:
        self.asked, self.ended = asyncio.Event(), False

    async def list_tools(self) -> ToolListing:
        self.asked.set()
        try:
            await asyncio.sleep(60)
        finally:
            self.ended = True
        return ToolListing()

    async def call(self, call: ToolCall, context: Any = None) -> Any: ...


def test_stream_can_be_closed_while_its_tools_are_listed() -> None:
    async def main() -> None:
        source = SlowSource()
        stream = Agent(ScriptedProvider([]), tools=[source]).stream("?")
        task = asyncio.create_task(drained(stream))
        await source.asked.wait()
        with pytest.raises(ConfigError, match="already being iterated by another task"):
            await anext(stream)
        await stream.aclose()
        assert source.ended
        assert await task == []

    run(main)


def test_closing_and_cancelling_together_is_a_cancellation() -> None:
    async def main() -> None:
        source = SlowSource()
        stream = Agent(ScriptedProvider([]), tools=[source]).stream("?")
        task = asyncio.create_task(drained(stream))
        await source.asked.wait()
        closing = asyncio.create_task(stream.aclose())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await closing

    run(main)


class Iterates:
    """An async iterator with aclose that is not a generator."""

    def __init__(self) -> None:
        self.closed = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ModelEvent:
        return PartStart(0, Text("more "))

    async def aclose(self) -> None:
        self.closed += 1


def test_iterator_of_a_provider_that_is_not_a_generator_is_closed() -> None:
    async def main() -> None:
        items = Iterates()

        class Provider(ScriptedProvider):
            def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
                return items

        async with Agent(Provider([])).stream("?") as stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    break
        assert items.closed == 1

    run(main)


def test_cancelled_error_raised_by_a_provider_is_an_error_of_the_model() -> None:
    class Cancels(ScriptedProvider):
        async def generate(self, request: ModelRequest) -> ModelResponse:
            raise asyncio.CancelledError

    async def main() -> None:
        for agent in (Agent(Cancels([])), Agent(ScriptedProvider([asyncio.CancelledError()]))):
            with pytest.raises(Exception, match="the model failed: CancelledError") as caught:
                await agent.run("?")
            assert caught.value.transcript  # type: ignore[attr-defined]

    run(main)


@pytest.mark.parametrize("odd", ["hello", None, [], ModelResponse(None, FinishReason.END)])  # type: ignore[arg-type]
def test_generate_that_returns_no_response_is_an_error(odd: Any) -> None:
    class Odd(ScriptedProvider):
        async def generate(self, request: ModelRequest) -> Any:
            return odd

    with pytest.raises(Exception, match="the model failed: expected a ModelResponse with a Message") as caught:
        Agent(Odd([])).run_sync("?")
    assert caught.value.transcript == (Message.user("?"),)  # type: ignore[attr-defined]


def test_run_uses_generate_and_stream_uses_stream() -> None:
    class Both(PartsProvider, ScriptedProvider):
        async def generate(self, request: ModelRequest) -> ModelResponse:
            return ModelResponse(Message("model", (Text("whole"),)), FinishReason.END)

        async def parts(self, request: ModelRequest) -> AsyncIterator[Any]:
            yield ModelResponse(Message("model", (Text("streamed"),)), FinishReason.END)

    async def main() -> None:
        stream = Agent(Both([])).stream("?")
        await drained(stream)
        assert ((await Agent(Both([])).run("?")).text, stream.result.text) == ("whole", "streamed")

    run(main)


async def failing_group() -> str:
    """One task of a group fails while the group is being left, which cancels the task that leaves it."""

    async def bad() -> None:
        await asyncio.sleep(0.001)
        raise ValueError

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(bad())
            group.create_task(asyncio.sleep(0.05))
    except* ValueError:
        pass
    return "partial"


@pytest.mark.parametrize("calls", [1, 2])
@pytest.mark.parametrize("limits", [Limits(), Limits(max_seconds=BOUND)], ids=["plain", "timed"])
def test_failing_task_group_inside_a_tool_affects_only_the_tool(calls: int, limits: Limits) -> None:
    @tool
    async def pages() -> str:
        """Looks at several."""
        return await failing_group()

    async def speaks(_: ModelRequest) -> str:
        return await failing_group()

    async def main() -> None:
        script = [[ToolCall(str(n), "pages", {}) for n in range(calls)], speaks]
        result = await Agent(ScriptedProvider(script), tools=[pages], limits=limits).run("?")
        assert [run.value for run in result.tool_calls] == ["partial"] * calls
        assert result.text == "partial"

    run(main)


def test_reader_ends_if_the_stream_is_closed_before_the_first_step_of_the_run() -> None:
    async def main() -> None:
        stream = Agent(ScriptedProvider(["hi"])).stream("?")

        async def read() -> list[Any]:
            return [event async for event in stream]

        reader = asyncio.create_task(read())
        await asyncio.sleep(0)
        await stream.aclose()
        assert await asyncio.wait_for(reader, BOUND) == []

    asyncio.run(main())


def test_second_close_waits_for_a_tool_that_is_cleaning_up() -> None:
    cleaned: list[bool] = []

    async def main() -> None:
        cleaning, may_end = asyncio.Event(), asyncio.Event()

        @tool
        async def work() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                cleaning.set()
                await may_end.wait()
                cleaned.append(True)

        stream = Agent(ScriptedProvider([ToolCall("1", "work")]), [work]).stream("?")
        while not isinstance(await anext(stream), ToolStart):
            pass
        reader = asyncio.create_task(drained(stream))
        await asyncio.sleep(0)
        closers = [asyncio.create_task(stream.aclose())]
        await cleaning.wait()
        closers.append(asyncio.create_task(stream.aclose()))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not any(task.done() for task in closers)
        may_end.set()
        await asyncio.gather(*closers)
        assert cleaned
        await asyncio.wait([reader])

    run(main)


def test_stream_can_be_closed_by_several_tasks_at_once() -> None:
    async def main() -> None:
        waits = asyncio.Event()

        @tool
        async def wait() -> None:
            """Waits."""
            waits.set()
            await asyncio.sleep(60)

        stream = Agent(ScriptedProvider([ToolCall("1", "wait", {})]), tools=[wait]).stream("?")

        async def consumer() -> int:
            await drained(stream)
            task = asyncio.current_task()
            assert task is not None
            return task.cancelling()

        task = asyncio.create_task(consumer())
        await waits.wait()
        await asyncio.gather(*(stream.aclose() for _ in range(3)))
        assert await task == 0

        provider = BreaksWhenLeft()
        left = Agent(provider).stream("?")
        async for event in left:
            if isinstance(event, TextDelta):
                break
        await asyncio.gather(left.aclose(), left.aclose())

    run(main)


class Keeps(SlowSource):
    """Makes something else of its cancellation."""

    def __init__(self, error: Exception | None) -> None:
        super().__init__()
        self._error = error

    async def list_tools(self) -> ToolListing:
        try:
            return await super().list_tools()
        except asyncio.CancelledError:
            if self._error is not None:
                raise self._error from None
            return ToolListing()


@pytest.mark.parametrize("error", [None, ConnectionError("gone")])
def test_run_ends_although_a_source_swallows_its_cancellation(error: Exception | None) -> None:
    async def main() -> None:
        provider = ScriptedProvider(["never"])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await Agent(provider, tools=[Keeps(error)]).run("?")
        source = Keeps(error)
        stream = Agent(provider, tools=[source]).stream("?")
        task = asyncio.create_task(drained(stream))
        await source.asked.wait()
        await stream.aclose()
        assert await task == []
        assert provider.requests == []

    run(main)


def test_earlier_cancellation_of_the_task_has_no_effect() -> None:
    @tool
    async def own() -> None:
        """Waits for something that was cancelled."""
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        provider = ScriptedProvider([ToolCall("1", "own", {}), "done"])
        result = await Agent(provider, tools=[own]).run("?")
        assert (result.text, result.tool_calls[0].value) == ("done", "own failed: CancelledError")
        task.uncancel()

    asyncio.run(main())


def test_provider_that_converts_the_timeout_to_an_error_does_not_hide_it() -> None:
    async def turned(_: ModelRequest) -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise IncompleteResponseError("cut") from None
        return "never"

    limits = Limits(max_seconds=0.01, on_limit="message")
    assert Agent(ScriptedProvider([turned]), limits=limits).run_sync("?").limit == "max_seconds"


def test_state_of_a_stream_is_not_ahead_of_the_events_that_were_read() -> None:
    async def main() -> None:
        script = [[Text("Let "), Text("me "), Text("see."), ToolCall("1", "add", {"a": 1, "b": 2})], "3"]

        @tool
        async def add(a: int, b: int) -> int:
            return a + b

        async with Agent(ScriptedProvider(script), tools=[add]).stream("1 + 2?") as stream:
            async for event in stream:
                for _ in range(20):  # the run reads the response ahead meanwhile
                    await asyncio.sleep(0)
                if isinstance(event, TextDelta) and event.turn == 1:
                    assert len(stream.messages) == 1
                if isinstance(event, TurnEnd) and event.turn == 1:
                    assert stream.messages[1].text == "Let me see."

    run(main)


def test_response_is_read_ahead_of_a_slow_reader_only_so_far() -> None:
    written = 0

    class Talkative(ScriptedProvider):
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            nonlocal written
            for written in range(1, 1001):
                yield PartStart(written, Text("a"))
            yield ModelResponse(Message("model", (Text("a" * 1000),)), FinishReason.END)

    async def main() -> None:
        async with Agent(Talkative([])).stream("?") as stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    break
            for _ in range(2000):
                await asyncio.sleep(0)
            assert written == 64
            texts = [event.text async for event in rest_of(stream) if isinstance(event, TextDelta)]
        assert len(texts) == 999

    async def rest_of(stream: Any) -> AsyncIterator[Any]:
        while (event := await anext(stream, None)) is not None:
            yield event

    run(main)


def test_outcome_of_a_stream_that_is_read_to_its_end_is_reported() -> None:
    async def main() -> None:
        outcomes: list[Any] = []
        stream = Agent(ScriptedProvider(["a"])).stream("?")
        stream.on_end = outcomes.append
        await drained(stream)
        failing = Agent(ScriptedProvider([ServerError("down", status=503)])).stream("?")
        failing.on_end = outcomes.append
        with pytest.raises(ServerError) as caught:
            await drained(failing)
        closed = Agent(ScriptedProvider(["a"])).stream("?")
        closed.on_end = outcomes.append
        await anext(closed)
        await closed.aclose()
        assert outcomes == [stream.result, caught.value]

    run(main)


def test_run_whose_stream_is_dropped_is_cancelled() -> None:
    class Waits(PartsProvider, ScriptedProvider):
        async def parts(self, request: ModelRequest) -> AsyncIterator[Any]:
            try:
                yield Text("a")
                waits.set()
                await asyncio.sleep(60)
            finally:
                left.set()

    waits, left = asyncio.Event(), asyncio.Event()

    async def main() -> None:
        stream = Agent(Waits([])).stream("?")
        async for event in stream:
            if isinstance(event, TextDelta):
                break
        await waits.wait()
        del stream
        gc.collect()
        await left.wait()
        for _ in range(20):  # the task of the run ends, too
            await asyncio.sleep(0)

    run(main)


def test_stream_that_is_closed_before_it_is_read_has_no_events() -> None:
    async def main() -> None:
        provider = ScriptedProvider(["never"])
        stream = Agent(provider).stream("?")
        await stream.aclose()
        assert await drained(stream) == []
        assert provider.requests == []

    run(main)


def test_progress_replaces_the_last_unread_progress_while_64_events_are_unread() -> None:
    @tool
    async def count(context: RunContext[None]) -> None:
        """Report much."""
        for number in range(100):
            context.progress(number / 100)

    async def main() -> None:
        events = await drained(Agent(ScriptedProvider([ToolCall("1", "count"), "done"]), [count]).stream("?"))
        fractions = [event.fraction for event in events if isinstance(event, ToolProgress)]
        assert fractions == [number / 100 for number in (*range(63), 99)]

    run(main)
