"""CPU of starting up in a fresh process: imports compared with asyncio and msgspec, commands compared with Python."""

import resource
import statistics
import subprocess
import sys
from pathlib import Path

ROUNDS = 15
FLOOR = "import asyncio, msgspec"
IMPORT = "from midspan import Agent, Gemini, tool"
FIRST_AGENT = f"""{IMPORT}
def add(a: int, b: int = 1) -> int:
    '''Add two numbers.

    Args:
        a: The first number.
    '''
    return a + b
Agent(Gemini('gemini-3.8-flash', api_key='x'), tools=[add])"""
IMPORTS = {IMPORT: 1.25, FIRST_AGENT: 1.8}
"""Code, and the largest ratio to FLOOR that it may have."""
SOURCE = Path(__file__).parent.parent / "src"
"""The tree that this file stands in is measured, not an installed one."""
MIDSPAN = [sys.executable, "-m", "midspan"]
EVERYTHING = f"{IMPORT}; import httptools, jsonschema_rs, docstring_parser"
COMMANDS: dict[tuple[str, ...], tuple[str, float]] = {
    ("--version",): ("import argparse, asyncio", 1.5),
    ("ask", "--model", "offline", "What is 17.5% of 2480, and what time is it in Tokyo?"): (EVERYTHING, 2.0),
}
"""Arguments of `midspan`, what they are compared with, and the largest ratio; the interpreter counts in both."""


def main() -> int:
    imports = imports_exceed_budget()
    return int(commands_exceed_budget() or imports)


def imports_exceed_budget() -> bool:
    cases = ["pass", FLOOR, *IMPORTS]
    for code in cases:
        run_code(code)  # writes the bytecode
    rounds = [{code: run_code(code) for code in cases} for _ in range(ROUNDS)]
    medians = {code: statistics.median(sample[code] - sample["pass"] for sample in rounds) for code in cases}
    print(f"{FLOOR}: {medians[FLOOR]:.0f} ms more than the bare interpreter")
    for code, budget in IMPORTS.items():
        label = code.replace("\n", " ")[-60:] if code is FIRST_AGENT else code
        print(f"{label}: {medians[code]:.0f} ms, {medians[code] / medians[FLOOR]:.2f}x ({budget})")
    return any(medians[code] / medians[FLOOR] > budget for code, budget in IMPORTS.items())


def commands_exceed_budget() -> bool:
    exceeded = False
    for arguments, (floor, budget) in COMMANDS.items():
        samples = [(run_command([*MIDSPAN, *arguments]), run_code(floor)) for _ in range(ROUNDS + 1)][1:]
        ours, least = (statistics.median(column) for column in zip(*samples, strict=True))
        exceeded |= ours / least > budget
        print(f"midspan {' '.join(arguments)[:20]}: {ours:.0f} ms, {ours / least:.2f}x of «{floor}» ({budget})")
    return exceeded


def run_code(code: str) -> float:
    """Milliseconds of user and system time of a fresh interpreter that runs this code."""
    return run_command([sys.executable, "-c", code])


def run_command(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    null, environment = subprocess.DEVNULL, {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPATH": str(SOURCE)}
    subprocess.run(command, check=True, env=environment, stdin=null, stdout=null, stderr=null)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


if __name__ == "__main__":
    sys.exit(main())
