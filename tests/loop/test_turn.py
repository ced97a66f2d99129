"""One turn: calls that arrive in pieces, calls that have to be recovered, and calls that tools make."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from midspan import Agent, tool
from midspan._loop.turn import checked_response
from midspan._types.context import RunContext
from midspan._types.events import TextDelta, ThoughtDelta, ToolCallDelta, TurnStart
from midspan._types.exchange import (
    ArgumentsPartDelta,
    FinishReason,
    ModelEvent,
    ModelRequest,
    ModelResponse,
    PartDelta,
    PartEnd,
    PartStart,
    RequestConfig,
)
from midspan._types.messages import History, Message
from midspan._types.parts import Opaque, Text, Thought, ToolCall
from midspan._types.specs import ToolSpec
from midspan.providers.gemini import decode
from midspan.providers.gemini.capabilities import capabilities_of
from midspan.providers.gemini.encode import SKIP_SIGNATURE, encode_message
from midspan.testing import ScriptedProvider


def test_recovered_turn_keeps_signatures_and_unknown_parts() -> None:
    parts = [
        {"text": "Let me look.", "thoughtSignature": "SIG"},
        {"executableCode": {"language": "PYTHON", "code": "1"}},
        {"text": "hm", "thought": True},
    ]
    candidate = {
        "content": {"role": "model", "parts": parts},
        "finishReason": "MALFORMED_FUNCTION_CALL",
        "finishMessage": "Malformed function call: print(default_api.f(a=1))",
    }
    response = decode.response(json.dumps({"candidates": [candidate]}).encode())
    config = RequestConfig("gemini-3.8-flash", tools=(ToolSpec("f"),))
    recovered = checked_response(response, ModelRequest(config, History(())))
    assert recovered.finish_reason is FinishReason.END
    assert recovered.message.parts[:3] == response.message.parts
    assert [type(part) for part in recovered.message.parts[:2]] == [Text, Opaque]
    call = recovered.message.parts[-1]
    assert isinstance(call, ToolCall)
    assert (call.name, call.arguments) == ("f", {"a": 1})
    sent = json.loads(bytes(encode_message(recovered.message, capabilities_of("gemini-3.8-flash"))))["parts"]
    assert sent == [
        *parts,
        {"functionCall": {"name": "f", "args": {"a": 1}}, "thoughtSignature": SKIP_SIGNATURE},
    ]


class InPieces(ScriptedProvider):
    """Streams the arguments of two calls in turns."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        if len(request.history) > 1:
            async for event in super().stream(request):
                yield event
            return
        calls = [ToolCall("a", "look", {"n": 1}), ToolCall("b", "look", {"n": 2})]
        yield PartStart(0, Text("Hm. "))
        for index, call in enumerate(calls, 1):
            yield PartStart(index, ToolCall(call.id, call.name))
        for piece in ('{"n":', "?}"):
            for index in (2, 1):
                yield PartDelta(index, ArgumentsPartDelta(piece))
        for index, call in enumerate(calls, 1):
            yield PartEnd(index, call)
        yield ModelResponse(Message("model", (Text("Hm. "), *calls)), FinishReason.END)


@tool(read_only=True)
def look(n: int) -> str:
    """Look."""
    return f"seen {n}"


def test_first_delta_of_a_call_has_its_id_and_name() -> None:
    async def main() -> list[ToolCallDelta]:
        stream = Agent(InPieces(["done"]), tools=[look]).stream("?")
        return [event async for event in stream if isinstance(event, ToolCallDelta)]

    assert asyncio.run(main()) == [
        ToolCallDelta(1, 1, '{"n":', "b", "look"),
        ToolCallDelta(1, 0, '{"n":', "a", "look"),
        ToolCallDelta(1, 1, "?}"),
        ToolCallDelta(1, 0, "?}"),
    ]


def test_pieces_of_thoughts_and_text_are_streamed_unless_they_are_empty() -> None:
    turn = [Thought(""), Thought("Add them."), Text(""), Text("It is 3.")]
    events = [
        event for event in Agent(ScriptedProvider([turn])).stream("?") if isinstance(event, TextDelta | ThoughtDelta)
    ]
    assert events == [ThoughtDelta(1, "Add them."), TextDelta(1, "It is 3.")]


def test_tool_that_has_timed_out_cannot_call_others() -> None:
    values: list[Any] = []
    has_called = threading.Event()

    @tool(timeout=0.02)
    def slow(context: RunContext[None]) -> None:
        """Ignore the cancellation."""
        has_timed_out.wait(10)
        values.append(context.run_blocking(context.call_tool("look", {"n": 1})).value)
        has_called.set()

    @tool
    async def wait() -> bool:
        """Wait for the thread of the other tool."""
        has_timed_out.set()
        return await asyncio.to_thread(has_called.wait, 10)

    has_timed_out = threading.Event()
    script = [ToolCall("1", "slow"), ToolCall("2", "wait"), "done"]
    runs = Agent(ScriptedProvider(script), tools=[slow, wait, look]).run_sync("?").tool_calls
    assert runs[1].value is True
    assert values == ["look was not run: the tool that calls it was cancelled"]


@pytest.mark.parametrize(
    ("options", "answer_only"),
    [
        ({}, True),
        ({"output": int}, False),  # the text may have to be asked for again
        ({"tools": [look]}, False),
        ({"tools": [look], "tool_choice": "none"}, True),
        ({"tools": [look], "tool_choice": "none", "output": int}, False),
    ],
)
def test_start_of_a_turn_says_whether_its_text_is_the_answer(options: dict[str, Any], answer_only: bool) -> None:
    [start] = [event for event in Agent(ScriptedProvider(["1"])).stream("?", **options) if isinstance(event, TurnStart)]
    assert start.answer_only is answer_only
