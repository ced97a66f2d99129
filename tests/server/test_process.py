"""`midspan serve` as a process: settings, signals, restart after it was killed."""

import json
import signal
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from midspan import MemoryJournal
from midspan._http.serving import listen
from midspan._server.config import ServerConfig
from midspan._server.listen import serve
from midspan.emulator import LocalGemini, Rule, When, answer, call
from midspan.errors import ConfigError, JournalError
from midspan.server import create_app
from tests.bounds import BOUND
from tests.cli.terminal import Ended, midspan
from tests.server.serving import ServerProcess, events_of, sum_agent, wait_until

TOOLS = '''
import time
from pathlib import Path

LOG = Path({log!r})


def slow(seconds: float) -> str:
    """Wait, and count the calls."""
    with LOG.open("a") as file:
        file.write("called\\\\n")
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(0.01)
    return "done"
'''
SCRIPT = [
    Rule(When(says="quick", step=0), call("slow", seconds=0.0)),
    Rule(When(step=0), answer("Wait. ", call("slow", seconds=20.0))),
    "It is over.",
]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "calls.txt"
    (tmp_path / "tools.py").write_text(TOOLS.format(log=str(path)).replace("\\\\n", "\\n"))
    return path


def server_process(folder: Path, gemini: LocalGemini, *arguments: str, **environment: str) -> ServerProcess:
    return ServerProcess(
        *("--port", "0", "--model", "gemini:gemini-3.8-flash", "--tools", str(folder / "tools.py"), *arguments),
        folder=folder,
        environment={"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": gemini.url, **environment},
    )


def start_slow_run(url: str, log: Path) -> str:
    run = httpx.post(f"{url}/api/v1/runs", json={"prompt": "Wait.", "session_id": "s"}, timeout=BOUND).json()
    wait_until(lambda: log.exists() and log.read_text() != "")
    return str(run["run_id"])


@pytest.mark.requirement("H-10")
def test_terminated_server_cancels_its_runs_with_a_clear_event_and_exits(tmp_path: Path, log: Path) -> None:
    (tmp_path / "server.toml").write_text("shutdown_seconds = 0.3\n")
    with LocalGemini(SCRIPT) as gemini:
        with server_process(tmp_path, gemini, "--config", str(tmp_path / "server.toml")) as server:
            run_id = start_slow_run(server.url, log)
            seen: list[Any] = []

            def read() -> None:
                with httpx.stream("GET", f"{server.url}/api/v1/runs/{run_id}/events", timeout=BOUND) as response:
                    for event in events_of(response.iter_lines()):
                        seen.append(event)
                        reading.set()

            reading = threading.Event()
            subscriber = threading.Thread(target=read)
            subscriber.start()
            assert reading.wait(BOUND)
            assert server.end(signal.SIGTERM) == 0
            subscriber.join(BOUND)
        assert seen[-1][1:] == ("run_end", seen[-1][2])
        assert seen[-1][2]["error"] == {"kind": "cancelled", "message": "the server is shutting down"}
        with server_process(tmp_path, gemini) as server:
            run = httpx.get(f"{server.url}/api/v1/runs/{run_id}").json()
            assert run["state"] == "cancelled"
            assert (run["error"]["error"], run["error"]["code"]) == ("cancelled", 409)
            answered = httpx.post(
                f"{server.url}/api/v1/chat", json={"prompt": "quick", "session_id": "s"}, timeout=BOUND
            ).json()
            assert answered["response"] == "It is over."
            assert server.end(signal.SIGINT) == 0
        assert not gemini.errors


def test_runs_that_end_in_time_are_not_cancelled(tmp_path: Path, log: Path) -> None:
    script = [call("slow", seconds=1.0), "It is over."]
    with LocalGemini(script) as gemini, server_process(tmp_path, gemini) as server:
        answers: list[httpx.Response] = []

        def ask() -> None:
            answers.append(httpx.post(f"{server.url}/api/v1/chat", json={"prompt": "Wait."}, timeout=BOUND))

        client = threading.Thread(target=ask)
        client.start()
        wait_until(lambda: log.exists() and log.read_text() != "")
        assert server.end() == 0
        client.join(BOUND)
        assert answers[0].json()["response"] == "It is over."


