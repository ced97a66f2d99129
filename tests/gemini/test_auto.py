"""Automatic execution of tools with the Gemini client: blocking, streaming, in the background."""

import asyncio
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from midspan import Agent, Limits, compat
from midspan._types.events import TextDelta, TurnRetry
from midspan._types.exchange import FinishReason, ModelResponse
from midspan._types.parts import Text, ToolCall, ToolResult
from midspan.compat import ToolRegistry, Tools, extract_text, from_tool_results, new_function_declaration
from midspan.errors import (
    ConfigError,
    IncompleteResponseError,
    LimitReachedError,
    NetworkError,
    RunError,
    UnknownRunError,
)
from midspan.gemini import (
    AsyncClient,
    Client,
    Content,
    FunctionCall,
    FunctionDeclaration,
    GoogleSearch,
    Part,
    Tool,
)
from midspan.gemini.auto import answer_chunks
from midspan.gemini.response import GenerateContentResponse, ResponseStream
from midspan.messages import History, Message
from midspan.providers import RetryPolicy
from midspan.providers.stream import StreamAccumulator
from midspan.testing import ScriptedProvider
from tests.bounds import BOUND
from tests.gemini.recorder import Recorder, recorder


class Model(Recorder):
    """Calls `add` so many times, then answers; in the form that is asked for."""

    rounds = 2

    def next(self) -> tuple[int, bytes, dict[str, str]]:
        done = sum("functionResponse" in json.dumps(one) for one in self.last.body["contents"])
        call = {"functionCall": {"name": "add", "args": {"a": done, "b": 1}, "id": f"c{done}"}}
        parts = [{"text": "It is "}, {"text": "3."}] if done >= self.rounds else [{"text": "Let me see."}, call]
        documents = [
            {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": finish}]}
            for part, finish in zip(parts, [None, "STOP"], strict=True)
        ]
        self.answers.clear()
        if "stream" in self.last.path:
            self.answer_stream(*documents)
        else:
            self.answer({"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]})
        return super().next()


@pytest.fixture
def model() -> Iterator[Model]:
    with recorder(Model()) as record:
        assert isinstance(record, Model)
        yield record


@pytest.fixture
def client(model: Model) -> Iterator[Client]:
    with Client(api_key="k", base_url=model.url) as made:
        yield made


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


ADD = FunctionDeclaration(
    name="add",
    description="Add two numbers.",
    parameters_json_schema={"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
)


@pytest.mark.requirement("S4-01", "S4-03", "S3-06", "S3-11", "S3-14")
@pytest.mark.parametrize(
    "contents", ["1 + 2?", [Content.text("1 + 2?")], [{"role": "user", "parts": [{"text": "1 + 2?"}]}]]
)
def test_one_call_runs_the_whole_loop_from_a_text_or_a_history(client: Client, model: Model, contents: Any) -> None:
    answer = client.generate_content_with_auto_tools(contents, tools=[add], temperature=0.5)
    assert (answer.text, extract_text(answer)) == ("It is 3.", "It is 3.")
    assert [run.value for run in answer.result.tool_calls] == [1, 2]
    assert [content.role for content in answer.added] == ["model", "user", "model", "user", "model"]
    assert answer.added[0].parts is not None
    assert [part.text for part in answer.added[0].parts] == ["Let me see.", None]
    bodies = [seen.body for seen in model.seen]
    assert len(bodies) == 3
    for body in bodies:
        assert body["tools"][0]["functionDeclarations"][0]["name"] == "add"
        assert body["generationConfig"] == {"temperature": 0.5}
    assert bodies[2]["contents"][2]["parts"] == [
        {"functionResponse": {"name": "add", "response": {"result": 1}, "id": "c0"}}
    ]


def test_a_history_can_be_continued(client: Client) -> None:
    first = client.generate_content_with_auto_tools("1 + 2?", tools=[add])
    assert isinstance(first.result.messages, History)
    assert client.generate_content_with_auto_tools(first.result.messages, tools=[add]).text == "It is 3."


@pytest.mark.requirement("S4-02")
def test_the_turn_limit_is_a_typed_error(client: Client, model: Model) -> None:
    model.rounds = 99
    with pytest.raises(LimitReachedError, match="Maximum tool-calling turns exceeded") as caught:
        client.generate_content_with_auto_tools("?", tools=[add], turn_limit=3)
    assert (len(model.seen), caught.value.type) == (3, "turn_limit_exceeded")
    with pytest.raises(LimitReachedError):
        client.generate_content_with_auto_tools("?", tools=[add])
    assert len(model.seen) == 13


@pytest.mark.requirement("S4-07")
def test_declarations_find_their_registered_functions(client: Client, model: Model) -> None:
    # The registry is that of the process, in which this test may have run before.
    registered = Tools.register(ADD, lambda arguments: arguments["a"] + arguments["b"], duplicates="override")
    assert registered.spec.description == "Add two numbers."
    for tools in (
        [ADD],
        [Tool(function_declarations=[ADD])],
        [{"functionDeclarations": [{"name": "add", "description": "Add."}]}],
    ):
        answer = client.generate_content_with_auto_tools("?", tools=tools)
        assert [run.value for run in answer.result.tool_calls] == [1, 2]
    client.generate_content_with_auto_tools("?", tools=[GoogleSearch(), ADD])
    assert model.last.body["tools"][0] == {"googleSearch": {}}
    with pytest.raises(ConfigError, match="no function is registered for 'sub'"):
        client.generate_content_with_auto_tools("?", tools=[FunctionDeclaration(name="sub", description="Subtract.")])


@pytest.mark.requirement("S4-07", "S4-06")
def test_registered_calls_are_executed_and_an_error_of_one_does_not_affect_others() -> None:
    tools = ToolRegistry()
    tools.register(ADD, lambda arguments: arguments["a"] + arguments["b"])
    tools.register(new_function_declaration("fail", "Fails."), lambda _: 1 / 0)
    calls = [
        Part.from_function_call("add", {"a": 1, "b": 2}, id="1"),
        ToolCall("2", "fail", {}),
        {"name": "nothing"},
        ToolCall("4", "add", {"a": "2", "b": 2}),
    ]
    results = tools.execute_calls(calls)
    assert [(result.value if not result.is_error else "error") for result in results] == [3, "error", "error", 4]
    content = from_tool_results(results)
    assert content.role == "user"
    responses = [part.function_response for part in content.parts or []]
    assert [response.id for response in responses if response] == ["1", "2", None, "4"]
    assert responses[0] is not None
    assert responses[0].response == {"result": 3}
    assert responses[1] is not None
    assert "ZeroDivisionError" in str(responses[1].response)


@pytest.mark.requirement("S4-08")
@pytest.mark.parametrize(
    ("name", "description"), [("a b", "x"), ("", "x"), ("a" * 65, "x"), ("ok", " "), (5, "x"), ("ä", "x")]
)
def test_a_declaration_with_an_invalid_name_or_description_is_an_error(name: Any, description: str) -> None:
    with pytest.raises(ConfigError):
        new_function_declaration(name, description)


def test_a_declaration_is_created_by_its_validating_constructor() -> None:
    made = new_function_declaration("add-2_x", "Adds.", {"type": "OBJECT", "properties": {"a": {"type": "INTEGER"}}})
    assert (made.name, made.description) == ("add-2_x", "Adds.")
    assert made.parameters is not None
    with pytest.raises(ConfigError):
        from_tool_results([])


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"parameters": {"type": "objekt"}}, "add.parameters: unknown type 'objekt'"),
        ({"parameters": {"properties": {"a": {"anyOf": [{"type": "x"}]}}}}, "unknown type 'x' at /properties/a"),
        ({"response": {"type": "objekt"}}, "add.response: unknown type 'objekt'"),
        ({"parameters_json_schema": {"type": "objekt"}}, "add.parameters_json_schema: unknown type 'objekt'"),
    ],
)
def test_an_invalid_declaration_is_an_error(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        new_function_declaration("add", "Adds.", **more)


@pytest.mark.requirement("S4-09", "S4-11", "S4-12")
def test_a_stream_has_an_id_subscribers_and_a_status(client: Client) -> None:
    id = client.stream_generate_with_auto_tools("1 + 2?", tools=[add])
    assert "".join(client.subscribe_stream(id)) == "It is 3."
    assert list(client.subscribe_stream(id)) == ["It is 3."]
    events = list(client.subscribe_stream(id, view="all"))
    assert [number for number, _ in events] == list(range(len(events)))
    assert [event for _, event in events if type(event).__name__ == "ToolEnd"]
    status = client.get_stream_status(id)
    assert (status.phase, status.turn, status.events) == ("completed", 3, len(events))
    assert not client.stop_stream(id)


@pytest.mark.requirement("S4-09", "S4-14")
def test_a_stream_can_be_cancelled_and_errors_reach_its_subscribers(model: Model) -> None:
    async def main() -> None:
        started = asyncio.Event()

        async def slow(a: int, b: int) -> int:
            """Add slowly."""
            started.set()
            await asyncio.sleep(60)
            return a + b

        async with asyncio.timeout(BOUND), AsyncClient(api_key="k", base_url=model.url) as client:
            slow.__name__ = "add"
            id = await client.stream_generate_with_auto_tools("?", tools=[slow])
            await started.wait()
            assert (await client.get_stream_status(id)).phase == "executing_tools"
            assert await client.stop_stream(id)
            with pytest.raises(RunError, match="cancelled"):
                [text async for text in client.subscribe_stream(id)]
            model.rounds = 99
            id = await client.stream_generate_with_auto_tools("?", tools=[add], turn_limit=1)
            with pytest.raises(RunError, match="Maximum tool-calling turns exceeded"):
                [text async for text in client.subscribe_stream(id)]
            assert (await client.get_stream_status(id)).phase == "failed"

    asyncio.run(main())


def test_subscribers_of_the_final_text_get_no_other_events(client: Client) -> None:
    class Runs:
        async def subscribe(self, *_: Any, **__: Any) -> Any:
            yield 0, TextDelta(0, "It is")
            yield 1, TurnRetry(0, "cut")
            yield 2, TextDelta(0, "It is 3.")

        async def aclose(self) -> None: ...

    vars(client.aio)["_runs"] = Runs()
    assert list(client.subscribe_stream("id")) == ["It is", "It is 3."]


@pytest.mark.requirement("S4-13", "S4-17")
def test_streaming_executes_tools_only_with_auto_execute_tools(client: Client, model: Model) -> None:
    stream = client.stream_generate_content("?", tools=[add])
    assert [chunk.text for chunk in stream] == ["Let me see.", ""]
    assert stream.response.function_calls[0].name == "add"
    assert len(model.seen) == 1
    automatic = client.stream_generate_content("?", tools=[add], auto_execute_tools=True)
    assert [chunk.text for chunk in automatic] == ["It is 3."]
    assert automatic.response.text == "It is 3."
    assert len(model.seen) == 4


def test_an_automatic_stream_without_tools_gives_text_as_it_comes() -> None:
    class Dictating(ScriptedProvider):
        async def stream(self, request: Any) -> Any:
            accumulator = StreamAccumulator()
            for word in ("It ", "is ", "late."):
                for event in accumulator.add_text(word):
                    yield event
                await asked.get()
            yield accumulator.response(FinishReason.END)

    async def main() -> None:
        texts = []
        chunks = answer_chunks(Agent(Dictating([])).stream("?"))
        async with asyncio.timeout(BOUND), ResponseStream(chunks) as stream:
            async for chunk in stream:  # the model goes on only when its last word was seen
                texts.append(chunk.text)
                asked.put_nowait(True)
        assert texts == ["It ", "is ", "late."]

    asked: asyncio.Queue[bool] = asyncio.Queue()
    asyncio.run(main())


def test_a_stream_can_be_left_and_closed_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def items() -> Any:
        try:
            yield GenerateContentResponse(
                ModelResponse(Message("model", (Text("a"),)), FinishReason.END), is_chunk=True
            )
        finally:
            await asyncio.sleep(0)

    async def main() -> None:
        async with ResponseStream(items()) as stream:
            async for _ in stream:
                break
        async with ResponseStream(items()) as stream:
            await anext(aiter(stream))
            await asyncio.gather(stream.aclose(), stream.aclose())

    asyncio.run(asyncio.wait_for(main(), BOUND))
    assert caplog.messages == []


def test_a_with_block_closes_a_stream() -> None:
    closed = []

    async def items() -> Any:
        try:
            for text in "ab":
                response = ModelResponse(Message("model", (Text(text),)), FinishReason.END)
                yield GenerateContentResponse(response, is_chunk=True)
        finally:
            closed.append(True)

    with ResponseStream(items()) as stream:
        iterator = iter(stream)
        assert next(iterator).text == "a"
        assert closed == []
    assert closed == [True]
    assert list(iterator) == []


def test_an_automatic_stream_marks_text_that_was_discarded() -> None:
    class Cut(ScriptedProvider):
        async def stream(self, request: Any) -> Any:
            self.requests.append(request)
            accumulator = StreamAccumulator()
            for event in accumulator.add_text("It is"):
                yield event
            if len(self.requests) == 1:
                raise IncompleteResponseError("cut")
            yield accumulator.response(FinishReason.END)

    async def main() -> None:
        stream_of_chunks = answer_chunks(Agent(Cut([])).stream("?"))
        async with asyncio.timeout(BOUND), ResponseStream(stream_of_chunks) as stream:
            chunks = [chunk async for chunk in stream]
        assert [(chunk.text, chunk.model_response.finish_reason) for chunk in chunks] == [
            ("It is", FinishReason.END),
            ("", FinishReason.CUT),
            ("It is", FinishReason.END),
        ]

    asyncio.run(main())


def test_an_automatic_stream_is_closed_and_read_like_any_other(client: Client, model: Model) -> None:
    async def main() -> None:
        async with asyncio.timeout(BOUND), AsyncClient(api_key="k", base_url=model.url) as client:
            async with client.stream_generate_content("?", tools=[add], auto_execute_tools=True) as stream:
                assert [chunk.text async for chunk in stream] == ["It is 3."]
            async with client.stream_generate_content("?", tools=[add], auto_execute_tools=True) as left:
                assert (await anext(aiter(left))).text == "It is 3."
            with pytest.raises(ConfigError, match="can be read only once"):
                aiter(left)

    asyncio.run(main())


@pytest.mark.requirement("S4-18")
def test_text_is_extracted_without_thoughts(client: Client, model: Model) -> None:
    model.next = lambda: (
        200,
        json.dumps(
            {
                "candidates": [
                    {"content": {"role": "model", "parts": [{"text": "hm", "thought": True}]}, "finishReason": "STOP"}
                ]
            }
        ).encode(),
        {},
    )  # type: ignore[method-assign]
    with pytest.raises(ConfigError, match="No text content found in response"):
        extract_text(client.generate_content("?"))
    with pytest.raises(ConfigError, match="No text content found in response"):
        extract_text(None)


def test_a_cache_holds_the_declarations_and_the_functions_still_run(client: Client, model: Model) -> None:
    answer = client.generate_content_with_auto_tools("?", tools=[add], cached_content="cachedContents/1")
    assert answer.text == "It is 3."
    for seen in model.seen:
        assert seen.body["cachedContent"] == "cachedContents/1"
        assert "tools" not in seen.body


def test_invalid_options_are_an_error(client: Client) -> None:
    for wrong in (
        {"turn_limit": 0},
        {"limits": 5},
        {"limits": {"max_seconds": 5}, "turn_limit": 3},
        {"tools": [5]},
        {"temprature": 1},
        {"tool_choice": {"type": "maybe"}},
    ):
        with pytest.raises(ConfigError):
            client.generate_content_with_auto_tools("?", **wrong)
        with pytest.raises(ConfigError):
            client.stream_generate_with_auto_tools("?", **wrong)


def test_results_are_values(client: Client) -> None:
    assert Tools.execute_calls([]) == []
    with pytest.raises(ConfigError, match="is not a call"):
        Tools.execute_calls([5])
    assert isinstance(Tools.execute_calls([{"name": "x"}])[0], ToolResult)


def test_without_a_client_the_one_of_the_process_is_asked(
    model: Model, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "k")
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", model.url)
    for chosen in (None, client):
        compat.use(chosen)
        assert compat.generate_content_with_auto_tools("1 + 2?", tools=[add]).text == "It is 3."
        assert compat.generate_content_with_auto_tools("1 + 2?", tools=[add], turn_limit=3).text == "It is 3."
        id = compat.stream_generate_with_auto_tools("1 + 2?", tools=[add])
        assert "".join(compat.subscribe_stream(id)) == "It is 3."
        assert compat.get_stream_status(id).phase == "completed"
        assert compat.stop_stream(id) is False
    compat.use(None)


def test_function_gets_arguments_by_name_or_as_one_dict() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
    declared = new_function_declaration("forecast", "The weather.", schema)

    def by_name(city: str, days: int = 1) -> list[Any]:
        return [city, days]

    async def by_keyword(*, city: str, days: int = 1) -> list[Any]:
        return [city, days]

    def by_all(**said: Any) -> list[Any]:
        return [said["city"], said.get("days", 1)]

    def by_dict(arguments: dict[str, Any]) -> list[Any]:
        return [arguments["city"], arguments.get("days", 1)]

    for function in (by_name, by_keyword, by_all, by_dict):
        registry = ToolRegistry()
        registry.register(declared, function)
        results = registry.execute_calls(
            [{"name": "forecast", "args": {"city": "Oslo"}}, {"name": "forecast", "args": {"city": "Bonn", "days": 3}}]
        )
        assert [one.value for one in results] == [["Oslo", 1], ["Bonn", 3]]
    bare = ToolRegistry()
    bare.register(new_function_declaration("now", "The time."), lambda: "noon")
    bare.register(new_function_declaration("size", "Functions in C may have no signature."), dict)
    assert bare.execute_calls([{"name": "now"}])[0].value == "noon"
    with pytest.raises(ConfigError, match=r"the function for forecast does not fit .*'days'"):
        ToolRegistry().register(declared, lambda city: city)


def test_calls_without_arguments_are_executed() -> None:
    registry = ToolRegistry()
    registry.register(noon)
    for given in (FunctionCall(name="noon", args={}), FunctionCall(name="noon"), {"name": "noon"}):
        assert registry.execute_calls([given])[0].value == "noon"


def noon() -> str:
    """The time."""
    return "noon"


def test_a_stream_ends_with_the_error_that_a_plain_call_raises() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # where nothing listens
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with Client("gemini-3.8-flash", api_key="k", base_url=url, retry=RetryPolicy(max_attempts=1)) as client:
            with pytest.raises(NetworkError):
                client.generate_content_with_auto_tools("?")
            with pytest.raises(NetworkError) as caught:
                list(client.subscribe_stream(client.stream_generate_with_auto_tools("?")))
        assert (caught.value.kind, len(caught.value.transcript or ())) == ("NetworkError", 1)


def test_a_with_block_ends_the_background_runs_of_a_client(model: Model) -> None:
    with Client(api_key="k", base_url=model.url) as client:
        id = client.stream_generate_with_auto_tools("?", tools=[add])
        assert "".join(client.subscribe_stream(id)) == "It is 3."
    with pytest.raises(UnknownRunError):
        client.get_stream_status(id)
    client.close()


def test_a_client_that_was_closed_can_be_asked_again(client: Client) -> None:
    for _ in range(2):
        id = client.stream_generate_with_auto_tools("?", tools=[add])
        assert "".join(client.subscribe_stream(id)) == "It is 3."
        client.close()


@pytest.mark.requirement("S4-18")
def test_text_of_the_answer_is_that_of_the_run(client: Client, model: Model) -> None:
    model.rounds = 99
    limited = Limits(max_turns=1, on_limit="message")
    answer = client.generate_content_with_auto_tools("?", tools=[add], limits=limited)
    assert answer.text
    assert answer.text == answer.result.text == extract_text(answer)
