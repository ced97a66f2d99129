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
