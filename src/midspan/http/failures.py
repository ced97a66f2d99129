"""What goes wrong on the network, as our errors: the one place that knows those of aiohttp, ssl and the system.

Our words name the host and never a header, a query or a body. Nor does what we give as the cause: aiohttp's own errors
carry the whole address in their text and the headers in their fields, so the cause is what lies beneath them.
"""

import asyncio
import errno

import aiohttp

from midspan.errors import ConfigError, MalformedResponse, MidspanError, NetworkError, StreamCut, TimedOut
from midspan.http.deadlines import Deadlines
from midspan.http.messages import HttpRequest, origin_of
from midspan.http.response import OnlyInterim, PoolClosed, StaleConnection
from midspan.http.unreadable import reason
from midspan.http.watch import Stage

_HARMLESS = (aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError)
"""The errors of aiohttp that may have nothing beneath them, and tell nothing, unless they hold a half-read head."""

_WORDS = {
    errno.ECONNREFUSED: "nothing listens there; check the address and whether the service is up",
    errno.ENETUNREACH: "there is no way to that network; check your own connection",
    errno.EHOSTUNREACH: "there is no way to that host; check your own connection",
    errno.EMFILE: "this process has too many open files; raise the limit or send fewer requests at once",
}


_PASSED: dict[Stage, str] = {
    "connect": "no connection to",
    "first_byte": "no answer from",
    "between_bytes": "nothing more of the answer from",
    "total": "not done with",
}


def closed(request: HttpRequest) -> NetworkError:
    """The error for a request whose own transport was closed; to ask again is for whoever closed it."""
    found = NetworkError(f"the client was closed while it waited for {origin_of(request.url)}")
    found.retryable = False
    return found


def timed_out(stage: Stage, request: HttpRequest, deadlines: Deadlines) -> TimedOut:
    """The error for a deadline that passed."""
    seconds = getattr(deadlines, stage)
    return TimedOut(f"{_PASSED[stage]} {origin_of(request.url)} within {seconds:g} s (deadline {stage!r})")


def unanswered(error: BaseException, request: HttpRequest) -> BaseException:
    """The error for a request that got no response; what is not of the network stays as it is."""
    place = origin_of(request.url)
    match error:
        case PoolClosed():
            return closed(request)
        case aiohttp.ClientConnectorError():
            found: MidspanError = _no_connection(error)
        case aiohttp.ClientHttpProxyError():
            found = NetworkError(f"the proxy for {place} answered {error.status} and made no connection to it")
            found.retryable = error.status >= 500
        case aiohttp.http_exceptions.HttpProcessingError():
            why = reason(error) or "it is not HTTP, or its head is too large"
            found = NetworkError(f"the answer of {place} cannot be read: {why}")
        case OnlyInterim():
            times = error.args[0]
            found = NetworkError(f"{place} said {times} times that its answer is still to come (1xx), and sent none")
        case StaleConnection() | aiohttp.ServerDisconnectedError():
            found = NetworkError(f"{place} closed the connection without an answer; trying again may help")
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            return ConfigError(f"a request cannot be sent to {place}: not an http or https address")
        case aiohttp.ClientError() | OSError():
            found = NetworkError(f"the connection to {place} broke before an answer came; trying again may help")
        case ValueError() if not isinstance(error, MidspanError):
            return ConfigError("a header of the request, its method or its address holds a control character or such")
        case TypeError():
            return ConfigError(
                "a header of the request, or its body, has a wrong type; headers are text, a body is bytes"
            )
        case asyncio.CancelledError():
            return error.with_traceback(None)  # a proxy's password may be among the locals of aiohttp
        case _:
            return error
    return _caused(found, error)


def cut(error: BaseException, request: HttpRequest) -> BaseException:
    """The error for a response that broke off; what is not of the network stays as it is."""
    match error:
        case aiohttp.ClientError() | OSError() | aiohttp.http_exceptions.HttpProcessingError():
            why = reason(error)
            what = f"cannot be read: {why}" if why else "broke off before its end"
            return _caused(StreamCut(f"the answer of {origin_of(request.url)} {what}"), error)
        case _:
            return error


def too_large(request: HttpRequest, limit: int | None) -> MalformedResponse:
    """The error for a response whose body is beyond the limit; to ask for it again would not make it smaller."""
    found = MalformedResponse(
        f"the answer of {origin_of(request.url)} has more than {limit:,} bytes and was not read further; "
        "if that is right, raise the limit with Transport(largest_body=…)"
    )
    found.retryable = False
    return found


def _no_connection(error: aiohttp.ClientConnectorError) -> NetworkError:
    place = f"{error.host}:{error.port}"
    match error:
        case aiohttp.ClientConnectorDNSError():
            return NetworkError(f"the name of {place} cannot be resolved; check the name and your own connection")
        case aiohttp.ClientProxyConnectionError():
            place = "the proxy that HTTPS_PROXY, HTTP_PROXY or ALL_PROXY names"
        case aiohttp.ClientConnectorCertificateError():
            reason = getattr(error.certificate_error, "verify_message", "") or "it does not fit"
            found = NetworkError(
                f"the certificate of {place} is not trusted: {reason}; if it is signed by an authority of your own, "
                "name a file with that authority's certificate in SSL_CERT_FILE"
            )
            found.retryable = False
            return found
        case aiohttp.ClientSSLError():
            return NetworkError(f"no TLS with {place}; is it an https address?")
    reason = _WORDS.get(error.os_error.errno or 0) or error.os_error.strerror or "no reason given"
    return NetworkError(f"cannot connect to {place}: {reason}")


def _caused(found: MidspanError, error: BaseException) -> MidspanError:
    beneath = error.__cause__ if isinstance(error, aiohttp.ClientError | StaleConnection) else error
    if beneath is None and isinstance(error, _HARMLESS) and all(isinstance(word, str) for word in error.args):
        beneath = error
    # The frames of aiohttp hold the headers among their locals, and what is further down may hold what was sent.
    found.__cause__ = beneath and beneath.with_traceback(None)
    if beneath is not None:
        beneath.__cause__, beneath.__suppress_context__ = None, True
    return found
