"""Agent and Chat: names of models, options of a run, files, concurrent runs, histories as JSON."""

import asyncio
import gzip
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from midspan import Agent, Chat, Context, Limits, ModelSettings, Toolbox, from_json, to_json, tool
from midspan._http.retry import Clock, RetryPolicy
from midspan._types.context import RunContext
from midspan._types.events import TextDelta
from midspan._types.exchange import ModelRequest
from midspan._types.messages import History, Message
from midspan._types.parts import Blob, Text, ToolCall, ToolResult
from midspan._types.specs import BuiltinTool, ToolSpec
from midspan.errors import ConfigError, CredentialsError, DuplicateToolError, LimitReachedError, NetworkError
from midspan.gemini import FunctionCall, GoogleSearch
from midspan.providers.gemini.client import Gemini
from midspan.providers.openai.profile import JSON_SCHEMA
from midspan.providers.provider import ModelProfile
from midspan.testing import ScriptedProvider
from midspan.tools.execution import LocalTools
from midspan.tools.source import ToolListing, ToolSource
from midspan.tools.wrap import Prefixed, Required
from tests.bounds import BOUND, time_passes


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
async def whoami(context: Context[str | None]) -> str | None:
    """Who asks."""
    return context


def test_model_can_be_given_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "k")
    for name in ("gemini:gemini-3.8-flash", "gemini-3.8-flash"):
        agent = Agent(name, tools=[add])
        assert isinstance(agent.provider, Gemini)
        assert agent.model == "gemini-3.8-flash"
        asyncio.run(agent.aclose())


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("nobody:x", "unknown provider 'nobody'"),
        ("gpt", "unknown model 'gpt'; use 'provider:model', for example 'gemini:"),
        ("", "unknown model ''"),
        (5, "model must be a provider or a name like 'gemini:gemini-3.8-flash', got 5"),
    ],
)
def test_unknown_model_is_an_error(model: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Agent(model)


def test_named_model_without_a_key_is_a_credentials_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    agent = Agent("gemini:gemini-3.8-flash")
    with pytest.raises(CredentialsError):
        agent.run_sync("?")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tools": [5]}, "5 is not a tool"),
        ({"system": 5}, "system must be a string, got 5"),
        ({"limits": {"max_turns": 0}}, "max_turns must be a positive int or None, got 0"),
        ({"limits": {"max_turns": "3"}}, "max_turns must be a positive int or None, got '3'"),
        ({"tool_choice": {"type": "maybe"}}, "unknown tool choice"),
        ({"prompt_mode": "yes"}, "prompt_mode must be True or False, got 'yes'"),
        ({"calls_only": 1}, "calls_only must be True or False, got 1"),
        ({"raise_tool_errors": "no"}, "raise_tool_errors must be True or False, got 'no'"),
        ({"cache": True}, r"cache must be a CachePolicy, such as CachePolicy\(\), got True"),
        ({"output": {"name": "str"}}, "output has no keyword of JSON Schema, got {'name': 'str'}; pass a type, or"),
        ({"output": {"name": {"type": "string"}}}, "output has no keyword of JSON Schema"),
    ],
)
def test_invalid_option_is_an_error_when_the_agent_is_created(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Agent(ScriptedProvider([]), **options)


def test_none_as_model_or_limits_of_a_run_means_those_of_the_agent() -> None:
    agent = Agent(ScriptedProvider([ToolCall("1", "add", {"a": 1, "b": 2}), "3"]), [add], limits=Limits(max_turns=1))
    with pytest.raises(LimitReachedError):
        agent.run_sync("?", model=None, limits=None, on_question=None)


def test_two_tools_of_one_name_are_an_error_when_the_agent_is_created() -> None:
    with pytest.raises(DuplicateToolError):
        Agent(ScriptedProvider([]), tools=[add, add])


def test_invalid_option_of_a_run_is_an_error_that_names_it() -> None:
    agent = Agent(ScriptedProvider([]))
    for wrong, words in [
        ({"temprature": 1}, "unknown option 'temprature'; known options: cache, calls_only"),
        ({"mesages": []}, "tool_choice, tools; a single run also has context, messages, run_id$"),
        ({"tools": ["sub"]}, "no tool named 'sub'"),
        ({"messages": [{"role": "user"}]}, "must be Message objects"),
        ({"messages": {"role": "user"}}, "must be Message objects"),
        ({"messages": History(["a"])}, "must be Message objects"),
        ({"messages": 5}, "must be Message objects"),
        ({"settings": 5}, "settings must be ModelSettings or a dict, got 5"),
        ({"limits": 5}, "limits must be Limits or a dict, got 5"),
        ({"on_question": print}, "on_question must be an async function, got <built-in function print>"),
        ({"messages": [Message("system", (Text("a"),))]}, "of user or model"),
        ({"settings": {"temprature": 1}}, "settings: unknown name 'temprature'; known names: max_tokens, temperature"),
        ({"model": Agent(ScriptedProvider([]))}, "model must be a provider or a name"),
        ({"model": ScriptedProvider}, "model must be a provider or a name"),
        ({"run_id": 3}, "run_id must be a string, got 3"),
        ({"run_id": 0}, "run_id must be a string, got 0"),
        ({"prompt_mode": "yes"}, "prompt_mode must be True or False, got 'yes'"),
        ({"output": {"name": "str"}}, "output has no keyword of JSON Schema, got {'name': 'str'}"),
        ({"system": "half \ud800"}, "system is not valid Unicode: it contains '.ud800' at character 5"),
    ]:
        with pytest.raises(ConfigError, match=words):
            agent.run_sync("?", **wrong)
        if "tools" not in wrong:  # which are looked at when the run begins
            with pytest.raises(ConfigError, match=words):
                agent.stream("?", **wrong)


def test_options_can_be_replaced_for_one_run() -> None:
    first, second = ScriptedProvider(["a", "b", "c"]), ScriptedProvider(["d"], model="other")
    agent = Agent(first, tools=[add, whoami], system="Be brief.", settings={"temperature": 0.5})
    agent.run_sync("?")
    agent.run_sync("?", tools=["add"], settings=ModelSettings(seed=1), system=None)
    agent.run_sync("?", tools=[])
    assert agent.run_sync("?", model=second).text == "d"
    tools = [[spec.name for spec in request.config.tools] for request in first.requests]
    assert tools == [["add", "whoami"], ["add"], []]
    assert first.requests[0].config.settings.temperature == 0.5
    assert (first.requests[1].config.settings.seed, first.requests[1].config.system) == (1, None)
    assert second.requests[0].config.model == "other"


def test_replace_returns_an_agent_with_other_options() -> None:
    provider = ScriptedProvider(["a", "b"])
    agent = Agent(provider, tools=[add, whoami], system="Be brief.")
    other = agent.replace(tools=["add"], limits=Limits(max_turns=1))
    other.run_sync("?")
    agent.run_sync("?")
    assert [len(request.config.tools) for request in provider.requests] == [1, 2]
    assert {request.config.system for request in provider.requests} == {"Be brief."}
    with pytest.raises(ConfigError, match="unknown option 'colour'"):
        agent.replace(colour="red")


def test_context_is_passed_to_tools_and_hidden_from_the_model() -> None:
    provider = ScriptedProvider([[ToolCall("1", "whoami", {})], "you"])
    result = Agent(provider, tools=[whoami]).run_sync("?", context="Ada")
    assert result.tool_calls[0].value == "Ada"
    [declared] = provider.requests[0].config.tools
    assert declared.parameters == {"type": "object", "properties": {}, "additionalProperties": False}


def test_tools_that_are_registered_later_are_seen_by_the_next_run() -> None:
    box = Toolbox()
    box.register(add, session="user_123")
    provider = ScriptedProvider(["a", "b"])
    agent = Agent(provider, tools=box.source("user_123"))
    agent.run_sync("?")
    box.register(whoami, session="user_123")
    agent.run_sync("?")
    assert [len(request.config.tools) for request in provider.requests] == [1, 2]


def test_new_tools_of_a_source_are_seen_by_the_next_run() -> None:
    class Growing(ToolSource):
        tools: tuple[Any, ...] = (add,)

        async def list_tools(self) -> ToolListing:
            return await LocalTools(self.tools).list_tools()

        async def call(self, call: ToolCall, context: RunContext[Any]) -> ToolResult:
            return await LocalTools(self.tools).call(call, context)

    provider, source = ScriptedProvider(["a", "b"]), Growing()
    agent = Agent(provider, tools=source)
    agent.run_sync("?")
    source.tools = (add, whoami)
    agent.run_sync("?")
    assert [len(request.config.tools) for request in provider.requests] == [1, 2]


class Changing(ToolSource):
    """A source whose tools change. The result of a call is the name of the tool that was run."""

    def __init__(self, *names: str, name: str | None = None) -> None:
        self.names, self.name, self.is_down = names, name, False

    async def list_tools(self) -> ToolListing:
        if self.is_down:
            raise ConnectionError("no route to host")
        return ToolListing(tuple(ToolSpec(name) for name in self.names), name=self.name)

    async def call(self, call: ToolCall, context: RunContext[Any]) -> ToolResult:
        return ToolResult(call.id, call.name, f"{self.name}: {call.name}")


def _call_after_another_run(agent: Agent[str], tool: str, change: Callable[[], None]) -> tuple[Any, list[str]]:
    """Return the result of a call after the tools have changed and another run has listed them, and its tools."""
    other = ScriptedProvider(["done"], profile=ModelProfile(schema=JSON_SCHEMA))

    async def change_and_run(_: ModelRequest) -> ToolCall:
        change()
        await agent.run("?", model=other)
        return ToolCall("1", tool)

    first = ScriptedProvider([change_and_run, "done"], profile=ModelProfile(schema=JSON_SCHEMA))
    value = agent.run_sync("?", model=first).tool_calls[0].value
    return value, [spec.name for spec in other.requests[0].config.tools]


def test_run_calls_the_tools_that_its_model_was_offered_after_another_run_has_listed_others() -> None:
    source = Changing("a.b")
    agent = Agent(ScriptedProvider([]), tools=[source])
    value, offered = _call_after_another_run(agent, "a_b", lambda: setattr(source, "names", ("a.b", "a_b")))
    assert value == "None: a.b"
    assert "a_b" in offered
    files, session = Changing("delete", name="files"), Changing()
    agent = Agent(ScriptedProvider([]), tools=[files, session])
    value, offered = _call_after_another_run(agent, "delete", lambda: setattr(session, "names", ("delete",)))
    assert (value, offered) == ("files: delete", ["files_delete", "delete"])


def test_tools_that_a_source_has_not_listed_are_not_run() -> None:
    source = Changing("read")

    @tool
    async def ask(context: RunContext[None]) -> str:
        """Call the other tool."""
        return str((await context.call_tool("delete", {})).value)

    unknown = "unknown tool: delete; the tools are: read"
    result = Agent(ScriptedProvider([ToolCall("1", "delete"), "done"]), tools=source).run_sync("?")
    assert (result.tool_calls[0].value, result.tool_calls[0].was_run) == (unknown, False)
    two = [ToolCall("1", "delete"), ToolCall("2", "read")]
    results = Agent(ScriptedProvider([two, "done"]), tools=source).run_sync("?").tool_calls
    assert [run.value for run in results] == [unknown, "None: read"]
    result = Agent(ScriptedProvider([ToolCall("1", "ask"), "done"]), tools=[source, ask]).run_sync("?")
    assert result.tool_calls[0].value.startswith("unknown tool: delete")
    source.is_down = True
    assert Agent(ScriptedProvider([two[:1], "done"]), tools=source).run_sync("?").tool_calls[0].is_error


def test_run_keeps_its_tools_if_their_source_fails_to_list_them_for_another_run() -> None:
    source = Changing("lookup")
    agent = Agent(ScriptedProvider([]), tools=[Prefixed(source, "x_"), whoami])
    value, offered = _call_after_another_run(agent, "x_lookup", lambda: setattr(source, "is_down", True))
    assert (value, offered) == ("None: lookup", ["whoami"])


def test_tools_of_a_run_may_be_names_of_toolbox_tools() -> None:
    box = Toolbox()
    box.register(add)
    box.register(whoami)
    provider = ScriptedProvider(["a"])
    Agent(provider, tools=[box.source()]).run_sync("?", tools=["whoami"])
    assert [spec.name for spec in provider.requests[0].config.tools] == ["whoami"]


def test_tools_may_be_any_iterable() -> None:
    for tools in (add, [add], {add}, iter([add]), (item for item in [add]), {"add": add}.values()):
        agent = Agent(ScriptedProvider([ToolCall("1", "add", {"a": 1, "b": 2}), "3"]), tools)
        assert agent.run_sync("?").tool_calls[0].value == 3
        assert agent.tools == (add,)


def test_class_of_a_builtin_tool_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"pass GoogleSearch\(\)"):
        Agent(ScriptedProvider([]), tools=[GoogleSearch])


