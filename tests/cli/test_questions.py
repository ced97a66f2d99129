"""Questions of tools in the terminal."""

import asyncio
import io

import pytest

from midspan._cli import questions


def test_answer_is_read_in_a_thread_if_the_event_loop_cannot_watch_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows it cannot."""

    class Stdin(io.StringIO):
        def fileno(self) -> int:
            return 0

    async def main() -> str:
        def add_reader(*_: object) -> None:
            raise NotImplementedError

        monkeypatch.setattr(asyncio.get_running_loop(), "add_reader", add_reader, raising=False)
        return await questions._read_line()

    monkeypatch.setattr("sys.stdin", Stdin("yes\n"))
    assert asyncio.run(main()) == "yes\n"
