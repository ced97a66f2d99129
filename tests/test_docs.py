"""Every Python example in the README and the docs runs and prints the documented output."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gemini.recorder import Recorder, recorder

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLE = re.compile(
    r"^```python\n(.*?)^```\n(?:\s*(?:<!-- output -->\s*)?```(?:text|output)\n(.*?)^```)?", re.DOTALL | re.MULTILINE
)


def examples() -> list[pytest.param]:
    return [
        pytest.param(code, output, id=f"{page.relative_to(ROOT)}-{number}")
        for page in PAGES
        for number, (code, output) in enumerate(EXAMPLE.findall(page.read_text("utf-8")))
    ]


CALL = {"functionCall": {"name": "get_weather", "args": {"city": "Oslo"}}}


def said(*parts: Any, finish: str | None = "STOP") -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}}
    return {"candidates": [candidate | ({"finishReason": finish} if finish else {})]}


class Model(Recorder):
    """Answers as a model might, by what it is asked."""

    def next(self) -> tuple[int, bytes, dict[str, str]]:
        body, streaming = json.dumps(self.last.body), "stream" in self.last.path
        answer = self.answer_stream if streaming else self.answer
        if "functionResponse" in body:
            answer(said({"text": "It is 4 degrees in Oslo."}))
        elif "functionDeclarations" in body:
            answer(said(CALL))
        elif streaming:
            answer(said({"text": "Hel"}, finish=None), said({"text": "lo!"}))
        else:
            text = "Hello!"
            self.answer(said({"text": json.dumps(text) if "responseJsonSchema" in body else text}))
        return self.answers.pop()


@pytest.fixture(scope="module")
def gemini() -> Iterator[str]:
    with recorder(Model()) as record:
        yield record.url


@pytest.mark.parametrize(("code", "output"), examples())
def test_example_runs_and_prints_the_documented_output(code: str, output: str, tmp_path: Path, gemini: str) -> None:
    script = tmp_path / "example.py"
    script.write_text(code, "utf-8")
    environment = {**os.environ, "GOOGLE_API_KEY": "", "GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": gemini}
    ran = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == output or not output, "the output beside the example is another"


def test_there_are_examples() -> None:
    assert examples()


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"


@pytest.mark.requirement("S4-23")
def test_there_is_an_example_program_that_registers_three_tools_and_asks_blocking_and_streaming() -> None:
    [example] = EXAMPLE.findall((ROOT / "docs/how-to/execute-tools-with-gemini.md").read_text("utf-8"))
    code, output = example
    assert code.count("Tools.register(") == 3
    assert "generate_content_with_auto_tools(" in code
    assert "stream_generate_with_auto_tools(" in code
    assert output, "test_example_runs_and_prints_the_documented_output compares it"
