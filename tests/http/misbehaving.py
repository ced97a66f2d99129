"""A real server on loopback that does whatever a test wants to survive.

A behaviour is called for each request, once that is read, and says what happens next. What a server may do before it
reads is a behaviour of the connection.
"""

import asyncio
import gzip
import socket
import ssl
import struct
import zlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from tests.bounds import BOUND
from tests.listening import listening


class Exchange:
    """One request, and the connection that it came on."""

    def __init__(self, server: "Server", reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.server, self._reader, self._writer = server, reader, writer
        self.head, self.body, self.number = b"", b"", 0

    async def read(self) -> bool:
        """The next request; False at the end of the connection."""
        try:
            self.head = await self._reader.readuntil(b"\r\n\r\n")
            length = self.head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            self.body = await self._reader.readexactly(int(length or 0))
        except (asyncio.IncompleteReadError, ConnectionError):
            return False
        self.number += 1
        self.server.requests.append(self)
        return True

    @property
    def alpn_protocol(self) -> str | None:
        """The protocol that the TLS handshake selected."""
        protocol: str | None = self._writer.get_extra_info("ssl_object").selected_alpn_protocol()
        return protocol

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def until_gone(self) -> int:
        """Say nothing until the other side has closed; how many bytes came until then."""
        received = 0
        try:
            while piece := await self._reader.read(2**16):
                received += len(piece)
        except ConnectionError:
            pass
        return received

    def reset(self) -> None:
        """Break the connection without a farewell."""
        made: socket.socket = self._writer.get_extra_info("socket")
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    def close(self) -> None:
        self._writer.close()


Behaviour = Callable[[Exchange], Awaitable[None]]


class Server:
    """Misbehaves on a port of its own for as long as it is entered; `open` counts the connections."""

    def __init__(
        self, behaviour: Behaviour, *, on_connection: Behaviour | None = None, context: ssl.SSLContext | None = None
    ) -> None:
        self._behaviour, self._on_connection, self._context = behaviour, on_connection, context
        self.accepted, self.received, self.requests = 0, 0, list[Exchange]()
        self.open = 0
        self._changed = asyncio.Condition()
        self.go_on = asyncio.Event()
        """What some behaviours wait for, so that a test decides when they strike."""

    @property
    def url(self) -> str:
        scheme = "http" if self._context is None else "https"
        return f"{scheme}://127.0.0.1:{self.port}/v1/models/m:generateContent"

    async def __aenter__(self) -> Self:
        self._listening = listening(self._accept, ssl=self._context, backlog=2048, limit=2**20)
        self.port = await self._listening.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._listening.__aexit__(kind, error, trace)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait for something that the next connection, request or farewell may bring about."""
        async with asyncio.timeout(BOUND), self._changed:
            await self._changed.wait_for(is_so)

    async def until_all_gone(self) -> None:
        await self.until(lambda: not self.open)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Awaitable[None]:
        self.accepted += 1
        self.open += 1
        return self._serve(Exchange(self, reader, writer))

    async def _serve(self, exchange: Exchange) -> None:
        await self._tell()
        try:
            if self._on_connection is not None:
                await self._on_connection(exchange)
            while await exchange.read():
                await self._tell()
                await self._behaviour(exchange)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            exchange._writer.transport.abort() if exchange._writer.is_closing() else exchange.close()
            self.open -= 1
            await self._tell()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def response(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def answer(exchange: Exchange) -> None:
    await exchange.send(response(b'{"ok": true}'))


async def echo(exchange: Exchange) -> None:
    await exchange.send(response(exchange.body))


async def answer_compressed(exchange: Exchange) -> None:
    await exchange.send(response(gzip.compress(b"the same text " * 1000), "200 OK", "Content-Encoding: gzip"))


async def answer_without_length(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end")
    exchange.close()


async def redirect(exchange: Exchange) -> None:
    await exchange.send(response(b"elsewhere", "307 Temporary Redirect", "Location: http://127.0.0.1:9/"))


async def reset_before_head(exchange: Exchange) -> None:
    exchange.reset()


async def close_before_head(exchange: Exchange) -> None:
    exchange.close()


async def close_within_head(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Le")
    exchange.close()


async def reset_in_body(exchange: Exchange) -> None:
    await exchange.send(CHUNKED_HEAD + chunk(b"data: 1\r\n\r\n"))
    await exchange.server.go_on.wait()
    exchange.reset()


async def close_within_chunk(exchange: Exchange) -> None:
    await exchange.send(CHUNKED_HEAD + chunk(b"data: 1\r\n\r\n") + b"40\r\ndata: \xc3")
    exchange.close()


async def close_between_chunks(exchange: Exchange) -> None:
    await exchange.send(CHUNKED_HEAD + chunk(b"data: 1\r\n\r\n"))
    exchange.close()


async def promise_more_than_sent(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nfar less")
    exchange.close()


async def bad_chunk_size(exchange: Exchange) -> None:
    await exchange.send(CHUNKED_HEAD + chunk(b"data: 1\r\n\r\n"))
    await exchange.server.go_on.wait()
    await exchange.send(b"zz\r\nwhat\r\n")
    await exchange.until_gone()


async def bad_compression(exchange: Exchange) -> None:
    await exchange.send(response(b"this is no gzip at all", "200 OK", "Content-Encoding: gzip"))


async def garbage(exchange: Exchange) -> None:
    await exchange.send(b"\x16\x03\x01\x00 SSH-2.0-OpenSSH hello\r\n\r\n")
    await exchange.until_gone()


async def huge_head(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nX-Much: " + b"a" * 2**20 + b"\r\nContent-Length: 0\r\n\r\n")


async def endless_head(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\n")
    while True:
        await exchange.send(b"X-More: and more\r\n" * 1000)


async def only_interim(exchange: Exchange) -> None:
    """Says without an end that it is at it."""
    while True:
        await exchange.send(b"HTTP/1.1 100 Continue\r\n\r\n")


async def drip_interim(exchange: Exchange) -> None:
    while True:
        await exchange.send(b"HTTP/1.1 102 Processing\r\n\r\n")
        await asyncio.sleep(0.005)


async def stall_before_head(exchange: Exchange) -> None:
    await exchange.until_gone()


async def stall_within_head(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nContent-")
    await exchange.until_gone()


async def stall_in_body(exchange: Exchange) -> None:
    await exchange.send(CHUNKED_HEAD + chunk(b"data: 1\r\n\r\n"))
    await exchange.until_gone()


async def never_read(exchange: Exchange) -> None:
    """Of the connection: take it, and read nothing that comes on it, until all is over."""
    exchange._writer.transport.pause_reading()  # type: ignore[attr-defined]
    await exchange.server.go_on.wait()
    exchange._writer.transport.resume_reading()  # type: ignore[attr-defined]
    exchange.server.received = await exchange.until_gone()


async def drip(exchange: Exchange) -> None:
    await exchange.send(CHUNKED_HEAD)
    while True:
        await exchange.send(chunk(b"."))
        await asyncio.sleep(0.005)


async def gzip_bomb(exchange: Exchange) -> None:
    """64 MiB that weigh 64 KiB, all of them in one chunk."""
    await exchange.send(CHUNKED_HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n"))
    packer = zlib.compressobj(wbits=31)
    packed = b"".join([packer.compress(bytes(2**20)) for _ in range(64)]) + packer.flush()
    await exchange.send(chunk(packed) + b"0\r\n\r\n")
    await exchange.until_gone()


def endless(begin: bytes) -> Behaviour:
    """An answer that begins so and never ends."""

    async def behaviour(exchange: Exchange) -> None:
        await exchange.send(CHUNKED_HEAD + chunk(begin))
        while True:
            await exchange.send(chunk(b"a" * 2**16))

    return behaviour


@contextmanager
def refusing_port() -> Iterator[int]:
    """A port of this machine at which nobody listens: it is taken, so no other program can listen there either."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]
