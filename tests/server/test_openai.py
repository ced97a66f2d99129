"""The official client of OpenAI works with /v1: plain and streamed answers, tools of both sides, errors."""

import asyncio
import json
from typing import Any

import openai
import pytest

from midspan import Agent, Gemini
from midspan.emulator import LocalGemini, answer, call
from midspan.errors import ServerError
from midspan.messages import Text, Thought, ToolCall
from midspan.testing import ScriptedProvider
from tests.bounds import BOUND
from tests.server.serving import Served, add, data_lines, pausing_agent, serving, sum_agent
from tests.server.test_runs import Gate

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
ASK: Any = [{"role": "user", "content": "1 + 2?"}]


def client_of(server: Served, **options: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0, timeout=BOUND, **options)


@pytest.mark.requirement("H-05")
def test_answer_and_models() -> None:
    with serving(sum_agent(), provider="scripted") as server, client_of(server) as client:
        completion = client.chat.completions.create(model="scripted", messages=ASK)
        assert completion.choices[0].message.content == "It is 3."
        assert completion.choices[0].finish_reason == "stop"
        assert completion.usage is not None
        assert [model.id for model in client.models.list()] == ["scripted:scripted"]
        assert client.models.retrieve("scripted:scripted").owned_by == "scripted"


def test_streamed_answer() -> None:
    with serving(sum_agent()) as server, client_of(server) as client:
        chunks = list(
            client.chat.completions.create(
                model="scripted", messages=ASK, stream=True, stream_options={"include_usage": True}
            )
        )
        texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
        assert "".join(texts) == "Let me see.\n\nIt is 3."
        assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
        assert chunks[-1].usage is not None
        assert len({chunk.id for chunk in chunks}) == 1


def test_text_of_a_model_that_paused_is_streamed_once() -> None:
    for agent, text in (
        (pausing_agent(), "One two three."),
        (pausing_agent(Text("Hm."), ToolCall("c1", "add", {"a": 1, "b": 2})), "One two Hm.\n\nthree."),
    ):
        with serving(agent) as server, client_of(server) as client:
            stream = client.chat.completions.create(model="scripted", messages=ASK, stream=True)
            assert "".join([chunk.choices[0].delta.content or "" for chunk in stream]) == text


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{"type": "function", "function": {"name": "x\n"}}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/a\n"}}]}]},
    ],
)
def test_line_break_at_the_end_of_a_name_or_a_url_is_refused(fields: Any) -> None:
    with serving(sum_agent()) as server:
        response = server.post("/v1/chat/completions", {"messages": ASK, **fields})
        assert response.status_code == 400
        assert "expected text that matches" in response.json()["error"]["message"]


def test_async_client() -> None:
    async def main(url: str) -> None:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
            whole = await client.chat.completions.create(model="scripted", messages=ASK)
            assert whole.choices[0].message.content == "It is 3."
            stream = await client.chat.completions.create(model="scripted", messages=ASK, stream=True)
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
            assert text.endswith("It is 3.")

    with serving(sum_agent()) as server:
        asyncio.run(main(server.url))


@pytest.mark.parametrize("stream", [False, True])
def test_tools_of_the_client_are_handed_back_to_it(stream: bool) -> None:
    def respond(request: Any) -> Any:
        results = request.history[-1].results
        return Text(f"It is {results[0].value}.") if results else ToolCall("x", "get_weather", {"city": "Oslo"})

    model = ScriptedProvider(respond)
    with serving(Agent(model, [add])) as server, client_of(server) as client:
        message = asked(client, ASK, stream)
        [made] = message["tool_calls"]
        assert (made["function"]["name"], json.loads(made["function"]["arguments"])) == (
            "get_weather",
            {"city": "Oslo"},
        )
        result = {"role": "tool", "tool_call_id": made["id"], "content": "cold"}
        final = asked(client, [*ASK, {"role": "assistant", **message}, result], stream)
        assert final["content"] == "It is cold."
        history = model.requests[-1].history
        assert [message.role for message in history] == ["user", "model", "user"]
        assert (history[1].calls[0].id, history[2].results[0].id) == ("x", "x")
        assert {tool.name for tool in model.requests[0].config.tools} == {"add", "get_weather"}


