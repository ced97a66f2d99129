"""Imported first by each script: where this Python has no midspan, the script starts again with the project's own.

So `python scripts/replay_traffic.py FILE` works with any Python once `make` has made `.venv`. What the scripts print
may come from recordings, so characters that cannot be printed are escaped.
"""

import importlib.util
import io
import os
import sys
from pathlib import Path

_OWN = Path(__file__).parent.parent / ".venv" / "bin" / "python"

if importlib.util.find_spec("midspan") is None:
    if not _OWN.exists() or os.environ.get("MIDSPAN_SCRIPT_RESTARTED"):
        sys.exit("midspan is not installed for this Python; run «make test» once, which makes .venv")
    os.environ["MIDSPAN_SCRIPT_RESTARTED"] = "1"
    os.execv(_OWN, [str(_OWN), *sys.argv])  # noqa: S606 - the same script, with our own interpreter

if isinstance(sys.stdout, io.TextIOWrapper):
    sys.stdout.reconfigure(errors="backslashreplace")
