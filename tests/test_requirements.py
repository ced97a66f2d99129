"""requirements.toml and the marks of tests agree in both directions."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MANIFEST = tomllib.loads((HERE / "requirements.toml").read_text("utf-8"))
STATES = {"done", "partial", "planned"}


def marked(path: Path) -> Iterator[tuple[str, str]]:
    """(requirement, test) for every mark in a file."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("mark.requirement"):
            for argument in node.args:
                assert isinstance(argument, ast.Constant), f"{path}: a requirement is named by its id"
                yield str(argument.value), str(path.relative_to(HERE))


def complaints(manifest: dict[str, dict[str, str]], marks: list[tuple[str, str]]) -> list[str]:
    shown = {id for id, _ in marks}
    without_test = [f"{id} is done, but no test carries it" for id in manifest if manifest[id]["state"] == "done"]
    return [
        *(line for line in without_test if line.split()[0] not in shown),
        *(f"{test} names {id}, which no requirement is called" for id, test in marks if id not in manifest),
        *(f"{id} is only planned, but {test} carries it" for id, test in marks if state(manifest, id) == "planned"),
    ]


def state(manifest: dict[str, dict[str, str]], id: str) -> str | None:
    return manifest[id]["state"] if id in manifest else None


def all_marks() -> list[tuple[str, str]]:
    return [mark for path in sorted(HERE.rglob("test_*.py")) for mark in marked(path)]


def test_what_is_done_is_shown_and_what_is_shown_is_known() -> None:
    assert complaints(MANIFEST, all_marks()) == []


def test_every_requirement_says_what_it_is_in_one_sentence() -> None:
    for id, entry in MANIFEST.items():
        assert entry["state"] in STATES, id
        assert ("missing" in entry) == (entry["state"] == "partial"), f"{id}: what is missing, if it is partial"
        assert entry["says"].strip().endswith("."), id
        assert "\n" not in entry["says"], id


def test_every_id_of_the_designs_is_listed() -> None:
    counts = {"S0": 20, "S1": 21, "S2": 21, "S3": 17, "S4": 23}
    expected = {f"{seed}-{number:02}" for seed, count in counts.items() for number in range(1, count + 1)}
    assert expected <= MANIFEST.keys()
    others = MANIFEST.keys() - expected
    for prefix in {id.partition("-")[0] for id in others}:
        numbered = {id for id in others if id.startswith(f"{prefix}-")}
        assert numbered == {f"{prefix}-{number:02}" for number in range(1, len(numbered) + 1)}


@pytest.mark.parametrize(
    ("manifest", "marks"),
    [
        ({"S9-01": {"state": "done"}}, []),
        ({"S9-01": {"state": "done"}}, [("S9-01", "a"), ("S9-02", "b")]),
        ({"S9-01": {"state": "planned"}}, [("S9-01", "a")]),
    ],
)
def test_a_gap_in_either_direction_is_seen(manifest: dict[str, dict[str, str]], marks: list[tuple[str, str]]) -> None:
    assert len(complaints(manifest, marks)) == 1
