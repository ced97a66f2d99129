"""Runs with Gemini are recorded on loopback, and replayed after the server was closed."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from midspan import Agent, Gemini, tool
from midspan._loop.result import RunResult
from midspan._types.messages import Message
from midspan.errors import AuthenticationError, ConfigError
from midspan.testing import LocalGemini, record, replay
from tests.gemini.recorder import Recorder, recorder
from tests.streaming import raw_of

KEY = "AIzaSyD-0123456789abcdefghijklmnopqrstu"


@tool
async def weather(city: str) -> dict[str, int]:
    """The weather in a city."""
    return {"temp_c": 4}


def chunk(*parts: Any, finish: str | None = "STOP") -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}}
    if finish:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "usageMetadata": {"totalTokenCount": 7}, "futureField": {"x": [1.0, 2]}}


CALL = {"functionCall": {"name": "weather", "args": {"city": "Oslo"}}, "thoughtSignature": "c2lnbmF0dXJl+/=="}
ANSWERS = [
    [chunk({"text": "Let me see.", "thought": True}, finish=None), chunk(CALL)],
    [chunk({"text": "It is "}, finish=None), chunk({"text": "4 degrees."})],
]


class Server(Recorder):
    """A stream of chunks, or the same indented in one document, as Gemini sends them."""

    def __init__(self) -> None:
        super().__init__()
        self.script = list(ANSWERS)

    def next(self) -> tuple[int, bytes, dict[str, str]]:
        chunks = self.script.pop(0)
        self.answers.clear()
        if "stream" in self.last.path:
            self.answer_stream(*chunks)
        else:
            parts = [part for one in chunks for part in one["candidates"][0]["content"]["parts"]]
            self.answer(json.dumps(chunk(*parts), indent=2).encode() + b"\n")
        return super().next()


def agent_at(url: str, tools: Any = (weather,)) -> Agent:
    return Agent(Gemini("gemini-3.8-flash", api_key=KEY, base_url=url), tools)


async def run(agent: Agent, *, streamed: bool, prompt: str = "Is it cold?", **options: Any) -> RunResult:
    if not streamed:
        return await agent.run(prompt, **options)
    stream = agent.stream(prompt, **options)
    assert [event async for event in stream]
    return stream.result


def recorded(folder: Path, *, streamed: bool) -> tuple[RunResult, Server]:
    async def main() -> RunResult:
        async with record(agent_at(server.url), folder) as agent:
            result = await run(agent, streamed=streamed)
            await agent.provider.aclose()
            return result

    server = Server()
    with recorder(server):
        return asyncio.run(main()), server


@pytest.mark.parametrize("streamed", [False, True], ids=["blocking", "streamed"])
@pytest.mark.parametrize("replayed_streamed", [False, True], ids=["blocking", "streamed"])
def test_replay_needs_no_server(tmp_path: Path, streamed: bool, replayed_streamed: bool) -> None:
    then, server = recorded(tmp_path, streamed=streamed)
    now = asyncio.run(run(replay(agent_at(server.url), tmp_path), streamed=replayed_streamed))
    assert (now.text, now.messages, now.usage, now.response) == (then.text, then.messages, then.usage, then.response)
    assert [raw_of(message) for message in now.messages] == [raw_of(message) for message in then.messages]
    assert [bytes(document) for document in now.response.raw] == [bytes(document) for document in then.response.raw]
    assert then.text == "It is 4 degrees."
    assert len(server.seen) == 2


def test_different_tool_result_is_reported_by_its_path(tmp_path: Path) -> None:
    _, server = recorded(tmp_path, streamed=True)
    path = tmp_path / "run-00001.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    changed = [
        line.replace(b'"value":{"temp_c":4}', b'"value":{"temp_c":5}') if b'"line":"call"' in line else line
        for line in lines
    ]
    path.write_bytes(b"".join(changed))
    with pytest.raises(ConfigError) as raised:
        asyncio.run(run(replay(agent_at(server.url), tmp_path), streamed=False))
    told = "messages[2].parts[0].value.temp_c: recorded 4, now 5"
    assert str(raised.value) == f"request 2 differs from the recording {str(path)!r} at {told}"


def test_different_model_is_reported(tmp_path: Path) -> None:
    _, server = recorded(tmp_path, streamed=True)
    other = agent_at(server.url).replace(model=Gemini("gemini-2.5-flash", api_key=KEY, base_url=server.url))
    with pytest.raises(ConfigError, match=r'at model: recorded "gemini-3.8-flash", now "gemini-2.5-flash"$'):
        asyncio.run(run(replay(other, tmp_path), streamed=False))


def test_api_error_is_replayed_without_the_key(tmp_path: Path) -> None:
    with recorder() as server:
        refusal = {"error": {"code": 401, "message": f"{KEY} is no key", "status": "UNAUTHENTICATED", "details": []}}
        server.answer(refusal, status=401)
        with pytest.raises(AuthenticationError):
            record(agent_at(server.url), tmp_path).run_sync("go")
    with pytest.raises(AuthenticationError) as raised:
        replay(agent_at(server.url), tmp_path).run_sync("go")
    assert raised.value.status == 401
    assert KEY not in (tmp_path / "run-00001.jsonl").read_text()


def test_replayed_conversation_can_be_continued(tmp_path: Path) -> None:
    def talk(agent: Agent) -> tuple[Message, ...]:
        first = agent.run_sync("Is it cold?")
        return agent.run_sync("And now?", messages=first.messages).messages.messages

    server = Server()
    server.script += [[chunk({"text": "Still 4."})]]
    with recorder(server):
        then = talk(record(agent_at(server.url), tmp_path))
    assert talk(replay(agent_at(server.url), tmp_path)) == then


def test_local_gemini_can_be_recorded(tmp_path: Path) -> None:
    with LocalGemini(["Hello."]) as server:
        assert record(agent_at(server.url), tmp_path).run_sync("Hi.").text == "Hello."
    assert replay(agent_at(server.url), tmp_path).run_sync("Hi.").text == "Hello."
