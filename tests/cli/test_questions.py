"""Questions of tools in the terminal."""

import os
import subprocess
import sys

from tests.bounds import BOUND
from tests.cli.terminal import open_pty, read_to_end

WITHOUT_READERS = """
import asyncio
from midspan._cli.questions import Terminal

class LoopWithoutReaders(asyncio.SelectorEventLoop):
    def add_reader(self, *_):  # as that of Windows
        raise NotImplementedError

async def main():
    print(await Terminal().on_question("Delete it?", {"type": "boolean"}))

with asyncio.Runner(loop_factory=LoopWithoutReaders) as runner:
    runner.run(main())
"""


def test_answer_is_read_in_a_thread_if_the_event_loop_cannot_watch_stdin() -> None:
    controller, device = open_pty()
    os.write(controller, b"yes\n")
    command = [sys.executable, "-c", WITHOUT_READERS]
    ran = subprocess.run(command, stdin=device, stdout=subprocess.PIPE, stderr=device, timeout=BOUND, check=False)
    os.close(device)
    assert "Delete it?" in read_to_end(controller)
    assert ran.stdout == b"True\n"


ASKING = """
import asyncio
from midspan._cli.questions import Terminal

properties = {"seats": {"type": "integer", "maximum": 8}, "vegan": {"type": "boolean"}}
schema = {"properties": properties, "required": ["seats"]}
print(asyncio.run(Terminal().on_question("What shall be booked?", schema)))
"""


def test_answer_that_is_not_valid_is_asked_for_again_with_the_reason() -> None:
    controller, device = open_pty()
    os.write(controller, b"\nmany\n9\n4\nmaybe\n\n")
    command = [sys.executable, "-c", ASKING]
    ran = subprocess.run(command, stdin=device, stdout=subprocess.PIPE, stderr=device, timeout=BOUND, check=False)
    os.close(device)
    shown = [line.removeprefix("seats> ") for line in read_to_end(controller).splitlines() if line.startswith("seats>")]
    assert ran.stdout == b"{'seats': 4}\n"
    assert shown[:3] == ["a value is required", 'expected integer, got string "many"', "expected at most 8, got 9"]
