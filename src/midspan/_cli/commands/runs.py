"""`midspan runs`: past runs of `ask` and `chat`."""

import sys
import time
from argparse import ArgumentParser, Namespace
from contextlib import closing
from typing import Any

from midspan._cli.arguments import add_json_argument, positive_number
from midspan._cli.commands.ask import report
from midspan._cli.conversation import RunLog
from midspan._cli.interrupts import InterruptibleRunner
from midspan._cli.output import AnswerDisplay, ProgressDisplay
from midspan._cli.questions import TERMINAL
from midspan._cli.text import escape_line, print_line, shorten, terminal_columns, wrap_line, write_json, write_result
from midspan._storage.journal import RunInfo
from midspan._types.events import CANCELLED, RunEnd, RunEvent, RunStart
from midspan._types.parts import Text
from midspan._types.texts import count_noun
from midspan.errors import ConfigError

_MARKS = {"completed": " ", "unfinished": "…"}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=[*_ACTIONS], nargs="?", default="list", help="what to do; list by default")
    parser.add_argument("ids", metavar="ID", nargs="*", help="the start of an id; show takes the last run without one")
    parser.add_argument("-n", "--number", metavar="N", type=positive_number, default=20, help="how many to list (20)")
    parser.add_argument("--all", action="store_true", help="list or delete all runs")
    add_json_argument(parser)


def run(options: Namespace) -> int:
    with InterruptibleRunner() as runner, closing(RunLog(runner.run)) as log:
        _ACTIONS[options.action](log, options)
    return 0


def _list(log: RunLog, options: Namespace) -> None:
    if options.ids:
        raise ConfigError(f"midspan runs list takes no ids; midspan runs show {options.ids[0]} shows a run")
    infos = log.runs(None if options.all else options.number)
    runs = [(info, _question(log.read(info.run, limit=1))) for info in infos]
    columns = terminal_columns(sys.stdout) if sys.stdout.isatty() else 200
    lines = []
    for info, question in runs:
        started = time.strftime("%d %b %H:%M", time.localtime(info.started_at))
        line = f"{info.run.removeprefix('run_')[:6]} {_MARKS.get(_state(info), '✗')} {started} {question}"
        lines.append(shorten(line, columns))
    write_result([_fields(info, question) for info, question in runs], lines, as_json=options.json)
    if not runs:
        print_line("the log is empty")


def _fields(info: RunInfo, question: str) -> dict[str, Any]:
    named = info.session if info.session and not info.session.startswith("-") else None
    summary = info.summary
    return {
        "run_id": info.run,
        "question": question,
        "model": summary.model,
        "state": _state(info),
        "session": named,
        "turns": summary.turns,
        "tokens": summary.usage.total,
        "started_at": info.started_at,
        "error": None if summary.error is None else {"type": summary.error.kind, "message": summary.error.message},
    }


def _state(info: RunInfo) -> str:
    """Return how the run ended, or `unfinished`: it runs in another process, or its process was killed."""
    return info.summary.state if info.summary.ended else "unfinished"


def _question(events: list[RunEvent]) -> str:
    start = events[0] if events else None
    if not isinstance(start, RunStart) or not start.messages:
        return ""
    return next((part.text for part in start.messages[-1].parts if isinstance(part, Text)), "")


def _show(log: RunLog, options: Namespace) -> None:
    ids = options.ids or [info.run for info in log.runs(1)]
    if not ids:
        raise ConfigError("the log is empty")
    for id in ids:
        info = log.find(id)
        events = log.read(info.run)
        if options.json:
            write_json({**report(events, None), **_fields(info, _question(events))})
        else:
            _print_run(info, events)


def _print_run(info: RunInfo, events: list[RunEvent]) -> None:
    started = time.strftime("%d %b %Y %H:%M", time.localtime(info.started_at))
    summary = info.summary
    head = f"{info.run}, {started}, {summary.model}, {_state(info)}, {count_noun(summary.turns, 'turn')}"
    sys.stdout.write(f"{wrap_line(head, sys.stdout)}\n{wrap_line(f'> {_question(events)}', sys.stdout)}\n")
    progress, answer = ProgressDisplay(verbose=1, out=sys.stdout), AnswerDisplay(sys.stdout)
    for event in events:
        if not isinstance(event, RunEnd):
            progress.show(event)
        elif event.error is None:
            answer.show(event)
        else:
            kind, message = event.error.kind, event.error.message
            sys.stdout.write(f"{CANCELLED if kind == CANCELLED else escape_line(f'{kind}: {message}')}\n")


def _delete(log: RunLog, options: Namespace) -> None:
    if bool(options.ids) == options.all:
        raise ConfigError("pass the ids of the runs to delete, or --all")
    runs = log.runs() if options.all else [log.find(id) for id in options.ids]
    if options.all and TERMINAL.is_interactive and not TERMINAL.confirm(f"Delete {count_noun(len(runs), 'run')}?"):
        return
    for info in runs:
        log.delete(info.run)
    print_line(f"deleted {count_noun(len(runs), 'run')}")


_ACTIONS = {"list": _list, "show": _show, "delete": _delete}
