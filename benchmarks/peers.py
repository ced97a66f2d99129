"""CPU per turn of Midspan and of other libraries, interleaved in one run, with the same tools and the same fake server.

Uses the shared benchmark (../shared/bench) and its environments, as turns.py does. PEERS_PYTHON is an interpreter that
has midspan, google-genai, pydantic-ai-slim[google], langchain and langchain-google-genai. `--write` updates the table
in docs/speed.md and in the README.
"""

import importlib
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared" / "bench"
PAGES = (ROOT / "docs" / "speed.md", ROOT / "README.md")
ROUNDS = int(os.environ.get("ROUNDS", "5"))
PEERS = {
    "midspan": ("midspan", "midspan"),
    "google-genai": ("peer_google_genai", "google-genai"),
    "pydantic-ai": ("peer_pydantic_ai", "pydantic-ai-slim"),
    "LangChain": ("peer_langchain", "langchain"),
}
"""The contestant of each library in benchmarks/contestants, and the name of its package."""
IMPORTS = {
    "midspan": "from midspan import Agent, Gemini; Agent(Gemini(api_key='x'))",
    "google-genai": "from google import genai; genai.Client(api_key='x')",
    "pydantic-ai": "from pydantic_ai import Agent; from pydantic_ai.models.google import GoogleModel",
    "LangChain": "from langchain.agents import create_agent; from langchain_google_genai import ChatGoogleGenerativeAI",
}
SCENARIOS = ("loop1", "loop50")
MEASURE_IMPORT = "import time; {}; print(time.process_time())"


def main() -> int:
    python = os.environ.get("PEERS_PYTHON")
    if not SHARED.exists() or not os.environ.get("BENCH_VENVS") or not python:
        print("the shared benchmark is missing, or BENCH_VENVS or PEERS_PYTHON is not set")
        return 2
    table = "\n".join(rows(python, measure(python)))
    print(table)
    if "--write" in sys.argv:
        for page in PAGES:
            before, rest = page.read_text("utf-8").split("<!-- peers -->\n")
            after = rest.split("<!-- end of peers -->")[1]
            page.write_text(f"{before}<!-- peers -->\n{table}\n<!-- end of peers -->{after}", "utf-8")
    return 0


def measure(python: str) -> dict[tuple[str, str], float]:
    """Run every library in turn, ROUNDS times, and return the median of each figure."""
    os.environ["BENCH_CONTESTANTS"] = str(ROOT / "benchmarks" / "contestants")
    os.environ["MIDSPAN_PYTHON"] = python
    sys.path.insert(0, str(SHARED))
    bench: Any = importlib.import_module("bench")
    server, ports = bench.start_server()
    samples: dict[tuple[str, str], list[float]] = {}
    try:
        for _ in range(ROUNDS):
            for library, (contestant, _) in PEERS.items():
                for result in bench.run(contestant, ",".join(SCENARIOS), f"http://127.0.0.1:{ports[0]}"):
                    if "error" in result:
                        sys.exit(f"{library} {result['scenario']}: {result['error'][-300:]}")
                    samples.setdefault((library, result["scenario"]), []).append(result["cpu_ms_per_turn"])
                code = MEASURE_IMPORT.format(IMPORTS[library])
                seconds = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout
                samples.setdefault((library, "import"), []).append(float(seconds) * 1000)
    finally:
        server.kill()
    return {key: statistics.median(values) for key, values in samples.items()}


def rows(python: str, value: dict[tuple[str, str], float]) -> list[str]:
    head = ["| library | CPU per turn, ms | in a long conversation, ms | import and client, ms | packages installed |"]
    return [*head, "|---|---|---|---|---|"] + [
        f"| {library} {version(python, package)} | {figure(value, library, 'loop1')} | "
        f"{figure(value, library, 'loop50')} | {figure(value, library, 'import')} | {packages(python, package)} |"
        for library, (_, package) in PEERS.items()
    ]


def figure(value: dict[tuple[str, str], float], library: str, scenario: str) -> str:
    own = value[library, scenario]
    ratio = own / value["midspan", scenario]
    number = f"{own:.0f}" if own >= 10 else f"{own:.2f}"
    times = f"{ratio:.0f}" if ratio >= 2 else f"{ratio:.1f}"
    return number if library == "midspan" else f"{number} ({times} times)"


def version(python: str, package: str) -> str:
    return _ask(python, f"from importlib.metadata import version; print(version({package!r}))")


def packages(python: str, package: str) -> str:
    """Return how many packages an installation brings, its own included."""
    code = """
import re, sys
from importlib.metadata import PackageNotFoundError, requires
extras = {"pydantic-ai-slim": ["google"], "langchain": []}
seen, open = set(), [sys.argv[1]] + (["langchain-google-genai"] if sys.argv[1] == "langchain" else [])
while open:
    name = open.pop()
    key = re.sub("[-_.]+", "-", name).lower()
    if key in seen: continue
    try: needed = requires(name) or []
    except PackageNotFoundError: continue
    seen.add(key)
    for line in needed:
        if "extra ==" not in line or any(f'"{extra}"' in line or f"'{extra}'" in line for extra in extras.get(key, [])):
            open.append(re.match("[A-Za-z0-9._-]+", line)[0])
print(len(seen))
"""
    return _ask(python, code, package)


def _ask(python: str, code: str, *arguments: str) -> str:
    ran = subprocess.run([python, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return ran.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
