"""Whether services can be reached, as `midspan doctor` asks them."""

import asyncio
from socket import create_server

import pytest
from msgspec.structs import replace

from midspan.providers import ProviderFamily, health
from midspan.providers.health import HealthCheck, can_connect
from midspan.providers.openai.profile import PRESETS
from midspan.providers.registry import families
from tests.bounds import BOUND
from tests.gemini.recorder import recorder
from tests.http.misbehaving import Server, answer, refusing_port
from tests.http.test_errors import run


def family_of(name: str) -> ProviderFamily:
    return next(family for family in families() if family.name == name)


MODELS = {"data": [{"id": "a"}, {"id": "b"}], "has_more": False}


@pytest.mark.parametrize(
    ("name", "url_variable", "key_variable", "service_name"),
    [
        ("anthropic", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "Anthropic"),
        ("openai", "OPENAI_BASE_URL", "OPENAI_API_KEY", "OpenAI"),
        ("openai-responses", "OPENAI_BASE_URL", "OPENAI_API_KEY", "OpenAI"),
        ("vllm", "VLLM_BASE_URL", "VLLM_API_KEY", "vLLM"),
    ],
)
def test_check_of_a_family_asks_its_service_for_the_models(
    name: str, url_variable: str, key_variable: str, service_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "CHECK_SECONDS", BOUND)
    family = family_of(name)
    assert family.list_models is not None
    assert family.check is not None
    with recorder() as service:
        service.answer(MODELS)
        monkeypatch.setenv(url_variable, service.url)
        monkeypatch.setenv(key_variable, "k")
        assert asyncio.run(family.list_models()) == ["a", "b"]
        assert asyncio.run(family.check()) == [HealthCheck("ok", f"{service_name} accepts the key and has 2 models")]
        service.answers.clear()
        service.answer({"error": {"message": "no"}}, status=400)
        [failed] = asyncio.run(family.check())
        assert failed.state == "problem"


def test_local_server_that_is_not_configured_may_be_down(monkeypatch: pytest.MonkeyPatch) -> None:
    with create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    monkeypatch.delenv("OLLAMA_HOST", raising=False)
    monkeypatch.setitem(PRESETS, "ollama", replace(PRESETS["ollama"], base_url=url))
    family = family_of("ollama")
    assert (family.environment, family.needs_credentials) == (("OLLAMA_HOST",), False)
    assert family.check is not None
    [note] = asyncio.run(family.check())
    assert note.state == "note"
    monkeypatch.setenv("OLLAMA_HOST", url)
    [problem] = asyncio.run(family.check())
    assert problem.state == "problem"


def test_whether_a_server_can_be_reached() -> None:
    async def main() -> None:
        async with Server(answer) as server:
            assert await asyncio.to_thread(can_connect, server.url, 5.0)

    run(main())
    with refusing_port() as port:
        assert not can_connect(f"http://127.0.0.1:{port}", 5.0)
    assert not can_connect("http://host:99999", 5.0)
