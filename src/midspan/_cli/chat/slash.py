"""What can be said to the program itself: `/model`, `/tools`, `/clear`, `/save`, `/help`, `/quit`."""

import re
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path

from midspan._cli.chat.talk import Talk
from midspan._cli.exits import say
from midspan._types.codec import to_json
from midspan._types.messages import History
from midspan.errors import ConfigError

HELP = "Enter asks, Alt-Enter or a \\ at the end begins a new line, Ctrl-C stops a run, /help tells more."

_COMMAND = re.compile(r"/(\w+)(?:\s+(.*))?", re.DOTALL)


class Quit(Exception):
    """The user wants to leave."""


def obey(line: str, talk: Talk) -> bool:
    """Do what the line says, if it is a command; a path such as /etc/hosts is none."""
    found = _COMMAND.fullmatch(line)
    if found is None:
        return False
    name, rest = found[1].lower(), (found[2] or "").strip()
    if name not in COMMANDS:
        near = get_close_matches(name, COMMANDS, 1)
        hint = f"did you mean /{near[0]}?" if near else "/help tells what there is"
        raise ConfigError(f"there is no /{name}; {hint}")
    COMMANDS[name][1](talk, rest)
    return True


def _model(talk: Talk, name: str) -> None:
    if name:
        talk.use(model=name)
    say(f"this is {talk.model}")


def _tools(talk: Talk, names: str) -> None:
    if names:
        talk.use(tools=() if names == "none" else tuple(names.split()))
    listed = [getattr(tool, "name", type(tool).__name__) for tool in talk.tools]
    say(f"tools: {', '.join(listed) or 'none'}")


def _clear(talk: Talk, _rest: str) -> None:
    talk.clear()
    say("the conversation begins anew")


def _save(talk: Talk, name: str) -> None:
    if not name:
        say(f"it is kept in {talk.session.path}; /save FILE.json or /save FILE.md writes a copy")
        return
    path = Path(name).expanduser()
    try:
        path.write_bytes(to_json(talk.history) if path.suffix == ".json" else _readable(talk.history).encode())
    except OSError as error:
        raise ConfigError(f"{name!r} cannot be written: {error.strerror}") from error
    say(f"{len(talk.history)} messages are in {path}")


def _readable(history: History) -> str:
    """The conversation for people: what was said, and which tools were called."""
    lines = []
    for message in history:
        if message.text:
            lines.append(f"**{'You' if message.role == 'user' else 'Model'}:** {message.text}")
        lines += [f"*{call.name} {call.arguments}*" for call in message.calls]
        lines += [f"*{result.name}: {result.value}*" for result in message.results]
    return "\n\n".join(lines) + "\n"


def _help(_talk: Talk, _rest: str) -> None:
    say(HELP)
    for name, (takes, _) in COMMANDS.items():
        say(f"/{name} {takes}")


def _quit(_talk: Talk, _rest: str) -> None:
    raise Quit


COMMANDS: dict[str, tuple[str, Callable[[Talk, str], None]]] = {
    "model": ("[NAME]  shows the model, or takes another", _model),
    "tools": ("[FILE.py|MODULE|ready|none …]  shows the tools, or takes others", _tools),
    "clear": (" forgets what was said", _clear),
    "save": ("[FILE]  writes the conversation, as JSON or for people", _save),
    "help": (" this", _help),
    "quit": (" ends; so does Ctrl-D", _quit),
}
