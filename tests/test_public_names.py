"""The public modules: what they list, in which words, and that documentation uses nothing else."""

import re
import subprocess
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest

from midspan import Agent, Limits, errors, from_json, tool
from midspan._loop.options import KNOWN_OPTIONS
from midspan.tools.function import ToolOptions
from scripts.public_api import FILE, MODULES, public_api, public_names

ROOT = Path(__file__).parent.parent
INTERNAL_PAGES = ("architecture.md", "gemini-wire.md")
"""Pages for people who work on Midspan, with examples of its inner modules."""


@pytest.mark.requirement("U-01")
def test_public_names_and_signatures_are_those_of_the_list() -> None:
    assert public_api().splitlines() == FILE.read_text("utf-8").splitlines(), (
        "the public API differs from tests/public_api.txt; if that is intended, run "
        "`python scripts/public_api.py --write` and commit the file"
    )


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_can_be_loaded(module: str) -> None:
    public = import_module(module)
    assert public_names(module)
    assert all(getattr(public, name) is not None for name in public_names(module))


@pytest.mark.parametrize("module", MODULES)
def test_unknown_public_name_is_an_attribute_error(module: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{module}' has no attribute 'unknown_name'"):
        _ = import_module(module).unknown_name


@pytest.mark.parametrize("module", MODULES)
def test_no_public_name_is_hidden_by_a_submodule(module: str) -> None:
    package = import_module(module)
    submodules = {info.name for info in iter_modules(getattr(package, "__path__", ()))}
    assert not submodules & set(public_names(module))


@pytest.mark.requirement("U-01")
def test_public_modules_import_nothing_before_a_name_is_used() -> None:
    eager = {"compat", "emulator", "events", "messages", "server", "testing"}
    lazy = [name for name in MODULES if name.removeprefix("midspan.") not in eager]
    program = f"import sys, {', '.join(lazy)}; print(*[name for name in sys.modules if name.startswith('midspan')])"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert set(loaded) == {*lazy, "midspan._lazy", "midspan._version"}


def test_public_exceptions_end_in_error() -> None:
    assert all(name.endswith("Error") for name in public_names(errors.__name__))


@pytest.mark.parametrize(
    ("documented", "names"),
    [
        (tool, ToolOptions.__optional_keys__),
        (Limits, Limits.__struct_fields__),
        (Agent.run, KNOWN_OPTIONS),
        (from_json, ("messages", "event")),
    ],
)
def test_help_names_all_options(documented: Any, names: Iterable[str]) -> None:
    described = re.findall(r"`(\w+)`", documented.__doc__)
    assert set(names) <= set(described)


def test_close_is_plain_and_aclose_is_a_coroutine() -> None:
    api = FILE.read_text("utf-8")
    assert "async close(" not in api
    assert not re.search(r"^ +aclose\(", api, re.MULTILINE)
    assert "async aclose(" in api


def test_durations_end_in_seconds_or_are_timeouts() -> None:
    api = FILE.read_text("utf-8")
    assert re.findall(r"\b(?:duration|delay|wait|ttl|interval|period)\w*(?<!_seconds): (?:int|float)", api) == []
    assert re.findall(r"\btimeout_seconds|\b(?:largest|longest|maximum|minimum)_\w+: ", api) == []


def test_documentation_imports_public_names_only() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        if page.name in INTERNAL_PAGES or "decisions" in page.parts:
            continue
        text = page.read_text("utf-8")
        for module, names in re.findall(r"^ *from (midspan[\w.]*) import \(?([\w, \n]+)", text, re.MULTILINE):
            assert module in MODULES, f"{page.name} imports from {module}"
            listed = {*public_names(module), *(name.rpartition(".")[2] for name in MODULES)}
            for name in re.split(r"[,\s]+", names.partition("\n")[0].strip(" ,")):
                assert not name or name in listed, f"{page.name} imports {name} from {module}"
