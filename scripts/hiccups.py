"""Run a command that is stopped for a moment again and again, as on a machine that is busy with other things.

A test that fails under it depends on the speed of the machine: `python scripts/hiccups.py python -m pytest`.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence


def run(command: Sequence[str], *, every: float, pause: float, chance: random.Random) -> int:
    """The command's exit code; `every` and `pause` are the seconds that it goes on and stands still on the average."""
    process = subprocess.Popen(command, start_new_session=True)  # noqa: S603 - the caller's own command
    try:
        while process.poll() is None:
            time.sleep(chance.uniform(0, 2 * every))
            if process.poll() is None:  # else its number may be somebody else's
                os.killpg(process.pid, signal.SIGSTOP)
                time.sleep(chance.uniform(0, 2 * pause))
                os.killpg(process.pid, signal.SIGCONT)
    except KeyboardInterrupt:
        os.killpg(process.pid, signal.SIGCONT)
        os.killpg(process.pid, signal.SIGINT)
    return process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=float, default=0.5, help="seconds between two stops, on the average")
    parser.add_argument("--pause", type=float, default=0.4, help="seconds that a stop lasts, on the average")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    if not given.command or min(given.every, given.pause) <= 0:
        parser.error("give a command, and seconds above 0")
    print(f"hiccups: --every {given.every:g} --pause {given.pause:g} --seed {given.seed}", file=sys.stderr, flush=True)
    chance = random.Random(given.seed)  # noqa: S311 - protects nothing
    return run(given.command, every=given.every, pause=given.pause, chance=chance)


if __name__ == "__main__":
    sys.exit(main())
