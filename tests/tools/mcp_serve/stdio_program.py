"""Serves tools over stdio whose output must not reach the client."""

import asyncio
import os
import subprocess
import sys

from midspan.tools import serve_mcp


def shout(words: str) -> str:
    """Print in every way there is."""
    print("from print:", words)  # noqa: T201 - that is the test
    os.write(1, b"from the file descriptor\n")
    subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
    return words.upper()


async def wait() -> str:
    """Wait for ever."""
    await asyncio.Event().wait()
    return "never"


def leave() -> str:
    """End the program."""
    sys.exit(3)


if __name__ == "__main__":
    asyncio.run(serve_mcp([shout, wait, leave]))
