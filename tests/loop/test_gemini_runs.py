"""Runs against a loopback server with the Gemini API, blocking and streaming."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any, Literal

import pytest

from midspan import Agent, Gemini, Limits, tool
from midspan._types.exchange import Citation
from midspan._types.messages import Message
from midspan._types.parts import Text, ToolCall, ToolResult
from midspan.emulator import LocalGemini, Rule, Script, When, answer
from midspan.emulator import call as call_of
from midspan.errors import AnswerBlockedError, InvalidRequestError, LimitReachedError, PromptBlockedError
from midspan.gemini import GoogleSearch, UrlContext
from midspan.providers import RetryPolicy
from tests.bounds import BOUND
from tests.gemini.recorder import Recorder, recorder
from tests.streaming import raw_of

MODES = pytest.mark.parametrize("streaming", [False, True], ids=["blocking", "streaming"])


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def chunk(*parts: Any, finish: str | None = "STOP", **more: Any) -> dict[str, Any]:
    content = {"content": {"role": "model", "parts": list(parts)}} if parts else {"content": {"role": "model"}}
    return {"candidates": [{**content, **({"finishReason": finish} if finish else {}), **more}]}


def call(n: int, **more: Any) -> dict[str, Any]:
    return {"functionCall": {"name": "add", "args": {"a": n, "b": 1}, "id": f"c{n}"}, **more}


class Server(Recorder):
    """Each answer is a list of chunks; one that is asked for whole gets their parts in one."""

    def __init__(self) -> None:
        super().__init__()
        self.script: list[list[dict[str, Any]]] = []

    def next(self) -> tuple[int, bytes, dict[str, str]]:
        chunks = self.script.pop(0)
        self.answers.clear()
        if "stream" in self.last.path:
            self.answer_stream(*chunks)
        else:
            candidates = [one["candidates"][0] for one in chunks if one.get("candidates")]
            parts = [part for one in candidates for part in one.get("content", {}).get("parts", [])]
            whole = {name: value for one in candidates for name, value in one.items()}
            document = {name: value for one in chunks for name, value in one.items()}
            if candidates:
                document["candidates"] = [{**whole, "content": {"role": "model", "parts": parts}}]
            self.answer(document)
        return super().next()


@pytest.fixture
def server() -> Iterator[Server]:
    with recorder(Server()) as record:
        assert isinstance(record, Server)
        yield record


def run(server: Any, *tools: Any, streaming: bool, model: str = "gemini-3.8-flash", **options: Any) -> Any:
    retry = options.pop("retry", None)

    async def main() -> Any:
        async with asyncio.timeout(BOUND), Gemini(model, api_key="k", base_url=server.url, retry=retry) as gemini:
            agent = Agent(gemini, tools=list(tools), **options)
            if not streaming:
                return await agent.run("go")
            stream = agent.stream("go")
            async for _ in stream:
                pass
            return stream.result

    return asyncio.run(main())


@MODES
def test_stream_with_an_empty_last_chunk_keeps_its_history(server: Server, streaming: bool) -> None:
    signed = {"text": "", "thoughtSignature": "c2ln"}
    server.script = [
        [chunk({"text": "Let me see."}, finish=None), chunk(call(1, thoughtSignature="QQ=="), finish=None), chunk()],
        [chunk({"text": "It is 2."}, finish=None), chunk(signed)],
    ]
    result = run(server, add, streaming=streaming)
    assert result.text == "It is 2."
    assert [part.get("text") for part in server.last.body["contents"][1]["parts"]] == ["Let me see.", None]
    assert server.last.body["contents"][1]["parts"][1] == call(1, thoughtSignature="QQ==")
    assert json.loads(raw_of(result.messages[-1]))["parts"][-1] == signed


@MODES
def test_signatures_stay_on_their_parts_over_ten_turns(server: Server, streaming: bool) -> None:
    server.script = [[chunk(call(n, thoughtSignature=f"c2ln{n:04}"))] for n in range(9)] + [[chunk({"text": "done"})]]
    run(server, add, streaming=streaming)
    calls = [content["parts"] for content in server.last.body["contents"] if content["role"] == "model"]
    assert calls == [[call(n, thoughtSignature=f"c2ln{n:04}")] for n in range(9)]


@MODES
def test_parallel_calls_in_several_chunks_are_one_turn(server: Server, streaming: bool) -> None:
    server.script = [
        [chunk(call(1, thoughtSignature="QQ=="), finish=None), chunk(call(2), finish=None), chunk(call(3))],
        [chunk({"text": "done"})],
    ]
    result = run(server, add, streaming=streaming)
    contents = server.last.body["contents"]
    assert [content["role"] for content in contents] == ["user", "model", "user"]
    assert [part["functionResponse"]["id"] for part in contents[2]["parts"]] == ["c1", "c2", "c3"]
    assert [one.value for one in result.tool_calls] == [2, 3, 4]


def test_repeated_chunk_is_one_call(server: Server) -> None:
    doubled = chunk(call(1, thoughtSignature="QQ=="), finish=None)
    server.script = [[doubled, doubled, chunk(call(2))], [chunk({"text": "done"})]]
    result = run(server, add, streaming=True)
    assert [one.id for one in result.tool_calls] == ["c1", "c2"]
    assert server.last.body["contents"][1]["parts"] == [call(1, thoughtSignature="QQ=="), call(2)]


@MODES
def test_malformed_call_is_recovered_or_requested_again(server: Server, streaming: bool) -> None:
    words = "Malformed function call: print(default_api.add(a=1, b=1))"
    server.script = [
        [chunk(finish="MALFORMED_FUNCTION_CALL", finishMessage=words)],
        [chunk(finish="MALFORMED_FUNCTION_CALL", finishMessage="Malformed function call: add(a=")],
        [chunk(call(5))],
        [chunk({"text": "done"})],
    ]
    result = run(server, add, streaming=streaming)
    assert (result.text, [one.value for one in result.tool_calls]) == ("done", [2, 6])
    salvaged = server.seen[1].body["contents"][1]["parts"][0]
    assert salvaged["functionCall"] == {"name": "add", "args": {"a": 1, "b": 1}}
    assert salvaged["thoughtSignature"] == "skip_thought_signature_validator"
    assert "could not be read" in server.seen[2].body["contents"][-1]["parts"][0]["text"]


@MODES
def test_continued_answer_becomes_one_turn(server: Server, streaming: bool) -> None:
    usage = {"usageMetadata": {"totalTokenCount": 10}}
    server.script = [
        [{**chunk({"text": "one "}, finish="CONTINUATION", continuationToken="t1"), **usage}],
        [{**chunk({"text": "two "}, finish="CONTINUATION", continuationToken="t2"), **usage}],
        [{**chunk({"text": "three"}), **usage}],
    ]
    result = run(server, streaming=streaming, model="gemini-4-argon")
    assert result.text == "one two three"
    assert (result.turns, result.usage.total, len(result.messages)) == (1, 30, 2)
    assert [seen.body.get("continuationToken") for seen in server.seen] == [None, "t1", "t2"]
    assert all(seen.body["contents"] == server.seen[0].body["contents"] for seen in server.seen)


@MODES
def test_continued_answer_that_ends_empty_is_requested_again(server: Server, streaming: bool) -> None:
    server.script = [
        [chunk({"text": "one "}, finish="CONTINUATION", continuationToken="t1")],
        [chunk()],
        [chunk({"text": "one two"})],
    ]
    result = run(server, streaming=streaming, model="gemini-4-argon")
    assert (result.text, len(result.messages)) == ("one two", 2)


@MODES
def test_citations_of_builtin_tools_are_in_the_result(server: Server, streaming: bool) -> None:
    grounding = {
        "groundingChunks": [
            {"web": {"uri": "https://a.example/", "title": "A"}},
            {"web": {"uri": "https://a.example/", "title": "A"}},
            {"maps": {"uri": "https://m.example/", "title": "M"}},
        ]
    }
    read = {"urlMetadata": [{"retrievedUrl": "https://b.example/"}]}
    server.script = [[chunk({"text": "so"}, groundingMetadata=grounding, urlContextMetadata=read)]]
    result = run(server, GoogleSearch(), UrlContext(), add, streaming=streaming)
    assert result.citations == (
        Citation("https://a.example/", "A"),
        Citation("https://m.example/", "M"),
        Citation("https://b.example/"),
    )
    assert server.last.body["tools"][:2] == [{"googleSearch": {}}, {"urlContext": {}}]


@MODES
def test_blocked_answer_and_blocked_prompt_are_different_errors(server: Server, streaming: bool) -> None:
    server.script = [[chunk(call(1))], [chunk({"text": "so"}, finish="SAFETY")]]
    with pytest.raises(AnswerBlockedError, match="SAFETY") as caught:
        run(server, add, streaming=streaming)
    assert caught.value.transcript is not None
    assert len(caught.value.transcript) == 4
    server.script = [[{"promptFeedback": {"blockReason": "SAFETY"}}]]
    with pytest.raises(PromptBlockedError) as refused:
        run(server, add, streaming=streaming)
    assert refused.value.transcript is not None


@MODES
def test_call_without_an_id_gets_a_result_without_an_id(server: Server, streaming: bool) -> None:
    bare = {"functionCall": {"name": "add", "args": {"a": 1, "b": 1}}, "thoughtSignature": "QQ=="}
    server.script = [[chunk(bare)], [chunk({"text": "done"})]]
    result = run(server, add, streaming=streaming)
    assert server.last.body["contents"][2]["parts"] == [
        {"functionResponse": {"name": "add", "response": {"result": 2}}}
    ]
    assert isinstance(result.messages[1].parts[0], ToolCall)


@MODES
def test_invalid_names_are_replaced_and_mapped_back(server: Server, streaming: bool) -> None:
    @tool(name="größe lesen")
    async def size() -> int:
        """The size."""
        return 5

    def model(name: str) -> None:
        server.script = [[chunk({"functionCall": {"name": name, "args": {}}})], [chunk({"text": "done"})]]

    model("?")
    run(server, size, streaming=streaming)
    name = server.seen[0].body["tools"][0]["functionDeclarations"][0]["name"]
    assert name.isascii()
    model(name)
    result = run(server, size, streaming=streaming)
    assert result.tool_calls[0].value == 5
    assert server.last.body["contents"][2]["parts"][0]["functionResponse"]["name"] == name


def endless(n: int) -> list[dict[str, Any]]:
    usage = {"usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 1, "totalTokenCount": 6}}
    return [{**chunk({"text": f"{n} "}, finish="CONTINUATION", continuationToken=f"t{n}"), **usage}]


@MODES
@pytest.mark.parametrize(
    ("limits", "requests", "limit"),
    [
        (Limits(max_turns=1), 1, "max_turns"),
        (Limits(max_turns=3), 3, "max_turns"),
        (Limits(), 10, "max_turns"),
        (Limits(max_turns=None, max_tokens=20), 4, "max_tokens"),
    ],
)
def test_every_request_of_a_continued_answer_counts_against_the_limits(
    server: Server, streaming: bool, limits: Limits, requests: int, limit: str
) -> None:
    server.script = [endless(n) for n in range(50)]
    with pytest.raises(LimitReachedError) as caught:
        run(server, streaming=streaming, limits=limits)
    assert caught.value.limit == limit
    assert len(server.seen) == requests


@MODES
def test_continued_answer_within_the_limit_is_one_answer(server: Server, streaming: bool) -> None:
    server.script = [endless(1), endless(2), [chunk({"text": "3"}, finish="STOP")]]
    result = run(server, streaming=streaming, limits=Limits(max_turns=3))
    assert (result.text, result.turns, len(server.seen)) == ("1 2 3", 1, 3)


@MODES
@pytest.mark.parametrize(
    "twin", [{"name": "add", "args": {"a": 5, "b": 2}}, {"name": "double", "args": {"n": 5}}], ids=["arguments", "name"]
)
def test_calls_that_share_an_id_are_both_run(server: Server, streaming: bool, twin: dict[str, Any]) -> None:
    async def double(n: int) -> int:
        """Twice as much."""
        return 2 * n

    server.script = [
        [chunk(call(1)), chunk({"functionCall": {**twin, "id": "c1"}}), chunk(finish="STOP")],
        [chunk({"text": "done"}, finish="STOP")],
    ]
    result = run(server, add, double, streaming=streaming)
    assert [one.value for one in result.tool_calls] == [2, 7 if twin["name"] == "add" else 10]


def test_repeated_call_is_run_once_and_keeps_its_signature(server: Server) -> None:
    server.script = [
        [chunk(call(1), finish=None), chunk(call(1, thoughtSignature="c2ln")), chunk(finish="STOP")],
        [chunk({"text": "done"})],
    ]
    result = run(server, add, streaming=True)
    assert [one.value for one in result.tool_calls] == [2]
    assert server.last.body["contents"][1]["parts"] == [call(1, thoughtSignature="c2ln")]


@MODES
def test_last_answer_may_take_several_requests(server: Server, streaming: bool) -> None:
    server.script = [[chunk(call(1))], [chunk(call(2))], endless(1), endless(2), [chunk({"text": "3"})]]
    result = run(server, add, streaming=streaming, limits=Limits(max_turns=2, on_limit="answer"))
    assert (result.text, result.limit) == ("1 2 3", "max_turns")


def test_requests_before_a_failed_one_count(server: Server) -> None:
    class Cutting(Server):
        """Each third portion breaks off in the middle."""

        def next(self) -> tuple[int, bytes, dict[str, str]]:
            status, body, headers = super().next()
            return (status, body[:-40], headers) if len(self.seen) % 3 == 0 else (status, body, headers)

    with recorder(Cutting()) as cutting:
        assert isinstance(cutting, Cutting)
        cutting.script = [endless(n) for n in range(50)]
        with pytest.raises(LimitReachedError) as caught:
            run(cutting, streaming=True, limits=Limits(max_turns=4), retry=RetryPolicy(max_attempts=1))
        assert caught.value.limit == "max_turns"
        assert len(cutting.seen) == 4


MANY = Literal[tuple(f"value_number_{n:06d}_of_very_many" for n in range(1_200))]  # type: ignore[valid-type]


@MODES
def test_tools_too_large_for_validated_mode_are_called(streaming: bool) -> None:
    async def pick(value: str) -> str:
        """Pick one."""
        return value

    pick.__annotations__["value"] = MANY
    script = Script([Rule(When(step=0), answer(call_of("pick", value="value_number_000007_of_very_many"))), "picked"])
    with LocalGemini(script) as local:
        result = run(local, pick, streaming=streaming, tool_choice="validated")
        modes = [json.loads(one.body)["toolConfig"]["functionCallingConfig"]["mode"] for one in local.requests]
        assert result.text == "picked"
        assert modes == ["VALIDATED", "AUTO", "AUTO"]
        with pytest.raises(InvalidRequestError, match="too many states"):
            run(local, pick, streaming=streaming, tool_choice="required")


class Opaque(Server):
    """Does not say what it has against requests in some modes."""

    refused: tuple[str, ...] = ("VALIDATED",)

    def next(self) -> tuple[int, bytes, dict[str, str]]:
        if self.mode not in self.refused:
            return super().next()
        message = "Request contains an invalid argument."
        self.answers.clear()
        self.answer({"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}, status=400)
        return Recorder.next(self)

    @property
    def mode(self) -> str:
        return str(self.last.body["toolConfig"]["functionCallingConfig"]["mode"])


@MODES
def test_validated_mode_falls_back_after_an_unspecific_error(streaming: bool) -> None:
    with recorder(Opaque()) as opaque:
        assert isinstance(opaque, Opaque)
        opaque.script = [[chunk(call(1))], [chunk({"text": "It is 2."})]]
        assert run(opaque, add, streaming=streaming, tool_choice="validated").text == "It is 2."
        modes = [one.body["toolConfig"]["functionCallingConfig"]["mode"] for one in opaque.seen]
        # What was not said may be otherwise in the next turn, so it is asked for again.
        assert modes == ["VALIDATED", "AUTO", "VALIDATED", "AUTO"]
        opaque.refused = ("VALIDATED", "AUTO")
        with pytest.raises(InvalidRequestError, match="invalid argument"):
            run(opaque, add, streaming=streaming, tool_choice="validated")
        assert len(opaque.seen) == 6


LOOKED = Message("model", (ToolCall("a", "look", {}),))


@pytest.mark.parametrize(
    ("history", "words"),
    [
        pytest.param([Message.user(ToolResult("a", "look", {"n": 5}))], 'look returned: {"n":5}', id="cut"),
        pytest.param(
            [Message.user("?"), Message("model", (Text("so"),)), Message.user(ToolResult("a", "look", "seen"))],
            'look returned: "seen"',
            id="in the middle",
        ),
        pytest.param([LOOKED, Message.user(ToolResult("a", "look", 1))], "omitted", id="begins with a call"),
        pytest.param([Message.user("?"), LOOKED, Message.user(ToolResult("a", "", 1))], None, id="without a name"),
        pytest.param([Message.user("?"), LOOKED, Message.user(ToolResult("a", "tool", 1))], None, id="another name"),
    ],
)
def test_repaired_histories_are_accepted_by_the_server(history: list[Message], words: str | None) -> None:
    with LocalGemini(["fine"]) as local:
        agent = Agent(Gemini("gemini-3.8-flash", api_key="k", base_url=local.url))
        assert agent.run_sync("and now?", messages=history).text == "fine"
        sent = json.loads(local.requests[-1].body)["contents"]
    texts = [part["text"] for turn in sent for part in turn["parts"] if "text" in part]
    assert words is None or any(words in text for text in texts)


def test_limits_and_tool_choice_use_the_names_of_the_caller() -> None:
    @tool(name="größe messen")
    def size(x: int = 0) -> int:
        """Measure."""
        return x

    limits = Limits(max_calls_per_tool={"größe messen": 1}, on_limit="answer")
    choice = {"type": "required", "tool": "größe messen"}
    with LocalGemini([Rule(When(step=0), answer(*[call_of("gr__e_messen", x=n) for n in range(3)])), "done"]) as local:
        agent = Agent(Gemini("gemini-3.8-flash", api_key="k", base_url=local.url), [size], limits=limits)
        result = agent.run_sync("?", tool_choice=choice)
        config = json.loads(local.requests[0].body)["toolConfig"]["functionCallingConfig"]
    assert config == {"mode": "ANY", "allowedFunctionNames": ["gr__e_messen"]}
    assert [one.is_error for one in result.tool_calls] == [False, True, True]


def test_model_reads_the_note_beside_a_repeated_result() -> None:
    repeated = [answer(call_of("add", a=1, b=1))] * 3
    with LocalGemini([*repeated, "done"]) as local:
        agent = Agent(Gemini("gemini-3.8-flash", api_key="k", base_url=local.url), tools=[add])
        assert agent.run_sync("go").text == "done"
        contents = json.loads(local.requests[-1].body)["contents"]
    responses = [
        part["functionResponse"]["response"]
        for turn in contents
        for part in turn["parts"]
        if "functionResponse" in part
    ]
    assert responses[1] == {"result": 2}
    assert "3 times in a row" in responses[2]["note"]
