"""The commands tools, models, doctor, freeze, completion and emulate, and --version and --help."""

import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from midspan._cli.arguments import COMMANDS
from midspan._cli.tool_sources import load_tools
from midspan._version import VERSION
from tests.bounds import BOUND
from tests.cli.terminal import Terminal, environment, midspan, started
from tests.gemini.recorder import recorder

POOR = '''
def run(x): pass
def send(text: str): "Send it."
def lookup_customer_by_email(email: str) -> str:
    """Find the customer record that belongs to an address."""
def lookup_customer_by_mail(mail: str) -> str:
    """Find the customer record that belongs to an address."""
'''


def test_version_and_help_are_shown(tmp_path: Path) -> None:
    assert midspan("--version", home=tmp_path).out == f"midspan {VERSION}\n"
    overview = midspan("--help", home=tmp_path).out
    for name in COMMANDS:
        assert name in overview
        shown = midspan(name, "--help", home=tmp_path)
        assert (shown.code, shown.err) == (0, "")
    assert midspan(home=tmp_path).code == 2


def test_errors_of_the_parser_are_wrapped_between_words_in_a_terminal_only(tmp_path: Path) -> None:
    usage = "usage: midspan completion [-h] [-v] {bash,zsh,fish}\n"
    with closing(Terminal("completion", home=tmp_path, columns=60)) as terminal:
        code, seen = terminal.end()
    wrapped = f"{usage}midspan completion: error: the following arguments are\n  required: shell\n"
    assert (code, seen.replace("\r\n", "\n")) == (2, wrapped)
    ended = midspan("completion", home=tmp_path, COLUMNS="60")
    assert ended.err == f"{usage}midspan completion: error: the following arguments are required: shell\n"


def test_version_imports_almost_nothing(tmp_path: Path) -> None:
    code = "import sys; from midspan._cli.main import main; main(['--version']); print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=BOUND)
    assert not {"asyncio", "argparse", "msgspec", "httptools", "ssl", "rich"} & set(ran.stdout.split())


def test_ask_in_a_pipe_imports_neither_rich_nor_the_http_client(tmp_path: Path) -> None:
    code = "import sys; from midspan._cli.main import main; main(sys.argv[1:]); print(*sys.modules)"
    command = [sys.executable, "-c", code, "ask", "-m", "offline", "What is 2 + 2?"]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment(tmp_path), timeout=BOUND, stdin=-3)
    assert not {"rich", "prompt_toolkit", "shtab", "httptools", "midspan._http.pool", "tomllib"} & set(
        ran.stdout.split()
    )


def test_tools_are_listed_with_their_token_estimate(tmp_path: Path) -> None:
    shown = midspan("tools", home=tmp_path)
    assert shown.code == 0
    assert "get_weather(location, date?, detail?, hourly?)" in shown.out
    listed = json.loads(midspan("tools", "--json", home=tmp_path).out)
    assert [tool["name"] for tool in listed["tools"]] == ["get_weather", "get_time", "calculate"]
    assert listed["tokens"] == sum(tool["tokens"] for tool in listed["tools"]) > 0


def test_tools_that_are_named_twice_are_loaded_once() -> None:
    assert [tool.name for tool in load_tools(["ready", "ready"])] == [tool.name for tool in load_tools(None)]


def test_ready_tools_have_no_lint_findings(tmp_path: Path) -> None:
    linted = midspan("tools", "--lint", home=tmp_path)
    assert linted.code == 0, linted.out


@pytest.mark.requirement("S2-18")
def test_lint_reports_each_kind_of_problem(tmp_path: Path) -> None:
    many = "".join(f"\ndef tool_number_{n}(): pass\n" for n in range(20))
    (tmp_path / "poor.py").write_text(POOR + many)
    linted = midspan("tools", "--tools", "poor.py", "--lint", "--json", home=tmp_path)
    assert linted.code == 1
    findings = {(finding["kind"], finding["tool"]) for finding in json.loads(linted.out)["findings"]}
    assert ("no-description", "run") in findings
    assert ("vague", "send") in findings
    assert ("no-parameter-description", "run") in findings
    assert ("overlap", "lookup_customer_by_email") in findings
    assert ("too-many", "") in findings
    assert "[no-description]" in midspan("tools", "--tools", "poor.py", "--lint", home=tmp_path).out


