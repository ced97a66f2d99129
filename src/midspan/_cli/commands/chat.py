"""`midspan chat`: a conversation, one question after another."""

import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from contextlib import closing, suppress
from importlib.util import find_spec
from typing import Any

from msgspec.structs import replace

from midspan._cli.arguments import add_log_arguments, add_model_arguments, add_tool_arguments
from midspan._cli.conversation import LoggedConversation
from midspan._cli.interrupts import InterruptibleRunner, exit_now
from midspan._cli.output import AnswerDisplay, ProgressDisplay
from midspan._cli.settings import Settings, load_settings, private_directory, user_directory, user_path, write_private
from midspan._cli.text import exit_code, print_error, print_line
from midspan._cli.tool_sources import load_tools, mcp_sources
from midspan._types.codec import to_json
from midspan.errors import ConfigError, MidspanError

_NEW_LINE = "Alt-Enter starts a new line, " if find_spec("prompt_toolkit") else ""
_KEYS = f"Enter sends, {_NEW_LINE}Ctrl-C cancels a run, /help shows the commands."
_SLASH_COMMAND = re.compile(r"/(\w+)(?:\s+(.*))?", re.DOTALL)
_SLASH_COMMANDS = {
    "/model": " [NAME]: show or change the model",
    "/tools": " [FILE.py|MODULE|ready|none …]: show or change the tools",
    "/clear": ": start a new conversation; the old one stays in the log",
    "/save": " FILE: write the conversation to a file, as JSON",
    "/help": ": show this list",
    "/quit": ": exit, like Ctrl-D",
}


def add_arguments(parser: ArgumentParser) -> None:
    add_model_arguments(parser)
    add_tool_arguments(parser)
    add_log_arguments(parser)
    parser.add_argument("--new", action="store_true", help="with --session, start over; the old one stays in the log")


def run(options: Namespace) -> int:
    settings = load_settings(options)
    with InterruptibleRunner() as runner:
        chat = TerminalChat(settings, runner, options)
        with closing(chat.conversation):
            chat.answer_lines()
        if runner.has_abandoned_tasks:
            exit_now(chat.exit_code)
    return chat.exit_code


class TerminalChat:
    """Reads questions and slash commands until the input ends."""

    exit_code = 0
    """Of the first error, if stdin is not a terminal."""

    def __init__(self, settings: Settings, runner: InterruptibleRunner, options: Namespace) -> None:
        self._mcp_servers = mcp_sources(options)
        self._tools: list[Any] = [*load_tools(settings.tools), *self._mcp_servers]
        self._read_only = settings.read_only  # the restriction of the fallback model does not apply to other models
        self._verbose: int = options.verbose
        self.conversation = LoggedConversation(settings, self._tools, runner, options)

    def answer_lines(self) -> None:
        read_line = line_reader()
        is_terminal = sys.stdin.isatty()
        if is_terminal:
            count = len(self.conversation.history)
            past = f" This conversation has {count} messages; /clear starts over." if count else ""
            print_line(f"the model is {self.conversation.agent.model}.{past} {_KEYS}")
        while True:
            try:
                line = read_line().strip()
                if command := _SLASH_COMMAND.fullmatch(line):  # a path such as /etc/hosts is not one
                    self._run_slash_command(command[1].lower(), (command[2] or "").strip())
                elif line:
                    self.conversation.ask(line, [ProgressDisplay(verbose=self._verbose), AnswerDisplay(sys.stdout)], [])
            except EOFError:
                return
            except KeyboardInterrupt:
                if self.conversation.runner.is_terminated or not is_terminal:  # SIGTERM ends the program too
                    raise
                print_line("cancelled; the conversation continues, Ctrl-D or /quit exits")
            except MidspanError as error:
                print_error(error, verbose=bool(self._verbose))
                if not is_terminal:
                    self.exit_code = self.exit_code or exit_code(error)

    def _run_slash_command(self, name: str, argument: str) -> None:
        match name:
            case "model":
                if argument:
                    self._use(model=argument, read_only=self._read_only)
                print_line(f"the model is {self.conversation.agent.model}")
            case "tools":
                if argument:
                    self._use(tools=[] if argument == "none" else argument.split())
                names = [getattr(tool, "name", type(tool).__name__) for tool in self._tools]
                print_line(f"tools: {', '.join(names) or 'none'}")
            case "clear":
                self.conversation.clear()
                print_line("a new conversation starts")
            case "save":
                self._save(argument)
            case "help":
                for line in (_KEYS, *(f"{command}{text}" for command, text in _SLASH_COMMANDS.items())):
                    print_line(line, prefix="")
            case "quit":
                raise EOFError
            case _:
                raise ConfigError(f"unknown command /{name}; /help shows the commands")

    def _use(self, **changes: Any) -> None:
        """Change the model or the tools. If that fails, nothing changes."""
        settings = replace(self.conversation.settings, **changes)
        tools = [*load_tools(settings.tools), *self._mcp_servers] if "tools" in changes else self._tools
        self.conversation.use(settings, tools)
        self._tools = tools

    def _save(self, name: str) -> None:
        if not name:
            raise ConfigError("name a file: /save FILE.json")
        history, path = self.conversation.history, user_path(name)
        write_private(path, to_json(history), create_folder=False)
        print_line(f"wrote {len(history)} messages to {path}")


def line_reader() -> Callable[[], str]:
    """Return a function that reads the next question or command, and raises EOFError at the end of the input."""
    is_terminal = sys.stdin.isatty()
    if is_terminal and sys.stdout.isatty():
        with suppress(ImportError):  # prompt_toolkit is not installed
            return _line_editor()
    if hasattr(sys.stdin, "reconfigure"):
        # Piped text is UTF-8, as for `ask`; a line that cannot be decoded is an error of that line alone.
        sys.stdin.reconfigure(encoding=None if is_terminal else "utf-8-sig", errors="surrogateescape")
    prompt = "> " if is_terminal and sys.stdout.isatty() else ""
    return lambda: input(prompt)


def _line_editor() -> Callable[[], str]:
    """Return a reader with line editing, completion and the history of earlier chats. Needs prompt_toolkit."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.history import FileHistory
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    keys = KeyBindings()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    history = None
    with suppress(ConfigError, OSError):  # lines are not kept if there is nowhere to write
        path = private_directory(user_directory("state")) / "chat_lines"
        path.touch(mode=0o600)
        history = FileHistory(str(path))
    completer = WordCompleter([*_SLASH_COMMANDS], sentence=True)
    session: PromptSession[str] = PromptSession(
        history=history, key_bindings=keys, completer=completer, complete_while_typing=False
    )
    return lambda: session.prompt("> ")
