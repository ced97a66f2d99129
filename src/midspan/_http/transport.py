"""The HTTP/1.1 transport, with the methods send and stream. Providers reach their services through it.

They know what they ask and what a response means. Below are the connection pools, which are
loaded with the first request. The transport knows nothing about models, follows no redirects and does not interpret
the status of a response. A request without a complete response raises an error.
"""

import asyncio
import os
import weakref
from collections.abc import AsyncGenerator, Awaitable
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from midspan._http.messages import HttpRequest, HttpResponse, Timeouts, find_header
from midspan.errors import ConfigError

if TYPE_CHECKING:
    from midspan._http.pool import Pool
    from midspan._http.protocol import HttpProtocol

__all__ = ["HttpRequest", "HttpResponse", "HttpStream", "Timeouts", "Transport"]


class Transport:
    """Sends requests from any thread and any event loop. Connections are kept per loop and closed with it.

    `max_connections` limits the concurrent requests of one loop; requests beyond it wait, which counts towards no
    timeout. `max_body_bytes` limits the decompressed size of a response body, streamed or not, so that no server can
    fill the memory.
    """

    def __init__(
        self, timeouts: Timeouts | None = None, *, max_connections: int | None = None, max_body_bytes: int = 256 * 2**20
    ) -> None:
        if max_connections is not None and max_connections < 1:
            raise ConfigError(f"max_connections must be at least 1, got {max_connections!r}")
        self._timeouts = timeouts or Timeouts()
        self._max_connections = max_connections
        self._max_body_bytes = max_body_bytes
        self._pools: _Pools = {}
        weakref.finalize(self, _drop_all, self._pools)

    async def send(self, request: HttpRequest, timeouts: Timeouts | None = None) -> HttpResponse:
        """Send a request and return the response with its whole body."""
        # A coroutine, because its frame keeps the transport, and with it the pool, until the response has arrived.
        _, response = await self.pool().send(request, timeouts or self._timeouts, whole=True)
        return response

    def stream(self, request: HttpRequest, timeouts: Timeouts | None = None) -> "HttpStream":
        """Send a request and read the response as it arrives, in an `async with` block.

        Leaving the block before the end of the body closes the connection.
        """
        return HttpStream(self, request, timeouts or self._timeouts)

    async def aclose(self) -> None:
        """Close the connections of the running event loop. Later requests open new ones."""
        pool = self._pools.get(asyncio.get_running_loop())
        if pool is not None:
            await pool.closer.aclose()

    def pool(self) -> "Pool":
        """Return the pool of the running event loop, which is created if necessary."""
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            from midspan._http.pool import Pool

            for other in tuple(self._pools):
                if other.is_closed():
                    self._pools.pop(other, None)
            pool = self._pools[loop] = Pool(self._max_connections, self._max_body_bytes)
            pool.closer = _close_with_loop(self._pools, loop)
            _run_without_waiting(anext(pool.closer))
        return pool

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class HttpStream:
    """A response whose body is still arriving: iterate over its pieces, or `read` everything that is left."""

    status: int
    head: bytes
    connection: "HttpProtocol"

    def __init__(self, transport: Transport, request: HttpRequest, timeouts: Timeouts) -> None:
        self._transport = transport
        self._request = request
        self._timeouts = timeouts

    def header(self, name: str) -> str | None:
        """Look up a response header, ignoring case."""
        return find_header(self.head, name)

    async def __aenter__(self) -> Self:
        self._pool = self._transport.pool()
        self.connection, response = await self._pool.send(self._request, self._timeouts, whole=False)
        self.status, self.head = response.status, response.head
        return self

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Awaitable[bytes]:
        return self.connection.__anext__()

    async def read(self) -> bytes:
        """Return the rest of the body."""
        return b"".join([piece async for piece in self])

    async def __aexit__(self, *_: object) -> None:
        self._pool.release(self.connection)
        del self.connection  # its next response belongs to another request


# A Transport may be used from many event loops, and nobody has to close it:
#
# - `asyncio.run` closes the asynchronous generators of its loop, so each pool is held by a generator that closes it;
# - when a Transport is garbage-collected or the program exits, it closes the pools it still has;
# - nothing can be closed through a loop that was closed without either. Its pool is forgotten when the next one is
#   created, and Python closes the sockets when it frees them, with a ResourceWarning.

_Pools = dict[asyncio.AbstractEventLoop, "Pool"]


async def _close_with_loop(pools: _Pools, loop: asyncio.AbstractEventLoop) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        if (pool := pools.pop(loop, None)) is not None:
            await pool.close()


def _drop_all(pools: _Pools) -> None:
    while pools:
        loop, pool = pools.popitem()
        # A forked child must not touch the sockets and the selector of its parent.
        if loop.is_closed() or pool.process != os.getpid():
            continue
        if loop.is_running():  # perhaps in another thread
            with suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(_drop, pool)
        else:
            _drop(pool)


def _drop(pool: "Pool") -> None:
    pool.drop()
    _run_without_waiting(pool.closer.aclose())  # otherwise its finalizer would need the loop


def _run_without_waiting(awaitable: Awaitable[None]) -> None:
    """Run an awaitable that has nothing to wait for."""
    with suppress(StopIteration):
        awaitable.__await__().send(None)
