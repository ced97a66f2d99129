"""The official client works with the emulator unchanged; requests with which it breaks a rule are rejected."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from midspan.emulator import Answer, LocalGemini, answer, call
from tests.bounds import BOUND

genai = pytest.importorskip("google.genai", reason="google-genai is not installed")
types, errors = genai.types, genai.errors

MODEL = "gemini-3.8-flash"
# The client warns that its own automatic calls will go away, and that text beside calls is not all there is.
pytestmark = pytest.mark.filterwarnings("ignore")


def get_weather(city: str) -> dict[str, Any]:
    """The weather in a city."""
    return {"city": city, "degrees": 5}


WEATHER = [call("get_weather", city="Oslo"), "It is 5 degrees in Oslo."]


@pytest.fixture
def server() -> Iterator[LocalGemini]:
    with LocalGemini(WEATHER) as server:
        yield server


def client(server: LocalGemini, **options: Any) -> Any:
    return genai.Client(api_key="k", http_options=types.HttpOptions(base_url=server.url, **options))


def automatic(**more: Any) -> Any:
    return types.GenerateContentConfig(tools=[get_weather], **more)


def test_it_calls_functions_automatically(server: LocalGemini) -> None:
    with client(server) as api:
        response = api.models.generate_content(model=MODEL, contents="Weather?", config=automatic())
    assert response.text == "It is 5 degrees in Oslo."
    assert response.usage_metadata.total_token_count > response.usage_metadata.prompt_token_count > 0
    assert response.candidates[0].finish_reason == "STOP"
    assert len(server.requests) == 2
    call_made, result = response.automatic_function_calling_history[-2:]
    assert call_made.parts[0].function_call.id
    assert call_made.parts[0].thought_signature
    assert result.parts[0].function_response.id is None, "so the emulator must accept results without an id"


@pytest.mark.parametrize("version", ["v1", "v1beta", "v1alpha"])
def test_it_streams_in_every_version(server: LocalGemini, version: str) -> None:
    with client(server, api_version=version) as api:
        chunks = list(api.models.generate_content_stream(model=MODEL, contents="Weather?", config=automatic()))
    assert "".join(chunk.text or "" for chunk in chunks) == "It is 5 degrees in Oslo."
    assert len(chunks) > 3


def test_it_chats(server: LocalGemini) -> None:
    with client(server) as api:
        chat = api.chats.create(model=MODEL, config=automatic())
        assert chat.send_message("Weather?").text == "It is 5 degrees in Oslo."
        assert chat.send_message("Thanks.").text == "It is 5 degrees in Oslo."
        assert "".join(chunk.text or "" for chunk in chat.send_message_stream("And?")) == "It is 5 degrees in Oslo."
    assert not server.errors


def test_it_works_async() -> None:
    async def main() -> None:
        async with asyncio.timeout(2 * BOUND), LocalGemini(WEATHER) as server, client(server).aio as api:
            response = await api.models.generate_content(model=MODEL, contents="Weather?", config=automatic())
            assert response.text == "It is 5 degrees in Oslo."
            stream = await api.models.generate_content_stream(model=MODEL, contents="Hi.", config=automatic())
            assert "".join([chunk.text or "" async for chunk in stream]) == "It is 5 degrees in Oslo."
            chat = api.chats.create(model=MODEL, config=automatic())
            assert (await chat.send_message("Weather?")).text == "It is 5 degrees in Oslo."
            assert (await api.models.count_tokens(model=MODEL, contents="Hello there.")).total_tokens > 0

    asyncio.run(main())


def test_it_uses_vertex() -> None:
    with LocalGemini(WEATHER) as server:
        options = types.HttpOptions(base_url=server.url, api_version="v1beta1")
        with genai.Client(vertexai=True, api_key="k", http_options=options) as api:
            response = api.models.generate_content(model=MODEL, contents="Weather?", config=automatic())
        assert response.text == "It is 5 degrees in Oslo."


def test_it_counts_tokens_and_lists_and_gets_models(server: LocalGemini) -> None:
    with client(server) as api:
        assert api.models.count_tokens(model=MODEL, contents="Hello there.").total_tokens == 4
        names = [item.name for item in api.models.list()]
        assert f"models/{MODEL}" in names
        paged = [item.name for item in api.models.list(config={"page_size": 2})]
        assert paged == names
        info = api.models.get(model=MODEL)
        assert (info.name, info.input_token_limit) == (f"models/{MODEL}", 1_048_576)


def test_it_creates_uses_and_deletes_caches(server: LocalGemini) -> None:
    with client(server) as api:
        system = "You know the weather. " * 300
        declared = types.Tool(function_declarations=[types.FunctionDeclaration(name="get_weather")])
        cache = api.caches.create(
            model="gemini-3.5-flash",
            config=types.CreateCachedContentConfig(
                system_instruction=system, tools=[declared], ttl="60s", display_name="weather"
            ),
        )
        assert cache.usage_metadata.total_token_count > 1_024
        assert api.caches.get(name=cache.name).display_name == "weather"
        later = api.caches.update(name=cache.name, config=types.UpdateCachedContentConfig(ttl="600s"))
        assert later.expire_time > cache.expire_time
        assert [item.name for item in api.caches.list()] == [cache.name]
        config = types.GenerateContentConfig(cached_content=cache.name)
        response = api.models.generate_content(model="gemini-3.5-flash", contents="Weather?", config=config)
        assert response.function_calls[0].name == "get_weather"
        assert response.usage_metadata.cached_content_token_count == cache.usage_metadata.total_token_count
        with pytest.raises(errors.ClientError, match="has to be the same"):
            api.models.generate_content(model=MODEL, contents="Weather?", config=config)
        with_tools = automatic(cached_content=cache.name)
        with pytest.raises(errors.ClientError, match="CachedContent can not be used with GenerateContent request"):
            api.models.generate_content(model="gemini-3.5-flash", contents="Weather?", config=with_tools)
        api.caches.delete(name=cache.name)
        with pytest.raises(errors.ClientError, match="CachedContent not found") as rejected:
            api.caches.get(name=cache.name)
        assert rejected.value.code == 403
        with pytest.raises(errors.ClientError, match="Cached content is too small"):
            api.caches.create(model=MODEL, config=types.CreateCachedContentConfig(system_instruction="Be brief."))


def test_error_responses_become_its_own_errors() -> None:
    plan = "0:status_503 1:rate_limit(seconds=7) 2:error_event(chunk=1) 3:error_list"
    with LocalGemini(WEATHER, faults=plan) as server, client(server) as api:
        with pytest.raises(errors.ClientError) as rejected:
            api.models.generate_content(model="gemini-nonexistent", contents="Hi.")
        assert (rejected.value.code, rejected.value.status) == (404, "NOT_FOUND")
        with pytest.raises(errors.ServerError) as failed:
            api.models.generate_content(model=MODEL, contents="Hi.")
        assert failed.value.code == 503
        with pytest.raises(errors.ClientError) as limited:
            api.models.generate_content(model=MODEL, contents="Hi.")
        assert limited.value.details["error"]["details"][-1]["retryDelay"] == "7s"
        with pytest.raises(errors.ServerError):
            list(api.models.generate_content_stream(model=MODEL, contents="Hi."))
        with pytest.raises(errors.ServerError):
            api.models.generate_content(model=MODEL, contents="Hi.")
        wrong = genai.Client(api_key="invalid", http_options=types.HttpOptions(base_url=server.url))
        with wrong, pytest.raises(errors.ClientError, match="API key not valid"):
            wrong.models.generate_content(model=MODEL, contents="Hi.")


def test_it_joins_continued_answers() -> None:
    with LocalGemini(["A long story, told in two parts."], faults="0:continuation") as server, client(server) as api:
        response = api.models.generate_content(model="gemini-4-argon", contents="A story.")
        assert response.text == "A long story, told in two parts."
        assert len(server.requests) == 2


def test_mode_any_repeats_calls_until_its_limit() -> None:
    """It keeps mode ANY after the first call, so the model never answers with text."""
    config = automatic(
        tool_config=types.ToolConfig(function_calling_config=types.FunctionCallingConfig(mode="ANY")),
        automatic_function_calling=types.AutomaticFunctionCallingConfig(maximum_remote_calls=3),
    )
    with LocalGemini(["I would rather talk."]) as server, client(server) as api:
        response = api.models.generate_content(model=MODEL, contents="Weather?", config=config)
        assert response.function_calls[0].args == {"city": "text"}
        assert len(server.requests) == 3


@pytest.mark.parametrize("model", ["gemini-2.5-flash", "gemini-3-flash-preview", MODEL, "gemini-4-argon"])
def test_it_streams_automatic_calls_that_follow_text(model: str) -> None:
    """The client sends each chunk back as a content of its own; together they are item turn of the model."""
    calls = [answer("Let me see.", call("get_weather", city=city)) for city in ("Oslo", "Rome")]
    with LocalGemini([*calls, "It is cold."]) as server, client(server) as api:
        chunks = list(api.models.generate_content_stream(model=model, contents="Weather?", config=automatic()))
        assert "".join(chunk.text or "" for chunk in chunks) == "Let me see.Let me see.It is cold."
        assert len(server.requests) == 3


def test_it_receives_several_candidates() -> None:
    config = types.GenerateContentConfig(candidate_count=3)
    with LocalGemini(["Hello."]) as server, client(server) as api:
        response = api.models.generate_content(model="gemini-2.5-flash", contents="Hi.", config=config)
        assert [candidate.index for candidate in response.candidates] == [0, 1, 2]
        assert [candidate.content.parts[0].text for candidate in response.candidates] == ["Hello."] * 3
        assert response.usage_metadata.candidates_token_count == 6
        with pytest.raises(errors.ClientError, match="Multiple candidates is not enabled for this model"):
            api.models.generate_content(model=MODEL, contents="Hi.", config=config)


def test_a_call_of_an_unknown_function_raises_a_key_error_in_it() -> None:
    with LocalGemini([call("get_wether", city="Oslo")]) as server, client(server) as api, pytest.raises(KeyError):
        api.models.generate_content(model=MODEL, contents="Weather?", config=automatic())


def test_a_history_with_unsigned_calls_is_rejected(server: LocalGemini) -> None:
    history = [
        types.UserContent("Weather?"),
        types.ModelContent(types.Part.from_function_call(name="get_weather", args={"city": "Oslo"})),
        types.UserContent(types.Part.from_function_response(name="get_weather", response={"result": 5})),
    ]
    with client(server) as api:
        with pytest.raises(errors.ClientError, match="missing a thought_signature"):
            api.models.generate_content(model=MODEL, contents=history)
        assert api.models.generate_content(model="gemini-2.5-flash", contents=history).text


def get_time() -> str:
    """The time."""
    return "noon"


def test_it_skips_a_call_without_arguments_so_a_result_is_missing() -> None:
    parts = (call("get_time"), call("get_weather", city="Oslo"))
    config = types.GenerateContentConfig(tools=[get_weather, get_time])
    rejected = pytest.raises(errors.ClientError, match="number of function response parts is equal")
    with LocalGemini([answer(*parts), "It is noon, and cold."]) as server, client(server) as api, rejected:
        api.models.generate_content(model=MODEL, contents="Weather?", config=config)


def test_its_chat_forgets_results_if_a_stream_ends_without_parts() -> None:
    """The last chunk of real streams often has no parts; the chat then drops its whole last round."""
    end = {"candidates": [{"content": {"role": "model"}, "finishReason": "STOP"}]}
    text = {"candidates": [{"content": {"role": "model", "parts": [{"text": "It is cold."}]}}]}
    script = [call("get_weather", city="Oslo"), Answer(documents=(text, end)), "Well."]
    with LocalGemini(script) as server, client(server) as api:
        chat = api.chats.create(model=MODEL, config=automatic())
        assert "".join(chunk.text or "" for chunk in chat.send_message_stream("Weather?")) == "It is cold."
        with pytest.raises(errors.ClientError, match="Please ensure that"):
            chat.send_message("And now?")
