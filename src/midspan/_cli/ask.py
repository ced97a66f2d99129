"""`midspan ask`: one question, one answer."""

import os
import select
import stat
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any, TextIO

import msgspec

from midspan._cli.commands import add_model_arguments, add_tool_arguments, complete_paths
from midspan._cli.conversation import Conversation, Session, build_agent, last_session, with_fallback
from midspan._cli.interrupts import InterruptibleRunner
from midspan._cli.output import Display, answer_display, progress_display, stdout_for_answers, write
from midspan._cli.settings import load_settings, valid_text
from midspan._cli.text import describe_error, exit_code, json_document, print_error, print_line
from midspan._cli.tool_files import load_tools
from midspan._types.events import RunEnd, RunEvent, RunStart, ToolEnd, ToolStart, TurnEnd, TurnStart
from midspan._types.exchange import Usage
from midspan.errors import ConfigError, LimitReached

_MAX_BYTES = 50_000_000
"""Of stdin or of a file: far more than any model accepts, far less than the memory of a computer."""
_SECONDS_BEFORE_NOTICE = 2.0


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("question", nargs="*", metavar="QUESTION", help="the question; text from stdin comes before it")
    add_model_arguments(parser)
    add_tool_arguments(parser)
    complete_paths(
        parser.add_argument(
            "-f", "--file", metavar="FILE", action="append", default=[], help="also send a file; repeatable"
        )
    )
    session = parser.add_mutually_exclusive_group()
    session.add_argument("--session", metavar="NAME", help="continue the conversation NAME, or start it")
    session.add_argument(
        "-c", "--continue", dest="continue_last", action="store_true", help="continue the last conversation"
    )
    parser.add_argument(
        "--prompt-mode", action="store_true", help="describe the tools in the prompt and read calls from the text"
    )
    complete_paths(parser.add_argument("--record", metavar="DIR", help="record the run in DIR, to replay it in tests"))
    parser.add_argument(
        "--json", action="store_true", help="print a JSON object with the answer, the calls and the usage"
    )


def run(options: Namespace) -> int:
    report = Report()
    error: BaseException | None = None
    with stdout_for_answers() as out:
        try:
            _ask(options, report, out)
        except BrokenPipeError:
            raise
        except (Exception, KeyboardInterrupt) as raised:  # noqa: BLE001 - reported below
            error = raised
        if options.json:
            write(out, report.document(error))
    if isinstance(error, KeyboardInterrupt):
        raise error
    if error is not None:
        print_error(error, verbose=options.verbose)
        return exit_code(error)
    return 0


def _ask(options: Namespace, report: "Report", out: TextIO) -> None:
    settings = load_settings(options)
    session = None
    if options.continue_last or options.session is not None:
        session = last_session() if options.continue_last else Session(options.session)
        session.check_writable()
        report.session = session.name
    prompt = _read_prompt(options.question, options.file)
    tools = load_tools(settings.tools)
    agent = build_agent(with_fallback(settings, allow_all_tools=options.yes), tools)
    if options.prompt_mode:
        agent = agent.replace(prompt_mode=True)
    if options.record is not None:
        from midspan.testing import record

        agent = record(agent, options.record)
    displays: list[Display] = [report, progress_display(verbose=options.verbose)]
    if not options.json:
        displays.append(answer_display(out))
    with InterruptibleRunner() as runner:
        conversation = Conversation(agent, runner, session)
        try:
            conversation.ask(prompt, displays)
        finally:
            conversation.close()


def _read_prompt(words: list[str], files: list[str]) -> str | list[Any]:
    """Combine text from stdin, the words of the command line, and files."""
    question = " ".join(words).strip()
    question = "" if question == "-" else valid_text(question, "the question")
    text = "\n\n".join(filter(None, (_read_stdin().strip(), question)))
    if not text:
        hint = "in addition to the files" if files else 'for example midspan ask "What is 2 + 2?", or pipe one in'
        raise ConfigError(f"there is no question; pass one, {hint}")
    return [text, *map(_check_file, files)] if files else text


def _read_stdin() -> str:
    """Return what is piped in or redirected from a file; nothing from a terminal or /dev/null."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return ""
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)):
        return ""
    _explain_waiting()
    data = sys.stdin.buffer.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise ConfigError(f"stdin has more than {_MAX_BYTES:,} bytes, too much for any model")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError("stdin is not UTF-8 text; pass other files with --file") from error


def _explain_waiting() -> None:
    """Print a notice if nothing arrives on stdin, which the user may have left open by mistake."""
    try:
        if not select.select([sys.stdin], [], [], _SECONDS_BEFORE_NOTICE)[0]:
            print_line("waiting for text on stdin; end it with Ctrl-D, or run the command with </dev/null")
    except (OSError, ValueError):
        return  # Windows cannot wait for files


def _check_file(name: str) -> Path:
    path = Path(name).expanduser()
    if not path.is_file():
        raise ConfigError(f"{name!r} is not a regular file" if path.exists() else f"no such file: {name!r}")
    if path.stat().st_size > _MAX_BYTES:
        raise ConfigError(f"the file {name!r} has more than {_MAX_BYTES:,} bytes, too much for any model")
    return path


class Report(Display):
    """The JSON object about a run, collected from its events."""

    def __init__(self) -> None:
        self.session: str | None = None
        self._run_id: str | None = None
        self._model: str | None = None
        self._answer: str | None = None
        self._limit: str | None = None
        self._turns = 0
        self._usage = Usage()
        self._calls: dict[tuple[int, int], dict[str, Any]] = {}
        """By turn and position in the turn: two calls of a turn may share an id."""

    def show(self, event: RunEvent) -> None:
        match event:
            case RunStart(run_id, model):
                self._run_id, self._model = run_id, model
            case TurnStart(turn):
                self._turns = turn
            case TurnEnd(turn=turn, message=message, usage=usage):
                self._usage += usage
                for index, call in enumerate(message.calls):  # also calls that will not run
                    self._call(turn, index, call.id, call.name)["arguments"] = call.arguments
            case ToolStart(turn=turn, call=call, index=index):
                self._call(turn, index, call.id, call.name)["arguments"] = call.arguments
            case ToolEnd(turn=turn, result=result, duration_seconds=seconds, index=index):
                self._call(turn, index, result.id, result.name).update(
                    result=result.value, is_error=result.is_error, duration_seconds=round(seconds, 6)
                )
            case RunEnd(text=text, limit=limit):
                self._answer, self._limit = text, limit

    def _call(self, turn: int, index: int, id: str, name: str) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "id": id,
            "name": name,
            "arguments": {},
            "result": None,
            "is_error": None,
            "duration_seconds": None,
        }
        return self._calls.setdefault((turn, index), fields)

    def document(self, error: BaseException | None = None) -> str:
        return json_document(
            {
                "answer": self._answer,
                "tool_calls": list(self._calls.values()),
                "usage": {**msgspec.structs.asdict(self._usage), "total": self._usage.total},
                "turns": self._turns,
                "run_id": self._run_id,
                "model": self._model,
                "limit": error.limit if isinstance(error, LimitReached) else self._limit,
                "session": self.session,
                "error": None if error is None else error_fields(error),
            }
        )


def error_fields(error: BaseException) -> dict[str, str]:
    name = "Interrupted" if isinstance(error, KeyboardInterrupt) else type(error).__name__
    return {"type": name, "message": describe_error(error)}
