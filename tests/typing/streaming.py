"""Streams, in async and in sync code."""

from typing import assert_type

from midspan import Agent, RunStream
from midspan.errors import LimitReachedError, MidspanError, RateLimitError
from midspan.events import RunEvent, TextDelta, ToolEnd


def plain(agent: Agent[str]) -> str:
    with agent.stream("hello") as stream:
        assert_type(stream, RunStream[str])
        for event in stream:
            show(event)
    return stream.result.text


async def asynchronous(agent: Agent[str]) -> str:
    async with agent.stream("hello") as stream:
        async for event in stream:
            show(event)
    return stream.result.output


def show(event: RunEvent) -> None:
    match event:
        case TextDelta(text=text):
            assert_type(text, str)
        case ToolEnd():
            assert_type(event.result.is_error, bool)
            assert_type(event.duration_seconds, float)
        case _:
            pass


def handle(agent: Agent[str]) -> str | None:
    try:
        with agent:
            return agent.run_sync("hello").text
    except RateLimitError as error:
        assert_type(error.retry_delay_seconds, float | None)
    except LimitReachedError as error:
        assert_type(error.limit, str)
    except MidspanError as error:
        print(error.transcript)
    return None
