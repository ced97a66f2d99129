"""Keys and tokens stay out of errors and tracebacks."""

import asyncio
import pickle
import traceback
from typing import Any

import pytest

from midspan import Agent, Gemini
from midspan.errors import ConfigError, CredentialsError, InvalidRequestError, ProviderError
from midspan.gemini import Client
from midspan.providers import RetryPolicy
from midspan.providers.auth import ApiKey, EnvironmentKey
from tests.gemini.recorder import recorder

SECRET = "ya29.very-secret-token"
CONNECTIONS: list[dict[str, Any]] = [
    {"api_key": SECRET},
    {"vertex": True, "project": "p", "token": lambda: SECRET},
    {"api_key": "other-key", "headers": {"x-gateway-token": SECRET}},
]


def fail(answer: Any, status: int, connection: dict[str, Any], *, stream: bool) -> ProviderError:
    """Return the error of a run whose server gives this answer."""
    with recorder() as server:
        server.answer(answer, status=status)
        agent = Agent(Gemini(base_url=server.url, retry=RetryPolicy(max_attempts=1), **connection))

        async def main() -> None:
            if not stream:
                await agent.run("hi")
            async with agent.stream("hi") as events:
                async for _ in events:
                    pass

        with pytest.raises(ProviderError) as raised:
            asyncio.run(main())
    return raised.value


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("connection", CONNECTIONS, ids=["key", "token", "header"])
@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (400, {"error": {"code": 400, "message": f"bad key {SECRET}"}}),
        (502, f"<html>you sent Authorization: Bearer {SECRET}</html>".encode()),
        (200, {"error": {"code": 400, "message": f"bad key {SECRET}"}}),
        (200, f"{{not JSON: {SECRET}".encode()),
    ],
    ids=["error", "page", "error inside", "text"],
)
def test_secret_that_a_gateway_quotes_is_masked(
    status: int, answer: Any, connection: dict[str, Any], stream: bool
) -> None:
    error = fail(answer, status, connection, stream=stream)
    assert "***" in str(error)
    assert SECRET not in "".join(traceback.format_exception(error))


def test_secret_is_masked_in_details_and_violations() -> None:
    violation = {"field": f"headers[{SECRET}]", "description": SECRET}
    detail = {"@type": "google.rpc.BadRequest", "fieldViolations": [violation], "metadata": {SECRET: [SECRET]}}
    answer = {"error": {"code": 400, "message": "bad", "details": [detail]}}
    error = fail(answer, 400, CONNECTIONS[0], stream=False)
    assert isinstance(error, InvalidRequestError)
    assert error.violations == (("headers[***]", "***"),)
    assert error.details[0]["metadata"] == {"***": ["***"]}


@pytest.mark.parametrize("connection", CONNECTIONS[:2], ids=["key", "token"])
@pytest.mark.parametrize("stream", [False, True])
def test_secret_is_not_shown_by_a_traceback_with_locals(connection: dict[str, Any], stream: bool) -> None:
    error = fail({"error": {"code": 400, "message": "bad"}}, 400, connection, stream=stream)
    frames = traceback.TracebackException.from_exception(error, capture_locals=True).stack
    values = [value for frame in frames if "/midspan/" in frame.filename for value in (frame.locals or {}).values()]
    assert values
    assert not any(SECRET in value for value in values)


@pytest.mark.parametrize("is_async", [False, True])
def test_token_that_cannot_be_sent_is_not_shown_by_a_traceback_with_locals(is_async: bool) -> None:
    async def later() -> str:
        return f"{SECRET}\nx: y"

    token = later if is_async else lambda: f"{SECRET}\nx: y"
    agent = Agent(Gemini(base_url="http://127.0.0.1:1", vertex=True, project="p", token=token))
    with pytest.raises(ConfigError, match="token") as raised:
        agent.run_sync("hi")
    frames = traceback.TracebackException.from_exception(raised.value, capture_locals=True).stack
    assert not [frame for frame in frames if SECRET in str(frame.locals) and "/midspan/" in frame.filename]
    assert SECRET not in str(raised.value)


def test_short_header_values_are_not_masked() -> None:
    error = fail({"error": {"code": 400, "message": "a key is bad"}}, 400, {"api_key": "a"}, stream=False)
    assert str(error) == "Gemini answered 400: a key is bad"


@pytest.mark.parametrize("make", [ApiKey, lambda key: Gemini(api_key=key), lambda key: Client(api_key=key)])
def test_key_is_neither_pickled_nor_shown(make: Any) -> None:
    holder = make(SECRET)
    with pytest.raises(TypeError, match="an API key cannot be pickled"):
        pickle.dumps(holder)
    assert SECRET not in f"{holder!r} {vars(holder)!r}"


VARIABLES = {"PARROT_KEY": ("authorization", "Bearer "), "OTHER_KEY": ("x-key", "")}


def environment_headers(**options: Any) -> dict[str, str]:
    return dict(asyncio.run(EnvironmentKey("Parrot", VARIABLES, **options).headers()))


def test_key_of_the_environment_is_sent_in_the_header_of_its_variable(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PARROT_KEY", " ")
    monkeypatch.setenv("OTHER_KEY", "k1")
    assert environment_headers() == {"x-key": "k1"}
    assert caplog.messages == []
    monkeypatch.setenv("PARROT_KEY", "k2")
    assert environment_headers() == {"authorization": "Bearer k2"}
    assert caplog.messages == ["both PARROT_KEY and OTHER_KEY are set; PARROT_KEY is used"]


def test_missing_key_is_an_error_unless_it_is_optional() -> None:
    assert environment_headers(is_optional=True) == {}
    with pytest.raises(CredentialsError) as raised:
        environment_headers(page="https://parrot.example/keys")
    expected = "no Parrot API key: set PARROT_KEY or OTHER_KEY, or pass api_key=…"
    assert str(raised.value) == f"{expected}; create a key at https://parrot.example/keys"
    with pytest.raises(CredentialsError, match=r"pass api_key=…$"):
        environment_headers()


@pytest.mark.parametrize("key", ["", "  ", "kéy", "a\nb"])
def test_key_that_cannot_be_sent_is_an_error(key: str) -> None:
    with pytest.raises(CredentialsError, match="the API key"):
        ApiKey(key)
