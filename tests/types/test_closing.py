"""Closing several things at once."""

import asyncio

import pytest

from midspan._types.closing import close_all


def test_everything_is_closed_and_then_the_first_error_is_raised() -> None:
    closed: list[str] = []

    async def close(name: str, error: Exception | None = None) -> None:
        await asyncio.sleep(0)
        closed.append(name)
        if error is not None:
            raise error

    async def main() -> None:
        await close_all([close("a", OSError("first")), close("b"), close("c", ValueError("second"))])

    with pytest.raises(OSError, match="first"):
        asyncio.run(main())
    assert closed == ["a", "b", "c"]
