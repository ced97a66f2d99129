"""Run the official conformance suite of MCP against our server and our client: python scripts/conformance_mcp.py

The fixtures are in tests/conformance/mcp. The suite is the npm package @modelcontextprotocol/conformance, which needs
Node 22: MIDSPAN_NODE_MODULES is the folder of these two packages; `make conformance` installs them. The scenarios are
those that each revision of the protocol requires. Exits 1 if one of them fails.
"""

import project_python  # noqa: F401 - imported first: it restarts the script with the Python of .venv if necessary

# isort: split
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
FIXTURES = ROOT / "tests" / "conformance" / "mcp"
REVISIONS = ("2026-07-28", "2025-11-25")
TIMEOUT_SECONDS = 120
"""Of one scenario; they take one to three seconds each on an idle machine."""


class Suite(NamedTuple):
    """The npm package, and the Node that runs it."""

    node: Path
    package: Path

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.node), str(self.package / "dist" / "index.js"), *arguments]
        return subprocess.run(  # noqa: S603 - the command is ours
            command, check=False, capture_output=True, text=True, timeout=60 * TIMEOUT_SECONDS
        )

    def scenarios(self, revision: str, leg: str) -> list[str]:
        """Return the scenarios that a revision of the protocol requires of servers or of clients."""
        text = (self.package / "requirements" / f"{revision}.yaml").read_text("utf-8")
        sections = re.findall(r"^(\w+):\n((?:(?: .*)?\n)+)", text, re.MULTILINE)
        return re.findall(r"- (\S+)", dict(sections)[leg])


def find_suite() -> Suite:
    modules = Path(os.environ.get("MIDSPAN_NODE_MODULES", ""))
    suite = Suite(modules / "node" / "bin" / "node", modules / "@modelcontextprotocol" / "conformance")
    if not suite.node.is_file() or not suite.package.is_dir():
        sys.exit("MIDSPAN_NODE_MODULES has no node and @modelcontextprotocol/conformance; run make conformance")
    return suite


def check_server(suite: Suite, url: str, revision: str) -> bool:
    ended = suite.run("server", "--url", url, "--requirements", revision)
    passed = set(re.findall(r"^✓ (\S+): ", ended.stdout, re.MULTILINE))
    return report("server", revision, {name: name in passed for name in suite.scenarios(revision, "server")})


def check_client(suite: Suite, revision: str) -> bool:
    command = f"{sys.executable} {FIXTURES / 'client.py'}"
    options = ["--command", command, "--timeout", str(TIMEOUT_SECONDS * 1000), "--spec-version", revision]

    def passes(scenario: str) -> bool:
        return suite.run("client", "--scenario", scenario, *options).returncode == 0

    scenarios = suite.scenarios(revision, "client")
    with ThreadPoolExecutor(2) as pool:  # the suite itself would start all clients at once
        return report("client", revision, dict(zip(scenarios, pool.map(passes, scenarios), strict=True)))


def report(leg: str, revision: str, results: dict[str, bool]) -> bool:
    failed = [name for name, has_passed in results.items() if not has_passed]
    print(f"{leg}, {revision}: {len(results) - len(failed)} of {len(results)} scenarios pass", *failed, flush=True)
    return bool(results) and not failed


def main() -> int:
    suite = find_suite()
    command = [sys.executable, str(FIXTURES / "server.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603 - as above
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            results = [check_server(suite, url, revision) for revision in REVISIONS]
        finally:
            server.terminate()
    results += [check_client(suite, revision) for revision in REVISIONS]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
