"""`freeze`: the source of a pytest test that replays recordings.

Everything that comes from a recording is written with `repr`, in a table or a comment. It never becomes code.
"""

import os
from keyword import iskeyword
from os import PathLike
from pathlib import Path
from typing import Any

from midspan.errors import ConfigError, MidspanError
from midspan.testing.format import EndLine, Recording
from midspan.testing.masking import SecretMasker
from midspan.testing.replaying import RecordingLibrary


def freeze(
    directory: str | PathLike[str], agent: str | None = None, *, output: str | PathLike[str] | None = None
) -> str:
    """Return the source of a pytest test that replays every run of the directory.

    `agent` names the agent as `my_module:agent`; without it, the test uses a fixture called `agent`. `output` is the
    file that the source is for: the test then finds the recordings wherever pytest is started. Without it, the source
    has the path of the directory as it is given.
    """
    path = Path(directory)
    recordings = RecordingLibrary(path, SecretMasker(environment={})).recordings
    skipped = [f"{recording.path.name!r} {reason}" for recording in recordings if (reason := _why_skipped(recording))]
    used = [(recording, end) for recording in recordings if (end := recording.end) and not _why_skipped(recording)]
    if not used:
        raise ConfigError(f"there is nothing to freeze in {str(directory)!r}: {'; '.join(skipped)}")
    answered = [_row(recording, _calls(end), end.text) for recording, end in used if end.error is None]
    failed = [_row(recording, end.error.name, end.error.message) for recording, end in used if end.error is not None]
    folder = path if path.is_dir() else path.parent
    lines = [
        '"""Replays recorded runs and compares their outcomes."""',
        "",
        "from pathlib import Path",
        "from typing import Any",
        "",
        "import pytest",
        *(["from midspan import Agent"] if agent is None else []),
        *(["from midspan.errors import MidspanError"] if failed else []),
        "from midspan.testing import asked, replay",
        "",
        "# fmt: off",
        *([] if agent is None else [_import(agent), ""]),
        f"RECORDINGS = {_location(folder, output)}",
        *_table("ANSWERED", answered),
        *_table("FAILED", failed),
        *(f"# {reason}" for reason in skipped),
        "# fmt: on",
    ]
    parameter = "    agent: Agent,\n" if agent is None else ""
    tests = [test.replace("    AGENT\n", parameter) for test, rows in ((_ANSWER, answered), (_ERROR, failed)) if rows]
    return "\n\n\n".join(["\n".join(lines), *tests]) + "\n"


def _why_skipped(recording: Recording) -> str | None:
    """Why a run cannot be a test."""
    if recording.end is None:
        return "is left out because it was cut off"
    if recording.run.unrecorded_options:
        return f"is left out because these options of the run were not recorded: {recording.run.unrecorded_options!r}"
    error = recording.end.error
    if error is not None and not isinstance(error.to_exception(), MidspanError):
        return f"is left out because the run ended with {error.name!r}, which is not an error of Midspan"
    return None


def _calls(end: EndLine) -> list[Any]:
    return [(call.name, call.arguments) for call in end.calls]


def _row(recording: Recording, *columns: Any) -> str:
    prompt = " ".join(" ".join(message.text for message in recording.run.messages[-1:]).split())
    comment = prompt if len(prompt) <= 70 else f"{prompt[:70]}…"
    values = [f"        {value!r}," for value in (recording.path.name, *columns)]
    return "\n".join([f"    # {comment!r}", "    (", *values, "    ),"])


def _table(name: str, rows: list[str]) -> list[str]:
    return ["", f"{name}: list[Any] = [", *rows, "]"] if rows else []


def _import(agent: str) -> str:
    module, _, variable = agent.partition(":")
    if not all(name.isidentifier() and not iskeyword(name) for name in (*module.split("."), variable)):
        raise ConfigError(f"agent must name a module and a variable, as 'my_module:agent', got {agent!r}")
    return f"from {module} import {variable}" + ("" if variable == "agent" else " as agent")


def _location(folder: Path, output: str | PathLike[str] | None) -> str:
    if output is None:
        return f"Path({str(folder)!r})"
    try:
        relative = os.path.relpath(folder.resolve(), Path(output).resolve().parent)
    except ValueError:  # on Windows, if they are on different drives
        return f"Path({str(folder.resolve())!r})"
    return f"Path(__file__).parent.joinpath({Path(relative).as_posix()!r})"


_ANSWER = """\
@pytest.mark.parametrize(("recording", "calls", "answer"), ANSWERED)
def test_replayed_run_has_the_recorded_answer(
    AGENT
    recording: str,
    calls: list[Any],
    answer: str,
) -> None:
    path = RECORDINGS / recording
    result = replay(agent, path).run_sync(**asked(path))
    assert [(run.call.name, run.call.arguments) for run in result.tool_calls] == calls
    assert result.text == answer"""

_ERROR = """\
@pytest.mark.parametrize(("recording", "error", "message"), FAILED)
def test_replayed_run_has_the_recorded_error(
    AGENT
    recording: str,
    error: str,
    message: str,
) -> None:
    path = RECORDINGS / recording
    with pytest.raises(MidspanError) as raised:
        replay(agent, path).run_sync(**asked(path))
    assert (type(raised.value).__name__, str(raised.value)) == (error, message)"""