ALIKE = '''
def alpha_one(x: str) -> str:
    """Take the oldest parcel from the shelf."""
def beta_two_three_four_five_six_seven(y: str) -> str:
    """Take the oldest parcel from the shelf."""
def run_report(z: str) -> str:
    """Runs the report."""
def run_export(z: str) -> str:
    """Run export."""
'''


def test_lint_reports_equal_descriptions_and_descriptions_that_repeat_the_name(tmp_path: Path) -> None:
    (tmp_path / "alike.py").write_text(ALIKE)
    linted = midspan("tools", "--tools", "alike.py", "--lint", "--json", home=tmp_path)
    findings = {(finding["kind"], finding["tool"]) for finding in json.loads(linted.out)["findings"]}
    assert {("overlap", "alpha_one"), ("vague", "run_report"), ("vague", "run_export")} <= findings
    assert "no-description" not in {kind for kind, _ in findings}


def test_models_come_from_the_api_if_there_is_a_key(tmp_path: Path) -> None:
    assert "gemini:gemini-3.8-flash\n" in midspan("models", home=tmp_path).out
    listed = [
        {"name": "models/gemini-9-new", "supportedGenerationMethods": ["generateContent"]},
        {"name": "models/embedding", "supportedGenerationMethods": ["embedContent"]},
    ]
    with recorder() as record:
        record.answer({"models": listed})
        where = {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": record.url}
        assert midspan("models", home=tmp_path, **where).out == "gemini:gemini-9-new\noffline\n"
        assert json.loads(midspan("models", "--json", home=tmp_path, **where).out)["source"] == "api"


def test_models_of_a_provider_that_cannot_be_reached_do_not_hide_those_of_others(tmp_path: Path) -> None:
    with recorder() as record:
        record.answer({"models": [{"name": "models/gemini-9-new", "supportedGenerationMethods": ["generateContent"]}]})
        where = {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": record.url}
        unreachable = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
        ended = midspan("models", "--json", home=tmp_path, **where, **unreachable)
    assert ended.code == 1
    assert "midspan: no models of openai: " in ended.err
    document = json.loads(ended.out)
    assert document["models"] == ["gemini:gemini-9-new", "offline"]
    [failure] = document["unavailable"]
    assert failure["name"] == "openai"
    assert "cannot connect to 127.0.0.1:9" in failure["message"]


def test_doctor_checks_the_key_and_never_shows_it(tmp_path: Path) -> None:
    with recorder() as record:
        record.answer({"models": [{"name": "models/gemini-9-new"}]})
        where = {"GOOGLE_GEMINI_BASE_URL": record.url}
        without = midspan("doctor", home=tmp_path, **where)
        well = midspan("doctor", home=tmp_path, GEMINI_API_KEY="very-secret", **where)
        record.answers.clear()
        refusal = {"code": 400, "status": "INVALID_ARGUMENT", "message": "API key not valid."}
        record.answer({"error": {**refusal, "details": [{"reason": "API_KEY_INVALID"}]}}, status=400)
        refused = midspan("doctor", home=tmp_path, GEMINI_API_KEY="very-secret", **where)
    nobody = midspan("doctor", home=tmp_path, GEMINI_API_KEY="k", GOOGLE_GEMINI_BASE_URL="http://127.0.0.1:9")
    assert without.code == 0
    assert "offline model answers" in without.out
    assert "neither GOOGLE_API_KEY nor GEMINI_API_KEY is set" in " ".join(without.out.split())
    assert f"{record.url} can be reached; no request was sent" in " ".join(without.out.split())
    assert "not configured: anthropic, openai, " in without.out
    assert "midspan keys set NAME stores a key" in " ".join(without.out.split())
    assert (well.code, "accepts the key" in well.out) == (0, True)
    assert "found a key in GEMINI_API_KEY" in well.out
    assert f"{record.url.removeprefix('http://')} accepts the key" in " ".join(well.out.split())
    assert (refused.code, "does not accept the key" in refused.out) == (1, True)
    assert (nobody.code, "problem" in nobody.out) == (1, True)
    assert "very-secret" not in well.out + well.err + refused.out + refused.err
    named = midspan("doctor", home=tmp_path, MIDSPAN_MODEL="gemini", GOOGLE_GEMINI_BASE_URL="http://127.0.0.1:9")
    assert named.code == 1


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"MIDSPAN_MODEL": "nonsense"}, "'nonsense'"),
        ({"MIDSPAN_MODEL": "offline:x"}, "'offline:x'"),
    ],
)
def test_doctor_reports_a_model_that_cannot_be_used(tmp_path: Path, settings: dict[str, str], words: str) -> None:
    checked = midspan("doctor", home=tmp_path, GOOGLE_GEMINI_BASE_URL="http://127.0.0.1:9", **settings)
    assert checked.code == 1
    assert any(words in line for line in checked.out.splitlines() if line.startswith("problem"))
    assert midspan("ask", "hi", home=tmp_path, **settings).code == 2


