from typing import Any

import pytest

from midspan.emulator import LocalGemini
from tests.emulator.plain_client import Reply, ask, send, tools, user
from tests.virtual_clock import VirtualClock

LONG = user("word " * 2_000)
MADE: dict[str, Any] = {"model": "models/gemini-3.5-flash", "contents": [LONG], "ttl": "60s"}
VERTEX = "/v1beta1/projects/p/locations/l/"


def create(server: LocalGemini, body: Any, parent: str = "/v1beta/") -> Reply:
    return send(server.url, "POST", f"{parent}cachedContents", body)


def test_a_cache_is_gone_when_its_time_is_over() -> None:
    clock = VirtualClock()
    with LocalGemini(clock=clock) as server:
        name = create(server, MADE).json["name"]
        path = f"/v1beta/{name}"
        assert send(server.url, "GET", path).status == 200
        clock._now += 59
        assert send(server.url, "PATCH", path, {"ttl": "60s"}).status == 200
        clock._now += 59
        request = {"contents": [user("Hi.")], "cachedContent": name}
        reply = ask(server.url, request, "gemini-3.5-flash")
        assert reply.parts[0]["text"] == "You said: Hi."
        assert reply.json["usageMetadata"]["cachedContentTokenCount"] < reply.json["usageMetadata"]["promptTokenCount"]
        clock._now += 2
        assert ask(server.url, request, "gemini-3.5-flash").status == 403
        assert send(server.url, "GET", path).message == "CachedContent not found (or permission denied)"
        assert send(server.url, "GET", "/v1beta/cachedContents").json == {"cachedContents": []}


@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
def test_an_unknown_cache_is_not_found(method: str) -> None:
    with LocalGemini() as server:
        reply = send(server.url, method, "/v1beta/cachedContents/x", {"ttl": "60s"})
        assert (reply.status, reply.message) == (403, "CachedContent not found (or permission denied)")


def test_vertex_has_its_own_names_and_messages() -> None:
    with LocalGemini() as server:
        body = {**MADE, "model": "projects/p/locations/l/publishers/google/models/gemini-3.5-flash"}
        cache = create(server, body, VERTEX).json
        assert cache["name"].startswith("projects/p/locations/l/cachedContents/")
        path = f"/v1beta1/{cache['name']}"
        assert send(server.url, "GET", path).json == cache
        assert send(server.url, "DELETE", path).json == {}
        reply = send(server.url, "GET", path)
        assert (reply.status, "Not found: cached content metadata" in reply.message) == (404, True)


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"contents": [user("Hi.")]}, 400, "Cached content is too small. total_token_count=1"),
        ({"model": None}, 404, "is not found"),
        ({"model": "models/gemini-nonexistent"}, 404, "is not found for API version v1beta"),
        ({"model": "models/gemini-4-argon"}, 404, "is not supported for createCachedContent"),
        ({"ttl": "soon"}, 400, "Invalid value at 'cached_content.ttl'"),
        (
            {"ttl": None, "expireTime": "tomorrow"},
            400,
            "'cached_content.expire_time', Invalid isoformat",
        ),
        ({"tools": tools("1")}, 400, "Invalid function name"),
        ({"contents": [{"role": "user", "parts": []}]}, 400, "contents.parts must not be empty"),
        ({"colour": 1}, 400, 'Unknown name "colour"'),
    ],
)
def test_content_that_cannot_be_cached_is_rejected(change: Any, status: int, words: str) -> None:
    with LocalGemini() as server:
        reply = create(server, {**MADE, **change})
        assert (reply.status, words in reply.message) == (status, True), reply


def test_the_time_of_a_cache_can_be_changed() -> None:
    with LocalGemini() as server:
        path = "/v1beta/" + create(server, MADE).json["name"]
        later = send(server.url, "PATCH", path, {"expireTime": "2099-01-01T00:00:00Z"}).json
        assert later["expireTime"] == "2099-01-01T00:00:00Z"
