"""Imports point one way only, also those hidden inside functions."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "midspan"

# Each layer may import those before it and itself; names on one line are blind to each other.
LAYERS = [
    ["errors", "_version", "_lazy"],
    ["_types"],
    ["_schema", "_storage", "_http"],
    ["tools", "providers"],
    ["_loop"],
    ["gemini", "toolsets", "emulator"],
    ["compat"],
    ["testing"],
    ["_server"],
    ["_cli"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
FACES = {"__init__", "__main__", "messages", "events", "server"}
"""The public names and the command, which no other module imports."""


def imported(path: Path) -> Iterator[str]:
    """Every module of ours that a file imports, at its head or anywhere within."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("midspan."):
            yield node.value.replace(":", ".")  # a name in a table, to be imported when asked for


def breaches(source: Path) -> list[str]:
    found = []
    for path in sorted(source.rglob("*.py")):
        layer = path.relative_to(source).parts[0].removesuffix(".py")
        for name in imported(path):
            package, _, rest = name.partition(".")
            target = rest.split(".")[0]
            if package != "midspan" or target == layer or (target not in LEVEL and layer in FACES):
                continue
            if layer not in FACES and (target not in LEVEL or LEVEL[target] >= LEVEL[layer]):
                found.append(f"{path.relative_to(source)} imports {name}")
    return found


def test_imports_point_one_way() -> None:
    assert breaches(SOURCE) == []


def test_every_module_belongs_to_a_layer() -> None:
    modules = {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in SOURCE.rglob("*.py")}
    assert modules - FACES <= LEVEL.keys()


@pytest.mark.parametrize(
    "line",
    [
        "import midspan._loop.run",
        "from midspan._loop import run",
        "def f():\n    from midspan.tools import execute",
        "if True:\n    class A:\n        import midspan.providers",
        "TABLE = {'x': 'midspan._cli:main'}",
        "from midspan import Agent",
        "from midspan._schema import signature",
    ],
)
def test_an_import_the_other_way_is_seen_wherever_it_hides(tmp_path: Path, line: str) -> None:
    (tmp_path / "_http").mkdir()
    (tmp_path / "_http" / "body.py").write_text(line)
    assert len(breaches(tmp_path)) == 1
