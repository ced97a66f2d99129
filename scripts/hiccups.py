"""Run a command and pause it again and again, as on a busy machine: python scripts/hiccups.py python -m pytest

A test that fails only under this script depends on the speed of the machine.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence


def run(command: Sequence[str], *, every: float, pause: float, rng: random.Random) -> int:
    """Return the exit code of the command. `every` and `pause` are average seconds between and during the pauses."""
    process = subprocess.Popen(command, start_new_session=True)  # noqa: S603 - the command of the user
    try:
        while process.poll() is None:
            time.sleep(rng.uniform(0, 2 * every))
            if process.poll() is None:  # otherwise its id may belong to another process
                os.killpg(process.pid, signal.SIGSTOP)
                time.sleep(rng.uniform(0, 2 * pause))
                os.killpg(process.pid, signal.SIGCONT)
    except KeyboardInterrupt:
        os.killpg(process.pid, signal.SIGCONT)
        os.killpg(process.pid, signal.SIGINT)
    return process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=float, default=0.5, help="average seconds between two pauses")
    parser.add_argument("--pause", type=float, default=0.4, help="average seconds of a pause")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not options.command or min(options.every, options.pause) <= 0:
        parser.error("pass a command, and positive numbers of seconds")
    print(
        f"hiccups: --every {options.every:g} --pause {options.pause:g} --seed {options.seed}",
        file=sys.stderr,
        flush=True,
    )
    rng = random.Random(options.seed)  # noqa: S311 - not for security
    return run(options.command, every=options.every, pause=options.pause, rng=rng)


if __name__ == "__main__":
    sys.exit(main())