@pytest.mark.parametrize("broken", [RuntimeError("x"), 5])
def test_required_source_that_cannot_list_its_tools_is_an_error(broken: Any) -> None:
    class Source(ToolSource):
        async def list_tools(self) -> Any:
            if isinstance(broken, Exception):
                raise broken
            return broken

        async def call(self, call: ToolCall, context: Any = None) -> Any: ...

    with pytest.raises(ConfigError, match="Source"):
        Agent(ScriptedProvider([]), tools=[Required(Source())]).run_sync("?")


def test_source_that_fails_to_list_takes_only_its_own_tools_away() -> None:
    class Down(ToolSource):
        async def list_tools(self) -> ToolListing:
            raise ConnectionError("nobody is there")

        async def call(self, call: ToolCall, context: Any = None) -> Any: ...

    provider = ScriptedProvider(["a"])
    assert Agent(provider, tools=[Down(), whoami]).run_sync("?").text == "a"
    assert [spec.name for spec in provider.requests[0].config.tools] == ["whoami"]


def test_builtin_tools_are_declared_beside_functions() -> None:
    provider = ScriptedProvider(["x"])
    Agent(provider, tools=[GoogleSearch(), add]).run_sync("?")
    assert provider.requests[0].config.tools == (BuiltinTool("googleSearch"), add.spec)


