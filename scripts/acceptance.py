"""Run the long suites, two at a time: python scripts/acceptance.py [NAME…]

Prints one line for each suite: its name, its duration and its last line of output. The output of a suite that fails is
printed in full. A suite that needs npm packages or the recordings in ../shared/data is skipped where these are missing,
with a line that says so; in CI (the variable CI is set) that is a failure. Exits 1 if a suite fails.
"""

import project_python  # noqa: F401 - imported first: it restarts the script with the Python of .venv if necessary

# isort: split
import os
import subprocess
import sys
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
DATA = ROOT.parent / "shared" / "data"
MAX_SECONDS = 1_800.0


class Suite(NamedTuple):
    name: str
    arguments: list[str]
    """Of Python; paths are relative to the project."""
    files: tuple[str, ...] = ()
    """Files of ../shared/data that are appended to the arguments."""
    npm_packages: tuple[str, ...] = ()
    """Packages that must be in the folder MIDSPAN_NODE_MODULES."""


SUITES = (  # the longest first
    Suite("score_prompted", ["scripts/score_prompted.py"], ("bfcl.jsonl",)),
    Suite(
        "tests",
        ["-m", "pytest", "--quiet", "-m", "acceptance or hypothesis", "--hypothesis-profile=acceptance"],
    ),
    Suite("chaos", ["scripts/chaos.py", "--runs", "3000"]),
    Suite("fuzz_http", ["-X", "dev", "scripts/fuzz_http.py", "--responses", "5000"]),
    Suite(
        "replay_schemas",
        ["scripts/replay_schemas.py"],
        ("tool_schemas.jsonl", "bfcl.jsonl", "json_schema_suite.jsonl"),
    ),
    Suite("replay_traffic", ["scripts/replay_traffic.py"], ("gemini_traffic.jsonl", "provider_traffic.jsonl")),
    Suite("score_offline", ["scripts/score_offline.py"], ("bfcl.jsonl",)),
    Suite("replay_loops", ["scripts/replay_loops.py"], ("gemini_traffic.jsonl",)),
    Suite("replay_requests", ["scripts/replay_requests.py"], ("gemini_traffic.jsonl",)),
    Suite("soak", ["benchmarks/soak.py", "20000"]),
    Suite("node_client", ["-m", "pytest", "--quiet", "tests/emulator/test_node_client.py"], (), ("@google/genai",)),
    Suite(
        "mcp_servers",
        ["scripts/mcp_servers.py"],
        (),
        tuple(f"@modelcontextprotocol/server-{name}" for name in ("everything", "filesystem", "memory")),
    ),
    Suite("conformance_mcp", ["scripts/conformance_mcp.py"], (), ("@modelcontextprotocol/conformance", "node")),
)


def main() -> int:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(suite.name for suite in SUITES)}")
    names = parser.parse_args().names
    if unknown := set(names) - {suite.name for suite in SUITES}:
        parser.error(f"unknown suites: {', '.join(sorted(unknown))}")
    with ThreadPoolExecutor(2) as pool:
        return 0 if all(list(pool.map(run, [suite for suite in SUITES if suite.name in names or not names]))) else 1


def run(suite: Suite) -> bool:
    """Run a suite, print a line about it, and return whether it passed or may be skipped."""
    if missing := [name for name in suite.files if not (DATA / name).is_file()]:
        return skip(suite, f"there is no {', '.join(missing)} in ../shared/data")
    modules = os.environ.get("MIDSPAN_NODE_MODULES")
    if missing := [name for name in suite.npm_packages if not modules or not Path(modules, name).is_dir()]:
        return skip(suite, f"it needs MIDSPAN_NODE_MODULES, a folder with the npm packages {', '.join(missing)}")
    start = time.monotonic()
    command = [sys.executable, *suite.arguments, *(str(DATA / name) for name in suite.files)]
    try:
        ended = subprocess.run(  # noqa: S603 - our own command
            command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=MAX_SECONDS
        )
    except subprocess.TimeoutExpired:
        print(f"FAILED  {suite.name}: not finished after {MAX_SECONDS:.0f} s", flush=True)
        return False
    seconds = time.monotonic() - start
    if ended.returncode != 0:
        print(f"{ended.stdout}{ended.stderr}FAILED  {suite.name} ({seconds:.0f} s), exit code {ended.returncode}")
        return False
    last_line = (ended.stdout.strip().splitlines() or [""])[-1]
    print(f"passed  {suite.name} ({seconds:.0f} s): {last_line}", flush=True)
    return True


def skip(suite: Suite, reason: str) -> bool:
    print(f"skipped {suite.name}: {reason}", flush=True)
    return not os.environ.get("CI")


if __name__ == "__main__":
    sys.exit(main())
