"""Every program in examples/ runs against the local Gemini and prints what it should."""

import json
import os
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from midspan.emulator import LocalGemini

EXAMPLES = Path(__file__).parent.parent / "examples"

OUTPUT = {
    "weather_agent": """\
get_weather({'location': 'Oslo'}) -> {'location': 'Oslo', 'current_temp_c': '4', 'condition': 'Cloudy'}
It is 4 °C and cloudy in Oslo.
2 requests, N tokens
""",
    "streaming_terminal": """\
Let me look.
[calling get_price with {'item': 'lamp'}]
[returned: 49.0]
A lamp costs 49 euros.
2 requests
""",
    "typed_extraction": """\
2 x desk lamp = 98.00
1 x delivery = 12.50
invoice 2026-114 of 03 November 2026: 110.50
""",
    "prompt_mode": """\
gemini_call_0 stock_level {'item': 'lamp'} 12
There are 12 lamps in stock.
""",
}


class Weather(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        now = {"temp_C": "4", "weatherDesc": [{"value": "Cloudy"}]}
        self.wfile.write(json.dumps({"current_condition": [now]}).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    with LocalGemini(EXAMPLES / "answers.toml") as gemini, HTTPServer(("127.0.0.1", 0), Weather) as weather:
        threading.Thread(target=weather.serve_forever, daemon=True).start()
        services = {
            "GEMINI_API_KEY": "any",
            "GOOGLE_API_KEY": "",
            "GOOGLE_GEMINI_BASE_URL": gemini.url,
            "MIDSPAN_WEATHER_URL": f"http://127.0.0.1:{weather.server_port}",
        }
        yield os.environ | services
        weather.shutdown()


def run(name: str, environment: dict[str, str], *arguments: str, stdin: str = "") -> str:
    command = [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py"), *arguments]
    ran = subprocess.run(command, input=stdin, capture_output=True, text=True, env=environment, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    return re.sub(r"\d+ tokens", "N tokens", ran.stdout)


@pytest.mark.parametrize("name", OUTPUT)
def test_example_prints_its_answer(name: str, environment: dict[str, str]) -> None:
    assert run(name, environment) == OUTPUT[name]


def test_chat_continues_where_it_ended(environment: dict[str, str], tmp_path: Path) -> None:
    file = str(tmp_path / "chat.json")
    assert run("chat_with_memory", environment, file, stdin="I am Ada.\n") == "0 messages so far\nHello!\n"
    assert run("chat_with_memory", environment, file, stdin="Who am I?\n") == "2 messages so far\nYou are Ada.\n"


def test_two_subscribers_of_a_background_run_see_the_same_events(environment: dict[str, str], tmp_path: Path) -> None:
    lines = run("background_runs", environment, str(tmp_path / "runs.db")).splitlines()
    seen = {name: [line[2:] for line in lines if line.startswith(f"{name} ")] for name in "AB"}
    assert seen["A"] == seen["B"]
    assert seen["A"][0] == "0 RunStart"
    assert lines[-3:] == ["second: Hel", "second: lo!", "bob completed N tokens"]


def test_tests_of_an_agent_pass(environment: dict[str, str]) -> None:
    without_key = environment | {"GEMINI_API_KEY": ""}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLES / "test_an_agent.py")]
    ran = subprocess.run(command, capture_output=True, text=True, env=without_key, timeout=60)
    assert ran.returncode == 0, ran.stdout
    assert "4 passed" in ran.stdout


def test_fastapi_endpoint_streams_the_events_of_a_run(environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "uvicorn", "--port", "0", "--app-dir", str(EXAMPLES), "fastapi_endpoint:app"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as server:
        try:
            url = next(found[0] for line in server.stderr or () if (found := re.search(r"http://[\d.]+:\d+", line)))
            question = json.dumps({"prompt": "Say hello."}).encode()
            request = urllib.request.Request(f"{url}/ask", question, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=30) as response:
                events = [json.loads(line[6:]) for line in response if line.startswith(b"data: ")]
        finally:
            server.terminate()
    assert [event["type"] for event in events] == [
        *("run_start", "turn_start", "text_delta", "text_delta", "turn_end", "run_end")
    ]
    assert events[-1]["text"] == "Hello!"


def test_every_example_is_tested_and_short() -> None:
    programs = {path.stem: len(path.read_text("utf-8").splitlines()) for path in EXAMPLES.glob("*.py")}
    others = {"chat_with_memory", "background_runs", "test_an_agent", "fastapi_endpoint"}
    assert programs.keys() == OUTPUT.keys() | others
    assert all(20 <= lines <= 60 for lines in programs.values())
