"""`record` and `replay`: a run with the network, and the same run without."""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from midspan._loop.agent import Agent
from midspan._loop.result import RunResult
from midspan._types.messages import History
from midspan._types.parts import Text
from midspan._types.specs import Limits
from midspan.errors import ConfigError
from midspan.providers.provider import Provider
from midspan.providers.recording.failures import failure_of
from midspan.providers.recording.lines import FORM, Began, Ended
from midspan.providers.recording.masking import Masking, checked_secrets
from midspan.providers.recording.player import Player
from midspan.providers.recording.reading import recorded_run
from midspan.providers.recording.recorder import Recorded
from midspan.providers.recording.shelf import Shelf
from midspan.providers.recording.tape import Folder, Tape
from midspan.providers.recording.written import written_messages
from midspan.providers.replay import Replayed
from midspan.testing.sources import RecordedTools, ReplayedTools
from midspan.testing.taped import Opening, Session, Taped
from midspan.tools.source import ToolSource

_SAYABLE = ("system", "settings", "limits", "tool_choice", "calls_only", "prompt_mode")
_UNSAYABLE = ("model", "tools", "output")


def record(agent: Agent, directory: str | Path, *, secrets: Iterable[str] = ()) -> Agent:
    """The agent, with every run written to a file in the directory. What looks like a secret is masked there.

    `secrets` are texts that are to be masked too, however they look.
    """
    extra = checked_secrets(secrets)
    folder = Folder(_path(agent, directory, "record"))

    def begin(opening: Opening) -> Session:
        return _Recording(Tape(folder, _began(opening), Masking(extra)))

    return Taped(agent, begin)


def replay(agent: Agent, directory: str | Path, *, secrets: Iterable[str] = ()) -> Agent:
    """The agent, answered from the recordings in the directory, or from one of them: no model is asked, no tool run.

    Each recording is replayed once, by the run that asks the same.
    """
    shelf = Shelf(_path(agent, directory, "replay"), Masking(secrets))

    def begin(opening: Opening) -> Session:
        return _Replay(Player(shelf, bytes(written_messages(opening.history.messages))))

    return Taped(agent, begin)


def asked(recording: str | Path) -> dict[str, Any]:
    """What the run of a recording was asked, as `run` takes it: `agent.run_sync(**asked(path))`."""
    began = recorded_run(path_of(recording, "asked takes the path of a recording")).began
    options = dict(began.options)
    if "limits" in options:
        options["limits"] = msgspec.convert(options["limits"], Limits)
    match began.messages:
        case [message] if message.role == "user" and len(message.parts) == 1 and type(message.parts[0]) is Text:
            return {"prompt": message.text, **options}
    return {"messages": History(began.messages), **options}


class _Recording:
    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    def provider(self, provider: Provider) -> Provider:
        return Recorded(provider, self._tape)

    def tools(self, source: ToolSource) -> ToolSource:
        return RecordedTools(source, self._tape)

    def ended(self, result: RunResult) -> None:
        self._tape.write(Ended(result.text, result.turns, tuple(run.call for run in result.tool_calls)))

    def failed(self, error: Exception) -> None:
        if self._tape.has_begun:  # or nothing was done of what was wanted
            self._tape.write(Ended(error=failure_of(error)))


class _Replay:
    def __init__(self, player: Player) -> None:
        self._player = player

    def provider(self, provider: Provider) -> Provider:
        return Replayed(provider, self._player)

    def tools(self, source: ToolSource) -> ToolSource:
        return ReplayedTools(source, self._player)

    def ended(self, result: RunResult) -> None:  # noqa: ARG002 - of the seam
        self._player.check()

    def failed(self, error: Exception) -> None:  # noqa: ARG002 - of the seam
        self._player.check()


def _began(opening: Opening) -> Began:
    given = {name: value for name, value in opening.options.items() if value is not None}
    return Began(
        form=FORM,
        run_id=opening.run_id,
        model=opening.model,
        recorded_at=datetime.now(UTC).isoformat(timespec="seconds"),
        messages=opening.history.messages,
        options={name: _plain(given[name]) for name in _SAYABLE if name in given},
        unsaid=tuple(name for name in _UNSAYABLE if name in given),
    )


def _plain(value: Any) -> Any:
    try:
        return msgspec.to_builtins(value)
    except TypeError:
        return None  # it is no option, which the agent will say


def _path(agent: Any, directory: Any, what: str) -> Path:
    if not isinstance(agent, Agent):
        raise ConfigError(f"{what} takes an Agent and a directory, not {type(agent).__name__}")
    return path_of(directory, f"{what} takes the path of a directory")


def path_of(given: Any, wanted: str) -> Path:
    """The path that was given; `wanted` says to whoever gave something else what it should have been."""
    if not isinstance(given, str | Path) or not str(given):
        raise ConfigError(f"{wanted}, not {given!r:.80}")
    return Path(given)
