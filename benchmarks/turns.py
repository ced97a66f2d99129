"""CPU and memory of `Agent` and of a loop on `midspan.gemini.AsyncClient`, as ratios to hand-written loops.

Uses the shared benchmark (../shared/bench) and its environments: `BENCH_VENVS=DIR ../shared/bench/setup.sh` once, then
`BENCH_VENVS=DIR python benchmarks/turns.py`. Exits 1 if a budget is exceeded. `--write` updates docs/speed.md.
`--provider anthropic openai` compares other providers with Gemini instead, without the shared benchmark.

Client and server share one core. On two cores the system wakes an idle core for each request or not, as it happens to
place the processes, and that changes the CPU of a turn by more than half. The machine may be shared, and its speed
changes within seconds, so the contestants of a scenario run one after the other, and a ratio is the median of the
ratios of all repetitions.
"""

import asyncio
import importlib
import os
import statistics
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared" / "bench"
PAGE = ROOT / "docs" / "speed.md"
ROUNDS = int(os.environ.get("ROUNDS", "7"))
FLOOR = "floor:aiohttp:inc"
RAW_FLOOR = "floor:raw-httptools:inc"
CONTESTANTS = {"agent": "midspan", "client": "client"}
"""Our name for a contestant, and its module: in the shared benchmark or in benchmarks/contestants."""
RAW_BUDGET = 2.5
"""What the agent may cost compared with a loop on a bare asyncio Protocol, in the scenarios that measure CPU."""


class Scenario(NamedTuple):
    """What a scenario measures, and the largest ratio to the aiohttp floor that each contestant may have."""

    field: str
    description: str
    budgets: dict[str, float]
    compares_raw: bool = True
    repeats: int = 1
    """How often it runs per round."""


SCENARIOS = {
    "loop1": Scenario("cpu_ms_per_turn", "CPU per turn, one tool round, ms", {"agent": 0.7, "client": 0.7}),
    "loop100": Scenario("cpu_ms_per_turn", "CPU per turn, a hundred tool rounds, ms", {"agent": 0.7, "client": 0.7}),
    "conc64": Scenario("cpu_ms_per_turn", "CPU per turn, 64 conversations at once, ms", {"agent": 0.6}, repeats=3),
    "stream": Scenario("cpu_us_per_chunk", "CPU per streamed chunk, µs", {"agent": 1.0, "client": 1.0}, repeats=5),
    "mem256": Scenario("kb_per_conv", "memory per waiting conversation, kB", {"agent": 1.05}, compares_raw=False),
    "par4": Scenario("wall_ms_min", "four parallel 50 ms tools, wall time, ms", {"agent": 1.05}, compares_raw=False),
}
Samples = dict[tuple[str, str], list[float]]


def main() -> int:
    if "--provider" in sys.argv:
        provider_turns: Any = importlib.import_module("provider_turns")
        names = sys.argv[sys.argv.index("--provider") + 1 :]
        return int(asyncio.run(provider_turns.main(names or provider_turns.PROVIDERS)))
    if not SHARED.exists() or not os.environ.get("BENCH_VENVS"):
        print("the shared benchmark is missing, or BENCH_VENVS does not name the folder with its environments")
        return 2
    samples = measure()
    table = "\n".join(rows(samples))
    print(table)
    if "--write" in sys.argv:
        PAGE.write_text(replace_table(PAGE.read_text("utf-8"), "turns", table), "utf-8")
    return int(over_budget(samples))


def measure() -> Samples:
    """Run every contestant of every scenario, ROUNDS times."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    os.environ["BENCH_CONTESTANTS"] = str(ROOT / "benchmarks" / "contestants")
    os.environ["MIDSPAN_PYTHON"] = sys.executable
    sys.path.insert(0, str(SHARED))
    bench: Any = importlib.import_module("bench")
    server, ports = bench.start_server()
    samples: Samples = {}
    try:
        for name, scenario in ROUNDS * one_round():
            for result in bench.run(CONTESTANTS.get(name, name), scenario, f"http://127.0.0.1:{ports[0]}"):
                if "error" in result:
                    sys.exit(f"{name} {scenario}: {result['error'][-300:]}")
                samples.setdefault((name, scenario), []).append(result[SCENARIOS[scenario].field])
    finally:
        server.kill()
    return samples


def one_round() -> list[tuple[str, str]]:
    """Return the contestant and the scenario of each process, with those that are compared next to each other."""
    return [
        (name, key)
        for key, scenario in SCENARIOS.items()
        for _ in range(scenario.repeats)
        for name in (FLOOR, *CONTESTANTS, RAW_FLOOR)
        if runs(name, scenario)
    ]


def runs(name: str, scenario: Scenario) -> bool:
    return name == FLOOR or name in scenario.budgets or (name == RAW_FLOOR and scenario.compares_raw)


def ratio(name: str, scenario: str, samples: Samples, floor: str = FLOOR) -> float:
    pairs = zip(samples[name, scenario], samples[floor, scenario], strict=True)
    return statistics.median(value / floor_value for value, floor_value in pairs)


def rows(samples: Samples) -> list[str]:
    """The table of docs/speed.md."""
    table = [
        "| what | aiohttp floor | agent | ratio | to the raw floor | client | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for key, scenario in SCENARIOS.items():
        cells = [scenario.description, f"{statistics.median(samples[FLOOR, key]):.3g}"]
        cells += [f"{statistics.median(samples['agent', key]):.3g}", f"{ratio('agent', key, samples):.2f}"]
        cells.append(f"{ratio('agent', key, samples, RAW_FLOOR):.2f}" if scenario.compares_raw else "")
        if "client" in scenario.budgets:
            cells += [f"{statistics.median(samples['client', key]):.3g}", f"{ratio('client', key, samples):.2f}"]
        else:
            cells += ["", ""]
        table.append(f"| {' | '.join(cells)} |")
    return table


def over_budget(samples: Samples) -> bool:
    ratios = [
        (f"{name}.{key}", ratio(name, key, samples), budget)
        for key, scenario in SCENARIOS.items()
        for name, budget in scenario.budgets.items()
    ]
    ratios += [
        (f"agent.{key} to the raw floor", ratio("agent", key, samples, RAW_FLOOR), RAW_BUDGET)
        for key, scenario in SCENARIOS.items()
        if scenario.compares_raw
    ]
    for label, value, budget in ratios:
        print(f"{label}: {value:.2f} ({budget}){'  OVER BUDGET' if value > budget else ''}")
    return any(value > budget for _, value, budget in ratios)


def replace_table(page: str, name: str, table: str) -> str:
    """Return the page with another table between the marks of this name."""
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, _, rest = page.partition(start)
    _, _, after = rest.partition(end)
    return f"{before}{start}\n{table}\n{end}{after}"


if __name__ == "__main__":
    sys.exit(main())
