"""Requests that follow other requests: continued responses, and requests without server-side validation."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from midspan import Agent, Gemini
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
