import json
from pathlib import Path
from typing import Any

import pytest

from midspan.emulator import LocalGemini, Recording
from midspan.emulator.gemini.sources.recording import Exchange
from midspan.errors import ConfigError
from tests.emulator.plain_client import ask, events, stream, user

HI: dict[str, Any] = {"contents": [user("Hi.")]}
BYE: dict[str, Any] = {"contents": [user("Bye.")]}


def response(text: str, **more: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"parts": [{"text": text}], "role": "model"}, **more}]}


EXCHANGES = [
    {"request_json": HI, "response": response("Hello.", finishReason="STOP"), "status": 200, "streaming": False},
    {"request_json": BYE, "response": [response("See "), response("you.", finishReason="STOP")], "streaming": True},
    {
        "request_json": {"contents": [user("No.")]},
        "response": {"error": {"code": 429, "message": "Enough."}},
        "status": 429,
    },
    {"request_json": None, "response": {}, "status": 200},
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "exchanges.jsonl"
    path.write_text("\n".join(map(json.dumps, EXCHANGES)))
    return path


def test_recorded_requests_get_their_recorded_responses(path: Path) -> None:
    with LocalGemini(Recording.load(path)) as server:
        assert ask(server.url, HI).json == EXCHANGES[0]["response"]
        assert ask(server.url, {"contents": [{"parts": {"text": "Hi."}, "role": "user"}]}).status == 500
        assert events(stream(server.url, BYE)) == EXCHANGES[1]["response"]
        assert events(stream(server.url, HI)) == [EXCHANGES[0]["response"]]
        joined = ask(server.url, BYE).json["candidates"][0]
        assert [part["text"] for part in joined["content"]["parts"]] == ["See ", "you."]
        assert joined["finishReason"] == "STOP"
        rejected = ask(server.url, {"contents": [user("No.")]})
        assert (rejected.status, rejected.message) == (429, "Enough.")


def test_a_recorded_event_stream_is_replayed() -> None:
    text = "".join(f"data: {json.dumps(response(word))}\r\n\r\n" for word in ("a", "b"))
    with LocalGemini(Recording([Exchange(HI, text, streaming=True)])) as server:
        assert events(stream(server.url, HI)) == [response("a"), response("b")]


def test_an_invalid_recording_is_rejected(tmp_path: Path) -> None:
    for name in (tmp_path / "nothing", "a\0b", "\ud800"):
        with pytest.raises(ConfigError, match="cannot read the recording"):
            Recording.load(name)
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{}\n")
    with pytest.raises(ConfigError, match=r"bad\.jsonl:1: not a line of a recording"):
        Recording.load(bad)
    with pytest.raises(ConfigError, match="the recording contains no request with its response"):
        Recording([])
    with pytest.raises(ConfigError, match=r"a recording needs exchanges, got 'x'; use Recording\.load for a file"):
        Recording("x")  # type: ignore[arg-type]
