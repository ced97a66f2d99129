"""A small loop on `wasat.gemini.AsyncClient` beside the hand-written floor, interleaved: ratios of client CPU.

Needs the shared benchmark (../shared/bench) and its environments: `BENCH_VENVS=DIR ../shared/bench/setup.sh`.
Exits 1 where the budget is broken.
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
OURS = "client"
BUDGET = {"loop1": 1.1, "loop100": 1.1, "stream": 1.2}
ROUNDS = 9


def main() -> int:
    if not SHARED.exists() or not os.environ.get("BENCH_VENVS"):
        print("the shared benchmark is not here, or BENCH_VENVS does not say where its environments are")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "bench"
        shutil.copytree(SHARED, place)
        shutil.copy(ROOT / "benchmarks" / "contestant.py", place / "contestants" / "client.py")
        (place / "contestants" / "wasat.py").unlink()  # it would stand before the package of that name
        sys.path.insert(0, str(place))
        bench: Any = importlib.import_module("bench")
        of_others = bench.venv_of
        bench.venv_of = lambda who: sys.executable if who == OURS else of_others(who)
        return compare(bench)


def compare(bench: Any) -> int:
    server, ports = bench.start_server()
    took: dict[tuple[str, str], list[float]] = {}
    try:
        for _ in range(ROUNDS):
            for who in (FLOOR, OURS):
                for result in bench.run(who, ",".join(BUDGET), f"http://127.0.0.1:{ports[0]}"):
                    if "error" in result:
                        sys.exit(f"{who} {result['scenario']}: {result['error'][-300:]}")
                    figure = "cpu_us_per_chunk" if result["scenario"] == "stream" else "cpu_ms_per_turn"
                    took.setdefault((who, result["scenario"]), []).append(result[figure])
    finally:
        server.kill()
    ratios = {}
    for name in BUDGET:
        ours, floor = took[OURS, name], took[FLOOR, name]
        # Whatever else the machine does only adds to a time, so the least of several is nearest to the truth. The time
        # of a chunk is the difference of two times, and what disturbs one of them may also lessen it.
        typical = statistics.median if name == "stream" else min
        ratios[name] = typical(ours) / typical(floor)
        median = statistics.median(one / other for one, other in zip(ours, floor, strict=True))
        print(f"{name}: {typical(ours):.3f} beside {typical(floor):.3f}, median of rounds {median:.2f}x")
    print(" ".join(f"{name} {ratio:.2f}x ({BUDGET[name]})" for name, ratio in ratios.items()))
    return int(any(ratios[name] > budget for name, budget in BUDGET.items()))


if __name__ == "__main__":
    sys.exit(main())
