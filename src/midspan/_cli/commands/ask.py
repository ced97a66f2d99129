"""`midspan ask`: one question, with stdin, files and web pages; one answer, as text or as JSON of a schema."""

import asyncio
import json
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import closing
from typing import Any, TextIO

import msgspec

from midspan._cli import arguments
from midspan._cli.conversation import LoggedConversation
from midspan._cli.interrupts import InterruptibleRunner
from midspan._cli.output import AnswerDisplay, Display, ProgressDisplay, stdout_for_answers
from midspan._cli.settings import load_settings, user_path
from midspan._cli.text import error_fields, write_json
from midspan._cli.tool_sources import load_tools, mcp_sources
from midspan._loop.prompt import data_part, file_part
from midspan._storage.journal import RunSummary
from midspan._types.events import RunEnd, RunEvent, RunStart
from midspan._types.messages import History
from midspan._types.parts import Blob, Text, ToolCall
from midspan._types.run_state import RunState, ToolRun
from midspan.errors import ConfigError, LimitReachedError

_MAX_BYTES = 50_000_000
"""Of stdin, a file or a web page: far more than any model accepts, far less than the memory of a computer."""
_MAX_REDIRECTS = 5
_URL = re.compile(r"https?://", re.IGNORECASE)
_FIELD = re.compile(r"(?P<name>\w+)(?:\s+(?P<type>\w+)(?P<many>\[\])?)?(?:\s*:\s*(?P<description>.+))?")
_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}


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
    prompt = _read_prompt(options.question, options.file)
    schema = {} if options.schema is None else {"output": _read_schema(options.schema)}
    tools = [*load_tools(settings.tools), *mcp_sources(options)]
    displays: list[Display] = [ProgressDisplay(verbose=options.verbose)]
    if not options.json:
        displays.append(AnswerDisplay(out))
    with InterruptibleRunner() as runner, closing(LoggedConversation(settings, tools, runner, options)) as conversation:
        if options.prompt_mode:
            conversation.agent = conversation.agent.replace(prompt_mode=True)
        if options.record is not None:
            from midspan.testing import record

            conversation.agent = record(conversation.agent, options.record)
        conversation.ask(prompt, displays, events, **schema)


def _read_prompt(words: list[str], files: list[str]) -> str | list[Any]:
    """Combine text from stdin, the words of the command line, and files. The file `-` is stdin."""
    try:
        piped = "" if "-" in files else _read_stdin().decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise ConfigError("stdin is not UTF-8 text; pass other data with --file -") from error
    text = "\n\n".join(filter(None, (piped, " ".join(words).strip())))
    if not text:
        hint = "in addition to the files" if files else 'for example midspan "What is 2 + 2?", or pipe one in'
        raise ConfigError(f"there is no question; pass one, {hint}")
    return [text, *map(_attachment, files)] if files else text


def _attachment(name: str) -> Text | Blob:
    if name == "-":
        return data_part(_read_stdin(), "stdin")
    if _URL.match(name):
        return asyncio.run(_download(name))
    path = user_path(name)
    if path.is_file():
        _check_size(path.stat().st_size, name)
    return file_part(path)


def _read_stdin() -> bytes:
    """Return what is piped in or redirected from a file; nothing from a terminal."""
    data = b"" if sys.stdin.isatty() else sys.stdin.buffer.read(_MAX_BYTES + 1)
    _check_size(len(data), "stdin")
    return data


def _check_size(size: int, name: str) -> None:
    if size > _MAX_BYTES:
        raise ConfigError(f"{name} has more than {_MAX_BYTES:,} bytes, too much for any model")


async def _download(url: str) -> Text | Blob:
    from urllib.parse import urljoin, urlsplit  # few prompts have URLs

    from midspan._http.messages import HttpRequest, Timeouts
    from midspan._http.transport import Transport

    target = url
    async with Transport(Timeouts(connect=10, total=60), max_body_bytes=_MAX_BYTES) as transport:
        for _ in range(_MAX_REDIRECTS + 1):
            response = await transport.send(HttpRequest("GET", target, {"user-agent": "midspan", "accept": "*/*"}))
            if response.status == 200:
                media_type = (response.header("content-type") or "").partition(";")[0].strip().lower()
                return data_part(response.body, urlsplit(url).path.rpartition("/")[2] or url, media_type)
            if response.status not in (301, 302, 303, 307, 308):
                raise ConfigError(f"{url} answered {response.status}")
            target = urljoin(target, response.header("location") or "")
    raise ConfigError(f"{url} redirects more than {_MAX_REDIRECTS} times")


def _read_schema(text: str) -> dict[str, Any]:
    """Return a JSON Schema from a file, from JSON, or from a short form: `name, age int, tags str[]`."""
    is_json = text.lstrip().startswith("{")
    if is_json or text.endswith(".json"):
        data = text if is_json else user_path(text).read_bytes()
        try:
            schema = json.loads(data)
        except ValueError as error:
            raise ConfigError(f"the schema {text!r} is not valid JSON: {error}") from error
        if not isinstance(schema, dict):
            raise ConfigError(f"the schema {text!r} must be a JSON object")
        return schema
    fields = list(map(_field, text.split(",")))
    if len(properties := dict(fields)) < len(fields):
        raise ConfigError(f"a field is named twice in the schema {text!r}")
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def _field(text: str) -> tuple[str, dict[str, Any]]:
    match = _FIELD.fullmatch(text.strip())
    if match is None or (match["type"] or "str") not in _TYPES:
        forms = "NAME, NAME TYPE or NAME TYPE: DESCRIPTION, with a type such as str, int, float, bool or str[]"
        raise ConfigError(f"{text.strip()!r} is not a field; write {forms}")
    schema: dict[str, Any] = {"type": _TYPES[match["type"] or "str"]}
    if match["many"]:
        schema = {"type": "array", "items": schema}
    return match["name"], schema | ({"description": match["description"]} if match["description"] else {})


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
