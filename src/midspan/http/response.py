"""A response on the connection that carries it."""

import asyncio
from collections.abc import Mapping

import aiohttp
from aiohttp.connector import Connection
from aiohttp.http import RawResponseMessage


class StaleConnection(Exception):
    """A connection that was kept from earlier was broken off instead of being used again."""


class PoolClosed(Exception):
    """The connections of a transport were closed before a request could have one."""


class OnlyInterim(Exception):
    """A server said so often that the answer is still to come that it will hardly come."""


class Response:
    """A response whose body is still arriving. Its end frees the connection; whoever leaves it earlier closes that."""

    __slots__ = ("_connection", "_gone", "_upload", "content", "headers", "status")

    def __init__(
        self,
        connection: Connection,
        message: RawResponseMessage,
        content: aiohttp.StreamReader,
        upload: "asyncio.Task[None] | None",
    ) -> None:
        self.status = message.code
        self.headers: Mapping[str, str] = message.headers
        self.content = content
        self._connection: Connection | None = connection
        self._upload = upload
        self._gone: asyncio.Future[None] | None = None
        content.on_eof(self._free)  # at once, if all of the body came with the head
        if self._connection is not None and connection.protocol is not None:
            self._gone = connection.protocol.closed
            if self._gone is not None:
                self._gone.add_done_callback(self._broken)

    def done(self) -> None:
        """Close what is still open; a response that was read to its end has freed its connection already."""
        if self._gone is not None:
            self._gone.remove_done_callback(self._broken)
        if self._connection is not None:
            self._close(self._connection)

    def give_up(self) -> None:
        """Wake whoever waits for the rest of the body; it takes too long."""
        self._tell_reader(TimeoutError("the rest of the body takes too long"))

    def _free(self) -> None:
        if self._connection is None:
            return
        gone, transport = self._gone, self._connection.transport
        if gone is not None and gone.done() and not gone.cancelled() and gone.exception() is not None:
            # To aiohttp the end of the connection is the end of a body without a length, however it came about.
            self.content.set_exception(aiohttp.ClientPayloadError("the connection broke"))
        unsent = transport is not None and not transport.is_closing() and transport.get_write_buffer_size() > 0
        if unsent or (self._upload is not None and not self._upload.done()):
            self._close(self._connection)  # answered before it was asked to the end: nothing else fits behind that
        else:
            self._connection.release()
            self._connection = None

    def _close(self, connection: Connection) -> None:
        self._connection = None
        self._tell_reader(aiohttp.ClientConnectionError("the response was left"))
        close(connection, self._upload)

    # aiohttp tells nobody when a body breaks the rules of HTTP, as it does where a gateway writes an error page into a
    # stream: it closes the connection and lets the reader wait.
    def _broken(self, _: "asyncio.Future[None]") -> None:
        error = aiohttp.ClientPayloadError("the body is not HTTP")
        if self._connection is not None and self._connection.protocol is not None:
            error.__cause__ = self._connection.protocol.exception()
        self._tell_reader(error)

    def _tell_reader(self, error: BaseException) -> None:
        if not self.content.is_eof() and self.content.exception() is None:
            self.content.set_exception(error)


def close(connection: Connection, upload: "asyncio.Task[None] | None") -> None:
    """Close a connection at once, with what is still being sent on it."""
    if upload is not None:
        upload.cancel()
    # An orderly end would wait until the server has read all that we sent, or has answered a TLS farewell.
    if connection.transport is not None:
        connection.transport.abort()
    connection.close()
