"""`midspan chat`: question after question, until there are no more."""

import sys
from argparse import ArgumentParser, Namespace

from midspan._cli.arguments import add_model, add_tools
from midspan._cli.chat.lines import reader
from midspan._cli.chat.slash import HELP, Quit, obey
from midspan._cli.chat.talk import Talk
from midspan._cli.exits import say, tell
from midspan._cli.interrupts import Stoppable, leave
from midspan._cli.question import whole
from midspan._cli.sessions import Session, last_session
from midspan._cli.settings import settings_of
from midspan.errors import MidspanError

_USUAL = "chat"


def add_arguments(parser: ArgumentParser) -> None:
    add_model(parser)
    add_tools(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--session", metavar="S", default=_USUAL, help=f"the conversation of this name ({_USUAL})")
    which.add_argument("-c", "--continue", dest="go_on", action="store_true", help="the last conversation, of any name")
    parser.add_argument("--new", action="store_true", help="forget what was said there before")


def run(options: Namespace) -> int:
    session = last_session() if options.go_on else Session(options.session)
    session.check()
    if options.new:
        session.clear()
    with Stoppable() as loop:
        talk = Talk(settings_of(options), session, loop, yes=options.yes, verbose=options.verbose)
        if sys.stdin.isatty():
            _greet(talk)
        _converse(talk, verbose=options.verbose)
        talk.close()
        if loop.has_left_something:
            leave(0)
    return 0


def _greet(talk: Talk) -> None:
    past = f", going on after {len(talk.history)} messages; /clear begins anew" if len(talk.history) else ""
    say(f"this is {talk.model}{past}. {HELP}")


def _converse(talk: Talk, *, verbose: int) -> None:
    lines = reader()
    while True:
        try:
            line = lines.read().strip()
        except EOFError:
            return
        except KeyboardInterrupt:
            if not lines.is_terminal:
                raise
            say("Ctrl-D or /quit ends")
            continue
        try:
            if line and not obey(line, talk):
                talk.ask(whole(line))
        except Quit:
            return
        except KeyboardInterrupt as stop:
            if stop.args and stop.args[0] != 2:
                raise  # somebody wants the program to end, and not only the run
            say("stopped; the conversation goes on")
        except MidspanError as error:
            tell(error, verbose=bool(verbose))