@pytest.mark.requirement("H-05")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("forgets", [False, True])
def test_turn_with_calls_of_both_sides_runs_the_servers_first(stream: bool, forgets: bool) -> None:
    def respond(request: Any) -> Any:
        results = request.history[-1].results
        if not results:
            both = [ToolCall("s", "add", {"a": 1, "b": 2}), ToolCall("c", "get_weather", {"city": "Oslo"})]
            return [Text("Both."), *both]
        return Text(" and ".join(str(result.value) for result in results))

    with serving(Agent(ScriptedProvider(respond), [add])) as server, client_of(server) as client:
        message = asked(client, ASK, stream)
        assert message["content"] == "Both."
        [made] = message["tool_calls"]
        assert made["function"]["name"] == "get_weather"
        if forgets:  # the client's own words have to do
            [run] = server.get("/api/v1/runs").json()["runs"]
            asyncio.run(server.app.service.journal.delete(run["run_id"]))
        result = {"role": "tool", "tool_call_id": made["id"], "content": "cold"}
        final = asked(client, [*ASK, {"role": "assistant", **message}, result], stream)
        assert final["content"] == ("cold" if forgets else "3 and cold")


def test_both_sides_with_gemini_keep_what_the_service_demands() -> None:
    """The strict local Gemini rejects calls without their signatures, and results that do not match their calls."""
    script = [
        answer("Both. ", call("add", a=1, b=2), call("get_weather", city="Oslo")),
        call("get_weather", city="Bergen"),
        "It is 3, and cold.",
    ]
    with LocalGemini(script, strict_signatures=True) as gemini:
        agent = Agent(Gemini("gemini-3.8-flash", api_key="k", base_url=gemini.url), [add])
        with serving(agent) as server, client_of(server) as client:
            messages: list[Any] = [*ASK]
            for _ in range(2):
                message = asked(client, messages, stream=False)
                [made] = message["tool_calls"]
                result = {"role": "tool", "tool_call_id": made["id"], "content": "cold"}
                messages += [{"role": "assistant", **message}, result]
            assert asked(client, messages, stream=False)["content"] == "It is 3, and cold."
        assert not gemini.errors


def asked(client: openai.OpenAI, messages: Any, stream: bool) -> dict[str, Any]:
    """The message of the answer, put together from chunks if it is streamed."""
    if not stream:
        completion = client.chat.completions.create(model="", messages=messages, tools=[WEATHER])
        message = completion.choices[0].message.model_dump(exclude_none=True)
        assert (completion.choices[0].finish_reason == "tool_calls") == ("tool_calls" in message)
        return {"content": None, **{key: message[key] for key in ("content", "tool_calls") if key in message}}
    content, calls, reason = "", [], None
    for chunk in client.chat.completions.create(model="", messages=messages, tools=[WEATHER], stream=True):
        choice = chunk.choices[0]
        content += choice.delta.content or ""
        calls += [call.model_dump(exclude={"index"}) for call in choice.delta.tool_calls or ()]
        reason = choice.finish_reason or reason
    assert (reason == "tool_calls") == bool(calls)
    return {"content": content or None, **({"tool_calls": calls} if calls else {})}


def test_wrong_arguments_never_reach_the_client() -> None:
    turns = iter([ToolCall("1", "get_weather", {"town": 1}), ToolCall("2", "get_weather", {"city": "Oslo"})])
    model = ScriptedProvider(lambda request: next(turns))
    with serving(Agent(model)) as server, client_of(server) as client:
        [made] = asked(client, ASK, stream=False)["tool_calls"]
        assert json.loads(made["function"]["arguments"]) == {"city": "Oslo"}
        assert model.requests[1].history[-1].results[0].is_error


def test_tool_of_the_request_must_not_have_the_name_of_one_of_the_server() -> None:
    model = ScriptedProvider(lambda request: Text("No."))
    named_add: Any = {"type": "function", "function": {"name": "add"}}
    with serving(Agent(model, [add])) as server, client_of(server) as client:
        with pytest.raises(openai.BadRequestError, match="the server has a tool 'add' of its own"):
            client.chat.completions.create(model="", messages=ASK, tools=[WEATHER, named_add])
        assert model.requests == []


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("form", "missing"),
    [
        ({"type": "yaml"}, 'response_format.type must be "text", "json_object" or "json_schema"'),
        ({"type": "json_schema"}, "response_format.json_schema is required"),
        ({"type": "json_schema", "json_schema": {"name": "s"}}, "response_format.json_schema.schema is required"),
    ],
)
def test_wrong_response_format_is_refused(stream: bool, form: dict[str, Any], missing: str) -> None:
    with serving(sum_agent()) as server:
        response = server.post("/v1/chat/completions", {"messages": ASK, "response_format": form, "stream": stream})
        assert (response.status_code, response.json()["error"]["message"]) == (400, missing)


