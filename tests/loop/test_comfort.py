"""What a new user runs into first: missing keys, bugs in tools, a forgotten context, dicts where objects are taken."""

import asyncio
import logging
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from midspan import Agent, BackgroundRuns, Chat, Context, RunContext, Toolbox, tool
from midspan.emulator import LocalGemini
from midspan.errors import ConfigError, LimitReachedError, ToolError
from midspan.events import TextDelta
from midspan.gemini import Client
from midspan.messages import ToolCall
from midspan.testing import ScriptedProvider, record
from midspan.tools import ToolSpec
from tests.bounds import BOUND

CALL = ToolCall("1", "divide", {"by": 0})


@tool
def divide(by: int) -> float:
    """Divide one by a number."""
    return 1 / by


def run_program(program: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *options, "-c", program]
    keys = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    return subprocess.run(
        command, capture_output=True, text=True, env={**keys, **environment}, timeout=BOUND, check=False
    )


# Credentials


@pytest.mark.requirement("U-02")
def test_agents_can_be_created_without_a_key() -> None:
    program = """
from midspan import Agent, Gemini
from midspan.gemini import Client
from midspan.providers import Anthropic, OpenAI, OpenAIResponses
names = ["gemini:gemini-3.8-flash", "openai:gpt-5.5", "openai-responses:gpt-5.5", "anthropic:claude-sonnet-5-5"]
agents = [Agent(), *map(Agent, names), Agent(names), Agent(Gemini(vertex=True, project="p"))]
Client(), OpenAI(), Anthropic(), OpenAIResponses()
for agent in agents[:6]:
    try:
        agent.run_sync("Hello?")
    except Exception as error:
        print(type(error).__name__)
"""
    ran = run_program(program)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["ConfigError"] + ["CredentialsError"] * 5


@pytest.mark.requirement("U-02")
def test_key_that_is_set_after_the_agent_was_created_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    agent = Agent()
    with pytest.raises(ConfigError, match="no model is configured"):
        agent.run_sync("Hello?")
    brief = agent.replace(system="Be brief.")
    with LocalGemini(["Hi."]) as server:
        monkeypatch.setenv("GEMINI_API_KEY", "a-key-of-some-length")
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", server.url)
        assert agent.run_sync("Hello?").text == "Hi."
        assert brief.run_sync("Hello?").text == "Hi."
        agent.close()
        brief.close()


# Bugs in tools


BUGGY = """
from midspan import Agent, tool
from midspan.messages import ToolCall
from midspan.testing import ScriptedProvider

@tool
def divide(by: int) -> float:
    return 1 / by

agent = Agent(ScriptedProvider([ToolCall("1", "divide", {"by": 0}), "Sorry."]), [divide])
print(agent.run_sync("?").text)
"""


@pytest.mark.requirement("U-03")
def test_bug_in_a_tool_is_shown_with_its_traceback() -> None:
    ran = run_program(BUGGY)
    assert ran.stdout == "Sorry.\n"
    assert "tool divide raised ZeroDivisionError" in ran.stderr
    assert "Traceback (most recent call last):" in ran.stderr
    assert "in divide" in ran.stderr


@pytest.mark.requirement("U-03")
def test_program_that_configures_logging_decides_what_is_shown() -> None:
    silent = "import logging; logging.basicConfig(level=logging.CRITICAL)\n" + BUGGY
    ran = run_program(silent)
    assert (ran.stdout, ran.stderr) == ("Sorry.\n", "")


@pytest.mark.requirement("U-03")
def test_error_that_a_tool_reports_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    @tool
    def fail() -> None:
        """Fail."""
        raise ToolError("the shop is closed")

    with caplog.at_level(logging.WARNING):
        assert Agent(ScriptedProvider([ToolCall("1", "fail"), "ok"]), [fail]).run_sync("?").text == "ok"
    assert not caplog.records


@pytest.mark.requirement("U-03")
@pytest.mark.parametrize("calls", [[CALL], [CALL, ToolCall("2", "divide", {"by": 2})]], ids=["one", "two"])
def test_raise_tool_errors_raises_the_exception_of_the_tool(calls: list[ToolCall]) -> None:
    provider = ScriptedProvider([calls, "never asked"])
    with pytest.raises(ZeroDivisionError) as raised:
        Agent(provider, [divide], raise_tool_errors=True).run_sync("?")
    assert raised.traceback[-1].name == "divide"
    with pytest.raises(ZeroDivisionError):
        Agent(ScriptedProvider([calls, "x"]), [divide]).run_sync("?", raise_tool_errors=True)
    with pytest.raises(ZeroDivisionError):
        list(Agent(ScriptedProvider([calls, "x"]), [divide], raise_tool_errors=True).stream("?"))


