"""Opening a connection: name resolution, TCP, proxy tunnel, TLS, and what their errors mean.

Error messages name the host, never a header, a query or a proxy's password. The exceptions of asyncio are kept as
causes without their tracebacks, whose frames hold such values.
"""

import asyncio
import errno
import re
import socket
import ssl
from collections.abc import Callable
from typing import Any

from midspan._http.protocol import HttpProtocol
from midspan._http.routes import Address, Route
from midspan.errors import NetworkError

_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})\b")
_MAX_TUNNEL_HEAD = 2**16
_HAPPY_EYEBALLS_SECONDS = 0.25
"""How long to wait before the next address of a host is tried in parallel; RFC 8305 recommends 250 ms."""
_HINTS = {
    errno.ECONNREFUSED: "connection refused; check the URL and whether the server is running",
    errno.ENETUNREACH: "network unreachable; check your network connection",
    errno.EHOSTUNREACH: "host unreachable; check your network connection",
    errno.EMFILE: "too many open files; raise the limit of this process or send fewer requests at once",
}


async def connect(route: Route, protocol: HttpProtocol, tls: ssl.SSLContext | None) -> None:
    """Connect `protocol` to the server of a route, through its proxy if it has one."""
    try:
        if route.proxy is None:
            await _open(lambda: protocol, route.server, tls)
        elif route.server.tls:
            await _open_tunnel(protocol, route, tls)
        else:
            await _open(lambda: protocol, route.proxy, tls)
    except OSError as error:
        failure = _translate(error, route)
    else:
        return
    raise failure


async def _open(
    make_protocol: Callable[[], asyncio.BaseProtocol], address: Address, tls: ssl.SSLContext | None
) -> asyncio.Transport:
    loop = asyncio.get_running_loop()
    options: dict[str, Any] = {"ssl": tls} if address.tls else {}
    if not _is_ip_address(address.host) and isinstance(loop, asyncio.BaseEventLoop):  # uvloop does not support it
        options["happy_eyeballs_delay"] = _HAPPY_EYEBALLS_SECONDS
    transport, _ = await loop.create_connection(make_protocol, address.host, address.port, **options)
    return transport


def _is_ip_address(host: str) -> bool:
    return ":" in host or host.rpartition(".")[2].isdigit()


async def _open_tunnel(protocol: HttpProtocol, route: Route, tls: ssl.SSLContext | None) -> None:
    """Ask the proxy for a tunnel to the server, then start TLS inside the tunnel."""
    assert route.proxy is not None, "only a proxy opens tunnels"
    assert tls is not None, "only https goes through a tunnel"
    loop = asyncio.get_running_loop()
    tunnel = _TunnelProtocol(loop)
    try:
        transport = await _open(lambda: tunnel, route.proxy, tls)
    except OSError as error:
        raise _ProxyError from error
    try:
        transport.write(route.tunnel_head())
        _check_tunnel(await tunnel.head, route.origin)
        encrypted = await loop.start_tls(transport, protocol, tls, server_hostname=route.server.host)
    except BaseException:
        transport.abort()
        raise
    assert encrypted is not None, "the transports of create_connection support start_tls"
    protocol.connection_made(encrypted)


class _TunnelProtocol(asyncio.Protocol):
    """Receives the proxy's response to CONNECT."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.head: asyncio.Future[bytes] = loop.create_future()
        self._received = b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        if (b"\r\n\r\n" in self._received or len(self._received) > _MAX_TUNNEL_HEAD) and not self.head.done():
            self.head.set_result(self._received)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the error says nothing that helps
        if not self.head.done():
            self.head.set_result(self._received)


def _check_tunnel(head: bytes, origin: str) -> None:
    match = _STATUS.match(head)
    if match is None or not head.partition(b"\r\n\r\n")[1]:
        raise NetworkError(f"the proxy for {origin} did not send a valid response to CONNECT")
    status = int(match[1])
    if not 200 <= status < 300:
        error = NetworkError(f"the proxy for {origin} refused the connection with status {status}")
        error.retryable = status >= 500
        raise error
    if not head.endswith(b"\r\n\r\n"):
        raise NetworkError(f"the proxy for {origin} sent data before the TLS handshake")


class _ProxyError(OSError):
    """The proxy itself, not the server behind it, could not be reached; the reason is the cause."""


def _translate(error: OSError, route: Route) -> NetworkError:
    place, cause = f"{route.server.host}:{route.server.port}", error
    if isinstance(error, _ProxyError) or (route.proxy is not None and not route.server.tls):
        place = "the proxy set in HTTPS_PROXY, HTTP_PROXY or ALL_PROXY"
        cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
    failure = NetworkError(_describe(cause, place))
    failure.retryable = not isinstance(cause, ssl.SSLCertVerificationError)
    failure.__cause__ = cause.with_traceback(None)
    cause.__cause__, cause.__suppress_context__ = None, True
    cause.__context__ = None
    return failure


def _describe(error: OSError, place: str) -> str:
    match error:
        case socket.gaierror():
            return f"cannot resolve the name of {place}; check the URL and your network connection"
        case ssl.SSLCertVerificationError():
            return (
                f"the certificate of {place} is not trusted: {error.verify_message or 'verification failed'}; if your "
                "own certificate authority issued it, set SSL_CERT_FILE to a file with the authority's certificate"
            )
        case ssl.SSLError():
            return f"TLS handshake with {place} failed; is this an https URL?"
    hint = _HINTS.get(error.errno or 0) or error.strerror or "check the URL and whether the server is running"
    return f"cannot connect to {place}: {hint}"
