"""Closes several sources, providers or runs concurrently."""

import asyncio
from collections.abc import Awaitable, Iterable


async def close_all(closing: Iterable[Awaitable[object]]) -> None:
    """Await all `aclose()` calls, even if some fail. Then raise the first error."""
    for result in await asyncio.gather(*closing, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