def test_raise_tool_errors_raises_the_first_of_several_exceptions() -> None:
    @tool
    async def fail(rounds: int) -> None:
        """Fail after some rounds of the event loop."""
        for _ in range(rounds):
            await asyncio.sleep(0)
        raise ValueError(f"after {rounds} rounds")

    calls = [ToolCall(str(rounds), "fail", {"rounds": rounds}) for rounds in (20, 1, 10)]
    with pytest.raises(ValueError, match="after 1 rounds"):
        Agent(ScriptedProvider([calls]), [fail], raise_tool_errors=True).run_sync("?")


def test_raise_tool_errors_leaves_mistakes_of_the_model_to_the_model() -> None:
    @tool
    def refuse() -> None:
        """Refuse."""
        raise ToolError("no")

    script = [[ToolCall("1", "refuse"), ToolCall("2", "divide", {"by": "x"}), ToolCall("3", "unknown")], "done"]
    agent = Agent(ScriptedProvider(script), [divide, refuse], raise_tool_errors=True)
    assert agent.run_sync("?").text == "done"


# Context


@dataclass
class User:
    name: str


@tool
def greet(user: Context[User]) -> str:
    """Greet the user."""
    return f"Hello {user.name}"


@tool
def whoami(context: RunContext[User]) -> str:
    """Say who the user is."""
    return context.user.name


@tool
def optional(user: Context[User | None], context: RunContext) -> str:
    """Take a user or none."""
    return "nobody" if user is None else user.name


@tool
def defaulted(user: Context[User] = User("default")) -> str:  # noqa: B008 - a default of the tool
    """Take a user."""
    return user.name


@pytest.mark.requirement("U-04")
@pytest.mark.parametrize("needing", [greet, whoami])
def test_missing_context_is_an_error_before_anything_is_asked(needing: Any) -> None:
    provider = ScriptedProvider([ToolCall("1", needing.name), "done"])
    agent = Agent(provider, [needing])
    with pytest.raises(ConfigError, match=f"the tool '{needing.name}' needs the context of the run; pass context="):
        agent.run_sync("?")
    assert agent.run_sync("?", context=User("Ada")).text == "done"  # nothing of the script was used


@pytest.mark.requirement("U-04")
@pytest.mark.parametrize("lenient", [optional, defaulted])
def test_context_that_may_be_missing_is_not_required(lenient: Any) -> None:
    agent = Agent(ScriptedProvider([ToolCall("1", lenient.name), "done"]), [lenient])
    assert agent.run_sync("?").text == "done"


# Dicts, specs and toolboxes


def test_limits_may_be_a_dict() -> None:
    endless = ScriptedProvider(lambda _: CALL)
    with pytest.raises(LimitReachedError):
        Agent(endless, [divide], limits={"max_turns": 2}).run_sync("?")
    with pytest.raises(LimitReachedError):
        Agent(endless, [divide]).run_sync("?", limits={"max_turns": 2})
    assert Agent(endless, limits={"max_turns": 3}).replace(limits={"max_seconds": 9}) is not None
    with pytest.raises(ConfigError, match=r"limits: .* 'turns'; known names: max_turns, "):
        Agent(endless, limits={"turns": 2})
    with pytest.raises(ConfigError, match="max_turns must be a positive int"):
        Agent(endless, limits={"max_turns": 0})


PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
OPENAI = {"type": "function", "function": {"name": "book", "description": "Book a trip.", "parameters": PARAMETERS}}
MCP = {"name": "book", "description": "Book a trip.", "inputSchema": PARAMETERS}
BOOK = ToolCall("1", "book", {"city": "Oslo"})


@pytest.mark.requirement("U-05")
@pytest.mark.parametrize("declaration", [OPENAI, MCP, ToolSpec("book", "Book a trip.", PARAMETERS)])
def test_call_of_a_declaration_without_a_function_ends_the_run(declaration: Any) -> None:
    provider = ScriptedProvider([BOOK, "never asked"])
    result = Agent(provider, [declaration]).run_sync("To Oslo!")
    assert result.output == {"city": "Oslo"}
    assert [(run.name, run.call.arguments) for run in result.tool_calls] == [("book", {"city": "Oslo"})]
    assert Agent(ScriptedProvider([BOOK]), declaration).run_sync("?").output == {"city": "Oslo"}  # one, without a list


@pytest.mark.requirement("U-05")
def test_declaration_may_carry_its_function() -> None:
    booked = []
    declaration = {**MCP, "function": lambda arguments: booked.append(arguments["city"])}
    assert Agent(ScriptedProvider([BOOK, "done"]), [declaration]).run_sync("?").text == "done"
    assert booked == ["Oslo"]


def test_dict_that_declares_no_tool_is_an_error() -> None:
    with pytest.raises(ConfigError, match="a declaration needs a name"):
        Agent(ScriptedProvider([]), [{"city": "Oslo"}])


