"""A few hundred runs under random faults; `make chaos` has ten thousand."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "chaos.py"


def test_however_the_server_fails_a_run_ends_well_or_in_a_typed_error() -> None:
    command = [sys.executable, str(SCRIPT), "--runs", "300", "--first", "100000"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    counts = dict(word.split("=") for word in ran.stdout.splitlines()[-1].split())
    assert (counts["runs"], counts["failures"], counts["left"]) == ("300", "0", "0")
    assert int(counts["right"]) > 200
