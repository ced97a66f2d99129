"""The built wheel works in an environment of its own, without the sources."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from midspan._version import VERSION
from tests.bounds import BOUND

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into a new environment with links to the packages of this one, and return its command."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--disable-pip-version-check"]
    built = subprocess.run([*build, "--wheel-dir", str(folder), str(ROOT)], capture_output=True, text=True, timeout=120)
    if built.returncode != 0 and "hatchling" in built.stderr:
        pytest.skip("cannot build the wheel: hatchling cannot be installed from the package index")
    assert built.returncode == 0, built.stderr
    [wheel] = folder.glob("midspan-*.whl")
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    python = folder / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    put = subprocess.run([*pip, str(wheel)], capture_output=True, text=True, timeout=120)
    assert put.returncode == 0, put.stderr
    # All packages of this environment, but not the editable installation of the sources.
    [packages] = (folder / "venv" / "lib").glob("python*/site-packages")
    [ours] = [Path(place) for place in sys.path if place.startswith(sys.prefix) and place.endswith("site-packages")]
    for package in ours.iterdir():
        if "midspan" not in package.name and not (packages / package.name).exists():
            (packages / package.name).symlink_to(package)
    return folder / "venv" / "bin" / "midspan"


def run(command: Path, *arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}
    return subprocess.run(
        [str(command), *arguments], capture_output=True, text=True, cwd=home, env=environment, timeout=BOUND, stdin=-3
    )


def test_wheel_has_the_command_and_does_not_need_the_sources(installed: Path, tmp_path: Path) -> None:
    assert run(installed, "--version", home=tmp_path).stdout == f"midspan {VERSION}\n"
    python = installed.parent / "python"
    where = run(python, "-c", "import midspan; print(midspan.__file__)", home=tmp_path).stdout.strip()
    assert Path(where).is_relative_to(installed.parent.parent)


def test_wheel_answers_with_two_tools(installed: Path, tmp_path: Path) -> None:
    question = "What is 17.5% of 2480, and what time is it in Tokyo?"
    ended = run(installed, "ask", "--model", "offline", "--json", question, home=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert [call["is_error"] for call in json.loads(ended.stdout)["tool_calls"]] == [False, False]


def test_wheel_contains_the_data_files(installed: Path, tmp_path: Path) -> None:
    listed = json.loads(run(installed, "tools", "--json", home=tmp_path).stdout)["tools"]
    assert "location" in listed[0]["parameters"]["properties"], "read from a data file of the package"
    data_files = {
        path.name for path in (ROOT / "src" / "midspan").rglob("*") if path.suffix in (".json", ".toml", ".typed")
    }
    [packages] = (installed.parent.parent / "lib").glob("python*/site-packages")
    assert data_files <= {path.name for path in (packages / "midspan").rglob("*")}


def test_wheel_loads_tools_from_a_file(installed: Path, tmp_path: Path) -> None:
    text = (
        "from midspan import tool\n@tool(read_only=True)\ndef stock_level(item: str) -> int:\n"
        "    'How many pieces of an item are in stock.'\n    return 12\n"
    )
    (tmp_path / "stock.py").write_text(text)
    question = "How many pieces of the item 'lamp' are in stock?"
    ended = run(installed, "ask", "-m", "offline", "-t", "stock.py", question, home=tmp_path)
    assert (ended.returncode, "12" in ended.stdout) == (0, True), ended.stderr
