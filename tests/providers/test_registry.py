"""From names to providers, and which family is chosen where none is named."""

import pytest

from midspan.errors import ConfigError
from midspan.providers.registry import default_family, fallback_notice, families, provider_of


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({}, "offline"),
        ({"GEMINI_API_KEY": "k"}, "gemini"),
        ({"GOOGLE_API_KEY": "k"}, "gemini"),
        ({"GEMINI_API_KEY": " "}, "offline"),
        ({"GOOGLE_GENAI_USE_VERTEXAI": "true"}, "gemini"),
        ({"GOOGLE_GENAI_USE_VERTEXAI": "false"}, "offline"),
        ({"GOOGLE_GENAI_USE_VERTEXAI": "0"}, "offline"),
        ({"GOOGLE_GENAI_USE_ENTERPRISE": "true"}, "gemini"),
    ],
)
def test_the_default_family_is_the_first_that_the_environment_configures(
    environment: dict[str, str], name: str
) -> None:
    assert default_family(environment).name == name


def test_the_fallback_is_announced_with_the_variables_that_would_change_it() -> None:
    notice = fallback_notice(default_family({}))
    assert "so the offline model answers" in notice
    assert "Set GOOGLE_API_KEY or GEMINI_API_KEY, or name a model." in notice


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nobody:x", "unknown provider 'nobody' in 'nobody:x'; known providers: gemini, offline"),
        ("gpt-4o", "unknown model 'gpt-4o'; use 'provider:model', for example 'gemini:gpt-4o'"),
        ("offline:x", "'offline' has only one model; use 'offline' instead of 'offline:x'"),
    ],
)
def test_a_name_that_cannot_be_resolved_is_an_error_that_helps(name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        provider_of(name)


def test_every_family_has_a_name_of_its_own_and_at_least_one_needs_no_credentials() -> None:
    known = list(families())
    assert len({family.name for family in known}) == len(known)
    assert any(not family.environment for family in known)