def test_system_prompts_settings_images_and_typed_output_reach_the_model() -> None:
    model = ScriptedProvider(lambda request: Text('{"sum": 3}'))
    with serving(Agent(model, system="Be kind.")) as server, client_of(server) as client:
        completion = client.chat.completions.create(
            model="",
            messages=[
                {"role": "system", "content": "Be brief."},
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "Look."},
                        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
                    ],
                },
            ],
            temperature=0.5,
            max_completion_tokens=100,
            stop=["END"],
            reasoning_effort="low",
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "s", "schema": {"type": "object", "properties": {"sum": {"type": "integer"}}}},
            },
        )
        assert completion.choices[0].message.content == '{"sum": 3}'
        config = model.requests[0].config
        assert config.system == "Be kind.\n\nBe brief."
        settings = config.settings
        assert (settings.temperature, settings.max_tokens, settings.stop, settings.thinking) == (
            0.5, 100, ("END",), "low",
        )  # fmt: skip
        image = model.requests[0].history[0].parts[1]
        assert (image.media_type, image.data[:4]) == ("image/png", b"\x89PNG")
        assert config.output is not None


def test_tool_choice_is_that_of_the_request() -> None:
    model = ScriptedProvider(lambda request: Text("No."))
    with serving(Agent(model, [add])) as server, client_of(server) as client:
        client.chat.completions.create(model="", messages=ASK, tool_choice="none")
        choice = model.requests[-1].config.tool_choice
        assert choice is not None
        assert choice.mode == "none"
        with pytest.raises(openai.BadRequestError, match="'missing', which is not a tool"):
            client.chat.completions.create(
                model="", messages=ASK, tool_choice={"type": "function", "function": {"name": "missing"}}
            )


def test_thoughts_are_streamed_as_reasoning() -> None:
    model = ScriptedProvider([[Thought("Hm."), Text("Yes.")]])
    with serving(Agent(model)) as server:
        text = server.post("/v1/chat/completions", {"messages": ASK, "stream": True}).text
        deltas = [chunk["choices"][0]["delta"] for chunk in data_lines(text)]
        assert {"reasoning_content": "Hm."} in deltas
        assert text.endswith("data: [DONE]\n\n")


def test_errors_have_the_form_of_the_api() -> None:
    with serving(Agent(ScriptedProvider(lambda _: ServerError("/secret")))) as server, client_of(server) as client:
        with pytest.raises(openai.NotFoundError, match="is not available here") as unknown:
            client.chat.completions.create(model="gpt-9", messages=ASK)
        assert unknown.value.code == "model_not_found"
        with pytest.raises(openai.InternalServerError, match="the model's service failed"):
            client.chat.completions.create(model="", messages=ASK)
        with pytest.raises(openai.APIError, match="the model's service failed"):
            list(client.chat.completions.create(model="", messages=ASK, stream=True))
        with pytest.raises(openai.BadRequestError, match="there is nothing to answer"):
            client.chat.completions.create(model="", messages=[{"role": "user", "content": ""}])
        odd: Any = {"type": "function", "function": {"name": "odd", "parameters": {"type": 5}}}
        with pytest.raises(openai.BadRequestError, match="failed to create tool odd: invalid parameters schema"):
            client.chat.completions.create(model="", messages=ASK, tools=[odd])
        with pytest.raises(openai.BadRequestError, match="tools: "):
            client.chat.completions.create(model="", messages=ASK, tools=[WEATHER] * 129)
    with (
        serving(sum_agent(), tokens={"ann": "a" * 20}) as server,
        client_of(server) as client,
        pytest.raises(openai.AuthenticationError),
    ):
        client.models.list()


def test_closing_the_connection_stops_the_run_unless_asked_otherwise() -> None:
    for cancels in (True, False):
        gate = Gate()
        with serving(gate.agent()) as server, client_of(server) as client:
            stream = client.chat.completions.create(
                model="", messages=ASK, stream=True, extra_body={"cancel_on_disconnect": cancels}
            )
            next(iter(stream))
            assert gate.entered.wait(BOUND)
            stream.close()
            if cancels:
                assert gate.cancelled.wait(BOUND)
            else:
                gate.open.set()


@pytest.mark.parametrize("stream", [False, True])
def test_answer_that_is_not_of_the_requested_type_is_passed_on(stream: bool) -> None:
    body = {"messages": ASK, "response_format": {"type": "json_object"}, "stream": stream}
    with serving(Agent(ScriptedProvider(lambda _: Text("No JSON.")))) as server:
        response = server.post("/v1/chat/completions", body)
        assert response.status_code == 200
        if stream:
            chunks = [chunk["choices"][0]["delta"] for chunk in data_lines(response.text)]
            assert "".join(delta.get("content", "") for delta in chunks) == "No JSON."
        else:
            assert response.json()["choices"][0]["message"]["content"] == "No JSON."