@pytest.mark.requirement("H-10")
def test_killed_server_leaves_interrupted_runs_that_never_run_again(tmp_path: Path, log: Path) -> None:
    with LocalGemini(SCRIPT) as gemini:
        with server_process(tmp_path, gemini) as server:
            run_id = start_slow_run(server.url, log)
            assert server.end(signal.SIGKILL) == -signal.SIGKILL
        requests = len(gemini.requests)
        with server_process(tmp_path, gemini) as server:
            run = httpx.get(f"{server.url}/api/v1/runs/{run_id}").json()
            assert run["state"] == "interrupted"
            with httpx.stream("GET", f"{server.url}/api/v1/runs/{run_id}/events", timeout=BOUND) as response:
                kinds = [kind for _, kind, _ in events_of(response.iter_lines())]
            assert kinds[-2:] == ["tool_start", "interrupted"]
            path = f"{server.url}/api/v1/runs/{run_id}/events?view=final"
            with httpx.stream("GET", path, timeout=BOUND) as response:
                ((_, kind, data),) = events_of(response.iter_lines())
            assert (kind, data["error"], data["code"]) == ("error", "processing_error", 500)
            last = {"Last-Event-ID": str(len(kinds) - 1)}
            assert httpx.get(f"{server.url}/api/v1/runs/{run_id}/events", headers=last).status_code == 204
            cancelled = httpx.post(f"{server.url}/api/v1/runs/{run_id}/cancel").json()
            assert cancelled["state"] == "interrupted"
            assert log.read_text() == "called\n"
            assert len(gemini.requests) == requests
            body = {"prompt": "quick", "session_id": "s"}
            answered = httpx.post(f"{server.url}/api/v1/chat", json=body, timeout=BOUND).json()
            assert answered["response"] == "It is over."
            assert log.read_text() == "called\n"
        assert not gemini.errors


def serve_offline(*arguments: str, folder: Path, **environment: str) -> Ended:
    """Run `midspan serve`, which cannot start, until it exits."""
    variables = {"XDG_STATE_HOME": str(folder), **environment}
    return midspan("serve", "--model", "offline", "--no-tools", *arguments, home=folder, **variables)


def test_two_servers_do_not_share_a_journal(tmp_path: Path, log: Path) -> None:
    with LocalGemini(SCRIPT) as gemini, server_process(tmp_path, gemini):
        second = serve_offline("--port", "0", folder=tmp_path)
        assert second.code == 2
        problem = f"another midspan serve uses the journal '{tmp_path / 'midspan' / 'server.db'}'"
        assert f"{problem}; to run a second one, give it --journal FILE and --port N" in second.err


EXITS = """
import sys


def stop() -> None:
    \"\"\"Stop.\"\"\"
    sys.exit(4)


async def stop_async() -> None:
    \"\"\"Stop.\"\"\"
    sys.exit("no disk")
"""


def test_tool_that_exits_does_not_end_the_server(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(EXITS)
    script = [Rule(When(says="async", step=0), call("stop_async")), Rule(When(step=0), call("stop")), "It went on."]
    with LocalGemini(script) as gemini, server_process(tmp_path, gemini) as server:
        for prompt, problem in (("Stop.", "stop failed: SystemExit: 4"), ("async", "failed: SystemExit: no disk")):
            answered = httpx.post(f"{server.url}/api/v1/chat", json={"prompt": prompt}, timeout=BOUND).json()
            assert answered["response"] == "It went on."
            (result,) = answered["tool_results"]
            assert result["is_error"]
            assert problem in str(result["content"])
        assert server.process.poll() is None
        assert server.end(signal.SIGINT) == 0


@pytest.mark.requirement("H-03")
def test_variables_and_flags_are_read(tmp_path: Path, log: Path) -> None:
    with LocalGemini(SCRIPT) as gemini:
        environment = {
            "SERVER_HOST": "0.0.0.0",
            "SERVER_PORT": "0",
            "DEFAULT_AI_PROVIDER": "offline",
            "MIDSPAN_TOKENS": "ann:ann-secret-token-1",
        }
        with ServerProcess("--no-tools", "--journal", "memory", folder=tmp_path, environment=environment) as server:
            port = server.url.rpartition(":")[2]
            assert server.url == f"http://0.0.0.0:{port}"
            url = f"http://127.0.0.1:{port}"
            assert httpx.get(f"{url}/api/v1/models").status_code == 401
            headers = {"Authorization": "Bearer ann-secret-token-1"}
            models = httpx.get(f"{url}/api/v1/models", headers=headers).json()["models"]
            assert [model["provider"] for model in models] == ["offline"]
            assert server.end() == 0
        assert "ann-secret" not in (tmp_path / "stderr.txt").read_text()
        assert not (tmp_path / "midspan").exists()
        assert len(gemini.requests) == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--host", "0.0.0.0"), "set MIDSPAN_TOKENS"),
        (("--config", "missing.toml"), "missing.toml: No such file"),
        (("--models", "nonsense"), "unknown model 'nonsense'"),
        (("--port", "99999"), "is not a port number"),
        (("--host", "192.0.2.1", "--allow-anonymous"), "cannot listen on 192.0.2.1:0: "),
        (("--host", "nope.invalid"), "cannot resolve 'nope.invalid'"),
        (("--config", "{folder}/typo.toml"), "'modle'; did you mean model? known settings: model, tools, system, "),
        (("--config", "{folder}/typo.toml"), ", read_only, host, port, "),
        (("--config", "{folder}/typo.toml"), ", shutdown_seconds, journal, mcp"),
        (("--config", "{folder}/mcp.toml"), "mcp.toml: mcp: expected array, got string"),
        (("--config", "{folder}/journal.toml"), "journal.toml: journal: expected string or null, got 5"),
        (("--config", "{folder}/wrong.toml"), "wrong.toml: max_runs: expected integer, got string"),
        (("--journal", "/nonexistent/j.db"), "cannot"),
    ],
)
def test_wrong_arguments_are_one_sentence(tmp_path: Path, arguments: tuple[str, ...], problem: str) -> None:
    (tmp_path / "typo.toml").write_text('modle = "offline"')
    (tmp_path / "wrong.toml").write_text('max_runs = "5"')
    (tmp_path / "mcp.toml").write_text('mcp = "servers.json"')
    (tmp_path / "journal.toml").write_text("journal = 5")
    more = [argument.format(folder=tmp_path) for argument in arguments]
    done = serve_offline("--port", "0", *more, folder=tmp_path)
    assert done.code != 0
    assert problem in done.err
    assert "Traceback" not in done.err


