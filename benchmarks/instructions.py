"""Instructions per turn of `Agent` and of the two hand-written loops, counted by valgrind.

Times on a shared machine vary by a factor of two within minutes; the number of instructions in user space varies by a
few percent. It is the difference between a long and a short run, so that imports and the first request do not count.
Uses the shared benchmark like turns.py: `BENCH_VENVS=DIR python benchmarks/instructions.py`. Exits 1 if a budget of
turns.py is exceeded. `--write` updates the table in docs/speed.md.
"""

import asyncio
import importlib
import os
import re
import subprocess
import sys
from typing import Any, NamedTuple

from turns import FLOOR, PAGE, RAW_FLOOR, SCENARIOS, SHARED, replace_table


class Case(NamedTuple):
    """A scenario of turns.py, the model of the fake server, and how many conversations a short and a long run have."""

    description: str
    model: str
    turns: int
    at_once: int
    short: int
    long: int


CASES = {
    "loop1": Case("one tool round", "t1p1", 2, 1, 20, 80),
    "loop100": Case("a hundred tool rounds", "t100p1", 101, 1, 1, 2),
    "conc64": Case("64 conversations at once", "t4", 5, 64, 1, 3),
}
CONTESTANTS = (FLOOR, RAW_FLOOR, "midspan")


def main() -> int:
    if "--client" in sys.argv:
        asyncio.run(converse(*sys.argv[2:]))
        return 0
    if not SHARED.exists() or not os.environ.get("BENCH_VENVS"):
        print("the shared benchmark is missing, or BENCH_VENVS does not name the folder with its environments")
        return 2
    os.environ["MIDSPAN_PYTHON"] = sys.executable
    sys.path.insert(0, str(SHARED))
    bench: Any = importlib.import_module("bench")
    server, ports = bench.start_server()
    try:
        counts = {
            (name, key): per_turn(bench.venv_of(name), name, key, f"http://127.0.0.1:{ports[0]}")
            for key in CASES
            for name in CONTESTANTS
        }
    finally:
        server.kill()
    rows = [
        "| instructions per turn, thousands | aiohttp floor | raw floor | agent | ratios |",
        "|---|---|---|---|---|",
    ]
    is_over = False
    for key, case in CASES.items():
        floor, raw, agent = (counts[name, key] for name in CONTESTANTS)
        is_over |= agent / floor > SCENARIOS[key].budgets["agent"]
        rows.append(f"| {case.description} | {floor} | {raw} | {agent} | {agent / floor:.2f}, {agent / raw:.1f} |")
    table = "\n".join(rows)
    print(table)
    if "--write" in sys.argv:
        PAGE.write_text(replace_table(PAGE.read_text("utf-8"), "instructions", table), "utf-8")
    return int(is_over)


def per_turn(python: str, name: str, key: str, url: str) -> int:
    """Return the instructions of one turn, in thousands."""
    case = CASES[key]
    short, long = (count(python, [url, name, key, str(waves)]) for waves in (case.short, case.long))
    return round((long - short) / ((case.long - case.short) * case.at_once * case.turns) / 1000)


def count(python: str, arguments: list[str]) -> int:
    """Return the instructions that a client executes."""
    valgrind = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    environment = {**os.environ, "PYTHONHASHSEED": "0", "NO_PROXY": "*"}
    command = [*valgrind, python, __file__, "--client", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    found = re.search(r"I\s+refs:\s+([\d,]+)", result.stderr)
    assert found is not None, result.stderr[-500:]
    return int(found[1].replace(",", ""))


async def converse(url: str, name: str, key: str, waves: str) -> None:
    """Have conversations with a contestant of the shared benchmark. This runs in the contestant's environment."""
    sys.path.insert(0, str(SHARED))
    runner: Any = importlib.import_module("runner")
    module, *options = name.split(":")
    agent = runner.contestant(module.replace("-", "_")).make(url, runner.make_tools("async"), *options)
    if asyncio.iscoroutine(agent):
        agent = await agent
    case = CASES[key]
    for _ in range(int(waves)):
        await asyncio.gather(*(agent.run(runner.MODEL + case.model, runner.PROMPT) for _ in range(case.at_once)))
    os._exit(0)  # without the clean-up, which differs between contestants


if __name__ == "__main__":
    sys.exit(main())
