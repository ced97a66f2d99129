"""What is built is what works: the wheel, in an environment of its own, without the sources."""

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
    """The command of the wheel; its dependencies are those of this environment, which it sees but does not own."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--disable-pip-version-check"]
    built = subprocess.run([*build, "--wheel-dir", str(folder), str(ROOT)], capture_output=True, text=True, timeout=120)
    if built.returncode != 0 and "hatchling" in built.stderr:
        pytest.skip("the wheel cannot be built: hatchling cannot be installed from a package index")
    assert built.returncode == 0, built.stderr
    [wheel] = folder.glob("midspan-*.whl")
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    python = folder / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    put = subprocess.run([*pip, str(wheel)], capture_output=True, text=True, timeout=120)
    assert put.returncode == 0, put.stderr
    # Everything else that this environment has, but for the way to the sources.
    [packages] = (folder / "venv" / "lib").glob("python*/site-packages")
    [ours] = [Path(place) for place in sys.path if place.startswith(sys.prefix) and place.endswith("site-packages")]
    for one in ours.iterdir():
        if "midspan" not in one.name and not (packages / one.name).exists():
            (packages / one.name).symlink_to(one)
    return folder / "venv" / "bin" / "midspan"


def ran(command: Path, *arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}
    return subprocess.run(
        [str(command), *arguments], capture_output=True, text=True, cwd=home, env=environment, timeout=BOUND, stdin=-3
    )


def test_the_wheel_has_the_command_and_does_without_the_sources(installed: Path, tmp_path: Path) -> None:
    assert ran(installed, "--version", home=tmp_path).stdout == f"midspan {VERSION}\n"
    python = installed.parent / "python"
    where = ran(python, "-c", "import midspan; print(midspan.__file__)", home=tmp_path).stdout.strip()
    assert Path(where).is_relative_to(installed.parent.parent)


def test_the_wheel_answers_with_two_tools(installed: Path, tmp_path: Path) -> None:
    question = "What is 17.5% of 2480, and what time is it in Tokyo?"
    ended = ran(installed, "ask", "--model", "offline", "--json", question, home=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert [call["is_error"] for call in json.loads(ended.stdout)["tool_calls"]] == [False, False]


def test_the_wheel_has_the_data_of_the_package(installed: Path, tmp_path: Path) -> None:
    listed = json.loads(ran(installed, "tools", "--json", home=tmp_path).stdout)["tools"]
    assert "location" in listed[0]["parameters"]["properties"], "which is read from a file of the package"
    kept = {path.name for path in (ROOT / "src" / "midspan").rglob("*") if path.suffix in (".json", ".toml", ".typed")}
    [packages] = (installed.parent.parent / "lib").glob("python*/site-packages")
    assert kept <= {path.name for path in (packages / "midspan").rglob("*")}


def test_the_wheel_takes_tools_of_a_file(installed: Path, tmp_path: Path) -> None:
    text = (
        "from midspan import tool\n@tool(read_only=True)\ndef stock_level(item: str) -> int:\n"
        "    'How many pieces of an item are in stock.'\n    return 12\n"
    )
    (tmp_path / "stock.py").write_text(text)
    question = "How many pieces of the item 'lamp' are in stock?"
    ended = ran(installed, "ask", "-m", "offline", "-t", "stock.py", question, home=tmp_path)
    assert (ended.returncode, "12" in ended.stdout) == (0, True), ended.stderr