def test_busy_port_is_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        done = serve_offline("--port", str(port), folder=tmp_path)
    assert (done.code, done.err) == (2, f"midspan: cannot listen on 127.0.0.1:{port}: address already in use\n")


def test_journal_that_cannot_be_used_is_one_sentence(tmp_path: Path) -> None:
    directory, garbage = tmp_path / "directory", tmp_path / "garbage"
    directory.mkdir()
    garbage.write_bytes(b"not a database, " * 100)
    for path, problem in ((directory, "unable to open"), (garbage, "is not a database")):
        done = serve_offline("--port", "0", "--journal", str(path), folder=tmp_path)
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith("midspan: ")
        assert problem in done.err
        assert done.err.count("\n") == 1
    assert garbage.read_bytes() == b"not a database, " * 100


class UnreadableJournal(MemoryJournal):
    async def list(self, **_: Any) -> Any:
        raise JournalError("the disk is on fire")


def test_server_that_cannot_start_is_a_configuration_error() -> None:
    app = create_app(sum_agent(), journal=UnreadableJournal())
    with listen("127.0.0.1", 0) as listener, pytest.raises(ConfigError, match="the server could not start"):
        serve(app, ServerConfig(), listener, lambda _: None)


def test_state_directory_that_cannot_be_created_is_one_sentence(tmp_path: Path) -> None:
    done = serve_offline("--port", "0", folder=tmp_path, HOME="/dev/null", XDG_STATE_HOME="")
    assert done.code == 2
    assert done.err == (
        "midspan: cannot create the directory '/dev/null/.local/state/midspan': Not a directory; "
        "store runs elsewhere with --journal FILE, or nowhere with --journal memory\n"
    )
    arguments = ("--model", "offline", "--no-tools", "--port", "0", "--journal", "memory")
    with ServerProcess(*arguments, folder=tmp_path, environment={"HOME": "/dev/null"}) as server:
        assert httpx.get(f"{server.url}/health").json() == {"status": "healthy"}


def test_settings_come_from_a_file(tmp_path: Path, log: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text('model = "offline"\ntools = "tools.py"\nport = 0\nmax_prompt_chars = 5\njournal = "memory"\n')
    with ServerProcess("--config", str(file), folder=tmp_path) as server:
        assert [tool["name"] for tool in httpx.get(f"{server.url}/api/v1/tools").json()["tools"]] == ["slow"]
        assert httpx.post(f"{server.url}/api/v1/chat", json={"prompt": "123456"}).status_code == 413
    file.write_text("max_promt = 5\n")
    with pytest.raises(AssertionError, match="unknown setting 'max_promt'; did you mean max_prompt_chars"):
        ServerProcess("--config", str(file), "--port", "0", folder=tmp_path)


@pytest.mark.requirement("S2-12")
def test_curl_gets_an_answer(tmp_path: Path, log: Path) -> None:
    with LocalGemini(SCRIPT) as gemini, server_process(tmp_path, gemini) as server:
        done = subprocess.run(
            ["curl", "-s", "-X", "POST", f"{server.url}/api/v1/chat", "-H", "Content-Type: application/json",
             "-d", '{"prompt": "quick", "provider": "gemini"}'],
            capture_output=True, text=True, timeout=BOUND, check=True,
        )  # fmt: skip
        document = json.loads(done.stdout)
        assert [made["name"] for made in document["tool_calls"]] == ["slow"]
        assert document["metadata"]["provider"] == "gemini"
