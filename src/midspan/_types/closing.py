"""Close several things at once."""

import asyncio
from collections.abc import Awaitable, Iterable


async def close_all(closing: Iterable[Awaitable[object]]) -> None:
    """Wait for all of them, also if some fail. Then raise the first error."""
    for result in await asyncio.gather(*closing, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
