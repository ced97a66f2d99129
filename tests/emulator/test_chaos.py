"""Some hundred runs of scripts/chaos.py; `make chaos` runs ten thousand."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "chaos.py"


def test_runs_under_random_faults_end_with_an_answer_or_a_midspan_error() -> None:
    command = [sys.executable, str(SCRIPT), "--runs", "300", "--first", "100000"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    counts = dict(word.split("=") for word in ran.stdout.splitlines()[-1].split())
    assert (counts["runs"], counts["failures"], counts["left"]) == ("300", "0", "0")
    assert int(counts["right"]) > 200
