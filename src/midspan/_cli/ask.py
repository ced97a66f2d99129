"""`midspan ask`: one question, one answer."""

from argparse import ArgumentParser, Namespace
from typing import Any, TextIO

from midspan._cli.arguments import add_model, add_tools
from midspan._cli.exits import code_of, tell
from midspan._cli.fallback import with_fallback
from midspan._cli.interrupts import Stoppable
from midspan._cli.output import Answer, LiveAnswer, check, stdout_for_answers, write
from midspan._cli.progress.choose import progress
from midspan._cli.question import question_of
from midspan._cli.report import Report
from midspan._cli.sessions import Session, last_session
from midspan._cli.settings import Settings, settings_of
from midspan._cli.tool_files import tools_of
from midspan._loop.agent import Agent
from midspan._types.messages import History
from midspan._types.specs import Limits
from midspan.errors import RunError
from midspan.tools.merge import source_of
from midspan.tools.wrap import Filtered


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("question", nargs="*", metavar="QUESTION", help="what to ask; text on stdin is put before it")
    add_model(parser)
    add_tools(parser)
    parser.add_argument("-f", "--file", metavar="F", action="append", default=[], help="a file to send with it")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--session", metavar="S", help="go on with the conversation of this name, or begin it")
    which.add_argument("-c", "--continue", dest="go_on", action="store_true", help="go on with the last conversation")
    parser.add_argument("--prompt-mode", action="store_true", help="tell the tools in the prompt, read calls from text")
    parser.add_argument("--record", metavar="DIR", help="write down all that is said and done, to be replayed in tests")
    parser.add_argument("--json", action="store_true", help="print one JSON object: answer, calls, usage, …")


def run(options: Namespace) -> int:
    report = Report()
    failure: BaseException | None = None
    with stdout_for_answers() as out:
        try:
            check(out)
            _ask(options, report, out)
        except BrokenPipeError:
            return 0  # whoever read the answer has enough of it
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - told below, in the form that was asked for
            failure = error
        if failure is not None:
            tell(failure, verbose=options.verbose)
        if options.json:
            try:
                write(out, report.document(failure, session=options.session))
            except BrokenPipeError:
                pass  # as above
            except RunError as error:
                if failure is None:
                    tell(failure := error, verbose=options.verbose)
    if isinstance(failure, KeyboardInterrupt):
        raise failure
    return 0 if failure is None else code_of(failure)


def _ask(options: Namespace, report: Report, out: TextIO) -> None:
    settings = settings_of(options)
    session = _session(options)
    history = History(session.messages()) if session is not None else History()
    question = question_of(options.question, options.file)
    tools = tools_of(settings.tools)
    agent = agent_of(with_fallback(settings, yes=options.yes), tools)
    if options.prompt_mode:
        agent = agent.replace(prompt_mode=True)
    if options.record is not None:
        from midspan.testing import record  # loaded where it is wanted

        agent = record(agent, options.record)
    shown = progress(verbose=options.verbose)
    answer = LiveAnswer(out) if out.isatty() else Answer(out)
    stream = agent.stream(question, messages=history)

    async def watch() -> None:
        async with agent, stream:
            async for event in stream:
                report.note(event)
                shown.show(event)
                if not options.json:
                    answer.hear(event)

    def keep() -> None:
        # A question on which nothing was done yet can just be asked again; what was done is not forgotten.
        if session is not None and len(stream.messages) > len(history) + 1:
            session.add(stream.messages[len(history) :])

    with Stoppable() as loop:
        try:
            loop.run(watch(), at_leaving=keep)
        finally:  # and not within, because a tool that does not end when it is stopped is left behind
            shown.stop()
            answer.stop()
            keep()


def _session(options: Namespace) -> Session | None:
    session = last_session() if options.go_on else Session(options.session) if options.session is not None else None
    options.session = None if session is None else session.name
    if session is not None:
        session.check()
    return session


def agent_of(settings: Settings, tools: list[Any]) -> Agent:
    """The agent that the settings describe."""
    limits = Limits() if settings.max_turns is None else Limits(max_turns=settings.max_turns)
    if settings.read_only and tools:
        tools = [Filtered(source_of(tools), lambda spec: spec.changes is False)]
    return Agent(settings.model, tools, system=settings.system, limits=limits)