def test_prompt_may_contain_images_and_files(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    (tmp_path / "b.csv").write_text("a,b\n1,2\n")
    provider = ScriptedProvider(["seen"])
    Agent(provider).run_sync(["Look:", tmp_path / "a.png", tmp_path / "b.csv", Blob("image/gif", url="https://x/y")])
    parts = provider.requests[0].history[0].parts
    assert parts[0] == Text("Look:")
    assert parts[1] == Blob.of(b"\x89PNG", "image/png", name="a.png")
    assert parts[2] == Text("a,b\n1,2\n")
    assert isinstance(parts[3], Blob)


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        (Path("nowhere.png"), "cannot be read: .*No such file"),
        (b"x", "got bytes"),
        ([], "the prompt is empty"),
        ({"a": 1}, "got dict"),
        ([5], "got int"),
        ("", "the prompt is empty"),
        ([" ", ""], "the prompt is empty"),
        (ToolCall("1", "add"), "got ToolCall"),
        (Message("model", (ToolCall("1", "add"),)), "a prompt must be a message of the user"),
        (Path("a\0b.png"), "cannot be read"),
        (Path("\ud800.png"), "cannot be read"),
        (Path("/dev/zero"), "'/dev/zero' is not a regular file"),
        (Text(5), "the prompt must be a string, got 5"),  # type: ignore[arg-type]
        ("half \ud800", "the prompt is not valid Unicode: it contains '.ud800' at character 5"),
    ],
)
def test_invalid_prompt_is_an_error(prompt: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Agent(ScriptedProvider([])).run_sync(prompt)


def test_text_in_a_file_of_an_unknown_media_type_is_text(tmp_path: Path) -> None:
    provider = ScriptedProvider(["fine"])
    (tmp_path / "x.zzz").write_text("notes", "utf-8-sig")
    Agent(provider).run_sync(tmp_path / "x.zzz")
    assert provider.requests[0].history[-1].parts == (Text("notes"),)


def test_media_type_that_the_name_does_not_tell_is_that_of_the_first_bytes(tmp_path: Path) -> None:
    provider = ScriptedProvider(["fine"])
    (tmp_path / "photo").write_bytes(b"\x89PNG\r\n\x1a\n\x00")
    Agent(provider).run_sync(["?", tmp_path / "photo"])
    assert provider.requests[0].history[-1].parts[1] == Blob.of(b"\x89PNG\r\n\x1a\n\x00", "image/png", name="photo")


def test_file_of_an_unknown_media_type_is_an_error(tmp_path: Path) -> None:
    for data in (b"\xff\xfe\x00", b"a\x00b"):
        (tmp_path / "x.zzz").write_bytes(data)
        with pytest.raises(ConfigError, match="cannot guess the media type"):
            Agent(ScriptedProvider([])).run_sync(tmp_path / "x.zzz")


def test_compressed_file_is_not_taken_for_what_it_contains(tmp_path: Path) -> None:
    for name in ("notes.txt.gz", "photo.svgz"):
        (tmp_path / name).write_bytes(gzip.compress(b"notes"))
        with pytest.raises(ConfigError, match="cannot guess the media type"):
            Agent(ScriptedProvider([])).run_sync(tmp_path / name)


def test_conversation_can_be_saved_as_json_and_continued() -> None:
    agent = Agent(ScriptedProvider([[ToolCall("1", "add", {"a": 1, "b": 2})], "3", "still 3"]), tools=[add])
    first = agent.run_sync("1 + 2?")
    saved = to_json(first.messages)
    loaded = from_json(saved, "messages")
    assert first.messages == loaded
    second = agent.run_sync("Sure?", messages=loaded)
    assert second.text == "still 3"
    assert second.new_messages == (Message.user("Sure?"), Message("model", (Text("still 3"),)))
    assert len(second.messages) == 6


def test_run_sync_works_inside_a_running_event_loop_and_in_threads() -> None:
    agent = Agent(ScriptedProvider(lambda request: [Text(request.history[0].text)]), tools=[add])

    async def main() -> str:
        return agent.run_sync("inside").text

    assert asyncio.run(main()) == "inside"
    texts: list[str] = []
    threads = [threading.Thread(target=lambda n=n: texts.append(agent.run_sync(f"q{n}").text)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND)
    assert sorted(texts) == sorted(f"q{n}" for n in range(20))


def test_one_agent_serves_a_thousand_concurrent_runs() -> None:
    async def model(request: Any) -> Any:
        await asyncio.sleep(0)
        first = request.history[0].text
        return [Text(first)] if len(request.history) > 1 else ToolCall("1", "add", {"a": int(first), "b": 1})

    async def main() -> list[Any]:
        agent = Agent(ScriptedProvider(model), tools=[add])
        return await asyncio.gather(*(agent.run(str(number)) for number in range(1_000)))

    results = asyncio.run(main())
    assert [result.text for result in results] == [str(number) for number in range(1_000)]
    assert [result.tool_calls[0].value for result in results] == list(range(1, 1_001))
    assert len({result.run_id for result in results}) == 1_000


@pytest.mark.requirement("S4-05")
def test_chat_is_immutable_and_can_be_continued_from_any_turn() -> None:
    agent = Agent(ScriptedProvider(["a", "b", "c"]), tools=[add])
    empty = Chat(agent)
    first = empty.ask_sync("one")
    second = first.ask_sync("two")
    other = first.ask_sync("three")
    assert (empty.text, first.text, second.text, other.text) == ("", "a", "b", "c")
    assert [len(chat.messages) for chat in (empty, first, second, other)] == [0, 2, 4, 4]
    told = empty.add_turn("user", "1 + 2?").add_turn("model", [ToolCall("1", "add", {"a": 1, "b": 2})])
    told = told.add_turn("tool", [ToolResult("1", "add", 3)])
    assert [message.role for message in told.messages] == ["user", "model", "user"]
    saved = Chat(agent, from_json(to_json(first.messages), "messages"))
    assert len(saved.add_turn("user", "more").messages) == 3
    wrong: list[Any] = [
        ("user", [ToolCall("1", "add", {})]),
        ("nobody", "x"),
        ("user", {"text": "b"}),
    ]
    for role, content in wrong:
        with pytest.raises(ConfigError):
            empty.add_turn(role, content)
    unreadable = [Message("user", None), Message("user", "text")]  # type: ignore[arg-type]
    for messages in ("text", {"role": "user"}, [5], 5, unreadable[:1], unreadable[1:]):
        with pytest.raises(ConfigError, match="messages must be Message objects"):
            Chat(agent, messages)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "spelt",
    [
        {"name": "add", "args": {"a": 1, "b": 2}, "id": "1"},
        {"name": "add", "arguments": {"a": 1, "b": 2}, "id": "1"},
        FunctionCall(name="add", args={"a": 1, "b": 2}, id="1"),
    ],
)
def test_calls_of_a_chat_may_be_written_as_any_api_writes_them(spelt: Any) -> None:
    chat = Chat(Agent(ScriptedProvider(["3"]), tools=[add])).add_turn("user", "1 + 2?").add_turn("model", [spelt])
    assert chat.messages[-1].calls == (ToolCall("1", "add", {"a": 1, "b": 2}),)
    assert chat.ask_sync().text == "3"


def test_options_of_a_single_run_are_refused_by_replace() -> None:
    agent = Agent(ScriptedProvider(["a", "b"]), limits=None)
    for name, value in {"run_id": "x", "messages": [], "context": 5}.items():
        with pytest.raises(ConfigError, match=f"unknown option {name!r}; .*; a single run also has"):
            agent.replace(**{name: value})
    assert agent.run_sync("?", messages=None, limits=None).text == "a"


class OutOfTime(Clock):
    """The time of the run is over as soon as a request is to be sent again."""

    async def sleep(self, seconds: float) -> None:
        time_passes(1_000)
        await super().sleep(seconds)


def test_error_at_the_time_limit_names_the_error_that_used_up_the_time() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # where nothing listens
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"

        async def main(*, streams: bool) -> None:
            retry = RetryPolicy(base_delay_seconds=10_000)
            gemini = Gemini("gemini-3.8-flash", api_key="k", base_url=url, retry=retry, clock=OutOfTime())
            agent = Agent(gemini, limits=Limits(max_seconds=500))
            if not streams:
                await agent.run("?")
            async for _ in agent.stream("?"):
                pass

        for streams in (False, True):
            with (
                pytest.raises(
                    LimitReachedError, match=r"time exceeded \(500 seconds\); the last attempt failed: "
                ) as caught,
                asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner,  # uvloop has a clock of its own
            ):
                runner.run(main(streams=streams))
            assert isinstance(caught.value.__cause__, NetworkError)


def test_agent_closes_only_what_it_created() -> None:
    closed = []

    class Given(ScriptedProvider):
        async def close(self) -> None:
            closed.append(self)

    async def main() -> None:
        async with Agent(Given(["x"])) as agent:
            await agent.run("?")

    asyncio.run(main())
    assert closed == []


def test_repr_of_a_result_shows_text_turns_and_calls() -> None:
    result = Agent(ScriptedProvider(["x" * 100]), limits=Limits()).run_sync("?")
    assert repr(result) == f"RunResult('{'x' * 60}…', 1 turn, 0 tool calls)"
    assert isinstance(result.messages, History)


def test_turn_of_the_model_may_have_text_and_calls() -> None:
    chat = Chat(Agent(ScriptedProvider(["3"]), tools=[add])).add_turn("user", "1 + 2?")
    called = ToolCall("1", "add", {"a": 1, "b": 2})
    assert chat.add_turn("model", called).messages[-1].parts == (called,)
    both = chat.add_turn("model", [Text("Let me see."), called])
    assert both.messages[-1].parts == (Text("Let me see."), called)
    assert both.ask_sync().text == "3"
    with pytest.raises(ConfigError, match="got ToolCall"):
        chat.add_turn("user", [Text("x"), called])


def test_messages_of_a_stream_that_never_started_can_be_continued() -> None:
    async def main() -> None:
        waiting = [Message.user("a"), Message("model", (ToolCall("1", "add", {"a": 1, "b": 2}),))]
        stream = Agent(ScriptedProvider(["x"]), tools=[add]).stream(None, messages=waiting)
        assert stream.messages[-1].results[0].is_error
        await stream.aclose()
        assert stream.messages[-1].results[0].is_error

    asyncio.run(main())


def test_plain_code_iterates_over_a_stream() -> None:
    stream = Agent(ScriptedProvider([ToolCall("1", "add", {"a": 1, "b": 2}), "3"]), tools=[add]).stream("1 + 2?")
    assert "".join(event.text for event in stream if isinstance(event, TextDelta)) == "3"
    assert stream.result.text == "3"


def test_agent_without_a_model_and_without_a_key_raises_at_its_first_request(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI"):
        monkeypatch.delenv(name, raising=False)
    agent = Agent(tools=[add])
    assert repr(agent) == "Agent(MissingModel(), 1 tool)"
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"GEMINI_API_KEY.*'gemini:gemini-3.8-flash'.*'offline'") as raised:
            agent.run_sync("What is 1 + 2?")
        assert [message.text for message in raised.value.transcript or ()] == ["What is 1 + 2?"]
    assert "offline model" in agent.run_sync("Hello", model="offline").text
    assert "offline model" in agent.replace(model="offline").run_sync("Hello").text


def test_offline_model_does_not_support_prompt_mode() -> None:
    with pytest.raises(ConfigError, match="does not support prompt mode"):
        Agent("offline", [add], prompt_mode=True).run_sync("1 + 2?")


def test_stream_without_deltas_requests_whole_responses() -> None:
    class Whole(ScriptedProvider):
        async def stream(self, request: Any) -> Any:
            raise AssertionError("the response is requested as a whole")
            yield

    async def main() -> None:
        stream = Agent(Whole(["Hello."])).stream("Hi.", deltas=False)
        kinds = [type(event).__name__ async for event in stream]
        assert kinds == ["RunStart", "TurnStart", "TurnEnd", "RunEnd"]
        assert stream.result.text == "Hello."

    asyncio.run(main())


def test_tool_choice_without_tools_may_allow_calls_but_not_require_one() -> None:
    for choice in ("auto", "none"):
        assert Agent(ScriptedProvider(["hello"])).run_sync("hi", tool_choice=choice).text == "hello"
    with pytest.raises(ConfigError, match="tool_choice requires a call, but the agent has no tools"):
        Agent(ScriptedProvider(["hello"])).run_sync("hi", tool_choice="required")
