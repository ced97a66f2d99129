"""List every public name with its signature, one per line, as in tests/public_api.txt.

`python scripts/public_api.py` prints the list; with `--write` it replaces the file. Signatures and fields are read from
the source, so that the list does not depend on the version of Python.
"""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from inspect import getsourcefile
from pathlib import Path
from typing import Any

MODULES = (
    "midspan",
    "midspan.tools",
    "midspan.events",
    "midspan.messages",
    "midspan.errors",
    "midspan.providers",
    "midspan.gemini",
    "midspan.testing",
    "midspan.emulator",
    "midspan.toolsets",
    "midspan.compat",
    "midspan.server",
)
FILE = Path(__file__).parent.parent / "tests" / "public_api.txt"

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def main() -> None:
    text = public_api()
    if "--write" in sys.argv[1:]:
        FILE.write_text(text, "utf-8")
    else:
        print(text, end="")


def public_api() -> str:
    """Return the list: each name where it is first listed, the same object in other modules as a reference to it."""
    listed: dict[int, str] = {}
    lines = []
    for module in MODULES:
        public = import_module(module)
        lines += ["", f"[{module}]"]
        for name in sorted(public_names(module), key=lambda name: (name.lower(), name)):
            value = getattr(public, name)
            first = listed.get(id(value))
            if first and not isinstance(value, str | int):
                lines.append(f"{name} = {first}")
                continue
            listed[id(value)] = f"{module}.{name}"
            lines += describe(name, value)
    return "\n".join(lines[1:]) + "\n"


def public_names(module: str) -> list[str]:
    """Return the names that a module exports: `__all__`, or else its classes and its imports in the form `X as X`."""
    names: list[str] | None = getattr(import_module(module), "__all__", None)
    if names is not None:
        return names
    imports = [alias for node in _tree(module).body if isinstance(node, ast.ImportFrom) for alias in node.names]
    classes = [node.name for node in _tree(module).body if isinstance(node, ast.ClassDef)]
    return classes + [alias.name for alias in imports if alias.asname == alias.name]


def describe(name: str, value: Any) -> list[str]:
    module = getattr(value, "__module__", None) or ""
    if not module.startswith("midspan") or not hasattr(value, "__qualname__"):
        return [name]
    if isinstance(value, type):
        bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
        members = dict(_members(value))  # of the most derived class
        heading = f"class {name}({bases})" if bases else f"class {name}"
        return [heading, *(f"    {line}" for member in sorted(members) for line in members[member])]
    nodes = _public_variants(_definitions(module).get(value.__qualname__, []))
    return [_signature(node, name) for node in nodes] or [name]


def _members(cls: type) -> Iterator[tuple[str, list[str]]]:
    """Yield the public members of a class and of our classes that it inherits from, the most derived last."""
    for base in reversed(cls.__mro__):
        if not base.__module__.startswith("midspan"):
            continue
        for node in _class_body(base):
            match node:
                case ast.AnnAssign(target=ast.Name(id=name)) if not name.startswith("_"):
                    default = "" if node.value is None else f" = {ast.unparse(node.value)}"
                    yield name, [f"{name}: {ast.unparse(node.annotation)}{default}"]
                case ast.Assign(targets=[ast.Name(id=name)]) if not name.startswith("_"):
                    yield name, [f"{name} = {ast.unparse(node.value)}"]
        for qualname, nodes in _definitions(base.__module__).items():
            owner, _, name = qualname.rpartition(".")
            if owner == base.__qualname__ and (not name.startswith("_") or name in ("__init__", "__call__")):
                yield name, [_signature(node, name) for node in _public_variants(nodes)]


def _public_variants(nodes: list[_Function]) -> list[_Function]:
    """Return the overloads of a function; without overloads, the function."""
    return [node for node in nodes if "overload" in _decorators(node)] or nodes[-1:]


def _signature(node: _Function, name: str) -> str:
    returns = "" if node.returns is None else f" -> {ast.unparse(node.returns)}"
    if {"property", "cached_property"} & _decorators(node):
        return f"{name}:{returns.removeprefix(' ->')}"
    arguments = ast.unparse(node.args).removeprefix("self, ").removeprefix("cls, ")
    arguments = "" if arguments in ("self", "cls") else arguments
    prefix = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    return f"{prefix}{name}({arguments}){returns}"


def _decorators(node: _Function) -> set[str]:
    return {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}


def _class_body(cls: type) -> list[ast.stmt]:
    for node in ast.walk(_tree(cls.__module__)):
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__:
            return node.body
    return []


@cache
def _definitions(module: str) -> dict[str, list[_Function]]:
    """Return the functions of a module and the methods of its classes, by qualified name."""
    found: dict[str, list[_Function]] = {}

    def visit(nodes: list[ast.stmt], owner: str) -> None:
        for node in nodes:
            if isinstance(node, _Function):
                found.setdefault(owner + node.name, []).append(node)
            elif isinstance(node, ast.ClassDef):
                visit(node.body, f"{owner}{node.name}.")

    visit(_tree(module).body, "")
    return found


@cache
def _tree(module: str) -> ast.Module:
    path = getsourcefile(import_module(module))
    assert path is not None, f"{module} has no source"
    return ast.parse(Path(path).read_text("utf-8"))


if __name__ == "__main__":
    main()
