"""`freeze`: the source of a pytest test that replays recordings."""

import os
from keyword import iskeyword
from os import PathLike
from pathlib import Path

from midspan.errors import ConfigError
from midspan.testing.format import read_recordings


def freeze(
    directory: str | PathLike[str], agent: str | None = None, *, output: str | PathLike[str] | None = None
) -> str:
    """Return the source of a pytest test that replays every run of the directory.

    `agent` names the agent as `my_module:agent`; without it, the test uses a fixture called `agent`. `output` is the
    file that the source is for: the test then finds the recordings wherever pytest is started. Without it, the source
    has the path of the directory as it is given.
    """
    for recording in read_recordings(Path(directory)):
        if recording.end is None:
            raise ConfigError(f"the recording {str(recording.path)!r} was cut off; delete it, or record the run again")
    location = f"Path({str(Path(directory))!r})"  # repr, so that no name of a file becomes code
    if output is not None:
        relative = os.path.relpath(Path(directory).resolve(), Path(output).resolve().parent)
        location = f"Path(__file__).parent.joinpath({Path(relative).as_posix()!r})"
    import_agent = "from midspan import Agent" if agent is None else _import(agent)
    return _TEST.format(import_agent, location, "agent: Agent" if agent is None else "")


def _import(agent: str) -> str:
    module, _, variable = agent.partition(":")
    if not all(name.isidentifier() and not iskeyword(name) for name in (*module.split("."), variable)):
        raise ConfigError(f"agent must name a module and a variable, as 'my_module:agent', got {agent!r}")
    return f"from {module} import {variable}" + ("" if variable == "agent" else " as agent")


_TEST = '''\
"""Replays recorded runs and compares their requests, calls and outcomes."""

from pathlib import Path

from midspan.testing import assert_replays

# fmt: off
{}

RECORDINGS = {}
# fmt: on


def test_recorded_runs_are_the_same({}) -> None:
    assert_replays(agent, RECORDINGS)
'''
