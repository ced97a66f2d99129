"""aiohttp's response, where some of its habits are not good enough for us."""

import asyncio
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakSet

import aiohttp
from aiohttp.client_proto import ResponseHandler

from wasat.http.watch import Wait

if TYPE_CHECKING:
    from aiohttp.connector import Connection


class StaleConnection(Exception):
    """A connection that was kept from earlier was broken off instead of being used again."""


class Response(aiohttp.ClientResponse):
    """A response that knows whether its connection is new, when the request was sent, and that closes at once.

    A pool gives the collections.
    """

    protocols: WeakSet[ResponseHandler]
    """The connections that carried a request before."""
    opening: "dict[asyncio.Task[Any] | None, Wait]"
    """The waits of the tasks that wait for a response to begin."""
    resending: "set[asyncio.Task[Any] | None]"
    """Those of them that try again, on a connection of which nothing is kept."""
    _gone: "asyncio.Future[None] | None" = None

    async def start(self, connection: "Connection") -> Self:
        protocol = connection.protocol
        assert protocol is not None, "a response is started on an open connection"
        kept = protocol in self.protocols
        if not kept:
            self._meet(protocol)
        task = asyncio.current_task()
        self.opening[task].begin("first_byte")
        if task in self.resending:
            protocol.force_close()
        try:
            await super().start(connection)
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
            if kept and not _had_begun(error):
                raise StaleConnection from error
            raise
        if self.connection is not None and protocol.closed is not None:
            self._gone = protocol.closed
            self._gone.add_done_callback(self._tell_reader)
        return self

    def close(self) -> None:
        # An orderly end would wait until the server has read all that we sent, or has answered a TLS farewell.
        if self.connection is not None and self.connection.transport is not None:
            self.connection.transport.abort()
        super().close()

    def done(self) -> None:
        """Close what is still open; a response that was read to its end has freed its connection already."""
        if self._gone is not None:
            self._gone.remove_done_callback(self._tell_reader)
        if self.connection is not None:
            self.close()

    def _meet(self, protocol: ResponseHandler) -> None:
        self.protocols.add(protocol)
        if protocol.closed is not None:
            protocol.closed.add_done_callback(_take_note)

    # aiohttp tells nobody when a body breaks the rules of HTTP, as it does where a gateway writes an error page into a
    # stream: it closes the connection and lets the reader wait.
    def _tell_reader(self, _: "asyncio.Future[None]") -> None:
        if not self.content.is_eof() and self.content.exception() is None:
            self.content.set_exception(aiohttp.ClientPayloadError("the body is not HTTP"))

    # aiohttp's own shows the whole address, where a key may be in the query.
    def __repr__(self) -> str:
        return f"<Response {self.status}>"


def _had_begun(error: aiohttp.ClientError) -> bool:
    """Whether a part of the head had come; of a connection that was reset, aiohttp does not tell."""
    return isinstance(error, aiohttp.ServerDisconnectedError) and not isinstance(error.message, str)


def _take_note(gone: "asyncio.Future[None]") -> None:
    """Whoever asks for this future has to look at it, or asyncio logs that nobody did."""
    if not gone.cancelled():
        gone.exception()
