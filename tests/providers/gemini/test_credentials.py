import asyncio
import logging
import sys

import pytest

from wasat.errors import ConfigError, CredentialsError
from wasat.providers.gemini.credentials import ApiKey, BearerToken, developer_credentials, key_from, vertex_credentials

SECRET = "AIza-very-secret"


def headers(credentials: ApiKey | BearerToken) -> dict[str, str]:
    return dict(asyncio.run(credentials.headers()))


def test_the_key_is_given_or_found_in_the_environment(caplog: pytest.LogCaptureFixture) -> None:
    assert headers(developer_credentials(f" {SECRET}\n", {})) == {"x-goog-api-key": SECRET}
    assert headers(developer_credentials(None, {"GEMINI_API_KEY": SECRET})) == {"x-goog-api-key": SECRET}
    assert not caplog.records
    found = key_from({"GOOGLE_API_KEY": SECRET, "GEMINI_API_KEY": "other"})
    assert found is not None
    assert headers(found) == {"x-goog-api-key": SECRET}
    assert "both GOOGLE_API_KEY and GEMINI_API_KEY are set" in caplog.text
    assert SECRET not in caplog.text


def test_without_a_key_it_is_said_how_to_give_one() -> None:
    for environment in ({}, {"GOOGLE_API_KEY": " "}):
        with pytest.raises(CredentialsError, match="set GOOGLE_API_KEY or GEMINI_API_KEY"):
            developer_credentials(None, environment)


@pytest.mark.parametrize(
    ("key", "words"),
    [("", "is empty"), ("auth_tokens/x", "only Live sessions"), ("a\nb", "no key has"), ("ключ", "no key has")],
)
def test_what_is_no_key_is_refused_without_being_shown(key: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        ApiKey(key)
    assert not key or key not in str(raised.value)


def test_a_token_comes_from_a_function_of_the_caller_sync_or_async() -> None:
    async def later() -> str:
        return "t2"

    assert headers(BearerToken(lambda: "t1")) == {"Authorization": "Bearer t1"}
    assert headers(BearerToken(later, user_project="p")) == {"Authorization": "Bearer t2", "x-goog-user-project": "p"}


def test_vertex_takes_a_token_a_key_or_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert headers(vertex_credentials(None, lambda: "t", {})) == {"Authorization": "Bearer t"}
    assert headers(vertex_credentials(SECRET, None, {})) == {"x-goog-api-key": SECRET}
    monkeypatch.setitem(sys.modules, "google.auth", None)
    with pytest.raises(CredentialsError, match=r"give token=…"):
        vertex_credentials(None, None, {})


def test_secrets_are_not_shown() -> None:
    token = BearerToken(lambda: SECRET)
    shown = [repr(ApiKey(SECRET)), repr(token), *(repr(asyncio.run(one.headers())) for one in (ApiKey(SECRET), token))]
    shown += [str(asyncio.run(token.headers())), f"{asyncio.run(token.headers())}"]
    assert not any(SECRET in text for text in shown)
    logging.getLogger("x").warning("%s", asyncio.run(token.headers()))
