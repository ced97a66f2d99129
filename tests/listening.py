"""A server on loopback for tests that write the bytes of a connection themselves. It leaves no connection open."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(handle: Handler, **options: Any) -> AsyncGenerator[int, None]:
    """Answer connections to the port that is yielded; `options` are those of `asyncio.start_server`."""
    connections: dict[asyncio.Future[None], asyncio.StreamWriter] = {}

    # A plain function: asyncio would log the end of a task that it started itself.
    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(handle(reader, writer))
        connections[task] = writer  # to the end: after its task, a connection may still have data to send

    server = await asyncio.start_server(accept, "127.0.0.1", 0, **options)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        # Python 3.11 never closes a connection that it accepted just before `Server.close`.
        for listener in server.sockets:
            asyncio.get_running_loop().remove_reader(listener)
        for _ in range(2):  # steps of the event loop, in which accepted connections are made
            await asyncio.sleep(0)
        server.close()
        for task, writer in tuple(connections.items()):
            task.cancel()
            writer.transport.abort()  # a task that has not started yet closes nothing
        await asyncio.gather(*connections, return_exceptions=True)
