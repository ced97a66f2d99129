"""`midspan ask`: one question, one answer."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import closing
from typing import Any, TextIO

import msgspec

from midspan._cli import arguments
from midspan._cli.conversation import LoggedConversation, build_agent, with_fallback
from midspan._cli.interrupts import InterruptibleRunner
from midspan._cli.output import AnswerDisplay, Display, ProgressDisplay, stdout_for_answers
from midspan._cli.prompt import read_prompt, read_schema
from midspan._cli.settings import load_settings
from midspan._cli.text import error_fields, write_json
from midspan._cli.tool_sources import load_tools, mcp_sources
from midspan._storage.journal import RunSummary
from midspan._types.events import RunEnd, RunEvent, RunStart
from midspan._types.messages import History
from midspan._types.parts import ToolCall
from midspan._types.run_state import RunState, ToolRun
from midspan.errors import LimitReachedError


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("question", nargs="*", metavar="QUESTION", help="the question; text from stdin comes before it")
    arguments.add_model_arguments(parser)
    arguments.add_tool_arguments(parser)
    file_help = "also send a file, a page of the web, or stdin; repeatable"
    arguments.add_path(parser, "-f", "--file", metavar="FILE|URL|-", action="append", default=[], help=file_help)
    schema_help = 'answer in JSON: with these fields, such as "name, age int, tags str[]", or by a JSON Schema'
    parser.add_argument("--schema", metavar="FIELDS|FILE.json", help=schema_help)
    arguments.add_log_arguments(parser)
    prompt_help = "describe the tools in the prompt and read calls from the text"
    parser.add_argument("--prompt-mode", action="store_true", help=prompt_help)
    arguments.add_path(parser, "--record", metavar="DIR", help="record the run in DIR, to replay it in tests")
    arguments.add_json_argument(parser)


def run(options: Namespace) -> int:
    events: list[RunEvent] = []
    with stdout_for_answers() as out:
        try:
            _ask(options, events, out)
        finally:
            if options.json:
                write_json(report(events, sys.exception()), out)
    return 0


def _ask(options: Namespace, events: list[RunEvent], out: TextIO) -> None:
    settings = load_settings(options)
    prompt = read_prompt(options.question, options.file)
    schema = {} if options.schema is None else {"output": read_schema(options.schema)}
    tools = [*load_tools(settings.tools), *mcp_sources(options)]
    displays: list[Display] = [ProgressDisplay(verbose=options.verbose)]
    if not options.json:
        displays.append(AnswerDisplay(out))
    agent = build_agent(with_fallback(settings, allow_all_tools=options.yes), tools)
    if options.prompt_mode:
        agent = agent.replace(prompt_mode=True)
    if options.record is not None:
        from midspan.testing import record

        agent = record(agent, options.record)
    with InterruptibleRunner() as runner, closing(LoggedConversation(agent, runner, options, settings)) as conversation:
        conversation.ask(prompt, displays, events, **schema)


def report(events: Sequence[RunEvent], error: BaseException | None) -> dict[str, Any]:
    """Return the JSON object about a run."""
    state, summary, end = RunState.of(History()), RunSummary(), None
    for event in events:
        summary = summary.after(event)
        if isinstance(event, RunEnd):  # the state after it has results for calls that did not end
            end = event
        else:
            state = state.after(event)
    runs_of_last_turn = {run.index: run for run in state.ended}
    calls: list[tuple[ToolCall, ToolRun | None]] = [(run.call, run) for run in state.tool_runs]
    calls += [(call, runs_of_last_turn.get(index)) for index, call in enumerate(state.calls)]
    limit = error.limit if isinstance(error, LimitReachedError) else end and end.limit
    return {
        "answer": None if end is None or end.error is not None else end.text,
        "tool_calls": [_call_fields(call, run) for call, run in calls],
        "usage": {**msgspec.structs.asdict(summary.usage), "total": summary.usage.total},
        "turns": summary.turns,
        "run_id": next((event.run_id for event in events if isinstance(event, RunStart)), None),
        "model": summary.model,
        "limit": limit,
        "error": None if error is None else error_fields(error),
    }


def _call_fields(call: ToolCall, run: ToolRun | None) -> dict[str, Any]:
    """Describe a call. Without a run it has not ended."""
    return {
        "id": call.id,
        "name": call.name,
        "arguments": call.arguments,
        "result": None if run is None else run.result.model_value,
        "is_error": None if run is None else run.is_error,
        "duration_seconds": None if run is None else round(run.duration_seconds, 6),
    }
