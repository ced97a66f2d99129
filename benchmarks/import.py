"""What starting costs in fresh processes: importing beside asyncio and msgspec, the command beside Python."""

import resource
import statistics
import subprocess
import sys
from pathlib import Path

ROUNDS = 15
FLOOR = "import asyncio, msgspec"
BUDGETS: dict[str, float | None] = {
    "from midspan import gemini": 1.25,
    "from midspan.gemini import Client": None,  # all that a client needs before its first request; told, not limited
}
MIDSPAN = str(Path(sys.executable).parent / "midspan")
EVERYTHING = "from midspan import Agent, Gemini, tool; import httptools, jsonschema_rs, docstring_parser"
COMMANDS: dict[tuple[str, ...], tuple[str, float]] = {
    ("--version",): ("import argparse, asyncio", 1.5),
    ("ask", "--model", "offline", "What is 17.5% of 2480, and what time is it in Tokyo?"): (EVERYTHING, 2.0),
}
"""Of the command: what it is measured by, and how many times that it may take, the interpreter included in both."""


def cpu_milliseconds(code: str) -> float:
    """User and system time of a fresh interpreter that runs this."""
    return of_command([sys.executable, "-c", code])


def of_command(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    quiet = subprocess.DEVNULL
    subprocess.run(command, check=True, env={"PYTHONDONTWRITEBYTECODE": ""}, stdin=quiet, stdout=quiet, stderr=quiet)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def main() -> int:
    cases = ["pass", FLOOR, *BUDGETS]
    for code in cases:
        cpu_milliseconds(code)  # so that the bytecode is there for all
    rounds = [{code: cpu_milliseconds(code) for code in cases} for _ in range(ROUNDS)]
    took = {code: statistics.median(one[code] - one["pass"] for one in rounds) for code in cases}
    print(f"{FLOOR}: {took[FLOOR]:.0f} ms beyond the interpreter's own")
    broken = False
    for code, budget in BUDGETS.items():
        ratio = took[code] / took[FLOOR]
        broken |= budget is not None and ratio > budget
        print(f"{code}: {took[code]:.0f} ms, {ratio:.2f}x" + (f" ({budget})" if budget else ""))
    return int(broken | commands_break())


def commands_break() -> bool:
    """Whether the command takes more than it may."""
    broken = False
    for arguments, (floor, budget) in COMMANDS.items():
        runs = [(of_command([MIDSPAN, *arguments]), cpu_milliseconds(floor)) for _ in range(ROUNDS + 1)][1:]
        took, least = (statistics.median(one) for one in zip(*runs, strict=True))
        broken |= took / least > budget
        print(f"midspan {' '.join(arguments)[:20]}: {took:.0f} ms, {took / least:.2f}x of «{floor}» ({budget})")
    return broken


if __name__ == "__main__":
    sys.exit(main())
