"""What importing costs beside importing asyncio and msgspec, in fresh processes, interleaved: ratios and a budget."""

import resource
import statistics
import subprocess
import sys

ROUNDS = 15
FLOOR = "import asyncio, msgspec"
BUDGETS: dict[str, float | None] = {
    "from wasat import gemini": 1.25,
    "from wasat.gemini import Client": None,  # all that a client needs before its first request; told, not limited
}


def cpu_milliseconds(code: str) -> float:
    """User and system time of a fresh interpreter that runs this."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONDONTWRITEBYTECODE": ""})
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
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
