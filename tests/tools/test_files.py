"""Tools from the files and modules that a user names."""

import re
import sys
from pathlib import Path

import pytest

from midspan.errors import ConfigError
from midspan.tools.files import tools_in


@pytest.fixture(autouse=True)
def _own_import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("from json import dumps\ndef add(): ...\ndef _hidden(): ...", ["add"]),
        ("from midspan import tool\n@tool\ndef add(): ...\ndef helper(): ...", ["add"]),
        ("def add(): ...\ndef more(): ...\ntools = [more]", ["more"]),
        ("def tools(): ...", ["tools"]),
    ],
)
def test_tools_of_a_file_are_listed_or_decorated_or_its_public_functions(
    tmp_path: Path, code: str, names: list[str]
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(code)
    assert [tool.name for tool in tools_in(str(path))] == names


@pytest.mark.parametrize(
    ("file", "code", "problem"),
    [
        ("notes.txt", "", "the name of the file does not end with .py"),
        ("broken.py", "\n1 / 0", "ZeroDivisionError: division by zero (broken.py, line 2)"),
        ("leaving.py", "raise SystemExit", "SystemExit (leaving.py, line 1)"),
        ("importing.py", "import nowhere_at_all", "No module named 'nowhere_at_all'"),
        ("empty.py", "", "there are no tools"),
        ("number.py", "tools = 5", "make it a list of functions or a source of tools"),
        ("text.py", "tools = ['a']", "cannot use the tools in"),
    ],
)
def test_a_file_without_usable_tools_is_an_error(tmp_path: Path, file: str, code: str, problem: str) -> None:
    path = tmp_path / file
    path.write_text(code)
    with pytest.raises(ConfigError, match=re.escape(problem)):
        tools_in(str(path))


def test_a_file_or_module_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no such file"):
        tools_in("nowhere/mine.py")
    with pytest.raises(ConfigError, match="no module 'nowhere_at_all' is installed"):
        tools_in("nowhere_at_all")


def test_a_missing_import_of_a_module_is_not_a_missing_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "importing_nothing.py").write_text("import nowhere_at_all")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"No module named 'nowhere_at_all' \(importing_nothing.py, line 1\)"):
        tools_in("importing_nothing")


def test_file_may_import_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "prices_of_the_shop.py").write_text("TEA = 3")
    (tmp_path / "shop.py").write_text("from prices_of_the_shop import TEA\ndef price(): ...")
    assert [tool.name for tool in tools_in(str(tmp_path / "shop.py"))] == ["price"]


def test_file_does_not_hide_a_standard_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    (tmp_path / "colorsys.py").write_text("def own(): ...")
    (tmp_path / "colors.py").write_text("from colorsys import rgb_to_hsv\ndef hue(): ...")
    assert [tool.name for tool in tools_in(str(tmp_path / "colors.py"))] == ["hue"]
    assert [tool.name for tool in tools_in(str(tmp_path / "colorsys.py"))] == ["own"]
