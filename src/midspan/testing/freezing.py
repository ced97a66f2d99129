"""Recordings as a test: the source of one that replays them and expects the same answers and calls."""

import os
from keyword import iskeyword
from pathlib import Path
from typing import Any

from midspan import errors
from midspan.errors import ConfigError, MidspanError
from midspan.providers.recording.masking import Masking
from midspan.providers.recording.reading import RecordedRun, recorded_run
from midspan.providers.recording.shelf import Shelf
from midspan.providers.recording.tape import recordings_in
from midspan.testing.literals import LINE, literal, quoted, width
from midspan.testing.recording import path_of


def freeze(directory: str | Path, agent: str | None = None, *, output: str | Path | None = None) -> str:
    """The source of a pytest test that replays every run of the directory.

    `agent` says where the agent is, as `my_module:agent`; without it the test takes a fixture of that name. `output` is
    the file that the source is for: its test finds the recordings from there, wherever pytest is started. Without it
    they are where `directory` says, which for a relative one depends on that.
    """
    place = path_of(directory, "freeze takes the path of a directory")
    if output is not None:
        output = path_of(output, "output is the path of the file that the test is for")
    Shelf(place, Masking(environment={}))  # so that whatever is wrong with a recording is told
    runs = [recorded_run(path) for path in recordings_in(place)] if place.is_dir() else [recorded_run(place)]
    reasons = {run.path.name: _left_out(run) for run in runs}
    kept = [run for run in runs if reasons[run.path.name] is None]
    if not kept:
        told = "; ".join(f"{name} {why}" for name, why in reasons.items())
        raise ConfigError(f"there is nothing to freeze in {str(directory)!r}: {told}")
    answered = [run for run in kept if run.ended is not None and run.ended.error is None]
    failed = [run for run in kept if run not in answered]
    name = _Agent(agent)
    blocks = [
        _head(_recorded(place, output), name, answered=bool(answered), failed=bool(failed)),
        *([_table("ANSWERED", [_answered(run) for run in answered])] if answered else []),
        *([_table("FAILED", [_failed(run) for run in failed])] if failed else []),
        *([f"# {file} {why}." for file, why in reasons.items() if why is not None]),
    ]
    tests = [*([_ANSWERED] if answered else []), *([_FAILED] if failed else [])]
    source = "\n\n".join(blocks) + "\n\n\n" + "\n\n".join(tests)
    return source.replace("    AGENT\n", name.parameter)


class _Agent:
    """Where the agent of a test comes from."""

    def __init__(self, said: str | None) -> None:
        if said is not None and not isinstance(said, str):
            raise ConfigError(f"agent is the place of an agent, as 'my_module:agent', not {said!r}")
        module, _, variable = (said or ":agent").partition(":")
        if not all(step.isidentifier() and not iskeyword(step) for step in (variable, *(module or "a").split("."))):
            raise ConfigError(f"agent is the place of an agent, as 'my_module:agent', not {said!r}")
        if said is not None and not module:
            raise ConfigError(f"agent is the place of an agent, as 'my_module:agent', not {said!r}")
        self.parameter = "" if module else "    agent: Agent,\n"
        self.imported = _import(module, variable) if module else None


def _import(module: str, variable: str) -> str:
    name = variable if variable == "agent" else f"{variable} as agent"
    line = f"from {module} import {name}"
    return line if width(line) <= LINE else f"from {module} import (\n    {name},\n)"


def _left_out(run: RecordedRun) -> str | None:
    """Why a run cannot be a test."""
    if run.ended is None:
        return "was broken off and is left out"
    if run.began.unsaid:
        return f"is left out, because its run alone had another {' and '.join(run.began.unsaid)}"
    failure = run.ended.error
    kind = None if failure is None else getattr(errors, failure.type, None)
    if failure is not None and not (isinstance(kind, type) and issubclass(kind, MidspanError)):
        return f"ended with a {failure.type} and is left out"
    return None


def _recorded(place: Path, output: str | Path | None) -> str:
    """Where the recordings are, as an expression."""
    folder = place if place.is_dir() else place.parent
    if output is None:
        return _path("Path", str(folder))
    try:
        steps = os.path.relpath(folder.resolve(), Path(output).resolve().parent)
    except ValueError:  # on Windows, where there is no way from one drive to another
        return _path("Path", str(folder.resolve()))
    return _path("Path(__file__).parent.joinpath", Path(steps).as_posix())


def _path(maker: str, text: str) -> str:
    line = f"RECORDED = {maker}({quoted(text)})"
    return line if width(line) <= LINE else f"RECORDED = {maker}(\n    {quoted(text)},\n)"


def _head(recorded: str, agent: _Agent, *, answered: bool, failed: bool) -> str:
    lines = ['"""What was recorded, once more."""', "", "from pathlib import Path"]
    lines += ["from typing import Any", ""] if answered else [""]
    lines += ["import pytest"]
    lines += [] if agent.imported else ["from midspan import Agent"]
    lines += ["from midspan.errors import MidspanError"] if failed else []
    lines += ["from midspan.testing import asked, replay"]
    lines += ["", agent.imported] if agent.imported else []
    return "\n".join([*lines, "", recorded])


def _table(name: str, rows: list[tuple[str, tuple[Any, ...]]]) -> str:
    lines = [line for question, row in rows for line in (f"    # {question}", f"    {_spread(row)},")]
    return "\n".join([f"{name}: list[Any] = [" if name == "ANSWERED" else f"{name} = [", *lines, "]"])


def _spread(row: tuple[Any, ...]) -> str:
    """A row with each column on a line of its own."""
    return "\n".join(["(", *(f"        {literal(column, 8)}," for column in row), "    )"])


def _answered(run: RecordedRun) -> tuple[str, tuple[Any, ...]]:
    ended = run.ended
    assert ended is not None, "a run that was broken off is left out"
    return _question(run), (run.path.name, [(call.name, call.arguments) for call in ended.calls], ended.text)


def _failed(run: RecordedRun) -> tuple[str, tuple[Any, ...]]:
    assert run.ended is not None, "a run that was broken off is left out"
    assert run.ended.error is not None, "it failed"
    return _question(run), (run.path.name, run.ended.error.type, run.ended.error.message)


def _question(run: RecordedRun) -> str:
    """What the run was asked last, for people."""
    words = " ".join(run.began.messages[-1].text.split())
    shown = words if len(words) <= 70 else f"{words[:70]}…"
    return "".join(letter if letter.isprintable() else "?" for letter in shown) or "no words"


_ANSWERED = """\
@pytest.mark.parametrize(("recording", "calls", "answer"), ANSWERED)
def test_the_answer_is_the_same_again(
    AGENT
    recording: str,
    calls: list[Any],
    answer: str,
) -> None:
    path = RECORDED / recording
    result = replay(agent, path).run_sync(**asked(path))
    assert [(run.call.name, run.call.arguments) for run in result.tool_calls] == calls
    assert result.text == answer
"""

_FAILED = """\
@pytest.mark.parametrize(("recording", "error", "words"), FAILED)
def test_the_failure_is_the_same_again(
    AGENT
    recording: str,
    error: str,
    words: str,
) -> None:
    path = RECORDED / recording
    with pytest.raises(MidspanError) as raised:
        replay(agent, path).run_sync(**asked(path))
    assert (type(raised.value).__name__, str(raised.value)) == (error, words)
"""
