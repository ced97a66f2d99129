"""Bounds on work that do not depend on the speed of the machine."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

MAX_CALLS = 2_000_000


@contextmanager
def bounded_work(limit: int = MAX_CALLS) -> Iterator[None]:
    """Fail as soon as the block has called more than `limit` Python functions."""
    calls = 0

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event == "call"
        if calls > limit:
            sys.setprofile(None)
            raise AssertionError(f"more than {limit:,} function calls")

    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(None)
