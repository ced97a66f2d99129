"""An `Agent`, and a loop on `midspan.gemini.AsyncClient`, beside the hand-written floor, interleaved: ratios of cost.

Needs the shared benchmark (../shared/bench) and its environments: `BENCH_VENVS=DIR ../shared/bench/setup.sh`.
Exits 1 where a budget is broken. With `--write` the figures also go to docs/speed.md.
"""

import importlib
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared" / "bench"
PAGE = ROOT / "docs" / "speed.md"
ROUNDS = int(os.environ.get("ROUNDS", "7"))
FLOOR = "floor:aiohttp:inc"


class Figure(NamedTuple):
    """What is measured in a scenario, and the ratio to the floor that each of ours may have."""

    field: str
    says: str
    budgets: dict[str, float]


FIGURES = {
    "loop1": Figure("cpu_ms_per_turn", "CPU of a turn, one round of tools, ms", {"agent": 1.3, "client": 1.2}),
    "loop100": Figure("cpu_ms_per_turn", "CPU of a turn, a hundred rounds of tools, ms", {"agent": 1.3, "client": 1.2}),
    "conc64": Figure("cpu_ms_per_turn", "CPU of a turn, 64 conversations at once, ms", {"agent": 1.4}),
    "stream": Figure("cpu_us_per_chunk", "CPU of a streamed chunk, µs", {"agent": 1.25, "client": 1.25}),
    "mem256": Figure("kb_per_conv", "memory of a conversation that waits, kB", {"agent": 2.0}),
    "par4": Figure("wall_ms_min", "four parallel tools of 50 ms, wall time, ms", {"agent": 1.1}),
}
OURS = ("agent", "client")
Took = dict[tuple[str, str], list[float]]


def main() -> int:
    if not SHARED.exists() or not os.environ.get("BENCH_VENVS"):
        print("the shared benchmark is not here, or BENCH_VENVS does not say where its environments are")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        took = measured(bench_in(Path(folder) / "bench"))
    table = "\n".join(["| what | floor | agent | ratio | client | ratio |", "|---|---|---|---|---|---|", *lines(took)])
    print(table)
    if "--write" in sys.argv:
        write(table)
    ratios = [(who, name, budget) for name, figure in FIGURES.items() for who, budget in figure.budgets.items()]
    print(" ".join(f"{who}.{name} {ratio(who, name, took):.2f}x ({budget})" for who, name, budget in ratios))
    return int(any(ratio(who, name, took) > budget for who, name, budget in ratios))


def bench_in(place: Path) -> Any:
    """The shared benchmark with our contestants in it."""
    shutil.copytree(SHARED, place)
    # Under its own name it would stand before the package that it imports.
    (place / "contestants" / "midspan.py").rename(place / "contestants" / "agent.py")
    shutil.copy(ROOT / "benchmarks" / "contestant.py", place / "contestants" / "client.py")
    sys.path.insert(0, str(place))
    bench: Any = importlib.import_module("bench")
    of_others = bench.venv_of
    bench.venv_of = lambda who: sys.executable if who in OURS else of_others(who)
    return bench


def measured(bench: Any) -> Took:
    server, ports = bench.start_server()
    took: Took = {}
    try:
        for _ in range(ROUNDS):
            for who in (FLOOR, *OURS):
                names = [name for name, figure in FIGURES.items() if who == FLOOR or who in figure.budgets]
                for result in bench.run(who, ",".join(names), f"http://127.0.0.1:{ports[0]}"):
                    if "error" in result:
                        sys.exit(f"{who} {result['scenario']}: {result['error'][-300:]}")
                    took.setdefault((who, result["scenario"]), []).append(result[FIGURES[result["scenario"]].field])
    finally:
        server.kill()
    return took


def ratio(who: str, name: str, took: Took) -> float:
    return statistics.median(took[who, name]) / statistics.median(took[FLOOR, name])


def lines(took: Took) -> list[str]:
    made = []
    for name, figure in FIGURES.items():
        cells = [figure.says, f"{statistics.median(took[FLOOR, name]):.3g}"]
        for who in OURS:
            known = who in figure.budgets
            cells += (
                [f"{statistics.median(took[who, name]):.3g}", f"{ratio(who, name, took):.2f}"] if known else ["", ""]
            )
        made.append(f"| {' | '.join(cells)} |")
    return made


def write(table: str) -> None:
    """Put the table between its marks."""
    begin, end = "<!-- turns -->", "<!-- end of turns -->"
    before, _, rest = PAGE.read_text("utf-8").partition(begin)
    _, _, after = rest.partition(end)
    PAGE.write_text(f"{before}{begin}\n{table}\n{end}{after}", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
