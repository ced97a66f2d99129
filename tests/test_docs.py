"""Every Python example in the README and the docs runs, and prints what is said beside it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(("code", "output"), examples())
def test_example_runs_and_prints_what_is_said(code: str, output: str, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(code, "utf-8")
    environment = {name: value for name, value in os.environ.items() if "API_KEY" not in name}
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
