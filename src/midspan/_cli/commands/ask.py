"""`midspan ask`: one question, one answer."""

from argparse import ArgumentParser, Namespace
from typing import Any, TextIO

import msgspec

from midspan._cli.arguments import add_log_arguments, add_model_arguments, add_tool_arguments, complete_paths
from midspan._cli.conversation import Conversation, build_agent, logged_session, with_fallback
from midspan._cli.interrupts import InterruptibleRunner
from midspan._cli.output import Display, answer_display, progress_display, stdout_for_answers, write
from midspan._cli.prompt import read_prompt, read_schema
from midspan._cli.settings import load_settings
from midspan._cli.text import describe_error, exit_code, json_document, print_error
from midspan._cli.tool_sources import load_tools, mcp_sources
from midspan._types.events import RunEnd, RunEvent, RunStart, ToolEnd, ToolStart, TurnEnd, TurnStart
from midspan._types.exchange import Usage
from midspan.errors import LimitReachedError


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("question", nargs="*", metavar="QUESTION", help="the question; text from stdin comes before it")
    add_model_arguments(parser)
    add_tool_arguments(parser)
    complete_paths(
        parser.add_argument(
            "-f",
            "--file",
            metavar="FILE|URL|-",
            action="append",
            default=[],
            help="also send a file, a page of the web, or stdin; repeatable",
        )
    )
    parser.add_argument(
        "--schema",
        metavar="FIELDS|FILE.json",
        help='answer in JSON: with these fields, such as "name, age int, tags str[]", or by a JSON Schema',
    )
    add_log_arguments(parser)
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
        except (Exception, KeyboardInterrupt, SystemExit) as raised:  # noqa: BLE001 - reported below
            error = raised
        if options.json:
            write(out, report.document(error))
    if isinstance(error, KeyboardInterrupt | SystemExit):
        raise error
    if error is not None:
        print_error(error, verbose=options.verbose)
        return exit_code(error)
    return 0


def _ask(options: Namespace, report: "Report", out: TextIO) -> None:
    settings = load_settings(options)
    prompt = read_prompt(options.question, options.file)
    schema = {} if options.schema is None else {"output": read_schema(options.schema)}
    tools = [*load_tools(settings.tools), *mcp_sources(options)]
    displays: list[Display] = [report, progress_display(verbose=options.verbose)]
    if not options.json:
        displays.append(answer_display(out))
    with InterruptibleRunner() as runner, logged_session(runner, options, settings) as (log, session):
        report.session = None if not session or session.startswith("-") else session
        agent = build_agent(with_fallback(settings, allow_all_tools=options.yes), tools)
        if options.prompt_mode:
            agent = agent.replace(prompt_mode=True)
        if options.record is not None:
            from midspan.testing import record

            agent = record(agent, options.record)
        conversation = Conversation(agent, runner, log, session)
        try:
            conversation.ask(prompt, displays, **schema)
        finally:
            conversation.close()


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
                    result=result.model_value, is_error=result.is_error, duration_seconds=round(seconds, 6)
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
        return json_document(self.fields(error))

    def fields(self, error: BaseException | None = None) -> dict[str, Any]:
        return {
            "answer": self._answer,
            "tool_calls": list(self._calls.values()),
            "usage": {**msgspec.structs.asdict(self._usage), "total": self._usage.total},
            "turns": self._turns,
            "run_id": self._run_id,
            "model": self._model,
            "limit": error.limit if isinstance(error, LimitReachedError) else self._limit,
            "session": self.session,
            "error": None if error is None else error_fields(error),
        }


def error_fields(error: BaseException) -> dict[str, str]:
    name = "Interrupted" if isinstance(error, KeyboardInterrupt) else type(error).__name__
    return {"type": name, "message": describe_error(error)}
