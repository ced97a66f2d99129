"""`midspan chat`, in a terminal and with pipes."""

import json
import signal
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from midspan._types.codec import from_json
from tests.cli.terminal import Ended, Terminal, conversation, midspan

SLOW = '''
import asyncio
from midspan import tool

@tool(timeout=None)
async def slow_backup(name: str) -> str:
    """Run the slow backup of a database."""
    print("it runs", flush=True)
    await asyncio.sleep(60)
'''


READY = "\x1b[?2004h"
"""What the line editor sends when it starts to read: it turns on bracketed paste."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "slow.py").write_text(SLOW)
    return tmp_path


@pytest.fixture
def terminal(home: Path) -> Iterator[Terminal]:
    terminal = Terminal("chat", "-m", "offline", "-t", "slow.py", "-t", "ready", home=home, columns=60)
    try:
        terminal.wait_for(READY)
        yield terminal
    finally:
        terminal.close()


def test_ctrl_c_cancels_the_run_and_not_the_program(home: Path, terminal: Terminal) -> None:
    terminal.type("Run the slow backup of 'orders'\r")
    terminal.wait_for("it runs")
    terminal.type("\x03")
    terminal.wait_for("the conversation continues")
    terminal.wait_for(READY)
    terminal.type("What is 2 + 2?\r")
    terminal.wait_for("calculate")
    terminal.wait_for(READY)
    terminal.type("\x04")
    code, seen = terminal.end()
    assert code == 0
    assert "Traceback" not in seen
    messages = conversation(home)
    assert [message.role for message in messages] == ["user", "model", "user", "user", "model", "user", "model"]
    assert [call.id for call in messages[1].calls] == [result.id for result in messages[2].results]


STUBBORN = SLOW.replace(
    "    await asyncio.sleep(60)\n",
    "    while True:\n        try:\n            await asyncio.sleep(60)\n"
    "        except asyncio.CancelledError:\n            pass\n",
)


def test_ctrl_c_abandons_a_tool_that_ignores_its_cancellation_and_the_chat_continues(home: Path) -> None:
    (home / "slow.py").write_text(STUBBORN)
    terminal = Terminal("chat", "-m", "offline", "-t", "slow.py", "-t", "ready", home=home, columns=60)
    try:
        terminal.wait_for(READY)
        terminal.type("Run the slow backup of 'orders'\r")
        terminal.wait_for("it runs")
        terminal.type("\x03")
        terminal.wait_for("the conversation continues")
        terminal.wait_for(READY)
        terminal.type("What is 2 + 2?\r")
        terminal.wait_for("is exact: yes.")
        terminal.wait_for(READY)
        terminal.type("/QUIT\r")
        code, seen = terminal.end()
    finally:
        terminal.close()
    assert code == 0
    assert "Traceback" not in seen
    assert "destroyed" not in seen
    assert len(conversation(home)) == 7


def test_program_exits_after_a_tool_was_abandoned(home: Path) -> None:
    (home / "slow.py").write_text(STUBBORN.replace("timeout=None", "timeout=0.05"))

    def run(command: str) -> Ended:
        return midspan(command, "-m", "offline", "-t", "slow.py", home=home, stdin="Run the slow backup of 'orders'")

    with ThreadPoolExecutor() as pool:  # each takes the five seconds after which a tool is abandoned
        for ended in pool.map(run, ["ask", "chat"]):
            assert ended.code == 0
            assert "timed out after 0.05 seconds, ignored its cancellation and was abandoned" in ended.out
            assert "Traceback" not in ended.err
            assert "destroyed" not in ended.err


def test_ctrl_c_at_the_prompt_explains_how_to_exit(terminal: Terminal) -> None:
    terminal.type("half a quest\x03")
    terminal.wait_for("/quit exits")
    terminal.wait_for(READY)
    terminal.type("/quit\r")
    assert terminal.end()[0] == 0


def test_sigterm_ends_the_program(terminal: Terminal) -> None:
    terminal.type("Run the slow backup of 'orders'\r")
    terminal.wait_for("it runs")
    terminal.process.send_signal(signal.SIGTERM)
    code, seen = terminal.end()
    assert code == 130
    assert "Traceback" not in seen


def test_alt_enter_starts_a_new_line(home: Path, terminal: Terminal) -> None:
    terminal.type("What is 2 + 2\x1b\ror so?\r")
    terminal.wait_for("calculate")
    terminal.wait_for(READY)
    terminal.type("/quit\r")
    terminal.end()
    assert conversation(home)[0].text == "What is 2 + 2\nor so?"


def test_tab_completes_slash_commands(terminal: Terminal) -> None:
    terminal.type("/sa")
    terminal.wait_for("/sa")
    terminal.type("\t")
    terminal.wait_for("ve")
    terminal.type(" talk.json\r")
    terminal.wait_for("wrote 0 messages to talk.json")
    terminal.wait_for(READY)
    terminal.type("/quit\r")
    assert terminal.end()[0] == 0


def test_conversation_and_input_history_are_saved(home: Path, terminal: Terminal) -> None:
    terminal.type("What is 2 + 2?\r")
    terminal.wait_for("is exact: yes.")
    terminal.wait_for(READY)
    terminal.type("/quit\r")
    terminal.end()
    again = Terminal("chat", "-c", "-m", "offline", home=home)
    try:
        again.wait_for("has 4 messages")
        again.wait_for(READY)
        again.type("\x1b[A\x1b[A\r")  # up, past /quit, to the question
        again.wait_for("is exact: yes.")
        again.wait_for(READY)
        again.type("\x04")
        assert again.end()[0] == 0
    finally:
        again.close()
    assert len(conversation(home)) == 8


def test_piped_questions_are_answered_one_after_another(home: Path) -> None:
    ended = midspan("chat", "-m", "offline", home=home, stdin="What is 2 + 2?\n\nWhat is 3 + 4?")
    assert ended.code == 0
    assert [line for line in ended.out.splitlines() if "result" in line] == [
        "calculate: result: 4, is exact: yes.",
        "calculate: result: 7, is exact: yes.",
    ]
    assert "> " not in ended.err


def test_slash_commands_change_model_and_tools_and_clear_and_save(home: Path) -> None:
    lines = [
        "/model",
        "/model gemini",
        "/tools none",
        "/tools nope.py",
        "/tools slow.py",
        "What is 2 + 2?",
        "/tools ready",
        "What is 2 + 2?",
        "/save talk.json",
        "/save nowhere/x",
        "/save ~nobody-here/x",
        "/sav",
        "/clear",
        "/help",
        "/quit",
        "What is 5 + 5?",
    ]
    ended = midspan("chat", "-m", "offline", home=home, stdin="\n".join(lines))
    assert ended.code == 3
    assert "the model is offline" in ended.err
    assert "GEMINI_API_KEY, or store it with midspan keys set gemini" in ended.err
    assert "tools: none" in ended.err
    assert "'nope.py'" in ended.err
    assert "tools: slow_backup\n" in ended.err
    assert "unknown command /sav; /help shows the commands" in ended.err
    assert "cannot write 'nowhere/x'" in ended.err
    assert "unknown user in the path '~nobody-here/x'" in ended.err
    assert "10" not in ended.out
    assert len(from_json((home / "talk.json").read_bytes(), "messages")) == 6
    assert stat.S_IMODE((home / "talk.json").stat().st_mode) == 0o600
    assert len(conversation(home)) == 6, "/clear starts a new conversation, and the old one stays"


@pytest.mark.requirement("U-09")
def test_piped_chat_continues_after_an_error_and_exits_with_its_code(home: Path) -> None:
    ended = midspan("chat", "-m", "offline", "--max-turns", "1", home=home, stdin="What is 2 + 2?\nhello\n")
    assert ended.code == 124
    assert "Maximum" in ended.err
    assert "offline model" in ended.out


@pytest.mark.requirement("U-08")
def test_chat_starts_over_and_destroys_nothing(home: Path) -> None:
    def chat(*arguments: str, lines: str = "What is 2 + 2?\n") -> None:
        assert midspan("chat", "-m", "offline", *arguments, home=home, stdin=lines).code == 0

    chat()
    chat()
    assert len(conversation(home)) == 4
    chat("-c")
    assert len(conversation(home)) == 8
    chat("--session", "b")
    chat("--session", "b")
    assert len(conversation(home, "b")) == 8
    chat("--session", "b", "--new")
    assert len(conversation(home, "b")) == 4
    chat("--session", "b", lines="/clear\nhello\n")
    assert len(conversation(home, "b")) == 2
    assert len(json.loads(midspan("runs", "--json", home=home).out)) == 7


def test_piped_line_that_is_not_utf8_is_skipped_and_the_others_are_sent(home: Path) -> None:
    lines = b"\xef\xbb\xbfWhat is 1 + 1, Zo\xc3\xab?\n\xff\xfe\nWhat is 2 + 2?\n"
    ended = midspan("chat", "-m", "offline", home=home, stdin=lines)
    assert ended.code == 2
    assert ended.err.count("midspan: the prompt is not valid Unicode") == 1
    messages = conversation(home)
    asked = [message.text for message in messages if message.role == "user" and message.text]
    assert asked == ["What is 1 + 1, Zoë?", "What is 2 + 2?"]


def test_typed_line_that_is_not_utf8_is_reported(home: Path) -> None:
    terminal = Terminal("chat", "-m", "offline", home=home)
    try:
        terminal.wait_for(READY)
        terminal.type("half \udcff\r")
        terminal.wait_for("not valid Unicode")
        terminal.wait_for(READY)
        terminal.type("/quit\r")
        assert terminal.end()[0] == 0
    finally:
        terminal.close()


COUNTER = """
from midspan.messages import ToolResult
from midspan.tools import ToolListing, ToolSource, ToolSpec

class Counter(ToolSource):
    count = 0

    async def list_tools(self):
        return ToolListing((ToolSpec("count_visits", "Count the visits.", read_only=True),))

    async def call(self, call, context):
        self.count += 1
        return ToolResult(call.id, call.name, f"visit {self.count}")

    async def aclose(self):
        print("closed", flush=True)

tools = [Counter()]
"""


def test_source_stays_open_while_the_model_and_the_tools_change_and_is_closed_once(home: Path) -> None:
    (home / "counter.py").write_text(COUNTER)
    lines = ["Count the visits", "/model offline", "Count the visits", "/tools counter slow", "Count the visits"]
    ended = midspan("chat", "-m", "offline", "-t", "counter", home=home, stdin="\n".join(lines))
    assert (ended.code, ended.out.count("closed")) == (0, 1), ended.err
    assert [number for number in (1, 2, 3) if f"visit {number}" in ended.out] == [1, 2, 3]
    assert ended.out.endswith("closed\n")
