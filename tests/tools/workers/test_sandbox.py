"""`sandbox=True`: workers under bubblewrap."""

import os
import shutil
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from midspan.errors import ConfigError
from midspan.messages import ToolCall, ToolResult
from midspan.tools import Workers
from tests.tools.workers.conftest import TOOLS, Counter, run

needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs the package bubblewrap")


def call(workers: Workers, name: str, **arguments: object) -> ToolResult:
    return run(workers.call(ToolCall("1", name, arguments)))


@needs_bubblewrap
@pytest.mark.requirement("W-10")
def test_sandbox_has_no_network_and_one_folder_to_write_to(
    make_workers: Callable[..., Workers], tmp_path: Path
) -> None:
    workers = make_workers(sandbox=True)
    assert call(workers, "count").value == 1
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert "failed" in call(workers, "connect", port=port).value
        assert call(make_workers(), "connect", port=port).value == "connected"
    assert "Read-only file system" in call(workers, "write", path=str(TOOLS.with_name("written"))).value
    scratch = call(workers, "scratch")
    assert not scratch.is_error
    assert "midspan-worker-" in scratch.value
    run(workers.aclose())
    assert not Path(scratch.value).parent.exists()


@needs_bubblewrap
@pytest.mark.requirement("W-10")
def test_sandbox_hides_unix_sockets_and_the_files_of_users(make_workers: Callable[..., Workers]) -> None:
    sandboxed, open_workers = make_workers(sandbox=True), make_workers()
    folders = [folder for folder in ("/run", "/tmp", "/var/tmp", Path.home()) if os.access(folder, os.W_OK)]
    for folder in folders:
        with tempfile.TemporaryDirectory(dir=folder) as name, socket.socket(socket.AF_UNIX) as server:
            path = f"{name}/service.sock"
            server.bind(path)
            server.listen()
            assert call(open_workers, "connect_unix", path=path).value == "connected"
            assert "No such file or directory" in call(sandboxed, "connect_unix", path=path).value


@needs_bubblewrap
@pytest.mark.requirement("W-10")
def test_sandbox_passes_on_listed_environment_variables_only(
    make_workers: Callable[..., Workers], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"SOME_API_KEY": "secret", "LC_ALL": "C.UTF-8", "TZ": "Europe/Oslo"}.items():
        monkeypatch.setenv(name, value)
    variables = call(make_workers(sandbox=True), "environment").value
    assert "SOME_API_KEY" not in variables
    assert (variables["LC_ALL"], variables["TZ"]) == ("C.UTF-8", "Europe/Oslo")
    assert variables["HOME"] == variables["TMPDIR"]


@needs_bubblewrap
def test_sandbox_shows_the_file_of_the_tools_and_the_modules_beside_it(
    make_workers: Callable[..., Workers], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "home" / "project"
    project.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(project.parent))
    (project / "beside.py").write_text("NUMBER = 5\n")
    tools = project / "mytools.py"
    tools.write_text("from beside import NUMBER\n\ndef number() -> int:\n    'A number.'\n    return NUMBER\n")
    assert call(make_workers(tools, sandbox=True), "number").value == 5


@needs_bubblewrap
@pytest.mark.requirement("W-10")
def test_worker_in_a_sandbox_is_killed_at_its_deadline(make_workers: Callable[..., Workers], counter: Counter) -> None:
    workers = make_workers(sandbox=True)
    result = call(workers, "daemons", port=counter.port)
    assert "timed out after 2 seconds; its process and all processes that it started were killed" in result.value
    assert not call(workers, "count").is_error


def test_sandbox_without_bubblewrap_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"sandbox=True needs bubblewrap.*install the package bubblewrap"):
        Workers(TOOLS, sandbox=True)