def test_freeze_checks_the_recordings_and_the_name_of_the_agent(tmp_path: Path) -> None:
    absent = midspan("freeze", "tape", home=tmp_path)
    assert (absent.code, "midspan ask --record 'tape'" in absent.err) == (2, True)
    midspan("ask", "-m", "offline", "--record", "tape", "What is 2 + 2?", home=tmp_path)
    assert "from shop import agent" in midspan("freeze", "tape", "--agent", "shop:agent", home=tmp_path).out
    assert midspan("freeze", "tape", "--agent", "shop.agent", home=tmp_path).code == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_contain_every_command_and_option(tmp_path: Path, shell: str) -> None:
    script = midspan("completion", shell, home=tmp_path).out
    for word in (*COMMANDS, "max-turns", "lint", "faults"):
        assert word in script


def test_bash_completes_commands_options_and_files(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("")
    script = midspan("completion", "bash", home=tmp_path).out
    (tmp_path / "completion.bash").write_text(script)

    def completed(*words: str) -> list[str]:
        line = f"source completion.bash; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _shtab_midspan"
        command = ["bash", "-c", f"{line}; printf '%s\\n' ${{COMPREPLY[@]}}"]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=BOUND).stdout.split()

    assert completed("midspan", "c") == ["chat", "completion"]
    assert completed("midspan", "ask", "--max") == ["--max-turns"]
    assert completed("midspan", "ask", "--tools", "mi") == ["mine.py"]
    assert completed("midspan", "completion", "z") == ["zsh"]


def test_emulate_serves_a_gemini_that_ask_can_use(tmp_path: Path) -> None:
    process = started("emulate", "--model", "offline", "--api-key", "right", home=tmp_path)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        where = {"GOOGLE_GEMINI_BASE_URL": url}
        asked = midspan("ask", "Calculate 2 + 2", home=tmp_path, GEMINI_API_KEY="right", **where)
        wrong = midspan("ask", "What is 2 + 2?", home=tmp_path, GEMINI_API_KEY="wrong", **where)
    finally:
        os.kill(process.pid, signal.SIGINT)
        _, rest = process.communicate(timeout=BOUND)
    assert (asked.code, wrong.code) == (0, 3), asked.err + wrong.err
    assert "calculate: result: 4" in asked.out
    assert process.returncode == 0
    assert "Traceback" not in rest


@pytest.mark.parametrize(("arguments", "code"), [([], 404), (["--retired-models"], 200)])
def test_emulate_has_retired_models_only_on_demand(tmp_path: Path, arguments: list[str], code: int) -> None:
    process = started("emulate", *arguments, home=tmp_path)
    try:
        assert process.stdout is not None
        url = urlsplit(process.stdout.readline().strip())
        with closing(HTTPConnection(url.hostname or "", url.port, timeout=BOUND)) as connection:
            connection.request("GET", "/v1beta/models/gemini-1.5-pro", headers={"x-goog-api-key": "k"})
            assert connection.getresponse().status == code
    finally:
        os.kill(process.pid, signal.SIGINT)
        process.communicate(timeout=BOUND)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--port", "99999"], "not a port number"),
        (["--script", "nope.toml"], "nope.toml"),
        (["--faults", "0:no_such_fault"], "no_such_fault"),
        (["--model", "nobody:x"], "nobody"),
        (["--models", "a", "--retired-models"], "not allowed with argument --models"),
    ],
)
def test_emulate_reports_wrong_arguments_in_one_sentence(tmp_path: Path, arguments: list[str], words: str) -> None:
    ended = midspan("emulate", *arguments, home=tmp_path)
    assert ended.code == 2
    assert words in ended.err
    assert "Traceback" not in ended.err