@pytest.mark.requirement("U-05")
def test_gemini_client_takes_toolboxes_and_specs() -> None:
    toolbox = Toolbox()
    toolbox.register(divide, session="mine")
    with LocalGemini(["a"]) as server, Client(api_key="k", base_url=server.url) as client:
        for tools in (toolbox.source("mine"), [toolbox.source("mine")], [divide.spec], OPENAI):
            assert client.generate_content("?", tools=tools).text == "a"
        assert client.generate_content_with_auto_tools("?", tools=[toolbox.source("mine")]).text == "a"
        names = [
            [declared.name for declared in request.request.tools[0].function_declarations]
            for request in map(_conversation, server.requests)
        ]
    assert names == [["divide"], ["divide"], ["divide"], ["book"], ["divide"]]


class _Body:
    def __init__(self, body: bytes) -> None:
        from midspan.providers.gemini import wire
        from midspan.providers.gemini.proto import load

        self.request: Any = load(wire.GenerateContentRequest, body)


def _conversation(request: Any) -> _Body:
    return _Body(request.body)


# Streams in sync code


@pytest.mark.requirement("U-06")
def test_stream_is_a_context_manager_in_plain_code() -> None:
    agent = Agent(ScriptedProvider(["Hello there.", "Bye."]))
    with agent.stream("?") as stream:
        assert "".join(event.text for event in stream if isinstance(event, TextDelta)) == "Hello there."
    assert stream.result.text == "Hello there."
    with agent.stream("?") as stream:
        next(iter(stream))
    with pytest.raises(ConfigError, match="was closed before its end"):
        _ = stream.result
    with agent.stream("?") as unread:
        pass
    with pytest.raises(ConfigError, match="was closed before its end"):
        _ = unread.result


@pytest.mark.requirement("U-06")
@pytest.mark.parametrize("loop", ["pass", "break", "raise SystemExit"])
def test_plain_for_over_a_stream_leaves_no_warning(loop: str) -> None:
    program = f"""
import logging
from midspan import Agent, Gemini
from midspan.emulator import LocalGemini
from midspan.gemini import Client
logging.getLogger("asyncio").setLevel(logging.ERROR)  # a busy machine makes slow callbacks, which are no errors
with LocalGemini(["one two three"]) as server:
    for event in Agent(Gemini(api_key="k", base_url=server.url)).stream("?"):
        {loop}
    for chunk in Client(api_key="k", base_url=server.url).stream_generate_content("?"):
        {loop}
"""
    ran = run_program(program, "-X", "dev", "-W", "always")
    assert (ran.returncode, ran.stderr) == (0, "")


# Chats, recordings and background runs


def test_chat_has_the_typed_answer() -> None:
    @dataclass
    class City:
        name: str

    chat = Chat(Agent(ScriptedProvider(['{"name": "Oslo"}']), output=City))
    with pytest.raises(ConfigError, match="nothing was asked yet"):
        _ = chat.output
    assert chat.ask_sync("?").output == City("Oslo")


def test_recorded_agent_has_the_names_of_its_model(tmp_path: Any) -> None:
    agent = record(Agent(ScriptedProvider(["a"], model="m")), tmp_path)
    assert (agent.model, agent.provider.model) == ("m", "m")


async def _ended_runs(runs: BackgroundRuns, count: int) -> list[str]:
    ids = []
    for _ in range(count):
        ids.append(runs.start("?"))
        async for _event in runs.subscribe(ids[-1]):
            pass
    return ids


@pytest.mark.requirement("U-07")
def test_kept_background_runs_are_bounded_in_bytes() -> None:
    import asyncio

    from midspan._loop.background_runs import MAX_BYTES

    async def main() -> None:
        async with BackgroundRuns(Agent(ScriptedProvider(lambda _: "x" * (MAX_BYTES // 3)))) as runs:
            ids = await _ended_runs(runs, 4)
            kept = [info.run for info in await runs.journal.list()]
            assert ids[-1] in kept
            assert ids[0] not in kept
            assert len(kept) < 4

    asyncio.run(main())


def test_dict_in_place_of_a_message_is_an_error_that_shows_a_message() -> None:
    with pytest.raises(ConfigError, match=r"such as Message\.user.*, got \{'role'"):
        Agent(ScriptedProvider(["done"])).run_sync(messages=[{"role": "user", "content": "hi"}])  # type: ignore[list-item]


def test_setting_of_a_wrong_type_is_an_error_that_names_it() -> None:
    with pytest.raises(ConfigError, match=r"settings: Expected `float \| null`, got `str` - at `\$\.temperature`"):
        Agent(ScriptedProvider(["done"]), settings={"temperature": "hot"})
