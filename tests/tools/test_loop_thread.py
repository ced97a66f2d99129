"""Event loops in threads of their own."""

from midspan.tools.loop_thread import LoopThread


def test_a_loop_thread_can_be_closed_twice() -> None:
    thread = LoopThread("test")
    loop = thread.loop()
    thread.close()
    thread.close()
    assert loop.is_closed()
