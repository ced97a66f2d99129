"""How the models of Gemini are chosen, listed and checked."""

import asyncio
from typing import Any

import pytest

from midspan.providers.gemini.family import FAMILY
from tests.gemini.recorder import Recorder, recorder

MODELS = {
    "models": [
        {"name": "models/gemini-a", "supportedGenerationMethods": ["generateContent"]},
        {"name": "models/embedding-b", "supportedGenerationMethods": ["embedContent"]},
        {"displayName": "without a name"},
    ],
    "nextPageToken": "a/b",
}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE"):
        monkeypatch.delenv(name, raising=False)
    with recorder() as server:
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", server.url)
        yield server


def checks() -> list[tuple[str, str]]:
    assert FAMILY.check is not None
    return [(check.state, check.message) for check in asyncio.run(FAMILY.check())]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, False),
        ({"GEMINI_API_KEY": " "}, False),
        ({"GEMINI_API_KEY": "k"}, True),
        ({"GOOGLE_API_KEY": "k"}, True),
        ({"GOOGLE_GENAI_USE_VERTEXAI": "1"}, True),
        ({"GOOGLE_GENAI_USE_VERTEXAI": "0"}, False),
    ],
)
def test_a_key_or_the_choice_of_vertex_configures_the_family(environment: dict[str, str], expected: bool) -> None:
    assert FAMILY.has_credentials(environment) is expected


def test_models_that_generate_content_are_listed_over_all_pages(
    server: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "k")
    server.answer(MODELS)
    server.answer({"models": [{"name": "models/gemini-c"}]})
    assert FAMILY.list_models is not None
    assert asyncio.run(FAMILY.list_models()) == ["gemini-a", "gemini-c"]
    assert [seen.path for seen in server.seen] == ["/v1beta/models", "/v1beta/models?pageToken=a%2Fb"]


def test_models_of_vertex_are_those_of_its_publisher(server: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    from midspan.gemini import Client

    server.answer({"publisherModels": [{"name": "publishers/google/models/gemini-a"}]})
    with Client(vertex=True, token=lambda: "token", project="p", base_url=server.url) as client:
        assert [model.name for model in client.list_models()] == ["publishers/google/models/gemini-a"]
    assert server.last.path == "/v1beta1/publishers/google/models"


def test_check_without_a_key_sends_nothing(server: Recorder) -> None:
    assert checks() == [
        ("note", "neither GOOGLE_API_KEY nor GEMINI_API_KEY is set"),
        ("note", f"{server.url} can be reached; no request was sent without a key"),
    ]
    assert server.seen == []


def test_check_names_the_variables_of_the_keys_and_asks_once(server: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "k")
    monkeypatch.setenv("GOOGLE_API_KEY", "k")
    server.answer({"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}}, status=503)
    source, connection = checks()
    assert source == ("ok", "found a key in GOOGLE_API_KEY and in GEMINI_API_KEY")
    assert connection[0] == "problem"
    assert "503 UNAVAILABLE: busy" in connection[1]
    assert len(server.seen) == 1


def test_check_counts_the_models(server: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "k")
    server.answer({"models": [{"name": "models/gemini-c"}]})
    assert checks() == [
        ("ok", "found a key in GEMINI_API_KEY"),
        ("ok", f"{server.url.removeprefix('http://')} accepts the key and has 1 models"),
    ]


def test_check_of_an_invalid_address_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", "localhost")
    [(state, message)] = checks()
    assert state == "problem"
    assert "'localhost' is not a valid base URL" in message
