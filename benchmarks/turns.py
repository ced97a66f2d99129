"""An `Agent` beside the hand-written floor, interleaved: ratios of client CPU, memory and wall time.

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
from typing import Any

ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared" / "bench"
FLOOR = "floor:aiohttp:inc"
OURS = "agent"
FIGURES = {
    "loop1": ("cpu_ms_per_turn", "CPU of a turn, one round of tools, ms", 1.3),
    "loop100": ("cpu_ms_per_turn", "CPU of a turn, a hundred rounds of tools, ms", 1.3),
    "conc64": ("cpu_ms_per_turn", "CPU of a turn, 64 conversations at once, ms", 1.4),
    "stream": ("cpu_us_per_chunk", "CPU of a streamed chunk, µs", 1.25),
    "mem256": ("kb_per_conv", "memory of a conversation that waits, kB", 2.0),
    "par4": ("wall_ms_min", "four parallel tools of 50 ms, wall time, ms", 1.1),
}
ROUNDS = int(os.environ.get("ROUNDS", "7"))


def main() -> int:
    if not SHARED.exists() or not os.environ.get("BENCH_VENVS"):
        print("the shared benchmark is not here, or BENCH_VENVS does not say where its environments are")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "bench"
        shutil.copytree(SHARED, place)
        # Under its own name it would stand before the package that it imports.
        (place / "contestants" / "wasat.py").rename(place / "contestants" / f"{OURS}.py")
        sys.path.insert(0, str(place))
        bench: Any = importlib.import_module("bench")
        of_others = bench.venv_of
        bench.venv_of = lambda who: sys.executable if who == OURS else of_others(who)
        took = measured(bench)
    lines = [
        "| what | floor | Wasat | ratio | budget |",
        "|---|---|---|---|---|",
        *(line(name, took) for name in FIGURES),
    ]
    print("\n".join(lines))
    if "--write" in sys.argv:
        write("\n".join(lines))
    broken = [name for name in FIGURES if ratio(name, took) > FIGURES[name][2]]
    print(" ".join(f"{name} {ratio(name, took):.2f}x ({FIGURES[name][2]})" for name in FIGURES))
    return 1 if broken else 0


def measured(bench: Any) -> dict[tuple[str, str], list[float]]:
    server, ports = bench.start_server()
    took: dict[tuple[str, str], list[float]] = {}
    try:
        for _ in range(ROUNDS):
            for who in (FLOOR, OURS):
                for result in bench.run(who, ",".join(FIGURES), f"http://127.0.0.1:{ports[0]}"):
                    if "error" in result:
                        sys.exit(f"{who} {result['scenario']}: {result['error'][-300:]}")
                    took.setdefault((who, result["scenario"]), []).append(result[FIGURES[result["scenario"]][0]])
    finally:
        server.kill()
    return took


def ratio(name: str, took: dict[tuple[str, str], list[float]]) -> float:
    return statistics.median(took[OURS, name]) / statistics.median(took[FLOOR, name])


def line(name: str, took: dict[tuple[str, str], list[float]]) -> str:
    floor, ours = (statistics.median(took[who, name]) for who in (FLOOR, OURS))
    return f"| {FIGURES[name][1]} | {floor:.3g} | {ours:.3g} | {ratio(name, took):.2f} | {FIGURES[name][2]} |"


def write(table: str) -> None:
    """Put the table between its marks."""
    page = ROOT / "docs" / "speed.md"
    begin, end = "<!-- turns -->", "<!-- end of turns -->"
    before, _, rest = page.read_text("utf-8").partition(begin)
    _, _, after = rest.partition(end)
    page.write_text(f"{before}{begin}\n{table}\n{end}{after}", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
