"""`midspan worker` without a host: it lists the tools, and reports what is wrong in one sentence."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.terminal import midspan

TOOLS = Path(__file__).parent.parent / "conformance" / "worker_tools.py"


def worker(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "midspan", "worker", *arguments]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MIDSPAN_WORKER")}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**environment, **variables}, check=False
    )


def test_worker_without_a_host_lists_its_tools() -> None:
    ended = worker(str(TOOLS))
    assert (ended.returncode, ended.stdout) == (0, "add\nfail\nwhose\n")
    assert "3 tools; pass --connect ADDRESS to run them for a host" in ended.stderr


def test_broken_file_of_workers_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import nothing_there")
    (tmp_path / "mine.py").write_text(
        "from midspan.tools import Workers\ntools = Workers('broken.py', processes=2).source(None)"
    )
    ended = midspan("tools", "-t", "mine.py", home=tmp_path)
    assert (ended.code, ended.err.count("No module named 'nothing_there'")) == (2, 1), ended.err


@pytest.mark.parametrize(
    ("arguments", "variables", "message"),
    [
        (["missing.py"], {}, "cannot load the tools in 'missing.py': no such file"),
        (["x.py", "--connect", "nowhere"], {}, "invalid address 'nowhere'; use 'unix:/run/tools.sock'"),
        (["x.py", "--connect", "unix:/nowhere"], {}, "a worker needs the token of its host; set MIDSPAN_WORKER_TOKEN"),
        (["x.py"], {"MIDSPAN_WORKER_CONNECT": "unix:/nowhere", "MIDSPAN_WORKER_TOKEN": "t"}, "cannot connect to unix:"),
    ],
)
def test_worker_that_cannot_start_says_why(arguments: list[str], variables: dict[str, str], message: str) -> None:
    ended = worker(*arguments, **variables)
    assert ended.returncode != 0
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr
