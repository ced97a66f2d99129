"""Some hundreds of malformed responses; `make fuzz` has 5,000."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "fuzz_http.py"


def test_every_malformed_response_ends_in_a_typed_error_or_a_response_and_leaves_nothing_open() -> None:
    command = [sys.executable, "-X", "dev", str(SCRIPT), "--responses", "500", "--seed", "100000"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[-1] == "responses=500 failures=0"
    assert "ResourceWarning" not in ran.stderr, ran.stderr
