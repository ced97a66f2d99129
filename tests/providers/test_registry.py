"""From names to providers, and which family is chosen if none is named."""

import asyncio
import re

import pytest

from midspan import Agent
from midspan.errors import ConfigError, CredentialsError
from midspan.providers import ProviderFamily, registry
from midspan.providers.gemini.client import Gemini
from midspan.providers.provider import Provider
from midspan.providers.registry import (
    MissingModel,
    check_credentials,
    credential_variables,
    default_family,
    default_provider,
    families,
    family_name,
    family_variables,
    offline_family,
    provider_of,
)


@pytest.fixture
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [name for family in families() for name in family.environment]
    for name in (*names, "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("name", "model", "service"),
    [
        ("anthropic:claude-x", "claude-x", "Anthropic"),
        ("claude-opus-5-5", "claude-opus-5-5", "Anthropic"),
        ("gpt-5.5", "gpt-5.5", "OpenAI"),
        ("openai-responses:gpt-5.5", "gpt-5.5", "OpenAI"),
        ("openrouter:google/gemini-3.8-flash", "google/gemini-3.8-flash", "OpenRouter"),
        ("ollama:qwen3", "qwen3", "Ollama"),
        ("grok-4", "grok-4", "xAI"),
        ("vllm:any", "any", "vLLM"),
    ],
)
@pytest.mark.usefixtures("no_credentials")
def test_models_of_other_providers_are_found_without_their_credentials(name: str, model: str, service: str) -> None:
    provider = provider_of(name)
    assert (provider.model, provider.profile.service) == (model, service)


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({}, None),
        ({"GEMINI_API_KEY": "k"}, "gemini"),
        ({"GOOGLE_API_KEY": "k"}, "gemini"),
        ({"GEMINI_API_KEY": " "}, None),
        ({"GOOGLE_GENAI_USE_VERTEXAI": "true"}, "gemini"),
        ({"GOOGLE_GENAI_USE_VERTEXAI": "false"}, None),
        ({"GOOGLE_GENAI_USE_VERTEXAI": "0"}, None),
        ({"GOOGLE_GENAI_USE_ENTERPRISE": "true"}, "gemini"),
        ({"ANTHROPIC_API_KEY": "k"}, "anthropic"),
        ({"OPENAI_API_KEY": "k", "GEMINI_API_KEY": "k"}, "gemini"),
        ({"OPENAI_API_KEY": "k"}, "openai"),
        ({"MISTRAL_API_KEY": "k"}, "mistral"),
        ({"OLLAMA_HOST": "127.0.0.1"}, "ollama"),
    ],
)
def test_default_family_is_the_first_that_the_environment_configures(
    environment: dict[str, str], name: str | None
) -> None:
    family = default_family(environment)
    assert (None if family is None else family.name) == name


@pytest.mark.usefixtures("no_credentials")
def test_default_provider_belongs_to_the_default_family(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(default_provider(), MissingModel)
    monkeypatch.setenv("GEMINI_API_KEY", "k")
    assert isinstance(default_provider(), Gemini)


def test_fallback_family_needs_no_credentials() -> None:
    assert offline_family().name == "offline"
    assert offline_family().environment == ()


def test_credential_variables_are_those_of_the_first_families() -> None:
    assert credential_variables() == "GEMINI_API_KEY, ANTHROPIC_API_KEY, OPENAI_API_KEY or another provider's key"


@pytest.mark.usefixtures("no_credentials")
@pytest.mark.parametrize("streamed", [False, True])
def test_agent_without_model_and_key_raises_at_its_first_request_and_names_three_ways_to_go_on(streamed: bool) -> None:
    async def ask(agent: Agent) -> None:
        if not streamed:
            await agent.run("hi")
        async for _ in agent.stream("hi"):
            pass

    agent = Agent()
    assert isinstance(agent.provider, MissingModel)
    assert isinstance(agent.provider, Provider)
    with pytest.raises(ConfigError) as raised:
        asyncio.run(ask(agent))
    assert re.fullmatch(
        r"no model is configured: set GEMINI_API_KEY, \w+, \w+ or another provider's key, name a model, for example "
        r"Agent\('gemini:[^']+'\), or use Agent\('offline'\), which only calls tools",
        str(raised.value),
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nobody:x", "unknown provider 'nobody'; known providers: anthropic, azure, .*gemini, .*offline"),
        ("nope:x", "unknown provider 'nope'; known providers: anthropic, "),
        ("x-1", "unknown model 'x-1'; use 'provider:model', for example 'gemini:.*'; providers: anthropic, azure, "),
        ("offline:x", "'offline' has only one model; use 'offline' instead of 'offline:x'"),
    ],
)
def test_name_that_cannot_be_resolved_is_a_config_error(name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        provider_of(name)


def test_every_family_has_a_name_of_its_own_and_at_least_one_needs_no_credentials() -> None:
    known = list(families())
    assert len({family.name for family in known}) == len(known)
    assert any(not family.environment for family in known)


def test_type_error_inside_a_provider_is_not_reported_as_a_missing_model_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(model: str = "m") -> Provider:
        raise TypeError(f"{model} + 1")

    def named(model: str) -> Provider:
        raise AssertionError(model)

    for make, error, words in ((broken, TypeError, r"m \+ 1"), (named, ConfigError, "'x' needs a model name after")):
        monkeypatch.setattr(registry, "_family", lambda _, make=make: ProviderFamily(name="x", make=make))
        with pytest.raises(error, match=words):
            provider_of("x:")


@pytest.mark.usefixtures("no_credentials")
def test_check_of_a_family_without_a_key_is_a_note() -> None:
    async def main() -> None:
        for name in ("anthropic", "openai"):
            family = find_family(name)
            assert family.check is not None
            assert [check.state for check in await family.check()] == ["note"]

    asyncio.run(main())


@pytest.mark.usefixtures("no_credentials")
def test_credentials_of_a_model_are_checked_before_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    check_credentials("offline")
    check_credentials("ollama:qwen3")
    with pytest.raises(CredentialsError, match="no OpenAI API key: set OPENAI_API_KEY") as raised:
        check_credentials("openai-responses:gpt-5.5")
    assert "midspan keys set openai-responses" in str(raised.value.shell_message)
    with pytest.raises(CredentialsError, match="no Gemini API key"):
        check_credentials("gemini-3.8-flash")
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "1")
    check_credentials("gemini-3.8-flash")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    check_credentials("openai-responses:gpt-5.5")


@pytest.mark.usefixtures("no_credentials")
def test_family_of_a_model_or_of_the_default_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (family_name("claude-x"), family_name("offline"), family_name(None)) == ("anthropic", "offline", "")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert family_name(None) == "openai"


def test_variables_of_a_family_are_found_by_any_of_them() -> None:
    assert family_variables("GEMINI_API_KEY") == ("GOOGLE_API_KEY", "GEMINI_API_KEY")
    assert family_variables("NOBODYS_KEY") == ("NOBODYS_KEY",)


def find_family(name: str) -> ProviderFamily:
    return next(family for family in families() if family.name == name)


def test_family_that_shares_its_key_with_another_one_is_never_the_default() -> None:
    environment = {"OPENAI_API_KEY": "k", "GEMINI_API_KEY": "k"}
    for name, is_configured in (("openai", True), ("openai-responses", False), ("google-openai", False)):
        assert find_family(name).has_credentials(environment) == is_configured
    assert find_family("groq").environment == ("GROQ_API_KEY",)
