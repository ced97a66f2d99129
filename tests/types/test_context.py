"""The context of a call, as its tool sees it."""

import asyncio
import logging
from threading import get_ident
from time import monotonic
from typing import Any

import pytest

from midspan._types.context import NO_CONTEXT, RunContext
from midspan.errors import ToolError


def test_deadline_is_the_earlier_one_of_the_run_and_the_call() -> None:
    context: RunContext[None] = RunContext()
    assert context.seconds_left is None
    context.start(None)
    assert context.deadline is None
    begin = context.start(60)
    assert context.deadline == begin + 60
    context.start(90)
    assert context.deadline == begin + 60
    begin = context.start(30)
    assert context.deadline == begin + 30
    context.start(None)
    assert context.deadline == begin + 30
    context.deadline = monotonic() - 1
    assert -60 < context.seconds_left < 0


def test_context_of_calls_outside_a_run_never_changes() -> None:
    NO_CONTEXT.start(60)
    NO_CONTEXT.cancel()
    assert (NO_CONTEXT.deadline, NO_CONTEXT.cancelled) == (None, False)


def test_context_knows_that_its_call_was_cancelled_and_what_it_raised() -> None:
    errors: list[BaseException] = []
    context: RunContext[None] = RunContext(on_error=errors.append)
    assert not context.cancelled
    context.cancel()
    assert context.cancelled
    error = ValueError("a")
    context.report_error(error)
    RunContext().report_error(error)
    assert errors == [error]


def test_idempotency_key_is_unique_in_a_run_and_the_id_of_the_call_outside() -> None:
    assert RunContext(None, "r", "c", turn=2, index=1).idempotency_key == "r/2/1"
    assert RunContext(None, "r", "c", turn=2, index=1, depth=1).idempotency_key == "r/2/1/c"
    assert RunContext(None, "", "c", turn=2, index=1).idempotency_key == "c"


class Host:
    """A run that notes what its contexts report."""

    def __init__(self) -> None:
        self.loop: Any = None
        self.thread = 0
        self.reports: list[Any] = []

    def report_progress(self, context: RunContext[Any], fraction: float | None, message: str) -> None:
        self.reports.append((fraction, message))

    def report_log(self, context: RunContext[Any], level: int, message: str) -> None:
        self.reports.append((level, message))

    async def ask_user(self, question: str, schema: dict[str, Any] | None) -> Any:
        return f"{question} yes"

    async def call_tool(self, parent: RunContext[Any], name: str, arguments: dict[str, Any]) -> Any:
        return name


def test_progress_is_reported_as_a_fraction_and_messages_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    host = Host()
    for context in (RunContext(None, "r", "c", host=host), RunContext(None, "r", "c")):
        with caplog.at_level(logging.INFO, "midspan"):
            context.progress(0.5, "half")
            context.progress(2)
            context.progress(-1)
            context.progress(message="unknown")
            context.log("hello", logging.WARNING)
    assert host.reports == [(0.5, "half"), (1, ""), (0, ""), (None, "unknown"), (logging.WARNING, "hello")]
    assert [(record.message, record.run_id) for record in caplog.records] == [("[r c] hello", "r")] * 2  # type: ignore[attr-defined]


def test_questions_and_calls_need_a_run() -> None:
    async def main() -> None:
        for coroutine in (RunContext().ask_user("?"), RunContext().call_tool("add", {})):
            with pytest.raises(ToolError, match=r"there is no user to ask|add can be called only within a run"):
                await coroutine

    asyncio.run(main())


def test_questions_are_asked_in_the_event_loop_of_the_run() -> None:
    host = Host()

    async def main() -> None:
        host.loop = asyncio.get_running_loop()
        context: RunContext[None] = RunContext(host=host)
        assert await context.ask_user("Sure?") == "Sure? yes"
        in_thread = await asyncio.to_thread(lambda: asyncio.run(context.ask_user("Sure?")))
        waited = await asyncio.to_thread(lambda: context.run_blocking(context.call_tool("add", {})))
        assert (in_thread, waited) == ("Sure? yes", "add")

    asyncio.run(main())


def test_async_function_must_await_instead_of_run_blocking() -> None:
    host = Host()

    async def main() -> None:

        host.loop, host.thread = asyncio.get_running_loop(), get_ident()
        context: RunContext[None] = RunContext(host=host)
        with pytest.raises(ToolError, match="use await"):
            context.run_blocking(context.ask_user("?"))

    asyncio.run(main())
    assert RunContext().run_blocking(asyncio.sleep(0, "value")) == "value"
