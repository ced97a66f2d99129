import asyncio
import json
import logging
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from midspan import Agent, Gemini
from midspan.errors import AuthenticationError, ConfigError, CredentialsError
from midspan.providers.auth import ApiKey, BearerToken
from midspan.providers.gemini.api import google_credentials
from midspan.providers.gemini.capabilities import Api
from tests.bounds import BOUND
from tests.gemini.recorder import recorder

SECRET = "AIza-very-secret"


def headers(credentials: ApiKey | BearerToken) -> dict[str, str]:
    return dict(asyncio.run(credentials.headers()))


def test_key_is_taken_from_the_argument_or_the_environment(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert headers(google_credentials(Api.DEVELOPER, f" {SECRET}\n", None)) == {"x-goog-api-key": SECRET}
    from_environment = google_credentials(Api.DEVELOPER, None, None)  # which is read when the first request is made
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    monkeypatch.setenv("GEMINI_API_KEY", SECRET)
    assert headers(from_environment) == {"x-goog-api-key": SECRET}
    assert not caplog.records
    monkeypatch.setenv("GOOGLE_API_KEY", SECRET)
    monkeypatch.setenv("GEMINI_API_KEY", "other")
    assert headers(google_credentials(Api.DEVELOPER, None, None)) == {"x-goog-api-key": SECRET}
    assert "both GOOGLE_API_KEY and GEMINI_API_KEY are set" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize("key", [None, " "])
def test_without_a_key_the_first_request_says_how_to_pass_one(monkeypatch: pytest.MonkeyPatch, key: str | None) -> None:
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    if key is not None:
        monkeypatch.setenv("GOOGLE_API_KEY", key)
    agent = Agent(Gemini())
    with pytest.raises(CredentialsError, match="set GOOGLE_API_KEY or GEMINI_API_KEY, or pass api_key"):
        agent.run_sync("Hello?")


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("", "is empty"),
        ("a\nb", "invalid characters"),
        ("ключ", "invalid characters"),
    ],
)
def test_an_invalid_key_is_an_error_that_does_not_show_it(key: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        google_credentials(Api.DEVELOPER, key, None)
    assert not key or key not in str(raised.value)


def test_a_token_comes_from_a_function_of_the_caller_sync_or_async() -> None:
    async def later() -> str:
        return "t2"

    assert headers(BearerToken(lambda: "t1")) == {"Authorization": "Bearer t1"}
    assert headers(BearerToken(later)) == {"Authorization": "Bearer t2"}


def test_a_plain_function_that_blocks_holds_up_nothing_else() -> None:
    asked, go_on = threading.Event(), threading.Event()

    def slow() -> str:
        asked.set()
        assert go_on.wait(BOUND), "nobody else could run meanwhile"
        return "t"

    async def main() -> None:
        async with asyncio.timeout(BOUND):
            waiting = asyncio.create_task(BearerToken(slow).headers())
            await asyncio.to_thread(asked.wait, 5)
            go_on.set()
            assert dict(await waiting) == {"Authorization": "Bearer t"}

    asyncio.run(main())


def test_whatever_is_async_runs_on_the_loop_of_its_caller() -> None:
    async def give() -> str:
        return threading.current_thread().name

    class Giver:
        async def __call__(self) -> str:
            return threading.current_thread().name

    here = {"Authorization": f"Bearer {threading.current_thread().name}"}
    assert headers(BearerToken(give)) == headers(BearerToken(Giver())) == headers(BearerToken(partial(give))) == here
    assert headers(BearerToken(lambda: give())) == here
    assert headers(BearerToken(lambda: threading.current_thread().name)) != here


def test_a_token_is_requested_each_time_and_its_error_is_raised() -> None:
    tokens = iter(("t1", "t2"))
    token = BearerToken(lambda: next(tokens, ""))
    assert [headers(token)["Authorization"] for _ in range(2)] == ["Bearer t1", "Bearer t2"]

    def fail() -> str:
        raise PermissionError("no metadata server")

    with pytest.raises(AuthenticationError, match="the function token=… raised PermissionError: no metadata server"):
        headers(BearerToken(fail))


TOKEN = {"access_token": "t", "issued_token_type": "access", "token_type": "Bearer", "expires_in": 3600}


def use_google_auth(monkeypatch: pytest.MonkeyPatch, folder: Path, url: str) -> None:
    """Have google-auth exchange a token that lies in a file, as it does on machines outside of Google's cloud."""
    (folder / "subject").write_text("who I am")
    found = {
        "type": "external_account",
        "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/a/providers/b",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": f"{url}/token",
        "credential_source": {"file": str(folder / "subject")},
    }
    (folder / "credentials.json").write_text(json.dumps(found))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(folder / "credentials.json"))
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")  # or it asks the cloud whose project that is


def test_google_auth_gives_the_token_without_blocking_and_renews_it_once_for_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def main() -> None:
        credentials = google_credentials(Api.VERTEX, None, None)
        given = await asyncio.gather(*(credentials.headers() for _ in range(20)))
        assert all(dict(one) == {"Authorization": "Bearer t"} for one in given)

    with recorder() as server:
        server.answer(TOKEN)
        use_google_auth(monkeypatch, tmp_path, server.url)
        asyncio.run(main())
        assert [one.body["subject_token"] for one in server.seen] == ["who I am"]


@pytest.mark.parametrize(
    ("refusal", "kind", "words"),
    [
        ({"error": "invalid_grant", "error_description": "who?"}, AuthenticationError, "no token for Vertex: .*who?"),
        (None, CredentialsError, "no credentials for Vertex: .*nowhere.json was not found"),
    ],
)
def test_errors_of_google_auth_are_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, refusal: Any, kind: type[Exception], words: str
) -> None:
    with recorder() as server:
        server.answer(refusal, status=400)
        use_google_auth(monkeypatch, tmp_path, server.url)
        if refusal is None:
            monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "nowhere.json"))
        with pytest.raises(kind, match=words):
            headers(google_credentials(Api.VERTEX, None, None))


def test_vertex_accepts_a_token_or_a_key_and_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert headers(google_credentials(Api.VERTEX, None, lambda: "t")) == {"Authorization": "Bearer t"}
    assert headers(google_credentials(Api.VERTEX, SECRET, None)) == {"x-goog-api-key": SECRET}
    monkeypatch.setitem(sys.modules, "google.auth", None)
    with pytest.raises(CredentialsError, match=r"pass token=…"):
        headers(google_credentials(Api.VERTEX, None, None))


def test_secrets_are_not_shown() -> None:
    token = BearerToken(lambda: SECRET)
    shown = [repr(ApiKey(SECRET)), repr(token), *(repr(asyncio.run(one.headers())) for one in (ApiKey(SECRET), token))]
    shown += [str(asyncio.run(token.headers())), f"{asyncio.run(token.headers())}"]
    assert not any(SECRET in text for text in shown)
    logging.getLogger("x").warning("%s", asyncio.run(token.headers()))


@pytest.mark.parametrize("value", [5, None, "", "é"])
def test_an_invalid_token_is_an_error(value: Any) -> None:
    with pytest.raises(CredentialsError, match="must return a token"):
        asyncio.run(BearerToken(lambda: value).headers())
