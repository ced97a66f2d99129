"""Requests that follow other requests: continued responses, and requests without server-side validation."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from midspan import Agent, Gemini
from midspan._types.specs import BuiltinTool
from midspan.errors import InvalidRequestError
from midspan.messages import FinishReason, History, Message
from midspan.providers import ModelRequest, RequestConfig
from tests.gemini.recorder import Recorder, recorder


class EndlessModel(Recorder):
    """Pauses in every response, and gives another token each time."""

    def next(self) -> tuple[int, bytes, dict[str, str]]:
        content = {"role": "model", "parts": [{"text": "x"}]}
        candidate = {"content": content, "finishReason": "CONTINUATION", "continuationToken": str(len(self.seen))}
        self.answers.clear()
        self.answer({"candidates": [candidate]})
        return super().next()


@pytest.fixture
def server() -> Iterator[Recorder]:
    with recorder() as record:
        yield record


def text(message: str) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": [{"text": message}]}, "finishReason": "STOP"}]}


def error(message: str) -> dict[str, Any]:
    return {"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": message}}


def look(n: int) -> int:
    """Look."""
    return n


def len_of(word: str) -> int:
    """Return the length."""
    return len(word)


def test_response_that_is_continued_for_ever_ends_after_a_hundred_requests() -> None:
    request = ModelRequest(RequestConfig("gemini-4-argon"), History([Message.user("Write.")]))
    with recorder(EndlessModel()) as server:
        gemini = Gemini("gemini-4-argon", api_key="k", base_url=server.url)
        response = asyncio.run(gemini.generate(request))
    assert (len(server.seen), response.requests) == (100, 100)
    assert response.message.text == "x" * 100
    assert response.finish_reason is FinishReason.CONTINUES


@pytest.mark.parametrize(
    ("message", "modes"),
    [
        ("The schema has too many states for serving.", ["VALIDATED", "AUTO", "AUTO"]),
        ("Request contains an invalid argument.", ["VALIDATED", "AUTO", "VALIDATED"]),
    ],
)
def test_only_schemas_that_are_known_to_be_too_large_are_not_validated_again(
    server: Recorder, message: str, modes: list[str]
) -> None:
    server.answer(error(message), status=400)
    server.answer(text("One."))
    server.answer(text("Two."))
    agent = Agent(Gemini(api_key="k", base_url=server.url), [look], tool_choice="validated")
    assert agent.run_sync("First.").text == "One."
    assert agent.run_sync("Second.").text == "Two."
    assert [seen.body["toolConfig"]["functionCallingConfig"]["mode"] for seen in server.seen] == modes


def test_other_tools_are_still_validated_after_some_were_too_large(server: Recorder) -> None:
    server.answer(error("The schema has too many states for serving."), status=400)
    gemini = Gemini(api_key="k", base_url=server.url)
    for tools in ([look], [look, len_of], [look]):
        server.answer(text("Yes."))
        Agent(gemini, tools, tool_choice="validated").run_sync("Look.")
    modes = [seen.body["toolConfig"]["functionCallingConfig"]["mode"] for seen in server.seen]
    assert modes == ["VALIDATED", "AUTO", "VALIDATED", "AUTO"]


def test_request_with_built_in_tools_is_not_repeated_without_validation(server: Recorder) -> None:
    server.answer(error("Request contains an invalid argument."), status=400)
    agent = Agent(
        Gemini(api_key="k", base_url=server.url), [look, BuiltinTool("googleSearch")], tool_choice="validated"
    )
    with pytest.raises(InvalidRequestError):
        agent.run_sync("First.")
    assert len(server.seen) == 1
