"""Break the package in small ways and list the breaks that no test of the folder notices.

    python scripts/mutations.py src/midspan/_loop -- tests/loop
    python scripts/mutations.py src/midspan/_schema --sample 60 --seed 7 -- tests/schema

Every mutation is compiled into the modules behind a switch, so the tests are collected once. One process first runs all
tests and records which of them reach which mutation. Each mutation then gets a process of its own, a fork in which its
switch is on and which runs the tests that reach it until one fails.

Only code inside functions is mutated. Code that runs in other processes only (`not reached`) is reported separately.
"""

import argparse
import ast
import contextlib
import copy
import importlib.abc
import importlib.machinery
import importlib.util
import os
import pickle
import random
import signal
import sys
import tempfile
import time
import types
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

SWITCH = "__mutation_is_active__"
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


class Mutation(NamedTuple):
    """A small change of one place."""

    path: str
    line: int
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.before}  ->  {self.after}"


mutations: list[Mutation] = []
reached = set[int]()
active = {-1}


def is_active(number: int) -> bool:
    reached.add(number)
    return number in active


class Mutator(ast.NodeTransformer):
    """Puts a switch around each place of a module that can be mutated."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._depth = 0

    def _visit_function(self, node: Any) -> Any:
        self._depth += 1
        node.body = [self.visit(statement) for statement in node.body]
        self._depth -= 1
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = _visit_function  # noqa: N815 - the names are ast's

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        self._depth += 1
        node.body = self.visit(node.body)
        self._depth -= 1
        return node

    def _skip(self, node: Any) -> Any:
        return node

    visit_JoinedStr = visit_Assert = visit_Raise = visit_Import = visit_ImportFrom = _skip  # noqa: N815

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def visit_match_case(self, node: ast.match_case) -> ast.AST:
        if node.guard is not None:
            node.guard = self._condition(node.guard)
        node.body = [self.visit(statement) for statement in node.body]
        return node

    def _number(self, node: ast.AST, before: ast.AST, after: str | ast.AST) -> int:
        text = after if isinstance(after, str) else ast.unparse(after)
        mutations.append(Mutation(self._path, getattr(node, "lineno", 0), _short(ast.unparse(before)), _short(text)))
        return len(mutations) - 1

    def _switch(self, node: ast.expr, mutated: ast.expr) -> ast.expr:
        """The node with its children visited, or its mutation."""
        if not self._depth:
            return self.generic_visit(node)  # type: ignore[return-value]
        number = self._number(node, node, mutated)
        return ast.copy_location(ast.IfExp(_call(number), mutated, self.generic_visit(node)), node)  # type: ignore[arg-type]

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        if len(node.ops) > 1:
            return self.generic_visit(node)
        mutated = copy.deepcopy(node)
        mutated.ops = [COMPARISONS[type(node.ops[0])]()]
        return self._switch(node, mutated)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        mutated = copy.deepcopy(node)
        mutated.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        return self._switch(node, mutated)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        if isinstance(node.op, ast.Not):
            return self._switch(node, copy.deepcopy(node.operand))
        return node if isinstance(node.op, ast.USub) else self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if type(node.value) is bool:
            return self._switch(node, ast.copy_location(ast.Constant(not node.value), node))
        if type(node.value) is int:
            return self._switch(node, ast.copy_location(ast.Constant(node.value + 1), node))
        return node

    def _condition(self, test: ast.expr) -> ast.expr:
        if isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant):
            return self.visit(test)  # type: ignore[no-any-return]
        mutated = ast.copy_location(ast.UnaryOp(ast.Not(), copy.deepcopy(test)), test)
        return self._switch(test, mutated)

    def _visit_conditional(self, node: Any) -> Any:
        test = self._condition(node.test)
        node.test = ast.Constant(None)  # visited already
        self.generic_visit(node)
        node.test = test
        return node

    visit_If = visit_While = visit_IfExp = _visit_conditional  # noqa: N815

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        node.iter = self.visit(node.iter)
        node.ifs = [self._condition(test) for test in node.ifs]
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """A statement that is only a call can be left out."""
        is_call = isinstance(node.value, ast.Call | ast.Await) and self._depth
        if not is_call or "log" in ast.unparse(node.value).partition("(")[0]:
            return self.generic_visit(node)
        number = self._number(node, node, "(deleted)")
        self.generic_visit(node)
        return ast.copy_location(ast.If(ast.UnaryOp(ast.Not(), _call(number)), [node], []), node)


def _call(number: int) -> ast.expr:
    return ast.Call(ast.Name(SWITCH, ast.Load()), [ast.Constant(number)], [])


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) < 100 else f"{line[:97]}..."


class Loader(importlib.machinery.SourceFileLoader):
    """Loads a module with its mutations."""

    def __init__(self, name: str, path: str, code: types.CodeType) -> None:
        super().__init__(name, path)
        self._code = code

    def get_code(self, fullname: str) -> types.CodeType:  # noqa: ARG002
        return self._code

    def exec_module(self, module: types.ModuleType) -> None:
        module.__dict__[SWITCH] = is_active
        super().exec_module(module)


class Finder(importlib.abc.MetaPathFinder):
    """Finds the mutated modules before all others."""

    def __init__(self, codes: dict[str, types.CodeType]) -> None:
        self._codes = codes

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> Any:
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        code = None if spec is None or spec.origin is None else self._codes.get(spec.origin)
        if spec is None or spec.origin is None or code is None:
            return None
        loader = Loader(fullname, spec.origin, code)
        return importlib.util.spec_from_file_location(
            fullname, spec.origin, loader=loader, submodule_search_locations=spec.submodule_search_locations
        )


def instrument(paths: list[Path]) -> None:
    codes: dict[str, types.CodeType] = {}
    for path in paths:
        tree = Mutator(str(path)).visit(ast.parse(path.read_text()))
        codes[str(path.resolve())] = compile(ast.fix_missing_locations(tree), str(path.resolve()), "exec")
    sys.meta_path.insert(0, Finder(codes))


class Runs:
    """The plugin that runs the collected tests in forks."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed |= report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        began = time.monotonic()
        tests = self._record(session)
        print(f"{len(tests)} of {len(session.items)} tests recorded in {time.monotonic() - began:.0f} s", flush=True)
        chosen = list(range(len(mutations)))
        if self._options.sample:
            generator = random.Random(self._options.seed)  # noqa: S311 - the same sample for the same seed
            chosen = generator.sample(chosen, min(self._options.sample, len(chosen)))
        self._report(self._run_all(session, chosen, tests))
        return True

    def _record(self, session: pytest.Session) -> dict[int, tuple[float, set[int]]]:
        """The time of each test that passes, and the mutations that it reaches."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "tests")
            if (child := os.fork()) == 0:
                with _quiet():
                    file.write_bytes(pickle.dumps(self._record_here(session)))
                os._exit(0)
            os.waitpid(child, 0)
            recorded: dict[int, tuple[float, set[int]]] = pickle.loads(file.read_bytes())  # noqa: S301 - our own
            return recorded

    def _record_here(self, session: pytest.Session) -> dict[int, tuple[float, set[int]]]:
        tests: dict[int, tuple[float, set[int]]] = {}
        for index, item in enumerate(session.items):
            reached.clear()
            self._failed = False
            began = time.monotonic()
            following = session.items[index + 1] if index + 1 < len(session.items) else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if not self._failed:
                tests[index] = time.monotonic() - began, set(reached)
        return tests

    def _run_all(
        self, session: pytest.Session, chosen: list[int], tests: dict[int, tuple[float, set[int]]]
    ) -> dict[int, str]:
        reaching: dict[int, list[int]] = defaultdict(list)
        for index, (_, numbers) in tests.items():
            for number in numbers:
                reaching[number].append(index)
        outcomes: dict[int, str] = {}
        running: dict[int, tuple[int, float]] = {}
        for number in chosen:
            if not reaching[number]:
                outcomes[number] = "not reached"
                continue
            # Fast and specific tests come first; a general one takes long and notices little.
            order = sorted(reaching[number], key=lambda index: (tests[index][0] > 0.2, len(tests[index][1])))
            total, picked = 0.0, list[int]()
            for index in order:
                total += tests[index][0]
                if picked and total > self._options.seconds:
                    break
                picked.append(index)
            while len(running) >= self._options.jobs:
                self._reap(running, outcomes)
            seconds = 4 + 3 * sum(tests[index][0] for index in picked)
            if (child := os.fork()) == 0:
                self._run_one(session, number, picked)
            running[child] = number, time.monotonic() + seconds
        while running:
            self._reap(running, outcomes)
        return outcomes

    def _run_one(self, session: pytest.Session, number: int, picked: list[int]) -> None:
        os.setpgid(0, 0)
        active.add(number)
        with _quiet():
            for index in picked:
                item = session.items[index]
                try:
                    item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
                except BaseException:  # noqa: BLE001 - a broken runner is a noticed mutation, too
                    os._exit(1)
                if self._failed:
                    os._exit(1)
        os._exit(0)

    def _reap(self, running: dict[int, tuple[int, float]], outcomes: dict[int, str]) -> None:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child:
            if child in running:
                number, _ = running.pop(child)
                outcomes[number] = "survived" if status == 0 else "noticed"
                if status == 0:
                    print(f"survived: {mutations[number]}", flush=True)
                with contextlib.suppress(OSError):
                    os.killpg(child, signal.SIGKILL)  # what the tests have started
            return
        for child, (number, deadline) in list(running.items()):
            if time.monotonic() > deadline:
                with contextlib.suppress(OSError):
                    os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                del running[child]
                outcomes[number] = "noticed"  # it hangs
        time.sleep(0.01)

    def _report(self, outcomes: dict[int, str]) -> None:
        for number in sorted(number for number, found in outcomes.items() if found == "not reached"):
            print(f"not reached: {mutations[number]}")
        counts = Counter(outcomes.values())
        print(f"{len(outcomes)} mutations: " + ", ".join(f"{count} {outcome}" for outcome, count in counts.items()))


@contextlib.contextmanager
def _quiet() -> Any:
    sys.stdout.flush()
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    yield


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", type=Path, help="modules and folders to mutate")
    parser.add_argument("--sample", type=int, default=0, help="how many mutations to draw; all by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="processes at the same time")
    parser.add_argument("--seconds", type=float, default=4, help="time of the tests for one mutation, unmutated")
    divider = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options = parser.parse_args(sys.argv[1:divider])
    if divider == len(sys.argv):
        parser.error("name the tests after `--`, such as -- tests/loop")
    paths = [path for source in options.sources for path in ([source] if source.is_file() else source.rglob("*.py"))]
    instrument(sorted(paths))
    print(f"{len(mutations)} mutations in {len(paths)} modules", flush=True)
    arguments = [
        "-q",
        "-s",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-m",
        "not acceptance",
        *sys.argv[divider + 1 :],
    ]
    return int(pytest.main(arguments, plugins=[Runs(options)]))


if __name__ == "__main__":
    sys.exit(main())
